/* The cuda table for tests that were written for memory of the host: operands
 * go to the simulated device, at addresses that are as well aligned, and come
 * back behind each call.  copy, hash and gemm. */
#ifndef DYT_GPUSIM_MIRROR_H
#define DYT_GPUSIM_MIRROR_H

#include "ops/kernels.h"

extern const struct dyti_kernel_ops dyt_kernels_cuda_mirror;

#endif /* DYT_GPUSIM_MIRROR_H */
