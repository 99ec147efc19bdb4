/* The steps that all passes are made of, over the kernel table and the group.
 */
#include "nn/pass.h"

#include <math.h>

struct dyti_heads dyti_nn_heads(const struct dyti_nn *nn)
{
    const struct dyti_arch *arch = &nn->model->arch;
    const struct dyti_part *part = &nn->part;

    return (struct dyti_heads){.q = part->q_hi - part->q_lo,
                               .kv = part->kv_hi - part->kv_lo,
                               .q_lo = part->q_lo,
                               .kv_lo = part->kv_lo,
                               .group = arch->q_heads / arch->kv_heads,
                               .head_dim = arch->head_dim};
}

float dyti_nn_attention_scale(const struct dyti_nn *nn)
{
    return (float)(1.0 / sqrt((double)nn->model->arch.head_dim));
}

enum dyt_status dyti_nn_check_rows(const struct dyti_nn *nn, int64_t rows,
                                   const int32_t *ids, const int32_t *position)
{
    int64_t vocab = nn->model->arch.vocab;

    for (int64_t r = 0; r < rows; r++) {
        if (position[r] < 0 || position[r] >= nn->rope_positions) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "row %lld is at position %d, past the %lld that "
                             "this model was created for",
                             (long long)r, (int)position[r],
                             (long long)nn->rope_positions);
        }
        if (nn->part.has_embed && (ids[r] < 0 || ids[r] >= vocab)) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "row %lld has id %d, the vocabulary %lld",
                             (long long)r, (int)ids[r], (long long)vocab);
        }
    }
    return DYT_OK;
}

/* y[rows, out] = x[rows, in]·wᵀ (+ y). */
static enum dyt_status times_weights(struct dyti_nn *nn,
                                     struct dyti_nn_matrix m, const float *x,
                                     int64_t rows, float *y, bool accumulate)
{
    struct dyti_gemm gemm = {.m = rows,
                             .n = m.out,
                             .k = m.in,
                             .a = x,
                             .lda = m.in,
                             .b = m.w,
                             .ldb = m.in,
                             .c = y,
                             .ldc = m.out,
                             .b_dtype = m.dtype,
                             .trans_b = true,
                             .accumulate = accumulate};

    return nn->kernels.ops->gemm(nn->kernels.self, &gemm);
}

enum dyt_status dyti_nn_linear(struct dyti_nn *nn, struct dyti_nn_matrix m,
                               const float *x, int64_t rows, float *y)
{
    return times_weights(nn, m, x, rows, y, false);
}

enum dyt_status dyti_nn_linear_dx(struct dyti_nn *nn, struct dyti_nn_matrix m,
                                  const float *dy, int64_t rows, float *dx)
{
    struct dyti_gemm gemm = {.m = rows,
                             .n = m.in,
                             .k = m.out,
                             .a = dy,
                             .lda = m.out,
                             .b = m.w,
                             .ldb = m.in,
                             .c = dx,
                             .ldc = m.in,
                             .b_dtype = m.dtype};

    return nn->kernels.ops->gemm(nn->kernels.self, &gemm);
}

enum dyt_status dyti_nn_linear_dw(struct dyti_nn *nn, int64_t out, int64_t in,
                                  const float *dy, const float *x, int64_t rows,
                                  float *dw)
{
    struct dyti_gemm gemm = {.m = out,
                             .n = in,
                             .k = rows,
                             .a = dy,
                             .lda = out,
                             .b = x,
                             .ldb = in,
                             .c = dw,
                             .ldc = in,
                             .b_dtype = DYTI_F32,
                             .trans_a = true,
                             .accumulate = true};

    return nn->kernels.ops->gemm(nn->kernels.self, &gemm);
}

enum dyt_status dyti_nn_residual(struct dyti_nn *nn, struct dyti_nn_matrix m,
                                 const float *x, int64_t rows,
                                 const float *from, float *to)
{
    bool accumulate = nn->part.tp_rank == 0; /* once among the TP members */

    if (accumulate && from != to) {
        DYTI_NN_TRY(dyti_nn_copy(nn, from, to, rows, m.out));
    }
    DYTI_NN_TRY(times_weights(nn, m, x, rows, to, accumulate));
    return dyti_nn_all_reduce(nn, to, rows * m.out, DYTI_SUM_F32);
}

