/* Stage 2 of 5: layout.  Answers "which rank holds which elements of which
 * tensor, and where in its memory, in this phase?"
 * in: vps/model.h and degrees   out: used by plan/plan.h, nn, trainer, rollout
 *
 * Terms
 *   world rank  0 <= rank < world_size, names a process
 *   member      position in desc.ranks: (pp * dp_degree + dp) * tp_degree + tp
 *   region      one rank's memory of one kind; offsets are bytes from its start
 *
 * A region of the `native` dialect is the rank's tensors in catalogue order,
 * each row-major and dense in its local shape.  q, k, v of one layer follow
 * each other without a gap, and so do gate and up (their biases too), so that
 * they are one matrix for the GEMM; everything else starts on
 * DYTI_REGION_ALIGN *elements*.  All kinds of a rank use the same element
 * offsets, so element i of `param`, `grad` and of the flat buffer that ZeRO
 * cuts are the same element of the same tensor (or the same padding).
 */
#ifndef DYTI_LAYOUT_LAYOUT_H
#define DYTI_LAYOUT_LAYOUT_H

#include "vps/model.h"

#define DYTI_REGION_ALIGN 64u /* elements */
#define DYTI_ZERO_ALIGN   16u /* elements: borders of a ZeRO cut */

/* What a phase does with a kind (design.md: residency). */
enum dyti_residency {
    DYTI_HELD,    /* in this phase's layout */
    DYTI_PARKED,  /* stays where the other phase put it, untouched */
    DYTI_DERIVED, /* cast from another kind on arrival */
    DYTI_DROPPED
};

struct dyti_layout_desc {
    const char *phase; /* "rollout", "train": for messages.  Borrowed. */
    uint32_t world_size;
    uint32_t tp, pp, dp;   /* degrees, >= 1 */
    uint32_t zero;         /* 0 or 1 */
    const uint32_t *ranks; /* [tp*pp*dp] world ranks by member; NULL = 0,1,2… */
    const uint32_t *pp_layers; /* [pp] layers per stage; NULL = as even as can
                                  be, first stages get the extra ones */
    enum dyti_dtype dtype[DYTI_KIND_COUNT];
    enum dyti_residency residency[DYTI_KIND_COUNT];
};

/* One rank's coordinates and share of every cut. Ranges are half open. */
struct dyti_part {
    bool member; /* false: this world rank is not in this layout */
    uint32_t tp_rank, tp_size, pp_rank, pp_size, dp_rank, dp_size;
    int64_t layer_lo, layer_hi;
    int64_t q_lo, q_hi;   /* query heads */
    int64_t kv_lo, kv_hi; /* KV heads that those read */
    int64_t ffn_lo, ffn_hi;
    int64_t vocab_lo, vocab_hi;
    bool has_embed, has_head; /* first / last pipeline stage */
};

/* A box that a rank holds, and where.  Strides are those of a row-major array;
 * a ZeRO cut in the middle of rows is several shards. */
struct dyti_shard {
    uint32_t tensor;
    uint8_t kind;  /* enum dyti_kind */
    uint8_t dtype; /* enum dyti_dtype */
    struct dyt_box box;
    uint64_t offset;              /* bytes in the region of this kind */
    int64_t stride[DYT_MAX_DIMS]; /* [ndim], bytes */
};

/* A rank's own list of shards, by kind, tensor, then offset. */
struct dyti_view {
    struct dyti_part part;
    struct dyti_shard *shard; /* [shard_count], owned by the layout */
    uint32_t shard_count;
    uint32_t kind_first[DYTI_KIND_COUNT + 1]; /* shards of kind k: [k], [k+1] */
    uint64_t region_bytes[DYTI_KIND_COUNT];   /* 0 = not held */
    /* The flat buffer: elements of the rank's whole region, and the part of it
     * whose master and moments this rank owns ([0, flat) without ZeRO). */
    uint64_t flat_elements;
    uint64_t zero_lo, zero_hi;
};

struct dyti_layout {
    const struct dyti_model *model; /* borrowed */
    struct dyti_layout_desc desc;   /* arrays owned, defaults filled in */
    uint32_t member_count;          /* tp * pp * dp */
    struct dyti_view *view;         /* [world_size], owned */
    uint64_t fingerprint;
};

/**
 * Build the layout of one phase.  Pure.  `model` must outlive it.
 * Works for any tp <= q_heads, pp <= layers, dp; nothing need divide.
 * @return DYT_ERR_LAYOUT  the text names tensor, dimension and degree, with the
 *                         nearest degree that works
 */
enum dyt_status dyti_layout_build(const struct dyti_model *model,
                                  const struct dyti_layout_desc *desc,
                                  struct dyti_layout **out_layout);
void dyti_layout_destroy(struct dyti_layout *layout);

static inline const struct dyti_view *dyti_layout_view(
    const struct dyti_layout *layout, uint32_t rank)
{
    return &layout->view[rank];
}

/* World rank of a member by coordinates. */
uint32_t dyti_layout_rank(const struct dyti_layout *layout, uint32_t tp,
                          uint32_t pp, uint32_t dp);

/* The `param` shard of a tensor on a rank, NULL if it holds none. O(log n). */
const struct dyti_shard *dyti_view_find(const struct dyti_view *view,
                                        enum dyti_kind kind, uint32_t tensor);

/* Parts of the region held by more than one rank of the model-parallel group
 * (same dp; different tp or pp): what gradient sums and norms must know. */
struct dyti_shared_part {
    uint32_t tensor;
    struct dyt_box box;
    uint64_t flat_lo, flat_hi; /* elements of this rank's region: contiguous */
    uint32_t first_holder;     /* lowest world rank that holds it (same dp) */
    uint32_t holder_count;
    const uint32_t *holder; /* [holder_count] world ranks, ascending; owned */
    bool grad_partial;      /* gradients must be summed over the holders */
};

/* All of them on `rank`, in flat order; what a rank does not share is in no
 * part.  *out_part is one block: give back with free(). */
enum dyt_status dyti_layout_shared(const struct dyti_layout *layout,
                                   uint32_t rank,
                                   struct dyti_shared_part **out_part,
                                   size_t *out_count);

#endif /* DYTI_LAYOUT_LAYOUT_H */
