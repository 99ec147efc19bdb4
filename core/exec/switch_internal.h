/* What the files of this room share: a switch with everything resolved. */
#ifndef DYTI_EXEC_SWITCH_INTERNAL_H
#define DYTI_EXEC_SWITCH_INTERNAL_H

#include "exec/switch.h"
#include "exec/verify.h"

/* A step that a device has queued, and the mark behind it. */
struct dyti_work {
    uint32_t step;
    uint64_t mark;
};

struct dyti_queue {
    struct dyti_copy_list **list;  /* [step_count] NULL: it has none; owned */
    struct dyti_copy_list *commit; /* of `commit`, owned; NULL: none */
    struct dyti_work *work; /* [step_count] others wait for; reset by a run */
    uint32_t head, tail;
    bool takes_messages; /* they come after what is queued by themselves */
};

struct dyti_switch {
    struct dyti_switch_params params;
    const struct dyti_schedule *schedule;
    struct dyti_copy *copy; /* [schedule->span_count]: addresses, owned */
    /* The loop's state, reset by every run: owned. */
    uint32_t *waits; /* [step_count] steps that each still waits for */
    uint32_t *ready; /* [step_count] a queue; every step enters it once */
    struct dyti_verifier verifier;
    uint64_t *meeting; /* what each rank said when they met, owned */
    uint64_t *counts;  /* [world_size], owned */
    uint64_t kept_bytes, moved_bytes;
    struct dyti_queue *queue;       /* NULL: on the host; owned */
    struct dyti_messages *messages; /* NULL: this rank has none; owned */
    /* Modes: exec/mode.c. */
    struct dyti_switch *other; /* double: the one for when set 1 is live */
    uint64_t filled, read, overlaid; /* regions, as bits */
    const struct dyti_copy *commit;  /* staged: scratch to place */
    uint32_t commit_count;
    struct dyti_copy region_copy[DYTI_KIND_COUNT]; /* of whole regions */
    struct dyti_in_place *in_place; /* owned; NULL in the other modes */
    enum dyt_status refusal;        /* of the next run; DYT_OK: none */
    uint64_t fingerprint;           /* of plan, schedule and mode */
#ifdef DYT_TEST_HOOKS
    unsigned char *stale; /* what a fault keeps, during one run */
#endif
};

/* ---- resolve.c ------------------------------------------------------------
 */

/* Address of byte `offset` in a region of a rank's segment. */
unsigned char *dyti_switch_address(const struct dyti_switch_params *params,
                                   uint32_t rank, uint32_t slot, uint32_t kind,
                                   uint64_t offset);
/* Spans to copies; refuses what would leave its region. */
enum dyt_status dyti_switch_resolve(struct dyti_switch *self);

/* The own end of a stream's spans. */
enum dyt_status dyti_switch_resolve_stream(struct dyti_switch *self,
                                           const struct dyti_stream *stream);

/* ---- meet.c ---------------------------------------------------------------
 */

#define DYTI_MEET_WORDS 5u /* that a rank says when they meet */

/* All ranks meet and refuse together; sources are final when they have met. */
enum dyt_status dyti_switch_meet(struct dyti_switch *self,
                                 const struct dyti_switch_order *order);

/* ---- messages.c, move.c ---------------------------------------------------
 */

enum dyt_status dyti_messages_init(struct dyti_switch *self);
void dyti_messages_fini(struct dyti_switch *self);
/* Before the ranks meet: nothing of an earlier switch is left. */
void dyti_messages_begin(struct dyti_switch *self, uint64_t epoch);
/* A MOVE may start: it does, when those of its link before it have. */
enum dyt_status dyti_messages_post(struct dyti_switch *self, uint32_t index);
/* PACK or UNPACK. */
enum dyt_status dyti_messages_pack(struct dyti_switch *self,
                                   const struct dyti_step *step);
/* Of a PACK: steps that it waits for besides those that the schedule says, and
 * of an UNPACK, which is done or queued: the PACK that has waited for it. */
uint32_t dyti_messages_held(const struct dyti_switch *self, uint32_t index);
uint32_t dyti_messages_frees(const struct dyti_switch *self, uint32_t index);
uint32_t dyti_messages_in_flight(const struct dyti_switch *self);
/* Steps that have ended since the last call. */
enum dyt_status dyti_messages_poll(struct dyti_switch *self,
                                   uint32_t landed[DYTI_SLOTS_MAX],
                                   uint32_t *out_count);
/* Sleep a moment; DYT_ERR_PEER: a rank has given up or is lost. */
enum dyt_status dyti_messages_wait(struct dyti_switch *self, uint64_t epoch);
/* Nothing is in flight any more; staging is not touched. */
void dyti_messages_stop(struct dyti_switch *self);

/* The boxes that a PACK or UNPACK moves, made ready for its device; NULL where
 * the MOVE does it. */
enum dyt_status dyti_messages_list(struct dyti_switch *self,
                                   const struct dyti_step *step,
                                   struct dyti_copy_list **out_list);

/* ---- queue.c -------------------------------------------------------------
 */

/* Last of all: what is made ready of a switch on a device.  Nothing on a host.
 */
enum dyt_status dyti_queue_init(struct dyti_switch *self);
void dyti_queue_fini(struct dyti_switch *self);
bool dyti_queue_is_there(const struct dyti_switch *self);
void dyti_queue_begin(struct dyti_switch *self);
/* Of a COPY, PACK or UNPACK; NULL: on the host. */
struct dyti_copy_list *dyti_queue_list(const struct dyti_switch *self,
                                       const struct dyti_step *step);
