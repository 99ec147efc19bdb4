/* Ranks of two hosts with a world over gloo between them and mapped memory
 * inside: a switch each turn, by the strategy that is asked for. */
#ifndef DYT_BENCH_HOST_CREW_H
#define DYT_BENCH_HOST_CREW_H

#include "cables.h"
#include "crew.h"
#include "layout/layout.h"
#include "ops/memory.h"

/* Degrees of one phase over all ranks. */
struct host_layout {
    uint32_t tp, pp, dp, zero;
};

struct host_crew {
    struct cables cables;
    uint32_t ranks; /* the first half on host 0 */
    struct dyti_model *model;
    struct dyti_layout *layout[2]; /* train, rollout */
    int control, segment[CREW_RANKS];
    struct host_turn *turn; /* shared: what the next turn is */
    struct crew *crew;
};

/* shared: one cable for each host, not for each rank.
 * DYT_ERR_UNSUPPORTED: no namespaces here. */
enum dyt_status host_crew_open(struct host_crew *self,
                               const struct dyti_arch *arch,
                               uint32_t ranks_of_host, bool shared,
                               uint32_t mbit_per_s,
                               const struct host_layout *train,
                               const struct host_layout *rollout);
void host_crew_close(struct host_crew *self);

/* One switch, `back`: from rollout to training; seconds from the order to the
 * last rank's end. */
enum dyt_status host_crew_switch(struct host_crew *self, uint32_t strategy,
                                 bool back, bool verify_all,
                                 double *out_seconds);

/* Bytes that come over the busiest cable, at its rate: nothing is quicker. */
enum dyt_status host_crew_bound(const struct host_crew *self, bool back,
                                double *out_seconds);

#endif /* DYT_BENCH_HOST_CREW_H */
