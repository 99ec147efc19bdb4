/* metrics.jsonl and completions.jsonl: one line in one write. */
#include "format/metrics.h"
#include "format/metrics_keys.h"

#include "base/errno_text.h"

#include "base/banned.h"
#include "format/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINES_BYTES_MAX (4ull << 30)

struct dyti_metrics {
    char *metrics_path, *completions_path;
    int metrics_fd, completions_fd;
    json_t *line; /* between begin and end */
};

/* ---- files -------------------------------------------------------------- */

/* The step of a line; 0 where it has none (cut by a kill). */
static uint64_t step_of(const char *line, size_t bytes)
{
    json_t *json = json_loadb(line, bytes, 0, NULL);
    const json_t *step = json_object_get(json, "step");
    uint64_t number =
        json_is_integer(step) ? (uint64_t)json_integer_value(step) : 0;

    json_decref(json);
    return number;
}

/* Bytes of whole lines up to the first that is of a later step, or broken. */
static size_t kept_bytes(const char *text, size_t bytes, uint64_t last_step)
{
    size_t at = 0;

    while (at < bytes) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end == NULL ? 0 : (size_t)(end - text) - at;
        uint64_t step = end == NULL ? 0 : step_of(text + at, length);

        if (step == 0 || step > last_step) {
            break;
        }
        at += length + 1;
    }
    return at;
}

/* Open for appending, cut to what steps up to `resume_step` wrote. */
static enum dyt_status open_lines(const char *path, uint64_t resume_step,
                                  int *out_fd)
{
    size_t keep = 0;
    int fd;

    if (resume_step > 0 && dyti_file_exists(path)) {
        char *text = NULL;
        size_t bytes = 0;
        enum dyt_status st =
            dyti_file_read(path, LINES_BYTES_MAX, &text, &bytes);

        if (st != DYT_OK) {
            return st;
        }
        keep = kept_bytes(text, bytes, resume_step);
        free(text);
    }
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || ftruncate(fd, (off_t)keep) != 0) {
        enum dyt_status st =
            DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));

        if (fd >= 0) {
            close(fd);
        }
        return st;
    }
    *out_fd = fd;
    return DYT_OK;
}

static enum dyt_status join(const char *folder, const char *name, char **out)
{
    char path[DYTI_PATH_BYTES];
    enum dyt_status st = dyti_path_join(path, folder, name);

    if (st != DYT_OK) {
        return st;
    }
    *out = strdup(path);
    return *out == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "%s", path) : DYT_OK;
}

void dyti_metrics_close(struct dyti_metrics *metrics)
{
    if (metrics == NULL) {
        return;
    }
    if (metrics->metrics_fd >= 0) {
        close(metrics->metrics_fd);
    }
    if (metrics->completions_fd >= 0) {
        close(metrics->completions_fd);
    }
    json_decref(metrics->line);
    free(metrics->metrics_path);
    free(metrics->completions_path);
    free(metrics);
}

enum dyt_status dyti_metrics_open(const char *folder, uint64_t resume_step,
                                  struct dyti_metrics **out_metrics)
{
    struct dyti_metrics *metrics = calloc(1, sizeof(*metrics));
    enum dyt_status st;

    if (metrics == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "the metrics of %s", folder);
    }
    metrics->metrics_fd = metrics->completions_fd = -1;
    st = dyti_dir_make(folder);
    if (st == DYT_OK) {
        st = join(folder, "metrics.jsonl", &metrics->metrics_path);
    }
    if (st == DYT_OK) {
        st = join(folder, "completions.jsonl", &metrics->completions_path);
    }
    if (st == DYT_OK) {
        st = open_lines(metrics->metrics_path, resume_step,
                        &metrics->metrics_fd);
    }
    if (st == DYT_OK) {
        st = open_lines(metrics->completions_path, resume_step,
                        &metrics->completions_fd);
    }
    if (st != DYT_OK) {
        dyti_metrics_close(metrics);
        return st;
    }
    *out_metrics = metrics;
    return DYT_OK;
}

/* ---- lines -------------------------------------------------------------- */

static enum dyt_status write_line(int fd, const char *path, const json_t *line)
{
    char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9));
    size_t bytes, done = 0;
    struct stat before;
    enum dyt_status st = DYT_OK;

    if (text == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a line of %s", path);
    }
    bytes = strlen(text);
    text[bytes++] = '\n'; /* in place of the NUL: the length is known */
    if (fstat(fd, &before) != 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    while (done < bytes && st == DYT_OK) {
        ssize_t got = write(fd, text + done, bytes - done);

        if (got >= 0) {
            done += (size_t)got;
        } else if (errno != EINTR) {
            st = DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, dyti_errno_text(errno));
        }
    }
    free(text);
    if (st != DYT_OK && done > 0 && ftruncate(fd, before.st_size) != 0) {
        DYTI_NOTE("its last line is cut off");
    }
    return st;
}

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

