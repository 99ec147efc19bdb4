/* Stage 5 of 5: execute.  Answers "do it, wholly or not at all".
 * in: plan and schedule of this rank (sched/cache.h), addresses, ops tables
 * out: the destination regions filled, and the decision that all ranks see
 *
 * A switch is a transaction.  Its mode (layout/arena.h) says what is left after
 * a failure:
 *
 *   transactional  the old is whole: source and destination are separate memory
 *   double         likewise, and it goes on serving; a commit flips the address
 *                  set that is live
 *   staged         likewise until the decision; then each rank copies its
 *                  scratch into place, and one that dies meanwhile is INVALID
 *                  until dyti_switch_heal_staged()
 *   in_place       from the first overwrite to the commit INVALID
 *
 *   prepare   ranks meet; they refuse, with both numbers, if plan, schedule or
 *             orders differ
 *   transfer  the one loop over the schedule's steps
 *   verify    content hashes of what the destination holds against what the
 *             sources hold, and of all holders of a piece against each other
 *   vote      READY or FAILED in the control page
 *   commit    one atomic decision, the same for all ranks (exec/control.h)
 *
 * Threads: one switch handle by one thread at a time.
 */
#ifndef DYTI_EXEC_SWITCH_H
#define DYTI_EXEC_SWITCH_H

#include "exec/control.h"
#include "layout/arena.h"
#include "ops/clock.h"
#include "ops/group.h"
#include "ops/kernels.h"
#include "ops/memory.h"
#include "ops/mover.h"
#include "ops/wait.h"
#include "sched/cache.h"

enum dyti_verify {
    DYTI_VERIFY_OFF,
    DYTI_VERIFY_SAMPLE, /* at most 1 % of the bytes, others every epoch */
    DYTI_VERIFY_FULL
};

/* Address here of byte `offset` of a region in one address set, where regions
 * are made of pieces: all bytes of a shard lie in one. */
typedef unsigned char *(*dyti_switch_address_fn)(const void *arg, uint32_t rank,
                                                 uint32_t slot, uint32_t kind,
                                                 uint32_t set, uint64_t offset);

/* Ranks that the group of the message mover has a team for. */
struct dyti_switch_team {
    const uint32_t *member; /* [size] rising, of the world */
    uint32_t size;
    void *self; /* as struct dyti_joint has it */
};

struct dyti_switch_params {
    uint32_t struct_size;
    uint32_t rank, world_size;
    enum dyti_arena_slot from, to;
    /* All borrowed until destroy: */
    const struct dyti_layout *from_layout; /* whose phase ends */
    const struct dyti_switch_plan *plan;   /* of this rank */
    void *const *segment;                  /* [world_size] bases, mapped here */
    const struct dyti_arena_map *map;      /* [world_size] */
    struct dyti_control_page *control;
    struct dyti_group all; /* all ranks of the world, by rank */
    struct dyti_kernels kernels;
    const struct dyti_mover_ops *mover;
    void *mover_self;
    const struct dyti_mover_ops *message; /* NULL: all links are mapped */
    void *message_self;
    /* [team_count] those that this rank is in: broadcasts and all-gathers of
     * just these ranks go by them. */
    const struct dyti_switch_team *team;
    uint32_t team_count;
    /* Of the kernels' device, where segments are memory of one: what the host
     * shares with it comes from here.  NULL: ordinary memory. */
    const struct dyti_memory_ops *device_memory;
    /* All ranks have met, and none has moved a byte yet: peers' memory is made
     * what it is now.  NULL: nothing.  A failure is as one of the transfer. */
    enum dyt_status (*met)(void *arg);
    void *met_arg;
    /* in_place: which links go by messages, as dyti_schedule_build() was told;
     * borrowed for dyti_switch_create() only. */
    const struct dyti_schedule_links *links;
    /* Ranks with equal numbers share a control page, [world_size], borrowed;
     * NULL: all do.  Others' votes come over `all`; a rank that fails tells
     * them by breaking it, and no switch follows.  Only unmanaged ones, whose
     * ranks map nobody's memory (links->domain: each its own): at a fence
     * nobody waits for others.  The ranks that hold one copy must be on one
     * page: what one page decides, another may not hear of. */
    const uint32_t *island;
    const struct dyti_wait_ops *wait;
    const struct dyti_clock_ops *clock; /* NULL: all times are 0 */
    void *clock_self;
    int64_t timeout_ns; /* of the wait for the decision; <= 0: none */
    /* NULL: regions lie in `segment` as `map` says.  Otherwise the map has
     * their bytes, and its mode is transactional, double or staged. */
    dyti_switch_address_fn address;
    const void *address_arg;
    /* staged: what a commit copies here; NULL: regions as the map says. */
    const struct dyti_copy *commit; /* [commit_count] */
    uint32_t commit_count;
    /* The destination is live, and apart from the source: INVALID from the
     * first byte to the commit. */
    bool overwrites;
    /* Filled in by dyti_switch_create(). */
    uint8_t set[DYTI_ARENA_SLOT_COUNT]; /* address set of each layout */
    bool is_other;                      /* of mode double, for set 1 */
};

