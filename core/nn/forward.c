/* The training forward pass: packed sequences through this rank's layers,
 * keeping what the backward pass will ask for. */
#include "nn/pass.h"

static enum dyt_status attention_half(struct dyti_nn *nn, enum dyti_dtype dtype,
                                      const struct dyti_nn_layer *w,
                                      const struct dyti_nn_micro *micro,
                                      const struct dyti_nn_acts *acts,
                                      const struct dyti_nn_scratch *scratch)
{
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);
    struct dyti_heads heads = dyti_nn_heads(nn);
    struct dyti_nn_matrix o = {w->o, dtype, s.h, s.n_q};
    int64_t rows = micro->packed.row_count;
    float *rotated = acts->qkv;

    DYTI_NN_TRY(dyti_nn_rmsnorm(nn, acts->x_in, w->input_norm, dtype, rows,
                                scratch->normed, acts->inv_in));
    DYTI_NN_TRY(dyti_nn_qkv(nn, dtype, w, scratch->normed, rows, acts->qkv));
    if (scratch->rotated != NULL) {
        /* Head norms: the values before them stay in acts->qkv. */
        rotated = scratch->rotated;
        DYTI_NN_TRY(dyti_nn_copy(nn, acts->qkv, rotated, rows, s.n_qkv));
    }
    DYTI_NN_TRY(dyti_nn_rotate(nn, dtype, w, micro->position, rows, rotated,
                               acts->inv_q, acts->inv_k));
    DYTI_NN_TRY(nn->kernels.ops->attention(
        nn->kernels.self, rotated, s.n_qkv, &heads, &micro->packed,
        dyti_nn_attention_scale(nn), acts->attn, acts->lse));
    return dyti_nn_residual(nn, o, acts->attn, rows, acts->x_in, acts->x_mid);
}

enum dyt_status dyti_nn_layer_acts(struct dyti_nn *nn, enum dyti_dtype dtype,
                                   const struct dyti_nn_layer *w,
                                   const struct dyti_nn_micro *micro,
                                   const struct dyti_nn_acts *acts,
                                   const struct dyti_nn_scratch *scratch)
{
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);
    struct dyti_nn_matrix gate_up = {w->gate_up, dtype, 2 * s.f, s.h};
    int64_t rows = micro->packed.row_count;

    DYTI_NN_TRY(attention_half(nn, dtype, w, micro, acts, scratch));
    DYTI_NN_TRY(dyti_nn_rmsnorm(nn, acts->x_mid, w->post_norm, dtype, rows,
                                scratch->normed, acts->inv_mid));
    return dyti_nn_linear(nn, gate_up, scratch->normed, rows, acts->gate_up);
}

static enum dyt_status layer_forward(struct dyti_nn *nn, enum dyti_dtype dtype,
                                     const struct dyti_nn_layer *w,
                                     const struct dyti_nn_micro *micro,
                                     const struct dyti_nn_acts *acts,
                                     const struct dyti_nn_scratch *scratch,
                                     float *x_out)
{
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);
    struct dyti_nn_matrix down = {w->down, dtype, s.h, s.f};
    int64_t rows = micro->packed.row_count;

    DYTI_NN_TRY(dyti_nn_layer_acts(nn, dtype, w, micro, acts, scratch));
    DYTI_NN_TRY(nn->kernels.ops->swiglu(nn->kernels.self, acts->gate_up, rows,
                                        s.f, scratch->act));
    return dyti_nn_residual(nn, down, scratch->act, rows, acts->x_mid, x_out);
}

/* A pass that keeps nothing, and one that keeps only layer inputs, put a
 * layer's activations into the workspace, over the previous layer's. */
static enum dyt_status take_work(const struct dyti_nn *nn, int64_t rows,
                                 bool keeps_all, struct dyti_region *region,
                                 struct dyti_nn_scratch *out_scratch,
                                 struct dyti_nn_acts *out_acts)
{
    DYTI_NN_TRY(dyti_nn_scratch_take(nn, rows, region, out_scratch));
    if (!keeps_all) {
        DYTI_NN_TRY(dyti_nn_acts_take(nn, rows, region, out_acts));
    }
    return DYT_OK;
}

uint64_t dyti_nn_forward_bytes(const struct dyti_nn *nn, int64_t rows)
{
    struct dyti_nn_scratch scratch;
    struct dyti_nn_acts acts;
    struct dyti_region region;

    dyti_nn_measure_begin(&region);
    if (take_work(nn, rows, false, &region, &scratch, &acts) != DYT_OK) {
        return UINT64_MAX;
    }
    return dyti_nn_measure_end(&region);
}

static enum dyt_status run(struct dyti_nn *nn,
                           const struct dyti_nn_weights *weights,
                           const struct dyti_nn_micro *micro, float *hidden,
                           struct dyti_nn_saved *saved,
                           struct dyti_region *work)
{
    int64_t layers = nn->part.layer_hi - nn->part.layer_lo;
    int64_t rows = micro->packed.row_count;
    bool keeps_all = saved != NULL && saved->recompute == DYTI_RECOMPUTE_NONE;
    float *x = saved != NULL && layers > 0 ? saved->layer[0].x_in : hidden;
    struct dyti_nn_acts acts = {0};
    struct dyti_nn_scratch scratch;

    DYTI_NN_TRY(take_work(nn, rows, keeps_all, work, &scratch, &acts));
    if (nn->part.has_embed) {
        DYTI_NN_TRY(dyti_nn_embed(nn, weights, micro->ids, rows, x));
    } else if (x != hidden) {
        DYTI_NN_TRY(dyti_nn_copy(nn, hidden, x, rows, nn->model->arch.hidden));
    }
    for (int64_t l = 0; l < layers; l++) {
        float *x_out = hidden;

        if (keeps_all) {
            acts = saved->layer[l];
        }
        acts.x_in = x;
        if (saved == NULL) {
            acts.x_mid = x; /* in place: nobody will ask for it */
        } else if (l + 1 < layers) {
            x_out = saved->layer[l + 1].x_in;
        }
        DYTI_NN_TRY(layer_forward(nn, weights->dtype, &weights->layer[l], micro,
                                  &acts, &scratch, x_out));
        x = x_out;
    }
    return DYT_OK;
}

enum dyt_status dyti_nn_forward(struct dyti_nn *nn,
                                const struct dyti_nn_weights *weights,
                                const struct dyti_nn_micro *micro,
                                float *hidden, enum dyti_recompute recompute,
                                struct dyti_region *saved,
                                struct dyti_region *work,
                                struct dyti_nn_saved **out_saved)
{
    uint64_t mark = dyti_region_mark(work);
    uint64_t saved_mark = saved == NULL ? 0 : dyti_region_mark(saved);
    int64_t rows = micro->packed.row_count;
    struct dyti_nn_saved *kept = NULL;
    enum dyt_status st =
        dyti_nn_check_rows(nn, rows, micro->ids, micro->position);

    if (st == DYT_OK && saved != NULL) {
        st = dyti_nn_saved_take(nn, rows, recompute, saved, &kept);
    }
    if (st == DYT_OK && rows > 0) {
        st = run(nn, weights, micro, hidden, kept, work);
    }
    dyti_region_rewind(work, mark);
    if (st != DYT_OK) {
        if (saved != NULL) {
            dyti_region_rewind(saved, saved_mark);
        }
        return st;
    }
    if (out_saved != NULL) {
        *out_saved = kept;
    }
    return DYT_OK;
}
