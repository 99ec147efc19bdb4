/* Stage 4 of 5: schedule.  Answers "in which order, and who does it?"
 * in: plan/plan.h   out: used by exec
 *
 * A schedule is one rank's list of steps.  A step says which strided copies
 * (spans) to make, between this rank's memory and one peer's; it may start when
 * `wait_count` others have ended.  Rounds pair the ranks: in round k a rank
 * works with peer = rank XOR k, k = 0 (its own local copies) to the next power
 * of two - 1; a peer that does not exist is skipped.  Every two ranks meet
 * once, for any number of ranks.  Rounds are an order to start in, not a
 * barrier.  The last step is the one fence.
 *
 * Links of ranks that cannot map each other's memory go by messages.  There the
 * pieces of a strategy (strategy.h) are the order: a sender packs a piece into
 * a slot of staging and sends it, a receiver receives it into a slot and
 * unpacks it, one in the middle receives and sends it on.  A slot is used again
 * when its last user has ended.  A rank gives slots to its pieces in the order
 * of the pieces, which is the same on all ranks, so the first piece that has
 * not arrived finds a free slot at both ends, and never waits: no circle, with
 * one slot as with many.  Where pieces on their way through a rank would take
 * all its slots, each piece goes all its way before the next one starts.
 *
 * Streams that are a broadcast, an all-gather, a scatter or a gather run as one
 * (collectives.h): a COLLECTIVE step is this rank's part of one chunk of it,
 * all its messages at once; PACK fills what it sends, UNPACK empties what it
 * receives.  They stand before the pieces of their wave.
 *
 * With more than one wave a fence lies between two: all ranks meet there.
 * Schedules of mode in_place are made in overlay.h.
 *
 * Which side executes: the destination pulls, unless the schedule is asked for
 * push, then the source pushes.  All ranks use the same options.
 */
#ifndef DYTI_SCHED_SCHED_H
#define DYTI_SCHED_SCHED_H

#include "plan/plan.h"
#include "sched/promote.h"
#include "sched/strategy.h"

#define DYTI_SCHED_VERSION     2u /* counts in the fingerprint */
#define DYTI_SPAN_DIMS         4u
#define DYTI_SCHED_CHUNK_BYTES (4u << 20)

/* A slot of staging: room for the mover's head, then one message. */
#define DYTI_SLOT_HEAD_BYTES    64u
#define DYTI_SLOT_MESSAGE_BYTES (1u << 20) /* default */
#define DYTI_SLOT_LEAST_BYTES   64u
#define DYTI_SLOTS_MAX          64u
#define DYTI_SLOTS_DEFAULT      16u
#define DYTI_NO_STEP            UINT32_MAX
#define DYTI_NO_STREAM          UINT32_MAX
#define DYTI_SLOT_STAGING       UINT8_MAX /* of a span: staging memory; kind 0 */

enum dyti_step_kind {
    DYTI_STEP_COPY, /* shard to shard through mapped memory */
    DYTI_STEP_PACK,
    DYTI_STEP_MOVE,
    DYTI_STEP_UNPACK,
    DYTI_STEP_COLLECTIVE,
    DYTI_STEP_FENCE, /* all stores before are visible to all ranks after it */
    DYTI_STEP_KIND_COUNT
};

enum dyti_side {
    DYTI_SIDE_PULL, /* the rank of the schedule is the destination */
    DYTI_SIDE_PUSH  /* it is the source */
};

/* One strided copy with conversion.  Sizes in elements, strides in bytes, from
 * slow to fast, unused leading dims have size 1: as struct dyti_copy wants
 * them.  Offsets are bytes from the start of the region (slot, kind) in the
 * source's and in the destination's segment. */
