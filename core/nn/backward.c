/* The training backward pass of this rank's layers: gradients of the weights
 * are added up, the gradient of the input takes the place of the output's. */
#include "nn/pass.h"

struct back_work {
    struct dyti_nn_scratch forward; /* inputs made again */
    struct dyti_nn_acts again;      /* RECOMPUTE_LAYER: a whole layer */
    float *dact, *dgate_up;         /* [rows, f], [rows, 2 f] */
    float *dattn, *dqkv;            /* [rows, q * d], [rows, n_qkv] */
    float *dnormed;                 /* [rows, h] */
};

/* dact and dgate_up are dead when dattn and dqkv begin. */
static enum dyt_status take_work(const struct dyti_nn *nn, int64_t rows,
                                 enum dyti_recompute recompute,
                                 struct dyti_region *region,
                                 struct back_work *out)
{
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);
    uint64_t mark;

    DYTI_NN_TRY(dyti_nn_scratch_take(nn, rows, region, &out->forward));
    if (recompute == DYTI_RECOMPUTE_LAYER) {
        DYTI_NN_TRY(dyti_nn_acts_take(nn, rows, region, &out->again));
    }
    DYTI_NN_TRY(DYTI_TAKE(region, &out->dnormed, rows * s.h));
    mark = dyti_region_mark(region);
    DYTI_NN_TRY(DYTI_TAKE(region, &out->dattn, rows * s.n_q));
    DYTI_NN_TRY(DYTI_TAKE(region, &out->dqkv, rows * s.n_qkv));
    dyti_region_rewind(region, mark);
    DYTI_NN_TRY(DYTI_TAKE(region, &out->dact, rows * s.f));
    DYTI_NN_TRY(DYTI_TAKE(region, &out->dgate_up, rows * 2 * s.f));
    return DYT_OK;
}

uint64_t dyti_nn_backward_bytes(const struct dyti_nn *nn, int64_t rows)
{
    struct dyti_region region;
    struct back_work work;

    dyti_nn_measure_begin(&region);
    if (take_work(nn, rows, DYTI_RECOMPUTE_LAYER, &region, &work) != DYT_OK) {
        return UINT64_MAX;
    }
    return dyti_nn_measure_end(&region);
}

/* What one layer's backward pass reads and writes. */
struct layer_back {
    struct dyti_nn *nn;
    enum dyti_dtype dtype;
    const struct dyti_nn_layer *w, *g;
    const struct dyti_nn_micro *micro;
    const struct dyti_nn_acts *acts;
    struct back_work *work;
    float *dhidden;
};

/* Gradients live where bind() found them; the struct is shared with weights,
 * hence const. */
static float *grad(const void *p)
{
    return (float *)(uintptr_t)p;
}

/* Through a norm and the branch it feeds: dnormed is a sum over TP members,
 * and goes back into the residual stream. */
static enum dyt_status norm_back(const struct layer_back *b, const float *x,
                                 const void *w, const float *inv_rms,
                                 const void *dw)
{
    int64_t rows = b->micro->packed.row_count, h = b->nn->model->arch.hidden;

    DYTI_NN_TRY(
        dyti_nn_all_reduce(b->nn, b->work->dnormed, rows * h, DYTI_SUM_F32));
    return b->nn->kernels.ops->rmsnorm_back(
        b->nn->kernels.self, b->work->dnormed, x, w, b->dtype, inv_rms, rows, h,
        b->dhidden, true, grad(dw));
}

