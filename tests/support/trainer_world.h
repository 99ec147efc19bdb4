/* Training on ranks that are threads of this process, over real groups: what
 * the tests of trainer/ share.
 *
 *   struct tw_world w;
 *   tw_init(&w, &desc, full);                 whole weights onto all ranks
 *   tw_step(&w, &batch, &metrics);            all ranks, one step
 *   tw_check_copies(&w);                      every copy has the same bits
 *   full = tw_whole(&w, DYTI_MASTER);         back as whole tensors
 *   tw_fini(&w);
 */
#ifndef TRAINER_WORLD_H
#define TRAINER_WORLD_H

#include "nn_world.h"
#include "trainer/trainer.h"

struct tw_desc {
    const struct dyti_model *model;
    uint32_t tp, pp, dp, zero;
    const uint32_t *ranks;     /* NULL: 0, 1, 2, … */
    const uint32_t *pp_layers; /* NULL: as even as can be */
    enum dyti_dtype dtype;     /* of the weights */
    bool master_in_param;      /* f32, no ZeRO: no master region */
    const struct dyti_kernel_ops *kernels;
    struct dyti_trainer_config config;
    int64_t positions;
    int mutant;
};

struct tw_rank {
    const struct dyti_view *view;
    struct dyti_kernels kernels;
    struct dyti_group tp, dp, all;
    void *region[DYTI_KIND_COUNT], *reference, *work;
    uint64_t work_bytes;
    struct dyti_trainer *trainer;
    struct dyti_train_metrics metrics;
};

struct tw_world {
    struct tw_desc desc;
    struct dyti_layout *layout;
    uint32_t size;
    struct dyti_abort_word abort;
    struct tw_rank *rank; /* [size], by world rank */
    /* Memory of groups: all, then tp groups, then dp groups. */
    void **shared;
    uint32_t shared_count;
    const struct dyti_batch *batch;
    uint64_t step;
    enum dyt_status want; /* of the next step */
};

static inline uint64_t tw_group_bytes(void)
{
    uint64_t most = 0;

    for (uint32_t size = 2; size <= DYT_RANKS_MAX; size++) {
        uint64_t bytes = dyti_group_shm.region_bytes(size);

        most = bytes > most ? bytes : most;
    }
    return most;
}

static inline bool tw_open_group(struct dyt_rank *me, struct tw_world *w,
                                 const char *name, void *shared,
                                 const uint32_t *world_rank, uint32_t rank,
                                 uint32_t size, struct dyti_group *out)
{
    struct dyti_group_params params = {.struct_size = sizeof(params),
                                       .name = name,
                                       .rank = rank,
                                       .size = size,
                                       .world_rank = world_rank,
                                       .shared = shared,
                                       .shared_bytes = tw_group_bytes(),
                                       .abort = &w->abort,
                                       .timeout_ns = 20000000000,
                                       .oversubscribed = true};

    *out = (struct dyti_group){.rank = rank, .size = size};
    if (size == 1) {
        return true;
    }
    out->ops = &dyti_group_shm;
    if (dyti_group_shm.open(&params, &out->self) != DYT_OK) {
        rank_wrong(me, "group %s: %s", name, dyti_error_text());
        return false;
    }
    return true;
}

static inline bool tw_open_groups(struct dyt_rank *me, struct tw_world *w,
                                  struct tw_rank *r)
{
    const struct dyti_part *p = &r->view->part;
    const struct dyti_layout *l = w->layout;
    uint32_t tp[DYT_RANKS_MAX], dp[DYT_RANKS_MAX];
    uint32_t stage = p->pp_rank * p->dp_size + p->dp_rank;
    uint32_t column = p->pp_rank * p->tp_size + p->tp_rank;

    for (uint32_t i = 0; i < p->tp_size; i++) {
        tp[i] = dyti_layout_rank(l, i, p->pp_rank, p->dp_rank);
    }
    for (uint32_t i = 0; i < p->dp_size; i++) {
        dp[i] = dyti_layout_rank(l, p->tp_rank, p->pp_rank, i);
    }
    return tw_open_group(me, w, "all", w->shared[0], l->desc.ranks,
                         stage * p->tp_size + p->tp_rank, w->size, &r->all) &&
           tw_open_group(me, w, "tp", w->shared[1 + stage], tp, p->tp_rank,
                         p->tp_size, &r->tp) &&
           tw_open_group(me, w, "dp",
                         w->shared[1 + p->pp_size * p->dp_size + column], dp,
                         p->dp_rank, p->dp_size, &r->dp);
}

