/* Stage 3 of 5: plan, the compact form.  Answers "how much goes from whom to
 * whom?" for worlds of any size, without a transfer for each tensor.
 * in: plan.h's inputs, of layouts that may be lazy; a cluster
 * out: flows for sched/strategy.h, sums for explain/, the routes that plan.h
 *      expands into transfers
 *
 * Terms
 *   atom    a maximal box of a tensor all of whose elements have the same
 *           holders in the source and the same in the destination; equal
 *           tensors share atoms (common.h)
 *   group   wants that travel together: equal geometry at both ends
 *   class   atoms of one group with one set S of sources and one set D of
 *           destinations
 *   route   atoms of a class that one rank sends one other
 *   wave 0  from a rank that holds it in the source
 *   wave 1  fan-out inside a host, from the destination shard of a sibling that
 *           wave 0 filled
 *
 * Source choice, for each class and each rank of D: itself if it is in S; a
 * rank of S on its host; else the host gets one copy over its NIC, received by
 * one of its ranks in D and fanned out.  Who of several sends, and who of
 * several receives, is spread so that the busiest rank (and host) of its link
 * class carries the least: choose.h.  Everything is decided by the inputs, the
 * hosts and the options, in integers: all ranks find the same.
 */
#ifndef DYTI_PLAN_TRAFFIC_H
#define DYTI_PLAN_TRAFFIC_H

#include "layout/cluster.h"
#include "layout/pattern.h"
#include "plan/bounds.h"
#include "plan/flow.h"
#include "plan/plan.h"

/* Who sends what several ranks hold, and a rank needs that holds it not: each
 * its part, or always the first of them; on the same host where there is one.
 * EACH: each rank of a host gets its own copy of what comes from another. */
enum dyti_sources {
    DYTI_SOURCES_SPREAD,
    DYTI_SOURCES_NEAREST,
    DYTI_SOURCES_SPREAD_EACH,
    DYTI_SOURCES_NEAREST_EACH,
    DYTI_SOURCES_FIRST, /* of all, however far */
    DYTI_SOURCES_COUNT
};

/* Zeroed: the default. */
struct dyti_traffic_options {
    /* Hosts and speeds; borrowed while building.  NULL: the hosts of the
     * destination's desc (none: one host), a NIC of 25 GB/s and 400 GB/s inside
     * a host for each rank. */
    const struct dyti_cluster *cluster;
    /* Allow wave 1.  Off, each rank on a host gets its own copy: what runs
     * today in one wave. */
    bool fan_out;
    /* The first replica sends everything: what the gain is measured against. */
    bool naive;
    /* The first replica of the same host, where there is one, else of all. */
    bool nearest;
    /* Pairs, sums and loads of `rank` alone: worlds of thousands of ranks, of
     * which no rank needs the whole matrix.  naive_s and load_s are then 0. */
    bool one_rank;
    uint32_t rank;
    /* Up to so many pairs (class, destination host) who serves whom is exact;
     * above, each class is spread in turn.  0: 2^18. */
    uint32_t exact_cells;
};

struct dyti_traffic_pair {
    uint32_t src_rank, dst_rank; /* equal: kept */
    uint32_t wave;
    uint32_t transfers;   /* boxes, once for each kind */
    uint64_t read_bytes;  /* in the source dtypes */
    uint64_t write_bytes; /* in the destination dtypes */
};

/* Written bytes and boxes of one destination kind over one class of links;
 * SELF: kept. */
struct dyti_traffic_sum {
    uint64_t read_bytes, write_bytes, transfers;
};

struct dyti_traffic_rank {
    uint64_t keep_bytes;                        /* written */
    uint64_t send_bytes[DYTI_LINK_CLASS_COUNT]; /* written at the other end */
    uint64_t receive_bytes[DYTI_LINK_CLASS_COUNT];
};

struct dyti_traffic_detail; /* atoms, classes, choices */

