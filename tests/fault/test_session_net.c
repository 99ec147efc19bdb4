/* A job on two machines, which are two network namespaces and a cable: the
 * manager and the trainer on one, a server of two ranks on the other; control
 * over tcp with keys, weights over gloo.  Then the cable is cut, at rest and in
 * the middle: whoever waits hears so within its deadline.
 *
 * Skipped by name where namespaces are not permitted. */
#include "session_job.h"
#include "session_keys.h"

#include <arpa/inet.h>
#include <sched.h>
#include <spawn.h>
#include <sys/socket.h>

#define SKIPPED 77
#define HERE    "10.77.4.1"
#define THERE   "10.77.4.2"
#define TIMEOUT "8000" /* ms, of a member's session */
#define PORT    7117   /* of the manager, on the first machine */
#define BYTES   ((uint64_t)TENSORS * ROWS * COLS * sizeof(float))

static pid_t machine[2]; /* processes that are there, and do nothing */

/* ---- machines ------------------------------------------------------------ */

/* One line of a shell; its exit status, -1 where there is none. */
static int shell(const char *line)
{
    char *const argv[] = {"sh", "-c", (char *)(uintptr_t)line, NULL};
    pid_t pid;
    int code = -1;

    if (posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ) != 0 ||
        waitpid(pid, &code, 0) != pid) {
        return -1;
    }
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

static int on(uint32_t which, const char *command)
{
    char line[512];

    snprintf(line, sizeof(line), "nsenter --net=/proc/%d/ns/net sh -c '%s'",
             (int)machine[which], command);
    return shell(line);
}

static int end_machines(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        if (machine[i] > 0) {
            kill(machine[i], SIGKILL);
            waitpid(machine[i], NULL, 0);
            machine[i] = 0;
        }
    }
    return 0;
}

static bool start_machine(uint32_t which)
{
    int ready[2];
    char byte = 0;
    pid_t parent = getpid();

    assert_int_equal(0, pipe2(ready, O_CLOEXEC));
    machine[which] = fork();
    if (machine[which] == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent ||
            unshare(CLONE_NEWNET) != 0 || write(ready[1], "r", 1) != 1) {
            _exit(1);
        }
        for (;;) {
            pause();
        }
    }
    close(ready[1]);
    (void)!read(ready[0], &byte, 1);
    close(ready[0]);
    return byte == 'r';
}

static bool start_machines(void)
{
    char line[256];

    if (!start_machine(0) || !start_machine(1)) {
        return false;
    }
    snprintf(line, sizeof(line),
             "ip link add dyt0 netns %d type veth peer name dyt1 netns %d "
             "2>/dev/null",
             (int)machine[0], (int)machine[1]);
    return shell(line) == 0 &&
           on(0, "ip addr add " HERE "/24 dev dyt0 && ip link set dyt0 up && "
                 "ip link set lo up") == 0 &&
           on(1, "ip addr add " THERE "/24 dev dyt1 && ip link set dyt1 up && "
                 "ip link set lo up") == 0;
}

/* Does somebody answer there, on the other machine?  No matter what. */
static bool hears_something(void)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int error = -1;
    socklen_t bytes = sizeof(error);

    (void)inet_pton(AF_INET, HERE, &in.sin_addr);
    (void)connect(fd, (struct sockaddr *)&in, sizeof(in));
    if (poll(&p, 1, 100) == 1) {
        (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
    }
    close(fd);
    return error == 0 || error == ECONNREFUSED;
}

/* A machine that was away is believed to be back after a while only, and what
 * connects meanwhile tries again seconds later. */
static void await_cable(void)
{
    char net[64];
    int fd, code = -1;
    pid_t pid;

    snprintf(net, sizeof(net), "/proc/%d/ns/net", (int)machine[1]);
    fd = open(net, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    (void)fflush(NULL);
    pid = fork();
    if (pid == 0) {
        code = setns(fd, CLONE_NEWNET);
        for (int64_t until = now_us() + WAIT_MS * 1000ll;
             code == 0 && now_us() < until;) {
            if (hears_something()) {
                _exit(0);
            }
            let_pass(20000);
        }
        _exit(1);
    }
    close(fd);
    assert_true(pid > 0 && waitpid(pid, &code, 0) == pid);
    assert_int_equal(0, code);
}

/* Nothing is said: packets go nowhere. */
static void cut_cable(bool cut)
{
    assert_int_equal(
        0, on(1, cut ? "ip link set dyt1 down" : "ip link set dyt1 up"));
    if (!cut) {
        await_cable();
    }
}

/* Bytes that the trainer's machine has sent. */
static uint64_t sent_bytes(void)
{
    char path[64], line[512];
    uint64_t sent = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/net/dev", (int)machine[0]);
    file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *at = strstr(line, "dyt0:");

        if (at != NULL) {
            assert_int_equal(1, sscanf(at,
                                       "dyt0: %*u %*u %*u %*u %*u %*u %*u "
                                       "%*u %" SCNu64,
                                       &sent));
        }
    }
    (void)fclose(file);
    return sent;
}