enum dyt_status dyti_nn_all_reduce(struct dyti_nn *nn, float *x, int64_t count,
                                   enum dyti_reduce op)
{
    if (nn->part.tp_size == 1 || count == 0) {
        return DYT_OK;
    }
    return nn->tp.ops->all_reduce(nn->tp.self, x, (uint64_t)count, op);
}

enum dyt_status dyti_nn_rmsnorm(struct dyti_nn *nn, const float *x,
                                const void *w, enum dyti_dtype dtype,
                                int64_t rows, float *y, float *inv_rms)
{
    const struct dyti_arch *arch = &nn->model->arch;

    return nn->kernels.ops->rmsnorm(nn->kernels.self, x, w, dtype,
                                    (float)arch->rms_eps, rows, arch->hidden, y,
                                    inv_rms);
}

enum dyt_status dyti_nn_copy(struct dyti_nn *nn, const float *from, float *to,
                             int64_t rows, int64_t cols)
{
    int64_t item = (int64_t)sizeof(float), row = cols * item;
    struct dyti_copy copy = {.src = from,
                             .dst = to,
                             .size = {1, 1, rows, cols},
                             .src_stride = {0, 0, row, item},
                             .dst_stride = {0, 0, row, item},
                             .src_dtype = DYTI_F32,
                             .dst_dtype = DYTI_F32};

    return nn->kernels.ops->copy(nn->kernels.self, &copy, 1);
}

enum dyt_status dyti_nn_embed(struct dyti_nn *nn,
                              const struct dyti_nn_weights *weights,
                              const int32_t *ids, int64_t rows, float *out)
{
    int64_t h = nn->model->arch.hidden;

    DYTI_NN_TRY(nn->kernels.ops->embed(
        nn->kernels.self, ids, rows, weights->embed, weights->dtype,
        nn->part.vocab_lo, nn->part.vocab_hi, h, out));
    return dyti_nn_all_reduce(nn, out, rows * h, DYTI_SUM_F32);
}

enum dyt_status dyti_nn_qkv(struct dyti_nn *nn, enum dyti_dtype dtype,
                            const struct dyti_nn_layer *w, const float *normed,
                            int64_t rows, float *qkv)
{
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);
    struct dyti_nn_matrix m = {w->qkv, dtype, s.n_qkv, s.h};

    DYTI_NN_TRY(dyti_nn_linear(nn, m, normed, rows, qkv));
    if (w->qkv_bias == NULL) {
        return DYT_OK;
    }
    return nn->kernels.ops->add_bias(nn->kernels.self, qkv, s.n_qkv, rows,
                                     s.n_qkv, w->qkv_bias, dtype);
}

enum dyt_status dyti_nn_rotate(struct dyti_nn *nn, enum dyti_dtype dtype,
                               const struct dyti_nn_layer *w,
                               const int32_t *position, int64_t rows,
                               float *qkv, float *inv_q, float *inv_k)
{
    const struct dyti_kernel_ops *ops = nn->kernels.ops;
    float eps = (float)nn->model->arch.rms_eps;
    struct dyti_nn_sizes s = dyti_nn_sizes(nn);

    if (w->q_norm != NULL) {
        DYTI_NN_TRY(ops->headnorm(nn->kernels.self, qkv, s.n_qkv, rows, s.q,
                                  s.d, w->q_norm, dtype, eps, inv_q));
        DYTI_NN_TRY(ops->headnorm(nn->kernels.self, qkv + s.n_q, s.n_qkv, rows,
                                  s.kv, s.d, w->k_norm, dtype, eps, inv_k));
    }
    /* k's heads follow q's, so one call turns both. */
    return ops->rope(nn->kernels.self, qkv, s.n_qkv, rows, s.q + s.kv, s.d,
                     position, nn->rope_table, false);
}

void dyti_nn_measure_begin(struct dyti_region *region)
{
    dyti_region_init(region, NULL, UINT64_MAX);
}

uint64_t dyti_nn_measure_end(const struct dyti_region *region)
{
    return region->high_water + 64;
}
