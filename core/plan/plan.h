/* Stage 3 of 5: plan.  Answers "what goes from whom to whom?"
 * in: layout/layout.h, the source's and the destination's
 * out: used by sched/sched.h
 *
 * Terms
 *   want      a kind of the destination layout that has to be filled
 *   source    a (layout, kind) that holds the same values.  Of several of one
 *             want a tensor takes the first that has it: what has no master
 *             comes from param
 *   transfer  a box with its source and its destination; equal ranks = keep
 *   slot      enum dyti_arena_slot: which layout's region in a rank's segment
 *
 * Source choice: same rank first; then a replica on the same host; then spread
 * over all replicas so that the busiest link carries the least: traffic.h, of
 * which a plan is the expansion.  It depends on nothing but the inputs, so a
 * rank can plan its own part alone.
 */
#ifndef DYTI_PLAN_PLAN_H
#define DYTI_PLAN_PLAN_H

#include "layout/arena.h"
#include "layout/layout.h"

#define DYTI_PLAN_MAX_SOURCES 2u
#define DYTI_PLAN_SIBLING     UINT8_MAX /* transfer.source of wave 1 */
#define DYTI_PLAN_VERSION     3u        /* counts in the fingerprint */

/* All kinds but the gradient: between two updates it holds nothing. */
#define DYTI_PLAN_KINDS_STATE ((1u << DYTI_KIND_COUNT) - 1u - (1u << DYTI_GRAD))

struct dyti_plan_source {
    const struct dyti_layout *layout; /* borrowed; holds `kind` */
    enum dyti_arena_slot slot;
    enum dyti_kind kind;
};

struct dyti_plan_want {
    enum dyti_kind kind; /* held by the destination layout */
    struct dyti_plan_source source[DYTI_PLAN_MAX_SOURCES];
    uint32_t source_count;
};

/* Everything a plan depends on.  Plain value; layouts are borrowed. */
struct dyti_plan_inputs {
    const struct dyti_layout *dst;
    enum dyti_arena_slot dst_slot;
    struct dyti_plan_want want[DYTI_KIND_COUNT];
    uint32_t want_count;
    bool fan_out; /* one copy enters a host, wave 1 spreads it: for schedules
                     that let wave 1 wait for wave 0 */
    /* Source and destination are regions of one layout: what ranks have lost
     * comes from others, what a rank holds stays, and is not scheduled. */
    bool heals;
    /* [world_size] host of each rank, from 0; borrowed.  NULL: as the layouts
     * say. */
    const uint32_t *host;
};

/* A box that goes from a shard to a shard.  Plain value. */
struct dyti_transfer {
    uint32_t tensor;
    uint32_t src_rank, dst_rank;   /* world ranks; equal: kept, a local copy */
    uint32_t src_shard, dst_shard; /* index into the view of that rank, in the
                                      source's and the destination's layout */
    uint8_t want, source;          /* inputs.want[want].source[source] */
    uint8_t src_slot, dst_slot;    /* enum dyti_arena_slot */
    uint8_t src_kind, dst_kind;    /* enum dyti_kind */
    uint8_t src_dtype, dst_dtype;  /* enum dyti_dtype */
    uint8_t wave;       /* 0; 1: fan-out inside a host, read from the shard that
                           wave 0 filled on a sibling: source == DYTI_PLAN_SIBLING,
                           src_slot, src_kind, src_dtype are the destination's */
    struct dyt_box box; /* global element coordinates */
};

/* All transfers from one rank to one other (or to itself). */
struct dyti_plan_pair {
    uint32_t src_rank, dst_rank;
    uint32_t transfer_first, transfer_count; /* in plan->transfer */
    uint64_t elements;
    uint64_t read_bytes;  /* in the source dtypes */
    uint64_t write_bytes; /* in the destination dtypes */
    uint64_t hash; /* of these transfers: both sides must have the same */
};

