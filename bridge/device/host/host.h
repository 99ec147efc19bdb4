/* The embedded device: this machine's own cores and memory.
 *
 * Kernels: `dyti_kernels_host` is the fast table (vectorised, dispatched at run
 * time, spread over the pool), `dyti_kernels_reference` the slow obvious one
 * (scalar, double accumulation, one thread) that it is tested against. */
#ifndef DYTI_DEVICE_HOST_H
#define DYTI_DEVICE_HOST_H

#include "ops/kernels.h"

extern const struct dyti_kernel_ops dyti_kernels_host, dyti_kernels_reference;

/* The fast copy and hash alone (open, close, isa, copy, hash): they need no
 * library of matrices. */
extern const struct dyti_kernel_ops dyti_kernels_host_copy;

#endif /* DYTI_DEVICE_HOST_H */
