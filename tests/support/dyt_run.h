/* Run the program under test as a person would: argv in; exit code, what it
 * printed and how it ended out.  DYT_BIN names the binary (set by the build).
 *
 *   struct dyt_run run = dyt_run("run", "job.toml", "--set", "steps=3", NULL);
 *   assert_int_equal(0, run.code);
 *   dyt_run_fini(&run);
 */
#ifndef DYT_RUN_H
#define DYT_RUN_H

#include "dyt_test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#ifndef DYT_BIN
#define DYT_BIN "build/test/bin/dynatrain"
#endif

#define DYT_RUN_ARGS    64
#define DYT_RUN_SECONDS 300 /* a run that takes longer hangs */

struct dyt_run {
    int code;   /* exit code; -1: ended by a signal */
    int signal; /* 0, or what ended it */
    char *out;  /* stdout and stderr, in order of arrival */
    size_t out_bytes;
};

/* One that is still going. */
struct dyt_process {
    pid_t pid;
    int fd;    /* read end of its output */
    int pidfd; /* readable when it has ended */
    char *out;
    size_t out_bytes;
};

/* Start argv[0] with fd[0 … 2] as its standard ones (-1: this process's).  It
 * does not outlive the thread that starts it: a test that fails, or is killed,
 * leaves nothing behind.  127: it could not be started. */
static inline pid_t dyt_spawn(char *const argv[], const int fd[3])
{
    pid_t parent = getpid(), pid;

    (void)fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
            _exit(127);
        }
        for (int i = 0; i < 3; i++) {
            if (fd[i] >= 0 && dup2(fd[i], i) < 0) {
                _exit(127);
            }
        }
        execv(argv[0], argv);
        _exit(127);
    }
    return pid;
}

static inline struct dyt_process dyt_start_argv(char *const argv[])
{
    struct dyt_process p = {0};
    int pipe_fd[2], nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

    assert_true(nothing >= 0);
    assert_int_equal(0, pipe2(pipe_fd, O_CLOEXEC));
    p.pid = dyt_spawn(argv, (const int[]){nothing, pipe_fd[1], pipe_fd[1]});
    close(nothing);
    close(pipe_fd[1]);
    p.fd = pipe_fd[0];
    p.pidfd = (int)syscall(SYS_pidfd_open, p.pid, 0);
    assert_true(p.pidfd >= 0);
    return p;
}

static inline void dyt_run_collect(char **argv, va_list args)
{
    int n = 1;

    while (n < DYT_RUN_ARGS && (argv[n] = va_arg(args, char *)) != NULL) {
        n++;
    }
    assert_true(n < DYT_RUN_ARGS);
}

/* dynatrain ARG… NULL */
static inline struct dyt_process dyt_start(const char *first, ...)
{
    char *argv[DYT_RUN_ARGS + 1] = {(char *)(uintptr_t)DYT_BIN,
                                    (char *)(uintptr_t)first};
    va_list args;

    va_start(args, first);
    dyt_run_collect(argv + 1, args);
    va_end(args);
    return dyt_start_argv(argv);
}

/* Read on until the output holds `text` (NULL: to its end).  False: it ended
 * without, or nothing came for DYT_RUN_SECONDS. */
static inline bool dyt_read_until(struct dyt_process *p, const char *text)
{
    for (;;) {
        struct pollfd poll_fd = {.fd = p->fd, .events = POLLIN};
        char chunk[4096];
        ssize_t got;

        if (text != NULL && p->out != NULL && strstr(p->out, text) != NULL) {
            return true;
        }
        if (poll(&poll_fd, 1, DYT_RUN_SECONDS * 1000) <= 0) {
            return false;
        }
        got = read(p->fd, chunk, sizeof(chunk));
        if (got <= 0) {
            return text == NULL;
        }
        p->out = realloc(p->out, p->out_bytes + (size_t)got + 1);
        assert_non_null(p->out);
        memcpy(p->out + p->out_bytes, chunk, (size_t)got);
        p->out_bytes += (size_t)got;
        p->out[p->out_bytes] = '\0';
    }
}

/* Wait for its end; one that hangs is killed and fails the test. */
static inline struct dyt_run dyt_finish(struct dyt_process *p)
{
    struct pollfd poll_fd = {.fd = p->pidfd, .events = POLLIN};
    struct dyt_run run = {.code = -1};
    bool ended = dyt_read_until(p, NULL) &&
                 poll(&poll_fd, 1, DYT_RUN_SECONDS * 1000) > 0;
    int status;

    if (!ended) {
        kill(p->pid, SIGKILL);
    }
    assert_int_equal(p->pid, waitpid(p->pid, &status, 0));
    if (WIFEXITED(status)) {
        run.code = WEXITSTATUS(status);
    } else {
        run.signal = WTERMSIG(status);
    }
    run.out = p->out != NULL ? p->out : strdup("");
    run.out_bytes = p->out_bytes;
    close(p->fd);
    close(p->pidfd);
    if (!ended) {
        print_error("it hung; it had printed:\n%s\n", run.out);
        fail();
    }
    return run;
}

static inline void dyt_run_fini(struct dyt_run *run)
{
    free(run->out);
    run->out = NULL;
}

static inline struct dyt_run dyt_run(const char *first, ...)
{
    char *argv[DYT_RUN_ARGS + 1] = {(char *)(uintptr_t)DYT_BIN,
                                    (char *)(uintptr_t)first};
    struct dyt_process p;
    va_list args;

    va_start(args, first);
    dyt_run_collect(argv + 1, args);
    va_end(args);
    p = dyt_start_argv(argv);
    return dyt_finish(&p);
}

#define assert_exit(want, run)                                                 \
    dyt_assert_exit((want), &(run), __FILE__, __LINE__)
static inline void dyt_assert_exit(int want, const struct dyt_run *run,
                                   const char *file, int line)
{
    if (run->code != want) {
        print_error(
            "%s:%d: exit code %d (signal %d), want %d; it printed:\n%s\n", file,
            line, run->code, run->signal, want, run->out);
        _fail(file, line);
    }
}

#define assert_says(part, run)                                                 \
    dyt_assert_says((part), &(run), __FILE__, __LINE__)
static inline void dyt_assert_says(const char *part, const struct dyt_run *run,
                                   const char *file, int line)
{
    if (strstr(run->out, part) == NULL) {
        print_error("%s:%d: it does not say \"%s\" but:\n%s\n", file, line,
                    part, run->out);
        _fail(file, line);
    }
}

#endif /* DYT_RUN_H */
