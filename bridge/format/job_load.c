/* A job from a file or a text, and its end. */
#include "format/file.h"
#include "format/job_options.h"

#include "base/banned.h"

static void reader_fini(struct dyti_job_reader *reader)
{
    for (size_t i = 0; i < reader->origin_count; i++) {
        free(reader->origin[i].place);
    }
    free(reader->origin);
    for (uint32_t i = 0; i < DYTI_PHASES_MAX && reader->phase_place != NULL;
         i++) {
        free(reader->phase_place[i]);
    }
    free(reader->phase_place);
    for (uint32_t i = 0; i < DYTI_REWARDS_MAX && reader->reward_place != NULL;
         i++) {
        free(reader->reward_place[i]);
    }
    free(reader->reward_place);
    free(reader->folder);
    dyti_job_fini(&reader->job);
}

/* Where the file lies: "" is the working directory. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    if (slash == NULL) {
        return strdup("");
    }
    return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

static enum dyt_status read_root(struct dyti_job_reader *reader,
                                 const struct dyti_toml *root,
                                 const char *const *sets, size_t set_count)
{
    struct dyti_place file = {.file = reader->path,
                              .folder = reader->resolved ? "" : reader->folder};
    enum dyt_status st;

    reader->job.path = strdup(reader->path);
    reader->job.folder = strdup(reader->folder);
    if (reader->job.path == NULL || reader->job.folder == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "reading %s", reader->path);
    }
    st = dyti_scope_init(DYTI_SCOPE_JOB, &reader->job);
    if (st == DYT_OK) {
        st = dyti_reader_table(reader, DYTI_SCOPE_JOB, 0, root, &file);
    }
    if (st == DYT_OK) {
        st = dyti_reader_phases(reader, root, &file);
    }
    if (st == DYT_OK) {
        st = dyti_reader_reward_table(reader, root, &file);
    }
    for (size_t i = 0; i < set_count && st == DYT_OK; i++) {
        st = dyti_reader_set(reader, sets[i]);
    }
    return st == DYT_OK ? dyti_reader_check(reader) : st;
}

static enum dyt_status read_tree(const struct dyti_toml *root, const char *path,
                                 bool resolved, const char *const *sets,
                                 size_t set_count, struct dyti_job *out_job)
{
    struct dyti_job_reader reader = {.path = path, .resolved = resolved};
    enum dyt_status st;

    reader.folder = folder_of(path);
    if (reader.folder == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "reading %s", path);
    }
    st = read_root(&reader, root, sets, set_count);
    if (st == DYT_OK) {
        *out_job = reader.job;
        reader.job = (struct dyti_job){0};
    }
    reader_fini(&reader);
    return st;
}

enum dyt_status dyti_job_parse_text(const char *text, size_t text_bytes,
                                    const char *path, const char *const *sets,
                                    size_t set_count, struct dyti_job *out_job)
{
    struct dyti_toml root = {0};
    enum dyt_status st = dyti_toml_parse(text, text_bytes, path, &root);

    if (st == DYT_OK) {
        st = read_tree(&root, path, false, sets, set_count, out_job);
        dyti_toml_fini(&root);
    }
    return st;
}

enum dyt_status dyti_job_load(const char *path, const char *const *sets,
                              size_t set_count, struct dyti_job *out_job)
{
    struct dyti_toml root = {0};
    enum dyt_status st = dyti_toml_load(path, &root);

    if (st == DYT_OK) {
        st = read_tree(&root, path, false, sets, set_count, out_job);
        dyti_toml_fini(&root);
    }
    return st;
}

enum dyt_status dyti_job_read_text(const char *text, size_t text_bytes,
                                   struct dyti_job *out_job)
{
    static const char name[] = "resolved job";
    struct dyti_toml root = {0};
    enum dyt_status st = dyti_toml_parse(text, text_bytes, name, &root);

    if (st == DYT_OK) {
        st = read_tree(&root, name, true, NULL, 0, out_job);
        dyti_toml_fini(&root);
    }
    return st;
}

void dyti_job_fini(struct dyti_job *job)
{
    for (uint32_t i = 0; i < job->phase_count; i++) {
        dyti_scope_fini(DYTI_SCOPE_PHASE, &job->phase[i]);
        free(job->phase[i].name);
    }
    for (uint32_t i = 0; i < job->reward_count; i++) {
        dyti_scope_fini(DYTI_SCOPE_REWARD, &job->reward[i]);
    }
    for (uint32_t i = 0; i < job->warning_count; i++) {
        free(job->warning[i]);
    }
    dyti_scope_fini(DYTI_SCOPE_JOB, job);
    free(job->phase);
    free(job->reward);
    free(job->warning);
    free(job->path);
    free(job->folder);
    *job = (struct dyti_job){0};
}

const struct dyti_job_phase *dyti_job_phase_of(const struct dyti_job *job,
                                               enum dyti_phase_kind kind)
{
    for (uint32_t i = 0; i < job->phase_count; i++) {
        if (job->phase[i].kind == kind) {
            return &job->phase[i];
        }
    }
    return NULL;
}

struct dyti_job_phase *dyti_job_phase(struct dyti_job *job,
                                      enum dyti_phase_kind kind)
{
    const struct dyti_job_phase *phase = dyti_job_phase_of(job, kind);

    return phase == NULL ? NULL : &job->phase[phase - job->phase];
}
