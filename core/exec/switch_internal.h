/* What the files of this room share: a switch with everything resolved. */
#ifndef DYTI_EXEC_SWITCH_INTERNAL_H
#define DYTI_EXEC_SWITCH_INTERNAL_H

#include "exec/switch.h"
#include "exec/verify.h"

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

/* ---- run.c ----------------------------------------------------------------
 */

/* All steps of the schedule, once. */
enum dyt_status dyti_switch_transfer(struct dyti_switch *self);

/* ---- fault.c: only what test builds compile -------------------------------
 */

#ifdef DYT_TEST_HOOKS
/* Before and after the transfer of a faulty order. */
enum dyt_status dyti_fault_before(struct dyti_switch *self,
                                  const struct dyti_switch_order *order);
enum dyt_status dyti_fault_after(struct dyti_switch *self,
                                 const struct dyti_switch_order *order);
/* After the commit: what the phase abandons reads as NaN. */
void dyti_fault_fill_abandoned(struct dyti_switch *self);
#endif

#endif /* DYTI_EXEC_SWITCH_INTERNAL_H */
