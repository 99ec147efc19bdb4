/* A member on another host is killed within an update: whoever waits for it
 * hears so by name before the deadline, what the rows hold is what the commit
 * mode promises, and the next version works when somebody has its place.
 *
 * Members and the manager are processes of this test, forked before they have
 * threads, and driven by orders through pipes: they die at a named point of the
 * switch, so nothing here waits for a time to pass. */
#include "lib/session_internal.h"
#include "session_world.h"

#include <poll.h>
#include <sys/prctl.h>

#define MOST    6u
#define WAIT_MS 60000         /* an answer that takes longer hangs */
#define LONG_NS (50 * SECOND) /* longer than a silent member is waited for */

enum what { ENTER, LEAVE, OFFER, RECEIVE, DIE_AT, LOOK };

struct order {
    enum what what;
    uint64_t version;
    enum dyti_switch_point point;
};

struct answer {
    enum dyt_status status;
    uint64_t version; /* LOOK: that all elements are of; 0: mixed */
    char text[1024];
};

struct actor {
    pid_t pid;
    int in, out; /* the parent's ends */
    struct member m;
};

/* ---- in the member's process --------------------------------------------- */

static enum dyti_switch_point dies_at;

static void die_there(void *arg, enum dyti_switch_point point)
{
    (void)arg;
    if (point == dies_at) {
        (void)raise(SIGKILL);
    }
}

/* No link runs: the last version is through. */
static void die_at(struct dyt_session *s, enum dyti_switch_point point)
{
    dies_at = point;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->link_count; i++) {
        if (s->link[i] != NULL && s->link[i]->link != NULL) {
            dyti_link_set_fault(s->link[i]->link, DYTI_FAULT_NONE, die_there,
                                NULL);
        }
    }
    pthread_mutex_unlock(&s->lock);
}

static enum dyt_status offer_and_wait(struct member *m, uint64_t version)
{
    dyt_ticket *ticket = NULL;
    enum dyt_status st;

    write_version(m, version);
    st = offer_version(m, version, false, &ticket);
    st = st != DYT_OK ? st : dyt_ticket_wait(ticket, LONG_NS);
    dyt_ticket_destroy(ticket);
    return st;
}

/* Its place is taken until the manager knows that who had it is dead. */
static enum dyt_status enter_when_free(struct member *m)
{
    enum dyt_status st = enter(m);

    while (st == DYT_ERR_BUSY) {
        st = enter(m);
    }
    return st;
}

static void obey(struct member *m, const struct order *o, struct answer *a)
{
    switch (o->what) {
    case ENTER:
        a->status = enter_when_free(m);
        break;
    case LEAVE:
        dyt_session_leave(m->session);
        m->session = NULL;
        break;
    case OFFER:
        a->status = offer_and_wait(m, o->version);
        break;
    case RECEIVE:
        a->status = receive_version(m, o->version);
        break;
    case DIE_AT:
        die_at(m->session, o->point);
        break;
    case LOOK:
        a->status = dyt_session_valid(m->session, &a->version);
        break;
    }
    snprintf(a->text, sizeof(a->text), "%s", dyt_error_text());
    if (o->what == LOOK && a->status == DYT_OK && version_of(m) != a->version) {
        a->version = 0;
    }
}

static void be_member(struct member *m, int in, int out)
{
    struct order o;

    while (read(in, &o, sizeof(o)) == (ssize_t)sizeof(o)) {
        struct answer a = {.status = DYT_OK};

        obey(m, &o, &a);
        if (write(out, &a, sizeof(a)) != (ssize_t)sizeof(a)) {
            break;
        }
    }
}

static void be_manager(const char *address, const char *host, int out)
{
    struct dyti_manager_params p = {
        .address = address, .job = "job", .host = host};
    struct dyti_session_manager *manager = NULL;
    struct answer a = {.status = dyti_session_manager_open(&p, &manager)};

    snprintf(a.text, sizeof(a.text), "%s", dyt_error_text());
    if (write(out, &a, sizeof(a)) == (ssize_t)sizeof(a) && a.status == DYT_OK) {
        (void)dyti_session_manager_run(manager);
    }
}

/* ---- in the test's ------------------------------------------------------- */

struct job {
    const char *folder, *manager_host;
    char address[160];
    struct actor manager, actor[MOST];
    uint32_t trainers, count;
};

static struct job job;

static void start(struct actor *a, bool manager)
{
    int in[2], out[2];
    pid_t parent = getpid();

    assert_int_equal(0, pipe(in));
    assert_int_equal(0, pipe(out));
    (void)fflush(NULL);
    a->pid = fork();
    assert_true(a->pid >= 0);
    if (a->pid == 0) { /* none is left behind by a test that fails */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
            _exit(1);
        }
        close(in[1]);
        close(out[0]);
        if (manager) {
            be_manager(job.address, job.manager_host, out[1]);
        } else {
            be_member(&a->m, in[0], out[1]);
        }
        _exit(0);
    }
    close(in[0]);
    close(out[1]);
    a->in = in[1];
    a->out = out[0];
}

