/* What a worker builds before it says "ready": memory, weights, roles. */
#include "cli/backends.h"
#include "cli/exit.h"
#include "cli/offer.h"
#include "cli/worker.h"

#include "base/env.h"
#include "base/log.h"
#include "format/checkpoint.h"
#include "format/tokenizer.h"
#include "format/weights.h"
#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COPY_BYTES (64ull << 20) /* of the memcpy that is timed */

/* ---- device -------------------------------------------------------------- */

static enum dyt_status open_kernels(struct dyti_worker *w, uint32_t threads)
{
    const struct dyti_backends *b = dyti_backends_host();
    struct dyti_kernel_params params = {.struct_size = sizeof(params),
                                        .isa = dyti_env_text(DYTI_ENV_ISA)};
    enum dyt_status st = dyti_pool_create(threads > 0 ? threads : 1, &w->pool);

    if (st != DYT_OK) {
        return st;
    }
    params.pool = w->pool;
    st = b->kernels->open(&params, &w->kernels.self);
    if (st == DYT_OK) {
        w->kernels.ops = b->kernels;
    }
    return st;
}

/* Of one wait between ranks.  The manager sees a silent rank at its phase's
 * deadline and wakes all others, who then know which it was: this is for the
 * case that it does not. */
static int64_t wait_ns(const struct dyti_job *job)
{
    double longest = job->sw.deadline;

    for (uint32_t i = 0; i < job->phase_count; i++) {
        longest = fmax(longest, job->phase[i].deadline);
    }
    return 2 * dyti_seconds_ns(longest);
}

static enum dyt_status open_world(struct dyti_worker *w)
{
    const struct dyti_backends *b = dyti_backends_host();
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct dyti_world_params p = {
        .struct_size = sizeof(p),
        .rank = w->args.rank,
        .world_size = w->args.world_size,
        .map = w->assembly.map,
        .control_handle = w->args.control_fd,
        .control_pages = w->args.control_pages,
        .segment_handle = w->args.segment_fd,
        .segment_pages = w->args.segment_pages,
        .memory = b->memory,
        .group = b->group,
        .mover = b->mover,
        .message = b->message,
        .wait = b->wait,
        .clock = b->clock,
        .kernels = w->kernels,
        .timeout_ns = wait_ns(&w->job),
        .oversubscribed = cores > 0 && (uint32_t)cores < w->args.world_size,
    };

    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
        p.layout[s] = w->assembly.layout[s];
    }
    return dyti_world_open(&p, &w->world);
}

/* ---- weights ------------------------------------------------------------- */

static void *region(const struct dyti_worker *w, enum dyti_arena_slot slot,
                    enum dyti_kind kind)
{
    return dyti_world_region(w->world, w->args.rank, slot, kind);
}

static enum dyt_status load_kind(struct dyti_worker *w, const char *dir,
                                 enum dyti_arena_slot slot, enum dyti_kind kind)
{
    const struct dyti_layout *layout = w->assembly.layout[slot];
    void *base = region(w, slot, kind);

    if (layout == NULL || base == NULL) {
        return DYT_OK;
    }
    return dyti_weights_load(dir, w->assembly.model,
                             dyti_layout_view(layout, w->args.rank), kind,
                             base);
}

/* A fresh start: master from the files; param follows with the first switches.
 * The reference policy has its own files, or the policy's as they were. */
static enum dyt_status load_fresh(struct dyti_worker *w, const char *model_dir)
{
    return dyti_exit_given(
        load_kind(w, model_dir, DYTI_ARENA_TRAIN, DYTI_MASTER));
}

static enum dyt_status load_reference(struct dyti_worker *w,
                                      const char *model_dir)
{
    char *other = NULL, cache[4096];
    const char *dir = model_dir;
    enum dyt_status st;

    if (w->assembly.layout[DYTI_ARENA_REFERENCE] == NULL) {
        return DYT_OK;
    }
    if (w->job.reference.model[0] != '\0') {
        const char *where =
            dyti_env_cache_dir(cache, sizeof(cache)) == DYT_OK ? cache : NULL;

        st = dyti_model_path(w->job.reference.model, where, &other);
        if (st != DYT_OK) {
            return st;
        }
        dir = other;
    }
    st = dyti_exit_given(load_kind(w, dir, DYTI_ARENA_REFERENCE, DYTI_PARAM));
    free(other);
    if (st != DYT_OK) {
        DYTI_NOTE("loading the reference policy");
    }
    return st;
}

