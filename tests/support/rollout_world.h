/* Rollout engines of a whole layout, on ranks that are threads of this
 * process; requests and their oracle.
 *
 *   struct ro_world w;
 *   ro_world_init(&w, &desc, full);      full: whole weights
 *   batch = ro_generate(&w, &request);   all replicas, by (prompt, index)
 *   ro_world_fini(&w);
 */
#ifndef ROLLOUT_WORLD_H
#define ROLLOUT_WORLD_H

#include "nn_cases.h"
#include "rollout/engine.h"
#include "rollout/internal.h"

struct ro_desc {
    const struct dyti_model *model;
    uint32_t tp, pp, dp;
    enum dyti_dtype dtype, kv_dtype;
    const struct dyti_kernel_ops *kernels;
    uint32_t threads; /* of each rank's pool; 0 = none */
    uint64_t kv_bytes;
    uint32_t block, max_sequences, max_rows, max_positions;
    const struct dyti_tokenizer *tokenizer;
    bool stale_kv;
};

/* What is 0 becomes: one f32 rank, reference kernels, and room for everything
 * at once in blocks of 4. */
static inline struct ro_desc ro_defaults(const struct ro_desc *desc)
{
    struct ro_desc d = *desc;

    d.tp = d.tp > 0 ? d.tp : 1;
    d.pp = d.pp > 0 ? d.pp : 1;
    d.dp = d.dp > 0 ? d.dp : 1;
    d.kernels = d.kernels != NULL ? d.kernels : &dyti_kernels_reference;
    d.kv_bytes = d.kv_bytes > 0 ? d.kv_bytes : 1u << 22;
    d.block = d.block > 0 ? d.block : 4;
    d.max_sequences = d.max_sequences > 0 ? d.max_sequences : 64;
    d.max_rows = d.max_rows > 0 ? d.max_rows : 512;
    d.max_positions = d.max_positions > 0 ? d.max_positions : 48;
    return d;
}

struct ro_rank {
    struct dyti_kernels kernels;
    struct dyti_pool *pool;
    struct dyti_group tp, pp;
    void *weights, *work;
    uint64_t work_bytes;
    struct dyti_rollout *engine;
    /* what the last request gave */
    struct dyti_batch out;
    struct dyti_rollout_stats stats;
    enum dyt_status status;
    char error[400];
};

struct ro_world {
    struct ro_desc desc;
    struct dyti_layout *layout;
    struct dyti_abort_word abort;
    uint32_t size;
    struct ro_rank rank[DYT_RANKS_MAX];
    void *
        *shared; /* [2 * size] of each rank's groups; a group's first rank's */
    const struct dyti_rollout_request *request;
};

static inline const struct dyti_part *ro_part(const struct ro_world *w,
                                              uint32_t rank)
{
    return &dyti_layout_view(w->layout, rank)->part;
}

/* ---- birth and death ----------------------------------------------------- */

static inline void ro_open_group(struct dyt_rank *me, const char *name,
                                 const uint32_t *world_rank, uint32_t index,
                                 uint32_t size, void *shared,
                                 struct dyti_group *out)
{
    struct ro_world *w = me->arg;
    struct dyti_group_params params = {.struct_size = sizeof(params),
                                       .name = name,
                                       .rank = index,
                                       .size = size,
                                       .world_rank = world_rank,
                                       .shared = shared,
                                       .shared_bytes =
                                           dyti_group_shm.region_bytes(size),
                                       .abort = &w->abort,
                                       .timeout_ns = 60000000000,
                                       .oversubscribed = true};

    *out = (struct dyti_group){.size = 1};
    if (size > 1) {
        *out = (struct dyti_group){&dyti_group_shm, NULL, index, size};
        rank_ok(me, dyti_group_shm.open(&params, &out->self));
    }
}

static inline void ro_rank_groups(struct dyt_rank *me)
{
    struct ro_world *w = me->arg;
    struct ro_rank *r = &w->rank[me->rank];
    const struct dyti_part *part = ro_part(w, me->rank);
    uint32_t tp[DYT_RANKS_MAX], pp[DYT_RANKS_MAX];

    for (uint32_t i = 0; i < part->tp_size; i++) {
        tp[i] = dyti_layout_rank(w->layout, i, part->pp_rank, part->dp_rank);
    }
    for (uint32_t i = 0; i < part->pp_size; i++) {
        pp[i] = dyti_layout_rank(w->layout, part->tp_rank, i, part->dp_rank);
    }
    ro_open_group(me, "tp", tp, part->tp_rank, part->tp_size,
                  w->shared[2 * tp[0]], &r->tp);
    ro_open_group(me, "pp", pp, part->pp_rank, part->pp_size,
                  w->shared[2 * pp[0] + 1], &r->pp);
}

