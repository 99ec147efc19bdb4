/* A whole model on ranks that are threads of this process: what the tests of
 * core/nn share.  Weights are given whole, gradients come back whole, and the
 * pipeline is walked by hand: a stage's members run together, then the next.
 *
 *   struct nn_world w;
 *   nn_world_init(&w, &desc, full);
 *   nn_world_step(&w, &step);      forward, head, backward
 *   grads = nn_world_grads(&w);    [tensor][element]
 *   nn_world_fini(&w);
 */
#ifndef NN_WORLD_H
#define NN_WORLD_H

#include "base/num.h"
#include "comm/shm/shm.h"
#include "device/host/host.h"
#include "nn/nn.h"
#include "nn_full.h"

#include <math.h>

struct nn_world_desc {
    const struct dyti_model *model;
    uint32_t tp, pp;
    const uint32_t *pp_layers; /* NULL: as even as can be */
    enum dyti_dtype dtype;     /* of the weights */
    const struct dyti_kernel_ops *kernels;
    int64_t positions;
};

struct nn_rank {
    const struct dyti_view *view;
    struct dyti_kernels kernels;
    struct dyti_group tp;
    struct dyti_nn *nn;
    struct dyti_nn_weights w, g;
    void *param;
    float *grad;
};

struct nn_world {
    struct nn_world_desc desc;
    struct dyti_layout *layout;
    struct dyti_abort_word abort;
    struct nn_rank *rank; /* [pp * tp], by (stage, tp rank) */
    void **shared;        /* [pp] a tensor-parallel group's memory */
    uint64_t shared_bytes;
};

/* One micro-batch there and back. */
struct nn_step {
    const struct dyti_nn_micro *micro;
    const int32_t *target;            /* [rows] */
    float scale;                      /* 1 / temperature */
    const float *dlogprob, *dentropy; /* [rows]; NULL: forward only */
    enum dyti_recompute recompute;
    int64_t head_rows; /* rows of a head chunk */
    bool keep_nothing; /* forward with saved = NULL */
    /* out, the caller's: */
    float *logprob, *entropy; /* [rows] */
    float *logits;            /* [rows, V]; NULL = not wanted */
    /* the world's: */
    struct nn_world *world;
    uint32_t stage;
    float **hidden, **dhidden;   /* [tp] rows x h */
    struct dyti_region *saved;   /* [pp * tp] */
    struct dyti_nn_saved **kept; /* [pp * tp] */
};

/* ---- between whole tensors and a rank's region --------------------------- */

typedef void (*nn_element_fn)(void *region, enum dyti_dtype dtype,
                              uint64_t offset, float *whole);

static inline void nn_put(void *region, enum dyti_dtype dtype, uint64_t offset,
                          float *whole)
{
    unsigned char *at = (unsigned char *)region + offset;

    if (dtype == DYTI_BF16) {
        *(uint16_t *)(void *)at = dyti_f32_to_bf16(*whole);
    } else {
        *(float *)(void *)at = *whole;
    }
}

static inline void nn_shard_each(const struct dyti_model *model,
                                 const struct dyti_shard *shard, void *region,
                                 float **full, nn_element_fn fn)
{
    const struct dyti_tensor *tensor = &model->tensor[shard->tensor];
    int64_t cols = tensor->ndim == 2 ? tensor->shape[1] : 1;
    int64_t c_lo = tensor->ndim == 2 ? shard->box.lo[1] : 0;
    int64_t c_hi = tensor->ndim == 2 ? shard->box.hi[1] : 1;

    for (int64_t r = shard->box.lo[0]; r < shard->box.hi[0]; r++) {
        for (int64_t c = c_lo; c < c_hi; c++) {
            uint64_t offset =
                shard->offset +
                (uint64_t)((r - shard->box.lo[0]) * shard->stride[0]) +
                (uint64_t)(tensor->ndim == 2 ? (c - c_lo) * shard->stride[1]
                                             : 0);

            fn(region, (enum dyti_dtype)shard->dtype, offset,
               &full[shard->tensor][r * cols + c]);
        }
    }
}

static inline void nn_view_each(const struct dyti_model *model,
                                const struct dyti_view *view,
                                enum dyti_kind kind, void *region, float **full,
                                nn_element_fn fn)
{
    for (uint32_t i = view->kind_first[kind]; i < view->kind_first[kind + 1];
         i++) {
        nn_shard_each(model, &view->shard[i], region, full, fn);
    }
}

