/* What a device is made of, for worlds of tests. */
#ifndef DYT_SWITCH_DEVICE_H
#define DYT_SWITCH_DEVICE_H

#include "ops/kernels.h"
#include "ops/memory.h"
#include "ops/mover.h"

struct sw_device {
    const struct dyti_memory_ops *memory;
    const struct dyti_kernel_ops *kernels;
    const struct dyti_mover_ops *mover;
    enum dyti_page_kind pages;
    uint32_t ranks;          /* bit r: the segment of rank r is memory of one */
    const char *const *name; /* [world size] UUIDs; NULL: there is one device */
};

#endif /* DYT_SWITCH_DEVICE_H */
