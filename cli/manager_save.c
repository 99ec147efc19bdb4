/* The run's folder, its lock, checkpoints and resuming. */
#include "cli/backends.h"
#include "cli/manager.h"
#include "format/file.h"

#include "base/errno_text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* A lock that the kernel gives back when the process ends, however it ends. */
static enum dyt_status lock_folder(struct dyti_manager *m)
{
    char path[4200];

    snprintf(path, sizeof(path), "%s/lock", m->folder);
    m->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (m->lock_fd < 0) {
        return DYTI_FAIL(DYT_ERR_IO, "cannot open %s: %s", path,
                         dyti_errno_text(errno));
    }
    if (flock(m->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        return DYTI_FAIL(DYT_ERR_BUSY,
                         "another run writes to %s: wait for it, or give this "
                         "job another name (--set name=...)",
                         m->folder);
    }
    return DYT_OK;
}

enum dyt_status dyti_manager_open_folder(struct dyti_manager *m)
{
    enum dyt_status st;

    if (asprintf(&m->folder, "%s/%s", m->job->runs, m->job->name) < 0) {
        m->folder = NULL;
        return DYTI_FAIL(DYT_ERR_NOMEM, "the name of the run's folder");
    }
    st = dyti_dirs_make(m->folder);
    if (st != DYT_OK) {
        DYTI_NOTE("making the run's folder");
    }
    return st != DYT_OK ? st : lock_folder(m);
}

/* ---- checkpoints ----------------------------------------------------------
 */

static enum dyt_status checkpoint_folder(const struct dyti_manager *m,
                                         char out[DYTI_PATH_BYTES])
{
    return dyti_path_join(out, m->folder, "checkpoints");
}

static void fill_state(const struct dyti_manager *m,
                       struct dyti_checkpoint_state *s)
{
    const struct dyti_layout *layout = m->assembly.layout[DYTI_ARENA_TRAIN];
    const struct dyti_layout_desc *d = &layout->desc;

    *s = (struct dyti_checkpoint_state){
        .step = m->step,
        .version = m->phase.version,
        .updates = m->phase.version,
        .seed = m->job->seed,
        .data_epoch = m->cursor.epoch,
        .data_position = m->cursor.position,
        .data_fingerprint = dyti_data_fingerprint(m->train),
        .next_prompt = m->next_prompt,
        .overlong_prompts = m->overlong_prompts,
        .score = m->eval_reward,
        .model_fingerprint = m->assembly.model->fingerprint,
        .layout_fingerprint = layout->fingerprint,
        .reward = m->reward.value,
        .reward_count = m->reward.count,
    };
    snprintf(s->isa, sizeof(s->isa), "%s", m->isa);
    snprintf(s->layout, sizeof(s->layout), "tp %u pp %u dp %u zero %u", d->tp,
             d->pp, d->dp, d->zero);
}

static enum dyt_status write_parts(struct dyti_manager *m, const char *path)
{
    union {
        const char *in;
        char *out; /* the encoder only reads it */
    } text = {.in = path};
    struct dyti_msg_checkpoint order = {text.out, m->step};
    struct dyti_envelope e = dyti_manager_stamp(m, DYTI_MSG_CHECKPOINT);
    struct dyti_buffer buffer;
    enum dyt_status st = dyti_manager_tell(
        m, dyti_wire_checkpoint_encode(&e, &order, &buffer), &buffer);

    return st != DYT_OK
               ? st
               : dyti_manager_collect(
                     m, DYTI_MSG_CHECKPOINT_DONE,
                     dyti_job_phase(m->job, DYTI_PHASE_TRAIN)->deadline, NULL,
                     NULL);
}

static enum dyt_status save(struct dyti_manager *m, const char *root)
{
    const struct dyti_job_phase *train =
        dyti_job_phase(m->job, DYTI_PHASE_TRAIN);
    struct dyti_checkpoint_spec spec = {
        .model = m->assembly.model,
        .dtype = dyti_job_dtype_of(train->layout.dtype),
        .optimizer = true};
    struct dyti_checkpoint_state state;
    char part[DYTI_PATH_BYTES], whole[DYTI_PATH_BYTES];
    uint32_t keep = m->job->checkpoint.keep_last;
    enum dyt_status st =
        dyti_checkpoint_prepare(root, m->step, m->model_dir, &spec, part);

    if (st != DYT_OK) {
        return st;
    }
    fill_state(m, &state);
    state.job = m->job_text;
    st = dyti_faults_at(&m->faults, "save");
    st = st != DYT_OK ? st : write_parts(m, part);
    st = st != DYT_OK ? st : dyti_faults_at(&m->faults, "parts");
    st = st != DYT_OK
             ? st
             : dyti_checkpoint_finish(part, &state, keep > 0 ? keep : 1,
                                      m->job->checkpoint.keep_best, whole);
    if (st != DYT_OK) {
        dyti_checkpoint_abort(part);
        return st;
    }
    return dyti_faults_at(&m->faults, "saved");
}

enum dyt_status dyti_manager_save(struct dyti_manager *m)
{
    int64_t start = dyti_now_ns();
    char folder[DYTI_PATH_BYTES];
    enum dyt_status st;

