/* What the passes share: a rank's sizes, the linear layers in both directions
 * over the kernel table, and the layers' activations.
 *
 * Terms (beside those of nn.h)
 *   q, kv   this rank's heads     d  head size     f  FFN rows of this rank
 *   n_qkv   (q + 2 kv) * d, columns of the fused qkv matrix
 */
#ifndef DYTI_NN_PASS_H
#define DYTI_NN_PASS_H

#include "nn/nn.h"

/* Ends a function at the first failure; only where nothing is to clean up. */
#define DYTI_NN_TRY(expr)                                                      \
    do {                                                                       \
        enum dyt_status try_status = (expr);                                   \
                                                                               \
        if (try_status != DYT_OK) {                                            \
            return try_status;                                                 \
        }                                                                      \
    } while (0)

struct dyti_nn_sizes {
    int64_t h, q, kv, d, f, n_q, n_qkv, vocab, layers;
};

static inline struct dyti_nn_sizes dyti_nn_sizes(const struct dyti_nn *nn)
{
    const struct dyti_arch *arch = &nn->model->arch;
    const struct dyti_part *part = &nn->part;
    struct dyti_nn_sizes s = {.h = arch->hidden, .d = arch->head_dim};

    s.q = part->q_hi - part->q_lo;
    s.kv = part->kv_hi - part->kv_lo;
    s.f = part->ffn_hi - part->ffn_lo;
    s.n_q = s.q * s.d;
    s.n_qkv = (s.q + 2 * s.kv) * s.d;
    s.vocab = part->vocab_hi - part->vocab_lo;
    s.layers = part->layer_hi - part->layer_lo;
    return s;
}

struct dyti_heads dyti_nn_heads(const struct dyti_nn *nn);

/* 1 / sqrt(d). */
float dyti_nn_attention_scale(const struct dyti_nn *nn);

/* Ids inside the vocabulary and positions inside the rope table?  The error
 * names the first row that is not. */
enum dyt_status dyti_nn_check_rows(const struct dyti_nn *nn, int64_t rows,
                                   const int32_t *ids, const int32_t *position);

/* A weight matrix [out, in] as it lies on this rank. */
struct dyti_nn_matrix {
    const void *w;
    enum dyti_dtype dtype;
    int64_t out, in;
};

/* y[rows,out] = x[rows,in] · wᵀ */
enum dyt_status dyti_nn_linear(struct dyti_nn *nn, struct dyti_nn_matrix m,
                               const float *x, int64_t rows, float *y);
/* dx[rows,in] = dy[rows,out] · w */
enum dyt_status dyti_nn_linear_dx(struct dyti_nn *nn, struct dyti_nn_matrix m,
                                  const float *dy, int64_t rows, float *dx);
/* dw[out,in] += dyᵀ · x */
enum dyt_status dyti_nn_linear_dw(struct dyti_nn *nn, int64_t out, int64_t in,
                                  const float *dy, const float *x, int64_t rows,
                                  float *dw);

/* to = from + Σ over tp of x · wᵀ.  The first TP member adds its part onto the
 * residual, the others give theirs bare, and one sum makes the whole: no pass
 * over rows x h for the addition.  from == to is fine. */
enum dyt_status dyti_nn_residual(struct dyti_nn *nn, struct dyti_nn_matrix m,
                                 const float *x, int64_t rows,
                                 const float *from, float *to);

/* Sum (or maximum) over the TP members, in place. */
enum dyt_status dyti_nn_all_reduce(struct dyti_nn *nn, float *x, int64_t count,
                                   enum dyti_reduce op);

enum dyt_status dyti_nn_rmsnorm(struct dyti_nn *nn, const float *x,
                                const void *w, enum dyti_dtype dtype,
                                int64_t rows, float *y, float *inv_rms);
enum dyt_status dyti_nn_copy(struct dyti_nn *nn, const float *from, float *to,
                             int64_t rows, int64_t cols);

