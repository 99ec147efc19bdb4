#include "cli/switch_memory.h"

#include "sched/overlay.h"

#include <inttypes.h>
#include <stdlib.h>

static const struct {
    const char *name;
    enum dyti_arena_slot from, to;
} directions[] = {
    {"train -> rollout", DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT},
    {"rollout -> train", DYTI_ARENA_ROLLOUT, DYTI_ARENA_TRAIN},
};

/* Held there, and not because the other phase left it lying where it is. */
static bool moves(const struct dyti_layout *layout,
                  const struct dyti_layout *other, int kind)
{
    return kind != DYTI_GRAD && layout->desc.residency[kind] == DYTI_HELD &&
           other->desc.residency[kind] != DYTI_PARKED;
}

struct dyti_switch_memory dyti_switch_memory_of(const struct dyti_assembly *a,
                                                enum dyti_arena_slot from,
                                                enum dyti_arena_slot to,
                                                uint32_t rank)
{
    const struct dyti_layout *src = a->layout[from], *dst = a->layout[to];
    const struct dyti_arena_map *map = &a->map[rank];
    /* The direct mover stages nothing: bytes go from shard to shard. */
    struct dyti_switch_memory m = {.staging_bytes = a->staging_bytes};
    uint64_t smaller, larger;

    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        m.source_bytes += moves(src, dst, k) ? map->bytes[from][k] : 0;
        m.destination_bytes += moves(dst, src, k) ? map->bytes[to][k] : 0;
    }
    smaller = m.source_bytes < m.destination_bytes ? m.source_bytes
                                                   : m.destination_bytes;
    larger = m.source_bytes + m.destination_bytes - smaller;
    switch (a->mode) {
    case DYTI_MODE_IN_PLACE:
        m.need_bytes = m.staging_bytes;
        break;
    case DYTI_MODE_DOUBLE: /* the rollout layout is there twice */
        m.need_bytes = smaller + (to == DYTI_ARENA_ROLLOUT ? m.destination_bytes
                                                           : m.source_bytes);
        break;
    case DYTI_MODE_STAGED:
        m.need_bytes = smaller + larger;
        break;
    default:
        m.need_bytes = smaller;
        break;
    }
    m.resident_bytes = map->total_bytes - larger - m.need_bytes;
    return m;
}

/* The rank and direction that need most. */
static struct dyti_switch_memory worst(const struct dyti_assembly *a,
                                       uint32_t *out_rank, size_t *out_way)
{
    struct dyti_switch_memory most = {0};

    *out_rank = 0;
    *out_way = 0;
    for (size_t d = 0; d < sizeof(directions) / sizeof(directions[0]); d++) {
        for (uint32_t r = 0; r < a->world_size; r++) {
            struct dyti_switch_memory m = dyti_switch_memory_of(
                a, directions[d].from, directions[d].to, r);

            if (m.need_bytes > most.need_bytes) {
                most = m;
                *out_rank = r;
                *out_way = d;
            }
        }
    }
    return most;
}

uint64_t dyti_switch_memory_least(const struct dyti_assembly *a)
{
    uint32_t rank;
    size_t way;

    return worst(a, &rank, &way).need_bytes;
}

/* ---- in place: only its waves say what it needs ----------------------------
 */

/* Both directions as the workers will prepare them: waves that fit, or the
 * smallest staging memory that does for both. */
static enum dyt_status find_waves(const struct dyti_assembly *a,
                                  const uint32_t *domain, uint64_t *out_least)
{
    struct dyti_schedule_links links = {
        .domain = domain,
        .strategy = dyti_strategy_at((size_t)a->job->sw.strategy)};
    struct dyti_plan_inputs inputs;
    struct dyti_overlay_params params = {.inputs = &inputs,
                                         .map = a->map,
                                         .world_size = a->world_size,
                                         .links = &links};
    enum dyt_status st = DYT_OK;

    *out_least = 0;
    for (size_t d = 0; d < sizeof(directions) / sizeof(directions[0]); d++) {
        enum dyti_arena_slot from = directions[d].from, to = directions[d].to;
        struct dyti_overlay overlay = {0};
        uint64_t least = 0;

        st = dyti_plan_inputs_init(a->layout[from], from, a->layout[to], to,
                                   DYTI_PLAN_KINDS_STATE, &inputs);
        st = st != DYT_OK ? st : dyti_overlay_build(&params, &overlay);
        dyti_overlay_fini(&overlay);
        if (st == DYT_ERR_UNSUPPORTED) {
            st = dyti_overlay_smallest(&params, &least);
        }
        if (st != DYT_OK) {
            DYTI_NOTE("looking for the waves of the switch %s",
                      directions[d].name);
            return st;
        }
        *out_least = least > *out_least ? least : *out_least;
    }
    return DYT_OK;
}

static enum dyt_status check_in_place(const struct dyti_assembly *a)
{
    uint32_t *domain = calloc((size_t)a->world_size + 1, sizeof(*domain));
    bool all = a->job->sw.mover == DYTI_JOB_MESSAGE;
    uint64_t least = 0;
    enum dyt_status st;

    if (domain == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "links of %u ranks", a->world_size);
    }
    for (uint32_t r = 0; r < a->world_size; r++) {
        domain[r] = r;
    }
    st = find_waves(a, all ? domain : NULL, &least);
    free(domain);
    return st != DYT_OK || least == 0
               ? st
               : DYTI_FAIL(
                     DYT_ERR_CONFIG,
                     "%s: switch.mode in_place has %" PRIu64
                     " bytes on each rank to move boxes out of each other's "
                     "way (switch.memory_cap, at most the largest layout): the "
                     "smallest cap that every rank meets is %" PRIu64,
                     a->job->path, a->staging_bytes, least);
}

enum dyt_status dyti_switch_memory_check(const struct dyti_assembly *a,
                                         uint64_t cap_bytes)
{
    uint32_t rank;
    size_t way;
    struct dyti_switch_memory m = worst(a, &rank, &way);

    if (a->mode == DYTI_MODE_IN_PLACE) {
        return check_in_place(a);
    }
    if (cap_bytes == 0 || m.need_bytes <= cap_bytes) {
        return DYT_OK;
    }
    return DYTI_FAIL(
        DYT_ERR_CONFIG,
        "%s: switch.memory_cap is %" PRIu64 " bytes, and on rank %u the switch "
        "%s needs %" PRIu64 " beside the larger of its two layouts (source "
        "%" PRIu64 ", destination %" PRIu64 ", staging %" PRIu64
        "; mode %s keeps the old until the commit): the smallest cap "
        "that every rank meets is %" PRIu64 ", 0 is none, and switch."
        "on_low_memory=in_place does with what there is",
        a->job->path, cap_bytes, rank, directions[way].name, m.need_bytes,
        m.source_bytes, m.destination_bytes, m.staging_bytes,
        dyti_switch_mode_name(a->mode), m.need_bytes);
}
