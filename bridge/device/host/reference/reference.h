/* The entries of `dyti_kernels_reference`: what each kernel means, written as
 * the formula, element by element, with sums in double.  One file per family;
 * table.c puts them together.  Contracts: ops/kernels.h. */
#ifndef DYTI_DEVICE_HOST_REFERENCE_H
#define DYTI_DEVICE_HOST_REFERENCE_H

#include "base/num.h"
#include "ops/kernels.h"

/* Element i of a weight or cache array. */
static inline float ref_load(const void *p, enum dyti_dtype dtype, int64_t i)
{
    switch (dtype) {
    case DYTI_F32:
        return ((const float *)p)[i];
    case DYTI_BF16:
        return dyti_bf16_to_f32(((const uint16_t *)p)[i]);
    case DYTI_F16:
        return dyti_f16_to_f32(((const uint16_t *)p)[i]);
    default:
        dyti_require(dtype <= DYTI_F16);
        return 0.0f;
    }
}

static inline void ref_store(void *p, enum dyti_dtype dtype, int64_t i, float x)
{
    switch (dtype) {
    case DYTI_F32:
        ((float *)p)[i] = x;
        break;
    case DYTI_BF16:
        ((uint16_t *)p)[i] = dyti_f32_to_bf16(x);
        break;
    case DYTI_F16:
        ((uint16_t *)p)[i] = dyti_f32_to_f16(x);
        break;
    default:
        dyti_require(dtype <= DYTI_F16);
    }
}

enum dyt_status dyti_reference_gemm(void *self, const struct dyti_gemm *g);

enum dyt_status dyti_reference_rmsnorm(void *self, const float *x,
                                       const void *w, enum dyti_dtype w_dtype,
                                       float eps, int64_t rows, int64_t cols,
                                       float *y, float *inv_rms);
enum dyt_status dyti_reference_rmsnorm_back(void *self, const float *dy,
                                            const float *x, const void *w,
                                            enum dyti_dtype w_dtype,
                                            const float *inv_rms, int64_t rows,
                                            int64_t cols, float *dx,
                                            bool accumulate, float *dw);
enum dyt_status dyti_reference_headnorm(void *self, float *x, int64_t ld,
                                        int64_t rows, int64_t heads,
                                        int64_t head_dim, const void *w,
                                        enum dyti_dtype w_dtype, float eps,
                                        float *inv_rms);
enum dyt_status dyti_reference_headnorm_back(void *self, float *dy,
                                             const float *x_in, int64_t ld,
                                             int64_t rows, int64_t heads,
                                             int64_t head_dim, const void *w,
                                             enum dyti_dtype w_dtype,
                                             const float *inv_rms, float *dw);

enum dyt_status dyti_reference_add_bias(void *self, float *x, int64_t ld,
                                        int64_t rows, int64_t cols,
                                        const void *bias,
                                        enum dyti_dtype dtype);
enum dyt_status dyti_reference_bias_back(void *self, const float *dy,
                                         int64_t ld, int64_t rows, int64_t cols,
                                         float *db);
enum dyt_status dyti_reference_rope(void *self, float *x, int64_t ld,
                                    int64_t rows, int64_t heads,
                                    int64_t head_dim, const int32_t *position,
                                    const float *table, bool inverse);
enum dyt_status dyti_reference_swiglu(void *self, const float *gate_up,
                                      int64_t rows, int64_t f, float *y);
enum dyt_status dyti_reference_swiglu_back(void *self, const float *dy,
                                           const float *gate_up, int64_t rows,
                                           int64_t f, float *dgate_up);

enum dyt_status dyti_reference_embed(void *self, const int32_t *ids,
                                     int64_t rows, const void *table,
                                     enum dyti_dtype dtype, int64_t vocab_lo,
                                     int64_t vocab_hi, int64_t cols,
                                     float *out);
enum dyt_status dyti_reference_embed_back(void *self, const int32_t *ids,
                                          int64_t rows, const float *dy,
                                          int64_t vocab_lo, int64_t vocab_hi,
                                          int64_t cols, float *dtable);
enum dyt_status dyti_reference_row_max(void *self, const float *logits,
                                       int64_t ld, int64_t rows, int64_t cols,
                                       float scale, float *max);
enum dyt_status dyti_reference_row_sums(void *self, const float *logits,
                                        int64_t ld, int64_t rows, int64_t cols,
                                        float scale, const float *max,
                                        const int32_t *target, int64_t vocab_lo,
                                        float *sum_exp, float *sum_zexp,
                                        float *target_z);
enum dyt_status dyti_reference_row_finish(void *self, int64_t rows,
                                          const float *max,
                                          const float *sum_exp,
                                          const float *sum_zexp,
                                          const float *target_z, float *lse,
                                          float *logprob, float *entropy);
enum dyt_status dyti_reference_xent_back(
    void *self, float *logits, int64_t ld, int64_t rows, int64_t cols,
    float scale, const float *lse, const float *entropy, const int32_t *target,
    int64_t vocab_lo, const float *dlogprob, const float *dentropy);

enum dyt_status dyti_reference_attention_paged(
    void *self, const float *qkv, int64_t ld, const struct dyti_heads *heads,
    const struct dyti_kv_layer *cache, const struct dyti_paged_batch *batch,
    float scale, float *out);
enum dyt_status dyti_reference_attention(void *self, const float *qkv,
                                         int64_t ld,
                                         const struct dyti_heads *heads,
                                         const struct dyti_packed *packed,
                                         float scale, float *out, float *lse);
enum dyt_status dyti_reference_attention_back(void *self, const float *dout,
                                              const float *qkv, int64_t ld,
                                              const struct dyti_heads *heads,
                                              const struct dyti_packed *packed,
                                              float scale, const float *out,
                                              const float *lse, float *dqkv);

enum dyt_status dyti_reference_add(void *self, float *y, const float *x,
                                   int64_t count);
enum dyt_status dyti_reference_scale(void *self, float *x, int64_t count,
                                     float s);
enum dyt_status dyti_reference_sum_squares(void *self, const float *x,
                                           int64_t count, double *out_sum);
enum dyt_status dyti_reference_adamw(void *self, const struct dyti_adamw *how,
                                     int64_t count, const float *grad,
                                     float *master, float *exp_avg,
                                     float *exp_avg_sq, void *param,
                                     enum dyti_dtype param_dtype);

enum dyt_status dyti_reference_copy(void *self, const struct dyti_copy *copy,
                                    size_t count);
enum dyt_status dyti_reference_hash(void *self, const struct dyti_hash_box *box,
                                    size_t count, uint64_t *out_hash);

#endif /* DYTI_DEVICE_HOST_REFERENCE_H */