struct dyti_span {
    uint64_t src_offset, dst_offset;
    int64_t size[DYTI_SPAN_DIMS];
    int64_t src_stride[DYTI_SPAN_DIMS];
    int64_t dst_stride[DYTI_SPAN_DIMS];
    uint8_t src_slot, dst_slot;   /* enum dyti_arena_slot */
    uint8_t src_kind, dst_kind;   /* enum dyti_kind */
    uint8_t src_dtype, dst_dtype; /* enum dyti_dtype */
};

struct dyti_step {
    uint8_t kind;                /* enum dyti_step_kind */
    uint8_t side;                /* enum dyti_side */
    uint32_t round;              /* k; of FENCE the number of rounds */
    uint32_t src_rank, dst_rank; /* COPY: one of them is the schedule's */
    /* Transfers of the plan that it serves; pieces of one copy that joins
     * several transfers name all of those. */
    uint32_t transfer_first, transfer_count;
    uint32_t span_first, span_count;
    uint64_t read_bytes, write_bytes;
    uint64_t staging_offset; /* PACK, MOVE, UNPACK: of the message */
    uint32_t stream;         /* PACK, UNPACK: index; else DYTI_NO_STREAM */
    uint64_t lo, hi;         /* PACK, MOVE, UNPACK: bytes of the stream */
    /* MOVE: side PUSH sends, PULL receives; the next step that must be posted
     * after it, to or from the same rank, or DYTI_NO_STEP. */
    uint32_t link_next;
    /* COLLECTIVE: its messages, in schedule->part; `round` is its number, the
     * same on all members; bytes [lo, hi) of each stream. */
    uint32_t part_first, part_count;
    uint8_t collective;                  /* enum dyti_collective_kind */
    uint32_t member_first, member_count; /* COLLECTIVE: in schedule->member */
    uint32_t wait_count;             /* steps that must end before it starts */
    uint32_t next_first, next_count; /* its followers, in schedule->next */
};

/* One message of a COLLECTIVE.  Sends of one slot have the same bytes. */
struct dyti_fused_message {
    uint32_t peer;
    bool is_send;
    uint64_t staging_offset;
    uint32_t link_next; /* as in a MOVE, of this link */
};

/* What one rank sends another in one wave, by messages. */
struct dyti_stream {
    uint32_t src_rank, dst_rank, wave;
    uint32_t span_first, span_count;
    uint64_t bytes;
    uint32_t at_first; /* in schedule->at: span_count + 1 entries */
};

struct dyti_chains;      /* sched/chains.h */
struct dyti_collectives; /* sched/collectives.h */

/* Which links go by messages, and what goes over all of them.  The same on all
 * ranks; borrowed while building. */
struct dyti_schedule_links {
    /* [world_size] ranks with equal numbers map each other's memory.  NULL:
     * all do, nothing goes by messages. */
    const uint32_t *domain;
    const struct dyti_strategy_ops *strategy; /* of messages */
    const struct dyti_cluster *cluster;       /* NULL: a host for each domain */
    /* Messages of the whole world; NULL only with a whole plan, or no domain.
     * dyti_schedule_flows() makes them. */
    const struct dyti_flow *flow;
    const uint64_t *const *end; /* as in struct dyti_order; may be NULL */
    size_t flow_count;
    const struct dyti_chains *chains;           /* of these flows; NULL: none */
    const struct dyti_collectives *collectives; /* likewise */
    uint32_t wave_count;                        /* of the whole plan */
    uint64_t staging_bytes; /* most that the slots take; 0: as many as useful */
    uint64_t message_bytes; /* most of a message; 0: default */
};

static inline bool dyti_links_map(const struct dyti_schedule_links *links,
                                  uint32_t a, uint32_t b)
{
    return links->domain == NULL || links->domain[a] == links->domain[b];
}

struct dyti_schedule_options {
    enum dyti_side side;
    uint64_t chunk_bytes; /* most bytes written by a step, but no less than 64
                             elements; 0 = default */
    /* Memory: what the rank's segment takes (resident, source and destination
     * together) and the most it may; 0 = no cap. */
    uint64_t segment_bytes, cap_bytes;
    struct dyti_schedule_links links; /* in a schedule: no pointer but that
                                         of the strategy */
};

