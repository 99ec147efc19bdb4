/* Trainers and servers of a session are killed at random moments of an update:
 * what is left is what the commit mode promises, on all members of a replica
 * alike, no request is ever answered from mixed weights, and whoever comes back
 * gets the current version before it serves. */
#include "base/rng.h"
#include "dyt_run.h"

#include <sys/stat.h>

#define LINE_BYTES 4096
#define WAIT_MS    60000 /* a line that takes longer hangs */
#define ORPHAN_MS  1500  /* deadline of an update whose trainer is killed */

/* ---- processes ----------------------------------------------------------- */

struct member {
    pid_t pid;
    int in, out;
    char text[16384]; /* read, and not looked at */
    size_t bytes;
};

static struct member spawn(char *const argv[])
{
    struct member m = {0};
    posix_spawn_file_actions_t files;
    int in[2], out[2];

    assert_int_equal(0, pipe2(in, O_CLOEXEC));
    assert_int_equal(0, pipe2(out, O_CLOEXEC));
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in[0], 0);
    posix_spawn_file_actions_adddup2(&files, out[1], 1);
    assert_int_equal(0,
                     posix_spawn(&m.pid, argv[0], &files, NULL, argv, environ));
    posix_spawn_file_actions_destroy(&files);
    close(in[0]);
    close(out[1]);
    m.in = in[1];
    m.out = out[0];
    return m;
}

static void kill_member(struct member *m)
{
    if (m->pid == 0) {
        return;
    }
    kill(m->pid, SIGKILL);
    assert_int_equal(m->pid, waitpid(m->pid, NULL, 0));
    close(m->in);
    close(m->out);
    memset(m, 0, sizeof(*m));
}

/* The next line; false: the process has ended. */
static bool next_line(struct member *m, char line[LINE_BYTES])
{
    for (;;) {
        char *end = memchr(m->text, '\n', m->bytes);
        struct pollfd p = {.fd = m->out, .events = POLLIN};
        ssize_t got;

        if (end != NULL) {
            size_t n = (size_t)(end - m->text);

            assert_true(n < LINE_BYTES);
            memcpy(line, m->text, n);
            line[n] = '\0';
            m->bytes -= n + 1;
            memmove(m->text, end + 1, m->bytes);
            return true;
        }
        assert_true(m->bytes < sizeof(m->text));
        if (poll(&p, 1, WAIT_MS) <= 0) {
            fail_msg("process %d says nothing for %d s", (int)m->pid,
                     WAIT_MS / 1000);
        }
        got = read(m->out, m->text + m->bytes, sizeof(m->text) - m->bytes);
        if (got <= 0) {
            return false;
        }
        m->bytes += (size_t)got;
    }
}

