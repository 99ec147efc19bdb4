/* Releasing and restoring regions, alone and around a switch. */
#include "edm/residency.h"

#include "base/checked.h"
#include "base/log.h"
#include "edm/world_internal.h"
#include "exec/atoms.h"

/* Work memory has no kind: a bit behind those of the slots. */
#define WORK_BIT (UINT64_C(1) << (DYTI_ARENA_SLOT_COUNT * 8u))

static uint64_t regions_of(enum dyti_tag tag)
{
    switch (tag) {
    case DYTI_TAG_WEIGHTS:
        return dyti_region_bit(DYTI_ARENA_ROLLOUT, DYTI_PARAM);
    case DYTI_TAG_KV_CACHE:
        return WORK_BIT;
    case DYTI_TAG_OPTIMIZER:
        return dyti_region_bit(DYTI_ARENA_TRAIN, DYTI_MASTER) |
               dyti_region_bit(DYTI_ARENA_TRAIN, DYTI_EXP_AVG) |
               dyti_region_bit(DYTI_ARENA_TRAIN, DYTI_EXP_AVG_SQ);
    default:
        return dyti_region_bit(DYTI_ARENA_TRAIN, DYTI_GRAD);
    }
}

/* Regions that hold state which only a receive brings back. */
#define STATE_REGIONS                                                          \
    ((UINT64_C(0xffffff)) & ~dyti_region_bit(DYTI_ARENA_TRAIN, DYTI_GRAD))

static int64_t now(const struct dyti_world *world)
{
    const struct dyti_clock_ops *clock = world->params.clock;

    return clock == NULL ? 0 : clock->now_ns(world->params.clock_self);
}

static struct dyti_control_rank *own(const struct dyti_world *world)
{
    return &world->control->rank[world->params.rank];
}

/* ---- who else holds it ------------------------------------------------------
 */

static bool is_whole(const struct dyti_world *world, uint32_t rank,
                     uint64_t region)
{
    const struct dyti_control_rank *of = &world->control->rank[rank];

    return ((atomic_load(&of->asleep) | atomic_load(&of->lost)) & region) == 0;
}

/* `param` is the master, rounded: whoever owns the masters can make it. */
static bool is_derived(const struct dyti_world *world, uint32_t slot,
                       uint32_t kind)
{
    const struct dyti_layout *train = world->params.layout[DYTI_ARENA_TRAIN];

    if (kind != DYTI_PARAM || slot == DYTI_ARENA_REFERENCE || train == NULL ||
        train->desc.residency[DYTI_MASTER] != DYTI_HELD) {
        return false;
    }
    for (uint32_t r = 0; r < world->params.world_size; r++) {
        if (!is_whole(world, r,
                      dyti_region_bit(DYTI_ARENA_TRAIN, DYTI_MASTER))) {
            return false;
        }
    }
    return true;
}

/* Every part that this rank holds is held by another one too, awake. */
static enum dyt_status has_replicas(const struct dyti_world *world,
                                    uint32_t slot, uint32_t kind, bool *out_has)
{
    struct dyti_atoms atoms = {0};
    bool has = true;
    enum dyt_status st = dyti_atoms_init(&atoms, world->params.layout[slot],
                                         (enum dyti_kind)kind);

    for (size_t a = 0; st == DYT_OK && a < atoms.atom_count && has; a++) {
        const struct dyti_atom *atom = &atoms.atom[a];
        bool mine = false, theirs = false;

        for (uint32_t h = 0; h < atom->holder_count; h++) {
            uint32_t rank = atoms.holder[atom->holder_first + h].rank;

            mine |= rank == world->params.rank;
            theirs |= rank != world->params.rank &&
                      is_whole(world, rank, dyti_region_bit(slot, kind));
        }
        has = !mine || theirs;
    }
    dyti_atoms_fini(&atoms);
    *out_has = has;
    return st;
}

