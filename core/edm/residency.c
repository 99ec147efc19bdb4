/* Releasing and restoring regions; around a switch: residency_switch.c. */
#include "edm/residency.h"

#include "base/checked.h"
#include "base/log.h"
#include "edm/residency_internal.h"
#include "exec/atoms.h"

static uint64_t regions_of(enum dyti_tag tag)
{
    switch (tag) {
    case DYTI_TAG_WEIGHTS:
        return dyti_region_bit(DYTI_ARENA_ROLLOUT, DYTI_PARAM);
    case DYTI_TAG_KV_CACHE:
        return DYTI_RESIDENCY_WORK;
    case DYTI_TAG_OPTIMIZER:
        return dyti_region_bit(DYTI_ARENA_TRAIN, DYTI_MASTER) |
               dyti_region_bit(DYTI_ARENA_TRAIN, DYTI_EXP_AVG) |
               dyti_region_bit(DYTI_ARENA_TRAIN, DYTI_EXP_AVG_SQ);
    default:
        return dyti_region_bit(DYTI_ARENA_TRAIN, DYTI_GRAD);
    }
}

int64_t dyti_residency_now(const struct dyti_world *world)
{
    const struct dyti_clock_ops *clock = world->params.clock;

    return clock == NULL ? 0 : clock->now_ns(world->params.clock_self);
}

struct dyti_control_rank *dyti_residency_own(const struct dyti_world *world)
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

        if ((regions & DYTI_RESIDENCY_STATE & dyti_region_bit(slot, kind)) ==
                0 ||
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

/* Give a range of this rank's segment back, or memory to it; *sum: how much of
 * it went or came. */
static enum dyt_status change(struct dyti_world *world, bool wakes,
                              uint64_t offset, uint64_t bytes, uint64_t *sum)
{
    struct dyti_segment_mem *mem = &world->segment[world->params.rank];
    const struct dyti_memory_ops *ops =
        dyti_world_memory_of(world, world->params.rank);
    uint64_t before = 0, after = 0, less, more;
    enum dyt_status st;

    if (bytes == 0 || mem->base == NULL) {
        return DYT_OK;
    }
    /* to the start of the next region: the last page is nobody else's */
    bytes = dyti_align_up(bytes, DYTI_ARENA_ALIGN);
    st = ops->touched(mem, offset, bytes, &before);
    if (st == DYT_OK && !wakes) {
        dyti_world_attach(world, false, offset, bytes);
        st = ops->drop(mem, offset, bytes);
    } else if (st == DYT_OK) {
        st = ops->wake(mem, offset, bytes);
        if (st == DYT_OK) {
            dyti_world_attach(world, true, offset, bytes);
        }
    }
    st = st != DYT_OK ? st : ops->touched(mem, offset, bytes, &after);
    less = wakes ? before : after;
    more = wakes ? after : before;
    *sum += more > less ? more - less : 0;
    return st;
}

static enum dyt_status drop(struct dyti_world *world, uint64_t offset,
                            uint64_t bytes, uint64_t *sum)
{
    return change(world, false, offset, bytes, sum);
}

/* What was dropped of a device has memory again. */
static enum dyt_status wake(struct dyti_world *world, uint64_t offset,
                            uint64_t bytes, uint64_t *sum)
{
    return change(world, true, offset, bytes, sum);
}

/* A region of another layout that is awake and whole lies over it: in place
 * the memory is that one's now. */
bool dyti_residency_is_shared(const struct dyti_world *world, uint32_t slot,
                              uint32_t kind)
{
    const struct dyti_arena_map *map = &world->map[world->params.rank];

    return map->mode == DYTI_MODE_IN_PLACE &&
           dyti_arena_moves(
               (const struct dyti_layout *const *)world->params.layout,
               (int)slot, (int)kind);
}

typedef enum dyt_status (*range_fn)(struct dyti_world *world, uint64_t offset,
                                    uint64_t bytes, uint64_t *sum);

static enum dyt_status each_range(struct dyti_world *world, uint64_t regions,
                                  range_fn fn, uint64_t *sum)
{
    const struct dyti_arena_map *map = &world->map[world->params.rank];
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < DYTI_ARENA_SLOT_COUNT * DYTI_KIND_COUNT; i++) {
        uint32_t slot = i / DYTI_KIND_COUNT, kind = i % DYTI_KIND_COUNT;

        if ((regions & dyti_region_bit(slot, kind)) == 0) {
            continue;
        }
        for (uint32_t set = 0; set < DYTI_ARENA_SETS && st == DYT_OK; set++) {
            st = fn(world, dyti_arena_offset(map, set, slot, kind),
                    map->bytes[slot][kind], sum);
        }
    }
    if (st == DYT_OK && (regions & DYTI_RESIDENCY_WORK) != 0) {
        st = fn(world, map->work_offset, map->work_bytes, sum);
    }
    return st;
}

/* Nothing of a device runs on them any more: it has no pages that wait. */
enum dyt_status dyti_residency_drop(struct dyti_world *world, uint64_t regions,
                                    uint64_t *sum)
{
    enum dyt_status st = dyti_kernels_wait(&world->params.kernels);

    return st == DYT_OK ? each_range(world, regions, drop, sum) : st;
}

