/* Processes of a test, driven by lines: each may be killed or stopped, and none
 * is left behind. */
#ifndef SESSION_PROCESS_H
#define SESSION_PROCESS_H

#include "dyt_run.h"

#include <fcntl.h>

#define LINE_BYTES 4096
#define WAIT_MS    60000 /* a line that takes longer hangs */

#define PROCESSES 64

/* Those of a test that failed are not left behind. */
static pid_t spawned[PROCESSES];

static inline void note_pid(pid_t from, pid_t to)
{
    for (int i = 0; i < PROCESSES; i++) {
        if (spawned[i] == from) {
            spawned[i] = to;
            return;
        }
    }
    fail_msg("more than %d processes", PROCESSES);
}

static inline int end_processes(void **state)
{
    (void)state;
    for (int i = 0; i < PROCESSES; i++) {
        if (spawned[i] != 0) {
            kill(spawned[i], SIGKILL);
            waitpid(spawned[i], NULL, 0);
            spawned[i] = 0;
        }
    }
    return 0;
}

static inline int ignore_pipes(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

#define job_test(f)                                                            \
    cmocka_unit_test_setup_teardown(f, ignore_pipes, end_processes)

struct member {
    pid_t pid;
    int in, out;
    char text[16384]; /* read, and not looked at */
    size_t bytes;
};

/* `log`: where its words go, that nobody reads; NULL: to us. */
static inline struct member spawn(char *const argv[], const char *log)
{
    struct member m = {0};
    int in[2], out[2], words = -1;

    assert_int_equal(0, pipe2(in, O_CLOEXEC));
    assert_int_equal(0, pipe2(out, O_CLOEXEC));
    if (log != NULL) {
        words = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        assert_true(words >= 0);
    }
    m.pid =
        dyt_spawn(argv, (const int[]){in[0], log == NULL ? out[1] : words, -1});
    if (words >= 0) {
        close(words);
    }
    note_pid(0, m.pid);
    close(in[0]);
    close(out[1]);
    m.in = in[1];
    m.out = out[0];
    return m;
}

static inline void kill_member(struct member *m)
{
    if (m->pid == 0) {
        return;
    }
    kill(m->pid, SIGKILL);
    assert_int_equal(m->pid, waitpid(m->pid, NULL, 0));
    note_pid(m->pid, 0);
    close(m->in);
    close(m->out);
    memset(m, 0, sizeof(*m));
}

/* The next line; false: the process has ended. */
static inline bool next_line(struct member *m, char line[LINE_BYTES])
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

static inline void tell(struct member *m, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static inline void tell(struct member *m, const char *fmt, ...)
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
static inline void await(struct member *m, const char *start,
                         char line[LINE_BYTES], void (*seen)(const char *line))
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

#endif /* SESSION_PROCESS_H */
