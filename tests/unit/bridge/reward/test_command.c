/* Reward commands that work, die, hang, talk rubbish, fork; none is ever left
 * behind, not even by a kill -9 of whoever started it. */
#include "dyt_test.h"
#include "reward/child.h"
#include "reward/reward.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static const struct dyti_reward_ops *ops = &dyti_reward_native;

/* A command of python source, with the test's folder as its argument. */
static struct dyti_reward_command python(const char *source, const char *dir,
                                         double deadline)
{
    static char *argv[4];
    struct dyti_reward_command command = {
        .argv = argv, .argc = 4, .deadline = deadline};

    argv[0] = (char *)(uintptr_t) "python3";
    argv[1] = (char *)(uintptr_t) "-ISc"; /* starts twice as fast */
    argv[2] = (char *)(uintptr_t)source;
    argv[3] = (char *)(uintptr_t)dir;
    return command;
}

#define IMPORTS                                                                \
    "import json, os, sys, signal\n"                                           \
    "def note(name):\n"                                                        \
    "    fd = os.open(sys.argv[1] + '/' + name,\n"                             \
    "                 os.O_CREAT | os.O_APPEND | os.O_WRONLY)\n"               \
    "    os.write(fd, b'%d\\n' % os.getpid())\n"                               \
    "note('started')\n"
/* length of the completion; "drop" is dropped */
#define JUDGE                                                                  \
    "def judge(line):\n"                                                       \
    "    return json.dumps([\n"                                                \
    "        {'id': s['id'], 'reward': None if s['completion'] == 'drop'\n"    \
    "         else len(s['completion']) + s['bonus'],\n"                       \
    "         'components': {'len': len(s['completion'])}}\n"                  \
    "        for s in json.loads(line)])\n"
#define LOOP                                                                   \
    "for line in sys.stdin:\n"                                                 \
    "    print(judge(line), flush=True)\n"

static const struct dyti_reward_item items[] = {
    {.id = 0,
     .prompt = "p",
     .completion = "abc",
     .finish_reason = "stop",
     .row_json = "{\"bonus\": 0.5}"},
    {.id = 1,
     .prompt = "p",
     .completion = "drop",
     .finish_reason = "stop",
     .row_json = "{\"bonus\": 0}"},
};

/* Lines in a file: how often a command noted something; 0 without it. */
static int notes(const char *dir, const char *name)
{
    char path[300], *text;
    int lines = 0;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (access(path, R_OK) != 0) {
        return 0;
    }
    text = dyt_test_read(path, NULL);
    for (const char *c = text; *c != '\0'; c++) {
        lines += *c == '\n';
    }
    free(text);
    return lines;
}

/* True once the process is gone, or a zombie; they have been killed, so this
 * waits for the kernel, not for them.  valgrind knows no pidfd. */
static bool ends(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd end = {.fd = fd, .events = POLLIN};
    bool gone = errno == ESRCH;

    if (fd >= 0) {
        gone = poll(&end, 1, 10000) == 1;
        close(fd);
        return gone;
    }
    for (int i = 0; !gone && errno == ENOSYS && i < 1000; i++) {
        char path[64], state = 'Z';
        FILE *file;

        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        file = fopen(path, "r");
        gone = file == NULL || fscanf(file, "%*d (%*[^)]) %c", &state) != 1 ||
               state == 'Z';
        if (file != NULL) {
            fclose(file);
        }
        if (!gone) {
            poll(NULL, 0, 10);
            errno = ENOSYS;
        }
    }
    return gone;
}

/* True if all processes that were noted end. */
static bool all_gone(const char *dir, const char *name)
{
    char path[300], *text, *line, *next;
    bool gone = true;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    text = dyt_test_read(path, NULL);
    for (line = text; *line != '\0'; line = next + 1) {
        long pid = strtol(line, &next, 10);

        gone = ends((pid_t)pid) && gone;
    }
    free(text);
    return gone;
}

static void assert_judged(void *command)
{
    struct dyti_reward_reply reply[2];

    assert_ok(ops->command_judge(command, items, 2, reply));
    assert_true(reply[0].reward == 3.5);
    assert_string_equal("len", reply[0].component[0].name);
    assert_true(reply[1].dropped);
    dyti_reward_reply_fini(&reply[0]);
    dyti_reward_reply_fini(&reply[1]);
}

