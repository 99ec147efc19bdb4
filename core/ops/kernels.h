/* The arithmetic of a rank.  Implemented by bridge/device/<name>, handed in by
 * cli/.  `host` is the fast one, `reference` the slow obvious one with the same
 * table; each entry has one test that runs both.
 *
 * Terms
 *   activations are f32; weights are f32 or bf16 ("w" with its dtype);
 * gradients and optimizer state are f32 [rows, cols]    row-major and dense
 * unless a leading dimension ld (elements) is given V_r, V          vocabulary
 * rows of this rank, of all
 *
 * Rules for all functions of the table
 *   threads  one handle is used by one thread at a time; work is spread over
 *            the handle's pool in tiles whose borders do not depend on the
 *            number of threads, so results do not either
 *   memory   no allocation but for scratch that grows once and is kept
 *   errors   arguments are our own and are asserted, not reported; the device
 *            can fail: DYT_ERR_DEVICE, DYT_ERR_NOMEM
 */
#ifndef DYTI_OPS_KERNELS_H
#define DYTI_OPS_KERNELS_H

#include "base/dtype.h"
#include "base/error.h"
#include "base/pool.h"

#include <stdbool.h>
#include <stdint.h>

struct dyti_kernel_params {
    uint32_t struct_size;
    struct dyti_pool *pool; /* borrowed until close; NULL = one thread */
    const char *isa; /* NULL = the best this machine has; "scalar", "avx2",
                        "avx512", "avx512_bf16"; one that is not there is
                        refused by name */
};

/* c[m,n] = a·b (+ c if accumulate).  Transposed means stored the other way:
 *   a [m,k] ld >= k, or trans_a: stored [k,m] ld >= m
 *   b [k,n] ld >= n, or trans_b: stored [n,k] ld >= k
 * b may be bf16 (weights); a and c are f32. Not both transposed. */
struct dyti_gemm {
    int64_t m, n, k;
    const float *a;
    int64_t lda;
    const void *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
    enum dyti_dtype b_dtype; /* F32 or BF16 */
    bool trans_a, trans_b, accumulate;
};

/* KV cache of one layer in blocks: element (block, position in block, head,
 * d) of K lies at k[((block * block_size + position) * kv_heads + head) *
 * head_dim + d], V likewise. */
struct dyti_kv_layer {
    void *k, *v;
    enum dyti_dtype dtype; /* F32 or BF16 */
    int64_t block_size;    /* positions in a block */
};

/* Rows of one pass over the cache: sequence s owns rows [row_first[s],
 * row_first[s+1]), the last of its `context[s]` positions; its position p lies
 * in block_table[table_first[s] + p / block_size].  Causal: row j of a sequence
 * with n rows sees positions < context - n + j + 1. */
struct dyti_paged_batch {
    int64_t sequence_count, row_count;
    const int32_t *row_first;   /* [sequence_count + 1] */
    const int32_t *context;     /* [sequence_count], new rows included */
    const int32_t *table_first; /* [sequence_count] */
    const int32_t *block_table;
};

/* Heads of this rank: query head i (0-based, local) reads local KV head
 * (q_lo + i) / group - kv_lo, with group = q_heads / kv_heads of the model. */
struct dyti_heads {
    int64_t q, kv;       /* local counts */
    int64_t q_lo, kv_lo; /* first global head */
    int64_t group, head_dim;
};

/* Packed sequences: sequence s owns rows [first[s], first[s+1]).
 *
 * Sequences that begin alike share what they have in common: with prefix[s] =
 * p, the rows of sequence s follow those of sequence p, see all of them, and
 * add to their gradients.  p itself has no prefix, and the sequences that
 * follow it stand right behind it: p, p + 1, …  A sequence may have no rows. */
struct dyti_packed {
    int64_t sequence_count, row_count;
    const int32_t *first;  /* [sequence_count + 1] */
    const int32_t *prefix; /* [sequence_count], -1 = none; NULL: all none */
};

/* Rows of others that sequence s sees before its own; *out_first is the first
 * of them. */
static inline int64_t dyti_packed_prefix(const struct dyti_packed *packed,
                                         int64_t s, int64_t *out_first)
{
    int32_t p = packed->prefix == NULL ? -1 : packed->prefix[s];

    *out_first = p < 0 ? 0 : packed->first[p];
    return p < 0 ? 0 : packed->first[p + 1] - packed->first[p];
}

struct dyti_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    float bias1, bias2; /* 1 - beta^t */
    float grad_scale;   /* clipping: gradients are multiplied by it */
};

#define DYTI_COPY_DIMS 4u