/* Rows of the embedding table, whole on every TP member. */
enum dyt_status dyti_nn_embed(struct dyti_nn *nn,
                              const struct dyti_nn_weights *weights,
                              const int32_t *ids, int64_t rows, float *out);

/* The layer's normed input to q, k, v, biases added: qkv [rows, n_qkv]. */
enum dyt_status dyti_nn_qkv(struct dyti_nn *nn, enum dyti_dtype dtype,
                            const struct dyti_nn_layer *w, const float *normed,
                            int64_t rows, float *qkv);
/* Head norms (Qwen3) and rotation, in place.  inv_q [rows, q], inv_k [rows,
 * kv]: for the backward pass, NULL = not wanted. */
enum dyt_status dyti_nn_rotate(struct dyti_nn *nn, enum dyti_dtype dtype,
                               const struct dyti_nn_layer *w,
                               const int32_t *position, int64_t rows,
                               float *qkv, float *inv_q, float *inv_k);

/* ---- training ---------------------------------------------------------- */

/* One layer's activations.  With head norms `qkv` holds the values before
 * them, otherwise the rotated ones.  Normed inputs and silu(gate)*up are made
 * again in the backward pass: a pass over them costs what reading them back
 * would, and they are a third of the memory. */
struct dyti_nn_acts {
    float *x_in, *x_mid;     /* [rows, h] before attention, before the FFN */
    float *qkv;              /* [rows, n_qkv] */
    float *attn, *lse;       /* [rows, q * d], [rows, q] */
    float *gate_up;          /* [rows, 2 f] */
    float *inv_in, *inv_mid; /* [rows] */
    float *inv_q, *inv_k; /* [rows, q], [rows, kv]; NULL without head norms */
};

struct dyti_nn_saved {
    enum dyti_recompute recompute;
    int64_t rows, layer_count;
    struct dyti_nn_acts *layer; /* [layer_count]; LAYER: only x_in is set */
};

/* All of a layer's activations but x_in. */
enum dyt_status dyti_nn_acts_take(const struct dyti_nn *nn, int64_t rows,
                                  struct dyti_region *region,
                                  struct dyti_nn_acts *out_acts);
enum dyt_status dyti_nn_saved_take(const struct dyti_nn *nn, int64_t rows,
                                   enum dyti_recompute recompute,
                                   struct dyti_region *region,
                                   struct dyti_nn_saved **out_saved);

/* What a forward pass needs beside the activations. */
struct dyti_nn_scratch {
    float *normed;  /* [rows, h] */
    float *rotated; /* [rows, n_qkv]; NULL without head norms */
    float *act;     /* [rows, f] */
};
enum dyt_status dyti_nn_scratch_take(const struct dyti_nn *nn, int64_t rows,
                                     struct dyti_region *region,
                                     struct dyti_nn_scratch *out_scratch);

/* x_in → x_mid, and x_mid → gate_up: what a backward pass wants to see. */
enum dyt_status dyti_nn_layer_acts(struct dyti_nn *nn, enum dyti_dtype dtype,
                                   const struct dyti_nn_layer *w,
                                   const struct dyti_nn_micro *micro,
                                   const struct dyti_nn_acts *acts,
                                   const struct dyti_nn_scratch *scratch);

/* Bytes of workspace, as the functions of these names take it. */
uint64_t dyti_nn_forward_bytes(const struct dyti_nn *nn, int64_t rows);
uint64_t dyti_nn_backward_bytes(const struct dyti_nn *nn, int64_t rows);
uint64_t dyti_nn_head_bytes(const struct dyti_nn *nn, int64_t rows);

/* A region that measures; what it took, with slack for the real base. */
void dyti_nn_measure_begin(struct dyti_region *region);
uint64_t dyti_nn_measure_end(const struct dyti_region *region);

/* [positions][2][d/2]: cos, then sin. */
enum dyt_status dyti_nn_rope_table(const struct dyti_arch *arch,
                                   int64_t positions, float **out_table);

#endif /* DYTI_NN_PASS_H */