static void tell(struct member *m, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void tell(struct member *m, const char *fmt, ...)
{
    char line[LINE_BYTES];
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    /* one that was killed does not listen */
    (void)!write(m->in, line, (size_t)n);
}

/* Read on to a line that begins with `start`; what comes before it is passed to
 * `seen` (NULL: it must not come). */
static void await(struct member *m, const char *start, char line[LINE_BYTES],
                  void (*seen)(const char *line))
{
    for (;;) {
        if (!next_line(m, line)) {
            fail_msg("process %d ended before it said \"%s\"", (int)m->pid,
                     start);
        }
        if (strncmp(line, start, strlen(start)) == 0) {
            return;
        }
        if (seen == NULL) {
            fail_msg("process %d says \"%s\", \"%s\" was due", (int)m->pid,
                     line, start);
        }
        seen(line);
    }
}

/* ---- a job --------------------------------------------------------------- */

#define TRAINERS 2u
#define SERVERS  2u

struct job {
    const char *folder;
    char address[200];
    struct member manager;
    struct member trainer[TRAINERS];
    struct member server[SERVERS]; /* ranks of one replica, or replicas */
    const char *mode;
    bool replicas;
    uint64_t version; /* offered last */
};

static void start_manager(struct job *job)
{
    char *argv[] = {(char *)(uintptr_t)DYT_BIN, (char[]){"serve"}, job->address,
                    NULL};
    struct stat st;

    job->manager = spawn(argv);
    for (int i = 0; i < 500 && stat(job->address + 5, &st) != 0; i++) {
        poll(NULL, 0, 20);
    }
    assert_int_equal(0, stat(job->address + 5, &st));
}

static void start_trainers(struct job *job)
{
    char line[LINE_BYTES];

    for (uint32_t r = 0; r < TRAINERS; r++) {
        char rank[8], size[8];
        char *argv[] = {(char *)(uintptr_t)DYT_MEMBER,
                        (char[]){"trainer"},
                        job->address,
                        (char[]){"job"},
                        rank,
                        size,
                        NULL};

        snprintf(rank, sizeof(rank), "%u", r);
        snprintf(size, sizeof(size), "%u", TRAINERS);
        job->trainer[r] = spawn(argv);
    }
    for (uint32_t r = 0; r < TRAINERS; r++) {
        await(&job->trainer[r], "ready", line, NULL);
    }
}

static void start_server(struct job *job, uint32_t s)
{
    char replica[8], rank[8], size[8];
    char *argv[] = {(char *)(uintptr_t)DYT_MEMBER,
                    (char[]){"server"},
                    job->address,
                    (char[]){"job"},
                    replica,
                    rank,
                    size,
                    (char *)(uintptr_t)job->mode,
                    NULL};

    snprintf(replica, sizeof(replica), "%u", job->replicas ? s : 0);
    snprintf(rank, sizeof(rank), "%u", job->replicas ? 0 : s);
    snprintf(size, sizeof(size), "%u", job->replicas ? 1 : SERVERS);
    job->server[s] = spawn(argv);
}

static struct job start_job(const char *mode, bool replicas)
{
    struct job job = {.mode = mode, .replicas = replicas};
    char line[LINE_BYTES];

    job.folder = dyt_test_dir();
    assert_int_equal(0, chmod(job.folder, 0700));
    snprintf(job.address, sizeof(job.address), "unix:%s/s.sock", job.folder);
    start_manager(&job);
    start_trainers(&job);
    for (uint32_t s = 0; s < SERVERS; s++) {
        start_server(&job, s);
    }
    for (uint32_t s = 0; s < SERVERS; s++) {
        await(&job.server[s], "ready", line, NULL);
    }
    return job;
}

static void stop_job(struct job *job)
{
    for (uint32_t s = 0; s < SERVERS; s++) {
        kill_member(&job->server[s]);
    }
    for (uint32_t r = 0; r < TRAINERS; r++) {
        kill_member(&job->trainer[r]);
    }
    kill_member(&job->manager);
}

static void offer(struct job *job)
{
    job->version++;
    for (uint32_t r = 0; r < TRAINERS; r++) {
        tell(&job->trainer[r], "offer %" PRIu64 "\n", job->version);
    }
}

static void update_within(struct job *job, uint32_t s, int ms)
{
    tell(&job->server[s], "update %" PRIu64 " %d\n", job->version, ms);
}

static void update(struct job *job, uint32_t s)
{
    update_within(job, s, 20000);
}

/* ---- answers ------------------------------------------------------------- */

/* A request that was answered while something else was awaited. */
static void not_mixed(const char *line)
{
    if (strncmp(line, "answer ", 7) != 0 || strstr(line, "mixed") != NULL) {
        fail_msg("a server says \"%s\"", line);
    }
}

/* "answer ID VERSION whole" -> VERSION; 0 where it refuses. */
static uint64_t ask(struct member *server)
{
    static uint64_t id;
    char line[LINE_BYTES], start[32], word[64];
    uint64_t version = 0;

    snprintf(start, sizeof(start), "answer %" PRIu64 " ", ++id);
    tell(server, "ask %" PRIu64 "\n", id);
    await(server, start, line, not_mixed);
    assert_int_equal(
        2, sscanf(line + strlen(start), "%" SCNu64 " %63s", &version, word));
    if (version > 0 ? strcmp(word, "whole") != 0
                    : strcmp(word, "DYT_ERR_STATE") != 0) {
        fail_msg("a server says \"%s\"", line);
    }
    return version;
}

static void updated_text(struct member *server, char status[64],
                         uint64_t *out_version, char line[LINE_BYTES])
{
    await(server, "updated ", line, not_mixed);
    assert_int_equal(
        2, sscanf(line, "updated %63s %" SCNu64, status, out_version));
}

static void updated(struct member *server, char status[64],
                    uint64_t *out_version)
{
    char line[LINE_BYTES];

    updated_text(server, status, out_version, line);
}

static void update_all(struct job *job)
{
    char status[64], line[LINE_BYTES];
    uint64_t version;

    offer(job);
    for (uint32_t s = 0; s < SERVERS; s++) {
        update(job, s);
    }
    for (uint32_t s = 0; s < SERVERS; s++) {
        updated(&job->server[s], status, &version);
        if (strcmp(status, "DYT_OK") != 0 || version != job->version) {
            fail_msg("%s: version %" PRIu64 " ends in %s, %" PRIu64, job->mode,
                     job->version, status, version);
        }
    }
    for (uint32_t r = 0; r < TRAINERS; r++) {
        await(&job->trainer[r], "offered", line, NULL);
        await(&job->trainer[r], "done", line, NULL);
        assert_non_null(strstr(line, "DYT_OK"));
    }
    for (uint32_t s = 0; s < SERVERS; s++) {
        assert_int_equal(job->version, ask(&job->server[s]));
    }
}

/* ---- the moments --------------------------------------------------------- */

static int64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* How long an update takes here: kills come within it. */
static int64_t measure(struct job *job)
{
    int64_t start = now_us(), most = 0;

    for (int i = 0; i < 3; i++) {
        update_all(job);
        most = now_us() - start > most ? now_us() - start : most;
        start = now_us();
    }
    return most;
}

static void let_pass(int64_t us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};

    nanosleep(&t, NULL);
}

