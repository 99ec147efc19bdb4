/* The arithmetic of a rank.  Implemented by bridge/device/<name>, handed in by
 * cli/.  `host` is the fast one, `reference` the slow obvious one with the same
 * table; each entry has one test that runs both.
 *
 * Terms
 *   activations     f32
 *   weights         f32 or bf16 ("w" with its dtype)
 *   gradients and optimizer state   f32
 *   [rows, cols]    row-major and dense unless a leading dimension ld
 *                   (elements) is given
 *   V_r, V          vocabulary rows of this rank, of all
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
#include <string.h>

struct dyti_kernel_params {
    uint32_t struct_size;
    struct dyti_pool *pool; /* borrowed until close; NULL = one thread */
    const char *isa;    /* NULL = the best this machine has; "scalar", "avx2",
                           "avx512", "avx512_bf16"; one that is not there is
                           refused by name */
    const char *device; /* a device: its UUID; NULL = the only one.  Borrowed
                           for the call; the host has no use for it */
    bool tf32; /* a device: products of f32 may be of TF32, 10 bits each */
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
    enum dyti_dtype b_dtype; /* F32 or BF16; cuda: or F16 */
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

/* What one rank sends another: boxes one after the other, each row by row, in
 * the destination's dtypes.  Plain value; arrays are borrowed. */
struct dyti_stream_boxes {
    const struct dyti_copy *box; /* [box_count] */
    const uint64_t *at; /* [box_count + 1] byte of the stream where box i
                           begins; the last is the stream's length */
    uint32_t box_count;
    bool past_caches; /* what is unpacked is, with copy_past */
};

/* Copies that are made ready once and run many times.  Of one handle. */
struct dyti_copy_list;
struct dyti_sample; /* ops/sample.h */
struct dyti_sample_list;

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

/* What a table's entries may be given: any memory of this process.  Without it:
 * the device's own, peers' that are mapped, and pinned host memory
 * (ops/memory.h); but results that are returned by value or to `out_…` come to
 * ordinary memory, and arrays that describe work are read from there. */
#define DYTI_KERNELS_ANY_MEMORY 1u

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

    /* ---- devices ----------------------------------------------------------
     * Entries of a device queue their work and come back; the work of a handle
     * is done in the order in which it was queued.  What describes it has been
     * read when they are back.  Entries with a result on the host (hash,
     * sum_squares) wait for it.  An error of what is under way is returned by
     * whoever meets it first, and by all from then on.
     *
     * All of these are NULL on the host, where everything is done at once; the
     * helpers below know that. */

    uint32_t caps; /* DYTI_KERNELS_… */
    /* Until all that was queued is done; its errors are named. */
    enum dyt_status (*wait)(void *self);
    /* A mark behind all that was queued so far, and whether work has come past
     * it: DYT_OK, DYT_PENDING, or the error of the work before it.  Marks are
     * numbers that only grow; any number may be under way. */
    enum dyt_status (*mark)(void *self, uint64_t *out_mark);
    enum dyt_status (*passed)(void *self, uint64_t mark);
    /* The device's own queue (CUDA: a cudaStream_t), for groups that queue
     * there as well.  Borrowed until close. */
    void *(*stream)(void *self);

    /* Lists.  What a list copies is fixed when it is made, and is given to the
     * device once: running it sends no more than a launch.  No copy of a list
     * may write what another of it reads or writes.
     *   make            these copies
     *   pack / unpack   bytes [lo, hi) of a stream to / from `dense`, which may
     *                   begin at any address (exec/pack.h says which bytes)
     *   free            NULL is fine; work of it may be under way */
    enum dyt_status (*list_make)(void *self, const struct dyti_copy *copy,
                                 size_t count,
                                 struct dyti_copy_list **out_list);
    enum dyt_status (*list_pack)(void *self,
                                 const struct dyti_stream_boxes *stream,
                                 uint64_t lo, uint64_t hi, void *dense,
                                 struct dyti_copy_list **out_list);
    enum dyt_status (*list_unpack)(void *self,
                                   const struct dyti_stream_boxes *stream,
                                   uint64_t lo, uint64_t hi, const void *dense,
                                   struct dyti_copy_list **out_list);
    enum dyt_status (*list_run)(void *self, struct dyti_copy_list *list);
    void (*list_free)(void *self, struct dyti_copy_list *list);

    /* Every byte of [ptr, ptr + bytes) becomes `value`. */
    enum dyt_status (*fill)(void *self, void *ptr, uint64_t bytes,
                            uint8_t value);
    /* Bytes between any memory of this process and the device's, or within
     * either; done at return. */
    enum dyt_status (*carry)(void *self, void *dst, const void *src,
                             uint64_t bytes);

    /* What is queued from now on comes after all that is in somebody else's
     * queue by now (CUDA: a cudaStream_t of this device, NULL: its default
     * stream), or after somebody's mark in one (a cudaEvent_t).  The host waits
     * for neither. */
    enum dyt_status (*after_stream)(void *self, void *stream);
    enum dyt_status (*after_event)(void *self, void *event);

    /* Ranges as the device's own tools show them; ranges nest. */
    void (*range_push)(void *self, const char *name);
    void (*range_pop)(void *self);

    /* Samples (ops/sample.h) that are given to the device once, as lists are.
     *   run   out_hash[i] += content hash of what the seed draws of sample i,
     *         for all of the list; waits for it
     *   free  NULL is fine */
    enum dyt_status (*sample_make)(void *self, const struct dyti_sample *sample,
                                   size_t count,
                                   struct dyti_sample_list **out_list);
    enum dyt_status (*sample_run)(void *self, struct dyti_sample_list *list,
                                  uint64_t seed, uint64_t *out_hash);
    void (*sample_free)(void *self, struct dyti_sample_list *list);

    /* As copy, of bytes that nobody reads soon: past the caches where whole
     * lines are written.  Worth it where all that is written is more than
     * caches hold.  NULL: copy */
    enum dyt_status (*copy_past)(void *self, const struct dyti_copy *copy,
                                 size_t count);
};