static inline struct dyti_rollout_params ro_params(const struct ro_world *w,
                                                   uint32_t rank)
{
    const struct ro_desc *d = &w->desc;
    const struct ro_rank *r = &w->rank[rank];

    return (struct dyti_rollout_params){.layout = w->layout,
                                        .rank = rank,
                                        .kernels = r->kernels,
                                        .tp = r->tp,
                                        .pp = r->pp,
                                        .weights = r->weights,
                                        .kv_dtype = d->kv_dtype,
                                        .kv_bytes = d->kv_bytes,
                                        .block = d->block,
                                        .max_sequences = d->max_sequences,
                                        .max_rows = d->max_rows,
                                        .max_positions = d->max_positions,
                                        .tokenizer = d->tokenizer,
#ifdef DYT_TEST_HOOKS
                                        .stale_kv = d->stale_kv
#endif
    };
}

/* Workspaces hold exactly what was asked for, and rubbish. */
static inline void ro_rank_init(struct ro_world *w, uint32_t rank)
{
    struct ro_rank *r = &w->rank[rank];
    struct dyti_kernel_params kernels = {.struct_size = sizeof(kernels)};
    struct dyti_rollout_params params;

    if (w->desc.threads > 1) {
        assert_ok(dyti_pool_create(w->desc.threads, &r->pool));
        kernels.pool = r->pool;
    }
    r->kernels.ops = w->desc.kernels;
    assert_ok(r->kernels.ops->open(&kernels, &r->kernels.self));
    r->weights =
        nn_zeros(dyti_layout_view(w->layout, rank)->region_bytes[DYTI_PARAM]);
    params = ro_params(w, rank);
    assert_ok(dyti_rollout_workspace_bytes(&params, &r->work_bytes));
    r->work = nn_zeros(r->work_bytes);
    memset(r->work, 0xff, r->work_bytes < 1u << 26 ? r->work_bytes : 1u << 26);
    assert_ok(dyti_rollout_create(&params, r->work, r->work_bytes, &r->engine));
}

static inline void ro_world_set(struct ro_world *w, float **full,
                                uint64_t version)
{
    for (uint32_t i = 0; i < w->size; i++) {
        nn_view_each(w->desc.model, dyti_layout_view(w->layout, i), DYTI_PARAM,
                     w->rank[i].weights, full, nn_put);
        dyti_rollout_set_version(w->rank[i].engine, version);
    }
}

static inline void ro_world_init(struct ro_world *w, const struct ro_desc *desc,
                                 float **full)
{
    struct ro_desc d = ro_defaults(desc);
    struct dyti_layout_desc layout = {.phase = "rollout",
                                      .world_size = d.tp * d.pp * d.dp,
                                      .tp = d.tp,
                                      .pp = d.pp,
                                      .dp = d.dp,
                                      .dtype = {[DYTI_PARAM] = d.dtype}};

    *w = (struct ro_world){.desc = d, .size = layout.world_size};
    assert_ok(dyti_layout_build(d.model, &layout, &w->layout));
    w->shared = calloc(2 * w->size, sizeof(*w->shared));
    for (uint32_t i = 0; i < 2 * w->size; i++) {
        w->shared[i] = nn_zeros(dyti_group_shm.region_bytes(w->size));
    }
    dyt_ranks_run(DYT_RANKS_THREADS, w->size, ro_rank_groups, w);
    for (uint32_t i = 0; i < w->size; i++) {
        ro_rank_init(w, i);
    }
    if (full != NULL) {
        ro_world_set(w, full, 1);
    }
}

static inline void ro_world_fini(struct ro_world *w)
{
    for (uint32_t i = 0; i < w->size; i++) {
        struct ro_rank *r = &w->rank[i];

        dyti_rollout_destroy(r->engine);
        r->kernels.ops->close(r->kernels.self);
        dyti_pool_destroy(r->pool);
        if (r->tp.self != NULL) {
            r->tp.ops->close(r->tp.self);
        }
        if (r->pp.self != NULL) {
            r->pp.ops->close(r->pp.self);
        }
        nn_free(r->weights,
                dyti_layout_view(w->layout, i)->region_bytes[DYTI_PARAM]);
        nn_free(r->work, r->work_bytes);
    }
    for (uint32_t i = 0; i < 2 * w->size; i++) {
        nn_free(w->shared[i], dyti_group_shm.region_bytes(w->size));
    }
    free(w->shared);
    dyti_layout_destroy(w->layout);
    *w = (struct ro_world){0};
}