struct dyti_plan_rank {
    uint64_t send_bytes;    /* read here by other ranks, source dtypes */
    uint64_t receive_bytes; /* written here from other ranks, dst dtypes */
    uint64_t keep_bytes;    /* copied inside the rank, dst dtypes */
};

struct dyti_plan {
    struct dyti_plan_inputs inputs;
    uint32_t world_size;
    int64_t rank; /* -1: the whole plan; else only what this rank sends, keeps
                     and receives, and `total` is right for this rank only */
    struct dyti_transfer *transfer; /* [transfer_count], by dst_rank, src_rank,
                                       wave, dst_shard, src_shard, box */
    uint32_t transfer_count;
    struct dyti_plan_pair *pair; /* [pair_count], by dst_rank, src_rank; only
                                    pairs that share something */
    uint32_t pair_count;
    uint32_t *pair_first;         /* [world_size + 1]: pairs with dst r */
    struct dyti_plan_rank *total; /* [world_size] */
    uint64_t fingerprint; /* of the inputs: equal on all ranks, whole or not */
};

/**
 * The inputs of a switch from `src` to `dst`.
 *
 * Each kind of `kinds` (bits 1 << kind; DYTI_PLAN_KINDS_STATE) that dst holds
 * is wanted, but for those that src parks: they lie where dst expects them.
 *   param   from src's master where src holds one (always newest); else from
 *           src's param unless that is narrower; else from the master that
 *           src parks and dst holds; tensors without a master from param
 *   others  from the same kind of src
 *
 * @return DYT_ERR_LAYOUT  a wanted kind has no source: the text names it; or
 *                         the layouts describe different models or worlds
 */
enum dyt_status dyti_plan_inputs_init(const struct dyti_layout *src,
                                      enum dyti_arena_slot src_slot,
                                      const struct dyti_layout *dst,
                                      enum dyti_arena_slot dst_slot,
                                      uint32_t kinds,
                                      struct dyti_plan_inputs *out_inputs);

/* Fingerprint of inputs, the key of a plan.  O(1), or O(ranks) with hosts. */
uint64_t dyti_plan_fingerprint(const struct dyti_plan_inputs *inputs);

/**
 * Plan all ranks / what one rank sends, keeps and receives.  Pure.  The
 * layouts, which have views, must outlive the plan.  Cost: patterns, then the
 * answer.
 *
 * @return DYT_ERR_LAYOUT   part of a destination shard has no source: the text
 *                          names tensor, rank and "x of y elements"
 * @return DYT_ERR_INVALID  a source is narrower than its want, does not hold
 *                          its kind, or is the destination region itself
 * @return DYT_ERR_OVERFLOW, DYT_ERR_NOMEM
 */
enum dyt_status dyti_plan_build(const struct dyti_plan_inputs *inputs,
                                struct dyti_plan **out_plan);
enum dyt_status dyti_plan_build_rank(const struct dyti_plan_inputs *inputs,
                                     uint32_t rank,
                                     struct dyti_plan **out_plan);
void dyti_plan_destroy(struct dyti_plan *plan);

/* Nothing of a pair needs to be done. */
static inline bool dyti_plan_stays(const struct dyti_plan *plan,
                                   const struct dyti_plan_pair *pair)
{
    return plan->inputs.heals && pair->src_rank == pair->dst_rank;
}

/* The shards of a transfer. */
const struct dyti_shard *dyti_plan_src(const struct dyti_plan *plan,
                                       const struct dyti_transfer *transfer);
const struct dyti_shard *dyti_plan_dst(const struct dyti_plan *plan,
                                       const struct dyti_transfer *transfer);

/* The pair src -> dst, NULL if nothing goes that way.  O(log n). */
const struct dyti_plan_pair *dyti_plan_find_pair(const struct dyti_plan *plan,
                                                 uint32_t src, uint32_t dst);

#endif /* DYTI_PLAN_PLAN_H */