/* A strided copy with conversion, to nearest even when narrowing; strides in
 * bytes; dims from slow to fast; unused leading dims have size 1. */
struct dyti_copy {
    const void *src;
    void *dst;
    int64_t size[DYTI_COPY_DIMS];
    int64_t src_stride[DYTI_COPY_DIMS];
    int64_t dst_stride[DYTI_COPY_DIMS];
    uint8_t src_dtype, dst_dtype; /* enum dyti_dtype */
};

/* Elements of a shard to hash: same shape as a copy; `index` is the row-major
 * index in the whole tensor of the first element, index_stride in elements. */
struct dyti_hash_box {
    const void *data;
    int64_t size[DYTI_COPY_DIMS];
    int64_t stride[DYTI_COPY_DIMS];       /* bytes */
    int64_t index_stride[DYTI_COPY_DIMS]; /* elements of the whole tensor */
    uint64_t index, salt;
    uint8_t dtype;
};

struct dyti_kernel_ops {
    uint32_t struct_size;
    const char *name; /* "host", "reference", "cuda" */

    enum dyt_status (*open)(const struct dyti_kernel_params *params,
                            void **out_self);
    void (*close)(void *self);
    /* The instruction set that dispatch chose: "avx512_bf16", …  Static. */
    const char *(*isa)(void *self);

    enum dyt_status (*gemm)(void *self, const struct dyti_gemm *gemm);

    /* y = x / sqrt(mean(x²) + eps) * w over each row; inv_rms[rows] kept for
     * the backward pass (NULL: not wanted).  y may be x. */
    enum dyt_status (*rmsnorm)(void *self, const float *x, const void *w,
                               enum dyti_dtype w_dtype, float eps, int64_t rows,
                               int64_t cols, float *y, float *inv_rms);
    /* dx[rows,cols] = or += (accumulate); dw[cols] += over rows in order.
     * dx may be dy when not accumulating. */
    enum dyt_status (*rmsnorm_back)(void *self, const float *dy, const float *x,
                                    const void *w, enum dyti_dtype w_dtype,
                                    const float *inv_rms, int64_t rows,
                                    int64_t cols, float *dx, bool accumulate,
                                    float *dw);

    /* Same over each head of a fused matrix in place (Qwen3's q/k norm):
     * x row r, head i at x + r*ld + i*head_dim; inv_rms[rows*heads]. */
    enum dyt_status (*headnorm)(void *self, float *x, int64_t ld, int64_t rows,
                                int64_t heads, int64_t head_dim, const void *w,
                                enum dyti_dtype w_dtype, float eps,
                                float *inv_rms);
    /* x_in: the values before the norm, same layout; dx in place of dy. */
    enum dyt_status (*headnorm_back)(void *self, float *dy, const float *x_in,
                                     int64_t ld, int64_t rows, int64_t heads,
                                     int64_t head_dim, const void *w,
                                     enum dyti_dtype w_dtype,
                                     const float *inv_rms, float *dw);

    /* x[r*ld + i] += bias[i], i < cols. */
    enum dyt_status (*add_bias)(void *self, float *x, int64_t ld, int64_t rows,
                                int64_t cols, const void *bias,
                                enum dyti_dtype dtype);
    /* db[i] += sum over rows in order. */
    enum dyt_status (*bias_back)(void *self, const float *dy, int64_t ld,
                                 int64_t rows, int64_t cols, float *db);

    /* Rotate heads in place, half-split convention of Hugging Face: (x[i],
     * x[i + d/2]).  table[position][2][d/2] holds cos then sin.  inverse: the
     * backward pass. */
    enum dyt_status (*rope)(void *self, float *x, int64_t ld, int64_t rows,
                            int64_t heads, int64_t head_dim,
                            const int32_t *position, const float *table,
                            bool inverse);

    /* y[rows,f] = silu(gate)*up of gate_up [rows, 2f] = [gate | up]. */
    enum dyt_status (*swiglu)(void *self, const float *gate_up, int64_t rows,
                              int64_t f, float *y);
    enum dyt_status (*swiglu_back)(void *self, const float *dy,
                                   const float *gate_up, int64_t rows,
                                   int64_t f, float *dgate_up);

    /* out[r] = table[ids[r] - vocab_lo], zeros where the id is not ours. */
    enum dyt_status (*embed)(void *self, const int32_t *ids, int64_t rows,
                             const void *table, enum dyti_dtype dtype,
                             int64_t vocab_lo, int64_t vocab_hi, int64_t cols,
                             float *out);
    /* dtable[id - vocab_lo] += dy[r], rows in order. */
    enum dyt_status (*embed_back)(void *self, const int32_t *ids, int64_t rows,
                                  const float *dy, int64_t vocab_lo,
                                  int64_t vocab_hi, int64_t cols,
                                  float *dtable);