static enum dyt_status ffn_back(const struct layer_back *b)
{
    struct dyti_nn *nn = b->nn;
    const struct dyti_kernel_ops *ops = nn->kernels.ops;
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);
    struct back_work *w = b->work;
    int64_t rows = b->micro->packed.row_count;
    struct dyti_nn_matrix down = {b->w->down, b->dtype, s.h, s.f};
    struct dyti_nn_matrix gate_up = {b->w->gate_up, b->dtype, 2 * s.f, s.h};

    DYTI_NN_TRY(ops->swiglu(nn->kernels.self, b->acts->gate_up, rows, s.f,
                            w->forward.act));
    DYTI_NN_TRY(dyti_nn_linear_dw(nn, s.h, s.f, b->dhidden, w->forward.act,
                                  rows, grad(b->g->down)));
    DYTI_NN_TRY(dyti_nn_linear_dx(nn, down, b->dhidden, rows, w->dact));
    DYTI_NN_TRY(ops->swiglu_back(nn->kernels.self, w->dact, b->acts->gate_up,
                                 rows, s.f, w->dgate_up));
    DYTI_NN_TRY(dyti_nn_rmsnorm(nn, b->acts->x_mid, b->w->post_norm, b->dtype,
                                rows, w->forward.normed, NULL));
    DYTI_NN_TRY(dyti_nn_linear_dw(nn, 2 * s.f, s.h, w->dgate_up,
                                  w->forward.normed, rows,
                                  grad(b->g->gate_up)));
    DYTI_NN_TRY(dyti_nn_linear_dx(nn, gate_up, w->dgate_up, rows, w->dnormed));
    return norm_back(b, b->acts->x_mid, b->w->post_norm, b->acts->inv_mid,
                     b->g->post_norm);
}

/* From dqkv of the rotated values to that of the matrix product. */
static enum dyt_status unrotate(const struct layer_back *b, float *dqkv)
{
    struct dyti_nn *nn = b->nn;
    const struct dyti_kernel_ops *ops = nn->kernels.ops;
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);
    int64_t rows = b->micro->packed.row_count;

    DYTI_NN_TRY(ops->rope(nn->kernels.self, dqkv, s.n_qkv, rows, s.q + s.kv,
                          s.d, b->micro->position, nn->rope_table, true));
    if (b->w->q_norm != NULL) {
        DYTI_NN_TRY(ops->headnorm_back(
            nn->kernels.self, dqkv, b->acts->qkv, s.n_qkv, rows, s.q, s.d,
            b->w->q_norm, b->dtype, b->acts->inv_q, grad(b->g->q_norm)));
        DYTI_NN_TRY(ops->headnorm_back(nn->kernels.self, dqkv + s.n_q,
                                       b->acts->qkv + s.n_q, s.n_qkv, rows,
                                       s.kv, s.d, b->w->k_norm, b->dtype,
                                       b->acts->inv_k, grad(b->g->k_norm)));
    }
    if (b->w->qkv_bias != NULL) {
        DYTI_NN_TRY(ops->bias_back(nn->kernels.self, dqkv, s.n_qkv, rows,
                                   s.n_qkv, grad(b->g->qkv_bias)));
    }
    return DYT_OK;
}

/* The rotated q, k, v that attention saw. */
static enum dyt_status rotated_qkv(const struct layer_back *b,
                                   const float **out_qkv)
{
    struct dyti_nn_sizes s = dyti_nn_sizes(b->nn);
    int64_t rows = b->micro->packed.row_count;
    float *rotated = b->work->forward.rotated;

    if (rotated == NULL) {
        *out_qkv = b->acts->qkv;
        return DYT_OK;
    }
    if (b->acts != &b->work->again) { /* a layer made again left them there */
        DYTI_NN_TRY(dyti_nn_copy(b->nn, b->acts->qkv, rotated, rows, s.n_qkv));
        DYTI_NN_TRY(dyti_nn_rotate(b->nn, b->dtype, b->w, b->micro->position,
                                   rows, rotated, NULL, NULL));
    }
    *out_qkv = rotated;
    return DYT_OK;
}