struct dyti_schedule {
    uint32_t rank, world_size;
    struct dyti_schedule_options options; /* defaults filled in */
    struct dyti_step *step; /* [step_count], an order that the waits allow */
    uint32_t step_count;
    struct dyti_span *span; /* [span_count] */
    uint32_t span_count;
    uint32_t *next; /* [next_total], step indices */
    uint32_t next_total;
    uint32_t round_count;       /* next power of two >= world_size */
    struct dyti_stream *stream; /* [stream_count] */
    uint32_t stream_count;
    uint64_t *at; /* byte of its stream where a span begins */
    struct dyti_fused_message *part; /* [part_count] */
    uint32_t part_count;
    uint32_t *member; /* [member_total] ranks of COLLECTIVEs, rising each;
                         src_rank is the root */
    uint32_t member_total;
    uint32_t *link_first;   /* [2 * world_size]: first MOVE or COLLECTIVE to
                               rank r, then from rank r; DYTI_NO_STEP; NULL: no
                               messages */
    uint64_t staging_bytes; /* peak; 0: everything goes direct */
    uint64_t message_bytes; /* room of a slot behind its head */
    uint32_t slot_count, message_count; /* messages: sent by this rank */
    uint32_t chain_count, passed_count; /* broadcasts of the world that run as
                                           chains; messages that this rank
                                           keeps and passes on */
    uint32_t collective_count[DYTI_COLLECTIVE_KIND_COUNT]; /* of the world that
                                           run as one */
    uint64_t read_bytes, write_bytes; /* of all its steps */
    uint64_t fingerprint; /* of plan and options: equal on all ranks */
};

/**
 * Schedule what `rank` executes of a plan (whole, or of that rank).  Pure; the
 * result does not refer to the plan.
 *
 * @return DYT_ERR_INVALID      the plan is of another rank
 * @return DYT_ERR_UNSUPPORTED  the segment does not fit under the cap: waves
 *                              are not available; or the staging is too small
 *                              for one message; the text has both numbers
 * @return DYT_ERR_OVERFLOW, DYT_ERR_NOMEM
 */
enum dyt_status dyti_schedule_build(const struct dyti_plan *plan, uint32_t rank,
                                    const struct dyti_schedule_options *options,
                                    struct dyti_schedule **out_schedule);
void dyti_schedule_destroy(struct dyti_schedule *schedule);

/**
 * The flows between ranks of different domains of a whole plan, by src, dst,
 * wave, and where their transfers end; one block each, and *out_wave_count.
 * free(*out_flow), free(*out_end) (which holds the ends too).
 * @return DYT_ERR_INVALID  the plan is of one rank
 */
enum dyt_status dyti_schedule_flows(const struct dyti_plan *plan,
                                    const uint32_t *domain,
                                    struct dyti_flow **out_flow,
                                    uint64_t ***out_end, size_t *out_count,
                                    uint32_t *out_wave_count);

/* Waits and followers agree, nothing waits for itself, all wait for the last
 * fence; streams are covered once, slots have one user at a time, messages of a
 * link are posted in order.  DYT_ERR_INVALID names the step. */
enum dyt_status dyti_schedule_check(const struct dyti_schedule *schedule);

/* Fingerprint that a schedule of these inputs has.  O(1). */
uint64_t dyti_schedule_fingerprint(uint64_t plan_fingerprint,
                                   uint32_t world_size,
                                   const struct dyti_schedule_options *options);

/* What follows a MOVE or COLLECTIVE on a link: as link_first counts them. */
uint32_t dyti_schedule_link_next(const struct dyti_schedule *schedule,
                                 uint32_t step, uint32_t link);

const char *dyti_step_kind_name(enum dyti_step_kind kind);

#endif /* DYTI_SCHED_SCHED_H */
