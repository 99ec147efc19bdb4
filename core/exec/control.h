/* The control page: the few words that all ranks of a job and its manager
 * share.  Answers "has anybody failed?", "which switch runs?" and "how did it
 * end?"
 *
 * It is the start of the control segment, zero when made; nobody else writes
 * there.  A switch goes through it so:
 *
 *   begin    one caller takes the lock:   epoch 0 -> e          (else BUSY)
 *   vote     every rank: READY or FAILED of epoch e
 *   decide   once, when all have voted: commit(e) if all are READY, or
 *            abort(e); or abort(e) at any time when a rank is lost
 *   leave    every rank, when it has acted on the decision
 *   end      when all have left: epoch e -> 0
 *
 * The decision is one atomic compare-and-swap from "none of e", so it is made
 * once, whoever makes it: the manager by dyti_switch_commit(), or by
 * dyti_switch_abort() when it sees a death; or the last voter, where no manager
 * is asked.  The version changes with it and never otherwise.
 *
 * Threads: all functions from any thread or process that maps the page.
 */
#ifndef DYTI_EXEC_CONTROL_H
#define DYTI_EXEC_CONTROL_H

#include "ops/group.h"
#include "ops/wait.h"

#define DYTI_CONTROL_MAX_RANKS 1024u
#define DYTI_CONTROL_MAGIC     0x64796e63746c3101u

enum dyti_vote { DYTI_VOTE_NONE, DYTI_VOTE_READY, DYTI_VOTE_FAILED };

enum dyti_decision {
    DYTI_DECISION_NONE,
    DYTI_DECISION_COMMIT,
    DYTI_DECISION_ABORT
};

/* What one rank says about the switch it is in. */
struct dyti_control_rank {
    _Alignas(64) _Atomic uint64_t vote; /* epoch << 8 | enum dyti_vote */
    _Atomic uint64_t left;              /* the last epoch it has left */
    _Atomic uint64_t serves;            /* version of the weights it uses */
    _Atomic int32_t cause;              /* enum dyt_status of a FAILED vote */
    /* Regions of this rank that hold nothing of use, as bits of
     * dyti_region_bit(): INVALID (overwritten by an in_place switch, or half
     * copied by a staged one) since switch `lost_epoch`, or asleep. */
    _Atomic uint64_t lost, asleep;
    _Atomic uint64_t lost_epoch;
    /* Staged: the scratch holds `staged` regions of this switch, verified. */
    _Atomic uint64_t staged_epoch, staged;
    /* The last switch whose transfer this rank has given up; and epoch << 24 |
     * fences of the switch that it has reached. */
    _Atomic uint64_t gave_up, fenced;
};

struct dyti_control_page {
    _Atomic uint64_t magic; /* set by the first that opens the page */
    _Atomic uint32_t world_size;
    _Alignas(64) struct dyti_abort_word abort;
    _Alignas(64) _Atomic uint64_t epoch; /* of the running switch, 0 = none */
    _Atomic uint64_t last_epoch;         /* the highest ever begun */
    _Atomic uint64_t next_version;       /* what a commit makes visible */
    _Alignas(64) _Atomic uint64_t decision; /* epoch << 8 | dyti_decision */
    _Atomic uint64_t version;               /* committed */
    /* Live address set of each layout, bit = its arena slot; changes with the
     * version.  next_sets: what a commit makes of it. */
    _Atomic uint32_t sets, next_sets;
    _Atomic uint32_t decision_bell; /* changes with every decision; futex */
    _Alignas(64) _Atomic uint32_t vote_bell; /* … every vote; futex */
    struct dyti_control_rank rank[DYTI_CONTROL_MAX_RANKS];
};

/* Bytes of the control segment that the page takes. */
uint64_t dyti_control_bytes(void);

/* Make the page ready, or check that it is: every process and thread does so
 * before it uses the page. `memory` is zeroed or a page of the same world.
 * DYT_ERR_INVALID: too many ranks, or the page is of another world. */
enum dyt_status dyti_control_open(void *memory, uint32_t world_size,
                                  struct dyti_control_page **out_page);

/* Take the lock for switch `epoch` (> every epoch before it), which would make
 * `version` visible.  One caller: the manager.
 * DYT_ERR_BUSY: another epoch holds the lock, the text says which
 * DYT_ERR_STATE: the epoch is not above the last, or the version would fall */
enum dyt_status dyti_switch_begin(struct dyti_control_page *page,
                                  uint64_t epoch, uint64_t version);

