/* Processes and pipes of a reward command. */
#include "reward/child.h"

#include "base/array.h"
#include "base/banned.h"
#include "base/env.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_BYTES_MAX (256u << 20)
#define LIFE_FD          3
#define REQUEST_FD       4

extern char **environ;

/* $@ is the command.  Input is fd 4, the pipe that closes with us is fd 3. */
static const char guard[] = "\"$@\" <&4 3<&- 4<&- &\n"
                            "child=$!\n"
                            "exec 4<&- 1>&- 2>/dev/null\n"
                            "{ read -r _ <&3; kill -9 0; } &\n"
                            "watch=$!\n"
                            "wait $child\n"
                            "status=$?\n"
                            "kill -9 $watch\n"
                            "exit $status\n";

int64_t dyti_child_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int left_ms(int64_t deadline_ns)
{
    int64_t left = (deadline_ns - dyti_child_now_ns() + 999999) / 1000000;

    return left < 0 ? 0 : left > 3600000 ? 3600000 : (int)left;
}

/* ---- start -------------------------------------------------------------- */

static bool runnable(const char *path)
{
    return access(path, X_OK) == 0;
}

/* True if `program` can be found as the shell will find it. */
static bool in_path(const char *program)
{
    const char *path = dyti_env_foreign("PATH");
    char full[4096];

    if (strchr(program, '/') != NULL) {
        return runnable(program);
    }
    for (path = path == NULL ? "/usr/bin:/bin" : path; *path != '\0';) {
        size_t bytes = strcspn(path, ":");

        snprintf(full, sizeof(full), "%.*s/%s", (int)bytes,
                 bytes == 0 ? "." : path, program);
        if (runnable(full)) {
            return true;
        }
        path += bytes + (path[bytes] == ':');
    }
    return false;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

/* Pairs: [0] is the child's, [1] ours; all close on exec. */
struct pipes {
    int request[2], answer[2], life[2];
};

static void pipes_close(struct pipes *p)
{
    for (int i = 0; i < 2; i++) {
        close_fd(&p->request[i]);
        close_fd(&p->answer[i]);
        close_fd(&p->life[i]);
    }
}

/* Above every number that the child will use, so that dup2 never hits one. */
static bool lift(int *fd)
{
    int high = fcntl(*fd, F_DUPFD_CLOEXEC, 10);

    if (high < 0) {
        return false;
    }
    close(*fd);
    *fd = high;
    return true;
}

static enum dyt_status pipes_open(struct pipes *p)
{
    int ends[2];
    bool fine;

    *p = (struct pipes){{-1, -1}, {-1, -1}, {-1, -1}};
    fine = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p->request) == 0;
    if (fine && pipe2(ends, O_CLOEXEC) == 0) {
        p->answer[0] = ends[1];
        p->answer[1] = ends[0];
    } else {
        fine = false;
    }
    fine = fine && pipe2(p->life, O_CLOEXEC) == 0;
    for (int i = 0; i < 2; i++) {
        fine = fine && lift(&p->request[i]) && lift(&p->answer[i]) &&
               lift(&p->life[i]);
    }
    fine = fine && fcntl(p->request[1], F_SETFL, O_NONBLOCK) == 0 &&
           fcntl(p->answer[1], F_SETFL, O_NONBLOCK) == 0;
    if (!fine) {
        enum dyt_status st =
            DYTI_FAIL(DYT_ERR_IO, "pipes of a command: %s", strerror(errno));

        pipes_close(p);
        return st;
    }
    return DYT_OK;
}

