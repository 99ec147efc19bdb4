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
    return world->params.memory->touched(mem, offset, bytes,
                                         &owner->touched_bytes);
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
            st = add_owner(world, &owners, own,
                           dyti_slot_name((enum dyti_arena_slot)s),
                           dyti_kind_name((enum dyti_kind)k), map->offset[s][k],
                           map->bytes[s][k]);
        }
    }
    if (st == DYT_OK) {
        st = add_owner(world, &owners, own, "work", "", map->work_offset,
                       map->work_bytes);
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
