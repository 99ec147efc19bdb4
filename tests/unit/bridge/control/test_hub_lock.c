/* Who serves a path: one at a time, and whoever died is followed by the next,
 * whatever it left behind. */
#include "control/hub_internal.h"
#include "dyt_zmq_tsan.h"
#include "hub_world.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static void nothing_is_left_of_one_that_closes(void **state)
{
    struct dyti_address address = hub_unix_address();
    struct dyti_hub *hub = hub_open(&address);
    char lock[200], folder[200];
    struct stat info;

    (void)state;
    snprintf(lock, sizeof(lock), "%s.lock", address.path);
    assert_int_equal(0, stat(address.path, &info));
    assert_int_equal(0600, info.st_mode & 0777);
    assert_int_equal(0, stat(lock, &info));
    assert_int_equal(0600, info.st_mode & 0777);
    dyti_hub_close(hub);
    assert_false(is_there(address.path) || is_there(lock));
    hub_folder(&address, folder);
    assert_int_equal(0, rmdir(folder));
}

static void a_living_one_is_refused_by_name(void **state)
{
    struct dyti_address address = hub_unix_address();
    struct dyti_hub_params p = {.address = address, .codec = hub_codec};
    struct dyti_hub *hub = hub_open(&address), *second = NULL;
    struct dyti_hub_client *a;
    char pid[160];

    (void)state;
    snprintf(pid, sizeof(pid), "pid %d serves %s already", (int)getpid(),
             address.path);
    for (int i = 0; i < 2; i++) {
        assert_status(DYT_ERR_BUSY, dyti_hub_open(&p, &second));
        assert_error_has(pid);
        assert_null(second);
    }
    a = hub_member(&address); /* the first was not disturbed */
    hub_say(a, DYTI_MSG_JOIN);
    hub_expect(hub, DYTI_MSG_JOIN);
    dyti_hub_client_close(a);
    dyti_hub_close(hub);
}

/* A manager in a process of its own; a child of it lives until the writing end
 * of `child` is closed (NULL: it has none).  Started before this process has
 * sockets: a child of one with threads makes none under every sanitizer. */
static pid_t start_a_manager(const struct dyti_address *address, int *child)
{
    int ready[2];
    pid_t pid;
    char byte;

    assert_int_equal(0, pipe(ready));
    pid = fork();
    if (pid == 0) {
        struct dyti_hub_params p = {.address = *address, .codec = hub_codec};
        struct dyti_hub *hub;

        if (dyti_hub_open(&p, &hub) != DYT_OK) {
            _exit(1);
        }
        if (child != NULL && fork() == 0) {
            close(child[1]);
            (void)!read(child[0], &byte, 1);
            _exit(0);
        }
        if (write(ready[1], "r", 1) == 1) {
            pause();
        }
        _exit(1);
    }
    assert_true(pid > 0);
    close(ready[1]);
    assert_int_equal(1, read(ready[0], &byte, 1));
    close(ready[0]);
    return pid;
}

static void kill_manager(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(pid, waitpid(pid, NULL, 0));
}

static void kill_a_manager_of(const struct dyti_address *address, int *child)
{
    kill_manager(start_a_manager(address, child));
}

static void kill_a_manager(const struct dyti_address *address)
{
    kill_a_manager_of(address, NULL);
}

/* What it forked holds its lock, and its connections: the next one serves all
 * the same, and who comes after is refused by its name, not the dead one's. */
static void what_a_child_holds_is_taken_over(void **state)
{
    struct dyti_address address = hub_unix_address();
    struct dyti_hub_params p = {.address = address, .codec = hub_codec};
    struct dyti_hub *hub, *second = NULL;
    struct dyti_hub_client *a;
    char pid[160], lock[200];
    int child[2];

    (void)state;
    assert_int_equal(0, pipe(child));
    kill_a_manager_of(&address, child);
    hub = hub_open(&address);
    snprintf(pid, sizeof(pid), "pid %d serves", (int)getpid());
    assert_status(DYT_ERR_BUSY, dyti_hub_open(&p, &second));
    assert_error_has(pid);
    a = hub_member(&address);
    hub_say(a, DYTI_MSG_JOIN);
    hub_expect(hub, DYTI_MSG_JOIN);
    dyti_hub_client_close(a);
    close(child[0]);
    close(child[1]); /* it ends, and takes nothing with it */
    a = hub_member(&address);
    hub_say(a, DYTI_MSG_JOIN);
    hub_expect(hub, DYTI_MSG_JOIN);
    dyti_hub_client_close(a);
    dyti_hub_close(hub);
    snprintf(lock, sizeof(lock), "%s.lock", address.path);
    assert_false(is_there(address.path) || is_there(lock));
}

/* A member that came between the death and the next manager is on a line that
 * the child holds, and that nobody answers: it comes again. */
static void a_line_that_nobody_answers_is_made_anew(void **state)
{
    struct dyti_address address = hub_unix_address();
    struct dyti_hub_client *a;
    struct dyti_hub *hub;
    int child[2];

    (void)state;
    assert_int_equal(0, pipe(child));
    kill_a_manager_of(&address, child);
    a = hub_member(&address);
    hub_say(a, DYTI_MSG_JOIN);
    for (int i = 0; i < 14; i++) { /* longer than two of them live */
        struct dyti_hub_frame frame;

        assert_status(DYT_PENDING, hub_hear(NULL, a, 500, &frame));
    }
    hub = hub_open(&address);
    hub_expect(hub, DYTI_MSG_JOIN);
    dyti_hub_client_close(a);
    dyti_hub_close(hub);
    close(child[0]);
    close(child[1]);
}

