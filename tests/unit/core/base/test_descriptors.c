/* Messages that bring descriptors: all of them, some, none, and again. */
#include "dyt_test.h"

#include "base/descriptors.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define FILES 5u

/* Files that say by their sizes which they are. */
static void make_files(int fd[FILES])
{
    for (uint32_t i = 0; i < FILES; i++) {
        fd[i] = memfd_create("file", MFD_CLOEXEC);
        assert_int_equal(0, ftruncate(fd[i], (off_t)i + 1));
    }
}

static void are_files(const int *fd, uint32_t count)
{
    struct stat info;

    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(0, fstat(fd[i], &info));
        assert_int_equal(i + 1, info.st_size);
        assert_true((fcntl(fd[i], F_GETFD) & FD_CLOEXEC) != 0);
    }
}

static void descriptors_come_with_a_message(void **state)
{
    int pair[2], fd[FILES], got[FILES];
    char text[8] = "";
    uint32_t count = 9;

    (void)state;
    make_files(fd);
    assert_int_equal(
        0, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
    assert_int_equal(-EAGAIN, dyti_descriptors_receive(pair[1], 0, text, 8, got,
                                                       FILES, &count));
    assert_int_equal(0, count);
    assert_int_equal(0, dyti_descriptors_send(pair[0], "word", 5, fd, FILES));
    for (int peek = 1; peek >= 0; peek--) { /* a look takes nothing */
        assert_int_equal(5,
                         dyti_descriptors_receive(pair[1], peek ? MSG_PEEK : 0,
                                                  text, 8, got, FILES, &count));
        assert_int_equal(FILES, count);
        assert_string_equal("word", text);
        are_files(got, FILES);
        dyti_descriptors_close(got, FILES);
        assert_int_equal(-1, got[0]);
    }
    dyti_descriptors_close(got, FILES); /* twice is fine */
    assert_int_equal(0, dyti_descriptors_send(pair[0], "none", 5, NULL, 0));
    assert_int_equal(
        5, dyti_descriptors_receive(pair[1], 0, text, 8, got, FILES, &count));
    assert_int_equal(0, count);
    assert_int_equal(EINVAL, dyti_descriptors_send(pair[0], "x", 1, fd,
                                                   DYTI_DESCRIPTORS_MOST + 1));
    close(pair[0]);
    assert_int_equal(
        0, dyti_descriptors_receive(pair[1], 0, text, 8, got, FILES, &count));
    assert_int_equal(EPIPE, dyti_descriptors_send(pair[1], "x", 1, NULL, 0));
    close(pair[1]);
    dyti_descriptors_close(fd, FILES);
}

/* What has no room is nobody's, and not left open. */
static void what_has_no_room_is_closed(void **state)
{
    int pair[2], fd[FILES], got[FILES];
    uint32_t before, count;
    char text[8];

    (void)state;
    make_files(fd);
    assert_int_equal(
        0, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
    before = dyt_open_files();
    for (uint32_t room = 0; room <= FILES; room++) {
        assert_int_equal(0,
                         dyti_descriptors_send(pair[0], "word", 5, fd, FILES));
        assert_int_equal(5, dyti_descriptors_receive(pair[1], 0, text, 8, got,
                                                     room, &count));
        assert_int_equal(room, count);
        are_files(got, room);
        dyti_descriptors_close(got, room);
        assert_int_equal(before, dyt_open_files());
    }
    close(pair[0]);
    close(pair[1]);
    dyti_descriptors_close(fd, FILES);
}

static void processes_are_known_by_their_start(void **state)
{
    uint32_t pid = 0;
    uint64_t start = 0, other = 0;
    int code = -1;
    pid_t child;

    (void)state;
    assert_ok(dyti_process_self(&pid, &start));
    assert_int_equal(getpid(), pid);
    assert_true(dyti_process_is_self(pid, start));
    assert_false(dyti_process_is_self(pid, start + 1));
    assert_true(dyti_process_space() != 0);
    child = fork();
    if (child == 0) { /* the number alone is another one's */
        _exit(dyti_process_is_self(pid, start) ? 1 : 0);
    }
    assert_ok(dyti_process_start((uint32_t)child, &other));
    assert_true(other >= start);
    assert_int_equal(child, waitpid(child, &code, 0));
    assert_int_equal(0, code);
    assert_status(DYT_ERR_PEER, dyti_process_start((uint32_t)child, &other));
}

/* To the last one there is, and not beyond. */
static void room_is_looked_for(void **state)
{
    uint32_t before = dyt_open_files(), room = 0;
    struct rlimit limit, low;
    char least[64];

    (void)state;
    assert_ok(dyti_descriptors_room(0, "nothing"));
    assert_ok(dyti_descriptors_room(40, "a test"));
    assert_int_equal(0, getrlimit(RLIMIT_NOFILE, &limit));
    low = limit;
    low.rlim_cur = 64;
    assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &low));
    for (int fd = 0; fd < 64; fd++) {
        room += fcntl(fd, F_GETFD) < 0;
    }
    assert_true(room > 0);
    for (uint32_t count = 0; count < 100; count++) {
        enum dyt_status st = dyti_descriptors_room(count, "a test");

        if (count <= room) {
            assert_ok(st);
            continue;
        }
        assert_status(DYT_ERR_IO, st);
        snprintf(least, sizeof(least), "limit of 64 to %u at",
                 64 + count - room);
        assert_error_has("a test needs ");
        assert_error_has(least);
    }
    assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &limit));
    assert_int_equal(before, dyt_open_files());
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(room_is_looked_for),
    cmocka_unit_test(descriptors_come_with_a_message),
    cmocka_unit_test(what_has_no_room_is_closed),
    cmocka_unit_test(processes_are_known_by_their_start),
};
DYT_TEST_MAIN(tests)
