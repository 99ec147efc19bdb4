/* Where the regions of both phases lie in a rank's one memory segment: a pure
 * function of the layouts, so every rank knows the address of every peer's
 * shard without asking.  Offsets are bytes from the segment's start, multiples
 * of DYTI_ARENA_ALIGN, and never change.
 *
 *   [rollout.param][train.param][train.grad][master][exp_avg][exp_avg_sq]
 *   [reference.param]…[work: KV cache in rollout, activations in training]
 */
#ifndef DYTI_LAYOUT_ARENA_H
#define DYTI_LAYOUT_ARENA_H

#include "layout/layout.h"

#define DYTI_ARENA_ALIGN       (2u << 20)
#define DYTI_ARENA_MAX_LAYOUTS 4u

/* Which layouts a job has; NULL entries are allowed. */
enum dyti_arena_slot {
    DYTI_ARENA_ROLLOUT,
    DYTI_ARENA_TRAIN,
    DYTI_ARENA_REFERENCE, /* frozen reference policy, in the train degrees */
    DYTI_ARENA_SLOT_COUNT
};

struct dyti_arena_map {
    /* [slot][kind] byte offset of the region; valid where bytes > 0 */
    uint64_t offset[DYTI_ARENA_SLOT_COUNT][DYTI_KIND_COUNT];
    uint64_t bytes[DYTI_ARENA_SLOT_COUNT][DYTI_KIND_COUNT];
    uint64_t work_offset, work_bytes;
    uint64_t total_bytes; /* of the segment */
};

/* The map of one rank.  work_bytes: max of what rollout and training ask. */
enum dyt_status dyti_arena_map_build(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    uint32_t rank, uint64_t work_bytes, struct dyti_arena_map *out_map);

#endif /* DYTI_LAYOUT_ARENA_H */