static enum dyt_status check_loss(const struct dyti_world *world,
                                  uint64_t regions)
{
    const struct dyti_arena_map *map = &world->map[world->params.rank];

    for (uint32_t i = 0; i < DYTI_ARENA_SLOT_COUNT * DYTI_KIND_COUNT; i++) {
        uint32_t slot = i / DYTI_KIND_COUNT, kind = i % DYTI_KIND_COUNT;
        bool has = false;
        enum dyt_status st;

        if ((regions & STATE_REGIONS & dyti_region_bit(slot, kind)) == 0 ||
            map->bytes[slot][kind] == 0 || is_derived(world, slot, kind)) {
            continue;
        }
        st = has_replicas(world, slot, kind, &has);
        if (st != DYT_OK) {
            return st;
        }
        if (!has) {
            return DYTI_FAIL(DYT_ERR_STATE,
                             "releasing %s of the %s layout: rank %u alone "
                             "holds it, and its values would be lost; say that "
                             "its next restore is a receive",
                             dyti_kind_name((enum dyti_kind)kind),
                             dyti_slot_name((enum dyti_arena_slot)slot),
                             world->params.rank);
        }
    }
    return DYT_OK;
}

/* ---- giving back ------------------------------------------------------------
 */

static enum dyt_status drop(struct dyti_world *world, uint64_t offset,
                            uint64_t bytes, uint64_t *sum)
{
    struct dyti_segment_mem *mem = &world->segment[world->params.rank];
    const struct dyti_memory_ops *ops = world->params.memory;
    uint64_t before = 0, after = 0;
    enum dyt_status st;

    if (bytes == 0 || mem->base == NULL) {
        return DYT_OK;
    }
    /* to the start of the next region: the last page is nobody else's */
    bytes = dyti_align_up(bytes, DYTI_ARENA_ALIGN);
    st = ops->touched(mem, offset, bytes, &before);
    st = st != DYT_OK ? st : ops->drop(mem, offset, bytes);
    st = st != DYT_OK ? st : ops->touched(mem, offset, bytes, &after);
    *sum += before > after ? before - after : 0;
    return st;
}

/* Before anybody touches it: what comes by itself on the host. */
static enum dyt_status wake(struct dyti_world *world, uint64_t offset,
                            uint64_t bytes)
{
    struct dyti_segment_mem *mem = &world->segment[world->params.rank];

    return bytes == 0 || mem->base == NULL
               ? DYT_OK
               : world->params.memory->wake(
                     mem, offset, dyti_align_up(bytes, DYTI_ARENA_ALIGN));
}

/* A region of another layout that is awake and whole lies over it: in place
 * the memory is that one's now. */
static bool is_shared(const struct dyti_world *world, uint32_t slot,
                      uint32_t kind)
{
    const struct dyti_arena_map *map = &world->map[world->params.rank];

    return map->mode == DYTI_MODE_IN_PLACE &&
           dyti_arena_moves(
               (const struct dyti_layout *const *)world->params.layout,
               (int)slot, (int)kind);
}

static enum dyt_status drop_regions(struct dyti_world *world, uint64_t regions,
                                    uint64_t *sum)
{
    const struct dyti_arena_map *map = &world->map[world->params.rank];
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < DYTI_ARENA_SLOT_COUNT * DYTI_KIND_COUNT; i++) {
        uint32_t slot = i / DYTI_KIND_COUNT, kind = i % DYTI_KIND_COUNT;

        if ((regions & dyti_region_bit(slot, kind)) == 0) {
            continue;
        }
        for (uint32_t set = 0; set < DYTI_ARENA_SETS && st == DYT_OK; set++) {
            st = drop(world, dyti_arena_offset(map, set, slot, kind),
                      map->bytes[slot][kind], sum);
        }
    }
    if (st == DYT_OK && (regions & WORK_BIT) != 0) {
        st = drop(world, map->work_offset, map->work_bytes, sum);
    }
    return st;
}

static enum dyt_status wake_regions(struct dyti_world *world, uint64_t regions)
{
    const struct dyti_arena_map *map = &world->map[world->params.rank];
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < DYTI_ARENA_SLOT_COUNT * DYTI_KIND_COUNT; i++) {
        uint32_t slot = i / DYTI_KIND_COUNT, kind = i % DYTI_KIND_COUNT;

        for (uint32_t set = 0; set < DYTI_ARENA_SETS && st == DYT_OK &&
                               (regions & dyti_region_bit(slot, kind)) != 0;
             set++) {
            st = wake(world, dyti_arena_offset(map, set, slot, kind),
                      map->bytes[slot][kind]);
        }
    }
    return st != DYT_OK || (regions & WORK_BIT) == 0
               ? st
               : wake(world, map->work_offset, map->work_bytes);
}