/* File actions and attributes are made and given back around one spawn. */
static int spawn(const struct pipes *p, char *const *argv, pid_t *out_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    int error;

    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGXFSZ);
    sigaddset(&defaults, SIGINT);
    sigaddset(&defaults, SIGTERM);
    error = posix_spawn_file_actions_init(&actions);
    if (error != 0) {
        return error;
    }
    error = posix_spawnattr_init(&attributes);
    if (error != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return error;
    }
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, p->answer[0], 1);
    posix_spawn_file_actions_adddup2(&actions, p->life[0], LIFE_FD);
    posix_spawn_file_actions_adddup2(&actions, p->request[0], REQUEST_FD);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP |
                                              POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    error =
        posix_spawn(out_pid, "/bin/sh", &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

enum dyt_status dyti_child_start(char *const *argv, uint32_t argc,
                                 struct dyti_child *out_child)
{
    struct pipes p;
    pid_t pid = 0;
    char **full;
    int error;
    enum dyt_status st;

    if (!in_path(argv[0])) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "there is no program \"%s\" to run: give a path, or "
                         "one in PATH",
                         argv[0]);
    }
    st = pipes_open(&p);
    if (st != DYT_OK) {
        return st;
    }
    full = calloc(argc + 5u, sizeof(*full)); /* sh -c guard sh argv… NULL */
    if (full == NULL) {
        pipes_close(&p);
        return DYTI_FAIL(DYT_ERR_NOMEM, "starting %s", argv[0]);
    }
    full[0] = (char *)(uintptr_t) "sh";
    full[1] = (char *)(uintptr_t) "-c";
    full[2] = (char *)(uintptr_t)guard;
    full[3] = (char *)(uintptr_t) "sh";
    memcpy(full + 4, argv, argc * sizeof(*argv));
    error = spawn(&p, full, &pid);
    free(full);
    if (error != 0) {
        pipes_close(&p);
        return DYTI_FAIL(DYT_ERR_IO, "starting %s: %s", argv[0],
                         strerror(error));
    }
    *out_child = (struct dyti_child){.pid = pid,
                                     .request = p.request[1],
                                     .answer = p.answer[1],
                                     .life = p.life[1]};
    p.request[1] = p.answer[1] = p.life[1] = -1;
    pipes_close(&p);
    return DYT_OK;
}

/* ---- ask ---------------------------------------------------------------- */

/* Send what goes; *sent grows.  A command that closed its input is told by its
 * output, which says more. */
static void send_some(struct dyti_child *child, const char *line, size_t bytes,
                      size_t *sent)
{
    ssize_t got =
        send(child->request, line + *sent, bytes - *sent, MSG_NOSIGNAL);

    if (got > 0) {
        *sent += (size_t)got;
    } else if (got < 0 && errno != EAGAIN && errno != EINTR) {
        *sent = bytes;
    }
}

/* Read what there is.  DYT_PENDING: nothing now. */
static enum dyt_status read_some(struct dyti_child *child)
{
    ssize_t got;
    enum dyt_status st;

    if (child->line_bytes > ANSWER_BYTES_MAX) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "more than %u MiB without a newline came back",
                         ANSWER_BYTES_MAX >> 20);
    }
    st = DYTI_GROW(child->line, child->line_cap, child->line_bytes + 65536);
    if (st != DYT_OK) {
        return st;
    }
    got = read(child->answer, child->line + child->line_bytes,
               child->line_cap - child->line_bytes);
    if (got < 0) {
        return errno == EAGAIN || errno == EINTR
                   ? DYT_PENDING
                   : DYTI_FAIL(DYT_ERR_IO, "reading its answer: %s",
                               strerror(errno));
    }
    if (got == 0) {
        return DYTI_FAIL(DYT_ERR_IO, "it ended without an answer");
    }
    child->line_bytes += (size_t)got;
    return DYT_OK;
}

/* The first whole line that was read, taken out; false: none yet. */
static bool take_line(struct dyti_child *child, size_t from, char **out,
                      size_t *out_bytes)
{
    char *end = child->line_bytes <= from ? NULL
                                          : memchr(child->line + from, '\n',
                                                   child->line_bytes - from);
    size_t bytes;

    if (end == NULL) {
        return false;
    }
    bytes = (size_t)(end - child->line);
    *out = strndup(child->line, bytes);
    *out_bytes = bytes;
    child->line_bytes -= bytes + 1;
    memmove(child->line, end + 1, child->line_bytes);
    return true;
}

