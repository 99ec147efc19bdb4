/* Memory around a switch: what makes room before it, what arrives, and what the
 * ended phase gives back. */
#include "edm/residency.h"

#include "base/log.h"
#include "edm/residency_internal.h"

static uint64_t physical(const struct dyti_world *world)
{
    const struct dyti_segment_mem *mem = &world->segment[world->params.rank];
    uint64_t bytes = 0;

    return mem->base == NULL ||
                   dyti_world_memory_of(world, world->params.rank)
                           ->touched(mem, 0, mem->bytes, &bytes) != DYT_OK
               ? 0
               : bytes;
}

/* What of the ended layout the next one neither parks nor lies over. */
static uint64_t abandoned(const struct dyti_world *world,
                          enum dyti_arena_slot from)
{
    uint64_t regions = 0;

    for (uint32_t kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        if (dyti_arena_moves(
                (const struct dyti_layout *const *)world->params.layout,
                (int)from, (int)kind) &&
            !dyti_residency_is_shared(world, (uint32_t)from, kind)) {
            regions |= dyti_region_bit((uint32_t)from, kind);
        }
    }
    return regions;
}

/* Whatever of the next layout has memory while its phase runs, but gradients;
 * what sleeps because somebody said so does not wake. */
static uint64_t destination(const struct dyti_world *world,
                            enum dyti_arena_slot to)
{
    uint64_t regions = 0;

    for (uint32_t kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        regions |= kind == DYTI_GRAD ? 0 : dyti_region_bit((uint32_t)to, kind);
    }
    return regions & ~atomic_load(&dyti_residency_own(world)->asleep);
}

/* Make room, and memory for what arrives. */
static enum dyt_status make_ready(struct dyti_world *world,
                                  enum dyti_arena_slot to,
                                  struct dyti_world_switch_memory *memory)
{
    uint32_t tags = to == DYTI_ARENA_ROLLOUT ? DYTI_TAG_BIT(DYTI_TAG_WEIGHTS)
                                             : DYTI_TAG_BIT(DYTI_TAG_GRAD);
    uint64_t awake = DYTI_RESIDENCY_WORK | dyti_residency_regions(tags);
    uint64_t filled = destination(world, to) | (awake & DYTI_RESIDENCY_STATE);
    int64_t start = dyti_residency_now(world);
    enum dyt_status st = dyti_residency_drop(
        world,
        DYTI_RESIDENCY_WORK | dyti_region_bit(DYTI_ARENA_TRAIN, DYTI_GRAD),
        &memory->before.bytes);

    memory->before.ns = dyti_residency_now(world) - start;
    start = dyti_residency_now(world);
    st = st != DYT_OK
             ? st
             : dyti_residency_wake(world, filled, &memory->woken.bytes);
    memory->woken.ns = dyti_residency_now(world) - start;
    if (st == DYT_OK) {
        (void)atomic_fetch_and(&dyti_residency_own(world)->asleep, ~awake);
    }
    return st;
}

/* The memory of devices that all have dropped is nobody's: not that of peers
 * who map it either.  Who is missing here is missed elsewhere. */
static enum dyt_status let_go(struct dyti_world *world)
{
    struct dyti_group all = dyti_world_all(world);

    if (!world->has_devices || !world->maps_own_memory || all.size == 1) {
        return DYT_OK;
    }
    if (all.ops->barrier(all.self) != DYT_OK) {
        DYTI_LOG(DYTI_LOG_WARN, "edm",
                 "memory that peers have given back stays mapped until the "
                 "next switch: %s",
                 dyti_error_message());
        return DYT_OK;
    }
    return dyti_world_refresh(world);
}

/* After a switch, however it has ended: what the phase that runs now needs
 * besides state. */
static enum dyt_status settle(struct dyti_world *world,
                              enum dyti_arena_slot phase,
                              struct dyti_world_switch_memory *memory)
{
    uint64_t regions = DYTI_RESIDENCY_WORK;

    if (phase == DYTI_ARENA_TRAIN) {
        regions |= dyti_region_bit(DYTI_ARENA_TRAIN, DYTI_GRAD);
    }
    return dyti_residency_wake(
        world, regions & ~atomic_load(&dyti_residency_own(world)->asleep),
        &memory->woken.bytes);
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
    enum dyt_status st = make_ready(world, to, &memory), settled;
    int64_t start;

    if (st != DYT_OK) { /* it comes to the others all the same, to say so */
        dyti_switch_refuse(self, st);
    }
    st = dyti_switch_run(self, order, out_report);
    memory.peak_bytes = physical(world);
    start = dyti_residency_now(world);
    if (st == DYT_OK) {
        st = dyti_residency_drop(world, abandoned(world, from),
                                 &memory.after.bytes);
    }
    if (out_report->decision == DYTI_DECISION_COMMIT) {
        settled = let_go(world);
        st = st != DYT_OK ? st : settled;
    }
    memory.after.ns = dyti_residency_now(world) - start;
    settled =
        settle(world, out_report->decision == DYTI_DECISION_COMMIT ? to : from,
               &memory);
    st = st != DYT_OK ? st : settled;
    if (st != DYT_OK) {
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