/* ---- a job on them ------------------------------------------------------- */

static struct member spawn_on(uint32_t which, char *const argv[],
                              const char *log)
{
    static char script[] = "exec nsenter --net=$0 -- \"$@\"";
    char net[64];
    char *all[32] = {"/bin/sh", "-c", script, net};
    int n = 4;

    snprintf(net, sizeof(net), "/proc/%d/ns/net", (int)machine[which]);
    for (int i = 0; argv[i] != NULL; i++) {
        assert_true(n < 31);
        all[n++] = argv[i];
    }
    return spawn(all, log);
}

static struct session_keys keys;

static void make_keys(const char *folder)
{
    struct dyt_run run = dyt_run("keys", folder, NULL);

    assert_exit(0, run);
    dyt_run_fini(&run);
    run = dyt_run("keys", folder, "--name", "server", NULL);
    assert_exit(0, run);
    dyt_run_fini(&run);
    keys = session_keys(folder, "server");
}

static void start_net_trainers(struct job *job)
{
    char line[LINE_BYTES];

    for (uint32_t r = 0; r < TRAINERS; r++) {
        char rank[8], size[8];
        char *argv[] = {(char *)(uintptr_t)DYT_MEMBER,
                        "trainer",
                        job->address,
                        "job",
                        rank,
                        size,
                        keys.manager,
                        keys.manager_public,
                        "here",
                        TIMEOUT,
                        NULL};

        snprintf(rank, sizeof(rank), "%u", r);
        snprintf(size, sizeof(size), "%u", TRAINERS);
        job->trainer[r] = spawn_on(0, argv, NULL);
    }
    for (uint32_t r = 0; r < TRAINERS; r++) {
        await(&job->trainer[r], "ready", line, NULL);
    }
}

static void spawn_net_server(struct job *job, uint32_t s)
{
    char rank[8], size[8];
    char *argv[] = {(char *)(uintptr_t)DYT_MEMBER,
                    "server",
                    job->address,
                    "job",
                    "0",
                    rank,
                    size,
                    (char *)(uintptr_t)job->mode,
                    keys.other,
                    keys.manager_public,
                    "there",
                    TIMEOUT,
                    NULL};

    snprintf(rank, sizeof(rank), "%u", s);
    snprintf(size, sizeof(size), "%u", SERVERS);
    job->server[s] = spawn_on(1, argv, NULL);
}

/* Its first line.  Places are free when the manager has given up who had them,
 * and who has one waits for the others only so long: false, ask again. */
static bool is_in(struct member *server)
{
    char line[LINE_BYTES];

    assert_true(next_line(server, line));
    if (strstr(line, "has this place") != NULL ||
        strstr(line, "was silent until its deadline") != NULL ||
        strstr(line, "not all have published in time") != NULL) {
        return false;
    }
    assert_string_equal("ready", line);
    return true;
}

/* Who is in stays: the place of one that is killed is not free at once. */
static void start_net_servers(struct job *job)
{
    int64_t until = now_us() + 3 * WAIT_MS * 1000ll; /* on a loaded machine */
    struct pollfd p[SERVERS];
    uint32_t missing = SERVERS;

    for (uint32_t s = 0; s < SERVERS; s++) {
        spawn_net_server(job, s);
        p[s] = (struct pollfd){.fd = job->server[s].out, .events = POLLIN};
    }
    while (missing > 0) {
        assert_true(now_us() < until && poll(p, SERVERS, WAIT_MS) > 0);
        for (uint32_t s = 0; s < SERVERS; s++) {
            if (p[s].revents == 0) {
                continue;
            }
            if (is_in(&job->server[s])) {
                p[s].fd = -1; /* poll() passes it over */
                missing--;
            } else {
                kill_member(&job->server[s]);
                spawn_net_server(job, s);
                p[s].fd = job->server[s].out;
            }
        }
    }
}

static struct job start_net_job(const char *mode)
{
    struct job job = {.name = "job", .mode = mode, .servers = SERVERS};
    char folder[300], log[300];
    char *argv[] = {(char *)(uintptr_t)DYT_BIN,
                    "serve",
                    job.address,
                    "--key",
                    keys.manager,
                    NULL};

    assert_true(start_machines());
    make_folder(&job);
    snprintf(folder, sizeof(folder), "%s/keys", job.folder);
    snprintf(log, sizeof(log), "%s/manager.log", job.folder);
    make_keys(folder);
    snprintf(job.address, sizeof(job.address), "tcp:" HERE ":%d", PORT);
    job.manager = spawn_on(0, argv, log);
    start_net_trainers(&job);
    start_net_servers(&job);
    return job;
}

