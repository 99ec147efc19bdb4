/* Spreads demands over those who can serve them, so that the busiest carries
 * the least: an exact min-max flow in integers.
 *
 *   key    a demand in bytes and the ranks that can serve it, in any parts
 *   units  what the links of a host carry together, in links of one rank times
 *          DYTI_CHOOSE_UNIT
 *
 * The least possible load L is where a flow of all demands just fits: keys →
 * ranks (L each) → hosts (L * units each).  Found by Newton's method on the
 * minimum cut: start from what is certain, run a flow, and where it does not
 * fit the cut names the ranks that are too few; L grows to what those need.
 * Each step is a Dinic flow that starts from the even spread, which is kept as
 * far as it fits.  Pure, integers only, equal on every rank.
 */
#ifndef DYTI_PLAN_CHOOSE_H
#define DYTI_PLAN_CHOOSE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DYTI_CHOOSE_UNIT  1024u
#define DYTI_CHOOSE_EDGES (1u << 20) /* more: each key is spread evenly */

struct dyti_choose_key {
    uint64_t demand;      /* bytes */
    const uint32_t *rank; /* [count], borrowed */
    uint32_t count;
    size_t share; /* first of its shares: set by dyti_choose() */
};

struct dyti_choose {
    struct dyti_choose_key *key; /* [key_count], by the caller */
    size_t key_count;
    uint32_t world_size, host_count;
    const uint32_t *host;      /* [world_size] */
    const uint64_t *host_unit; /* [host_count]; NULL: hosts do not bind */
    uint64_t *share;           /* out, [sum of counts]: bytes that rank i of a
                                  key serves; owned */
    uint64_t load;             /* out: L; the spread's when in_turn */
    bool in_turn;              /* out: too large for a flow */
};

enum dyt_status dyti_choose(struct dyti_choose *choose);

/* ---- the flow (flow.c) -------------------------------------------------- */

struct dyti_flow_edge {
    uint32_t to;
    uint32_t back; /* its reverse, in the edges of `to` */
    uint64_t left; /* capacity that is free */
};

/* Nodes 0 … node_count - 1; edges of node v: [first[v], first[v + 1]). */
struct dyti_flow_net {
    uint32_t node_count;
    size_t *first;
    struct dyti_flow_edge *edge;
    uint32_t *level; /* after a run: 0 = not reachable from the source */
    uint32_t *queue;
    size_t *next;
};

/* Push as much more as goes from source to sink. */
uint64_t dyti_flow_run(struct dyti_flow_net *net, uint32_t source,
                       uint32_t sink);

#endif /* DYTI_PLAN_CHOOSE_H */