/* Put whole weights on all ranks. */
static inline void nn_world_set(struct nn_world *w, float **full)
{
    for (uint32_t i = 0; i < w->desc.pp * w->desc.tp; i++) {
        nn_view_each(w->desc.model, w->rank[i].view, DYTI_PARAM,
                     w->rank[i].param, full, nn_put);
    }
}

static inline void nn_add_to_whole(void *region, enum dyti_dtype dtype,
                                   uint64_t offset, float *whole)
{
    (void)dtype;
    *whole += *(float *)(void *)((unsigned char *)region + offset);
}

/* Norms of the residual stream: complete and equal on all TP members. */
static inline bool nn_grad_complete(enum dyti_slot slot)
{
    return slot == DYTI_SLOT_INPUT_NORM || slot == DYTI_SLOT_POST_NORM ||
           slot == DYTI_SLOT_FINAL_NORM;
}

static inline void nn_check_equal_norm_grads(const struct nn_world *w)
{
    for (uint32_t i = 0; i < w->desc.pp * w->desc.tp; i++) {
        const struct nn_rank *mine = &w->rank[i];
        const struct nn_rank *first = &w->rank[i / w->desc.tp * w->desc.tp];

        for (uint32_t t = 0; t < w->desc.model->tensor_count; t++) {
            const struct dyti_tensor *tensor = &w->desc.model->tensor[t];
            const struct dyti_shard *a =
                dyti_view_find(mine->view, DYTI_GRAD, t);
            const struct dyti_shard *b =
                dyti_view_find(first->view, DYTI_GRAD, t);

            if (nn_grad_complete(tensor->slot) && a != NULL) {
                assert_memory_equal((unsigned char *)mine->grad + a->offset,
                                    (unsigned char *)first->grad + b->offset,
                                    4 * dyti_tensor_elements(tensor));
            }
        }
    }
}

/* Gradients as whole tensors: parts are summed over their holders, what is
 * complete everywhere is taken once. */
static inline float **nn_world_grads(const struct nn_world *w)
{
    const struct dyti_model *model = w->desc.model;
    float **full = nn_full_new(model);

    nn_check_equal_norm_grads(w);
    for (uint32_t i = 0; i < w->desc.pp * w->desc.tp; i++) {
        const struct nn_rank *r = &w->rank[i];

        for (uint32_t k = r->view->kind_first[DYTI_GRAD];
             k < r->view->kind_first[DYTI_GRAD + 1]; k++) {
            const struct dyti_shard *shard = &r->view->shard[k];

            if (r->view->part.tp_rank == 0 ||
                !nn_grad_complete(model->tensor[shard->tensor].slot)) {
                nn_shard_each(model, shard, r->grad, full, nn_add_to_whole);
            }
        }
    }
    return full;
}

static inline void nn_world_zero_grads(struct nn_world *w)
{
    for (uint32_t i = 0; i < w->desc.pp * w->desc.tp; i++) {
        memset(w->rank[i].grad, 0, w->rank[i].view->region_bytes[DYTI_GRAD]);
    }
}

/* ---- birth and death ----------------------------------------------------- */

static inline void nn_rank_open_group(struct dyt_rank *me)
{
    struct nn_step *step = me->arg;
    struct nn_world *w = step->world;
    struct nn_rank *r = &w->rank[step->stage * w->desc.tp + me->rank];
    uint32_t world_rank[DYT_RANKS_MAX];
    struct dyti_group_params params = {.struct_size = sizeof(params),
                                       .name = "tp",
                                       .rank = me->rank,
                                       .size = me->size,
                                       .world_rank = world_rank,
                                       .shared = w->shared[step->stage],
                                       .shared_bytes = w->shared_bytes,
                                       .abort = &w->abort,
                                       .timeout_ns = 60000000000,
                                       .oversubscribed = true};

    for (uint32_t i = 0; i < me->size; i++) {
        world_rank[i] = step->stage * w->desc.tp + i;
    }
    r->tp = (struct dyti_group){&dyti_group_shm, NULL, me->rank, me->size};
    rank_ok(me, dyti_group_shm.open(&params, &r->tp.self));
}