/* ---- a request ----------------------------------------------------------- */

static inline void ro_rank_generate(struct dyt_rank *me)
{
    struct ro_world *w = me->arg;
    struct ro_rank *r = &w->rank[me->rank];

    r->status = dyti_rollout_generate(r->engine, w->request, &r->out.sample,
                                      &r->out.sample_count, &r->stats);
    if (r->status != DYT_OK) {
        snprintf(r->error, sizeof(r->error), "%s", dyti_error_text());
    } else if (r->engine->blocks.free_count != r->engine->blocks.count) {
        rank_wrong(me, "blocks are still in use");
    }
}

static inline void ro_same_samples(const struct dyti_batch *a,
                                   const struct dyti_batch *b)
{
    assert_int_equal(a->sample_count, b->sample_count);
    for (uint32_t i = 0; i < a->sample_count; i++) {
        const struct dyti_sample *x = &a->sample[i], *y = &b->sample[i];

        assert_int_equal(x->prompt, y->prompt);
        assert_int_equal(x->index, y->index);
        assert_int_equal(x->finish, y->finish);
        assert_int_equal(x->count, y->count);
        assert_memory_equal(x->ids, y->ids, x->count * sizeof(*x->ids));
        assert_memory_equal(x->raw, y->raw, x->count * sizeof(*x->raw));
        assert_memory_equal(x->processed, y->processed,
                            x->count * sizeof(*x->processed));
    }
}

/* Everywhere the same status; the first rank's is given. */
static inline enum dyt_status ro_try(struct ro_world *w,
                                     const struct dyti_rollout_request *request)
{
    w->request = request;
    dyt_ranks_run(DYT_RANKS_THREADS, w->size, ro_rank_generate, w);
    for (uint32_t i = 1; i < w->size; i++) {
        assert_int_equal(w->rank[i].status, w->rank[0].status);
    }
    return w->rank[0].status;
}

/* All samples; those of a replica's ranks are checked to be the same bits. */
static inline struct dyti_batch ro_generate(
    struct ro_world *w, const struct dyti_rollout_request *request)
{
    struct dyti_batch all = {0};

    if (ro_try(w, request) != DYT_OK) {
        fail_msg("%s", w->rank[0].error);
    }
    all.sample =
        calloc(request->prompt_count * request->samples_per_prompt + 1u,
               sizeof(*all.sample));
    for (uint32_t i = 0; i < w->size; i++) {
        const struct dyti_part *part = ro_part(w, i);
        uint32_t first = dyti_layout_rank(w->layout, 0, 0, part->dp_rank);
        struct dyti_batch *out = &w->rank[i].out;

        if (i == first) {
            memcpy(all.sample + all.sample_count, out->sample,
                   out->sample_count * sizeof(*out->sample));
            all.sample_count += out->sample_count;
        } else {
            ro_same_samples(out, &w->rank[first].out);
        }
    }
    for (uint32_t i = 0; i < w->size; i++) {
        const struct dyti_part *part = ro_part(w, i);

        if (part->tp_rank == 0 && part->pp_rank == 0) {
            free(w->rank[i].out.sample); /* what it owned moved to `all` */
            w->rank[i].out = (struct dyti_batch){0};
        }
        dyti_batch_fini(&w->rank[i].out);
    }
    assert_ok(dyti_batch_order(&all));
    assert_int_equal(all.sample_count,
                     request->prompt_count * request->samples_per_prompt);
    return all;
}

/* One-off world. */
static inline struct dyti_batch ro_once(
    const struct ro_desc *desc, float **full,
    const struct dyti_rollout_request *request)
{
    struct ro_world w;
    struct dyti_batch batch;

    ro_world_init(&w, desc, full);
    batch = ro_generate(&w, request);
    ro_world_fini(&w);
    return batch;
}

/* ---- prompts ------------------------------------------------------------- */

