/* Stage 2 of 5: layout.  Answers "which rank holds which elements of which
 * tensor, and where in its memory, in this phase?"
 * in: vps/model.h and degrees   out: used by plan/plan.h, nn, trainer, rollout
 *
 * Terms
 *   world rank  0 <= rank < world_size, names a process
 *   member      position in desc.ranks; with the default order
 *               ((pp * dp_degree + dp) * cp_degree + cp) * tp_degree + tp
 *   stage group the tp * cp * dp members of one pipeline stage.  Dense tensors
 *               see it as (tp, cp, dp); routed experts see the same members, in
 *               the same order, as (etp, ep, edp), etp fastest
 *   buffer      an allocation of the framework whose dialect it is: one of its
 *               own tensors, or a flat buffer.  Buffers of one kind follow each
 *               other in the region
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

/* By whose rules the shards are cut and ordered: layout/dialect.h. */
enum dyti_dialect {
    DYTI_DIALECT_NATIVE,
    DYTI_DIALECT_HF,       /* whole tensors on every member, as in the files */
    DYTI_DIALECT_MEGATRON, /* Megatron-LM with its distributed optimizer */
    DYTI_DIALECT_ZERO12,   /* DeepSpeed ZeRO 1 and 2, BF16_Optimizer */
    DYTI_DIALECT_ZERO3,    /* DeepSpeed ZeRO 3 */
    DYTI_DIALECT_FSDP2,
    DYTI_DIALECT_VLLM,
    DYTI_DIALECT_LIST, /* shards that somebody handed in */
    DYTI_DIALECT_COUNT
};

/* Dimensions of the member number, for desc.order. */
enum dyti_layout_axis {
    DYTI_AXIS_TP,
    DYTI_AXIS_CP,
    DYTI_AXIS_DP,
    DYTI_AXIS_PP,
    DYTI_AXIS_COUNT
};

enum dyti_expert_map {
    DYTI_EXPERTS_LINEAR,      /* contiguous blocks, first E mod ep one more */
    DYTI_EXPERTS_ROUND_ROBIN, /* r, r + ep, … */
    DYTI_EXPERTS_EXPLICIT     /* desc.expert_slot */
};

/* An explicit cut of the flat buffer between the members of a ZeRO group, the
 * same for every stage group: positions are 32-bit fractions of the flat
 * buffer, rounded to DYTI_ZERO_ALIGN; ranges cover it once, in rising order. */
#define DYTI_ZERO_WHOLE (UINT64_C(1) << 32)

struct dyti_zero_range {
    uint64_t lo, hi; /* of DYTI_ZERO_WHOLE */
    uint32_t owner;  /* position in the ZeRO group: dp * cp_degree + cp */
};

/* A zeroed desc with world_size, tp, pp, dp set is whole: 0 of any degree that
 * came later (cp, ep, etp, vpp) means 1. */
struct dyti_layout_desc {
    const char *phase; /* "rollout", "train": for messages.  Borrowed. */
    uint32_t world_size;
    uint32_t tp, pp, dp; /* degrees, >= 1 */
    uint32_t zero;       /* 0: nothing, 1: master and moments, 2: and grad,
                            3: and param is cut between the ZeRO group */
    const uint32_t
        *ranks; /* [tp*cp*dp*pp] world ranks by member; NULL = 0,1… */
    const uint32_t *pp_layers; /* [pp * vpp] layers per stage, by virtual stage
                                  (v * pp + stage: model order); NULL = as even
                                  as can be, first ones get the extra ones */
    enum dyti_dtype dtype[DYTI_KIND_COUNT];
    enum dyti_residency residency[DYTI_KIND_COUNT];

