#include "rival.h"
#include "bench.h"
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_WORDS   24u
#define LINE_BYTES   65536u
#define WAIT_SECONDS 900.0 /* for a model to load, or for one turn */
#define END_SECONDS  10.0  /* between a closed stdin and a kill */

struct rival_process {
    pid_t pid;
    int to, from;
    FILE *errors;
    char line[LINE_BYTES]; /* read, not looked at yet */
    size_t held;
};

/* ---- lines -------------------------------------------------------------- */

static bool wait_readable(int fd, double until)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    double left = until - bench_seconds();
    int n = 0;

    while (left > 0 && n == 0) {
        n = poll(&p, 1, 1000);
        n = n < 0 && errno == EINTR ? 0 : n;
        left = until - bench_seconds();
    }
    return n > 0;
}

/* The next whole line, without its end; NULL: it ended, or took too long. */
static char *next_line(struct rival_process *p, char *line, double until)
{
    for (;;) {
        char *end = memchr(p->line, '\n', p->held);
        ssize_t n;

        if (end != NULL) {
            size_t bytes = (size_t)(end - p->line);

            memcpy(line, p->line, bytes);
            line[bytes] = '\0';
            p->held -= bytes + 1;
            memmove(p->line, end + 1, p->held);
            return line;
        }
        if (p->held == LINE_BYTES) {
            p->held = 0; /* no record of ours: nobody writes such lines */
        }
        if (!wait_readable(p->from, until)) {
            return NULL;
        }
        n = read(p->from, p->line + p->held, LINE_BYTES - p->held);
        if (n <= 0) {
            return NULL;
        }
        p->held += (size_t)n;
    }
}

/* The next record that has `key`; NULL: none came. */
static json_t *next_record(struct rival_process *p, const char *key)
{
    double until = bench_seconds() + WAIT_SECONDS;
    char *line = malloc(LINE_BYTES + 1);
    json_t *json = NULL;

    while (line != NULL && json == NULL && next_line(p, line, until) != NULL) {
        json = json_loads(line, 0, NULL);
        if (json_object_get(json, key) == NULL) {
            json_decref(json);
            json = NULL;
        }
    }
    free(line);
    return json;
}

/* ---- the process -------------------------------------------------------- */

static int spawn_with(struct rival_process *p, char *const argv[], int in,
                      int out)
{
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);

    if (error != 0) {
        return error;
    }
    error = posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    error =
        error ? error
              : posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    error = error ? error
                  : posix_spawn_file_actions_adddup2(
                        &actions, fileno(p->errors), STDERR_FILENO);
    error = error
                ? error
                : posix_spawn(&p->pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static void close_one(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

static bool ended(struct rival_process *p)
{
    int code;

    return waitpid(p->pid, &code, WNOHANG) != 0;
}

static void process_end(struct rival_process *p)
{
    double until = bench_seconds() + END_SECONDS;
    const struct timespec pause = {.tv_nsec = 20000000};

    close_one(&p->to);
    while (p->pid > 0 && !ended(p)) {
        if (bench_seconds() > until) {
            (void)kill(p->pid, SIGKILL);
            (void)waitpid(p->pid, NULL, 0);
            break;
        }
        (void)nanosleep(&pause, NULL);
    }
    close_one(&p->from);
    if (p->errors != NULL) {
        fclose(p->errors);
    }
    free(p);
}

static struct rival_process *process_start(char *const argv[])
{
    struct rival_process *p = calloc(1, sizeof(*p));
    int in[2] = {-1, -1}, out[2] = {-1, -1}, error = ENOMEM;

    if (p == NULL) {
        return NULL;
    }
    p->to = p->from = -1;
    p->errors = tmpfile();
    if (p->errors != NULL && pipe2(in, O_CLOEXEC) == 0 &&
        pipe2(out, O_CLOEXEC) == 0) {
        p->to = in[1];
        p->from = out[0];
        error = spawn_with(p, argv, in[0], out[1]);
    } else {
        error = errno;
        close_one(&in[1]);
        close_one(&out[0]);
    }
    close_one(&in[0]);
    close_one(&out[1]);
    if (error != 0) {
        fprintf(stderr, "cannot start %s: %s\n", argv[0], strerror(error));
        p->pid = 0;
        process_end(p);
        return NULL;
    }
    return p;
}

/* ---- a rival ------------------------------------------------------------ */

static bool is_wanted(const struct bench *bench, const char *name)
{
    const char *at =
        bench->against != NULL ? strstr(bench->against, name) : NULL;
    size_t bytes = strlen(name);

    return bench->against == NULL ||
           (at != NULL && (at == bench->against || at[-1] == ',') &&
            (at[bytes] == ',' || at[bytes] == '\0'));
}

static bool is_there(const struct bench *bench, const char *name,
                     const char *path, int mode)
{
    if (access(path, mode) == 0) {
        return true;
    }
    printf("%s: %s is left out: there is no %s\n", bench->name, name, path);
    return false;
}

bool rival_start(const struct bench *bench, const struct rival_kind *kind,
                 const char *const *more, struct rival *out)
{
    char *cache, *python, *script, *argv[MOST_WORDS];
    uint32_t words = 0;
    json_t *ready = NULL;

    *out = (struct rival){.name = kind->name};
    if (bench->opponents == NULL || !is_wanted(bench, kind->name)) {
        return false;
    }
    cache = cache_folder();
    python = text_of("%s/venv/bench-%s/bin/python", cache, kind->venv);
    script = text_of("%s/%s", bench->opponents, kind->script);
    argv[words++] = python;
    argv[words++] = script;
    argv[words++] = "--turns";
    while (*more != NULL && words + 1 < MOST_WORDS) {
        argv[words++] = (char *)*more++; /* exec takes them as they are */
    }
    argv[words] = NULL;
    if (is_there(bench, kind->name, script, R_OK) &&
        is_there(bench, kind->name, python, X_OK)) {
        out->process = process_start(argv);
    }
    if (out->process != NULL) {
        ready = next_record(out->process, "ready");
        if (ready == NULL) {
            printf("%s: %s is left out: it did not start\n", bench->name,
                   kind->name);
            program_say_last(kind->name, out->process->errors);
            rival_stop(out);
        } else {
            const char *is = json_string_value(json_object_get(ready, "ready"));

            printf("  %s is %s\n", kind->name, is != NULL ? is : "ready");
        }
    }
    (void)fflush(stdout);
    json_decref(ready);
    free(script);
    free(python);
    free(cache);
    return out->process != NULL;
}

uint32_t rival_turn(void *arg, double *out_values, uint32_t most)
{
    struct rival *r = arg;
    struct rival_process *p = r->process;
    char *line;
    json_t *json = NULL;
    double value, peak;
    bool sent;

    if (p == NULL || most == 0) {
        return 0;
    }
    line = text_of("%s\n", r->case_name);
    sent = write(p->to, line, strlen(line)) == (ssize_t)strlen(line);
    free(line);
    json = sent ? next_record(p, "value") : NULL;
    value = json_number_value(json_object_get(json, "value"));
    peak = json_number_value(json_object_get(json, "peak_rss_mb"));
    json_decref(json);
    if (value <= 0) {
        printf("  %s is left out of %s: it failed\n", r->name, r->case_name);
        program_say_last(r->name, p->errors);
        (void)fflush(stdout);
        rival_stop(r);
        return 0;
    }
    r->peak_mb = peak > r->peak_mb ? peak : r->peak_mb;
    *out_values = value;
    return 1;
}

void rival_stop(struct rival *rival)
{
    if (rival->process != NULL) {
        process_end(rival->process);
        rival->process = NULL;
    }
}
