/* Test builds only: how a process dies, hangs, fails or errs on order. */
#include "cli/fault.h"

#ifdef DYT_TEST_HOOKS

#include "base/env.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VOTE_NS 5000000

static const char *const points[] = {
    "hello",    "built",       "loaded",     "generate",     "generated",
    "train",    "trained",     "checkpoint", "checkpointed", "start",
    "prepared", "transferred", "verified",   "voted",        "decided",
    "spawned",  "begin",       "votes",      "commit",       "save",
    "parts",    "saved"};

static const struct {
    const char *how;
    enum dyti_switch_fault fault;
} switch_mistakes[] = {{"skip", DYTI_FAULT_SKIP},
                       {"stale", DYTI_FAULT_STALE},
                       {"swap_kv", DYTI_FAULT_SWAP_KV},
                       {"late", DYTI_FAULT_LATE}};

static const struct {
    const char *how;
    enum dyti_trainer_mutant mutant;
} trainer_mistakes[] = {{"drop_micro", DYTI_MUTANT_DROP_MICRO},
                        {"double_shared", DYTI_MUTANT_DOUBLE_SHARED},
                        {"double_replica", DYTI_MUTANT_DOUBLE_REPLICA}};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- reading ------------------------------------------------------------- */

static bool is_point(const char *name)
{
    for (size_t i = 0; i < COUNT(points); i++) {
        if (strcmp(points[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_how(const char *name)
{
    static const char *const plain[] = {"kill", "hang", "exit", "fail",
                                        "stale_kv"};

    for (size_t i = 0; i < COUNT(plain); i++) {
        if (strcmp(plain[i], name) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < COUNT(switch_mistakes); i++) {
        if (strcmp(switch_mistakes[i].how, name) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < COUNT(trainer_mistakes); i++) {
        if (strcmp(trainer_mistakes[i].how, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool copy_word(char to[16], const char *value, size_t bytes)
{
    if (bytes == 0 || bytes >= 16) {
        return false;
    }
    memcpy(to, value, bytes);
    to[bytes] = '\0';
    return true;
}

/* "key=value" of `bytes`; *mine: this process is meant. */
static bool take(struct dyti_faults *f, int32_t self, const char *item,
                 size_t bytes, bool *mine)
{
    const char *equal = memchr(item, '=', bytes);
    size_t key = equal != NULL ? (size_t)(equal - item) : bytes;
    char value[16], *end;
    uint64_t number;

    if (equal == NULL || !copy_word(value, equal + 1, bytes - key - 1)) {
        return false;
    }
    number = strtoull(value, &end, 10);
    if (key == 4 && strncmp(item, "rank", key) == 0) {
        if (strcmp(value, "manager") == 0) {
            *mine = self == DYTI_FAULT_MANAGER;
        } else if (strcmp(value, "all") != 0) {
            *mine = self >= 0 && number == (uint64_t)self;
            return *end == '\0';
        }
        return true;
    }
    if (key == 2 && strncmp(item, "at", key) == 0) {
        return copy_word(f->at, value, strlen(value)) && is_point(value);
    }
    if (key == 2 && strncmp(item, "to", key) == 0) {
        return copy_word(f->to, value, strlen(value));
    }
    if (key == 3 && strncmp(item, "how", key) == 0) {
        return copy_word(f->how, value, strlen(value)) && is_how(value);
    }
    if (key == 4 && strncmp(item, "step", key) == 0) {
        f->step = number;
        return *end == '\0';
    }
    if (key == 6 && strncmp(item, "tensor", key) == 0) {
        f->tensor = number;
        return *end == '\0';
    }
    return false;
}

enum dyt_status dyti_faults_read(struct dyti_faults *f, int32_t self)
{
    const char *text = dyti_env_text(DYTI_ENV_FAULT);
    bool mine = self >= 0;

    *f = (struct dyti_faults){.armed = false};
    if (text == NULL) {
        return DYT_OK;
    }
    for (const char *item = text; *item != '\0';) {
        size_t bytes = strcspn(item, ",");

        if (!take(f, self, item, bytes, &mine)) {
            return DYTI_FAIL(DYT_ERR_CONFIG, "DYNATRAIN_FAULT: \"%.*s\"",
                             (int)bytes, item);
        }
        item += bytes + (item[bytes] == ',');
    }
    f->armed = mine;
    return f->how[0] != '\0'
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_CONFIG, "DYNATRAIN_FAULT: how is missing");
}

/* ---- what happens -------------------------------------------------------- */

void dyti_faults_step(struct dyti_faults *f, uint64_t step)
{
    f->now = step;
}

static bool due(const struct dyti_faults *f)
{
    return f->armed && f->now >= f->step &&
           (f->to[0] == '\0' ||
            (f->target != NULL && strcmp(f->to, f->target) == 0));
}

enum dyt_status dyti_faults_at(struct dyti_faults *f, const char *point)
{
    if (!due(f) || strcmp(f->at, point) != 0) {
        return DYT_OK;
    }
    if (strcmp(f->how, "kill") == 0) {
        kill(getpid(), SIGKILL);
    }
    if (strcmp(f->how, "hang") == 0) { /* tests wait for it */
        static const char said[] = "fault: hangs here\n";

        (void)!write(STDERR_FILENO, said, sizeof(said) - 1);
    }
    while (strcmp(f->how, "hang") == 0) {
        pause();
    }
    if (strcmp(f->how, "exit") == 0) {
        _exit(0);
    }
    return strcmp(f->how, "fail") == 0
               ? DYTI_FAIL(DYT_ERR_DEVICE, "a fault was ordered at \"%s\"",
                           point)
               : DYT_OK;
}

static bool all_voted(struct dyti_control_page *page, uint32_t ranks,
                      uint64_t epoch)
{
    for (uint32_t r = 0; r < ranks; r++) {
        if (atomic_load(&page->rank[r].vote) >> 8 != epoch) {
            return false;
        }
    }
    return true;
}

void dyti_faults_await_votes(struct dyti_faults *f,
                             struct dyti_control_page *page, uint32_t ranks,
                             uint64_t epoch, const struct dyti_wait_ops *wait)
{
    if (!due(f) || strcmp(f->at, "votes") != 0) {
        return;
    }
    while (!all_voted(page, ranks, epoch)) {
        uint32_t bell = atomic_load(&page->vote_bell);

        if (!all_voted(page, ranks, epoch)) {
            wait->wait(&page->vote_bell, bell, VOTE_NS);
        }
    }
}

static void at_switch(void *arg, enum dyti_switch_point point)
{
    struct dyti_faults *f = arg;

    (void)dyti_faults_at(f, dyti_switch_point_name(point));
}

void dyti_faults_switch(struct dyti_faults *f, enum dyti_target target,
                        struct dyti_switch_order *order)
{
    f->target = target == DYTI_TARGET_ROLLOUT ? "rollout" : "train";
    if (!due(f)) {
        return;
    }
    order->at = at_switch;
    order->at_arg = f;
    order->fault_tensor = (uint32_t)f->tensor;
    for (size_t i = 0; i < COUNT(switch_mistakes); i++) {
        if (strcmp(f->how, switch_mistakes[i].how) == 0) {
            order->fault = switch_mistakes[i].fault;
        }
    }
    if (strcmp(f->how, "fail") == 0 && strcmp(f->at, "transferred") == 0) {
        order->fault = DYTI_FAULT_FAIL;
    }
}

void dyti_faults_trainer(const struct dyti_faults *f,
                         struct dyti_trainer_params *params)
{
    for (size_t i = 0; f->armed && i < COUNT(trainer_mistakes); i++) {
        if (strcmp(f->how, trainer_mistakes[i].how) == 0) {
            params->mutant = trainer_mistakes[i].mutant;
        }
    }
}

void dyti_faults_rollout(const struct dyti_faults *f,
                         struct dyti_rollout_params *params)
{
    params->stale_kv = f->armed && strcmp(f->how, "stale_kv") == 0;
}

#endif /* DYT_TEST_HOOKS */
