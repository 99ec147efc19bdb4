/* A job's meeting point: who finds it, who is let in, and what strangers,
 * broken frames and dead managers do to it. */
#include "dyt_zmq_tsan.h"
#include "hub_world.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <sys/un.h>
#include <sys/wait.h>

/* ---- the ordinary way ---------------------------------------------------- */

static void frames_go_both_ways(void **state)
{
    struct dyti_address address = hub_unix_address();
    struct dyti_hub *hub = hub_open(&address);
    struct dyti_hub_client *a = hub_member(&address), *b = hub_member(&address);
    struct dyti_hub_frame frame;
    uint32_t at[2];

    (void)state;
    hub_say(a, DYTI_MSG_JOIN);
    at[0] = hub_expect(hub, DYTI_MSG_JOIN);
    hub_say(b, DYTI_MSG_JOIN);
    at[1] = hub_expect(hub, DYTI_MSG_JOIN);
    assert_true(at[0] != at[1]);
    hub_tell(hub, at[1], DYTI_MSG_BYE);
    hub_tell(hub, at[0], DYTI_MSG_JOINED);
    assert_ok(hub_hear(NULL, a, HUB_PATIENCE_MS, &frame));
    assert_int_equal(DYTI_MSG_JOINED, frame.envelope.type);
    assert_int_equal(DYTI_MANAGER_RANK, frame.envelope.sender);
    dyti_hub_frame_fini(&frame);
    assert_ok(hub_hear(NULL, b, HUB_PATIENCE_MS, &frame));
    assert_int_equal(DYTI_MSG_BYE, frame.envelope.type);
    dyti_hub_frame_fini(&frame);
    hub_say(a, DYTI_MSG_HEARTBEAT); /* keeps its number */
    assert_int_equal(at[0], hub_expect(hub, DYTI_MSG_HEARTBEAT));
    dyti_hub_forget(hub, at[1]);
    assert_int_equal(2, hub_counts(hub).sent);
    {
        struct dyti_buffer none = {.bytes = malloc(1), .size_bytes = 1};

        assert_status(DYT_ERR_PEER, dyti_hub_send(hub, at[1], &none));
        none = (struct dyti_buffer){.bytes = malloc(1), .size_bytes = 1};
        assert_status(DYT_ERR_PEER, dyti_hub_send(hub, 4711, &none));
        assert_error_has("peer 4711");
    }
    dyti_hub_forget(hub, 4711); /* nothing */
    dyti_hub_client_close(a);
    dyti_hub_client_close(b);
    dyti_hub_close(hub);
    dyti_hub_close(NULL);
    dyti_hub_client_close(NULL);
}

static void descriptors_come_first(void **state)
{
    struct dyti_address address = hub_unix_address();
    struct dyti_hub *hub = hub_open(&address);
    struct dyti_hub_client *a = hub_member(&address);
    struct dyti_hub_frame frame = {0};
    enum dyti_hub_event event;
    int fd[2], list[3];
    size_t index = 9;
    bool readable = false;

    (void)state;
    assert_int_equal(0, pipe(fd));
    list[0] = -1;
    list[1] = fd[0];
    list[2] = -1;
    hub_say(a, DYTI_MSG_JOIN);
    assert_int_equal(1, write(fd[1], "x", 1));
    assert_ok(dyti_hub_wait(hub, list, 3, 10000, &event, &frame, &index));
    assert_int_equal(DYTI_HUB_FD, event);
    assert_int_equal(1, index);
    hub_expect(hub, DYTI_MSG_JOIN);
    assert_ok(dyti_hub_wait(hub, list, 1, 0, &event, &frame, &index));
    assert_int_equal(DYTI_HUB_TIMEOUT, event);
    assert_ok(dyti_hub_client_wait(a, fd[0], 10000, &frame, &readable));
    assert_true(readable);
    assert_null(frame.buffer.bytes);
    assert_status(DYT_PENDING,
                  dyti_hub_client_wait(a, -1, 1, &frame, &readable));
    assert_false(readable);
    close(fd[0]);
    close(fd[1]);
    dyti_hub_client_close(a);
    dyti_hub_close(hub);
}

/* A member may be there first; when the manager ends it hears so. */
static void members_may_come_first_and_hear_the_end(void **state)
{
    struct dyti_address address = hub_unix_address();
    struct dyti_hub_client *a = hub_member(&address);
    struct dyti_hub *hub;
    struct dyti_hub_frame frame;

    (void)state;
    hub_say(a, DYTI_MSG_JOIN);
    assert_status(DYT_PENDING, hub_hear(NULL, a, 50, &frame));
    hub = hub_open(&address);
    hub_expect(hub, DYTI_MSG_JOIN);
    dyti_hub_close(hub);
    assert_status(DYT_ERR_PEER, hub_hear(NULL, a, HUB_PATIENCE_MS, &frame));
    assert_error_has("ended");
    dyti_hub_client_close(a);
}

