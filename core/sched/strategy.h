/* Which bytes go when: a strategy turns the traffic between ranks into pieces
 * in rounds.  Pure; equal inputs give equal pieces on every rank.
 * in: flows (added up from a plan) and a cluster
 * out: build.c makes steps of the pieces that touch a rank; explain/ simulates
 *
 *   stream  what one rank sends another in one wave, packed: its transfers one
 *           after the other in plan order, in the destination's dtypes.  A
 *           piece is a byte range of a stream
 *   hop     a piece may travel by way of other ranks (funnel): `src`, `dst`
 *           name the stream, `from`, `to` who moves it now
 *   round   pieces of one round start together; an order, not a barrier: in
 *           each round a rank sends at most one piece of a link class, and
 *           receives at most one
 *   order   pieces as they lie in the array.  A piece waits only for pieces
 *           before it (docs/scheduling.md): for the one before it among those
 *           that its `from` sends on the same link class, for the one before it
 *           among those that its `to` receives on it, for the hop before it,
 *           and, in wave w > 0, for all pieces of waves below w that go to its
 *           `from`
 */
#ifndef DYTI_SCHED_STRATEGY_H
#define DYTI_SCHED_STRATEGY_H

#include "layout/cluster.h"
#include "plan/flow.h" /* struct dyti_flow */

#include <stddef.h>

/* What there is to order.  Plain value; arrays are borrowed. */
struct dyti_order {
    const struct dyti_cluster *cluster;
    const struct dyti_flow *flow; /* [flow_count], (src, dst, wave) once */
    size_t flow_count;
    /* Where each transfer ends in the stream: [flow_count][messages], rising,
     * the last is `bytes`; NULL: all of a flow are of the same size. */
    const uint64_t *const *end;
    uint64_t chunk_bytes; /* most bytes of a piece; 0: chosen, at most 1/64 of
                             the busiest rank's of its link class */
    /* funnel: the one replica that gathers for a rank, and that scatters to
     * it: [rank_count]; NULL: the lowest rank of its host. */
    const uint32_t *src_lead, *dst_lead;
    /* funnel: the detours as flows of their own instead, in waves: gather,
     * exchange, scatter (plan/traffic.h's dyti_traffic_funnel()).  Pieces are
     * then of these flows. */
    const struct dyti_flow *detour;
    size_t detour_count;
    /* per-tensor: most pieces of a flow.  Where it has more transfers a piece
     * stands for several that follow each other.  0: a piece for each. */
    uint32_t most_pieces;
};

struct dyti_piece {
    uint32_t src, dst; /* whose stream … */
    uint32_t wave;     /* … of which wave */
    uint32_t from, to; /* this hop */
    uint32_t round;
    uint32_t hop;      /* 0: first */
    uint64_t lo, hi;   /* bytes of the stream; the same range on each hop */
    uint32_t messages; /* that it stands for; 0: one */
};

struct dyti_pieces {
    struct dyti_piece *piece; /* [count], by round, from, to; owned */
    size_t count;
    uint32_t round_count;
    uint64_t chunk_bytes; /* of the biggest piece */
    /* Certificate, in seconds of the cluster's links without latency and
     * per-message cost: what the pieces take, started in order as their ranks
     * become free, and the load of the busiest rank or link. */
    double makespan_s, load_s;
};

struct dyti_strategy_ops {
    const char *name; /* "optimal", "xor", "funnel", "per-tensor" */
    /* One message after the other: at either end of a link the next one begins
     * when the last has been sent, or unpacked.  Else as many are under way as
     * there are slots. */
    bool one_by_one;
    /* DYT_ERR_INVALID  a flow of no bytes, to itself, given twice, of a rank
     *                  that the cluster has not; a link without a speed
     * DYT_ERR_OVERFLOW, DYT_ERR_NOMEM; *out_pieces untouched on all */
    enum dyt_status (*order)(const struct dyti_order *in,
                             struct dyti_pieces *out_pieces);
};

extern const struct dyti_strategy_ops dyti_strategy_optimal, dyti_strategy_xor,
    dyti_strategy_funnel, dyti_strategy_per_tensor;

/* DYT_ERR_CONFIG lists the names. */
enum dyt_status dyti_strategy_by_name(const char *name,
                                      const struct dyti_strategy_ops **out_ops);
/* The four in the order of their names above; NULL after the last. */
const struct dyti_strategy_ops *dyti_strategy_at(size_t index);
void dyti_pieces_fini(struct dyti_pieces *pieces); /* a zeroed one is fine */

#endif /* DYTI_SCHED_STRATEGY_H */
