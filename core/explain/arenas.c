/* The segment of each rank, region by region, and in which phase each lives. */
#include "explain/explain.h"
#include "explain/words.h"

#include <inttypes.h>

/* What the other phase does with a region of `slot`: "parked", "dropped", or
 * "held" where there is no other phase. */
static const char *elsewhere(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT], int slot,
    int kind)
{
    const struct dyti_layout *other = NULL;

    if (slot != DYTI_ARENA_REFERENCE) {
        other = layout[slot == DYTI_ARENA_ROLLOUT ? DYTI_ARENA_TRAIN
                                                  : DYTI_ARENA_ROLLOUT];
    }
    if (other == NULL) {
        return dyti_words_residency(DYTI_HELD);
    }
    return dyti_words_residency(other->desc.residency[kind] == DYTI_PARKED
                                    ? DYTI_PARKED
                                    : DYTI_DROPPED);
}

static uint32_t world_of(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT])
{
    for (int slot = 0; slot < DYTI_ARENA_SLOT_COUNT; slot++) {
        if (layout[slot] != NULL) {
            return layout[slot]->desc.world_size;
        }
    }
    return 0;
}

static uint64_t work_of(const uint64_t *work_bytes, uint32_t rank)
{
    return work_bytes == NULL ? 0 : work_bytes[rank];
}

static void print_rank(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    const struct dyti_arena_map *map, uint32_t rank, FILE *out)
{
    fprintf(out, "rank %u: segment of %s\n", rank,
            dyti_words_bytes(map->total_bytes).text);
    for (int slot = 0; slot < DYTI_ARENA_SLOT_COUNT; slot++) {
        for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
            if (map->bytes[slot][kind] == 0) {
                continue;
            }
            fprintf(out,
                    "  %10s at %-12" PRIu64
                    " %s.%s (%s), %s in the other phase\n",
                    dyti_words_bytes(map->bytes[slot][kind]).text,
                    map->offset[slot][kind],
                    dyti_words_slot((enum dyti_arena_slot)slot),
                    dyti_kind_name((enum dyti_kind)kind),
                    dyti_dtype_name(layout[slot]->desc.dtype[kind]),
                    elsewhere(layout, slot, kind));
        }
    }
    for (int i = 0; i < DYTI_ARENA_SLOT_COUNT * DYTI_KIND_COUNT; i++) {
        int slot = i / DYTI_KIND_COUNT, kind = i % DYTI_KIND_COUNT;

        if (map->offset1[slot][kind] != map->offset[slot][kind]) {
            fprintf(out, "  %10s at %-12" PRIu64 " %s of %s.%s\n",
                    dyti_words_bytes(map->bytes[slot][kind]).text,
                    map->offset1[slot][kind],
                    map->mode == DYTI_MODE_STAGED ? "scratch"
                                                  : "second address set",
                    dyti_words_slot((enum dyti_arena_slot)slot),
                    dyti_kind_name((enum dyti_kind)kind));
        }
    }
    if (map->staging_bytes > 0) {
        fprintf(out, "  %10s at %-12" PRIu64 " staging of switches in place\n",
                dyti_words_bytes(map->staging_bytes).text, map->staging_offset);
    }
    if (map->work_bytes > 0) {
        fprintf(out,
                "  %10s at %-12" PRIu64
                " work: KV cache in rollout, activations in train\n",
                dyti_words_bytes(map->work_bytes).text, map->work_offset);
    }
}

static enum dyt_status map_of(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    const uint64_t *work_bytes, const struct dyti_arena_options *options,
    uint32_t rank, struct dyti_arena_map *out_map)
{
    struct dyti_arena_options own = *options;

    own.work_bytes = work_of(work_bytes, rank);
    return dyti_arena_map_build_mode(layout, rank, &own, out_map);
}

enum dyt_status dyti_explain_arenas(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    const uint64_t *work_bytes, const struct dyti_arena_options *options,
    FILE *out)
{
    uint32_t world = world_of(layout);

    for (uint32_t r = 0; r < world; r++) {
        struct dyti_arena_map map;
        enum dyt_status st = map_of(layout, work_bytes, options, r, &map);

        if (st != DYT_OK) {
            return st;
        }
        print_rank(layout, &map, r, out);
    }
    return dyti_words_done(out, "the memory map");
}

static void region_json(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    const struct dyti_arena_map *map, int slot, int kind,
    struct dyti_json *json)
{
    dyti_json_begin_object(json, NULL);
    dyti_json_text(json, "layout", dyti_words_slot((enum dyti_arena_slot)slot));
    dyti_json_text(json, "kind", dyti_kind_name((enum dyti_kind)kind));
    dyti_json_text(json, "dtype",
                   dyti_dtype_name(layout[slot]->desc.dtype[kind]));
    dyti_json_u64(json, "offset", map->offset[slot][kind]);
    dyti_json_u64(json, "bytes", map->bytes[slot][kind]);
    if (map->offset1[slot][kind] != map->offset[slot][kind]) {
        dyti_json_u64(json, "second_offset", map->offset1[slot][kind]);
    }
    dyti_json_text(json, "in_other_phase", elsewhere(layout, slot, kind));
    dyti_json_end(json);
}

enum dyt_status dyti_explain_arenas_json(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    const uint64_t *work_bytes, const struct dyti_arena_options *options,
    struct dyti_json *json, const char *key)
{
    uint32_t world = world_of(layout);
    enum dyt_status st = DYT_OK;

    dyti_json_begin_array(json, key);
    for (uint32_t r = 0; r < world && st == DYT_OK; r++) {
        struct dyti_arena_map map;

        st = map_of(layout, work_bytes, options, r, &map);
        if (st != DYT_OK) {
            break;
        }
        dyti_json_begin_object(json, NULL);
        dyti_json_u64(json, "rank", r);
        dyti_json_u64(json, "total_bytes", map.total_bytes);
        dyti_json_u64(json, "work_offset", map.work_offset);
        dyti_json_u64(json, "work_bytes", map.work_bytes);
        dyti_json_begin_array(json, "regions");
        for (int i = 0; i < DYTI_ARENA_SLOT_COUNT * DYTI_KIND_COUNT; i++) {
            int slot = i / DYTI_KIND_COUNT, kind = i % DYTI_KIND_COUNT;

            if (map.bytes[slot][kind] > 0) {
                region_json(layout, &map, slot, kind, json);
            }
        }
        dyti_json_end(json);
        dyti_json_end(json);
    }
    dyti_json_end(json);
    return st;
}