/* ---- folders ------------------------------------------------------------- */

static enum dyt_status try_open(const char *text)
{
    struct dyti_hub_params p = {.codec = hub_codec};
    struct dyti_hub *hub = NULL;
    enum dyt_status st = dyti_address_parse(text, "job", &p.address);

    st = st != DYT_OK ? st : dyti_hub_open(&p, &hub);
    if (st != DYT_OK) {
        assert_null(hub);
    }
    dyti_hub_close(hub);
    return st;
}

static void folders_are_this_users_alone(void **state)
{
    static const mode_t wrong[] = {0755, 0770, 0701, 0710, 0704, 0777};
    const char *folder = dyt_test_dir();
    struct dyti_hub_client_params member = {.codec = hub_codec};
    struct dyti_hub_client *client = NULL;
    char text[300], path[300];
    struct stat info;

    (void)state;
    snprintf(text, sizeof(text), "unix:%s/s.sock", folder);
    assert_ok(dyti_address_parse(text, NULL, &member.address));
    for (size_t i = 0; i < DYT_TEST_COUNT(wrong); i++) {
        assert_int_equal(0, chmod(folder, wrong[i]));
        assert_status(DYT_ERR_CONFIG, try_open(text));
        assert_error_has("must be this user's alone (mode 0700)");
        assert_error_has(folder);
        assert_status(DYT_ERR_CONFIG, dyti_hub_client_open(&member, &client));
        assert_error_has("mode 0700");
        assert_null(client);
    }
    assert_int_equal(0, chmod(folder, 0700));
    assert_ok(try_open(text));
    /* made where it is not there, its parent is not */
    snprintf(text, sizeof(text), "unix:%s/new/", folder);
    assert_ok(try_open(text));
    snprintf(path, sizeof(path), "%s/new", folder);
    assert_int_equal(0, stat(path, &info));
    assert_int_equal(0700, info.st_mode & 0777);
    snprintf(text, sizeof(text), "unix:%s/a/b/s.sock", folder);
    assert_status(DYT_ERR_CONFIG, try_open(text));
    assert_error_has("cannot be made");
    /* a link to one is another's to move, a file is none */
    snprintf(text, sizeof(text), "%s/link", folder);
    assert_int_equal(0, symlink(path, text));
    snprintf(text, sizeof(text), "unix:%s/link/s.sock", folder);
    assert_status(DYT_ERR_CONFIG, try_open(text));
    snprintf(text, sizeof(text), "%s/file", folder);
    dyt_test_write(text, "x", 1);
    snprintf(text, sizeof(text), "unix:%s/file/s.sock", folder);
    assert_status(DYT_ERR_CONFIG, try_open(text));
}

static void a_folder_of_another_is_refused(void **state)
{
    const char *folder = dyt_test_dir();
    char text[300];

    (void)state;
    if (geteuid() != 0) {
        skip(); /* only root can give a folder away */
    }
    snprintf(text, sizeof(text), "unix:%s/s.sock", folder);
    assert_int_equal(0, chown(folder, 65534, 65534));
    assert_status(DYT_ERR_CONFIG, try_open(text));
    assert_error_has("this user's alone");
    assert_int_equal(0, chown(folder, 0, 0));
}

/* ---- another user -------------------------------------------------------- */

/* As another user, through doors that were left open: 0 where the kernel's word
 * on who it is ends the connection. */
static int knock(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    char bytes[64];
    ssize_t got;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
    if (setgroups(0, NULL) != 0 || setgid(65534) != 0 || setuid(65534) != 0) {
        return 10;
    }
    if (connect(fd, (struct sockaddr *)&un, sizeof(un)) != 0) {
        return 11;
    }
    got = read(fd, bytes, sizeof(bytes));
    return got == 0 || (got < 0 && errno == ECONNRESET) ? 0 : 12;
}

static void another_user_is_turned_away(void **state)
{
    struct dyti_address address = hub_unix_address();
    struct dyti_hub *hub;
    char folder[200];
    int status;
    pid_t pid;

    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    hub = hub_open(&address);
    hub_folder(&address, folder);
    assert_int_equal(0, chmod(folder, 0711));
    assert_int_equal(0, chmod(address.path, 0666));
    pid = fork();
    if (pid == 0) {
        _exit(knock(address.path));
    }
    assert_int_equal(pid, waitpid(pid, &status, 0));
    assert_true(WIFEXITED(status));
    assert_int_equal(0, WEXITSTATUS(status));
    assert_int_equal(0, chmod(folder, 0700));
    dyti_hub_close(hub);
}