static enum dyt_status attention_back(const struct layer_back *b)
{
    struct dyti_nn *nn = b->nn;
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);
    struct dyti_heads heads = dyti_nn_heads(nn);
    struct back_work *w = b->work;
    int64_t rows = b->micro->packed.row_count;
    struct dyti_nn_matrix o = {b->w->o, b->dtype, s.h, s.n_q};
    struct dyti_nn_matrix qkv = {b->w->qkv, b->dtype, s.n_qkv, s.h};
    const float *rotated;

    DYTI_NN_TRY(dyti_nn_linear_dw(nn, s.h, s.n_q, b->dhidden, b->acts->attn,
                                  rows, grad(b->g->o)));
    DYTI_NN_TRY(dyti_nn_linear_dx(nn, o, b->dhidden, rows, w->dattn));
    DYTI_NN_TRY(rotated_qkv(b, &rotated));
    DYTI_NN_TRY(nn->kernels.ops->attention_back(
        nn->kernels.self, w->dattn, rotated, s.n_qkv, &heads, &b->micro->packed,
        dyti_nn_attention_scale(nn), b->acts->attn, b->acts->lse, w->dqkv));
    DYTI_NN_TRY(unrotate(b, w->dqkv));
    DYTI_NN_TRY(dyti_nn_rmsnorm(nn, b->acts->x_in, b->w->input_norm, b->dtype,
                                rows, w->forward.normed, NULL));
    DYTI_NN_TRY(dyti_nn_linear_dw(nn, s.n_qkv, s.h, w->dqkv, w->forward.normed,
                                  rows, grad(b->g->qkv)));
    DYTI_NN_TRY(dyti_nn_linear_dx(nn, qkv, w->dqkv, rows, w->dnormed));
    return norm_back(b, b->acts->x_in, b->w->input_norm, b->acts->inv_in,
                     b->g->input_norm);
}

static enum dyt_status run(struct dyti_nn *nn,
                           const struct dyti_nn_weights *weights,
                           const struct dyti_nn_weights *grads,
                           const struct dyti_nn_micro *micro,
                           struct dyti_nn_saved *saved, float *dhidden,
                           struct dyti_region *region)
{
    int64_t rows = micro->packed.row_count;
    struct back_work work = {0};

    DYTI_NN_TRY(take_work(nn, rows, saved->recompute, region, &work));
    for (int64_t l = saved->layer_count - 1; l >= 0; l--) {
        struct layer_back b = {.nn = nn,
                               .dtype = weights->dtype,
                               .w = &weights->layer[l],
                               .g = &grads->layer[l],
                               .micro = micro,
                               .acts = &saved->layer[l],
                               .work = &work,
                               .dhidden = dhidden};

        if (saved->recompute == DYTI_RECOMPUTE_LAYER) {
            work.again.x_in = saved->layer[l].x_in;
            b.acts = &work.again;
            DYTI_NN_TRY(dyti_nn_layer_acts(nn, b.dtype, b.w, micro, b.acts,
                                           &work.forward));
        }
        DYTI_NN_TRY(ffn_back(&b));
        DYTI_NN_TRY(attention_back(&b));
    }
    if (!nn->part.has_embed) {
        return DYT_OK;
    }
    return nn->kernels.ops->embed_back(
        nn->kernels.self, micro->ids, rows, dhidden, nn->part.vocab_lo,
        nn->part.vocab_hi, nn->model->arch.hidden, grad(grads->embed));
}

enum dyt_status dyti_nn_backward(struct dyti_nn *nn,
                                 const struct dyti_nn_weights *weights,
                                 const struct dyti_nn_weights *grads,
                                 const struct dyti_nn_micro *micro,
                                 struct dyti_nn_saved *saved, float *dhidden,
                                 struct dyti_region *work)
{
    uint64_t mark = dyti_region_mark(work);
    enum dyt_status st = DYT_OK;

    if (grads->dtype != DYTI_F32 || saved->rows != micro->packed.row_count) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "a backward pass of %lld rows into %s gradients does "
                         "not fit a forward pass of %lld rows",
                         (long long)micro->packed.row_count,
                         dyti_dtype_name(grads->dtype), (long long)saved->rows);
    }
    if (saved->rows > 0) {
        st = run(nn, weights, grads, micro, saved, dhidden, work);
    }
    dyti_region_rewind(work, mark);
    return st;
}