static int64_t moment(uint64_t seed, uint32_t round, int64_t span)
{
    return (int64_t)(dyti_rng_u64(seed, round, 0, 0) % (uint64_t)span);
}

/* ---- the trainer dies ---------------------------------------------------- */

/* Both ranks of the replica hold the same: the old, the new, or (in place)
 * neither, and say so. */
static void check_after_death(struct job *job, uint32_t round)
{
    bool in_place = strcmp(job->mode, "in_place") == 0;
    uint64_t version[SERVERS], said;
    char status[SERVERS][64];

    for (uint32_t s = 0; s < SERVERS; s++) {
        updated(&job->server[s], status[s], &said);
    }
    if (strcmp(status[0], status[1]) != 0) {
        fail_msg("%s, round %u: one rank ends in %s, the other in %s",
                 job->mode, round, status[0], status[1]);
    }
    for (uint32_t s = 0; s < SERVERS; s++) {
        version[s] = ask(&job->server[s]);
        if (version[s] != job->version && version[s] != job->version - 1 &&
            !(in_place && version[s] == 0)) {
            fail_msg("%s, round %u: a rank holds version %" PRIu64
                     " after the update to %" PRIu64,
                     job->mode, round, version[s], job->version);
        }
        if ((strcmp(status[s], "DYT_OK") == 0) !=
            (version[s] == job->version)) {
            fail_msg("%s, round %u: %s, but version %" PRIu64, job->mode, round,
                     status[s], version[s]);
        }
    }
    assert_int_equal(version[0], version[1]);
}