struct dyti_traffic {
    struct dyti_plan_inputs inputs;      /* layouts borrowed */
    struct dyti_traffic_options options; /* cluster: NULL */
    uint32_t world_size, host_count;
    uint32_t *host; /* [world_size] */
    /* The traffic matrix as sparse rows: by dst_rank, src_rank, wave. */
    struct dyti_traffic_pair *pair; /* [pair_count] */
    size_t pair_count;
    size_t *pair_first;             /* [world_size + 1]: pairs with dst r */
    struct dyti_traffic_rank *rank; /* [world_size] */
    struct dyti_traffic_sum sum[DYTI_KIND_COUNT][DYTI_LINK_CLASS_COUNT];
    uint64_t fingerprint; /* of inputs, hosts and options */
    struct dyti_bounds bounds;
    /* Seconds of the busiest link: of the first replica sending everything
     * without fan-out, and of this plan.  gain = naive_s / load_s, >= 1. */
    double naive_s, load_s;
    enum dyti_sources sources; /* the first of them that is no slower than
                                  FIRST */
    bool spread_in_turn; /* the flow would have been too large: the fallback */
    struct dyti_traffic_detail *detail;
};

/**
 * The traffic of a switch.  Pure.  options NULL: defaults.  The layouts must
 * outlive it; patterns are built and dropped inside.
 * @return DYT_ERR_LAYOUT   elements of a destination have no source: named as
 *                          dyti_plan_build does
 * @return DYT_ERR_INVALID  as dyti_plan_build; the cluster is of another size
 * @return DYT_ERR_OVERFLOW, DYT_ERR_NOMEM
 */
enum dyt_status dyti_traffic_build(const struct dyti_plan_inputs *inputs,
                                   const struct dyti_traffic_options *options,
                                   struct dyti_traffic **out_traffic);

/* The same from patterns that exist already: one for each layout that the
 * inputs name, in any order; borrowed while building. */
enum dyt_status dyti_traffic_build_from(
    const struct dyti_plan_inputs *inputs,
    const struct dyti_traffic_options *options,
    const struct dyti_patterns *const *patterns, uint32_t pattern_count,
    struct dyti_traffic **out_traffic);
void dyti_traffic_destroy(struct dyti_traffic *traffic);

/* What goes between different ranks, by src, dst, wave; bytes as written.
 * *out_flow is one block: free(). */
enum dyt_status dyti_traffic_flows(const struct dyti_traffic *traffic,
                                   struct dyti_flow **out_flow,
                                   size_t *out_count);

/* The same bytes by way of one replica, tensor by tensor, as three waves: the
 * first rank of those that hold parts of a tensor, and are each other's
 * replicas, gathers it (wave 0); it sends it to the first of each group of
 * replicas that want it (1), which scatters it (2).  For sched/strategy.h's
 * funnel.  *out_flow is one block: free(). */
enum dyt_status dyti_traffic_funnel(const struct dyti_traffic *traffic,
                                    struct dyti_flow **out_flow,
                                    size_t *out_count);

/* naive_s / load_s; 1 where nothing moves. */
double dyti_traffic_gain(const struct dyti_traffic *traffic);

/* Bytes that stay on their rank / cross no NIC, of all written bytes: 0 … 1. */
double dyti_traffic_kept_share(const struct dyti_traffic *traffic);
double dyti_traffic_nic_share(const struct dyti_traffic *traffic);

/* ---- one rank's own list ------------------------------------------------ */

/* Some tensors of equal geometry, one box of each, all kinds of a group. */
struct dyti_route {
    uint32_t src_rank, dst_rank;
    uint32_t atom;                       /* of the detail */
    uint32_t tensor_first, tensor_count; /* of the atom's tensors */
    uint32_t wave;
    int64_t lo, hi; /* of the box's cut axis; a part only if tensor_count 1 */
};

struct dyti_routes {
    struct dyti_route *route; /* [count], by dst_rank, src_rank, wave; owned */
    size_t count;
    uint64_t transfers; /* that they expand to */
};

/* What `rank` sends, keeps and receives.  Cost: that, not the world's. */
enum dyt_status dyti_traffic_routes(const struct dyti_traffic *traffic,
                                    uint32_t rank,
                                    struct dyti_routes *out_routes);
void dyti_routes_fini(struct dyti_routes *routes);

/* Written bytes of all its transfers.  O(1). */
uint64_t dyti_route_bytes(const struct dyti_traffic *traffic,
                          const struct dyti_route *route);

/* Visit the transfers of a route: tensor by tensor, want by want.  Shards are
 * not looked up: src_shard, dst_shard are UINT32_MAX.  A zeroed cursor starts;
 * false after the last. */
struct dyti_route_cursor {
    uint32_t tensor, want;
};
bool dyti_route_next(const struct dyti_traffic *traffic,
                     const struct dyti_route *route,
                     struct dyti_route_cursor *cursor,
                     struct dyti_transfer *out_transfer);

#endif /* DYTI_PLAN_TRAFFIC_H */
