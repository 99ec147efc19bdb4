/* The kernel table of the cuda device (ops/kernels.h).  A handle is one queue
 * on one device; closing it waits for its work. */
#ifndef DYTI_DEVICE_CUDA_TABLE_H
#define DYTI_DEVICE_CUDA_TABLE_H

#include "ops/kernels.h"

extern const struct dyti_kernel_ops dyti_kernels_cuda;

#endif /* DYTI_DEVICE_CUDA_TABLE_H */
