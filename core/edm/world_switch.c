/* Prepared switches: planned, scheduled and resolved once for each pair of
 * slots. */
#include "edm/world_internal.h"

#include "base/array.h"

/* Bytes of a step.  Copies of 16 MiB and more bypass the caches, which is worth
 * a fifth of the bandwidth; an abort is seen between two steps, which so last
 * some 30 ms at most. */
#define STEP_BYTES (64u << 20)

static int64_t now(const struct dyti_world *world)
{
    const struct dyti_clock_ops *clock = world->params.clock;

    return clock == NULL ? 0 : clock->now_ns(world->params.clock_self);
}

/* Some ranks do not map each other's memory. */
static bool is_apart(const struct dyti_world *world)
{
    for (uint32_t r = 0; r < world->params.world_size; r++) {
        if (world->reach[r] != world->reach[0]) {
            return true;
        }
    }
    return false;
}

/* Which ranks map each other's memory, as the switch is to see it; NULL: all.
 * The array is the world's, and filled anew by each call. */
static enum dyt_status domains(struct dyti_world *world,
                               const struct dyti_world_switch_options *options,
                               const uint32_t **out_domain)
{
    const struct dyti_world_params *params = &world->params;
    bool apart = is_apart(world);

    if (options->mover == DYTI_WORLD_DIRECT && apart &&
        !dyti_world_is_spread(params)) {
        return DYTI_FAIL(
            DYT_ERR_UNSUPPORTED,
            "mover direct: some ranks have memory of a device, and "
            "others do not map it; use auto or message");
    }
    if (options->mover == DYTI_WORLD_DIRECT && apart) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "mover direct: the ranks are on several hosts, whose "
                         "memory is not mapped; use auto or message");
    }
    if (!apart && options->mover != DYTI_WORLD_MESSAGE) {
        *out_domain = NULL;
        return DYT_OK;
    }
    if (params->message == NULL) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "links that go by messages: the world of rank %u was "
                         "opened without a mover for them",
                         params->rank);
    }
    for (uint32_t r = 0; r < params->world_size; r++) {
        world->domain[r] =
            options->mover == DYTI_WORLD_MESSAGE ? r : world->reach[r];
    }
    *out_domain = world->domain;
    return DYT_OK;
}

static struct dyti_switch_params params_of(struct dyti_world *world,
                                           enum dyti_arena_slot from,
                                           enum dyti_arena_slot to)
{
    const struct dyti_world_params *params = &world->params;

    return (struct dyti_switch_params){.struct_size =
                                           sizeof(struct dyti_switch_params),
                                       .rank = params->rank,
                                       .world_size = params->world_size,
                                       .from = from,
                                       .to = to,
                                       .from_layout = params->layout[from],
                                       .segment = world->base,
                                       .map = world->map,
                                       .control = world->control,
                                       .all = dyti_world_all(world),
                                       .kernels = params->kernels,
                                       .mover = params->mover,
                                       .mover_self = world->mover,
                                       .message = params->message,
                                       .message_self = world->message,
                                       .team = world->team,
                                       .team_count = world->team_count,
                                       .device_memory = params->device_memory,
                                       .met = dyti_world_met,
                                       .met_arg = world,
                                       .wait = params->wait,
                                       .clock = params->clock,
                                       .clock_self = params->clock_self,
                                       .timeout_ns = params->timeout_ns};
}

/* As a range of the device's own tools. */
static void show_stage(const void *arg, const char *stage)
{
    const struct dyti_kernels *kernels = arg;

    if (stage != NULL) {
        dyti_kernels_push(kernels, stage);
    } else {
        dyti_kernels_pop(kernels);
    }
}

enum dyt_status dyti_world_build_switch(
    struct dyti_world *world, struct dyti_switch_cache *cache,
    struct dyti_plan_inputs *inputs,
    const struct dyti_world_switch_options *wish, enum dyti_arena_slot from,
    struct dyti_switch **out_switch)
{
    const struct dyti_world_params *params = &world->params;
    struct dyti_schedule_options options = {
        .side = wish->side,
        .cap_bytes = wish->cap_bytes,
        .chunk_bytes = STEP_BYTES,
        .segment_bytes = world->map[params->rank].total_bytes};
    struct dyti_switch_params how = params_of(world, from, inputs->dst_slot);
    enum dyt_status st = domains(world, wish, &options.links.domain);