static inline void tw_fill_params(const struct tw_world *w, struct tw_rank *r,
                                  uint32_t rank,
                                  struct dyti_trainer_params *out)
{
    *out = (struct dyti_trainer_params){
        .config = w->desc.config,
        .layout = w->layout,
        .rank = rank,
        .kernels = r->kernels,
        .tp = r->tp,
        .dp = r->dp,
        .all = r->all,
        .param = r->region[DYTI_PARAM],
        .grad = r->region[DYTI_GRAD],
        .master = w->desc.master_in_param ? NULL : r->region[DYTI_MASTER],
        .exp_avg = r->region[DYTI_EXP_AVG],
        .exp_avg_sq = r->region[DYTI_EXP_AVG_SQ],
        .reference = w->desc.config.kl.coef > 0 ? r->reference : NULL,
        .work = r->work,
        .work_bytes = r->work_bytes,
        .positions = w->desc.positions,
        .gather_last = true,
    };
#ifdef DYT_TEST_HOOKS
    out->mutant = (enum dyti_trainer_mutant)w->desc.mutant;
#endif
}

static inline void tw_rank_open(struct dyt_rank *me)
{
    struct tw_world *w = me->arg;
    struct tw_rank *r = &w->rank[me->rank];
    struct dyti_kernel_params kernel_params = {.struct_size =
                                                   sizeof(kernel_params)};
    struct dyti_trainer_params params;

    rank_ok(me, r->kernels.ops->open(&kernel_params, &r->kernels.self));
    if (!tw_open_groups(me, w, r)) {
        return;
    }
    rank_ok(me,
            dyti_trainer_workspace_bytes(w->layout, me->rank, &w->desc.config,
                                         w->desc.positions, &r->work_bytes));
    r->work = nn_zeros(r->work_bytes);
    /* What was there before must not matter. */
    memset(r->work, 0xff, r->work_bytes);
    memset(r->region[DYTI_GRAD], 0xff, r->view->region_bytes[DYTI_GRAD]);
    tw_fill_params(w, r, me->rank, &params);
    rank_ok(me, dyti_trainer_create(&params, &r->trainer));
}

/* full: whole weights; reference: those of the frozen role, NULL = the same. */
static inline void tw_init(struct tw_world *w, const struct tw_desc *desc,
                           float **full, float **reference)
{
    struct dyti_layout_desc layout = {.phase = "train",
                                      .world_size =
                                          desc->tp * desc->pp * desc->dp,
                                      .tp = desc->tp,
                                      .pp = desc->pp,
                                      .dp = desc->dp,
                                      .zero = desc->zero,
                                      .ranks = desc->ranks,
                                      .pp_layers = desc->pp_layers,
                                      .dtype = {[DYTI_PARAM] = desc->dtype}};

    *w = (struct tw_world){.desc = *desc, .size = layout.world_size};
    assert_ok(dyti_layout_build(desc->model, &layout, &w->layout));
    w->rank = calloc(w->size, sizeof(*w->rank));
    w->shared_count = 1 + desc->pp * desc->dp + desc->pp * desc->tp;
    w->shared = calloc(w->shared_count, sizeof(*w->shared));
    for (uint32_t i = 0; i < w->shared_count; i++) {
        w->shared[i] = nn_zeros(tw_group_bytes());
    }
    for (uint32_t i = 0; i < w->size; i++) {
        struct tw_rank *r = &w->rank[i];

        r->view = dyti_layout_view(w->layout, i);
        r->kernels.ops = desc->kernels;
        for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
            r->region[kind] = nn_zeros(r->view->region_bytes[kind]);
        }
        r->reference = nn_zeros(r->view->region_bytes[DYTI_PARAM]);
        nn_view_each(desc->model, r->view, DYTI_PARAM, r->region[DYTI_PARAM],
                     full, nn_put);
        nn_view_each(desc->model, r->view, DYTI_MASTER, r->region[DYTI_MASTER],
                     full, nn_put);
        nn_view_each(desc->model, r->view, DYTI_PARAM, r->reference,
                     reference ? reference : full, nn_put);
    }
    dyt_ranks_run(DYT_RANKS_THREADS, w->size, tw_rank_open, w);
}