static void restart_servers(struct job *job)
{
    for (uint32_t s = 0; s < SERVERS; s++) {
        kill_member(&job->server[s]);
    }
    start_net_servers(job);
}

/* ---- cases --------------------------------------------------------------- */

static void versions_cross_a_cable_in_every_mode(void **state)
{
    static const char *const mode[] = {"staged", "in_place", "double",
                                       "mapped"};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(mode); i++) {
        struct job job = start_net_job(mode[i]);
        uint64_t before;

        update_all(&job);
        before = sent_bytes();
        update_all(&job);
        update_all(&job);
        before = sent_bytes() - before;
        /* two copies, and what TCP, control and a resent packet take */
        if (before < 2 * BYTES || before > 2 * BYTES / 4 * 5) {
            fail_msg("%s: %" PRIu64 " bytes left the machine, 2 * %" PRIu64
                     " were due",
                     mode[i], before, BYTES);
        }
        stop_job(&job);
        end_machines(NULL);
    }
}

/* They wait for an answer that cannot come. */
static void hear_the_end(struct job *job, int most_ms)
{
    int64_t start = now_us();

    for (uint32_t s = 0; s < SERVERS; s++) {
        char line[LINE_BYTES], status[64];
        uint64_t version;

        updated_text(&job->server[s], status, &version, line);
        if (strcmp(status, "DYT_OK") != 0 &&
            strcmp(status, "DYT_ERR_PEER") != 0 &&
            strcmp(status, "DYT_ERR_TIMEOUT") != 0 &&
            strcmp(status, "DYT_ERR_CANCELLED") != 0) {
            fail_msg("server %u says \"%s\"", s, line);
        }
        if (now_us() - start > most_ms * 1000ll) {
            fail_msg("server %u took %" PRId64 " ms: \"%s\"", s,
                     (now_us() - start) / 1000, line);
        }
    }
}

static void hear_trainers_end(struct job *job, int most_ms)
{
    int64_t start = now_us();

    hear_offered(job);
    job->heard = false;
    for (uint32_t r = 0; r < TRAINERS; r++) {
        char line[LINE_BYTES];

        await(&job->trainer[r], "done", line, NULL);
        if (now_us() - start > most_ms * 1000ll) {
            fail_msg("trainer %u took %" PRId64 " ms: \"%s\"", r,
                     (now_us() - start) / 1000, line);
        }
    }
}

/* The machine is gone when a version is asked for, and comes back. */
static void a_machine_that_vanished_is_given_up(void **state)
{
    struct job job = start_net_job("staged");

    (void)state;
    update_all(&job);
    cut_cable(true);
    offer(&job);
    for (uint32_t s = 0; s < SERVERS; s++) {
        update_within(&job, s, 8000);
    }
    hear_the_end(&job, 8000 + 12000); /* the deadline, and a loaded machine */
    for (uint32_t s = 0; s < SERVERS; s++) { /* the old is whole */
        assert_int_equal(job.version - 1, ask(&job.server[s]));
    }
    hear_trainers_end(&job, 40000);
    cut_cable(false);
    restart_servers(&job);
    update_all(&job);
    stop_job(&job);
}

/* … or in the middle of it. */
static void a_machine_that_vanishes_ends_the_update(void **state)
{
    struct job job = start_net_job("staged");
    int64_t span = measure(&job);

    (void)state;
    for (uint32_t i = 0; i < dyt_test_rounds(3, 12); i++) {
        uint64_t version[SERVERS];

        offer(&job);
        for (uint32_t s = 0; s < SERVERS; s++) {
            update_within(&job, s, 8000);
        }
        let_pass(moment(11, i, span));
        cut_cable(true);
        hear_the_end(&job, 8000 + 30000); /* what moves ends by its own wait */
        for (uint32_t s = 0; s < SERVERS; s++) {
            version[s] = ask(&job.server[s]);
            assert_in_range(version[s], job.version - 1, job.version);
        }
        assert_int_equal(version[0], version[1]);
        hear_trainers_end(&job, 50000);
        cut_cable(false);
        restart_servers(&job);
        update_all(&job);
    }
    stop_job(&job);
}

/* ---- main ---------------------------------------------------------------- */

static int end_both(void **state)
{
    (void)end_processes(state);
    return end_machines(state);
}

#define net_test(f) cmocka_unit_test_setup_teardown(f, ignore_pipes, end_both)

static const struct CMUnitTest tests[] = {
    net_test(versions_cross_a_cable_in_every_mode),
    net_test(a_machine_that_vanished_is_given_up),
    net_test(a_machine_that_vanishes_ends_the_update),
};

int main(void)
{
    bool permitted =
        shell("command -v nsenter ip >/dev/null") == 0 && start_machines();

    (void)end_machines(NULL);
    if (!permitted) {
        print_message("skipped: network namespaces are not permitted here\n");
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
