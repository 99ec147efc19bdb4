/* Shared memory segments of this host: memfds in 2 MiB pages where to be had.
 * The table is the contract (ops/memory.h). */
#ifndef DYTI_DEVICE_HOST_MEMORY_H
#define DYTI_DEVICE_HOST_MEMORY_H

#include "ops/memory.h"

extern const struct dyti_memory_ops dyti_memory_host;

#endif /* DYTI_DEVICE_HOST_MEMORY_H */
