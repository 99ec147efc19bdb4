/* The transformer over ops tables: forward and backward of the Llama family,
 * one rank's part of it.  No vendor name, no thread, no allocation in the
 * passes: all memory comes from the caller.
 *
 * Terms
 *   rows        token positions of one pass, sequences packed one after another
 *   h           hidden size; rows x h activations are f32, row-major
 *   part        what this rank has of every tensor (layout/layout.h)
 *   V_r         vocabulary rows of this rank
 *
 * Tensor parallelism: o_proj and down_proj give partial sums that are
 * all-reduced over `tp`; the embedding is summed likewise; the gradient that
 * leaves q/k/v and gate/up is all-reduced before the norm's backward pass.
 * All TP members call every function together with equal rows.
 */
#ifndef DYTI_NN_NN_H
#define DYTI_NN_NN_H

#include "base/region.h"
#include "layout/layout.h"
#include "ops/group.h"
#include "ops/kernels.h"

/* One layer's matrices as this rank holds them; NULL where a family has none.
 *   qkv      [(q + 2 kv) * d, h]   rows q, then k, then v
 *   o        [h, q * d]            gate_up [2 f, h]   rows gate, then up
 *   down     [h, f] */
struct dyti_nn_layer {
    const void *input_norm, *qkv, *qkv_bias, *q_norm, *k_norm, *o;
    const void *post_norm, *gate_up, *down;
};

struct dyti_nn_weights {
    enum dyti_dtype dtype;
    const void *embed, *final_norm, *head; /* NULL: not on this rank */
    struct dyti_nn_layer *layer;           /* [layer_hi - layer_lo], owned */
};

/* A rank's model: everything a pass needs to know. */
struct dyti_nn {
    const struct dyti_model *model; /* borrowed */
    struct dyti_part part;
    struct dyti_kernels kernels;
    struct dyti_group tp;
    float *rope_table; /* [rope_positions][2][d/2], owned */
    int64_t rope_positions;
};

/**
 * @param positions  longest sequence that will be seen (rope table)
 */
enum dyt_status dyti_nn_create(const struct dyti_model *model,
                               const struct dyti_part *part,
                               const struct dyti_kernels *kernels,
                               const struct dyti_group *tp, int64_t positions,
                               struct dyti_nn **out_nn);
void dyti_nn_destroy(struct dyti_nn *nn);

/* Point at the shards of `kind` (PARAM: weights; GRAD: gradients, f32) of a
 * view whose region starts at `base`.  Checks that q, k, v and gate, up are
 * adjacent. */
enum dyt_status dyti_nn_bind(const struct dyti_model *model,
                             const struct dyti_view *view, enum dyti_kind kind,
                             void *base, struct dyti_nn_weights *out_weights);
void dyti_nn_unbind(struct dyti_nn_weights *weights);

/* ---- generation -------------------------------------------------------- */

/* KV cache of this rank's layers: layer l (local) starts at k + l *
 * layer_bytes, v + l * layer_bytes; kernels.h says what lies inside. */
struct dyti_nn_cache {
    unsigned char *k, *v;
    enum dyti_dtype dtype;
    int64_t block_size, block_count;
    uint64_t layer_bytes;
};

/* Bytes of K (or V) of one layer's cache. */
uint64_t dyti_nn_cache_layer_bytes(const struct dyti_nn *nn,
                                   enum dyti_dtype dtype, int64_t block_size,
                                   int64_t block_count);

/* Bytes of workspace that a pass over at most `rows` rows takes. */
uint64_t dyti_nn_infer_bytes(const struct dyti_nn *nn, int64_t rows);

/**
 * One pass over the cache, prefill and decode rows together.
 *   ids, position [batch->row_count]
 *   hidden        [row_count, h] out: after the last local layer, before the
 *                 final norm; in: from the previous pipeline stage unless
 *                 part.has_embed
 */
enum dyt_status dyti_nn_infer(struct dyti_nn *nn,
                              const struct dyti_nn_weights *weights,
                              const struct dyti_nn_cache *cache,
                              const struct dyti_paged_batch *batch,
                              const int32_t *ids, const int32_t *position,
                              float *hidden, struct dyti_region *work);

