/* Which bytes go when: a strategy turns the traffic between ranks into pieces
 * in rounds.  Pure; equal inputs give equal pieces on every rank. in: flows
 * (added up from a plan) and a cluster out: build.c makes steps of the pieces
 * that touch a rank; explain/ simulates
 *
 *   stream  what one rank sends another, packed: its transfers one after the
 *           other in plan order, in the destination's dtypes.  A piece is a
 *           byte range of a stream
 *   hop     a piece may travel by way of other ranks (funnel): `src`, `dst`
 * name the stream, `from`, `to` who moves it now round   pieces of one round
 * that start together; an order, not a barrier
 */
#ifndef DYTI_SCHED_STRATEGY_H
#define DYTI_SCHED_STRATEGY_H

#include "layout/cluster.h"
#include "plan/flow.h" /* struct dyti_flow */

#include <stddef.h>

struct dyti_piece {
    uint32_t src, dst; /* whose stream */
    uint32_t from, to; /* this hop */
    uint32_t round;
    uint32_t hop;    /* 0: first */
    uint64_t lo, hi; /* bytes of the stream */
};

struct dyti_pieces {
    struct dyti_piece *piece; /* [count], by round, from, to; owned */
    size_t count;
    uint32_t round_count;
    /* Certificate, in seconds of the cluster's links without latency and
     * per-message cost: what the pieces take, started in order as their ranks
     * become free, and the load of the busiest rank or link. */
    double makespan_s, load_s;
};

struct dyti_strategy_ops {
    const char *name; /* "optimal", "xor", "funnel", "per-tensor" */
    enum dyt_status (*order)(const struct dyti_cluster *cluster,
                             const struct dyti_flow *flow, size_t flow_count,
                             uint64_t chunk_bytes, /* 0: chosen */
                             struct dyti_pieces *out_pieces);
};

extern const struct dyti_strategy_ops dyti_strategy_optimal, dyti_strategy_xor,
    dyti_strategy_funnel, dyti_strategy_per_tensor;

/* DYT_ERR_CONFIG lists the names. */
enum dyt_status dyti_strategy_by_name(const char *name,
                                      const struct dyti_strategy_ops **out_ops);
void dyti_pieces_fini(struct dyti_pieces *pieces);

#endif /* DYTI_SCHED_STRATEGY_H */