static void reap(struct actor *a)
{
    if (a->pid > 0) {
        (void)kill(a->pid, SIGKILL);
        assert_int_equal(a->pid, waitpid(a->pid, NULL, 0));
        close(a->in);
        close(a->out);
        a->pid = 0;
    }
}

static int reap_all(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < MOST; i++) {
        reap(&job.actor[i]);
        leave(&job.actor[i].m); /* its session was its process's */
    }
    reap(&job.manager);
    memset(&job, 0, sizeof(job));
    return 0;
}

static void tell(struct actor *a, enum what what, uint64_t version,
                 enum dyti_switch_point point)
{
    struct order o = {.what = what, .version = version, .point = point};

    assert_int_equal(sizeof(o), write(a->in, &o, sizeof(o)));
}

/* false: it is dead. */
static bool hear(struct actor *a, struct answer *out)
{
    struct pollfd p = {.fd = a->out, .events = POLLIN};

    if (poll(&p, 1, WAIT_MS) <= 0) {
        fail_msg("process %d says nothing for %d s", (int)a->pid,
                 WAIT_MS / 1000);
    }
    return read(a->out, out, sizeof(*out)) == (ssize_t)sizeof(*out);
}

static void hear_ok(uint32_t i, const char *of)
{
    struct answer a = {0};

    if (!hear(&job.actor[i], &a)) {
        fail_msg("%s: member %u died", of, i);
    }
    if (a.status != DYT_OK) {
        fail_msg("%s: member %u: %s", of, i, a.text);
    }
}

static void ask(uint32_t i, enum what what, struct answer *out)
{
    tell(&job.actor[i], what, 0, DYTI_AT_START);
    assert_true(hear(&job.actor[i], out));
}

/* All members enter at once: each waits for the others. */
static void enter_some(uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        tell(&job.actor[i], ENTER, 0, DYTI_AT_START);
    }
    for (uint32_t i = first; i < end; i++) {
        hear_ok(i, "entering");
    }
}

static void order_version(uint64_t version)
{
    for (uint32_t i = 0; i < job.count; i++) {
        tell(&job.actor[i], i < job.trainers ? OFFER : RECEIVE, version,
             DYTI_AT_START);
    }
}

static void must_hold(uint32_t i, uint64_t version)
{
    struct answer a = {0};

    ask(i, LOOK, &a);
    if (a.status != DYT_OK || a.version != version) {
        fail_msg("member %u: %s, version %" PRIu64 " of %" PRIu64 ": %s", i,
                 dyt_status_name(a.status), a.version, version, a.text);
    }
}

static void is_invalid(uint32_t i)
{
    struct answer a = {0};

    ask(i, LOOK, &a);
    assert_int_equal(DYT_ERR_STATE, a.status);
    assert_non_null(strstr(a.text, "INVALID"));
}

static void is_invalid_or_holds(uint32_t i, uint64_t version)
{
    struct answer a = {0};

    ask(i, LOOK, &a);
    if (a.status == DYT_OK) {
        assert_int_equal(version, a.version);
    } else {
        assert_int_equal(DYT_ERR_STATE, a.status);
        assert_non_null(strstr(a.text, "INVALID"));
    }
}

static void all_get(uint64_t version)
{
    order_version(version);
    for (uint32_t i = job.count; i-- > 0;) { /* those that receive know more */
        hear_ok(i, "an update");
    }
    for (uint32_t i = job.trainers; i < job.count; i++) {
        must_hold(i, version);
    }
}

static void add(const char *host, uint32_t role, uint32_t replica,
                uint32_t rank, uint32_t size)
{
    struct member *m = &job.actor[job.count++].m;

    describe(m, job.folder, role, replica, rank, size);
    m->join.host = host;
    m->join.host_manager = 2; /* it is a process of its own */
    m->join.timeout_ns = 6 * SECOND;
    m->deadline_ns = LONG_NS;
}

/* Trainer of two ranks on hosts a and c, a replica of two on b, and one on d
 * that sees nothing of it. */
