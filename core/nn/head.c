/* How likely was the token that came next?  Final norm, head and cross-entropy
 * of a chunk of rows over a vocabulary cut between TP members, and back. */
#include "nn/pass.h"

struct head_work {
    float *max; /* [rows] */
    float *sum; /* [3, rows]: exp, z * exp, z of the target; one all-reduce */
};

static enum dyt_status take_chunk(const struct dyti_nn *nn, int64_t rows,
                                  struct dyti_region *region,
                                  struct dyti_nn_head_chunk *chunk)
{
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);

    DYTI_NN_TRY(DYTI_TAKE(region, &chunk->normed, rows * s.h));
    DYTI_NN_TRY(DYTI_TAKE(region, &chunk->inv_rms, rows));
    DYTI_NN_TRY(DYTI_TAKE(region, &chunk->lse, rows));
    DYTI_NN_TRY(DYTI_TAKE(region, &chunk->logits, rows * s.vocab));
    return DYT_OK;
}

static enum dyt_status take_work(int64_t rows, struct dyti_region *region,
                                 struct head_work *out)
{
    DYTI_NN_TRY(DYTI_TAKE(region, &out->max, rows));
    DYTI_NN_TRY(DYTI_TAKE(region, &out->sum, 3 * rows));
    return DYT_OK;
}

uint64_t dyti_nn_head_bytes(const struct dyti_nn *nn, int64_t rows)
{
    struct dyti_nn_head_chunk chunk = {0};
    struct dyti_region region;
    struct head_work work;
    uint64_t mark;
    float *dnormed;

    dyti_nn_measure_begin(&region);
    if (take_chunk(nn, rows, &region, &chunk) != DYT_OK) {
        return UINT64_MAX;
    }
    mark = dyti_region_mark(&region);
    if (take_work(rows, &region, &work) != DYT_OK) {
        return UINT64_MAX;
    }
    dyti_region_rewind(&region, mark);
    if (DYTI_TAKE(&region, &dnormed, rows * nn->model->arch.hidden) != DYT_OK) {
        return UINT64_MAX;
    }
    return dyti_nn_measure_end(&region);
}

static enum dyt_status statistics(struct dyti_nn *nn,
                                  struct dyti_nn_head_chunk *chunk,
                                  const struct head_work *work)
{
    const struct dyti_kernel_ops *ops = nn->kernels.ops;
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);
    int64_t rows = chunk->rows;

    DYTI_NN_TRY(ops->row_max(nn->kernels.self, chunk->logits, s.vocab, rows,
                             s.vocab, chunk->scale, work->max));
    DYTI_NN_TRY(dyti_nn_all_reduce(nn, work->max, rows, DYTI_MAX_F32));
    DYTI_NN_TRY(ops->row_sums(nn->kernels.self, chunk->logits, s.vocab, rows,
                              s.vocab, chunk->scale, work->max, chunk->target,
                              nn->part.vocab_lo, work->sum, work->sum + rows,
                              work->sum + 2 * rows));
    return dyti_nn_all_reduce(nn, work->sum, 3 * rows, DYTI_SUM_F32);
}

static enum dyt_status finish(struct dyti_nn *nn,
                              struct dyti_nn_head_chunk *chunk,
                              const struct head_work *work)
{
    const float *sum_exp = work->sum, *sum_zexp = sum_exp + chunk->rows;

    return nn->kernels.ops->row_finish(
        nn->kernels.self, chunk->rows, work->max, sum_exp, sum_zexp,
        sum_zexp + chunk->rows, chunk->lse, chunk->logprob, chunk->entropy);
}

