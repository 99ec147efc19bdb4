/* A job of processes, for tests: a manager, trainers, servers, each driven by
 * lines (session_member.c), each of which may be killed or stopped. */
#ifndef SESSION_JOB_H
#define SESSION_JOB_H

#include "base/rng.h"
#include "session_process.h"
#include "session_values.h"

#include <sys/stat.h>

#ifndef DYT_MEMBER
#define DYT_MEMBER "build/test/tests/test.session_member"
#endif

#define ORPHAN_MS 6000 /* deadline of an update whose trainer is killed */

/* ---- a job --------------------------------------------------------------- */

#define TRAINERS    2u
#define SERVERS     2u /* where a test does not say otherwise */
#define MOST        4u
#define MANAGER_ARG 6u

struct job {
    const char *folder, *name, *mode;
    char address[200];
    struct member manager;
    struct member trainer[TRAINERS];
    struct member server[MOST]; /* ranks of one replica, or replicas */
    uint32_t servers;
    bool replicas;
    bool hosted;      /* the trainer's rank 0 is the manager */
    uint64_t version; /* offered last */
    bool heard;       /* the trainers said "offered" of it */
    const char *manager_arg[MANAGER_ARG];
};

static inline void start_manager(struct job *job)
{
    char *argv[4 + MANAGER_ARG] = {(char *)(uintptr_t)DYT_BIN,
                                   (char[]){"serve"}, job->address};
    char log[300];
    struct stat st;

    for (uint32_t i = 0; i < MANAGER_ARG; i++) {
        argv[3 + i] = (char *)(uintptr_t)job->manager_arg[i];
    }
    snprintf(log, sizeof(log), "%s/manager.log", job->folder);
    job->manager = spawn(argv, log);
    for (int i = 0; i < WAIT_MS / 20 && stat(job->address + 5, &st) != 0; i++) {
        poll(NULL, 0, 20);
    }
    assert_int_equal(0, stat(job->address + 5, &st));
}

/* It has not said "ready" yet. */
static inline struct member spawn_trainer(struct job *job, uint32_t r,
                                          uint32_t of)
{
    char rank[8], size[8], trainer[] = "trainer", host[] = "host";
    char *argv[] = {(char *)(uintptr_t)DYT_MEMBER,
                    job->hosted && r == 0 ? host : trainer,
                    job->address,
                    (char *)(uintptr_t)job->name,
                    rank,
                    size,
                    NULL};

    snprintf(rank, sizeof(rank), "%u", r);
    snprintf(size, sizeof(size), "%u", of);
    return spawn(argv, NULL);
}

static inline void start_trainers(struct job *job)
{
    char line[LINE_BYTES];

    for (uint32_t r = 0; r < TRAINERS; r++) {
        job->trainer[r] = spawn_trainer(job, r, TRAINERS);
    }
    for (uint32_t r = 0; r < TRAINERS; r++) {
        await(&job->trainer[r], "ready", line, NULL);
    }
}

static inline void start_server(struct job *job, uint32_t s)
{
    char replica[8], rank[8], size[8];
    char *argv[] = {(char *)(uintptr_t)DYT_MEMBER,
                    (char[]){"server"},
                    job->address,
                    (char *)(uintptr_t)job->name,
                    replica,
                    rank,
                    size,
                    (char *)(uintptr_t)job->mode,
                    NULL};

    snprintf(replica, sizeof(replica), "%u", job->replicas ? s : 0);
    snprintf(rank, sizeof(rank), "%u", job->replicas ? 0 : s);
    snprintf(size, sizeof(size), "%u", job->replicas ? 1 : job->servers);
    job->server[s] = spawn(argv, NULL);
}

static inline void make_folder(struct job *job)
{
    job->folder = dyt_test_dir();
    assert_int_equal(0, chmod(job->folder, 0700));
    snprintf(job->address, sizeof(job->address), "unix:%s/s.sock", job->folder);
}

static inline void start_all(struct job *job)
{
    char line[LINE_BYTES];

    make_folder(job);
    if (!job->hosted) {
        start_manager(job);
    }
    start_trainers(job);
    for (uint32_t s = 0; s < job->servers; s++) {
        start_server(job, s);
    }
    for (uint32_t s = 0; s < job->servers; s++) {
        await(&job->server[s], "ready", line, NULL);
    }
}

static inline struct job start_job(const char *mode, bool replicas)
{
    struct job job = {
        .name = "job", .mode = mode, .replicas = replicas, .servers = SERVERS};

    start_all(&job);
    return job;
}

static inline void kill_trainers_of(struct job *job, uint32_t first)
{
    for (uint32_t r = 0; r < TRAINERS; r++) {
        kill_member(&job->trainer[(first + r) % TRAINERS]);
    }
}

static inline void stop_job(struct job *job)
{
    for (uint32_t s = 0; s < job->servers; s++) {
        kill_member(&job->server[s]);
    }
    kill_trainers_of(job, 0);
    kill_member(&job->manager);
}

static inline void offer(struct job *job)
{
    job->version++;
    for (uint32_t r = 0; r < TRAINERS; r++) {
        tell(&job->trainer[r], "offer %" PRIu64 "\n", job->version);
    }
}

static inline void update_within(struct job *job, uint32_t s, int ms)
{
    tell(&job->server[s], "update %" PRIu64 " %d\n", job->version, ms);
}

static inline void update(struct job *job, uint32_t s)
{
    update_within(job, s, 20000);
}

/* ---- answers ------------------------------------------------------------- */

/* The content hash of rows lo … hi of all tensors in a version, made from what
 * the values are; the last ones are kept. */
