/* Places the regions of all layouts of a rank one behind the other. */
#include "layout/arena.h"

#include "base/checked.h"

/* Append `bytes`, rounded up; nothing takes no room. */
static enum dyt_status append(uint64_t bytes, uint64_t *end,
                              uint64_t *out_offset)
{
    uint64_t next;

    if (bytes > UINT64_MAX - DYTI_ARENA_ALIGN ||
        dyti_add_overflow(*end, dyti_align_up(bytes, DYTI_ARENA_ALIGN),
                          &next)) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW,
                         "%llu bytes behind the first %llu of a segment",
                         (unsigned long long)bytes, (unsigned long long)*end);
    }
    *out_offset = *end;
    *end = next;
    return DYT_OK;
}

enum dyt_status dyti_arena_map_build(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    uint32_t rank, uint64_t work_bytes, struct dyti_arena_map *out_map)
{
    struct dyti_arena_map map = {.work_bytes = work_bytes};
    enum dyt_status st = DYT_OK;

    for (int slot = 0; slot < DYTI_ARENA_SLOT_COUNT; slot++) {
        if (layout[slot] == NULL || rank >= layout[slot]->desc.world_size) {
            continue;
        }
        for (int kind = 0; kind < DYTI_KIND_COUNT && st == DYT_OK; kind++) {
            map.bytes[slot][kind] = layout[slot]->view[rank].region_bytes[kind];
            st = append(map.bytes[slot][kind], &map.total_bytes,
                        &map.offset[slot][kind]);
        }
    }
    if (st == DYT_OK) {
        st = append(work_bytes, &map.total_bytes, &map.work_offset);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("mapping the segment of rank %u", rank);
        return st;
    }
    *out_map = map;
    return DYT_OK;
}