static void one_child_judges_many_batches(void **state)
{
    const char *dir = dyt_test_dir();
    struct dyti_reward_command params = python(IMPORTS JUDGE LOOP, dir, 60.0);
    void *command = NULL;

    (void)state;
    assert_ok(ops->command_open(&params, &command));
    for (int i = 0; i < 5; i++) {
        assert_judged(command);
    }
    ops->command_close(command);
    ops->command_close(NULL);
    assert_int_equal(1, notes(dir, "started"));
    assert_true(all_gone(dir, "started"));
}

/* More than any pipe holds, both ways. */
static void large_batches(void **state)
{
    enum { COUNT = 3000 };
    static struct dyti_reward_item many[COUNT];
    static struct dyti_reward_reply reply[COUNT];
    const char *dir = dyt_test_dir();
    struct dyti_reward_command params = python(IMPORTS JUDGE LOOP, dir, 60.0);
    void *command = NULL;

    (void)state;
    for (uint64_t i = 0; i < COUNT; i++) {
        many[i] = items[0];
        many[i].id = i;
    }
    assert_ok(ops->command_open(&params, &command));
    assert_ok(ops->command_judge(command, many, COUNT, reply));
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(reply[i].reward == 3.5);
        dyti_reward_reply_fini(&reply[i]);
    }
    ops->command_close(command);
}

static void no_such_program(void **state)
{
    char *argv[] = {(char *)(uintptr_t) "no-such-program-xyz"};
    struct dyti_reward_command params = {
        .argv = argv, .argc = 1, .deadline = 1.0};
    void *command = NULL;

    (void)state;
    assert_status(DYT_ERR_CONFIG, ops->command_open(&params, &command));
    assert_error_has("no program \"no-such-program-xyz\"");
    assert_null(command);
}

/* Dies at its first batch, works after the restart. */
static void one_death_is_forgiven(void **state)
{
    const char *dir = dyt_test_dir();
    struct dyti_reward_command params = python(
        IMPORTS JUDGE "first = not os.path.exists(sys.argv[1] + '/died')\n"
                      "for line in sys.stdin:\n"
                      "    if first:\n"
                      "        note('died')\n"
                      "        os._exit(3)\n"
                      "    print(judge(line), flush=True)\n",
        dir, 60.0);
    void *command = NULL;

    (void)state;
    assert_ok(ops->command_open(&params, &command));
    assert_judged(command);
    assert_judged(command);
    ops->command_close(command);
    assert_int_equal(2, notes(dir, "started"));
}

/* Each of these fails twice: one clear line, and nothing left. */
static void failures_are_one_line(void **state)
{
    static const struct {
        const char *source;
        double deadline;
        enum dyt_status status;
        const char *says[2];
    } bad[] = {
        {IMPORTS "sys.stdin.readline()\nos._exit(3)\n",
         60.0,
         DYT_ERR_IO,
         {"ended without an answer", "it exited with 3"}},
        {IMPORTS "raise SystemExit(7)\n",
         60.0,
         DYT_ERR_IO,
         {"ended without an answer", "exited with 7"}},
        {IMPORTS "sys.stdin.readline()\nos.kill(os.getpid(), 9)\n",
         60.0,
         DYT_ERR_IO,
         {"ended without an answer", "killed by signal 9"}},
        {IMPORTS "while True: signal.pause()\n",
         0.3,
         DYT_ERR_TIMEOUT,
         {"no answer within its deadline", "had to be killed"}},
        {IMPORTS "signal.signal(15, signal.SIG_IGN)\nsys.stdin.readline()\n"
                 "os.fork()\nwhile True: signal.pause()\n",
         0.3,
         DYT_ERR_TIMEOUT,
         {"no answer", "within 0.3 s"}},
        {IMPORTS "for line in sys.stdin: print('hello', flush=True)\n",
         60.0,
         DYT_ERR_FORMAT,
         {"no JSON list", "\"hello\""}},
        {IMPORTS "for line in sys.stdin: print('[]', flush=True)\n",
         60.0,
         DYT_ERR_FORMAT,
         {"id 0 is not answered", "started it again once"}},
        {IMPORTS "os.close(1)\nwhile True: signal.pause()\n",
         60.0,
         DYT_ERR_IO,
         {"ended without an answer", "had to be killed"}},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(bad); i++) {
        const char *dir = dyt_test_dir();
        struct dyti_reward_command params =
            python(bad[i].source, dir, bad[i].deadline);
        struct dyti_reward_reply reply[2];
        void *command = NULL;

        assert_ok(ops->command_open(&params, &command));
        assert_status(bad[i].status,
                      ops->command_judge(command, items, 2, reply));
        assert_error_has(bad[i].says[0]);
        assert_error_has(bad[i].says[1]);
        assert_null(strchr(dyti_error_text(), '\n'));
        ops->command_close(command);
        if (notes(dir, "started") > 0) {
            assert_true(all_gone(dir, "started"));
        }
    }
}

