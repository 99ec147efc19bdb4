/* The XOR pairing as it is usually built: a rank's steps one after the other,
 * each as long as the longer of its two directions. */
#ifndef DYT_BENCH_PAIRING_H
#define DYT_BENCH_PAIRING_H

#include "sched/strategy.h"

/* Seconds over the load of NICs alone: no barrier, and one for each step. */
bool pairing_times(const struct dyti_cluster *cluster,
                   const struct dyti_flow *flow, size_t count, double *out_free,
                   double *out_barrier);

#endif /* DYT_BENCH_PAIRING_H */
