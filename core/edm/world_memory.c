/* Who owns which memory of a rank, and how much of it has been touched. */
#include "edm/world_internal.h"

#include <stdio.h>

struct owners {
    struct dyti_world_owner *owner;
    size_t cap, count;
};

static enum dyt_status add_owner(const struct dyti_world *world,
                                 struct owners *owners,
                                 const struct dyti_segment_mem *mem,
                                 const char *what, const char *kind,
                                 uint64_t offset, uint64_t bytes)
{
    struct dyti_world_owner *owner;

    if (bytes == 0) {
        return DYT_OK;
    }
    if (owners->count++ >= owners->cap) {
        return DYT_OK;
    }
    owner = &owners->owner[owners->count - 1];
    *owner = (struct dyti_world_owner){.bytes = bytes};
    (void)snprintf(owner->name, sizeof(owner->name), "%s%s%s", what,
                   kind[0] == '\0' ? "" : " ", kind);
    return (mem == &world->control_mem
                ? world->params.memory
                : dyti_world_memory_of(world, world->params.rank))
        ->touched(mem, offset, bytes, &owner->touched_bytes);
}

/* What of a region no layout before it has told: modes lay the regions that
 * move of two layouts over each other, from one place on. */
static uint64_t untold(
    const struct dyti_arena_map *map,
    const uint64_t offset[DYTI_ARENA_SLOT_COUNT][DYTI_KIND_COUNT], int slot,
    int kind)
{
    uint64_t lo = offset[slot][kind], hi = lo + map->bytes[slot][kind];

    for (int i = 0; i < slot * DYTI_KIND_COUNT; i++) {
        int s = i / DYTI_KIND_COUNT, k = i % DYTI_KIND_COUNT;
        uint64_t end = offset[s][k] + map->bytes[s][k];

        if (map->bytes[s][k] > 0 && offset[s][k] < hi && lo < end) {
            lo = end < hi ? end : hi;
        }
    }
    return lo;
}

static enum dyt_status add_region(const struct dyti_world *world,
                                  struct owners *owners, int s, int k)
{
    const struct dyti_arena_map *map = &world->map[world->params.rank];
    uint64_t lo = untold(map, map->offset, s, k);

    return add_owner(world, owners, &world->segment[world->params.rank],
                     dyti_slot_name((enum dyti_arena_slot)s),
                     dyti_kind_name((enum dyti_kind)k), lo,
                     map->offset[s][k] + map->bytes[s][k] - lo);
}

/* The second address set, if there is one. */
static enum dyt_status add_second(const struct dyti_world *world,
                                  struct owners *owners, int s, int k)
{
    const struct dyti_arena_map *map = &world->map[world->params.rank];
    uint64_t lo = untold(map, map->offset1, s, k);

    if (map->offset1[s][k] == map->offset[s][k]) {
        return DYT_OK;
    }
    return add_owner(world, owners, &world->segment[world->params.rank],
                     map->mode == DYTI_MODE_STAGED ? "scratch" : "second",
                     dyti_kind_name((enum dyti_kind)k), lo,
                     map->offset1[s][k] + map->bytes[s][k] - lo);
}

enum dyt_status dyti_world_memory(const struct dyti_world *world,
                                  struct dyti_world_owner *owner, size_t cap,
                                  size_t *out_count)
{
    const struct dyti_arena_map *map = &world->map[world->params.rank];
    const struct dyti_segment_mem *own = &world->segment[world->params.rank];
    struct owners owners = {.owner = owner, .cap = cap};
    enum dyt_status st = DYT_OK;

    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
        for (int k = 0; k < DYTI_KIND_COUNT && st == DYT_OK; k++) {
            st = add_region(world, &owners, s, k);
        }
    }
    if (st == DYT_OK) {
        st = add_owner(world, &owners, own, "work", "", map->work_offset,
                       map->work_bytes);
    }
    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
        for (int k = 0; k < DYTI_KIND_COUNT && st == DYT_OK; k++) {
            st = add_second(world, &owners, s, k);
        }
    }
    if (st == DYT_OK) {
        st = add_owner(world, &owners, own, "staging", "", map->staging_offset,
                       map->staging_bytes);
    }
    if (st == DYT_OK) {
        st = add_owner(world, &owners, &world->control_mem, "control", "", 0,
                       world->table.total_bytes);
    }
    if (st == DYT_OK) {
        *out_count = owners.count;
    }
    return st;
}