static inline uint64_t content_of(uint64_t version, int64_t lo, int64_t hi)
{
    static struct content {
        uint64_t version, hash;
        int64_t lo, hi;
    } kept[8];
    struct content *c;
    uint64_t hash = 0;

    for (size_t i = 0; i < DYT_TEST_COUNT(kept); i++) {
        if (kept[i].version == version && kept[i].lo == lo &&
            kept[i].hi == hi) {
            return kept[i].hash;
        }
    }
    for (uint32_t t = 0; t < TENSORS; t++) {
        for (int64_t i = lo * COLS; i < hi * COLS; i++) {
            hash +=
                content_of_element(t, i / COLS, i % COLS,
                                   value_of(version, t, i / COLS, i % COLS));
        }
    }
    c = &kept[(version * 2 + (lo > 0)) % DYT_TEST_COUNT(kept)];
    *c = (struct content){version, hash, lo, hi};
    return hash;
}

/* A request that was answered: from one version, which has this content. */
static inline void not_mixed(const char *line)
{
    uint64_t id = 0, version = 0, hash = 0;
    int64_t lo = 0, hi = 0;
    int n = sscanf(line,
                   "answer %" SCNu64 " %" SCNu64 " whole %" SCNd64 " %" SCNd64
                   " %" SCNx64,
                   &id, &version, &lo, &hi, &hash);

    if (n == 5 && version > 0 && lo >= 0 && lo < hi && hi <= ROWS) {
        if (hash != content_of(version, lo, hi)) {
            fail_msg("a server says \"%s\", but the content hash of that "
                     "version is %016" PRIx64,
                     line, content_of(version, lo, hi));
        }
    } else if (n != 2 || version != 0) {
        fail_msg("a server says \"%s\"", line);
    }
}

/* "answer ID VERSION whole" -> VERSION; 0 where it refuses. */
static inline uint64_t ask(struct member *server)
{
    static uint64_t id;
    char line[LINE_BYTES], start[32], word[64];
    uint64_t version = 0;

    snprintf(start, sizeof(start), "answer %" PRIu64 " ", ++id);
    tell(server, "ask %" PRIu64 "\n", id);
    await(server, start, line, not_mixed);
    not_mixed(line);
    assert_int_equal(
        2, sscanf(line + strlen(start), "%" SCNu64 " %63s", &version, word));
    if (version > 0 ? strcmp(word, "whole") != 0
                    : strcmp(word, "DYT_ERR_STATE") != 0) {
        fail_msg("a server says \"%s\"", line);
    }
    return version;
}

static inline void updated_text(struct member *server, char status[64],
                                uint64_t *out_version, char line[LINE_BYTES])
{
    await(server, "updated ", line, not_mixed);
    assert_int_equal(
        2, sscanf(line, "updated %63s %" SCNu64, status, out_version));
}

static inline void updated(struct member *server, char status[64],
                           uint64_t *out_version)
{
    char line[LINE_BYTES];

    updated_text(server, status, out_version, line);
}

/* The server took the version that was offered last, and serves it. */
static inline void took(struct job *job, uint32_t s)
{
    char status[64], line[LINE_BYTES];
    uint64_t version;

    updated_text(&job->server[s], status, &version, line);
    if (strcmp(status, "DYT_OK") != 0 || version != job->version) {
        fail_msg("%s: version %" PRIu64 ", and server %u says \"%s\"",
                 job->mode, job->version, s, line);
    }
    assert_int_equal(job->version, ask(&job->server[s]));
    tell(&job->server[s], "hash\n"); /* the library's, of the same rows */
    await(&job->server[s], "answer 0 ", line, not_mixed);
    not_mixed(line);
}

static inline void hear_offered(struct job *job)
{
    char line[LINE_BYTES];

    for (uint32_t r = 0; r < TRAINERS && !job->heard; r++) {
        await(&job->trainer[r], "offered", line, NULL);
    }
    job->heard = true;
}

/* The trainers' tickets ended well. */
static inline void freed(struct job *job)
{
    char line[LINE_BYTES];

    hear_offered(job);
    job->heard = false;
    for (uint32_t r = 0; r < TRAINERS; r++) {
        await(&job->trainer[r], "done", line, NULL);
        if (strstr(line, "DYT_OK") == NULL) {
            fail_msg("%s: trainer %u says \"%s\"", job->mode, r, line);
        }
    }
}

static inline bool says_more(const struct member *m)
{
    struct pollfd p = {.fd = m->out, .events = POLLIN};

    return m->bytes > 0 || poll(&p, 1, 10) > 0;
}

/* Was the last offer done, or can it still be taken? */
static inline bool is_out(struct job *job)
{
    bool open = false;

    hear_offered(job);
    while (!open && !says_more(&job->trainer[0])) {
        struct dyt_run run = dyt_run("status", job->address, "--json", NULL);

        assert_exit(0, run);
        open = strstr(run.out, "\"offer_open\": true") != NULL;
        dyt_run_fini(&run);
    }
    return !open;
}

static inline void update_all(struct job *job)
{
    offer(job);
    for (uint32_t s = 0; s < job->servers; s++) {
        update(job, s);
    }
    for (uint32_t s = 0; s < job->servers; s++) {
        took(job, s);
    }
    freed(job);
}

/* ---- the moments --------------------------------------------------------- */

static inline int64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* How long an update takes here: kills come within it. */
static inline int64_t measure(struct job *job)
{
    int64_t start = now_us(), most = 0;

    for (int i = 0; i < 3; i++) {
        update_all(job);
        most = now_us() - start > most ? now_us() - start : most;
        start = now_us();
    }
    return most;
}

static inline void let_pass(int64_t us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};

    nanosleep(&t, NULL);
}

static inline int64_t moment(uint64_t seed, uint32_t round, int64_t span)
{
    return (int64_t)(dyti_rng_u64(seed, round, 0, 0) % (uint64_t)span);
}

#endif /* SESSION_JOB_H */