    enum dyti_dialect dialect;
    uint32_t cp;  /* context parallel: replicas of the weights */
    uint32_t ep;  /* expert parallel; ep * etp divides tp * cp * dp */
    uint32_t etp; /* expert tensor parallel */
    uint32_t vpp; /* virtual stages of each pipeline stage, interleaved */
    /* Dimensions from fastest to slowest; all zero = TP, CP, DP, PP. */
    uint8_t order[DYTI_AXIS_COUNT];
    enum dyti_expert_map experts;
    /* EXPLICIT: [ep * expert_slots] expert of each slot of each ep rank, -1 =
     * empty; an expert may have several (redundant copies). */
    const int32_t *expert_slot;
    uint32_t expert_slots;
    const uint32_t *host; /* [world_size] host of each rank; NULL = one host */
    const struct dyti_zero_range *zero_range; /* native: NULL = even */
    uint32_t zero_range_count;
    /* The same for the experts' flat buffer, where that is one of its own
     * (native.c); owner = edp. */
    const struct dyti_zero_range *expert_zero_range;
    uint32_t expert_zero_range_count;
    uint32_t vocab_multiple; /* megatron: make_vocab_size_divisible_by (0: 128);
                                vllm: padding (0: 64) */
    uint32_t
        bucket_multiple;     /* megatron, zero 1: the end of a bucket is padded
                                to a multiple of this too (65536 for the bus
                                bandwidth of NCCL); 0: of lcm(ranks, 128) only */
    uint32_t glu_interleave; /* megatron: rows of gate, then of up, that take
                                turns in fc1 of routed experts; 0: all of gate,
                                then all of up */
    bool round_robin; /* zero12: parameter i of a group goes to partition i mod
                         ranks, before partitions are joined and cut anew */
    bool own_dtypes;  /* list: each shard says its own, `dtype` is for counts of
                         bytes before there are shards */
    bool lazy; /* build no views: worlds of thousands of ranks; views of single
                  ranks come from dyti_layout_view_build() */
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
    uint32_t member_index;
    uint32_t cp_rank, cp_size;
    uint32_t etp_rank, etp_size, ep_rank, ep_size, edp_rank, edp_size;
    int64_t expert_ffn_lo, expert_ffn_hi;
    uint32_t vpp; /* with vpp > 1 layer_lo, layer_hi are of the first virtual
                     stage; dyti_layout_holds_layer() knows all */
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

/* One allocation as the framework sees it. */
struct dyti_view_buffer {
    const char *name; /* "model.layers.0.self_attn.qkv_proj.weight"; owned by
                         the view */
    uint8_t kind, dtype;
    uint32_t ndim;
    int64_t shape[DYT_MAX_DIMS]; /* padding included */
    uint64_t offset, bytes;      /* in the region of its kind */
};

struct dyti_zero_cut {
    uint64_t lo, hi; /* elements of a flat buffer */
};

/* A rank's own list of shards, by kind, tensor, then offset. */
struct dyti_view {
    struct dyti_part part;
    struct dyti_view_buffer *buffer; /* [buffer_count], by kind, offset; owned;
                                   none for native: the region is the buffer */
    uint32_t buffer_count;
    char *names;              /* behind the buffers' names */
    struct dyti_shard *shard; /* [shard_count], owned by the layout */
    uint32_t shard_count;
    uint32_t kind_first[DYTI_KIND_COUNT + 1]; /* shards of kind k: [k], [k+1] */
    uint64_t region_bytes[DYTI_KIND_COUNT];   /* 0 = not held */
    /* native.  The flat buffer: elements of the rank's whole region, and the
     * part of it whose master and moments this rank owns ([0, flat) without
     * ZeRO): rising ranges, of which regions keep one behind the other.  Where
     * it is one range, [zero_lo, zero_hi) is it; otherwise both are 0. */
    uint64_t flat_elements;
    uint64_t zero_lo, zero_hi;
    struct dyti_zero_cut *zero; /* [zero_count], owned */
    uint32_t zero_count;
};

struct dyti_layout {
    const struct dyti_model *model;  /* borrowed */
    struct dyti_layout_desc desc;    /* arrays owned, defaults filled in */
    uint32_t member_count;           /* tp * cp * dp * pp */
    struct dyti_view *view;          /* [world_size], owned; NULL if lazy */
    struct dyti_layout_index *index; /* of this room; owned */
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

/* The view of one rank alone, for lazy layouts too. */
enum dyt_status dyti_layout_view_build(const struct dyti_layout *layout,
                                       uint32_t rank,
                                       struct dyti_view *out_view);
void dyti_view_fini(struct dyti_view *view); /* a zeroed one is fine */

/* Bytes of one rank's region of a kind, for lazy layouts too. */
enum dyt_status dyti_layout_region_bytes(const struct dyti_layout *layout,
                                         uint32_t rank, enum dyti_kind kind,
                                         uint64_t *out_bytes);
/* The same of every rank, bytes[world_size]; replicas are measured once. */
enum dyt_status dyti_layout_all_region_bytes(const struct dyti_layout *layout,
                                             enum dyti_kind kind,
                                             uint64_t *bytes);

/* Whether a kind lies in this layout: the phase holds it and the model has it.
 */
static inline bool dyti_layout_holds(const struct dyti_layout *layout,
                                     enum dyti_kind kind)
{
    return layout->desc.residency[kind] == DYTI_HELD &&
           (layout->model->kinds >> kind & 1u) != 0;
}

/* A layout from lists of shards that ranks handed in (a plugin's views): one
 * view per rank, taken over on success.  Shards may have any strides; a box may
 * be held by many, and every element of every tensor must be held by one.
 * Empty shards are left out; offsets and strides are multiples of the element.
 * desc: world_size, dtypes, own_dtypes, residency, host; degrees are ignored.
 * DYT_ERR_LAYOUT lists up to ten faults at once: shards outside their tensor,
 * missing elements, overlapping memory, out of bounds of region_bytes. */
enum dyt_status dyti_layout_from_views(const struct dyti_model *model,
                                       const struct dyti_layout_desc *desc,
                                       struct dyti_view *view,
                                       struct dyti_layout **out_layout);

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
