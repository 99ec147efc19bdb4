/* Streams that run as one collective: which, among whom, over what.
 * in: a whole plan and its flows   out: collective_steps.c makes steps of them
 *
 * A collective of the message mover is a fused exchange among a subset of the
 * world's group: each member posts all its messages of a chunk at once, and
 * what goes to several is packed once.  No group is made for it, let alone for
 * a pair of ranks; where the message group has a team of just these members,
 * exec/ lets that do it, in the same buffers. */
#ifndef DYTI_SCHED_COLLECTIVES_H
#define DYTI_SCHED_COLLECTIVES_H

#include "sched/promote.h"
#include "sched/sched.h"

struct dyti_collective_key { /* a stream that is part of one */
    uint32_t src, dst, wave;
};

struct dyti_collectives {
    /* .bytes: of one stream; .item: indices of flows; .rest: not filled */
    struct dyti_promotion found;
    struct dyti_collective_key *key; /* [key_count], sorted; owned */
    size_t key_count, key_cap;
};

/**
 * Whole streams that form a collective, where the messages of all take no
 * longer than without, as sched/replay.h plays them with their costs.  Only for
 * strategy `optimal` and plans of all ranks; streams of chains are left to
 * those.  Pure.
 */
enum dyt_status dyti_collectives_find(const struct dyti_plan *plan,
                                      const struct dyti_schedule_links *links,
                                      const struct dyti_flow *flow,
                                      size_t flow_count,
                                      const struct dyti_chains *chains,
                                      struct dyti_collectives *out_collectives);
/* The same of a traffic that no plan has been built of: stream[i] is flow[i],
 * links->domain as in a schedule. */
enum dyt_status dyti_collectives_of_streams(
    const struct dyti_promotable *stream, uint32_t world_size,
    const struct dyti_schedule_links *links, const struct dyti_flow *flow,
    size_t flow_count, struct dyti_collectives *out_collectives);
/* … of a plan, where slots are, whether or not that pays. */
enum dyt_status dyti_collectives_all(const struct dyti_plan *plan,
                                     const struct dyti_schedule_links *links,
                                     const struct dyti_flow *flow,
                                     size_t flow_count,
                                     const struct dyti_chains *chains,
                                     struct dyti_collectives *out_collectives);
/* What all messages take with these, or none (NULL). */
enum dyt_status dyti_collectives_seconds(
    const struct dyti_plan *plan, const struct dyti_schedule_links *links,
    const struct dyti_flow *flow, size_t flow_count,
    const struct dyti_chains *chains,
    const struct dyti_collectives *collectives, double *out_seconds);
/* Is the stream part of one?  Of none (NULL) too. */
bool dyti_collectives_have(const struct dyti_collectives *collectives,
                           uint32_t src, uint32_t dst, uint32_t wave);
void dyti_collectives_fini(struct dyti_collectives *collectives);

#endif /* DYTI_SCHED_COLLECTIVES_H */