/* Kernels as rooms get them. */
struct dyti_kernels {
    const struct dyti_kernel_ops *ops;
    void *self;
};

static inline bool dyti_kernels_any_memory(const struct dyti_kernels *k)
{
    return (k->ops->caps & DYTI_KERNELS_ANY_MEMORY) != 0;
}

static inline enum dyt_status dyti_kernels_wait(const struct dyti_kernels *k)
{
    return k->ops->wait == NULL ? DYT_OK : k->ops->wait(k->self);
}

static inline enum dyt_status dyti_kernels_mark(const struct dyti_kernels *k,
                                                uint64_t *out_mark)
{
    if (k->ops->mark == NULL) {
        *out_mark = 0;
        return DYT_OK;
    }
    return k->ops->mark(k->self, out_mark);
}

static inline enum dyt_status dyti_kernels_passed(const struct dyti_kernels *k,
                                                  uint64_t mark)
{
    return k->ops->passed == NULL ? DYT_OK : k->ops->passed(k->self, mark);
}

static inline void *dyti_kernels_stream(const struct dyti_kernels *k)
{
    return k->ops->stream == NULL ? NULL : k->ops->stream(k->self);
}

static inline enum dyt_status dyti_kernels_fill(const struct dyti_kernels *k,
                                                void *ptr, uint64_t bytes,
                                                uint8_t value)
{
    if (k->ops->fill == NULL) {
        memset(ptr, value, bytes);
        return DYT_OK;
    }
    return k->ops->fill(k->self, ptr, bytes, value);
}

static inline enum dyt_status dyti_kernels_carry(const struct dyti_kernels *k,
                                                 void *dst, const void *src,
                                                 uint64_t bytes)
{
    if (k->ops->carry == NULL) {
        memmove(dst, src, bytes);
        return DYT_OK;
    }
    return k->ops->carry(k->self, dst, src, bytes);
}

static inline enum dyt_status dyti_kernels_copy_past(
    const struct dyti_kernels *k, const struct dyti_copy *copy, size_t count)
{
    return k->ops->copy_past != NULL ? k->ops->copy_past(k->self, copy, count)
                                     : k->ops->copy(k->self, copy, count);
}

static inline void dyti_kernels_push(const struct dyti_kernels *k,
                                     const char *range)
{
    if (k->ops != NULL && k->ops->range_push != NULL) {
        k->ops->range_push(k->self, range);
    }
}

static inline void dyti_kernels_pop(const struct dyti_kernels *k)
{
    if (k->ops != NULL && k->ops->range_pop != NULL) {
        k->ops->range_pop(k->self);
    }
}

#endif /* DYTI_OPS_KERNELS_H */