/* May a step start when those before it are only queued? */
bool dyti_queue_takes(const struct dyti_switch *self, uint32_t index);
/* A step has been queued, and others wait until it is done. */
enum dyt_status dyti_queue_add(struct dyti_switch *self, uint32_t index);
bool dyti_queue_waits(const struct dyti_switch *self);
/* The first of them: DYT_PENDING, or it is done. */
enum dyt_status dyti_queue_poll(struct dyti_switch *self, uint32_t *out_step);
/* All that was queued is done, and visible to whoever meets this rank now. */
enum dyt_status dyti_queue_drain(const struct dyti_switch *self);
/* After a failure: nothing runs any more. */
void dyti_queue_stop(struct dyti_switch *self);

/* ---- fence.c --------------------------------------------------------------
 */

/* This rank's part of the transfer has failed: others stop waiting for it. */
void dyti_fence_give_up(const struct dyti_switch *self, uint64_t epoch);
/* DYT_ERR_PEER: another rank has given up, or is lost. */
enum dyt_status dyti_fence_check(const struct dyti_switch *self,
                                 uint64_t epoch);
/* All ranks have come to fence `fence`: 0, 1, … of this switch. */
enum dyt_status dyti_fence_meet(const struct dyti_switch *self, uint64_t epoch,
                                uint32_t fence);

/* ---- apart.c ---------------------------------------------------------------
 */

/* Hear the votes of ranks that are on other pages and write them down here;
 * returns this rank's own, which fails where they cannot be heard. */
enum dyt_status dyti_apart_votes(struct dyti_switch *self, uint64_t epoch,
                                 enum dyt_status mine);
/* This rank has failed: who is on its page is told, and who is not loses the
 * connection.  Nothing where all are on one page. */
void dyti_apart_fail(struct dyti_switch *self, enum dyt_status status);
/* Ranks on other pages have left this one. */
void dyti_apart_leave(struct dyti_switch *self, uint64_t epoch);

/* ---- run.c ----------------------------------------------------------------
 */

/* All steps of the schedule, once. */
enum dyt_status dyti_switch_transfer(struct dyti_switch *self,
                                     const struct dyti_switch_order *order);

/* ---- mode.c ---------------------------------------------------------------
 */

/* The address sets that a switch uses while set `live` is. */
void dyti_mode_sets(struct dyti_switch_params *params, uint32_t live);
enum dyt_status dyti_mode_init(struct dyti_switch *self);
/* This one or the other, as the control page says. */
struct dyti_switch *dyti_mode_live(struct dyti_switch *self);
/* DYT_ERR_STATE: a source is INVALID, or a rank sleeps. */
enum dyt_status dyti_mode_check(const struct dyti_switch *self);
/* All have met / this rank has verified / it is about to write over the old. */
void dyti_mode_begin(struct dyti_switch *self, uint64_t epoch);
void dyti_mode_verified(struct dyti_switch *self, uint64_t epoch);
void dyti_mode_overwrites(struct dyti_switch *self, uint64_t epoch);
/* Committed: make it so here.  `half` is called when the old is being
 * overwritten (staged); a failure leaves this rank INVALID. */
typedef enum dyt_status (*dyti_mode_half_fn)(void *arg);
enum dyt_status dyti_mode_commit(struct dyti_switch *self, uint64_t epoch,
                                 dyti_mode_half_fn half, void *arg);
uint32_t dyti_staged_copies(const struct dyti_arena_map *map, void *base,
                            uint64_t regions,
                            struct dyti_copy out[DYTI_KIND_COUNT]);

/* ---- in_place.c -----------------------------------------------------------
 */

/* Makes the schedule of waves that the switch runs instead of the plan's. */
enum dyt_status dyti_in_place_init(struct dyti_switch *self);
void dyti_in_place_fini(struct dyti_switch *self);
uint64_t dyti_in_place_fingerprint(const struct dyti_switch *self);
/* Where messages have their slots; NULL in the other modes. */
unsigned char *dyti_in_place_slots(const struct dyti_switch *self);
enum dyt_status dyti_in_place_transfer(struct dyti_switch *self,
                                       const struct dyti_switch_order *order);
/* Before all ranks come to the fence behind a wave. */
void dyti_in_place_fence(struct dyti_switch *self, uint64_t epoch,
                         uint32_t wave);

/* ---- switch.c -------------------------------------------------------------
 */

/* The transfer, as the mode does it. */
enum dyt_status dyti_switch_move(struct dyti_switch *self,
                                 const struct dyti_switch_order *order);
/* Tells a test where the switch is. */
void dyti_switch_at(const struct dyti_switch_order *order,
                    enum dyti_switch_point point);

/* ---- fault.c: only what test builds compile -------------------------------
 */

#ifdef DYT_TEST_HOOKS
/* Before and after the transfer of a faulty order. */
enum dyt_status dyti_fault_before(struct dyti_switch *self,
                                  const struct dyti_switch_order *order);
enum dyt_status dyti_fault_after(struct dyti_switch *self,
                                 const struct dyti_switch_order *order);
/* After the commit: what the phase abandons reads as NaN. */
enum dyt_status dyti_fault_fill_abandoned(struct dyti_switch *self);
#endif

#endif /* DYTI_EXEC_SWITCH_INTERNAL_H */