/* Prompts of these lengths with ids from the seed; freed by ro_prompts_free. */
static inline struct dyti_prompt *ro_prompts(const uint32_t *length,
                                             uint32_t count, int64_t vocab)
{
    struct dyti_prompt *prompt = calloc(count, sizeof(*prompt));

    for (uint32_t i = 0; i < count; i++) {
        prompt[i] =
            (struct dyti_prompt){.id = 100 + 7 * i,
                                 .ids = calloc(length[i] + 1u, sizeof(int32_t)),
                                 .id_count = length[i]};
        for (uint32_t k = 0; k < length[i]; k++) {
            prompt[i].ids[k] =
                (int32_t)(dyti_rng_u64(5, i, k, 0) % (uint64_t)vocab);
        }
    }
    return prompt;
}

static inline void ro_prompts_free(struct dyti_prompt *prompt, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        dyti_prompt_fini(&prompt[i]);
    }
    free(prompt);
}

/* ---- oracle -------------------------------------------------------------- */

/* Logits of every position of one sequence by the training forward pass, one
 * rank and reference kernels: [count, V], the caller frees. */
static inline float *ro_oracle_logits(const struct dyti_model *model,
                                      float **full, enum dyti_dtype dtype,
                                      const int32_t *ids, uint32_t count)
{
    struct nn_world_desc desc = {
        model, 1, 1, NULL, dtype, &dyti_kernels_reference, 64};
    struct nn_world w;
    float *logits = calloc(count, (size_t)model->arch.vocab * sizeof(*logits));
    float *out = calloc(2 * (size_t)count, sizeof(*out));
    int32_t *work = calloc(2 * (size_t)count, sizeof(*work));
    int32_t first[2] = {0, (int32_t)count};
    struct dyti_nn_micro micro = {
        .packed = {.sequence_count = 1, .row_count = count, .first = first},
        .ids = ids,
        .position = work};
    struct nn_step step = {.micro = &micro,
                           .target = work + count,
                           .scale = 1.0f,
                           .head_rows = count,
                           .keep_nothing = true,
                           .logprob = out,
                           .entropy = out + count,
                           .logits = logits};

    for (uint32_t i = 0; i < count; i++) {
        work[i] = (int32_t)i;
    }
    nn_world_init(&w, &desc, full);
    nn_world_step(&w, &step);
    nn_world_fini(&w);
    free(out);
    free(work);
    return logits;
}

/* Prompt and response as one; the caller frees. */
static inline int32_t *ro_whole(const struct dyti_prompt *prompt,
                                const int32_t *ids, uint32_t count)
{
    int32_t *whole = calloc(prompt->id_count + count + 1u, sizeof(*whole));

    memcpy(whole, prompt->ids, prompt->id_count * sizeof(*whole));
    if (count > 0) {
        memcpy(whole + prompt->id_count, ids, count * sizeof(*whole));
    }
    return whole;
}

/* log softmax(row * scale)[token] in f64. */
static inline double ro_logprob(const float *row, int64_t vocab, double scale,
                                int32_t token)
{
    double max = -INFINITY, sum = 0.0;

    for (int64_t i = 0; i < vocab; i++) {
        max = fmax(max, (double)row[i] * scale);
    }
    for (int64_t i = 0; i < vocab; i++) {
        sum += exp((double)row[i] * scale - max);
    }
    return (double)row[token] * scale - max - log(sum);
}

/* Largest distance of a sample's log-probabilities, raw and processed, from
 * the oracle's. */
static inline double ro_logprob_gap(const struct dyti_model *model,
                                    float **full, enum dyti_dtype dtype,
                                    const struct dyti_prompt *prompt,
                                    const struct dyti_sample *s,
                                    double temperature)
{
    int32_t *ids = ro_whole(prompt, s->ids, s->count);
    float *logits =
        ro_oracle_logits(model, full, dtype, ids, prompt->id_count + s->count);
    double scale = temperature > 0.0 ? 1.0 / temperature : 1.0, gap = 0.0;

    for (uint32_t i = 0; i < s->count; i++) {
        const float *row = logits + (size_t)(prompt->id_count + i - 1) *
                                        (size_t)model->arch.vocab;
        double raw = ro_logprob(row, model->arch.vocab, 1.0, s->ids[i]);
        double processed = ro_logprob(row, model->arch.vocab, scale, s->ids[i]);

        gap = fmax(gap, fabs(raw - (double)s->raw[i]));
        gap = fmax(gap, fabs(processed - (double)s->processed[i]));
    }
    free(ids);
    free(logits);
    return gap;
}

#endif /* ROLLOUT_WORLD_H */