static uint64_t regions_of_tags(uint32_t tags)
{
    uint64_t regions = 0;

    for (int tag = 0; tag < DYTI_TAG_COUNT; tag++) {
        regions |=
            tags & DYTI_TAG_BIT(tag) ? regions_of((enum dyti_tag)tag) : 0;
    }
    return regions;
}

static enum dyt_status check_tags(const struct dyti_world *world, uint32_t tags)
{
    uint64_t epoch = atomic_load(&world->control->epoch);

    if (tags == 0 || tags >= DYTI_TAG_BIT(DYTI_TAG_COUNT)) {
        return DYTI_FAIL(DYT_ERR_INVALID, "tags %x", tags);
    }
    if (epoch != 0) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "memory cannot sleep or wake while switch %llu runs",
                         (unsigned long long)epoch);
    }
    return DYT_OK;
}

enum dyt_status dyti_world_release(struct dyti_world *world, uint32_t tags,
                                   uint32_t received,
                                   struct dyti_residency_report *out_report)
{
    struct dyti_residency_report report = {0};
    uint64_t regions = regions_of_tags(tags);
    int64_t start = now(world);
    enum dyt_status st = check_tags(world, tags);

    regions &= ~atomic_load(&own(world)->asleep);
    st = st != DYT_OK ? st
                      : check_loss(world, regions & ~regions_of_tags(received));
    for (uint32_t k = 0; st == DYT_OK && k < DYTI_KIND_COUNT; k++) {
        if ((regions & dyti_region_bit(DYTI_ARENA_ROLLOUT, k)) != 0 &&
            is_shared(world, DYTI_ARENA_ROLLOUT, k)) {
            st = check_loss(world, dyti_region_bit(DYTI_ARENA_TRAIN, k) &
                                       ~atomic_load(&own(world)->lost));
        }
    }
    if (st == DYT_OK) { /* nobody reads it from here on */
        (void)atomic_fetch_or(&own(world)->asleep, regions);
        st = drop_regions(world, regions, &report.bytes);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("putting rank %u to sleep", world->params.rank);
        return st;
    }
    report.ns = now(world) - start;
    *out_report = report;
    return DYT_OK;
}

enum dyt_status dyti_world_restore(struct dyti_world *world, uint32_t tags,
                                   struct dyti_residency_report *out_report)
{
    const struct dyti_arena_map *map = &world->map[world->params.rank];
    struct dyti_residency_report report = {0};
    uint64_t regions = regions_of_tags(tags);
    int64_t start = now(world);
    enum dyt_status st = check_tags(world, tags);

    if (st != DYT_OK) {
        return st;
    }
    regions &= atomic_load(&own(world)->asleep);
    st = wake_regions(world, regions);
    if (st != DYT_OK) {
        DYTI_NOTE("waking rank %u", world->params.rank);
        return st;
    }
    dyti_control_lose(world->control, world->params.rank,
                      atomic_load(&world->control->last_epoch),
                      regions & STATE_REGIONS);
    (void)atomic_fetch_and(&own(world)->asleep, ~regions);
    for (uint32_t i = 0; i < DYTI_ARENA_SLOT_COUNT * DYTI_KIND_COUNT; i++) {
        uint32_t slot = i / DYTI_KIND_COUNT, kind = i % DYTI_KIND_COUNT;

        report.bytes += (regions & dyti_region_bit(slot, kind)) != 0
                            ? map->bytes[slot][kind]
                            : 0;
    }
    report.bytes += (regions & WORK_BIT) != 0 ? map->work_bytes : 0;
    report.ns = now(world) - start;
    *out_report = report;
    return DYT_OK;
}

uint32_t dyti_world_asleep(const struct dyti_world *world)
{
    uint64_t asleep = atomic_load(&own(world)->asleep);
    uint32_t tags = 0;

    for (int tag = 0; tag < DYTI_TAG_COUNT; tag++) {
        tags |= (asleep & regions_of((enum dyti_tag)tag)) != 0
                    ? DYTI_TAG_BIT(tag)
                    : 0;
    }
    return tags;
}

/* ---- around a switch --------------------------------------------------------
 */