    if (m->step == m->first_step) {
        return DYT_OK; /* nothing new */
    }
    st = dyti_phase_take(&m->phase, DYTI_EVENT_SAVE, 0);
    st = st != DYT_OK ? st : checkpoint_folder(m, folder);
    st = st != DYT_OK ? st : save(m, folder);
    if (st != DYT_OK) {
        DYTI_NOTE("saving step %llu; earlier checkpoints are untouched",
                  (unsigned long long)m->step);
        return st;
    }
    m->save_seconds = (double)(dyti_now_ns() - start) * 1e-9;
    m->seconds_save += m->save_seconds;
    m->saved_step = m->step;
    return dyti_phase_take(&m->phase, DYTI_EVENT_SAVED, 0);
}

enum dyt_status dyti_manager_export(struct dyti_manager *m)
{
    char folder[DYTI_PATH_BYTES], newest[DYTI_PATH_BYTES], to[DYTI_PATH_BYTES];
    char name[64];
    bool found = false;
    enum dyt_status st = checkpoint_folder(m, folder);

    snprintf(name, sizeof(name), "export-%08llu", (unsigned long long)m->step);
    st = st != DYT_OK ? st : dyti_path_join(to, m->folder, name);
    st = st != DYT_OK ? st : dyti_checkpoint_latest(folder, newest, &found);
    if (st == DYT_OK && found && access(to, F_OK) != 0) {
        st = dyti_checkpoint_export(newest, to);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("exporting the weights");
    }
    return st;
}

/* ---- resuming -------------------------------------------------------------
 */

static enum dyt_status check_resumable(const struct dyti_manager *m,
                                       const struct dyti_checkpoint_state *s,
                                       const char *path)
{
    if (s->model_fingerprint != m->assembly.model->fingerprint) {
        return DYTI_FAIL(
            DYT_ERR_CONFIG,
            "%s is of another model than %s: resume with the model "
            "that the run began with",
            path, m->model_dir);
    }
    if (s->data_fingerprint != dyti_data_fingerprint(m->train)) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s was made with other data than %s: the run would "
                         "not go on where it stopped",
                         path, m->job->data.train);
    }
    if (s->seed != m->job->seed) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s has seed %llu, the job %llu: resume with the "
                         "former",
                         path, (unsigned long long)s->seed,
                         (unsigned long long)m->job->seed);
    }
    return DYT_OK;
}

/* Bit-equality is promised for the same layout and instruction set only. */
static void say_what_differs(const struct dyti_manager *m,
                             const struct dyti_checkpoint_state *s)
{
    if (s->layout_fingerprint !=
        m->assembly.layout[DYTI_ARENA_TRAIN]->fingerprint) {
        fprintf(stderr,
                "dynatrain run: resuming in another layout than %s: "
                "equal up to rounding, not bit for bit\n",
                s->layout);
    }
}

static enum dyt_status take_state(struct dyti_manager *m,
                                  const struct dyti_checkpoint_state *s)
{
    enum dyt_status st = DYT_OK;

    m->step = s->step;
    m->cursor.epoch = s->data_epoch;
    m->cursor.position = s->data_position;
    m->next_prompt = s->next_prompt;
    m->overlong_prompts = s->overlong_prompts;
    dyti_phase_init(&m->phase, s->version);
    say_what_differs(m, s);
    snprintf(m->resumed_isa, sizeof(m->resumed_isa), "%s", s->isa);
    for (size_t i = 0; st == DYT_OK && i < s->reward_count; i++) {
        st = dyti_series_add(&m->reward, s->reward[i]);
    }
    return st;
}

enum dyt_status dyti_manager_resume(struct dyti_manager *m, char **out_path)
{
    char folder[DYTI_PATH_BYTES], path[DYTI_PATH_BYTES];
    struct dyti_checkpoint_state state = {0};
    bool found = false;
    enum dyt_status st = checkpoint_folder(m, folder);

    st = st != DYT_OK ? st : dyti_checkpoint_latest_sound(folder, path, &found);
    if (st == DYT_OK && !found) {
        st = DYTI_FAIL(DYT_ERR_CONFIG,
                       "%s holds no whole checkpoint to resume from: start "
                       "without --resume",
                       folder);
    }
    st = st != DYT_OK ? st : dyti_checkpoint_read_state(path, &state);
    st = st != DYT_OK ? st : check_resumable(m, &state, path);
    st = st != DYT_OK ? st : take_state(m, &state);
    dyti_checkpoint_state_fini(&state);
    if (st == DYT_OK) {
        char *copy = strdup(path);

        if (copy == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "a path");
        }
        *out_path = copy;
    }
    return st;
}