    if (dyti_world_is_spread(params)) {
        inputs->host = params->host;
        inputs->fan_out = !wish->no_fan_out && !inputs->heals &&
                          world->map[params->rank].mode != DYTI_MODE_IN_PLACE;
    }
    if (st == DYT_OK && options.links.domain != NULL) {
        options.links.strategy = wish->strategy;
        options.links.cluster = params->cluster;
        options.links.staging_bytes = wish->staging_bytes;
        options.links.message_bytes = wish->message_bytes;
    }
    how.links = &options.links;
    if (st == DYT_OK) {
        dyti_switch_cache_watch(cache, show_stage, &params->kernels);
        st = dyti_switch_cache_get(cache, inputs, params->rank, &options,
                                   &how.plan);
        dyti_switch_cache_watch(cache, NULL, NULL);
    }
    return st == DYT_OK ? dyti_switch_create(&how, out_switch) : st;
}

static enum dyt_status prepare(struct dyti_world *world,
                               const struct dyti_prepared *wish,
                               struct dyti_switch **out_switch)
{
    const struct dyti_world_params *params = &world->params;
    struct dyti_plan_inputs inputs;
    enum dyt_status st = dyti_plan_inputs_init(
        params->layout[wish->from], wish->from, params->layout[wish->to],
        wish->to, wish->options.kinds, &inputs);

    return st != DYT_OK ? st
                        : dyti_world_build_switch(world, world->cache, &inputs,
                                                  &wish->options, wish->from,
                                                  out_switch);
}

static bool equal(const struct dyti_prepared *a, const struct dyti_prepared *b)
{
    return a->from == b->from && a->to == b->to &&
           a->options.kinds == b->options.kinds &&
           a->options.side == b->options.side &&
           a->options.cap_bytes == b->options.cap_bytes &&
           a->options.mover == b->options.mover &&
           a->options.strategy == b->options.strategy &&
           a->options.staging_bytes == b->options.staging_bytes &&
           a->options.message_bytes == b->options.message_bytes &&
           a->options.no_fan_out == b->options.no_fan_out;
}

enum dyt_status dyti_world_prepare(
    struct dyti_world *world, enum dyti_arena_slot from,
    enum dyti_arena_slot to, const struct dyti_world_switch_options *options,
    struct dyti_switch **out_switch, int64_t *out_plan_ns)
{
    struct dyti_prepared wish = {.from = from, .to = to};
    int64_t start = now(world);
    enum dyt_status st;

    if (from >= DYTI_ARENA_SLOT_COUNT || to >= DYTI_ARENA_SLOT_COUNT ||
        world->params.layout[from] == NULL ||
        world->params.layout[to] == NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "a switch from %s to %s: there is no such layout",
                         dyti_slot_name(from), dyti_slot_name(to));
    }
    if (options != NULL) {
        wish.options = *options;
    }
    if (wish.options.strategy == NULL) {
        wish.options.strategy = dyti_strategy_at(0); /* optimal */
    }
    if (wish.options.kinds == 0) {
        wish.options.kinds = DYTI_PLAN_KINDS_STATE;
    }
    for (size_t i = 0; i < world->prepared_count; i++) {
        if (equal(&world->prepared[i], &wish)) {
            *out_switch = world->prepared[i].self;
            goto out;
        }
    }
    st = DYTI_GROW(world->prepared, world->prepared_cap,
                   world->prepared_count + 1);
    if (st == DYT_OK) {
        st = prepare(world, &wish, &wish.self);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("preparing the switch from %s to %s", dyti_slot_name(from),
                  dyti_slot_name(to));
        return st;
    }
    world->prepared[world->prepared_count++] = wish;
    *out_switch = wish.self;
out:
    if (out_plan_ns != NULL) {
        *out_plan_ns = now(world) - start;
    }
    return DYT_OK;
}
