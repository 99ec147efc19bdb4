/* Places the regions of all layouts of a rank one behind the other. */
#include "layout/arena.h"

#include "base/checked.h"

#include <string.h>

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

const char *dyti_arena_slot_name(enum dyti_arena_slot slot)
{
    static const char *const name[DYTI_ARENA_SLOT_COUNT] = {"rollout", "train",
                                                            "reference"};

    return slot < DYTI_ARENA_SLOT_COUNT ? name[slot] : "?";
}

const char *dyti_switch_mode_name(enum dyti_switch_mode mode)
{
    static const char *const name[DYTI_MODE_COUNT] = {"transactional", "double",
                                                      "staged", "in_place"};

    return (unsigned)mode < DYTI_MODE_COUNT ? name[mode] : "?";
}

static enum dyt_status region_bytes(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT], int slot,
    int kind, uint32_t rank, uint64_t *out_bytes)
{
    if (layout[slot] == NULL || rank >= layout[slot]->desc.world_size) {
        *out_bytes = 0;
        return DYT_OK;
    }
    return dyti_layout_region_bytes(layout[slot], rank, (enum dyti_kind)kind,
                                    out_bytes);
}

bool dyti_arena_moves(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT], int slot,
    int kind)
{
    int other =
        slot == DYTI_ARENA_ROLLOUT ? DYTI_ARENA_TRAIN : DYTI_ARENA_ROLLOUT;

    return slot != DYTI_ARENA_REFERENCE && kind != DYTI_GRAD &&
           layout[slot] != NULL && layout[other] != NULL &&
           layout[slot]->desc.residency[kind] == DYTI_HELD &&
           layout[other]->desc.residency[kind] != DYTI_PARKED;
}

/* One map while it grows. */
struct mapping {
    const struct dyti_layout *const *layout;
    uint32_t rank;
    struct dyti_arena_map map;
};

/* The regions of one layout that move, one behind the other from *end on. */
static enum dyt_status place_moving(
    struct mapping *m, int slot, uint64_t *end,
    uint64_t offset[DYTI_ARENA_SLOT_COUNT][DYTI_KIND_COUNT])
{
    enum dyt_status st = DYT_OK;

    for (int kind = 0; kind < DYTI_KIND_COUNT && st == DYT_OK; kind++) {
        if (dyti_arena_moves(m->layout, slot, kind)) {
            st = append(m->map.bytes[slot][kind], end, &offset[slot][kind]);
        }
    }
    return st;
}

/* Both layouts from one place on: as much as the larger one needs. */
static enum dyt_status place_over(
    struct mapping *m, uint64_t offset[DYTI_ARENA_SLOT_COUNT][DYTI_KIND_COUNT])
{
    uint64_t start = m->map.total_bytes, end[2] = {start, start};
    enum dyt_status st = place_moving(m, DYTI_ARENA_ROLLOUT, &end[0], offset);

    st = st != DYT_OK ? st : place_moving(m, DYTI_ARENA_TRAIN, &end[1], offset);
    if (st == DYT_OK) {
        m->map.total_bytes = end[0] > end[1] ? end[0] : end[1];
    }
    return st;
}

static enum dyt_status place_regions(struct mapping *m)
{
    bool over = m->map.mode == DYTI_MODE_IN_PLACE;
    enum dyt_status st = over ? place_over(m, m->map.offset) : DYT_OK;

    for (int slot = 0; slot < DYTI_ARENA_SLOT_COUNT; slot++) {
        for (int kind = 0; kind < DYTI_KIND_COUNT && st == DYT_OK; kind++) {
            if (!over || !dyti_arena_moves(m->layout, slot, kind)) {
                st = append(m->map.bytes[slot][kind], &m->map.total_bytes,
                            &m->map.offset[slot][kind]);
            }
        }
    }
    return st;
}

/* Behind `work`: the second address set, or staging memory. */
static enum dyt_status place_extra(struct mapping *m,
                                   const struct dyti_arena_options *options)
{
    struct dyti_arena_map *map = &m->map;

    memcpy(map->offset1, map->offset, sizeof(map->offset1));
    switch (map->mode) {
    case DYTI_MODE_DOUBLE:
        return place_moving(m, DYTI_ARENA_ROLLOUT, &map->total_bytes,
                            map->offset1);
    case DYTI_MODE_STAGED:
        return place_over(m, map->offset1);
    case DYTI_MODE_IN_PLACE:
        map->staging_bytes = options->staging_bytes;
        return append(map->staging_bytes, &map->total_bytes,
                      &map->staging_offset);
    default:
        return DYT_OK;
    }
}