enum dyt_status dyti_metrics_begin(struct dyti_metrics *metrics, uint64_t step)
{
    json_decref(metrics->line);
    metrics->line = json_object();
    if (metrics->line == NULL ||
        json_object_set_new(metrics->line, "step",
                            json_integer((json_int_t)step)) != 0) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a line of %s", metrics->metrics_path);
    }
    return DYT_OK;
}

enum dyt_status dyti_metrics_put(struct dyti_metrics *metrics, const char *key,
                                 double value)
{
    if (metrics->line == NULL) {
        return DYTI_FAIL(DYT_ERR_STATE, "metric %s outside a line", key);
    }
    if (!dyti_metrics_known(key)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "metric %s is not documented: add it to "
                         "metrics_keys.c",
                         key);
    }
    if (json_object_set_new(metrics->line, key, number(value)) != 0) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "metric %s", key);
    }
    return DYT_OK;
}

enum dyt_status dyti_metrics_end(struct dyti_metrics *metrics)
{
    enum dyt_status st;

    if (metrics->line == NULL) {
        return DYTI_FAIL(DYT_ERR_STATE, "no line of metrics was begun");
    }
    st = write_line(metrics->metrics_fd, metrics->metrics_path, metrics->line);
    json_decref(metrics->line);
    metrics->line = NULL;
    return st;
}

static json_t *ids_json(const struct dyti_sample *sample)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < sample->count; i++) {
        json_array_append_new(list, json_integer(sample->ids[i]));
    }
    return list;
}

static json_t *spans_json(const struct dyti_sample *sample)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < sample->span_count; i++) {
        const struct dyti_version_span *span = &sample->span[i];

        json_array_append_new(list, json_pack("{s:I, s:i, s:i}", "version",
                                              (json_int_t)span->version,
                                              "first", (int)span->first,
                                              "count", (int)span->count));
    }
    return list;
}

enum dyt_status dyti_metrics_completion(struct dyti_metrics *metrics,
                                        const struct dyti_completion *c)
{
    const struct dyti_sample *s = c->sample;
    json_t *line;
    enum dyt_status st;

    line = json_pack(
        "{s:I, s:b, s:I, s:i, s:s, s:s, s:o, s:o, s:b, s:o, s:s, s:o}", "step",
        (json_int_t)c->step, "eval", c->eval, "group", (json_int_t)s->prompt,
        "sample", (int)s->index, "prompt", c->prompt, "text", c->text, "ids",
        ids_json(s), "reward", number((double)s->reward), "dropped", s->dropped,
        "advantage", number((double)s->advantage), "finish_reason",
        dyti_finish_name(s->finish), "versions", spans_json(s));
    if (line == NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "a completion of step %" PRIu64 " is not UTF-8, or "
                         "there is no memory",
                         c->step);
    }
    st = write_line(metrics->completions_fd, metrics->completions_path, line);
    json_decref(line);
    return st;
}

/* ---- summary ------------------------------------------------------------ */

enum dyt_status dyti_summary_write(const char *folder,
                                   const struct dyti_summary *s)
{
    char path[DYTI_PATH_BYTES];
    json_t *json;
    char *text;
    enum dyt_status st = dyti_path_join(path, folder, "summary.json");

    if (st != DYT_OK) {
        return st;
    }
    json = json_pack(
        "{s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, "
        "s:o}",
        "name", s->name, "end", s->end, "steps", (json_int_t)s->steps,
        "seconds", number(s->seconds), "reward_first", number(s->reward_first),
        "reward_last", number(s->reward_last), "exact_match",
        number(s->exact_match), "switch_count", (json_int_t)s->switch_count,
        "switch_seconds_median", number(s->switch_seconds_median),
        "switch_seconds_worst", number(s->switch_seconds_worst), "switch_bytes",
        number(s->switch_bytes), "switch_ratio", number(s->switch_ratio),
        "refit_seconds_median", number(s->refit_seconds_median),
        "logprob_gap_max", number(s->logprob_gap_max));
    text = json == NULL
               ? NULL
               : json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(json);
    if (text == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s", path);
    }
    st = dyti_file_write(path, text, strlen(text));
    free(text);
    return st;
}