static inline void nn_rank_init(struct nn_world *w, uint32_t i)
{
    struct dyti_kernel_params params = {.struct_size = sizeof(params)};
    struct nn_rank *r = &w->rank[i];
    const struct dyti_view *view = dyti_layout_view(w->layout, i);

    r->view = view;
    r->kernels.ops = w->desc.kernels;
    assert_ok(r->kernels.ops->open(&params, &r->kernels.self));
    r->param = nn_zeros(view->region_bytes[DYTI_PARAM]);
    r->grad = nn_zeros(view->region_bytes[DYTI_GRAD]);
    assert_ok(dyti_nn_create(w->desc.model, &view->part, &r->kernels, &r->tp,
                             w->desc.positions, &r->nn));
    assert_ok(dyti_nn_bind(w->desc.model, view, DYTI_PARAM, r->param, &r->w));
    assert_ok(dyti_nn_bind(w->desc.model, view, DYTI_GRAD, r->grad, &r->g));
}

/* full: whole weights; NULL = the caller fills each rank's param itself. */
static inline void nn_world_init(struct nn_world *w,
                                 const struct nn_world_desc *desc, float **full)
{
    struct dyti_layout_desc layout = {.phase = "train",
                                      .world_size = desc->tp * desc->pp,
                                      .tp = desc->tp,
                                      .pp = desc->pp,
                                      .dp = 1,
                                      .pp_layers = desc->pp_layers,
                                      .dtype = {[DYTI_PARAM] = desc->dtype}};

    *w = (struct nn_world){.desc = *desc};
    assert_ok(dyti_layout_build(desc->model, &layout, &w->layout));
    w->rank = calloc(desc->tp * desc->pp, sizeof(*w->rank));
    w->shared = calloc(desc->pp, sizeof(*w->shared));
    w->shared_bytes = dyti_group_shm.region_bytes(desc->tp);
    for (uint32_t s = 0; s < desc->pp && desc->tp > 1; s++) {
        struct nn_step step = {.world = w, .stage = s};

        w->shared[s] = nn_zeros(w->shared_bytes);
        dyt_ranks_run(DYT_RANKS_THREADS, desc->tp, nn_rank_open_group, &step);
    }
    for (uint32_t i = 0; i < desc->tp * desc->pp; i++) {
        nn_rank_init(w, i);
    }
    if (full != NULL) {
        nn_world_set(w, full);
    }
}

static inline void nn_world_fini(struct nn_world *w)
{
    for (uint32_t i = 0; i < w->desc.tp * w->desc.pp; i++) {
        struct nn_rank *r = &w->rank[i];

        dyti_nn_unbind(&r->w);
        dyti_nn_unbind(&r->g);
        dyti_nn_destroy(r->nn);
        r->kernels.ops->close(r->kernels.self);
        if (r->tp.self != NULL) {
            r->tp.ops->close(r->tp.self);
        }
        nn_free(r->param, r->view->region_bytes[DYTI_PARAM]);
        nn_free(r->grad, r->view->region_bytes[DYTI_GRAD]);
    }
    for (uint32_t s = 0; s < w->desc.pp; s++) {
        nn_free(w->shared[s], w->shared_bytes);
    }
    free(w->shared);
    free(w->rank);
    dyti_layout_destroy(w->layout);
    *w = (struct nn_world){0};
}

/* ---- a step -------------------------------------------------------------- */

static inline void nn_region_new(struct dyti_region *region, uint64_t bytes)
{
    dyti_region_init(region, nn_zeros(bytes), bytes);
    if (bytes < 64u << 20) {
        memset(region->base, 0xff, bytes); /* NaN: nothing may be read first */
    }
}

static inline void nn_region_free(struct dyti_region *region)
{
    nn_free(region->base, region->bytes);
}

/* Logits of a chunk into the columns of the whole matrix. */
static inline void nn_keep_logits(const struct nn_step *step,
                                  const struct dyti_part *part,
                                  const struct dyti_nn_head_chunk *chunk,
                                  int64_t first)
{
    int64_t vocab = step->world->desc.model->arch.vocab;
    int64_t mine = part->vocab_hi - part->vocab_lo;

    for (int64_t r = 0; r < chunk->rows && step->logits != NULL; r++) {
        memcpy(step->logits + (first + r) * vocab + part->vocab_lo,
               chunk->logits + r * mine, (size_t)mine * sizeof(float));
    }
}

static inline void nn_rank_head(struct dyt_rank *me, struct nn_step *step,
                                struct nn_rank *r, struct dyti_region *work)
{
    int64_t h = step->world->desc.model->arch.hidden;
    int64_t rows = step->micro->packed.row_count, n;
    float *logprob = calloc((size_t)rows + 1, sizeof(float));
    float *entropy = calloc((size_t)rows + 1, sizeof(float));