static uint64_t physical(const struct dyti_world *world)
{
    const struct dyti_segment_mem *mem = &world->segment[world->params.rank];
    uint64_t bytes = 0;

    return mem->base == NULL || world->params.memory->touched(
                                    mem, 0, mem->bytes, &bytes) != DYT_OK
               ? 0
               : bytes;
}

/* What of a layout the other one neither parks nor lies over: abandoned when
 * its phase ends, and woken before it is filled. */
static uint64_t moving(const struct dyti_world *world,
                       enum dyti_arena_slot slot)
{
    uint64_t regions = 0;

    for (uint32_t kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        if (dyti_arena_moves(
                (const struct dyti_layout *const *)world->params.layout,
                (int)slot, (int)kind) &&
            !is_shared(world, (uint32_t)slot, kind)) {
            regions |= dyti_region_bit((uint32_t)slot, kind);
        }
    }
    return regions;
}

/* Devices: ranks meet, and their mappings of each other follow what slept and
 * woke.  Only then is the memory of what sleeps anybody's. */
static enum dyt_status follow(struct dyti_world *world)
{
    const struct dyti_world_params *params = &world->params;
    enum dyt_status st = DYT_OK;

    if (dyti_pages_are_host(world->segment[params->rank].pages)) {
        return DYT_OK;
    }
    st = params->group->barrier(world->group[0]);
    for (uint32_t r = 0; r < params->world_size && st == DYT_OK; r++) {
        if (r != params->rank && world->segment[r].base != NULL) {
            st = params->memory->refresh(&world->segment[r]);
        }
    }
    return st;
}

enum dyt_status dyti_world_switch(struct dyti_world *world,
                                  enum dyti_arena_slot from,
                                  enum dyti_arena_slot to,
                                  struct dyti_switch *self,
                                  const struct dyti_switch_order *order,
                                  struct dyti_switch_report *out_report,
                                  struct dyti_world_switch_memory *out_memory)
{
    struct dyti_world_switch_memory memory = {0};
    uint32_t wake = to == DYTI_ARENA_ROLLOUT ? DYTI_TAG_BIT(DYTI_TAG_WEIGHTS)
                                             : DYTI_TAG_BIT(DYTI_TAG_GRAD);
    uint64_t after =
        WORK_BIT | (to == DYTI_ARENA_TRAIN ? regions_of_tags(wake) : 0);
    int64_t start = now(world);
    enum dyt_status st = drop_regions(
        world, WORK_BIT | dyti_region_bit(DYTI_ARENA_TRAIN, DYTI_GRAD),
        &memory.before.bytes);

    memory.before.ns = now(world) - start;
    (void)atomic_fetch_and(&own(world)->asleep,
                           ~(WORK_BIT | regions_of_tags(wake)));
    start = now(world);
    st = st != DYT_OK
             ? st
             : wake_regions(world, moving(world, to) |
                                       (regions_of_tags(wake) & ~after));
    st = st != DYT_OK ? st : follow(world);
    st = st != DYT_OK ? st : dyti_switch_run(self, order, out_report);
    memory.peak_bytes = physical(world);
    if (st == DYT_OK) {
        start = now(world);
        st = drop_regions(world, moving(world, from), &memory.after.bytes);
        st = st != DYT_OK ? st : follow(world);
        st = st != DYT_OK ? st : wake_regions(world, after);
        memory.after.ns = now(world) - start;
    }
    if (st != DYT_OK) { /* the old phase goes on */
        (void)wake_regions(world, WORK_BIT | (from == DYTI_ARENA_TRAIN
                                                  ? regions_of(DYTI_TAG_GRAD)
                                                  : 0));
        DYTI_NOTE("switching with memory given back on rank %u",
                  world->params.rank);
        return st;
    }
    DYTI_LOG(
        DYTI_LOG_INFO, "edm",
        "switch %llu gave %llu bytes back before it in %.4f s, %llu after "
        "it in %.4f s; peak %llu bytes",
        (unsigned long long)order->epoch,
        (unsigned long long)memory.before.bytes,
        (double)memory.before.ns * 1e-9, (unsigned long long)memory.after.bytes,
        (double)memory.after.ns * 1e-9, (unsigned long long)memory.peak_bytes);
    *out_memory = memory;
    return DYT_OK;
}