static inline void tw_close_group(const struct dyti_group *group)
{
    if (group->self != NULL) {
        group->ops->close(group->self);
    }
}

static inline void tw_fini(struct tw_world *w)
{
    for (uint32_t i = 0; i < w->size; i++) {
        struct tw_rank *r = &w->rank[i];

        dyti_trainer_destroy(r->trainer);
        r->kernels.ops->close(r->kernels.self);
        tw_close_group(&r->tp);
        tw_close_group(&r->dp);
        tw_close_group(&r->all);
        for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
            nn_free(r->region[kind], r->view->region_bytes[kind]);
        }
        nn_free(r->reference, r->view->region_bytes[DYTI_PARAM]);
        nn_free(r->work, r->work_bytes);
    }
    for (uint32_t i = 0; i < w->shared_count; i++) {
        nn_free(w->shared[i], tw_group_bytes());
    }
    free(w->shared);
    free(w->rank);
    dyti_layout_destroy(w->layout);
    *w = (struct tw_world){0};
}

static inline void tw_rank_step(struct dyt_rank *me)
{
    struct tw_world *w = me->arg;
    struct tw_rank *r = &w->rank[me->rank];

    rank_status(me, w->want,
                dyti_trainer_step(r->trainer, w->batch, w->step, &r->metrics));
}

/* All ranks must say the same. */
static inline void tw_step(struct tw_world *w, const struct dyti_batch *batch,
                           struct dyti_train_metrics *out)
{
    w->batch = batch;
    dyt_ranks_run(DYT_RANKS_THREADS, w->size, tw_rank_step, w);
    w->step++;
    *out = w->rank[0].metrics;
    for (uint32_t i = 1; i < w->size; i++) {
        const struct dyti_train_metrics *m = &w->rank[i].metrics;

        assert_memory_equal(&m->loss, &out->loss, sizeof(double));
        assert_memory_equal(&m->grad_norm, &out->grad_norm, sizeof(double));
        assert_memory_equal(&m->mismatch_abs_max, &out->mismatch_abs_max,
                            sizeof(double));
        assert_int_equal(m->version, out->version);
    }
}

/* ---- copies -------------------------------------------------------------- */

/* Whole tensors start as this NaN: nobody has written them yet. */
static inline float tw_unset(void)
{
    return dyti_bits_f32(0x7fc0dead);
}

static inline void tw_agree(void *region, enum dyti_dtype dtype,
                            uint64_t offset, float *whole)
{
    unsigned char *at = (unsigned char *)region + offset;
    float mine = dtype == DYTI_BF16 ? dyti_bf16_to_f32(*(uint16_t *)(void *)at)
                                    : *(float *)(void *)at;

    if (dyti_f32_bits(*whole) == dyti_f32_bits(tw_unset())) {
        *whole = mine;
    } else if (dyti_f32_bits(*whole) != dyti_f32_bits(mine)) {
        fail_msg("two copies of an element differ: %.9g and %.9g",
                 (double)*whole, (double)mine);
    }
}

/* A kind as whole tensors; fails where two copies have different bits, or an
 * element has no copy. */
static inline float **tw_whole(const struct tw_world *w, enum dyti_kind kind)
{
    const struct dyti_model *model = w->desc.model;
    float **full = nn_full_new(model);

    for (uint32_t t = 0; t < model->tensor_count; t++) {
        for (uint64_t i = 0; i < dyti_tensor_elements(&model->tensor[t]); i++) {
            full[t][i] = tw_unset();
        }
    }
    for (uint32_t i = 0; i < w->size; i++) {
        nn_view_each(model, w->rank[i].view, kind, w->rank[i].region[kind],
                     full, tw_agree);
    }
    for (uint32_t t = 0; t < model->tensor_count; t++) {
        for (uint64_t i = 0; i < dyti_tensor_elements(&model->tensor[t]); i++) {
            if (dyti_f32_bits(full[t][i]) == dyti_f32_bits(tw_unset())) {
                fail_msg("%s element %" PRIu64 " is nowhere",
                         model->tensor[t].name, i);
            }
        }
    }
    return full;
}

