/* Ranks whose memory is a simulated device's: what switch_world.h needs of
 * them. Each process has a simulator of its own; threads share one. */
#ifndef DYT_CUDA_WORLD_H
#define DYT_CUDA_WORLD_H

#include "gpusim.h"
#include "switch_device.h"

#include "device/cuda/memory.h"
#include "device/cuda/table.h"
#include "mover/direct_cuda/direct_cuda.h"

static const struct sw_device cuda_world = {.memory = &dyti_memory_cuda,
                                            .kernels = &dyti_kernels_cuda,
                                            .mover = &dyti_mover_direct_cuda,
                                            .pages = DYTI_PAGES_VMM,
                                            .ranks = UINT32_MAX};

/* Work runs as late, as early or as shuffled as it may. */
static inline void sw_device_begin(uint64_t seed)
{
    static const enum gpusim_order order[] = {GPUSIM_LATE, GPUSIM_SHUFFLED,
                                              GPUSIM_EARLY};

    gpusim_set_order(order[seed % 3], seed);
}

static inline const char *sw_device_ended(void)
{
    (void)gpusim_leaks(); /* each is a fault */
    return gpusim_unexpected() == 0 ? "" : gpusim_fault_text();
}

#endif /* DYT_CUDA_WORLD_H */
