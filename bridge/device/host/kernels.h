/* The handle of the fast host kernels.  One thread uses it at a time; the
 * scratch of thread t belongs to the tile that runs there. */
#ifndef DYTI_DEVICE_HOST_KERNELS_H
#define DYTI_DEVICE_HOST_KERNELS_H

#include "base/pool.h"
#include "device/host/isa.h"

struct host {
    struct dyti_pool *pool; /* borrowed */
    enum host_isa isa;
};

#endif /* DYTI_DEVICE_HOST_KERNELS_H */
