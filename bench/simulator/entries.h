/* A switch sent entry by entry, stage by stage, simulated. */
#ifndef DYT_BENCH_ENTRIES_H
#define DYT_BENCH_ENTRIES_H

#include "format/spec_pair.h"
#include "plan/traffic.h"

/* A switch that was planned, with its flows. */
struct priced {
    struct dyti_arch arch;
    struct dyti_spec_pair pair;
    struct dyti_traffic *traffic;
    struct dyti_flow *flow;
    size_t flow_count;
};

enum dyt_status entries_simulate(const struct priced *m, double *out_seconds);

#endif /* DYT_BENCH_ENTRIES_H */