    /* Store this pass's K and V rows (of the fused matrix qkv [rows, ld], K at
     * column q*d, V at (q+kv)*d) into the cache, then out[rows, q*d] =
     * attention over the cache.  Never builds an S x S matrix. */
    enum dyt_status (*attention_paged)(void *self, const float *qkv, int64_t ld,
                                       const struct dyti_heads *heads,
                                       const struct dyti_kv_layer *cache,
                                       const struct dyti_paged_batch *batch,
                                       float scale, float *out);
    /* Causal attention within packed sequences; lse[rows, q] kept for the
     * backward pass (NULL: not wanted). */
    enum dyt_status (*attention)(void *self, const float *qkv, int64_t ld,
                                 const struct dyti_heads *heads,
                                 const struct dyti_packed *packed, float scale,
                                 float *out, float *lse);
    /* dqkv [rows, ld] = gradients of q, k, v (all columns written). */
    enum dyt_status (*attention_back)(void *self, const float *dout,
                                      const float *qkv, int64_t ld,
                                      const struct dyti_heads *heads,
                                      const struct dyti_packed *packed,
                                      float scale, const float *out,
                                      const float *lse, float *dqkv);

    /* Statistics of z = logits[r] * scale over this rank's V_r columns, for
     * cross-entropy over a vocabulary cut between ranks:
     *   row_max: max z   (pass 1)
     *   row_sums, given the max over all ranks: sum exp(z - max), sum z *
     *   exp(z - max), and z of the target if vocab_lo <= target < vocab_lo +
     *   V_r else 0 (pass 2); all f32 sums in column order of fixed lanes. */
    enum dyt_status (*row_max)(void *self, const float *logits, int64_t ld,
                               int64_t rows, int64_t cols, float scale,
                               float *max);
    enum dyt_status (*row_sums)(void *self, const float *logits, int64_t ld,
                                int64_t rows, int64_t cols, float scale,
                                const float *max, const int32_t *target,
                                int64_t vocab_lo, float *sum_exp,
                                float *sum_zexp, float *target_z);
    /* Pass 3, from sums over all ranks: lse = max + ln(sum_exp), logprob =
     * target_z - lse, entropy = -Σ p ln p = lse - sum_zexp / sum_exp; in f64,
     * rounded once. */
    enum dyt_status (*row_finish)(void *self, int64_t rows, const float *max,
                                  const float *sum_exp, const float *sum_zexp,
                                  const float *target_z, float *lse,
                                  float *logprob, float *entropy);
    /* In place: logits -> d logits, for L = Σ dlogprob·logprob(target) +
     * dentropy·entropy, p = exp(z - lse):
     *   scale * (dlogprob·(1[target] - p) - dentropy·p·(z - lse + entropy)) */
    enum dyt_status (*xent_back)(void *self, float *logits, int64_t ld,
                                 int64_t rows, int64_t cols, float scale,
                                 const float *lse, const float *entropy,
                                 const int32_t *target, int64_t vocab_lo,
                                 const float *dlogprob, const float *dentropy);

    /* y += x; x *= s. */
    enum dyt_status (*add)(void *self, float *y, const float *x, int64_t count);
    enum dyt_status (*scale)(void *self, float *x, int64_t count, float s);
    /* Σ x², in f64, in a fixed order. */
    enum dyt_status (*sum_squares)(void *self, const float *x, int64_t count,
                                   double *out_sum);
    /* Decoupled decay, bias correction (PyTorch's AdamW); then param (f32 or
     * bf16; NULL: not wanted) = master rounded to nearest even. */
    enum dyt_status (*adamw)(void *self, const struct dyti_adamw *how,
                             int64_t count, const float *grad, float *master,
                             float *exp_avg, float *exp_avg_sq, void *param,
                             enum dyti_dtype param_dtype);

    /* Many strided copies, spread over the pool by bytes. */
    enum dyt_status (*copy)(void *self, const struct dyti_copy *copy,
                            size_t count);
    /* out_hash[i] += content hash of box i (base/hash.h). */
    enum dyt_status (*hash)(void *self, const struct dyti_hash_box *box,
                            size_t count, uint64_t *out_hash);
};

/* Kernels as rooms get them. */
struct dyti_kernels {
    const struct dyti_kernel_ops *ops;
    void *self;
};

#endif /* DYTI_OPS_KERNELS_H */