static enum dyt_status run(struct dyti_nn *nn,
                           const struct dyti_nn_weights *weights,
                           struct dyti_nn_head_chunk *chunk,
                           struct dyti_region *region)
{
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);
    struct dyti_nn_matrix head = {weights->head, weights->dtype, s.vocab, s.h};
    struct head_work work;
    uint64_t mark;

    DYTI_NN_TRY(take_chunk(nn, chunk->rows, region, chunk));
    mark = dyti_region_mark(region);
    DYTI_NN_TRY(take_work(chunk->rows, region, &work));
    DYTI_NN_TRY(dyti_nn_rmsnorm(nn, chunk->hidden, weights->final_norm,
                                weights->dtype, chunk->rows, chunk->normed,
                                chunk->inv_rms));
    DYTI_NN_TRY(
        dyti_nn_linear(nn, head, chunk->normed, chunk->rows, chunk->logits));
    DYTI_NN_TRY(statistics(nn, chunk, &work));
    DYTI_NN_TRY(finish(nn, chunk, &work));
    dyti_region_rewind(region, mark);
    return DYT_OK;
}

enum dyt_status dyti_nn_head_forward(struct dyti_nn *nn,
                                     const struct dyti_nn_weights *weights,
                                     struct dyti_nn_head_chunk *chunk,
                                     struct dyti_region *work)
{
    uint64_t mark = dyti_region_mark(work);
    enum dyt_status st;

    if (!nn->part.has_head) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "pipeline stage %u has no head: only the last one has",
                         (unsigned)nn->part.pp_rank);
    }
    if (chunk->rows == 0) {
        return DYT_OK;
    }
    st = run(nn, weights, chunk, work);
    if (st != DYT_OK) {
        dyti_region_rewind(work, mark);
    }
    return st;
}

static enum dyt_status run_back(struct dyti_nn *nn,
                                const struct dyti_nn_weights *weights,
                                const struct dyti_nn_weights *grads,
                                const struct dyti_nn_head_chunk *chunk,
                                const float *dlogprob, const float *dentropy,
                                float *dhidden, struct dyti_region *region)
{
    const struct dyti_kernel_ops *ops = nn->kernels.ops;
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);
    struct dyti_nn_matrix head = {weights->head, weights->dtype, s.vocab, s.h};
    int64_t rows = chunk->rows;
    float *dnormed;

    DYTI_NN_TRY(DYTI_TAKE(region, &dnormed, rows * s.h));
    DYTI_NN_TRY(ops->xent_back(nn->kernels.self, chunk->logits, s.vocab, rows,
                               s.vocab, chunk->scale, chunk->lse,
                               chunk->entropy, chunk->target, nn->part.vocab_lo,
                               dlogprob, dentropy));
    DYTI_NN_TRY(dyti_nn_linear_dw(nn, s.vocab, s.h, chunk->logits,
                                  chunk->normed, rows,
                                  (float *)(uintptr_t)grads->head));
    DYTI_NN_TRY(dyti_nn_linear_dx(nn, head, chunk->logits, rows, dnormed));
    DYTI_NN_TRY(dyti_nn_all_reduce(nn, dnormed, rows * s.h, DYTI_SUM_F32));
    return ops->rmsnorm_back(nn->kernels.self, dnormed, chunk->hidden,
                             weights->final_norm, weights->dtype,
                             chunk->inv_rms, rows, s.h, dhidden, false,
                             (float *)(uintptr_t)grads->final_norm);
}

enum dyt_status dyti_nn_head_backward(struct dyti_nn *nn,
                                      const struct dyti_nn_weights *weights,
                                      const struct dyti_nn_weights *grads,
                                      const struct dyti_nn_head_chunk *chunk,
                                      const float *dlogprob,
                                      const float *dentropy, float *dhidden,
                                      struct dyti_region *work)
{
    uint64_t mark = dyti_region_mark(work);
    enum dyt_status st = DYT_OK;

    if (!nn->part.has_head || grads->dtype != DYTI_F32) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "a head's backward pass wants the last pipeline stage "
                         "and f32 gradients, not stage %u and %s",
                         (unsigned)nn->part.pp_rank,
                         dyti_dtype_name(grads->dtype));
    }
    if (chunk->rows > 0) {
        st = run_back(nn, weights, grads, chunk, dlogprob, dentropy, dhidden,
                      work);
    }
    dyti_region_rewind(work, mark);
    return st;
}
