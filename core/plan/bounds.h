/* What must cross each kind of link whatever a plan does, from the two layouts
 * alone, and what this plan makes cross it: docs/bounds.md has the derivation.
 * in: atoms of the layouts (common.h), a cluster   out: traffic.h, explain/
 *
 * All bytes are in the destination's dtypes, which is what crosses a wire. */
#ifndef DYTI_PLAN_BOUNDS_H
#define DYTI_PLAN_BOUNDS_H

#include "layout/cluster.h"

/* Each names a set of links; the busiest of them counts. */
enum dyti_term {
    DYTI_TERM_RANK_IN,  /* into one rank from any other, by whatever link */
    DYTI_TERM_RANK_OUT, /* out of one rank */
    DYTI_TERM_NIC_IN,   /* through one rank's NIC, from other hosts */
    DYTI_TERM_NIC_OUT,
    DYTI_TERM_HOST_IN, /* through all NICs of one host together */
    DYTI_TERM_HOST_OUT,
    DYTI_TERM_CUT,    /* between hosts [0, n/2) and [n/2, n), one direction */
    DYTI_TERM_MEMORY, /* read and written in one rank's memory */
    DYTI_TERM_COUNT
};

struct dyti_bound {
    uint64_t bound_bytes;        /* no plan has less on its busiest link */
    uint64_t moved_bytes;        /* this plan's busiest link */
    uint32_t bound_at, moved_at; /* which rank, host, or direction of the cut */
    double bytes_per_s; /* of such a link (the slowest host's); 0 = not stated:
                           it counts for no seconds */
};

struct dyti_bounds {
    struct dyti_bound term[DYTI_TERM_COUNT];
    double bound_s, moved_s;           /* of the term that takes longest */
    enum dyti_term bound_by, moved_by; /* the terms that bind */
};

/* The bounds of a switch: from its atoms alone, which two layouts make; and
 * the cluster.  Speeds, bound_bytes, bound_at, bound_s, bound_by are filled in,
 * the rest is 0. */
struct dyti_common;
enum dyt_status dyti_bounds_find(const struct dyti_common *atoms,
                                 const struct dyti_cluster *cluster,
                                 struct dyti_bounds *out_bounds);

/* The term that takes longest; 0 seconds: RANK_IN. */
void dyti_bounds_finish(struct dyti_bounds *bounds);

/* "rank in", "NIC out", …: static. */
const char *dyti_term_name(enum dyti_term term);
/* moved / bound of one term: 1 where both are 0. */
double dyti_bound_ratio(const struct dyti_bound *bound);

#endif /* DYTI_PLAN_BOUNDS_H */