enum dyt_status dyti_arena_map_build_mode(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    uint32_t rank, const struct dyti_arena_options *options,
    struct dyti_arena_map *out_map)
{
    struct mapping m = {
        .layout = layout,
        .rank = rank,
        .map = {.work_bytes = options->work_bytes, .mode = options->mode}};
    enum dyt_status st = DYT_OK;

    for (int slot = 0; slot < DYTI_ARENA_SLOT_COUNT; slot++) {
        for (int kind = 0; kind < DYTI_KIND_COUNT && st == DYT_OK; kind++) {
            st = region_bytes(layout, slot, kind, rank,
                              &m.map.bytes[slot][kind]);
        }
    }
    st = st != DYT_OK ? st : place_regions(&m);
    if (st == DYT_OK) {
        st =
            append(options->work_bytes, &m.map.total_bytes, &m.map.work_offset);
    }
    if (st == DYT_OK) {
        st = place_extra(&m, options);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("mapping the segment of rank %u", rank);
        return st;
    }
    *out_map = m.map;
    return DYT_OK;
}

enum dyt_status dyti_arena_map_build(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    uint32_t rank, uint64_t work_bytes, struct dyti_arena_map *out_map)
{
    struct dyti_arena_options options = {.work_bytes = work_bytes};

    return dyti_arena_map_build_mode(layout, rank, &options, out_map);
}

enum dyt_status dyti_arena_cost(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    uint32_t rank, const struct dyti_arena_options *options,
    struct dyti_arena_cost *out_cost)
{
    struct dyti_arena_cost cost = {.resident = options->work_bytes};
    uint64_t larger;

    for (int slot = 0; slot < DYTI_ARENA_SLOT_COUNT; slot++) {
        for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
            uint64_t bytes, *to = &cost.resident;
            enum dyt_status st = region_bytes(layout, slot, kind, rank, &bytes);

            if (st != DYT_OK) {
                return st;
            }
            if (dyti_arena_moves(layout, slot, kind)) {
                to = slot == DYTI_ARENA_ROLLOUT ? &cost.rollout : &cost.train;
            }
            *to += bytes;
        }
    }
    larger = cost.rollout > cost.train ? cost.rollout : cost.train;
    cost.total = cost.resident;
    if (options->mode == DYTI_MODE_IN_PLACE) {
        cost.total += larger + options->staging_bytes;
    } else {
        cost.total += cost.rollout + cost.train;
        cost.total += options->mode == DYTI_MODE_DOUBLE   ? cost.rollout
                      : options->mode == DYTI_MODE_STAGED ? larger
                                                          : 0;
    }
    *out_cost = cost;
    return DYT_OK;
}

/* ---- parts ----------------------------------------------------------------
 */

struct parts {
    uint64_t *end;
    uint32_t count;
};

/* Keeps them rising and different; a dozen or two, so slowly. */
static void cut(struct parts *parts, uint64_t at)
{
    uint32_t i = parts->count;

    while (i > 0 && parts->end[i - 1] > at) {
        i--;
    }
    if (at == 0 || (i > 0 && parts->end[i - 1] == at)) {
        return;
    }
    memmove(&parts->end[i + 1], &parts->end[i],
            (parts->count - i) * sizeof(parts->end[0]));
    parts->end[i] = at;
    parts->count++;
}

static void cut_region(struct parts *parts, uint64_t offset, uint64_t bytes)
{
    if (bytes > 0) {
        cut(parts, offset);
        cut(parts, dyti_align_up(offset + bytes, DYTI_ARENA_ALIGN));
    }
}

uint32_t dyti_arena_parts(const struct dyti_arena_map *map, uint64_t *out_end)
{
    struct parts parts = {.end = out_end};

    for (uint32_t slot = 0; slot < DYTI_ARENA_SLOT_COUNT; slot++) {
        for (uint32_t kind = 0; kind < DYTI_KIND_COUNT; kind++) {
            for (uint32_t set = 0; set < DYTI_ARENA_SETS; set++) {
                cut_region(&parts, dyti_arena_offset(map, set, slot, kind),
                           map->bytes[slot][kind]);
            }
        }
    }
    cut_region(&parts, map->work_offset, map->work_bytes);
    cut_region(&parts, map->staging_offset, map->staging_bytes);
    cut(&parts, dyti_align_up(map->total_bytes, DYTI_ARENA_ALIGN));
    return parts.count;
}
