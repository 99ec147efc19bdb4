/* The driver, found when it is asked for: nothing of ours is linked with it.
 * Threads: any. */
#ifndef DYTI_DEVICE_CUDA_DRIVER_H
#define DYTI_DEVICE_CUDA_DRIVER_H

#include "ops/device.h"

#define DYTI_CUDA_DRIVER "libcuda.so.1"

/* What `library` (the driver, where the system finds it) lets us do.  It stays
 * open as long as the process. */
void dyti_cuda_probe(const char *library,
                     struct dyti_device_report *out_report);

extern const struct dyti_device_ops dyti_device_cuda;

#endif /* DYTI_DEVICE_CUDA_DRIVER_H */
