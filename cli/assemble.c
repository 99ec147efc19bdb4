#include "cli/assemble.h"
#include "cli/switch_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- layouts ------------------------------------------------------------- */

static struct dyti_layout_desc base_desc(const struct dyti_job *job,
                                         const struct dyti_job_phase *phase,
                                         const char *name)
{
    const struct dyti_job_layout *l = &phase->layout;
    struct dyti_layout_desc d = {.phase = name,
                                 .world_size = job->ranks,
                                 .tp = l->tp,
                                 .pp = l->pp,
                                 .dp = l->dp,
                                 .zero = l->zero,
                                 .ranks = l->ranks,
                                 .pp_layers = l->pp_layers};

    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        d.dtype[k] = DYTI_F32;
        d.residency[k] = DYTI_DROPPED;
    }
    d.dtype[DYTI_PARAM] = dyti_job_dtype_of(l->dtype);
    d.residency[DYTI_PARAM] = DYTI_HELD;
    return d;
}

static const enum dyti_kind optimizer_kinds[] = {DYTI_MASTER, DYTI_EXP_AVG,
                                                 DYTI_EXP_AVG_SQ};

static void set_optimizer(struct dyti_layout_desc *d,
                          enum dyti_residency residency)
{
    for (size_t i = 0; i < 3; i++) {
        d->residency[optimizer_kinds[i]] = residency;
    }
}

static enum dyt_status build_layouts(struct dyti_assembly *a,
                                     const struct dyti_job_phase *rollout,
                                     const struct dyti_job_phase *train)
{
    struct dyti_layout_desc r = base_desc(a->job, rollout, "rollout");
    struct dyti_layout_desc t = base_desc(a->job, train, "train");
    struct dyti_layout_desc f = base_desc(a->job, train, "reference");
    enum dyt_status st;

    set_optimizer(&r, rollout->residency_optimizer == DYTI_KEEP_MOVE
                          ? DYTI_HELD
                          : DYTI_PARKED);
    set_optimizer(&t, DYTI_HELD);
    t.residency[DYTI_GRAD] = DYTI_HELD;
    st = dyti_layout_build(a->model, &r, &a->layout[DYTI_ARENA_ROLLOUT]);
    st = st != DYT_OK
             ? st
             : dyti_layout_build(a->model, &t, &a->layout[DYTI_ARENA_TRAIN]);
    if (st == DYT_OK && a->job->algorithm.kl_coef > 0.0) {
        f.zero = 0;
        st = dyti_layout_build(a->model, &f, &a->layout[DYTI_ARENA_REFERENCE]);
    }
    return st;
}

/* ---- roles --------------------------------------------------------------- */

uint32_t dyti_assembly_batch(const struct dyti_job *job)
{
    return job->algorithm.prompts_per_step * job->algorithm.samples_per_prompt;
}

bool dyti_assembly_member(const struct dyti_assembly *a,
                          enum dyti_arena_slot slot, uint32_t rank)
{
    return a->layout[slot] != NULL &&
           dyti_layout_view(a->layout[slot], rank)->part.member;
}

struct dyti_rollout_params dyti_assembly_rollout(const struct dyti_assembly *a,
                                                 uint32_t rank)
{
    const struct dyti_job_phase *p =
        dyti_job_phase_of(a->job, DYTI_PHASE_ROLLOUT);
    const struct dyti_layout *layout = a->layout[DYTI_ARENA_ROLLOUT];
    const struct dyti_part *part = &dyti_layout_view(layout, rank)->part;
    uint32_t rows = p->kv.max_batch_tokens;

    return (struct dyti_rollout_params){
        .layout = layout,
        .rank = rank,
        .tp = {.rank = part->tp_rank, .size = part->tp_size},
        .pp = {.rank = part->pp_rank, .size = part->pp_size},
        .kv_dtype = dyti_job_dtype_of(p->layout.dtype),
        .kv_bytes = p->kv.memory_bytes,
        .block = p->kv.block,
        .max_sequences = p->kv.max_sequences,
        .max_rows = rows > p->kv.max_sequences ? rows : p->kv.max_sequences,
        .max_positions = a->positions};
}

static void set_loss(struct dyti_trainer_config *c, const struct dyti_loss *l)
{
    c->loss_agg = l->loss_agg;
    c->ratio_level = l->ratio_level;
    c->clip_low = (float)l->clip_low;
    c->clip_high = (float)l->clip_high;
    c->dual_clip = (float)l->clip_dual;
    c->entropy_coef = (float)l->entropy_coef;
}

