/* The messages of a world on their way to be steps: message_order.c says which
 * pieces there are and in which order, messages.c makes steps of those of one
 * rank.  Of these two files only. */
#ifndef DYTI_SCHED_MESSAGES_H
#define DYTI_SCHED_MESSAGES_H

#include "sched/builder.h"
#include "sched/chains.h"
#include "sched/collectives.h"

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
    const struct dyti_chains *chains;           /* of the flows; NULL: none */
    const struct dyti_collectives *collectives; /* likewise */
    struct dyti_chains own_chains; /* where nobody else has found them */
    struct dyti_collectives own_collectives;
    uint64_t message_bytes;
    uint32_t slot_count, turn;
    uint32_t collective_number; /* chunks of collectives, of all ranks */
    struct dyti_staging_slot slot[DYTI_SLOTS_MAX];
    struct dyti_held_piece held[DYTI_SLOTS_MAX];
    uint32_t held_count;
    uint32_t *link_last; /* [2 * world_size], owned */
    /* [2 * world_size] what ended the last message of a link at this end;
     * owned. NULL: the next one need not wait for it. */
    uint32_t *link_done;
};

/* ---- message_order.c: what collectives.c uses --------------------------- */

/* Which cluster the messages are ordered for; borrows from links. */
enum dyt_status dyti_message_cluster(const struct dyti_schedule_links *links,
                                     uint32_t world_size,
                                     struct dyti_cluster *out_cluster);
/* Fills order->piece: message_bytes, slot_count, chains and collectives are
 * set. */
enum dyt_status dyti_message_order_pieces(
    struct dyti_message_order *order, uint32_t world_size,
    const struct dyti_schedule_links *links, const struct dyti_flow *flow,
    const uint64_t *const *end, size_t count);

/* ---- collective_seconds.c ------------------------------------------------ */

/* What is played with and without collectives.  Borrows. */
struct dyti_collective_trial {
    const struct dyti_schedule_links *links;
    const struct dyti_flow *flow;
    size_t flow_count;
    const struct dyti_chains *chains;
    uint32_t world_size, wave_count, slot_count;
    uint64_t message_bytes;
};

enum dyt_status dyti_collective_trial_init(
    struct dyti_collective_trial *t, uint32_t world_size,
    const struct dyti_schedule_links *links, const struct dyti_flow *flow,
    size_t flow_count, const struct dyti_chains *chains);
enum dyt_status dyti_collective_trial_seconds(
    const struct dyti_collective_trial *t, const struct dyti_collectives *all,
    double *out_s);

/* ---- messages.c: what collective_steps.c uses ---------------------------- */

enum dyt_status dyti_message_stream(struct dyti_sched_builder *b, uint32_t src,
                                    uint32_t dst, uint32_t wave,
                                    uint32_t *out_stream);
uint32_t dyti_message_take_slot(struct dyti_message_order *order);
uint64_t dyti_message_slot_offset(struct dyti_message_order *order,
                                  struct dyti_schedule *s, uint32_t slot);
/* Spans, transfers and bytes of a PACK or UNPACK. */
void dyti_message_count_bytes(struct dyti_sched_builder *b,
                              struct dyti_step *step);
/* `step` follows on a link who was the last on it. */
void dyti_message_link(struct dyti_message_order *order,
                       struct dyti_schedule *s, uint32_t link, uint32_t step);

/* ---- collective_steps.c -------------------------------------------------- */

/* This rank's steps of the collectives of a wave. */
enum dyt_status dyti_message_collectives(struct dyti_message_order *order,
                                         struct dyti_sched_builder *b,
                                         uint32_t wave);

#endif /* DYTI_SCHED_MESSAGES_H */
