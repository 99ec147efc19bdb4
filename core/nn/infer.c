/* What comes next?  The generation pass: prefill and decode rows of many
 * sequences in one go over the paged cache, and the logits of chosen rows. */
#include "nn/pass.h"

/* The attention half and the FFN half are never alive together and share
 * their memory. */
struct infer_work {
    float *normed;        /* [rows, h] */
    float *qkv, *attn;    /* [rows, n_qkv], [rows, q * d] */
    float *gate_up, *act; /* [rows, 2 f], [rows, f] */
};

static enum dyt_status take_work(const struct dyti_nn *nn, int64_t rows,
                                 struct dyti_region *region,
                                 struct infer_work *out)
{
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);
    uint64_t mark;

    DYTI_NN_TRY(DYTI_TAKE(region, &out->normed, rows * s.h));
    mark = dyti_region_mark(region);
    DYTI_NN_TRY(DYTI_TAKE(region, &out->qkv, rows * s.n_qkv));
    DYTI_NN_TRY(DYTI_TAKE(region, &out->attn, rows * s.n_q));
    dyti_region_rewind(region, mark);
    DYTI_NN_TRY(DYTI_TAKE(region, &out->gate_up, rows * 2 * s.f));
    DYTI_NN_TRY(DYTI_TAKE(region, &out->act, rows * s.f));
    return DYT_OK;
}

uint64_t dyti_nn_cache_layer_bytes(const struct dyti_nn *nn,
                                   enum dyti_dtype dtype, int64_t block_size,
                                   int64_t block_count)
{
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);

    return (uint64_t)block_size * (uint64_t)block_count *
           (uint64_t)(s.kv * s.d) * dyti_dtype_bytes(dtype);
}

uint64_t dyti_nn_infer_bytes(const struct dyti_nn *nn, int64_t rows)
{
    struct dyti_region region;
    struct infer_work work;

    dyti_nn_measure_begin(&region);
    if (take_work(nn, rows, &region, &work) != DYT_OK) {
        return UINT64_MAX;
    }
    return dyti_nn_measure_end(&region);
}

static enum dyt_status attention_half(struct dyti_nn *nn, enum dyti_dtype dtype,
                                      const struct dyti_nn_layer *w,
                                      const struct dyti_kv_layer *cache,
                                      const struct dyti_paged_batch *batch,
                                      const int32_t *position, float *hidden,
                                      const struct infer_work *work)
{
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);
    struct dyti_heads heads = dyti_nn_heads(nn);
    struct dyti_nn_matrix o = {w->o, dtype, s.h, s.n_q};
    int64_t rows = batch->row_count;

    DYTI_NN_TRY(dyti_nn_rmsnorm(nn, hidden, w->input_norm, dtype, rows,
                                work->normed, NULL));
    DYTI_NN_TRY(dyti_nn_qkv(nn, dtype, w, work->normed, rows, work->qkv));
    DYTI_NN_TRY(
        dyti_nn_rotate(nn, dtype, w, position, rows, work->qkv, NULL, NULL));
    DYTI_NN_TRY(nn->kernels.ops->attention_paged(
        nn->kernels.self, work->qkv, s.n_qkv, &heads, cache, batch,
        dyti_nn_attention_scale(nn), work->attn));
    return dyti_nn_residual(nn, o, work->attn, rows, hidden, hidden);
}

static enum dyt_status ffn_half(struct dyti_nn *nn, enum dyti_dtype dtype,
                                const struct dyti_nn_layer *w, int64_t rows,
                                float *hidden, const struct infer_work *work)
{
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);
    struct dyti_nn_matrix gate_up = {w->gate_up, dtype, 2 * s.f, s.h};
    struct dyti_nn_matrix down = {w->down, dtype, s.h, s.f};

    DYTI_NN_TRY(dyti_nn_rmsnorm(nn, hidden, w->post_norm, dtype, rows,
                                work->normed, NULL));
    DYTI_NN_TRY(dyti_nn_linear(nn, gate_up, work->normed, rows, work->gate_up));
    DYTI_NN_TRY(nn->kernels.ops->swiglu(nn->kernels.self, work->gate_up, rows,
                                        s.f, work->act));
    return dyti_nn_residual(nn, down, work->act, rows, hidden, hidden);
}