struct dyti_switch; /* opaque: all addresses resolved, nothing left to plan */

/* Where a switch is, for faults and tests. */
enum dyti_switch_point {
    DYTI_AT_START,       /* before the ranks meet */
    DYTI_AT_PREPARED,    /* before the first byte */
    DYTI_AT_WAVE,        /* in_place: before each wave; else: at the fence
                            between two */
    DYTI_AT_TRANSFERRED, /* before verify */
    DYTI_AT_VERIFIED,    /* before the vote */
    DYTI_AT_VOTED,       /* before the decision is known */
    DYTI_AT_COMMITTING,  /* staged: while the old is copied over */
    DYTI_AT_DECIDED,     /* before leaving */
    DYTI_AT_COUNT
};

/* Deliberate mistakes of one rank, that verify or a test must notice. */
enum dyti_switch_fault {
    DYTI_FAULT_NONE,
    DYTI_FAULT_SKIP,    /* moves nothing and says it did */
    DYTI_FAULT_STALE,   /* leaves one tensor as it was */
    DYTI_FAULT_SWAP_KV, /* K and V of the first layer it holds change places */
    DYTI_FAULT_LATE,    /* moves its part after its vote */
    DYTI_FAULT_FAIL,    /* half way, the device fails */
    DYTI_FAULT_FLIP,    /* one bit of what it has received changes */
    DYTI_FAULT_COMMIT   /* staged: the device fails in the local copy */
};

struct dyti_switch_order {
    uint64_t epoch, version; /* as dyti_switch_begin() was told */
    enum dyti_verify verify;
    /* No manager: the ranks take the lock, the last voter commits. */
    bool unmanaged;
    /* Asked when all ranks have moved their bytes, before this one's vote, also
     * where they differ; not where verify is off, as nobody knows then that
     * they have moved.  NULL: nothing. */
    enum dyt_status (*check)(void *arg);
    void *check_arg;
#ifdef DYT_TEST_HOOKS
    enum dyti_switch_fault fault;
    uint32_t fault_tensor;
    void (*at)(void *arg, enum dyti_switch_point point); /* NULL: nothing */
    void *at_arg;
    bool keep_abandoned; /* do not fill abandoned regions with NaN */
#endif
};

/* What one rank did.  Times in ns. */
struct dyti_switch_report {
    enum dyti_decision decision; /* NONE: the ranks never met */
    uint64_t epoch, version;     /* version: visible afterwards */
    int64_t prepare_ns, transfer_ns, verify_ns, vote_ns, commit_ns, total_ns;
    uint64_t kept_bytes;  /* copied inside the rank, destination dtypes */
    uint64_t moved_bytes; /* from other ranks (push: to them), likewise */
    uint64_t read_bytes, written_bytes; /* by this rank's copies */
    uint64_t verified_bytes;            /* hashed here */
    uint32_t step_count, copy_count;
};

/**
 * Resolve plan and schedule to addresses, once.  Moves nothing.
 * @return DYT_ERR_LAYOUT       a span lies outside its region
 * @return DYT_ERR_UNSUPPORTED  a kind of step or a tensor that exec cannot do
 * @return DYT_ERR_NOMEM
 */
enum dyt_status dyti_switch_create(const struct dyti_switch_params *params,
                                   struct dyti_switch **out_switch);
void dyti_switch_destroy(struct dyti_switch *self);

/**
 * Do it.  Collective over all ranks; all give the same order.  *out_report is
 * filled on every return.
 * @return DYT_OK           committed, on all ranks
 * @return DYT_ERR_PEER     aborted, the old is whole; the text names the rank
 * @return DYT_ERR_VERIFY   likewise; the text names the tensor
 * @return DYT_ERR_STATE, DYT_ERR_BUSY, DYT_ERR_INVALID  refused by all (a
 * source is INVALID, a rank sleeps, another switch runs)
 * @return other            this rank failed, all aborted
 */
enum dyt_status dyti_switch_run(struct dyti_switch *self,
                                const struct dyti_switch_order *order,
                                struct dyti_switch_report *out_report);

/* The next run is refused when the ranks meet, by all of them, for this reason
 * of this rank: whose text is the thread's last failure. */
void dyti_switch_refuse(struct dyti_switch *self, enum dyt_status status);

/* Once more the local copy of a committed staged switch, for a rank that died
 * or failed in it: by whoever maps its segment (base) while the rank is gone.
 * DYT_ERR_STATE: its scratch holds nothing that was committed. */
enum dyt_status dyti_switch_heal_staged(struct dyti_control_page *page,
                                        uint32_t rank,
                                        const struct dyti_arena_map *map,
                                        void *base,
                                        const struct dyti_kernels *kernels);

/* "prepared", "voted", …  Static. */
const char *dyti_switch_point_name(enum dyti_switch_point point);

#endif /* DYTI_EXEC_SWITCH_H */
