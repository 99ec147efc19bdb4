/* A small job in a folder of its own: model, data, job file; runs of it, and
 * what they leave behind.
 *
 *   struct dyt_job job = dyt_job_new("tiny");
 *   struct dyt_run run = dyt_job_run(&job, "name=a", "steps=2", NULL);
 *
 * The test becomes the parent of processes that lose theirs, so that nothing
 * that a run leaves escapes dyt_nothing_left(). */
#ifndef DYT_JOB_H
#define DYT_JOB_H

#include "dyt_run.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <sys/prctl.h>

#define DYT_JOB_SETS 48

struct dyt_job {
    const char *dir;
    char file[320], runs[320], model[320];
};

static inline char *dyt_words(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
static inline char *dyt_words(const char *fmt, ...)
{
    char *text;
    va_list args;

    va_start(args, fmt);
    assert_true(vasprintf(&text, fmt, args) >= 0);
    va_end(args);
    return text;
}

/* ---- the folder ---------------------------------------------------------- */

static const char dyt_job_text[] = "name = \"job\"\n"
                                   "model = \"%s\"\n"
                                   "runs = \"%s\"\n"
                                   "steps = 3\n"
                                   "ranks = 4\n"
                                   "[[phase]]\n"
                                   "name = \"rollout\"\n"
                                   "[phase.layout]\n"
                                   "tp = 4\n"
                                   "[phase.sampling]\n"
                                   "max_response_tokens = 6\n"
                                   "[phase.kv]\n"
                                   "memory = \"1MiB\"\n"
                                   "max_sequences = 16\n"
                                   "[[phase]]\n"
                                   "name = \"train\"\n"
                                   "[phase.layout]\n"
                                   "pp = 2\n"
                                   "dp = 2\n"
                                   "zero = 1\n"
                                   "[phase.batch]\n"
                                   "micro_batch_tokens = 64\n"
                                   "[phase.optimizer]\n"
                                   "lr = 0.002\n"
                                   "[data]\n"
                                   "train = \"train.jsonl\"\n"
                                   "prompt = \"{letters}>\"\n"
                                   "chat_template = \"none\"\n"
                                   "max_prompt_tokens = 8\n"
                                   "[[reward.functions]]\n"
                                   "kind = \"regex\"\n"
                                   "pattern = \"[a-m]\"\n"
                                   "[algorithm]\n"
                                   "prompts_per_step = 4\n"
                                   "samples_per_prompt = 4\n"
                                   "advantage_scale = \"none\"\n"
                                   "[metrics]\n"
                                   "completions_every = 1\n"
                                   "completions = 1024\n";

/* 24 prompts of four letters, and what they are when sorted. */
static inline void dyt_job_data(const char *path)
{
    FILE *file = fopen(path, "w");
    uint32_t x = 12345;

    assert_non_null(file);
    for (int row = 0; row < 24; row++) {
        char text[5] = {0}, sorted[5];

        for (int i = 0; i < 4; i++) {
            x = x * 1664525u + 1013904223u;
            text[i] = (char)('a' + (x >> 24) % 8);
        }
        memcpy(sorted, text, sizeof(text));
        for (int i = 0; i < 4; i++) {
            for (int k = i + 1; k < 4; k++) {
                if (sorted[k] < sorted[i]) {
                    char kept = sorted[i];

                    sorted[i] = sorted[k];
                    sorted[k] = kept;
                }
            }
        }
        fprintf(file, "{\"letters\": \"%s\", \"sorted\": \"%s\"}\n", text,
                sorted);
    }
    assert_int_equal(0, fclose(file));
}

static inline struct dyt_job dyt_job_new(const char *preset)
{
    struct dyt_job job = {.dir = dyt_test_dir()};
    char path[320], *text;
    struct dyt_run run;

    assert_int_equal(0, prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
    snprintf(job.file, sizeof(job.file), "%s/job.toml", job.dir);
    snprintf(job.runs, sizeof(job.runs), "%s/runs", job.dir);
    snprintf(job.model, sizeof(job.model), "%s/model", job.dir);
    snprintf(path, sizeof(path), "%s/train.jsonl", job.dir);
    dyt_job_data(path);
    text = dyt_words(dyt_job_text, job.model, job.runs);
    dyt_test_write(job.file, text, strlen(text));
    free(text);
    run =
        dyt_run("model", "init", "--preset", preset, "--out", job.model, NULL);
    assert_exit(0, run);
    dyt_run_fini(&run);
    return job;
}

/* Replace `from` in the job file, which holds it. */
static inline void dyt_job_edit(const struct dyt_job *job, const char *from,
                                const char *to)
{
    char *text = dyt_test_read(job->file, NULL), *at = strstr(text, from);
    char *edited;

    if (at == NULL) {
        fail_msg("the job does not hold: %s", from);
        return;
    }
    edited =
        dyt_words("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    dyt_test_write(job->file, edited, strlen(edited));
    free(edited);
    free(text);
}

/* ---- runs ---------------------------------------------------------------- */

/* `sets` are KEY=VALUE, or options that begin with "--"; a NULL ends them. */
static inline struct dyt_process dyt_job_start_list(const struct dyt_job *job,
                                                    const char *const *sets)
{
    char *argv[2 * DYT_JOB_SETS + 4];
    int n = 0;

    argv[n++] = (char *)(uintptr_t)DYT_BIN;
    argv[n++] = (char *)(uintptr_t) "run";
    argv[n++] = (char *)(uintptr_t)job->file;
    for (int i = 0; sets[i] != NULL; i++) {
        assert_true(i < DYT_JOB_SETS);
        if (strncmp(sets[i], "--", 2) != 0) {
            argv[n++] = (char *)(uintptr_t) "--set";
        }
        argv[n++] = (char *)(uintptr_t)sets[i];
    }
    argv[n] = NULL;
    return dyt_start_argv(argv);
}

static inline struct dyt_process dyt_job_start(const struct dyt_job *job, ...)
{
    const char *sets[DYT_JOB_SETS + 1];
    va_list args;
    int n = 0;

    va_start(args, job);
    while ((sets[n] = va_arg(args, const char *)) != NULL) {
        assert_true(++n <= DYT_JOB_SETS);
    }
    va_end(args);
    return dyt_job_start_list(job, sets);
}

static inline struct dyt_run dyt_job_run_list(const struct dyt_job *job,
                                              const char *const *sets)
{
    struct dyt_process p = dyt_job_start_list(job, sets);

    return dyt_finish(&p);
}

static inline struct dyt_run dyt_job_run(const struct dyt_job *job, ...)
{
    const char *sets[DYT_JOB_SETS + 1];
    va_list args;
    int n = 0;

    va_start(args, job);
    while ((sets[n] = va_arg(args, const char *)) != NULL) {
        assert_true(++n <= DYT_JOB_SETS);
    }
    va_end(args);
    return dyt_job_run_list(job, sets);
}

/* No process that this test's runs started is alive, or stays so for long. */
static inline void dyt_nothing_left(void)
{
    for (int tries = 0; tries < 6000; tries++) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);

        if (pid < 0 && errno == ECHILD) {
            return;
        }
        if (pid == 0) {
            poll(NULL, 0, 10);
        }
    }
    fail_msg("a process is left behind");
}

/* Children of a process, in the order of their start. */
static inline size_t dyt_children(pid_t pid, pid_t *out, size_t most)
{
    char *path = dyt_words("/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *file = fopen(path, "r");
    size_t count = 0;
    int child;

    assert_non_null(file);
    while (count < most && fscanf(file, "%d", &child) == 1) {
        out[count++] = child;
    }
    fclose(file);
    free(path);
    return count;
}

/* The one line that says why a run ended. */
static inline void dyt_one_line(const char *prefix, const struct dyt_run *run)
{
    size_t count = 0;

    for (const char *line = run->out; line != NULL && *line != '\0';) {
        const char *next = strchr(line, '\n');

        count += strncmp(line, prefix, strlen(prefix)) == 0;
        line = next != NULL ? next + 1 : NULL;
    }
    if (count != 1) {
        fail_msg("%zu lines begin with \"%s\":\n%s", count, prefix, run->out);
    }
}

static inline void dyt_set_fault(const char *fault)
{
    if (fault != NULL) {
        setenv("DYNATRAIN_FAULT", fault, 1);
    } else {
        unsetenv("DYNATRAIN_FAULT");
    }
}

/* ---- what runs leave ----------------------------------------------------- */

/* The lines of runs/NAME/FILE as a JSON array; the caller json_decref()s it. */
static inline json_t *dyt_job_lines(const struct dyt_job *job, const char *name,
                                    const char *file)
{
    char *path = dyt_words("%s/%s/%s", job->runs, name, file);
    char *text = dyt_test_read(path, NULL), *line = text;
    json_t *all = json_array();

    while (*line != '\0') {
        size_t bytes = strcspn(line, "\n");
        json_error_t error;
        json_t *one = json_loadb(line, bytes, 0, &error);

        if (one == NULL) {
            fail_msg("%s: %s in: %.*s", path, error.text, (int)bytes, line);
        }
        json_array_append_new(all, one);
        line += bytes + (line[bytes] == '\n');
    }
    free(text);
    free(path);
    return all;
}

static inline json_t *dyt_job_summary(const struct dyt_job *job,
                                      const char *name)
{
    char *path = dyt_words("%s/%s/summary.json", job->runs, name);
    json_error_t error;
    json_t *all = json_load_file(path, 0, &error);

    if (all == NULL) {
        fail_msg("%s: %s", path, error.text);
    }
    free(path);
    return all;
}

/* A number of one line; the test fails where it is missing. */
static inline double dyt_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    if (!json_is_number(value)) {
        fail_msg("\"%s\" is no number", key);
    }
    return json_number_value(value);
}

static inline bool dyt_exists(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
static inline bool dyt_exists(const char *fmt, ...)
{
    char path[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(path, sizeof(path), fmt, args);
    va_end(args);
    return access(path, F_OK) == 0;
}

/* Entries of a folder, "." and ".." not counted; 0 where there is none. */
static inline size_t dyt_entries(const char *path)
{
    DIR *dir = opendir(path);
    size_t count = 0;

    while (dir != NULL) {
        const struct dirent *entry = readdir(dir);

        if (entry == NULL) {
            break;
        }
        count +=
            strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

#endif /* DYT_JOB_H */