static enum dyt_status infer_layers(struct dyti_nn *nn,
                                    const struct dyti_nn_weights *weights,
                                    const struct dyti_nn_cache *cache,
                                    const struct dyti_paged_batch *batch,
                                    const int32_t *position, float *hidden,
                                    struct dyti_region *region)
{
    int64_t layers = nn->part.layer_hi - nn->part.layer_lo;
    struct infer_work work;

    DYTI_NN_TRY(take_work(nn, batch->row_count, region, &work));
    for (int64_t l = 0; l < layers; l++) {
        struct dyti_kv_layer kv = {cache->k + (uint64_t)l * cache->layer_bytes,
                                   cache->v + (uint64_t)l * cache->layer_bytes,
                                   cache->dtype, cache->block_size};

        DYTI_NN_TRY(attention_half(nn, weights->dtype, &weights->layer[l], &kv,
                                   batch, position, hidden, &work));
        DYTI_NN_TRY(ffn_half(nn, weights->dtype, &weights->layer[l],
                             batch->row_count, hidden, &work));
    }
    return DYT_OK;
}

enum dyt_status dyti_nn_infer(struct dyti_nn *nn,
                              const struct dyti_nn_weights *weights,
                              const struct dyti_nn_cache *cache,
                              const struct dyti_paged_batch *batch,
                              const int32_t *ids, const int32_t *position,
                              float *hidden, struct dyti_region *work)
{
    uint64_t mark = dyti_region_mark(work);
    int64_t rows = batch->row_count;
    enum dyt_status st;

    if (rows == 0) {
        return DYT_OK;
    }
    st = dyti_nn_check_rows(nn, rows, ids, position);
    if (st == DYT_OK && nn->part.has_embed) {
        st = dyti_nn_embed(nn, weights, ids, rows, hidden);
    }
    if (st == DYT_OK) {
        st = infer_layers(nn, weights, cache, batch, position, hidden, work);
    }
    dyti_region_rewind(work, mark);
    return st;
}

/* Rows that follow each other are normed in one call, straight from where
 * they lie. */
static enum dyt_status norm_chosen(struct dyti_nn *nn,
                                   const struct dyti_nn_weights *weights,
                                   const float *hidden, const int32_t *row,
                                   int64_t rows, float *normed)
{
    int64_t h = nn->model->arch.hidden;
    int64_t first = 0;

    while (first < rows) {
        int64_t end = first + 1;

        while (end < rows && row[end] == row[end - 1] + 1) {
            end++;
        }
        DYTI_NN_TRY(dyti_nn_rmsnorm(nn, hidden + row[first] * h,
                                    weights->final_norm, weights->dtype,
                                    end - first, normed + first * h, NULL));
        first = end;
    }
    return DYT_OK;
}

enum dyt_status dyti_nn_logits(struct dyti_nn *nn,
                               const struct dyti_nn_weights *weights,
                               const float *hidden, const int32_t *row,
                               int64_t rows, float *logits,
                               struct dyti_region *work)
{
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);
    struct dyti_nn_matrix head = {weights->head, weights->dtype, s.vocab, s.h};
    uint64_t mark = dyti_region_mark(work);
    float *normed;
    enum dyt_status st;

    if (rows == 0) {
        return DYT_OK;
    }
    st = DYTI_TAKE(work, &normed, rows * s.h);
    if (st == DYT_OK) {
        st = norm_chosen(nn, weights, hidden, row, rows, normed);
    }
    if (st == DYT_OK) {
        st = dyti_nn_linear(nn, head, normed, rows, logits);
    }
    dyti_region_rewind(work, mark);
    return st;
}