/* Eight processes want what a dead one's child holds: one gets it. */
static void of_many_that_take_over_one_does(void **state)
{
    struct dyti_address address = hub_unix_address();
    struct dyti_hub_params p = {.address = address, .codec = hub_codec};
    int child[2], go[2], said[2];
    pid_t pid[8];
    int got = 0;

    (void)state;
    assert_int_equal(0, pipe(child));
    kill_a_manager_of(&address, child);
    assert_int_equal(0, pipe(go));
    assert_int_equal(0, pipe(said));
    for (size_t i = 0; i < DYT_TEST_COUNT(pid); i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            struct dyti_hub *hub = NULL;
            enum dyt_status st;
            char byte;

            close(go[1]);
            (void)!read(go[0], &byte, 1); /* all at once */
            st = dyti_hub_open(&p, &hub);
            byte = st == DYT_OK ? '1' : st == DYT_ERR_BUSY ? '0' : 'x';
            (void)!write(said[1], &byte, 1);
            pause(); /* who has it keeps it */
            _exit(0);
        }
        assert_true(pid[i] > 0);
    }
    close(go[0]);
    close(go[1]);
    for (size_t i = 0; i < DYT_TEST_COUNT(pid); i++) {
        char byte;

        assert_int_equal(1, read(said[0], &byte, 1));
        assert_true(byte == '0' || byte == '1');
        got += byte == '1';
    }
    for (size_t i = 0; i < DYT_TEST_COUNT(pid); i++) {
        kill(pid[i], SIGKILL);
        assert_int_equal(pid[i], waitpid(pid[i], NULL, 0));
    }
    assert_int_equal(1, got);
    close(said[0]);
    close(said[1]);
    close(child[0]);
    close(child[1]);
}

/* A lock of which nobody knows whose it is, is not taken away. */
static void a_lock_without_a_name_is_respected(void **state)
{
    static const char *const note[] = {"", "4194305", "4194305 1", "x"};
    struct dyti_address address = hub_unix_address();
    struct dyti_hub_params p = {.address = address, .codec = hub_codec};
    struct dyti_hub *hub = NULL;
    char lock[200];
    int fd;

    (void)state;
    snprintf(lock, sizeof(lock), "%s.lock", address.path);
    fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(0, flock(fd, LOCK_EX));
    for (size_t i = 0; i < DYT_TEST_COUNT(note); i++) {
        assert_int_equal(0, ftruncate(fd, 0));
        assert_int_equal(strlen(note[i]),
                         pwrite(fd, note[i], strlen(note[i]), 0));
        assert_status(DYT_ERR_BUSY, dyti_hub_open(&p, &hub));
        assert_null(hub);
    }
    close(fd);
    hub = hub_open(&address);
    dyti_hub_close(hub);
}

/* A child that closes what it was forked with takes nothing from its parent. */
static void a_childs_close_leaves_the_parents_hub(void **state)
{
    struct dyti_address address = hub_unix_address();
    struct dyti_hub_lock lock = {.fd = -1};
    int status;
    pid_t pid;

    (void)state;
    assert_ok(dyti_hub_lock_take(&lock, address.path));
    assert_true(dyti_hub_lock_is_own(&lock));
    pid = fork();
    if (pid == 0) {
        bool own = dyti_hub_lock_is_own(&lock);

        dyti_hub_lock_release(&lock);
        _exit(own ? 1 : 0);
    }
    assert_int_equal(pid, waitpid(pid, &status, 0));
    assert_int_equal(0, status);
    assert_true(is_there(lock.path));
    dyti_hub_lock_release(&lock);
    assert_false(is_there(lock.path));
}

static void what_a_dead_one_left_is_taken_over(void **state)
{
    struct dyti_address address = hub_unix_address();
    struct dyti_hub_client *a;
    struct dyti_hub *hub;

    (void)state;
    kill_a_manager(&address);
    assert_true(is_there(address.path));
    hub = hub_open(&address);
    a = hub_member(&address);
    hub_say(a, DYTI_MSG_JOIN);
    hub_expect(hub, DYTI_MSG_JOIN);
    dyti_hub_client_close(a);
    dyti_hub_close(hub);
    assert_false(is_there(address.path));
}

/* A member whose manager was killed goes on with the next at that address. */
static void members_find_the_next_manager(void **state)
{
    struct dyti_address address = hub_unix_address();
    struct dyti_hub_client *a;
    struct dyti_hub *hub;
    pid_t first = start_a_manager(&address, NULL);

    (void)state;
    a = hub_member(&address);
    kill_manager(first);
    hub = hub_open(&address);
    hub_say(a, DYTI_MSG_JOIN);
    hub_expect(hub, DYTI_MSG_JOIN);
    dyti_hub_client_close(a);
    dyti_hub_close(hub);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_is_left_of_one_that_closes),
    cmocka_unit_test(a_living_one_is_refused_by_name),
    cmocka_unit_test(what_a_child_holds_is_taken_over),
    cmocka_unit_test(a_line_that_nobody_answers_is_made_anew),
    cmocka_unit_test(of_many_that_take_over_one_does),
    cmocka_unit_test(a_lock_without_a_name_is_respected),
    cmocka_unit_test(a_childs_close_leaves_the_parents_hub),
    cmocka_unit_test(what_a_dead_one_left_is_taken_over),
    cmocka_unit_test(members_find_the_next_manager),
};
DYT_TEST_MAIN(tests)
