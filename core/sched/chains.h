/* Broadcasts that run as chains: the same bytes for ranks on several hosts
 * leave their source once, and each receiver passes them on to the next.
 * in: a whole plan and its flows   out: message_order.c makes hops of them */
#ifndef DYTI_SCHED_CHAINS_H
#define DYTI_SCHED_CHAINS_H

#include "sched/sched.h"

struct dyti_chain {
    uint32_t src, wave;
    uint32_t first, count; /* in .member: receivers in the order of the hops */
    uint64_t bytes;        /* of the stream, the same for all */
};

struct dyti_chains {
    struct dyti_chain *chain; /* [count], by src, wave; owned */
    uint32_t count;
    uint32_t *member; /* [member_count], owned */
    uint32_t member_count;
};

/**
 * Streams of equal content from one rank to ranks on different hosts, where a
 * chain pays: what passes on sends less then than the source did, and the
 * stream is long enough to travel in pieces of message_bytes.  Only for
 * strategy `optimal`, links of full duplex, and plans of all ranks; else none.
 * Pure.
 */
enum dyt_status dyti_chains_find(const struct dyti_plan *plan,
                                 const struct dyti_schedule_links *links,
                                 const struct dyti_flow *flow,
                                 size_t flow_count,
                                 struct dyti_chains *out_chains);
/* The chain that the stream from src to dst is part of, or NULL; of no chains
 * (NULL) too. */
const struct dyti_chain *dyti_chains_of(const struct dyti_chains *chains,
                                        uint32_t src, uint32_t dst,
                                        uint32_t wave);
void dyti_chains_fini(struct dyti_chains *chains); /* a zeroed one is fine */

#endif /* DYTI_SCHED_CHAINS_H */