/* Final norm and head of chosen rows: logits [rows, V_r] of this rank. */
enum dyt_status dyti_nn_logits(struct dyti_nn *nn,
                               const struct dyti_nn_weights *weights,
                               const float *hidden, const int32_t *row,
                               int64_t rows, float *logits,
                               struct dyti_region *work);

/* ---- training ---------------------------------------------------------- */

enum dyti_recompute { DYTI_RECOMPUTE_NONE, DYTI_RECOMPUTE_LAYER };

/* A micro-batch: packed sequences, each from its first prompt token to its
 * last but one token.  position[r] = position within its sequence. */
struct dyti_nn_micro {
    struct dyti_packed packed;
    const int32_t *ids, *position; /* [row_count] */
};

/* What a forward pass keeps for the backward pass; bytes below. */
struct dyti_nn_saved;

uint64_t dyti_nn_saved_bytes(const struct dyti_nn *nn, int64_t rows,
                             int64_t sequences, enum dyti_recompute recompute);
/* Workspace of forward, backward and head for `rows` rows; head_rows: most
 * rows of one head chunk. */
uint64_t dyti_nn_train_bytes(const struct dyti_nn *nn, int64_t rows,
                             int64_t head_rows);

/**
 * Forward pass of this pipeline stage.
 *   hidden  [rows, h]  in: from the previous stage unless part.has_embed;
 *                      out: to the next stage, or to the head
 *   saved   where to keep activations: a region with dyti_nn_saved_bytes free;
 *           NULL = keep nothing (log-probabilities only)
 *   *out_saved  lives inside that region
 */
enum dyt_status dyti_nn_forward(struct dyti_nn *nn,
                                const struct dyti_nn_weights *weights,
                                const struct dyti_nn_micro *micro,
                                float *hidden, enum dyti_recompute recompute,
                                struct dyti_region *saved,
                                struct dyti_region *work,
                                struct dyti_nn_saved **out_saved);

/**
 * Backward pass of this stage; gradients are added to `grads`.
 *   dhidden [rows, h] in: gradient of what forward gave; out: gradient of what
 *           forward was given (undefined on the first stage)
 */
enum dyt_status dyti_nn_backward(struct dyti_nn *nn,
                                 const struct dyti_nn_weights *weights,
                                 const struct dyti_nn_weights *grads,
                                 const struct dyti_nn_micro *micro,
                                 struct dyti_nn_saved *saved, float *dhidden,
                                 struct dyti_region *work);

/* Cross-entropy head over a chunk of rows (last stage only).  The logits of
 * one chunk live in `work` between the two calls; nothing larger is built. */
struct dyti_nn_head_chunk {
    const float *hidden; /* [rows, h] before the final norm */
    int64_t rows;
    const int32_t *target; /* [rows] next token of each row */
    float scale;           /* 1 / temperature */
    /* out, [rows], caller's arrays: */
    float *logprob; /* of target, under softmax(logits * scale) */
    float *entropy; /* of softmax(logits * scale) */
    /* inside `work` until the region is reset: */
    float *logits, *lse, *normed, *inv_rms;
};

enum dyt_status dyti_nn_head_forward(struct dyti_nn *nn,
                                     const struct dyti_nn_weights *weights,
                                     struct dyti_nn_head_chunk *chunk,
                                     struct dyti_region *work);

/* After head_forward of the same chunk: given dL/dlogprob and dL/dentropy per
 * row, adds to grads (head, final norm) and writes dhidden [rows, h]. */
enum dyt_status dyti_nn_head_backward(struct dyti_nn *nn,
                                      const struct dyti_nn_weights *weights,
                                      const struct dyti_nn_weights *grads,
                                      const struct dyti_nn_head_chunk *chunk,
                                      const float *dlogprob,
                                      const float *dentropy, float *dhidden,
                                      struct dyti_region *work);

#endif /* DYTI_NN_NN_H */
