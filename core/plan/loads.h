/* What a plan makes each link carry. */
#ifndef DYTI_PLAN_LOADS_H
#define DYTI_PLAN_LOADS_H

#include "plan/bounds.h"
#include "plan/tapes.h"

struct dyti_rank_load {
    uint64_t in[DYTI_LINK_CLASS_COUNT], out[DYTI_LINK_CLASS_COUNT];
    uint64_t memory;
};

struct dyti_loads {
    const struct dyti_common *atoms;    /* borrowed */
    const struct dyti_cluster *cluster; /* borrowed */
    struct dyti_rank_load *rank;        /* [world_size] */
    uint64_t *host_in, *host_out;       /* [host_count] over NICs */
    uint64_t cut[2];                    /* up, down */
};

enum dyt_status dyti_loads_init(struct dyti_loads *loads,
                                const struct dyti_common *atoms,
                                const struct dyti_cluster *cluster);
void dyti_loads_fini(struct dyti_loads *loads); /* a zeroed one is fine */
void dyti_loads_add(struct dyti_loads *loads, const struct dyti_stretch *s);

/* Busiest link of each term into bounds->term[].moved_*. */
void dyti_loads_into(const struct dyti_loads *loads,
                     struct dyti_bounds *bounds);

/* Seconds of the busiest link: each rank's link of each class, hosts' NICs, the
 * cut.  Memory is not counted: what is kept would hide the rest. */
double dyti_loads_seconds(const struct dyti_loads *loads);

#endif /* DYTI_PLAN_LOADS_H */
