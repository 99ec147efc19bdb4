/* The handle of the fast host kernels and its entries, one file kernel_*.c per
 * family.  They cut the work into tiles whose borders depend on shapes only and
 * run them on the pool; one tile is simd/'s.  Contracts: ops/kernels.h. */
#ifndef DYTI_DEVICE_HOST_KERNELS_H
#define DYTI_DEVICE_HOST_KERNELS_H

#include "device/host/isa.h"
#include "device/host/simd/simd.h"
#include "ops/kernels.h"

struct host {
    struct dyti_pool *pool; /* borrowed */
    uint32_t threads;
    enum host_isa isa;
    const struct host_simd *simd;
    /* oneDNN chooses its own instruction set, the machine's best: it is used
     * only where that is the one asked for. */
    bool onednn;
    void **scratch; /* [threads], 64-byte aligned; a tile owns its thread's */
    size_t scratch_bytes;
    void *shared; /* of all tiles: partial sums */
    size_t shared_bytes;
};

enum dyt_status dyti_host_open(const struct dyti_kernel_params *params,
                               void **out_self);
void dyti_host_close(void *self);
const char *dyti_host_isa(void *self);

/* Grow every thread's scratch to `bytes`.  Not from within a tile. */
enum dyt_status dyti_host_scratch(struct host *host, size_t bytes);

/* Grow the memory that all tiles share.  Not from within a tile. */
enum dyt_status dyti_host_shared(struct host *host, size_t bytes);

/* So many rows that a tile is worth a thread, from their elements only. */
int64_t dyti_host_rows_per_tile(int64_t row_elements);

static inline int64_t host_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t host_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* a / b, rounded up. */
static inline int64_t host_parts(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

enum dyt_status dyti_host_gemm(void *self, const struct dyti_gemm *g);

enum dyt_status dyti_host_rmsnorm(void *self, const float *x, const void *w,
                                  enum dyti_dtype w_dtype, float eps,
                                  int64_t rows, int64_t cols, float *y,
                                  float *inv_rms);
enum dyt_status dyti_host_rmsnorm_back(void *self, const float *dy,
                                       const float *x, const void *w,
                                       enum dyti_dtype w_dtype,
                                       const float *inv_rms, int64_t rows,
                                       int64_t cols, float *dx, bool accumulate,
                                       float *dw);
enum dyt_status dyti_host_headnorm(void *self, float *x, int64_t ld,
                                   int64_t rows, int64_t heads,
                                   int64_t head_dim, const void *w,
                                   enum dyti_dtype w_dtype, float eps,
                                   float *inv_rms);
enum dyt_status dyti_host_headnorm_back(void *self, float *dy,
                                        const float *x_in, int64_t ld,
                                        int64_t rows, int64_t heads,
                                        int64_t head_dim, const void *w,
                                        enum dyti_dtype w_dtype,
                                        const float *inv_rms, float *dw);

enum dyt_status dyti_host_add_bias(void *self, float *x, int64_t ld,
                                   int64_t rows, int64_t cols, const void *bias,
                                   enum dyti_dtype dtype);
enum dyt_status dyti_host_bias_back(void *self, const float *dy, int64_t ld,
                                    int64_t rows, int64_t cols, float *db);
enum dyt_status dyti_host_rope(void *self, float *x, int64_t ld, int64_t rows,
                               int64_t heads, int64_t head_dim,
                               const int32_t *position, const float *table,
                               bool inverse);
enum dyt_status dyti_host_swiglu(void *self, const float *gate_up, int64_t rows,
                                 int64_t f, float *y);
enum dyt_status dyti_host_swiglu_back(void *self, const float *dy,
                                      const float *gate_up, int64_t rows,
                                      int64_t f, float *dgate_up);

enum dyt_status dyti_host_embed(void *self, const int32_t *ids, int64_t rows,
                                const void *table, enum dyti_dtype dtype,
                                int64_t vocab_lo, int64_t vocab_hi,
                                int64_t cols, float *out);
enum dyt_status dyti_host_embed_back(void *self, const int32_t *ids,
                                     int64_t rows, const float *dy,
                                     int64_t vocab_lo, int64_t vocab_hi,
                                     int64_t cols, float *dtable);
enum dyt_status dyti_host_row_max(void *self, const float *logits, int64_t ld,
                                  int64_t rows, int64_t cols, float scale,
                                  float *max);
enum dyt_status dyti_host_row_sums(void *self, const float *logits, int64_t ld,
                                   int64_t rows, int64_t cols, float scale,
                                   const float *max, const int32_t *target,
                                   int64_t vocab_lo, float *sum_exp,
                                   float *sum_zexp, float *target_z);
enum dyt_status dyti_host_row_finish(void *self, int64_t rows, const float *max,
                                     const float *sum_exp,
                                     const float *sum_zexp,
                                     const float *target_z, float *lse,
                                     float *logprob, float *entropy);
enum dyt_status dyti_host_xent_back(void *self, float *logits, int64_t ld,
                                    int64_t rows, int64_t cols, float scale,
                                    const float *lse, const float *entropy,
                                    const int32_t *target, int64_t vocab_lo,
                                    const float *dlogprob,
                                    const float *dentropy);

enum dyt_status dyti_host_attention_paged(void *self, const float *qkv,
                                          int64_t ld,
                                          const struct dyti_heads *heads,
                                          const struct dyti_kv_layer *cache,
                                          const struct dyti_paged_batch *batch,
                                          float scale, float *out);
enum dyt_status dyti_host_attention(void *self, const float *qkv, int64_t ld,
                                    const struct dyti_heads *heads,
                                    const struct dyti_packed *packed,
                                    float scale, float *out, float *lse);
enum dyt_status dyti_host_attention_back(void *self, const float *dout,
                                         const float *qkv, int64_t ld,
                                         const struct dyti_heads *heads,
                                         const struct dyti_packed *packed,
                                         float scale, const float *out,
                                         const float *lse, float *dqkv);

enum dyt_status dyti_host_add(void *self, float *y, const float *x,
                              int64_t count);
enum dyt_status dyti_host_scale(void *self, float *x, int64_t count, float s);
enum dyt_status dyti_host_sum_squares(void *self, const float *x, int64_t count,
                                      double *out_sum);
enum dyt_status dyti_host_adamw(void *self, const struct dyti_adamw *how,
                                int64_t count, const float *grad, float *master,
                                float *exp_avg, float *exp_avg_sq, void *param,
                                enum dyti_dtype param_dtype);

enum dyt_status dyti_host_copy(void *self, const struct dyti_copy *copy,
                               size_t count);
enum dyt_status dyti_host_copy_past(void *self, const struct dyti_copy *copy,
                                    size_t count);
enum dyt_status dyti_host_hash(void *self, const struct dyti_hash_box *box,
                               size_t count, uint64_t *out_hash);

#endif /* DYTI_DEVICE_HOST_KERNELS_H */