static enum dyt_status load_checkpoint(struct dyti_worker *w, const char *dir)
{
    const struct dyti_view *view =
        dyti_layout_view(w->assembly.layout[DYTI_ARENA_TRAIN], w->args.rank);
    void *base[DYTI_KIND_COUNT] = {0};
    struct dyti_checkpoint_state state;
    struct dyti_trainer_state trainer;
    enum dyt_status st = dyti_checkpoint_read_state(dir, &state);

    if (st != DYT_OK) {
        return st;
    }
    trainer = (struct dyti_trainer_state){
        .step = state.step, .version = state.version, .updates = state.updates};
    w->version = state.version;
    dyti_checkpoint_state_fini(&state);
    if (w->trainer == NULL) {
        return DYT_OK;
    }
    dyti_trainer_state_set(w->trainer, &trainer);
    for (int k = DYTI_MASTER; k <= DYTI_EXP_AVG_SQ; k++) {
        base[k] = region(w, DYTI_ARENA_TRAIN, (enum dyti_kind)k);
    }
    return dyti_checkpoint_load(dir, w->assembly.model, view, base);
}

/* ---- roles --------------------------------------------------------------- */

static enum dyt_status make_trainer(struct dyti_worker *w)
{
    const enum dyti_arena_slot slot = DYTI_ARENA_TRAIN;
    struct dyti_trainer_params p = {
        .config = dyti_assembly_trainer(&w->assembly),
        .layout = w->assembly.layout[slot],
        .rank = w->args.rank,
        .kernels = w->kernels,
        .param = region(w, slot, DYTI_PARAM),
        .grad = region(w, slot, DYTI_GRAD),
        .master = region(w, slot, DYTI_MASTER),
        .exp_avg = region(w, slot, DYTI_EXP_AVG),
        .exp_avg_sq = region(w, slot, DYTI_EXP_AVG_SQ),
        .positions = w->assembly.positions,
        .clock = dyti_backends_host()->clock,
        .progress = dyti_worker_beat,
        .progress_arg = w,
    };

    if (!dyti_assembly_member(&w->assembly, slot, w->args.rank)) {
        return DYT_OK;
    }
    p.tp = dyti_world_group(w->world, slot, DYTI_DIM_TP);
    p.dp = dyti_world_group(w->world, slot, DYTI_DIM_DP);
    p.all = dyti_world_group(w->world, slot, DYTI_DIM_ALL);
    if (w->assembly.layout[DYTI_ARENA_REFERENCE] != NULL) {
        p.reference = region(w, DYTI_ARENA_REFERENCE, DYTI_PARAM);
    }
    p.work = dyti_world_work(w->world, &p.work_bytes);
    dyti_faults_trainer(&w->faults, &p);
    return dyti_trainer_create(&p, &w->trainer);
}

static enum dyt_status make_rollout(struct dyti_worker *w,
                                    const char *model_dir)
{
    const enum dyti_arena_slot slot = DYTI_ARENA_ROLLOUT;
    const struct dyti_job_phase *phase =
        dyti_job_phase(&w->job, DYTI_PHASE_ROLLOUT);
    struct dyti_rollout_params p =
        dyti_assembly_rollout(&w->assembly, w->args.rank);
    uint64_t work_bytes;
    void *work;

    if (!dyti_assembly_member(&w->assembly, slot, w->args.rank) ||
        phase->engine != DYTI_ENGINE_BUILTIN) {
        return DYT_OK;
    }
    if (phase->sampling.stop_count > 0) {
        enum dyt_status st = dyti_tokenizer_open(model_dir, &w->tokenizer);

        if (st != DYT_OK) {
            return st;
        }
        p.tokenizer = &w->tokenizer;
    }
    p.kernels = w->kernels;
    p.tp = dyti_world_group(w->world, slot, DYTI_DIM_TP);
    p.pp = dyti_world_group(w->world, slot, DYTI_DIM_PP);
    p.weights = region(w, slot, DYTI_PARAM);
    if (w->assembly.mode == DYTI_MODE_DOUBLE) {
        p.other_weights =
            dyti_world_region_in(w->world, w->args.rank, slot, DYTI_PARAM, 1);
    }
    work = dyti_world_work(w->world, &work_bytes);
    dyti_faults_rollout(&w->faults, &p);
    return dyti_rollout_create(&p, work, work_bytes, &w->rollout);
}

