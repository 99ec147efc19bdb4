/* The group of devices that carries a world's messages: its teams, and the
 * memory that it is told of. */
#include "edm/world_internal.h"

#include <stdlib.h>
#include <string.h>

static uint64_t region_of(const struct dyti_group_ops *ops, uint32_t size)
{
    return (ops->region_bytes(size) + 63u) / 64u * 64u;
}

/* Its own, and that of the group of hosts that carries for it. */
uint64_t dyti_world_message_bytes(const struct dyti_group_ops *message_group,
                                  const struct dyti_group_ops *group,
                                  uint32_t world_size)
{
    return message_group == NULL ? 0
                                 : region_of(message_group, world_size) +
                                       region_of(group, world_size);
}

/* ---- teams ------------------------------------------------------------------
 */

static void add_own(struct dyti_world *world, const uint32_t *member,
                    uint32_t size, void *self)
{
    world->team[world->team_count++] =
        (struct dyti_switch_team){.member = member, .size = size, .self = self};
}

/* One split: this rank's set of the round, or none. */
static enum dyt_status make_round(struct dyti_world *world, uint32_t round)
{
    const struct dyti_group_ops *ops = world->params.message_group;
    const struct dyti_team_set *own = NULL;
    uint32_t color = 0;
    void *team = NULL;
    enum dyt_status st;

    for (size_t i = 0; i < world->teams.count; i++) {
        const struct dyti_team_set *set = &world->teams.set[i];

        for (uint32_t m = 0; m < set->size && set->round == round; m++) {
            if (set->member[m] == world->params.rank) {
                own = set;
                color = (uint32_t)i;
            }
        }
    }
    st = ops->make_team(world->message_group, color,
                        own == NULL ? NULL : own->member,
                        own == NULL ? 0 : own->size, &team);
    if (st == DYT_OK && own != NULL) {
        add_own(world, own->member, own->size, team);
    }
    return st;
}

static enum dyt_status make_teams(struct dyti_world *world)
{
    const struct dyti_world_params *params = &world->params;
    enum dyt_status st;

    if (params->message_group->make_team == NULL ||
        params->message_group->post_joint == NULL) {
        return DYT_OK;
    }
    st =
        dyti_team_table_init(&world->teams, params->layout, params->world_size);
    if (st != DYT_OK) {
        return st;
    }
    world->team = calloc(world->teams.round_count + 1u, sizeof(*world->team));
    if (world->team == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "teams of rank %u", params->rank);
    }
    if (params->world_size >= DYTI_TEAM_LEAST) {
        add_own(world, world->table.entry[0].member, params->world_size, NULL);
    }
    for (uint32_t r = 0; r < world->teams.round_count && st == DYT_OK; r++) {
        st = make_round(world, r);
    }
    return st;
}

/* ---- open and close ---------------------------------------------------------
 */

static struct dyti_group_params params_of(const struct dyti_world *world)
{
    const struct dyti_world_params *params = &world->params;

    return (struct dyti_group_params){
        .struct_size = sizeof(struct dyti_group_params),
        .name = "messages",
        .rank = params->rank,
        .size = params->world_size,
        .world_rank = world->table.entry[0].member,
        .shared = (unsigned char *)world->control_mem.base + world->message_at,
        .shared_bytes = region_of(params->message_group, params->world_size),
        .abort = &world->control->abort,
        .timeout_ns = params->timeout_ns,
        .oversubscribed = params->oversubscribed,
        .stream = dyti_kernels_stream(&params->kernels)};
}

/* Ranks on several hosts: a group of the world's own sort carries for it. */
static enum dyt_status open_carrier(struct dyti_world *world,
                                    struct dyti_group_params *group)
{
    const struct dyti_world_params *params = &world->params;
    struct dyti_group_params carrier = *group;
    enum dyt_status st;

    carrier.name = "messages' carrier";
    carrier.shared = (unsigned char *)group->shared + group->shared_bytes;
    carrier.shared_bytes = region_of(params->group, params->world_size);
    carrier.stream = NULL;
    world->carrier = (struct dyti_group){
        .ops = params->group, .rank = params->rank, .size = params->world_size};
    world->message_shared = aligned_alloc(64, group->shared_bytes);
    if (world->message_shared == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "messages of rank %u", params->rank);
    }
    st = params->group->open(&carrier, &world->carrier.self);
    group->apart = true;
    group->carrier = &world->carrier;
    group->shared = world->message_shared;
    return st;
}

/* A group of devices is for worlds in which all are of devices: who has memory
 * of a host has no part in it. */
enum dyt_status dyti_world_open_messages(struct dyti_world *world)
{
    const struct dyti_world_params *params = &world->params;
    struct dyti_group_params group;
    enum dyt_status st = DYT_OK;

    world->all = dyti_world_all(world);
    if (params->message_group == NULL || params->world_size == 1) {
        return DYT_OK;
    }
    for (uint32_t r = 0; r < params->world_size; r++) {
        if (!dyti_world_is_device(world, r)) {
            return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                             "messages by \"%s\" between devices: rank %u has "
                             "memory of a host; leave the messages to \"%s\"",
                             params->message_group->name, r,
                             params->group->name);
        }
    }
    group = params_of(world);
    if (dyti_world_is_spread(params)) {
        st = open_carrier(world, &group);
    }
    st = st == DYT_OK
             ? params->message_group->open(&group, &world->message_group)
             : st;
    if (st == DYT_OK) {
        world->all.ops = params->message_group;
        world->all.self = world->message_group;
        st = make_teams(world);
    }
    return st;
}

void dyti_world_close_messages(struct dyti_world *world)
{
    if (world->message_group != NULL) {
        world->params.message_group->close(world->message_group);
    }
    if (world->carrier.self != NULL) {
        world->carrier.ops->close(world->carrier.self);
    }
    free(world->message_shared);
    dyti_team_table_fini(&world->teams);
    free(world->team);
}

/* ---- memory -----------------------------------------------------------------
 */

void dyti_world_attach(struct dyti_world *world, bool is_there, uint64_t offset,
                       uint64_t bytes)
{
    const struct dyti_group_ops *ops = world->params.message_group;
    uint32_t rank = world->params.rank, count;
    uint64_t end[DYTI_ARENA_PARTS_MAX], at = 0;
    unsigned char *base = world->base[rank];

    if (world->message_group == NULL || ops->attach == NULL ||
        ops->detach == NULL || base == NULL) {
        return;
    }
    count = dyti_arena_parts(&world->map[rank], end);
    for (uint32_t i = 0; i < count; at = end[i++]) {
        if (at < offset || end[i] > offset + bytes) {
            continue;
        }
        ops->detach(world->message_group, base + at); /* it may know it */
        if (is_there) { /* without, it works as well */
            (void)ops->attach(world->message_group, base + at, end[i] - at);
        }
    }
}
