/* What is not there, by name.  Only the signatures say more than that. */
#include "device/cuda/absent.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

static enum dyt_status absent(const char *entry)
{
    return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                     "the cuda device has no %s: the model's kernels are not "
                     "there yet; run it with devices.kind = \"host\"",
                     entry);
}

enum dyt_status dyti_cuda_no_rmsnorm(void *self, const float *x, const void *w,
                                     enum dyti_dtype w_dtype, float eps,
                                     int64_t rows, int64_t cols, float *y,
                                     float *inv_rms)
{
    return absent("rmsnorm");
}

enum dyt_status dyti_cuda_no_rmsnorm_back(void *self, const float *dy,
                                          const float *x, const void *w,
                                          enum dyti_dtype w_dtype,
                                          const float *inv_rms, int64_t rows,
                                          int64_t cols, float *dx,
                                          bool accumulate, float *dw)
{
    return absent("rmsnorm_back");
}

enum dyt_status dyti_cuda_no_headnorm(void *self, float *x, int64_t ld,
                                      int64_t rows, int64_t heads,
                                      int64_t head_dim, const void *w,
                                      enum dyti_dtype w_dtype, float eps,
                                      float *inv_rms)
{
    return absent("headnorm");
}

enum dyt_status dyti_cuda_no_headnorm_back(void *self, float *dy,
                                           const float *x_in, int64_t ld,
                                           int64_t rows, int64_t heads,
                                           int64_t head_dim, const void *w,
                                           enum dyti_dtype w_dtype,
                                           const float *inv_rms, float *dw)
{
    return absent("headnorm_back");
}

enum dyt_status dyti_cuda_no_add_bias(void *self, float *x, int64_t ld,
                                      int64_t rows, int64_t cols,
                                      const void *bias, enum dyti_dtype dtype)
{
    return absent("add_bias");
}

enum dyt_status dyti_cuda_no_bias_back(void *self, const float *dy, int64_t ld,
                                       int64_t rows, int64_t cols, float *db)
{
    return absent("bias_back");
}

enum dyt_status dyti_cuda_no_rope(void *self, float *x, int64_t ld,
                                  int64_t rows, int64_t heads, int64_t head_dim,
                                  const int32_t *position, const float *table,
                                  bool inverse)
{
    return absent("rope");
}

enum dyt_status dyti_cuda_no_swiglu(void *self, const float *gate_up,
                                    int64_t rows, int64_t f, float *y)
{
    return absent("swiglu");
}

enum dyt_status dyti_cuda_no_swiglu_back(void *self, const float *dy,
                                         const float *gate_up, int64_t rows,
                                         int64_t f, float *dgate_up)
{
    return absent("swiglu_back");
}

enum dyt_status dyti_cuda_no_embed(void *self, const int32_t *ids, int64_t rows,
                                   const void *table, enum dyti_dtype dtype,
                                   int64_t vocab_lo, int64_t vocab_hi,
                                   int64_t cols, float *out)
{
    return absent("embed");
}

enum dyt_status dyti_cuda_no_embed_back(void *self, const int32_t *ids,
                                        int64_t rows, const float *dy,
                                        int64_t vocab_lo, int64_t vocab_hi,
                                        int64_t cols, float *dtable)
{
    return absent("embed_back");
}

enum dyt_status dyti_cuda_no_attention_paged(
    void *self, const float *qkv, int64_t ld, const struct dyti_heads *heads,
    const struct dyti_kv_layer *cache, const struct dyti_paged_batch *batch,
    float scale, float *out)
{
    return absent("attention_paged");
}

enum dyt_status dyti_cuda_no_attention(void *self, const float *qkv, int64_t ld,
                                       const struct dyti_heads *heads,
                                       const struct dyti_packed *packed,
                                       float scale, float *out, float *lse)
{
    return absent("attention");
}

enum dyt_status dyti_cuda_no_attention_back(void *self, const float *dout,
                                            const float *qkv, int64_t ld,
                                            const struct dyti_heads *heads,
                                            const struct dyti_packed *packed,
                                            float scale, const float *out,
                                            const float *lse, float *dqkv)
{
    return absent("attention_back");
}

enum dyt_status dyti_cuda_no_row_max(void *self, const float *logits,
                                     int64_t ld, int64_t rows, int64_t cols,
                                     float scale, float *max)
{
    return absent("row_max");
}

enum dyt_status dyti_cuda_no_row_sums(void *self, const float *logits,
                                      int64_t ld, int64_t rows, int64_t cols,
                                      float scale, const float *max,
                                      const int32_t *target, int64_t vocab_lo,
                                      float *sum_exp, float *sum_zexp,
                                      float *target_z)
{
    return absent("row_sums");
}

enum dyt_status dyti_cuda_no_row_finish(void *self, int64_t rows,
                                        const float *max, const float *sum_exp,
                                        const float *sum_zexp,
                                        const float *target_z, float *lse,
                                        float *logprob, float *entropy)
{
    return absent("row_finish");
}

enum dyt_status dyti_cuda_no_xent_back(void *self, float *logits, int64_t ld,
                                       int64_t rows, int64_t cols, float scale,
                                       const float *lse, const float *entropy,
                                       const int32_t *target, int64_t vocab_lo,
                                       const float *dlogprob,
                                       const float *dentropy)
{
    return absent("xent_back");
}

enum dyt_status dyti_cuda_no_add(void *self, float *y, const float *x,
                                 int64_t count)
{
    return absent("add");
}

enum dyt_status dyti_cuda_no_scale(void *self, float *x, int64_t count, float s)
{
    return absent("scale");
}

enum dyt_status dyti_cuda_no_sum_squares(void *self, const float *x,
                                         int64_t count, double *out_sum)
{
    return absent("sum_squares");
}

enum dyt_status dyti_cuda_no_adamw(void *self, const struct dyti_adamw *how,
                                   int64_t count, const float *grad,
                                   float *master, float *exp_avg,
                                   float *exp_avg_sq, void *param,
                                   enum dyti_dtype param_dtype)
{
    return absent("adamw");
}
