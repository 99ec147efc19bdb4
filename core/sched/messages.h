/* The messages of a world on their way to be steps: message_order.c says which
 * pieces there are and in which order, messages.c makes steps of those of one
 * rank.  Of these two files only. */
#ifndef DYTI_SCHED_MESSAGES_H
#define DYTI_SCHED_MESSAGES_H

#include "sched/builder.h"
#include "sched/chains.h"

struct dyti_staging_slot {
    uint32_t last; /* the step that must end before it is used again */
    bool held;     /* by a piece that has not left yet */
};

/* A piece on its way through this rank. */
struct dyti_held_piece {
    uint32_t src, dst;
    uint64_t lo;
    uint32_t slot, step;
};

struct dyti_message_order {
    struct dyti_piece *piece; /* of all waves, by wave, in order; owned */
    size_t piece_count, next; /* next: the first not added yet */
    const struct dyti_chains *chains; /* of the flows; NULL: none */
    struct dyti_chains own_chains;    /* where nobody else has found them */
    uint64_t message_bytes;
    uint32_t slot_count, turn;
    struct dyti_staging_slot slot[DYTI_SLOTS_MAX];
    struct dyti_held_piece held[DYTI_SLOTS_MAX];
    uint32_t held_count;
    uint32_t *link_last; /* [2 * world_size], owned */
    /* [2 * world_size] what ended the last message of a link at this end;
     * owned. NULL: the next one need not wait for it. */
    uint32_t *link_done;
};

#endif /* DYTI_SCHED_MESSAGES_H */