static void kill_trainers(const char *mode)
{
    struct job job = start_job(mode, false);
    int64_t span = measure(&job);

    for (uint32_t i = 0; i < dyt_test_rounds(10, 100); i++) {
        uint32_t first = i % TRAINERS;

        offer(&job);
        /* killed before the offer was made, a receiver waits for the next
         * trainer until its deadline: not long, as none comes */
        update_within(&job, 0, ORPHAN_MS);
        update_within(&job, 1, ORPHAN_MS);
        let_pass(moment(2026, i, span));
        kill_member(&job.trainer[first]);
        kill_member(&job.trainer[1 - first]);
        check_after_death(&job, i);
        start_trainers(&job);
        update_all(&job); /* and go on */
    }
    stop_job(&job);
}

static void a_killed_trainer_leaves_the_old_or_the_new_staged(void **state)
{
    (void)state;
    kill_trainers("staged");
}

static void a_killed_trainer_leaves_the_old_or_the_new_double(void **state)
{
    (void)state;
    kill_trainers("double");
}

static void a_killed_trainer_leaves_old_new_or_invalid_in_place(void **state)
{
    (void)state;
    kill_trainers("in_place");
}

/* ---- a replica dies ------------------------------------------------------ */

/* The other one gets the version, and answers all the while. */
static void kill_a_replica(const char *mode)
{
    struct job job = start_job(mode, true);
    int64_t span = measure(&job);

    for (uint32_t i = 0; i < dyt_test_rounds(5, 50); i++) {
        uint32_t dies = i % SERVERS, lives = 1 - dies;
        int64_t until;
        char status[64], line[LINE_BYTES];
        uint64_t version;

        offer(&job);
        update(&job, 0);
        update(&job, 1);
        until = now_us() + moment(26, i, span);
        while (now_us() < until) {
            tell(&job.server[lives], "ask 0\n");
            let_pass(500);
        }
        kill_member(&job.server[dies]);
        updated_text(&job.server[lives], status, &version, line);
        if (strcmp(status, "DYT_OK") != 0) {
            fail_msg("%s, round %u: replica %u dies, and the other says %s",
                     mode, i, dies, line);
        }
        assert_int_equal(job.version, ask(&job.server[lives]));
        for (uint32_t r = 0; r < TRAINERS; r++) {
            await(&job.trainer[r], "offered", line, NULL);
            await(&job.trainer[r], "done", line, NULL);
            assert_non_null(strstr(line, "DYT_OK"));
        }
        start_server(&job, dies);
        await(&job.server[dies], "ready", line, NULL);
        assert_int_equal(0, ask(&job.server[dies])); /* refused until … */
        update(&job, dies);
        updated(&job.server[dies], status, &version);
        if (strcmp(status, "DYT_OK") != 0 || version != job.version) {
            fail_msg("%s, round %u: a restarted replica ends in %s", mode, i,
                     status);
        }
        assert_int_equal(job.version, ask(&job.server[dies]));
    }
    stop_job(&job);
}

static void a_killed_replica_disturbs_nobody_staged(void **state)
{
    (void)state;
    kill_a_replica("staged");
}

static void a_killed_replica_disturbs_nobody_in_place(void **state)
{
    (void)state;
    kill_a_replica("in_place");
}

static void a_killed_replica_disturbs_nobody_double(void **state)
{
    (void)state;
    kill_a_replica("double");
}

static int ignore_pipes(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(a_killed_trainer_leaves_the_old_or_the_new_staged,
                           ignore_pipes),
    cmocka_unit_test(a_killed_trainer_leaves_the_old_or_the_new_double),
    cmocka_unit_test(a_killed_trainer_leaves_old_new_or_invalid_in_place),
    cmocka_unit_test(a_killed_replica_disturbs_nobody_staged),
    cmocka_unit_test(a_killed_replica_disturbs_nobody_in_place),
    cmocka_unit_test(a_killed_replica_disturbs_nobody_double),
};
DYT_TEST_MAIN(tests)