enum dyt_status dyti_child_ask(struct dyti_child *child, const char *line,
                               size_t line_bytes, int64_t deadline_ns,
                               char **out_answer, size_t *out_bytes)
{
    size_t sent = 0, seen = 0, bytes = 0;
    char *answer = NULL;

    if (child->line_bytes != 0) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "it wrote more than one line for one batch");
    }
    while (!take_line(child, seen, &answer, &bytes)) {
        const struct dyti_reward_watch *watch = child->watch;
        struct pollfd fds[3] = {
            {.fd = child->answer, .events = POLLIN},
            {.fd = sent < line_bytes ? child->request : -1, .events = POLLOUT},
            {.fd = watch != NULL ? watch->fd : -1, .events = POLLIN}};
        int left = left_ms(deadline_ns);
        enum dyt_status st = DYT_OK;

        if (left == 0) {
            return DYTI_FAIL(DYT_ERR_TIMEOUT, "no answer within its deadline");
        }
        if (poll(fds, 3, left) < 0 && errno != EINTR) {
            return DYTI_FAIL(DYT_ERR_IO, "waiting for an answer: %s",
                             strerror(errno));
        }
        if (fds[2].revents != 0) {
            st = watch->look(watch->arg);
        }
        if (st != DYT_OK) {
            return st;
        }
        if (fds[1].revents != 0) {
            send_some(child, line, line_bytes, &sent);
        }
        seen = child->line_bytes;
        if (fds[0].revents != 0) {
            st = read_some(child);
        }
        if (st != DYT_OK && st != DYT_PENDING) {
            return st;
        }
    }
    if (answer == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "an answer of %zu bytes", bytes);
    }
    *out_answer = answer;
    *out_bytes = bytes;
    return DYT_OK;
}

/* ---- stop --------------------------------------------------------------- */

/* Sleep until the guard has ended, or for `ms`.  Where there is no pidfd (Linux
 * before 5.3, valgrind) the pipe tells: only the guard's group has its other
 * end, and the guard is the last to leave. */
static void await_end(const struct dyti_child *child, int ms)
{
    int pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);
    struct pollfd end = {.fd = pidfd >= 0 ? pidfd : child->life,
                         .events = pidfd >= 0 ? POLLIN : 0};
    int64_t until = dyti_child_now_ns() + (int64_t)ms * 1000000;

    while (poll(&end, 1, left_ms(until)) < 0 && errno == EINTR) {
    }
    if (pidfd >= 0) {
        close(pidfd);
    } else if (end.revents != 0) {
        siginfo_t info;

        /* Its pipe is closed: it is on its way out. */
        while (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOWAIT) != 0 &&
               errno == EINTR) {
        }
    }
}

/* True if the guard has ended; it stays a zombie, so its number is ours. */
static bool has_ended(pid_t pid)
{
    siginfo_t info = {0};

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == pid;
}

static void say_how(int status, bool killed, char *how, size_t how_bytes)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    int sig = WIFSIGNALED(status) ? WTERMSIG(status)
              : code > 128        ? code - 128 /* as the guard tells it */
                                  : 0;

    if (how == NULL) {
        return;
    }
    if (killed) {
        snprintf(how, how_bytes, "had to be killed");
    } else if (sig != 0) {
        snprintf(how, how_bytes, "was killed by signal %d", sig);
    } else {
        snprintf(how, how_bytes, "exited with %d", code);
    }
}

void dyti_child_stop(struct dyti_child *child, int grace_ms, char *how,
                     size_t how_bytes)
{
    int status = 0;
    bool ended;

    if (child->pid == 0) {
        return;
    }
    close_fd(&child->request);
    await_end(child, grace_ms);
    ended = has_ended(child->pid);
    /* The guard is not reaped yet, so the group is still this one: whatever
     * the command has started goes too. */
    kill(-child->pid, SIGKILL);
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR) {
    }
    close_fd(&child->answer);
    close_fd(&child->life);
    free(child->line);
    say_how(status, !ended, how, how_bytes);
    *child = (struct dyti_child){.request = -1, .answer = -1, .life = -1};
}
