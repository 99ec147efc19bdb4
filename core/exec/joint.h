/* Collectives that a group of devices makes as such: which steps, with which
 * team, and where in the staging memory their bytes lie.
 *
 * A broadcast lies in the slot that the schedule gives it.  The parts of an
 * all-gather lie one behind the other, in a buffer for the purpose: PACK fills
 * one's own place in it, UNPACKs read from those of others.  There are a few
 * such buffers, used in turn: the PACK of an all-gather also waits for the
 * UNPACKs of the last one that had its buffer.  All wait in the order of the
 * schedule only, so nothing waits in a circle. */
#ifndef DYTI_EXEC_JOINT_H
#define DYTI_EXEC_JOINT_H

#include "exec/switch_internal.h"

struct dyti_joints {
    uint32_t *team;  /* [step_count] of a COLLECTIVE: in params.team, + 1; 0: by
                        messages.  Owned; NULL: none goes so */
    uint64_t *at;    /* [step_count] byte of the staging memory, or that of the
                        schedule; owned */
    uint32_t *frees; /* [step_count] of an UNPACK: the PACK that waits for it,
                        or DYTI_NO_STEP; owned */
    uint32_t *held;  /* [step_count] of a PACK: how many it waits for; owned */
    uint64_t bytes;  /* of the buffers, behind `slot_bytes` */
};

/* Buffers begin at byte slot_bytes of the staging memory. */
enum dyt_status dyti_joints_init(const struct dyti_switch *self,
                                 uint64_t slot_bytes,
                                 struct dyti_joints *out_joints);
void dyti_joints_fini(struct dyti_joints *joints);

/* Where the bytes of a step are. */
static inline uint64_t dyti_joint_at(const struct dyti_joints *joints,
                                     const struct dyti_schedule *schedule,
                                     uint32_t index)
{
    return joints->team == NULL ? schedule->step[index].staging_offset
                                : joints->at[index];
}

/* A COLLECTIVE that goes by its team. */
static inline bool dyti_joint_is(const struct dyti_joints *joints,
                                 uint32_t index)
{
    return joints->team != NULL && joints->team[index] != 0;
}

/* As its team is to make it; `staging`: the memory. */
struct dyti_joint dyti_joint_of(const struct dyti_switch *self,
                                const struct dyti_joints *joints,
                                uint32_t index, unsigned char *staging);

/* The step of a kind that uses a slot of `step` next. */
uint32_t dyti_step_next_at(const struct dyti_schedule *s,
                           const struct dyti_step *step,
                           enum dyti_step_kind kind, uint64_t offset);
/* The PACK that fills a part of the COLLECTIVE `index`, or the UNPACK that
 * empties it; DYTI_NO_STEP: none does, it passes this rank. */
uint32_t dyti_step_of_part(const struct dyti_schedule *s, uint32_t index,
                           const struct dyti_fused_message *part);

#endif /* DYTI_EXEC_JOINT_H */