/* All copies of param, master and moments; param is the rounded master. */
static inline void tw_check_copies(const struct tw_world *w)
{
    static const enum dyti_kind kinds[] = {DYTI_EXP_AVG, DYTI_EXP_AVG_SQ};
    const struct dyti_model *model = w->desc.model;
    float **param = tw_whole(w, DYTI_PARAM);

    for (size_t k = 0; k < DYT_TEST_COUNT(kinds); k++) {
        nn_full_free(model, tw_whole(w, kinds[k]));
    }
    if (!w->desc.master_in_param) {
        float **master = tw_whole(w, DYTI_MASTER);

        for (uint32_t t = 0; t < model->tensor_count; t++) {
            uint64_t count = dyti_tensor_elements(&model->tensor[t]);

            for (uint64_t i = 0; i < count; i++) {
                float want =
                    w->desc.dtype == DYTI_BF16
                        ? dyti_bf16_to_f32(dyti_f32_to_bf16(master[t][i]))
                        : master[t][i];

                assert_int_equal(dyti_f32_bits(param[t][i]),
                                 dyti_f32_bits(want));
            }
        }
        nn_full_free(model, master);
    }
    nn_full_free(model, param);
}

/* ---- batches ------------------------------------------------------------- */

struct tw_batch_desc {
    uint64_t seed;
    uint32_t prompts, samples;
    uint32_t prompt_most, answer_most; /* tokens; at least 1 */
    int64_t vocab;
};

static inline uint32_t tw_draw(const struct tw_batch_desc *d, uint64_t a,
                               uint64_t b, uint64_t c, uint32_t most)
{
    return (uint32_t)(dyti_rng_u64(d->seed, a, b, c) % most);
}

static inline void tw_sample_init(const struct tw_batch_desc *d,
                                  struct dyti_sample *s, uint32_t p, uint32_t i)
{
    uint64_t key = (uint64_t)p << 32 | i;

    s->prompt = p;
    s->index = i;
    s->count = 1 + tw_draw(d, 1, key, 0, d->answer_most);
    s->finish =
        s->count == d->answer_most ? DYTI_FINISH_LENGTH : DYTI_FINISH_STOP;
    s->ids = calloc(s->count, sizeof(*s->ids));
    s->raw = calloc(s->count, sizeof(*s->raw));
    s->processed = calloc(s->count, sizeof(*s->processed));
    s->span = calloc(1, sizeof(*s->span));
    s->span[0].count = s->count;
    s->span_count = 1;
    for (uint32_t t = 0; t < s->count; t++) {
        s->ids[t] = (int32_t)tw_draw(d, 2, key, t, (uint32_t)d->vocab);
        s->processed[t] = s->raw[t] =
            -logf((float)d->vocab) + 0.3f * nn_noise(d->seed + 9, key, t);
    }
    s->reward = (float)tw_draw(d, 3, key, 0, 5) / 4;
}

static inline void tw_batch_init(struct dyti_batch *batch,
                                 const struct tw_batch_desc *d)
{
    *batch = (struct dyti_batch){.prompt_count = d->prompts,
                                 .sample_count = d->prompts * d->samples};
    batch->prompt = calloc(d->prompts, sizeof(*batch->prompt));
    batch->sample = calloc(batch->sample_count, sizeof(*batch->sample));
    for (uint32_t p = 0; p < d->prompts; p++) {
        struct dyti_prompt *prompt = &batch->prompt[p];

        prompt->id = p;
        prompt->id_count = 1 + tw_draw(d, 4, p, 0, d->prompt_most);
        prompt->ids = calloc(prompt->id_count, sizeof(*prompt->ids));
        for (uint32_t t = 0; t < prompt->id_count; t++) {
            prompt->ids[t] = (int32_t)tw_draw(d, 5, p, t, (uint32_t)d->vocab);
        }
        for (uint32_t i = 0; i < d->samples; i++) {
            tw_sample_init(d, &batch->sample[p * d->samples + i], p, i);
        }
    }
}

/* The value of a sampled token from whichever rank knows it. */
static inline const float *tw_values(const struct tw_world *w, uint32_t sample,
                                     enum dyti_trainer_logprob which)
{
    const float *found = NULL;

    for (uint32_t i = 0; i < w->size && found == NULL; i++) {
        found = dyti_trainer_token_values(w->rank[i].trainer, sample, which);
    }
    return found;
}

#endif /* TRAINER_WORLD_H */
