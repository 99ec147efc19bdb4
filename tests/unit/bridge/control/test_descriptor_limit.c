/* A process that may have few files open: each end of a channel opens with all
 * that it will need, or is refused; nothing ends the process.  Every limit is
 * tried in a process of its own. */
#include "dyt_zmq_tsan.h"
#include "hub_world.h"

#include "control/control.h"
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

enum answer { OPENED, REFUSED, WRONG };

/* From now on `count` more files, and no more than that. */
static void limit_to(uint32_t count)
{
    struct rlimit limit = {0, 0};
    uint32_t seen = 0;

    while (seen < count) {
        seen += fcntl((int)limit.rlim_cur++, F_GETFD) < 0;
    }
    limit.rlim_max = limit.rlim_cur;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        _exit(WRONG);
    }
}

static bool names_the_limit(enum dyt_status st)
{
    return st == DYT_ERR_IO &&
           strstr(dyti_error_message(), "more open files") != NULL &&
           strstr(dyti_error_message(), "ulimit -n") != NULL;
}

struct end {
    enum dyt_status (*open)(struct end *e);
    uint32_t least; /* descriptors that it must have; found here */
    bool listens;   /* at `name`, and takes one more who comes */
    char endpoint[DYTI_ENDPOINT_BYTES];
    uint64_t job;
    struct dyti_address address;
};

static enum dyt_status open_server(struct end *e)
{
    struct dyti_control_server *server = NULL;

    return dyti_control_server_open(e->endpoint, e->job, 1, dyti_wire_envelope,
                                    &server);
}

static enum dyt_status open_client(struct end *e)
{
    struct dyti_control_client *client = NULL;

    return dyti_control_client_open(e->endpoint, e->job, 0, dyti_wire_envelope,
                                    &client);
}

static enum dyt_status open_hub(struct end *e)
{
    const struct dyti_hub_params params = {.address = e->address,
                                           .codec = hub_codec};
    struct dyti_hub *hub = NULL;

    return dyti_hub_open(&params, &hub);
}

static enum dyt_status open_member(struct end *e)
{
    const struct dyti_hub_client_params params = {
        .address = e->address, .codec = hub_codec, .job = 1};
    struct dyti_hub_client *client = NULL;

    return dyti_hub_client_open(&params, &client);
}

/* One who comes, and is heard: ZeroMQ greets. */
static void knock(const struct end *e)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const char *name = strchr(e->endpoint, '@');
    size_t bytes = strlen(name);
    char greeting;

    assert_true(fd >= 0);
    memcpy(to.sun_path + 1, name + 1, bytes - 1);
    assert_int_equal(
        0,
        connect(fd, (const struct sockaddr *)&to,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes)));
    assert_int_equal(1, read(fd, &greeting, 1));
    close(fd);
}

/* In a process with room for `count` more files. */
static enum answer try(struct end *e, uint32_t count)
{
    int status, told[2], done[2];
    char opened = 0;
    pid_t pid;

    assert_int_equal(0, pipe2(told, O_CLOEXEC));
    assert_int_equal(0, pipe2(done, O_CLOEXEC));
    (void)fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        enum dyt_status st;

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(done[1]);
        limit_to(count);
        st = e->open(e);
        if (st != DYT_OK) {
            _exit(names_the_limit(st) ? REFUSED : WRONG);
        }
        if (write(told[1], "o", 1) != 1 || read(done[0], &opened, 1) != 0) {
            _exit(WRONG);
        }
        _exit(OPENED);
    }
    close(told[1]);
    close(done[0]);
    if (read(told[0], &opened, 1) == 1 && e->listens) {
        knock(e);
    }
    close(done[1]);
    close(told[0]);
    assert_int_equal(pid, waitpid(pid, &status, 0));
    if (!WIFEXITED(status)) {
        fail_msg("%u descriptors: ended by signal %d", count, WTERMSIG(status));
    }
    assert_int_not_equal(WRONG, WEXITSTATUS(status));
    return (enum answer)WEXITSTATUS(status);
}

static void no_limit_ends_the_process(void **state)
{
    static struct end end[] = {{.open = open_server, .listens = true},
                               {.open = open_client},
                               {.open = open_hub},
                               {.open = open_member}};
    uint32_t server;

    (void)state;
    if (dyt_test_instrumented()) {
        skip(); /* a sanitizer opens files of its own */
    }
    for (size_t i = 0; i < DYT_TEST_COUNT(end); i++) {
        uint32_t count = 0;

        assert_ok(dyti_control_random(&end[i].job));
        dyti_control_endpoint(end[i].job, end[i].endpoint);
        end[i].address = hub_unix_address();
        while (try(&end[i], count) == REFUSED) {
            assert_true(++count < 32);
        }
        end[i].least = count;
        for (uint32_t more = 1; more < 4; more++) {
            assert_int_equal(OPENED, try(&end[i], count + more));
        }
    }
    /* A context with its socket, a listener and one who comes: with one less
     * libzmq would have ended the process. */
    server = end[0].least;
    assert_int_equal(8, server);
    assert_int_equal(7, end[1].least);
}

/* What an open end really has. */
static void that_many_are_taken(void **state)
{
    struct end e = {.open = open_server};
    struct dyti_control_server *server = NULL;
    uint32_t before = dyt_open_files();

    (void)state;
    assert_ok(dyti_control_random(&e.job));
    dyti_control_endpoint(e.job, e.endpoint);
    assert_ok(dyti_control_server_open(e.endpoint, e.job, 1, dyti_wire_envelope,
                                       &server));
    print_message("%u descriptors\n", dyt_open_files() - before);
    assert_in_range(dyt_open_files() - before, 7, 7);
    dyti_control_server_close(server);
    assert_int_equal(before, dyt_open_files());
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_limit_ends_the_process),
    cmocka_unit_test(that_many_are_taken),
};
DYT_TEST_MAIN(tests)