/* Two lines for one batch are noticed at the next. */
static void too_many_lines(void **state)
{
    const char *dir = dyt_test_dir();
    struct dyti_reward_command params =
        python(IMPORTS JUDGE "for line in sys.stdin:\n"
                             "    sys.stdout.write(judge(line) + '\\nx\\n')\n"
                             "    sys.stdout.flush()\n",
               dir, 60.0);
    struct dyti_reward_reply reply[2];
    void *command = NULL;

    (void)state;
    assert_ok(ops->command_open(&params, &command));
    assert_judged(command); /* the restarted one works again, once */
    assert_ok(ops->command_judge(command, items, 2, reply));
    dyti_reward_reply_fini(&reply[0]);
    dyti_reward_reply_fini(&reply[1]);
    assert_int_equal(2, notes(dir, "started"));
    ops->command_close(command);
}

/* Who started the command is killed: the command goes too, though it neither
 * reads nor listens to signals. */
static void a_killed_owner_leaves_nothing(void **state)
{
    const char *dir = dyt_test_dir();
    struct dyti_reward_command params =
        python(IMPORTS "signal.signal(15, signal.SIG_IGN)\n"
                       "signal.signal(1, signal.SIG_IGN)\n"
                       "print('up', flush=True)\n"
                       "while True: signal.pause()\n",
               dir, 60.0);
    int up[2], alive[2];
    struct pollfd end;
    char byte;
    pid_t owner;

    (void)state;
    assert_int_equal(0, pipe(up));
    assert_int_equal(0, pipe(alive)); /* its write end lives in the command */
    owner = fork();
    if (owner == 0) {
        struct dyti_child child = {0};
        char *answer = NULL;
        size_t bytes = 0;
        struct pollfd forever = {.fd = -1};

        close(up[0]);
        close(alive[0]);
        if (dyti_child_start(params.argv, params.argc, &child) != DYT_OK ||
            dyti_child_ask(&child, "x\n", 2, dyti_child_now_ns() + 60000000000,
                           &answer, &bytes) != DYT_OK) {
            _exit(1);
        }
        close(alive[1]); /* the command still has it */
        if (write(up[1], "u", 1) != 1) {
            _exit(1);
        }
        poll(&forever, 1, -1);
        _exit(0);
    }
    close(up[1]);
    close(alive[1]);
    assert_int_equal(1, read(up[0], &byte, 1));
    assert_int_equal(0, kill(owner, SIGKILL));
    assert_int_equal(owner, waitpid(owner, NULL, 0));
    /* The last holder of the write end gone is an end of file here. */
    end = (struct pollfd){.fd = alive[0], .events = POLLIN};
    assert_int_equal(1, poll(&end, 1, 30000));
    assert_int_equal(0, read(alive[0], &byte, 1));
    close(alive[0]);
    close(up[0]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_child_judges_many_batches),
    cmocka_unit_test(large_batches),
    cmocka_unit_test(no_such_program),
    cmocka_unit_test(one_death_is_forgiven),
    cmocka_unit_test(failures_are_one_line),
    cmocka_unit_test(too_many_lines),
    cmocka_unit_test(a_killed_owner_leaves_nothing),
};
DYT_TEST_MAIN(tests)
