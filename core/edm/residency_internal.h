/* What the two files of residency share: sets of regions, and their memory. */
#ifndef DYTI_EDM_RESIDENCY_INTERNAL_H
#define DYTI_EDM_RESIDENCY_INTERNAL_H

#include "edm/world_internal.h"

/* Work memory has no kind: a bit behind those of the slots. */
#define DYTI_RESIDENCY_WORK (UINT64_C(1) << (DYTI_ARENA_SLOT_COUNT * 8u))

/* Regions that hold state which only a receive brings back. */
#define DYTI_RESIDENCY_STATE                                                   \
    ((UINT64_C(0xffffff)) & ~dyti_region_bit(DYTI_ARENA_TRAIN, DYTI_GRAD))

int64_t dyti_residency_now(const struct dyti_world *world);
struct dyti_control_rank *dyti_residency_own(const struct dyti_world *world);
/* Bits of all regions of some tags. */
uint64_t dyti_residency_regions(uint32_t tags);
/* Does another layout, in place, lie over it? */
bool dyti_residency_is_shared(const struct dyti_world *world, uint32_t slot,
                              uint32_t kind);
/* Give memory back, or have some; *sum grows by its bytes. */
enum dyt_status dyti_residency_drop(struct dyti_world *world, uint64_t regions,
                                    uint64_t *sum);
enum dyt_status dyti_residency_wake(struct dyti_world *world, uint64_t regions,
                                    uint64_t *sum);

#endif /* DYTI_EDM_RESIDENCY_INTERNAL_H */
