/* What does a forward pass keep, and where?  Sizes and places of activations;
 * measuring and taking are the same code. */
#include "nn/pass.h"

enum dyt_status dyti_nn_acts_take(const struct dyti_nn *nn, int64_t rows,
                                  struct dyti_region *region,
                                  struct dyti_nn_acts *out_acts)
{
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);
    struct dyti_nn_acts acts = {0};

    DYTI_NN_TRY(DYTI_TAKE(region, &acts.x_mid, rows * s.h));
    DYTI_NN_TRY(DYTI_TAKE(region, &acts.qkv, rows * s.n_qkv));
    DYTI_NN_TRY(DYTI_TAKE(region, &acts.attn, rows * s.n_q));
    DYTI_NN_TRY(DYTI_TAKE(region, &acts.lse, rows * s.q));
    DYTI_NN_TRY(DYTI_TAKE(region, &acts.gate_up, rows * 2 * s.f));
    DYTI_NN_TRY(DYTI_TAKE(region, &acts.inv_in, rows));
    DYTI_NN_TRY(DYTI_TAKE(region, &acts.inv_mid, rows));
    if (nn->model->arch.qk_norm) {
        DYTI_NN_TRY(DYTI_TAKE(region, &acts.inv_q, rows * s.q));
        DYTI_NN_TRY(DYTI_TAKE(region, &acts.inv_k, rows * s.kv));
    }
    *out_acts = acts;
    return DYT_OK;
}

/* The part of dyti_nn_saved_take that has no pointer into the region to
 * write through, so that a measuring region can do it too. */
static enum dyt_status take_layer(const struct dyti_nn *nn, int64_t rows,
                                  enum dyti_recompute recompute,
                                  struct dyti_region *region,
                                  struct dyti_nn_acts *out_acts)
{
    struct dyti_nn_acts acts = {0};

    if (recompute == DYTI_RECOMPUTE_NONE) {
        DYTI_NN_TRY(dyti_nn_acts_take(nn, rows, region, &acts));
    }
    DYTI_NN_TRY(DYTI_TAKE(region, &acts.x_in, rows * nn->model->arch.hidden));
    *out_acts = acts;
    return DYT_OK;
}

enum dyt_status dyti_nn_saved_take(const struct dyti_nn *nn, int64_t rows,
                                   enum dyti_recompute recompute,
                                   struct dyti_region *region,
                                   struct dyti_nn_saved **out_saved)
{
    int64_t layers = nn->part.layer_hi - nn->part.layer_lo;
    struct dyti_nn_saved *saved;

    DYTI_NN_TRY(DYTI_TAKE(region, &saved, 1));
    saved->recompute = recompute;
    saved->rows = rows;
    saved->layer_count = layers;
    DYTI_NN_TRY(DYTI_TAKE(region, &saved->layer, layers));
    for (int64_t l = 0; l < layers; l++) {
        DYTI_NN_TRY(take_layer(nn, rows, recompute, region, &saved->layer[l]));
    }
    *out_saved = saved;
    return DYT_OK;
}

uint64_t dyti_nn_saved_bytes(const struct dyti_nn *nn, int64_t rows,
                             int64_t sequences, enum dyti_recompute recompute)
{
    int64_t layers = nn->part.layer_hi - nn->part.layer_lo;
    struct dyti_nn_acts acts, *layer;
    struct dyti_nn_saved *saved;
    struct dyti_region region;
    enum dyt_status st;

    (void)sequences; /* the caller keeps its micro-batch until the backward */
    dyti_nn_measure_begin(&region);
    st = DYTI_TAKE(&region, &saved, 1);
    if (st == DYT_OK) {
        st = DYTI_TAKE(&region, &layer, layers);
    }
    for (int64_t l = 0; l < layers && st == DYT_OK; l++) {
        st = take_layer(nn, rows, recompute, &region, &acts);
    }
    return st == DYT_OK ? dyti_nn_measure_end(&region) : UINT64_MAX;
}

enum dyt_status dyti_nn_scratch_take(const struct dyti_nn *nn, int64_t rows,
                                     struct dyti_region *region,
                                     struct dyti_nn_scratch *out_scratch)
{
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);
    struct dyti_nn_scratch scratch = {0};

    DYTI_NN_TRY(DYTI_TAKE(region, &scratch.normed, rows * s.h));
    DYTI_NN_TRY(DYTI_TAKE(region, &scratch.act, rows * s.f));
    if (nn->model->arch.qk_norm) {
        DYTI_NN_TRY(DYTI_TAKE(region, &scratch.rotated, rows * s.n_qkv));
    }
    *out_scratch = scratch;
    return DYT_OK;
}

uint64_t dyti_nn_train_bytes(const struct dyti_nn *nn, int64_t rows,
                             int64_t head_rows)
{
    uint64_t most = dyti_nn_forward_bytes(nn, rows);
    uint64_t backward = dyti_nn_backward_bytes(nn, rows);
    uint64_t head = nn->part.has_head ? dyti_nn_head_bytes(nn, head_rows) : 0;

    most = backward > most ? backward : most;
    return head > most ? head : most;
}