    for (int64_t at = 0; at < rows; at += n) {
        struct dyti_nn_head_chunk chunk = {.hidden =
                                               step->hidden[me->rank] + at * h,
                                           .target = step->target + at,
                                           .scale = step->scale,
                                           .logprob = logprob + at,
                                           .entropy = entropy + at};

        n = rows - at < step->head_rows ? rows - at : step->head_rows;
        chunk.rows = n;
        dyti_region_reset(work);
        rank_ok(me, dyti_nn_head_forward(r->nn, &r->w, &chunk, work));
        nn_keep_logits(step, &r->view->part, &chunk, at);
        if (step->dlogprob != NULL) {
            rank_ok(me, dyti_nn_head_backward(
                            r->nn, &r->w, &r->g, &chunk, step->dlogprob + at,
                            step->dentropy + at,
                            step->dhidden[me->rank] + at * h, work));
        }
    }
    dyti_region_reset(work);
    if (me->rank == 0) {
        memcpy(step->logprob, logprob, (size_t)rows * sizeof(float));
        memcpy(step->entropy, entropy, (size_t)rows * sizeof(float));
    }
    free(logprob);
    free(entropy);
}

/* Workspaces are exactly as big as promised. */
static inline void nn_rank_forward(struct dyt_rank *me)
{
    struct nn_step *step = me->arg;
    struct nn_world *w = step->world;
    uint32_t i = step->stage * w->desc.tp + me->rank;
    struct nn_rank *r = &w->rank[i];
    int64_t rows = step->micro->packed.row_count;
    struct dyti_region work;

    nn_region_new(&work, dyti_nn_train_bytes(r->nn, rows, step->head_rows));
    if (!step->keep_nothing) {
        nn_region_new(&step->saved[i],
                      dyti_nn_saved_bytes(r->nn, rows,
                                          step->micro->packed.sequence_count,
                                          step->recompute));
    }
    rank_ok(me, dyti_nn_forward(r->nn, &r->w, step->micro,
                                step->hidden[me->rank], step->recompute,
                                step->keep_nothing ? NULL : &step->saved[i],
                                &work, &step->kept[i]));
    rank_true(me, work.used == 0);
    if (r->view->part.has_head) {
        nn_rank_head(me, step, r, &work);
    }
    nn_region_free(&work);
}

static inline void nn_rank_backward(struct dyt_rank *me)
{
    struct nn_step *step = me->arg;
    struct nn_world *w = step->world;
    uint32_t i = step->stage * w->desc.tp + me->rank;
    struct nn_rank *r = &w->rank[i];
    struct dyti_region work;

    nn_region_new(&work,
                  dyti_nn_train_bytes(r->nn, step->micro->packed.row_count, 1));
    rank_ok(me,
            dyti_nn_backward(r->nn, &r->w, &r->g, step->micro, step->kept[i],
                             step->dhidden[me->rank], &work));
    nn_region_free(&work);
}

static inline void nn_world_step(struct nn_world *w, struct nn_step *step)
{
    uint32_t tp = w->desc.tp, pp = w->desc.pp;
    uint64_t bytes = 4 * (uint64_t)(step->micro->packed.row_count *
                                    w->desc.model->arch.hidden);

    step->world = w;
    step->hidden = calloc(tp, sizeof(*step->hidden));
    step->dhidden = calloc(tp, sizeof(*step->dhidden));
    step->saved = calloc(tp * pp, sizeof(*step->saved));
    step->kept = calloc(tp * pp, sizeof(*step->kept));
    for (uint32_t i = 0; i < tp; i++) {
        step->hidden[i] = nn_zeros(bytes);
        step->dhidden[i] = nn_zeros(bytes);
        memset(step->hidden[i], 0xff, bytes);
        memset(step->dhidden[i], 0xff, bytes);
    }
    for (step->stage = 0; step->stage < pp; step->stage++) {
        dyt_ranks_run(DYT_RANKS_THREADS, tp, nn_rank_forward, step);
    }
    for (step->stage = pp; step->dlogprob != NULL && step->stage-- > 0;) {
        dyt_ranks_run(DYT_RANKS_THREADS, tp, nn_rank_backward, step);
    }
    for (uint32_t i = 0; i < tp; i++) {
        nn_free(step->hidden[i], bytes);
        nn_free(step->dhidden[i], bytes);
    }
    for (uint32_t i = 0; i < tp * pp; i++) {
        nn_region_free(&step->saved[i]);
    }
    free(step->hidden);
    free(step->dhidden);
    free(step->saved);
    free(step->kept);
}

#endif /* NN_WORLD_H */