static void set_adamw(struct dyti_trainer_config *c,
                      const struct dyti_optimizer *o,
                      const struct dyti_lr_schedule *s)
{
    c->lr = (float)o->lr;
    c->beta1 = (float)o->beta1;
    c->beta2 = (float)o->beta2;
    c->eps = (float)o->eps;
    c->weight_decay = (float)o->weight_decay;
    c->max_grad_norm = (float)o->max_grad_norm;
    c->schedule = s->name;
    c->warmup_updates = s->warmup_steps;
    c->min_lr = (float)(s->final_ratio * o->lr);
}

struct dyti_trainer_config dyti_assembly_trainer(const struct dyti_assembly *a)
{
    const struct dyti_job_phase *t =
        dyti_job_phase_of(a->job, DYTI_PHASE_TRAIN);
    const struct dyti_job_phase *r =
        dyti_job_phase_of(a->job, DYTI_PHASE_ROLLOUT);
    const struct dyti_algorithm *g = &a->job->algorithm;
    uint64_t per_step = (uint64_t)t->batch.epochs *
                        dyti_assembly_batch(a->job) /
                        (t->batch.mini_batch > 0 ? t->batch.mini_batch
                                                 : dyti_assembly_batch(a->job));
    struct dyti_trainer_config c;

    dyti_trainer_config_default(&c);
    c.algorithm = g->name;
    c.advantage_scale = g->advantage_scale;
    c.zero_std_groups = g->zero_std_groups;
    c.old_logprobs = g->old_logprobs;
    c.rollout_is = g->rollout_is;
    c.rollout_is_mode = g->rollout_is_mode;
    c.rollout_is_min = (float)g->rollout_is_min;
    c.rollout_is_max = (float)g->rollout_is_max;
    c.kl.coef = (float)g->kl_coef;
    c.kl.estimator = g->kl_estimator;
    c.kl.in = g->kl_in;
    c.overlong = g->overlong;
    c.temperature = (float)r->sampling.temperature;
    c.max_response_tokens = r->sampling.max_response_tokens;
    set_loss(&c, &t->loss);
    set_adamw(&c, &t->optimizer, &t->lr_schedule);
    c.mini_batch = t->batch.mini_batch;
    c.micro_batch_tokens = t->batch.micro_batch_tokens;
    c.epochs = t->batch.epochs;
    c.total_updates = per_step * a->job->steps;
    c.batch_sequences = dyti_assembly_batch(a->job);
    c.recompute = t->recompute == DYTI_JOB_RECOMPUTE_LAYER
                      ? DYTI_RECOMPUTE_LAYER
                      : DYTI_RECOMPUTE_NONE;
    return c;
}

#define STAGING_BYTES (64u << 20) /* in place, where there is no cap */

/* ---- memory -------------------------------------------------------------- */

static enum dyt_status measure_work(struct dyti_assembly *a, uint32_t rank)
{
    enum dyt_status st = DYT_OK;

    if (dyti_assembly_member(a, DYTI_ARENA_ROLLOUT, rank) &&
        dyti_job_phase_of(a->job, DYTI_PHASE_ROLLOUT)->engine ==
            DYTI_ENGINE_BUILTIN) {
        struct dyti_rollout_params p = dyti_assembly_rollout(a, rank);

        st = dyti_rollout_workspace_bytes(&p, &a->rollout_work[rank]);
    }
    if (st == DYT_OK && dyti_assembly_member(a, DYTI_ARENA_TRAIN, rank)) {
        struct dyti_trainer_config c = dyti_assembly_trainer(a);

        st = dyti_trainer_workspace_bytes(a->layout[DYTI_ARENA_TRAIN], rank, &c,
                                          a->positions, &a->train_work[rank]);
    }
    return st;
}

/* Room to move boxes out of each other's way: the cap, or 64 MiB, but no more
 * than the largest layout of any rank, and a page for messages. */