/* Somebody at a unix address who hangs up: no word of keys. */
static void who_hangs_up_is_named(void **state)
{
    struct dyti_address address = hub_unix_address();
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct dyti_hub_frame frame;
    struct dyti_hub_client *a;
    bool other;
    enum dyt_status st = DYT_PENDING;

    (void)state;
    memcpy(un.sun_path, address.path, sizeof(un.sun_path));
    assert_int_equal(0, bind(fd, (struct sockaddr *)&un, sizeof(un)));
    assert_int_equal(0, listen(fd, 8));
    a = hub_member(&address);
    for (int i = 0; i < 10 && st == DYT_PENDING; i++) {
        int peer = accept(fd, NULL, NULL);

        assert_true(peer >= 0);
        close(peer);
        st = dyti_hub_client_wait(a, -1, 100, &frame, &other);
    }
    assert_status(DYT_ERR_CONFIG, st);
    assert_error_has("hangs up: it is another user's manager");
    assert_null(strstr(dyti_error_text(), "manager_key"));
    dyti_hub_client_close(a);
    close(fd);
}

/* ---- addresses ----------------------------------------------------------- */

static void addresses_are_read(void **state)
{
    const char *folder = dyt_test_dir();
    struct dyti_address a;
    char text[300], want[300];

    (void)state;
    assert_ok(dyti_address_parse("unix:/x/y.sock", "job", &a));
    assert_false(a.is_tcp);
    assert_string_equal("/x/y.sock", a.path);
    assert_string_equal("ipc:///x/y.sock", a.endpoint);
    snprintf(text, sizeof(text), "unix:%s", folder);
    snprintf(want, sizeof(want), "%s/job.sock", folder);
    assert_ok(dyti_address_parse(text, "job", &a));
    assert_string_equal(want, a.path);
    assert_ok(dyti_address_parse("unix:/not/there/", "job", &a));
    assert_string_equal("/not/there/job.sock", a.path);
    assert_status(DYT_ERR_CONFIG, dyti_address_parse(text, NULL, &a));
    assert_error_has("is a folder");
    assert_ok(dyti_address_parse("tcp:host:70", "job", &a));
    assert_true(a.is_tcp);
    assert_string_equal("tcp://host:70", a.endpoint);
    assert_ok(dyti_address_parse("tcp://10.0.0.1:65535", "job", &a));
    assert_string_equal("tcp://10.0.0.1:65535", a.endpoint);
}

static void wrong_addresses_are_refused(void **state)
{
    static const char *const wrong[] = {"",
                                        "unix:",
                                        "/x/y.sock",
                                        "tcp:",
                                        "tcp:host",
                                        "tcp:host:",
                                        "tcp::70",
                                        "tcp:host:port",
                                        "tcp:host:70x",
                                        "tcp:host:-1",
                                        "tcp:host:0",
                                        "tcp:host:65536",
                                        "tcp:host:99999999999999999999",
                                        "ipc:///x",
                                        "http://host:80"};
    char longer[400];
    struct dyti_address a = {.is_tcp = true};

    (void)state;
    assert_status(DYT_ERR_CONFIG, dyti_address_parse(NULL, "job", &a));
    for (size_t i = 0; i < DYT_TEST_COUNT(wrong); i++) {
        if (dyti_address_parse(wrong[i], "job", &a) != DYT_ERR_CONFIG) {
            fail_msg("\"%s\" is taken", wrong[i]);
        }
        assert_error_has("unix:PATH");
        assert_error_has("tcp:HOST:PORT");
    }
    memset(longer, 'x', sizeof(longer));
    memcpy(longer, "unix:/", 6);
    longer[5 + 107] = '\0';
    assert_ok(dyti_address_parse(longer, NULL, &a));
    memset(longer, 'x', sizeof(longer));
    memcpy(longer, "unix:/", 6);
    longer[5 + 108] = '\0';
    assert_status(DYT_ERR_CONFIG, dyti_address_parse(longer, NULL, &a));
    assert_error_has("at most 107 bytes");
    memset(longer, 'x', sizeof(longer));
    memcpy(longer, "tcp:", 4);
    memcpy(longer + 300, ":70", 4);
    assert_status(DYT_ERR_CONFIG, dyti_address_parse(longer, NULL, &a));
    assert_error_has("at most 107 bytes");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(frames_go_both_ways),
    cmocka_unit_test(descriptors_come_first),
    cmocka_unit_test(members_may_come_first_and_hear_the_end),
    cmocka_unit_test(folders_are_this_users_alone),
    cmocka_unit_test(a_folder_of_another_is_refused),
    cmocka_unit_test(another_user_is_turned_away),
    cmocka_unit_test(who_hangs_up_is_named),
    cmocka_unit_test(addresses_are_read),
    cmocka_unit_test(wrong_addresses_are_refused),
};
DYT_TEST_MAIN(tests)