static enum dyt_status prepare_switches(struct dyti_worker *w)
{
    const struct dyti_world_switch_options options = {
        .mover = (enum dyti_world_mover)w->job.sw.mover,
        .strategy = dyti_strategy_at((size_t)w->job.sw.strategy)};
    enum dyt_status st =
        dyti_world_prepare(w->world, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT,
                           &options, &w->to_rollout, NULL);

    return st != DYT_OK ? st
                        : dyti_world_prepare(w->world, DYTI_ARENA_ROLLOUT,
                                             DYTI_ARENA_TRAIN, &options,
                                             &w->to_train, NULL);
}

/* Bandwidth of memcpy with all ranks at it, in this rank's own segment: what a
 * switch is compared with.  0 where the work memory is too small to tell. */
static enum dyt_status measure_copy(struct dyti_worker *w)
{
    struct dyti_group all = dyti_world_all(w->world);
    uint64_t bytes;
    unsigned char *work = dyti_world_work(w->world, &bytes);
    int64_t best = INT64_MAX;

    bytes = bytes / 2 < COPY_BYTES ? bytes / 2 : COPY_BYTES;
    if (work == NULL || bytes < COPY_BYTES / 16) {
        bytes = 0; /* but take part: the barrier is everybody's */
    }
    for (int round = 0; round < 4; round++) { /* the first touches the pages */
        int64_t start;
        enum dyt_status st = all.size > 1 ? all.ops->barrier(all.self) : DYT_OK;

        if (st != DYT_OK) {
            return st;
        }
        start = dyti_now_ns();
        if (bytes > 0) {
            memcpy(work + bytes, work, bytes);
        }
        start = dyti_now_ns() - start;
        best = round > 0 && start < best ? start : best;
    }
    w->copy_rate =
        bytes > 0 && best > 0 ? (double)bytes / (double)best * 1e9 : 0.0;
    return DYT_OK;
}

/* ---- all of it ----------------------------------------------------------- */

static enum dyt_status read_job(struct dyti_worker *w,
                                const struct dyti_msg_assign *assign)
{
    enum dyt_status st =
        dyti_job_read_text(assign->job_text, strlen(assign->job_text), &w->job);
    struct dyti_arch arch;

    st = st != DYT_OK ? st : dyti_hf_config_read(assign->model_dir, &arch);
    st = st != DYT_OK
             ? st
             : dyti_generation_config_read(assign->model_dir, &w->generation);
    return st != DYT_OK ? st
                        : dyti_assembly_build(&w->job, &arch, &w->assembly);
}

enum dyt_status dyti_worker_build(struct dyti_worker *w,
                                  const struct dyti_msg_assign *assign)
{
    int64_t start = dyti_now_ns();
    enum dyt_status st = read_job(w, assign);

    st = st != DYT_OK ? st : open_kernels(w, assign->threads);
    st = st != DYT_OK ? st : open_world(w);
    st = st != DYT_OK ? st : dyti_faults_at(&w->faults, "built");
    dyti_worker_beat(w, 0, 0);
    st = st != DYT_OK ? st : make_trainer(w);
    st = st != DYT_OK ? st : make_rollout(w, assign->model_dir);
    st = st != DYT_OK ? st : prepare_switches(w);
    dyti_worker_beat(w, 0, 0);
    if (st == DYT_OK) {
        st = assign->resume[0] != '\0' ? load_checkpoint(w, assign->resume)
                                       : load_fresh(w, assign->model_dir);
    }
    dyti_worker_beat(w, 0, 0);
    st = st != DYT_OK ? st : load_reference(w, assign->model_dir);
    st = st != DYT_OK ? st : dyti_offer_open(w);
    st = st != DYT_OK ? st : dyti_faults_at(&w->faults, "loaded");
    st = st != DYT_OK ? st : measure_copy(w);
    w->load_seconds = (double)(dyti_now_ns() - start) * 1e-9;
    return st;
}

void dyti_worker_fini(struct dyti_worker *w)
{
    dyti_offer_close(w);
    dyti_rollout_destroy(w->rollout);
    dyti_trainer_destroy(w->trainer);
    dyti_world_close(w->world); /* prepared switches go with it */
    if (w->tokenizer.ops != NULL) {
        dyti_tokenizer_close(&w->tokenizer);
    }
    if (w->kernels.ops != NULL) {
        w->kernels.ops->close(w->kernels.self);
    }
    dyti_pool_destroy(w->pool);
    dyti_assembly_fini(&w->assembly);
    dyti_job_fini(&w->job);
    dyti_control_client_close(w->client);
    memset(w, 0, sizeof(*w));
}