/* Where there is no manager: every rank of the switch calls it, when all of
 * them have met, with the same numbers; the first takes the lock for all. */
enum dyt_status dyti_switch_join(struct dyti_control_page *page, uint64_t epoch,
                                 uint64_t version);

/* One rank's vote; cause says why not READY. */
void dyti_switch_vote(struct dyti_control_page *page,
                      const struct dyti_wait_ops *wait, uint32_t rank,
                      uint64_t epoch, enum dyti_vote vote,
                      enum dyt_status cause);

/* Commit if all ranks have voted READY.  DYT_OK: committed, now or before.
 * DYT_PENDING: votes are missing: a rank that has not voted may still read or
 * write others' memory, so even a FAILED vote waits for it.  DYT_ERR_PEER:
 * aborted, or a rank voted FAILED (it is aborted now); the text names it. */
enum dyt_status dyti_switch_commit(struct dyti_control_page *page,
                                   const struct dyti_wait_ops *wait,
                                   uint64_t epoch);

/* Decide against it.  DYT_OK: aborted, now or before.  DYT_ERR_STATE: it has
 * been committed, and stays so. */
enum dyt_status dyti_switch_abort(struct dyti_control_page *page,
                                  const struct dyti_wait_ops *wait,
                                  uint64_t epoch);

/* Wait for the votes of all ranks or a decision, then commit or abort: what a
 * manager does that has nothing else to watch.  Statuses of
 * dyti_switch_commit(), and DYT_ERR_TIMEOUT (aborted, names the rank). */
enum dyt_status dyti_switch_decide(struct dyti_control_page *page,
                                   const struct dyti_wait_ops *wait,
                                   uint64_t epoch, int64_t timeout_ns);

/* How did switch `epoch` end?  For one who lost the answer: reads only, any
 * number of times.  NONE: it has not been decided, or never began.  An epoch
 * that a later one has followed was committed if *out_version, the version that
 * is visible, is the one it was to bring; out_version may be NULL. */
enum dyti_decision dyti_switch_outcome(const struct dyti_control_page *page,
                                       uint64_t epoch, uint64_t *out_version);

/* Sleep until there is a decision.  An abort word that is set, or the deadline,
 * decides for abort, unless a commit was first: the answer is the one decision
 * that all ranks see. */
enum dyti_decision dyti_switch_await(struct dyti_control_page *page,
                                     const struct dyti_wait_ops *wait,
                                     uint64_t epoch, int64_t timeout_ns);

/* The rank has acted on the decision.  The last one that leaves gives the lock
 * back; after a death the manager does so by dyti_switch_end(). */
void dyti_switch_leave(struct dyti_control_page *page, uint32_t rank,
                       uint64_t epoch);
void dyti_switch_end(struct dyti_control_page *page, uint64_t epoch);

/* ---- what is whole ------------------------------------------------------ */

/* Region (layout, kind) of a rank; slot is an enum dyti_arena_slot. */
static inline uint64_t dyti_region_bit(uint32_t slot, uint32_t kind)
{
    return UINT64_C(1) << (slot * 8u + kind);
}

/* From now on the rank's regions are INVALID … */
void dyti_control_lose(struct dyti_control_page *page, uint32_t rank,
                       uint64_t epoch, uint64_t regions);
/* … and whole again, by a commit. */
void dyti_control_heal(struct dyti_control_page *page, uint32_t rank,
                       uint64_t regions);

/* Regions of the rank that are INVALID. */
uint64_t dyti_control_lost(const struct dyti_control_page *page, uint32_t rank);

/* May these regions be read, on all ranks?
 * DYT_ERR_STATE: one is INVALID or released; the text names rank and region,
 * since when, and the remedy.  Before the first commit nothing is refused here:
 * version 0 says so. */
enum dyt_status dyti_control_check_whole(const struct dyti_control_page *page,
                                         uint64_t regions);
/* … on one rank. */
enum dyt_status dyti_control_check_rank(const struct dyti_control_page *page,
                                        uint32_t rank, uint64_t regions);

/* ---- failure ------------------------------------------------------------ */

/* Say that `rank` failed: the first one stays.  Every wait of every rank ends
 * within 100 ms; a running switch is decided against, unless committed. */
void dyti_control_abort(struct dyti_control_page *page,
                        const struct dyti_wait_ops *wait, uint32_t rank,
                        enum dyt_status status);

/* DYT_OK, or DYT_ERR_PEER with rank and cause in the text. */
enum dyt_status dyti_control_check(const struct dyti_control_page *page);

#endif /* DYTI_EXEC_CONTROL_H */
