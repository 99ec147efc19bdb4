/* Where the regions of both phases lie in a rank's one memory segment: a pure
 * function of the layouts and the mode, so every rank knows the address of
 * every peer's shard without asking.  Offsets are bytes from the segment's
 * start, multiples of DYTI_ARENA_ALIGN, and never change.
 *
 *   [rollout.param][train.param][train.grad][master][exp_avg][exp_avg_sq]
 *   [reference.param]…[work: KV cache in rollout, activations in training]
 *   [what the mode needs besides]
 *
 * A kind *moves* into a layout if that holds it and the other phase does not
 * park it.  What the mode does with the regions that move:
 *
 *   transactional  all apart
 *   double         those of the rollout layout exist twice, behind `work`; the
 *                  control page says which address set is live
 *   staged         behind `work` lies scratch that either layout fits into: the
 *                  second address set of both
 *   in_place       those of both layouts begin at one place; behind `work` lies
 *                  the staging memory, as large as the cap
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

/* What becomes of the old while the new arrives: exec/switch.h. */
enum dyti_switch_mode {
    DYTI_MODE_TRANSACTIONAL,
    DYTI_MODE_DOUBLE,
    DYTI_MODE_STAGED,
    DYTI_MODE_IN_PLACE,
    DYTI_MODE_COUNT
};

#define DYTI_ARENA_SETS 2u /* address sets of a region, at most */

struct dyti_arena_map {
    /* [slot][kind] byte offset of the region; valid where bytes > 0 */
    uint64_t offset[DYTI_ARENA_SLOT_COUNT][DYTI_KIND_COUNT];
    uint64_t bytes[DYTI_ARENA_SLOT_COUNT][DYTI_KIND_COUNT];
    uint64_t work_offset, work_bytes;
    uint64_t total_bytes; /* of the segment */
    /* Address set 1; equal to `offset` where there is one set only. */
    uint64_t offset1[DYTI_ARENA_SLOT_COUNT][DYTI_KIND_COUNT];
    uint64_t staging_offset, staging_bytes; /* in_place */
    enum dyti_switch_mode mode;
};

struct dyti_arena_options {
    enum dyti_switch_mode mode;
    uint64_t work_bytes;    /* max of what rollout and training ask */
    uint64_t staging_bytes; /* of in_place */
};

/* What a mode costs a rank, in bytes of regions without alignment.  `source`
 * and `destination` count only what moves, of rollout and train. */
struct dyti_arena_cost {
    uint64_t resident; /* all that does not move, work included */
    uint64_t rollout, train;
    uint64_t total; /* as the mode's row says, both ways */
};

/* The map of one rank in mode transactional.  work_bytes: max of what rollout
 * and training ask. */
enum dyt_status dyti_arena_map_build(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    uint32_t rank, uint64_t work_bytes, struct dyti_arena_map *out_map);
/* … in any mode. */
enum dyt_status dyti_arena_map_build_mode(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    uint32_t rank, const struct dyti_arena_options *options,
    struct dyti_arena_map *out_map);

/* Does a kind move into the layout of `slot`? */
bool dyti_arena_moves(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT], int slot,
    int kind);

enum dyt_status dyti_arena_cost(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    uint32_t rank, const struct dyti_arena_options *options,
    struct dyti_arena_cost *out_cost);

/* Parts of a rank's segment that may sleep apart from each other: rising ends,
 * multiples of DYTI_ARENA_ALIGN, the last one the segment's.  Every region is
 * some of them, whole (those of in_place that share memory, several).
 * @param out_end  room for DYTI_ARENA_PARTS_MAX
 * @return how many; 0: the segment is empty */
#define DYTI_ARENA_PARTS_MAX                                                   \
    (2u * (DYTI_ARENA_SETS * DYTI_ARENA_SLOT_COUNT * DYTI_KIND_COUNT + 2u) + 1u)
uint32_t dyti_arena_parts(const struct dyti_arena_map *map, uint64_t *out_end);

/* Offset of a region in one address set. */
static inline uint64_t dyti_arena_offset(const struct dyti_arena_map *map,
                                         uint32_t set, uint32_t slot,
                                         uint32_t kind)
{
    return set == 0 ? map->offset[slot][kind] : map->offset1[slot][kind];
}

const char *dyti_arena_slot_name(enum dyti_arena_slot slot); /* "rollout", … */
/* "transactional", "double", "staged", "in_place"; static. */
const char *dyti_switch_mode_name(enum dyti_switch_mode mode);

#endif /* DYTI_LAYOUT_ARENA_H */