static void begin(const char *manager_host, uint32_t commit, uint32_t memory,
                  bool bystander)
{
    struct answer a = {0};

    job.folder = dyt_test_dir();
    assert_int_equal(0, chmod(job.folder, 0700));
    snprintf(job.address, sizeof(job.address), "unix:%s/s.sock", job.folder);
    job.manager_host = manager_host;
    add("a", DYT_ROLE_TRAINER, 0, 0, 2);
    add("c", DYT_ROLE_TRAINER, 0, 1, 2);
    job.trainers = job.count;
    add("b", DYT_ROLE_RECEIVER, 0, 0, 2);
    add("b", DYT_ROLE_RECEIVER, 0, 1, 2);
    if (bystander) {
        add("d", DYT_ROLE_RECEIVER, 1, 0, 1);
    }
    start(&job.manager, true);
    assert_true(hear(&job.manager, &a));
    assert_int_equal(DYT_OK, a.status);
    for (uint32_t i = 0; i < job.count; i++) {
        job.actor[i].m.join.commit = i < job.trainers ? 0 : commit;
        job.actor[i].m.join.memory = i < job.trainers ? 0 : memory;
        start(&job.actor[i], false);
    }
    enter_some(0, job.count);
    all_get(1);
}

static void is_dead(uint32_t i)
{
    struct answer a;

    assert_false(hear(&job.actor[i], &a));
    reap(&job.actor[i]);
}

static void failed_by_peer(uint32_t i)
{
    struct answer a = {0};

    assert_true(hear(&job.actor[i], &a));
    if (a.status != DYT_ERR_PEER || strstr(a.text, "rank ") == NULL) {
        fail_msg("member %u: %s: %s", i, dyt_status_name(a.status), a.text);
    }
}

/* ---- cases --------------------------------------------------------------- */

static const struct {
    uint32_t commit, memory;
} mode[] = {{DYT_COMMIT_STAGED, DYT_MEMORY_OWN},
            {DYT_COMMIT_IN_PLACE, DYT_MEMORY_OWN},
            {DYT_COMMIT_DOUBLE, DYT_MEMORY_MAPPED}};

static const enum dyti_switch_point point[] = {
    DYTI_AT_PREPARED, DYTI_AT_TRANSFERRED, DYTI_AT_VERIFIED};

/* Every mode and every point by default, all pairs of them in full. */
#define CASES dyt_test_rounds(3, 9)

static enum dyti_switch_point point_of(uint64_t i)
{
    return point[(i + i / 3) % 3];
}

/* In place a peer may die before this one has written its first byte. */
static void check_mode(uint32_t i, uint32_t commit, enum dyti_switch_point at)
{
    if (commit == DYT_COMMIT_IN_PLACE && at == DYTI_AT_PREPARED) {
        is_invalid_or_holds(i, 1);
    } else if (commit == DYT_COMMIT_IN_PLACE) {
        is_invalid(i);
    } else {
        must_hold(i, 1);
    }
}

/* Rank 1 of the trainer dies; its manager is on its host, and sees it. */
static void a_source_dies(void **state)
{
    for (uint64_t i = 0; i < CASES; i++) {
        uint32_t commit = mode[i % 3].commit;

        begin("c", commit, mode[i % 3].memory, false);
        tell(&job.actor[1], DIE_AT, 0, point_of(i));
        hear_ok(1, "a fault");
        order_version(2);
        is_dead(1);
        failed_by_peer(0);
        for (uint32_t r = 2; r < 4; r++) {
            failed_by_peer(r);
            check_mode(r, commit, point_of(i));
        }
        /* a trainer comes back whole */
        tell(&job.actor[0], LEAVE, 0, DYTI_AT_START);
        hear_ok(0, "leaving");
        start(&job.actor[1], false);
        enter_some(0, 2);
        all_get(3);
        (void)reap_all(state);
    }
}

/* Rank 1 of a replica dies: the other replica gets the version. */
static void receiver_dies(const char *manager_host, size_t m,
                          enum dyti_switch_point at, void **state)
{
    begin(manager_host, mode[m].commit, mode[m].memory, true);
    tell(&job.actor[3], DIE_AT, 0, at);
    hear_ok(3, "a fault");
    order_version(2);
    is_dead(3);
    failed_by_peer(2);
    check_mode(2, mode[m].commit, at);
    hear_ok(4, "the other replica");
    must_hold(4, 2);
    hear_ok(0, "the trainer");
    hear_ok(1, "the trainer");
    start(&job.actor[3], false);
    enter_some(3, 4);
    all_get(3);
    (void)reap_all(state);
}

static void a_receiver_dies(void **state)
{
    for (uint64_t i = 0; i < CASES; i++) {
        receiver_dies("b", i % 3, point_of(i), state);
    }
}

/* The manager sees nothing of that process: connections end, and then its
 * heartbeats do. */
static void a_receiver_dies_far_from_the_manager(void **state)
{
    receiver_dies("a", 0, DYTI_AT_TRANSFERRED, state);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_teardown(a_source_dies, reap_all),
    cmocka_unit_test_teardown(a_receiver_dies, reap_all),
    cmocka_unit_test_teardown(a_receiver_dies_far_from_the_manager, reap_all),
};
DYT_TEST_MAIN(tests)