static uint64_t staging_of(const struct dyti_assembly *a,
                           const struct dyti_layout *const *layout)
{
    uint64_t cap = a->job->sw.memory_cap_bytes, most = 0;

    for (uint32_t rank = 0; rank < a->world_size; rank++) {
        struct dyti_arena_options options = {.mode = a->mode};
        struct dyti_arena_cost cost;

        dyti_arena_cost(layout, rank, &options, &cost);
        most = cost.rollout > most ? cost.rollout : most;
        most = cost.train > most ? cost.train : most;
    }
    most += 4096;
    cap = cap == 0 ? STAGING_BYTES : cap;
    return (cap < most ? cap : most) / 64u * 64u;
}

static enum dyt_status place_all(struct dyti_assembly *a)
{
    const struct dyti_layout *layout[DYTI_ARENA_SLOT_COUNT];
    enum dyt_status st = DYT_OK;

    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
        layout[s] = a->layout[s];
    }
    a->staging_bytes =
        a->mode == DYTI_MODE_IN_PLACE ? staging_of(a, layout) : 0;
    for (uint32_t rank = 0; rank < a->world_size && st == DYT_OK; rank++) {
        struct dyti_arena_options options = {
            .mode = a->mode,
            .staging_bytes = a->staging_bytes,
            .work_bytes = a->rollout_work[rank] > a->train_work[rank]
                              ? a->rollout_work[rank]
                              : a->train_work[rank]};

        st = dyti_arena_map_build_mode(layout, rank, &options, &a->map[rank]);
    }
    return st;
}

static enum dyt_status build_maps(struct dyti_assembly *a)
{
    enum dyt_status st = DYT_OK;

    a->map = calloc(a->world_size, sizeof(*a->map));
    a->rollout_work = calloc(a->world_size, sizeof(*a->rollout_work));
    a->train_work = calloc(a->world_size, sizeof(*a->train_work));
    if (a->map == NULL || a->rollout_work == NULL || a->train_work == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "maps of %u ranks", a->world_size);
    }
    for (uint32_t rank = 0; rank < a->world_size && st == DYT_OK; rank++) {
        st = measure_work(a, rank);
    }
    a->mode = a->job->sw.mode;
    st = st != DYT_OK ? st : place_all(a);
    if (st == DYT_OK && a->job->sw.on_low_memory == DYTI_LOW_IN_PLACE &&
        a->job->sw.memory_cap_bytes > 0 &&
        dyti_switch_memory_least(a) > a->job->sw.memory_cap_bytes) {
        a->mode = DYTI_MODE_IN_PLACE;
        st = place_all(a);
    }
    return st;
}

enum dyt_status dyti_assembly_build(const struct dyti_job *job,
                                    const struct dyti_arch *arch,
                                    struct dyti_assembly *out)
{
    const struct dyti_job_phase *rollout =
        dyti_job_phase_of(job, DYTI_PHASE_ROLLOUT);
    const struct dyti_job_phase *train =
        dyti_job_phase_of(job, DYTI_PHASE_TRAIN);
    struct dyti_assembly a = {.job = job, .arch = *arch};
    enum dyt_status st;

    if (rollout == NULL || train == NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s: a job needs a rollout and a train phase",
                         job->path);
    }
    a.world_size = job->ranks;
    a.positions =
        job->data.max_prompt_tokens + rollout->sampling.max_response_tokens;
    if ((int64_t)a.positions > arch->max_positions) {
        return DYTI_FAIL(
            DYT_ERR_CONFIG,
            "%s: data.max_prompt_tokens %u + sampling.max_response_tokens %u "
            "is more than the model's %lld positions: lower one of them",
            job->path, job->data.max_prompt_tokens,
            rollout->sampling.max_response_tokens,
            (long long)arch->max_positions);
    }
    st = dyti_model_build(arch, &a.model);
    st = st != DYT_OK ? st : build_layouts(&a, rollout, train);
    st = st != DYT_OK ? st : build_maps(&a);
    st = st != DYT_OK ? st
                      : dyti_switch_memory_check(&a, job->sw.memory_cap_bytes);
    if (st != DYT_OK) {
        DYTI_NOTE("laying out the job %s", job->name);
        dyti_assembly_fini(&a);
        return st;
    }
    *out = a;
    return DYT_OK;
}

void dyti_assembly_fini(struct dyti_assembly *a)
{
    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
        dyti_layout_destroy(a->layout[s]);
    }
    dyti_model_destroy(a->model);
    free(a->map);
    free(a->rollout_work);
    free(a->train_work);
    memset(a, 0, sizeof(*a));
}