/* Memory of the host comes as it is touched. */
enum dyt_status dyti_residency_wake(struct dyti_world *world, uint64_t regions,
                                    uint64_t *sum)
{
    return dyti_world_is_device(world, world->params.rank)
               ? each_range(world, regions, wake, sum)
               : DYT_OK;
}

uint64_t dyti_residency_regions(uint32_t tags)
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

/* What of these regions goes to host memory: optimizer state that has values,
 * has a place of its own, and that no receive brings. */
static uint64_t backed(const struct dyti_world *world, uint64_t regions,
                       uint32_t received)
{
    const struct dyti_arena_map *map = &world->map[world->params.rank];
    uint64_t out = world->params.backup_bytes == 0
                       ? 0
                       : regions & regions_of(DYTI_TAG_OPTIMIZER) &
                             ~dyti_residency_regions(received) &
                             ~atomic_load(&dyti_residency_own(world)->lost);

    for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
        if (map->bytes[DYTI_ARENA_TRAIN][k] == 0 ||
            dyti_residency_is_shared(world, DYTI_ARENA_TRAIN, k)) {
            out &= ~dyti_region_bit(DYTI_ARENA_TRAIN, k);
        }
    }
    return out;
}

enum dyt_status dyti_world_release(struct dyti_world *world, uint32_t tags,
                                   uint32_t received,
                                   struct dyti_residency_report *out_report)
{
    struct dyti_residency_report report = {0};
    uint64_t regions = dyti_residency_regions(tags), kept = 0;
    int64_t start = dyti_residency_now(world);
    enum dyt_status st = check_tags(world, tags);

    regions &= ~atomic_load(&dyti_residency_own(world)->asleep);
    kept = backed(world, regions, received);
    st = st != DYT_OK
             ? st
             : check_loss(world,
                          regions & ~kept & ~dyti_residency_regions(received));
    for (uint32_t k = 0; st == DYT_OK && k < DYTI_KIND_COUNT; k++) {
        if ((regions & dyti_region_bit(DYTI_ARENA_ROLLOUT, k)) != 0 &&
            dyti_residency_is_shared(world, DYTI_ARENA_ROLLOUT, k)) {
            st = check_loss(world,
                            dyti_region_bit(DYTI_ARENA_TRAIN, k) &
                                ~atomic_load(&dyti_residency_own(world)->lost));
        }
    }
    st = st != DYT_OK ? st : dyti_backup_save(world, kept);
    if (st == DYT_OK) { /* nobody reads it from here on */
        (void)atomic_fetch_or(&dyti_residency_own(world)->asleep, regions);
        st = dyti_residency_drop(world, regions, &report.bytes);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("putting rank %u to sleep", world->params.rank);
        return st;
    }
    report.ns = dyti_residency_now(world) - start;
    *out_report = report;
    return DYT_OK;
}

enum dyt_status dyti_world_restore(struct dyti_world *world, uint32_t tags,
                                   struct dyti_residency_report *out_report)
{
    const struct dyti_arena_map *map = &world->map[world->params.rank];
    struct dyti_residency_report report = {0};
    uint64_t regions = dyti_residency_regions(tags), woken = 0, kept;
    int64_t start = dyti_residency_now(world);
    enum dyt_status st = check_tags(world, tags);

    if (st != DYT_OK) {
        return st;
    }
    regions &= atomic_load(&dyti_residency_own(world)->asleep);
    kept = regions & world->backup.regions;
    st = dyti_residency_wake(world, regions, &woken);
    st = st != DYT_OK ? st : dyti_backup_load(world, kept);
    if (st != DYT_OK) {
        DYTI_NOTE("waking rank %u", world->params.rank);
        return st;
    }
    dyti_control_lose(world->control, world->params.rank,
                      atomic_load(&world->control->last_epoch),
                      regions & DYTI_RESIDENCY_STATE & ~kept);
    (void)atomic_fetch_and(&dyti_residency_own(world)->asleep, ~regions);
    for (uint32_t i = 0; i < DYTI_ARENA_SLOT_COUNT * DYTI_KIND_COUNT; i++) {
        uint32_t slot = i / DYTI_KIND_COUNT, kind = i % DYTI_KIND_COUNT;

        report.bytes += (regions & dyti_region_bit(slot, kind)) != 0
                            ? map->bytes[slot][kind]
                            : 0;
    }
    report.bytes += (regions & DYTI_RESIDENCY_WORK) != 0 ? map->work_bytes : 0;
    report.ns = dyti_residency_now(world) - start;
    *out_report = report;
    return DYT_OK;
}

uint32_t dyti_world_asleep(const struct dyti_world *world)
{
    uint64_t asleep = atomic_load(&dyti_residency_own(world)->asleep);
    uint32_t tags = 0;

    for (int tag = 0; tag < DYTI_TAG_COUNT; tag++) {
        tags |= (asleep & regions_of((enum dyti_tag)tag)) != 0
                    ? DYTI_TAG_BIT(tag)
                    : 0;
    }
    return tags;
}
