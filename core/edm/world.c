/* Opening and closing a world, in order: control page, groups, own memory,
 * peers' memory, mover, plans. */
#include "edm/world_internal.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* ---- open ------------------------------------------------------------------
 */

static enum dyt_status check(const struct dyti_world_params *params)
{
    if (params->world_size == 0 || params->rank >= params->world_size) {
        return DYTI_FAIL(DYT_ERR_INVALID, "rank %u of a world of %u",
                         params->rank, params->world_size);
    }
    if (params->map == NULL || params->memory == NULL ||
        params->group == NULL || params->mover == NULL ||
        params->wait == NULL || params->kernels.ops == NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "the world of rank %u lacks a map or a table",
                         params->rank);
    }
    if ((params->control_mem == NULL) != (params->segment_mem == NULL) ||
        (params->control_mem == NULL &&
         (params->segment_handle == NULL || params->segment_pages == NULL))) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "the world of rank %u needs handles or memory",
                         params->rank);
    }
    if (params->backup_bytes > 0 && params->device_memory == NULL) {
        return DYTI_FAIL(
            DYT_ERR_UNSUPPORTED,
            "rank %u: [residency] optimizer = \"host\" keeps state "
            "of devices in host memory, and its memory is the "
            "host's: use \"parked\"",
            params->rank);
    }
    return DYT_OK;
}

static enum dyt_status allocate(struct dyti_world *world)
{
    size_t ranks = world->params.world_size;

    world->map = calloc(ranks, sizeof(*world->map));
    world->segment = calloc(ranks, sizeof(*world->segment));
    world->base = calloc(ranks, sizeof(*world->base));
    world->pages = calloc(ranks, sizeof(*world->pages));
    world->group = calloc(world->table.entry_count, sizeof(*world->group));
    world->domain = calloc(ranks, sizeof(*world->domain));
    world->reach = calloc(ranks, sizeof(*world->reach));
    if (world->map == NULL || world->segment == NULL || world->base == NULL ||
        world->pages == NULL || world->group == NULL || world->domain == NULL ||
        world->reach == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "the world of rank %u",
                         world->params.rank);
    }
    memcpy(world->map, world->params.map, ranks * sizeof(*world->map));
    world->params.map = world->map;
    for (uint32_t r = 0; r < ranks; r++) {
        world->pages[r] = dyti_world_pages(&world->params, r);
    }
    world->params.segment_pages = world->pages;
    return DYT_OK;
}

static enum dyt_status open_control(struct dyti_world *world)
{
    struct dyti_world_params *params = &world->params;
    enum dyt_status st = DYT_OK;

    if (world->maps_own_memory) {
        st = params->memory->map(params->control_handle, params->control_pages,
                                 world->table.total_bytes, &world->control_mem);
    } else {
        world->control_mem = *params->control_mem;
        if (world->control_mem.bytes < world->table.total_bytes) {
            st = DYTI_FAIL(DYT_ERR_INVALID,
                           "a control segment of %llu bytes, %llu are needed",
                           (unsigned long long)world->control_mem.bytes,
                           (unsigned long long)world->table.total_bytes);
        }
    }
    if (st == DYT_OK) {
        st = dyti_control_open(world->control_mem.base, params->world_size,
                               &world->control);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("opening the control segment");
    }
    return st;
}

static enum dyt_status open_groups(struct dyti_world *world)
{
    const struct dyti_world_params *params = &world->params;

    for (size_t i = 0; i < world->table.entry_count; i++) {
        const struct dyti_group_entry *entry = &world->table.entry[i];
        int64_t member = dyti_group_member(entry, params->rank);
        struct dyti_group_params group = {
            .struct_size = sizeof(group),
            .name = entry->name,
            .rank = (uint32_t)member,
            .size = entry->size,
            .world_rank = entry->member,
            .shared = (unsigned char *)world->control_mem.base + entry->offset,
            .shared_bytes = entry->bytes,
            .abort = &world->control->abort,
            .timeout_ns = params->timeout_ns,
            .oversubscribed = params->oversubscribed};
        enum dyt_status st;

        if (member < 0) {
            continue;
        }
        st = params->group->open(&group, &world->group[i]);
        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}

static enum dyt_status meet(struct dyti_world *world)
{
    return world->params.group->barrier(world->group[0]);
}

static enum dyt_status open_segment(struct dyti_world *world, uint32_t rank)
{
    const struct dyti_world_params *params = &world->params;
    uint64_t bytes = world->map[rank].total_bytes;
    enum dyt_status st = DYT_OK;

    if (bytes == 0 || !dyti_world_maps(world, rank)) {
        return DYT_OK;
    }
    if (world->maps_own_memory) {
        st =
            dyti_world_memory_of(world, rank)
                ->map(params->segment_handle[rank], params->segment_pages[rank],
                      bytes, &world->segment[rank]);
        if (st == DYT_ERR_UNSUPPORTED && rank != params->rank) {
            DYTI_LOG(DYTI_LOG_INFO, "edm",
                     "rank %u cannot map the memory of rank %u: messages go "
                     "between them: %s",
                     params->rank, rank, dyti_error_message());
            return DYT_OK; /* all hear of it: dyti_world_reach_agree() */
        }
    } else {
        world->segment[rank] = params->segment_mem[rank];
        if (world->segment[rank].bytes < bytes) {
            st = DYTI_FAIL(DYT_ERR_INVALID, "%llu bytes, %llu are needed",
                           (unsigned long long)world->segment[rank].bytes,
                           (unsigned long long)bytes);
        }
    }
    if (st != DYT_OK) {
        DYTI_NOTE("opening the segment of rank %u", rank);
        return st;
    }
    world->base[rank] = world->segment[rank].base;
    return DYT_OK;
}

/* All ranks of the host take from the same memory, and none has touched its
 * segment yet: refuse together what could only end in a kill.  Reserved pages
 * are refused one by one, when they are reserved, as is a device's memory. */
static enum dyt_status check_memory(const struct dyti_world *world)
{
    const struct dyti_world_params *params = &world->params;
    enum dyti_page_kind pages = params->segment_pages[params->rank];
    uint64_t sum = 0, have;

    if (pages == DYTI_PAGES_HUGETLB || !dyti_pages_are_host(pages)) {
        return DYT_OK;
    }
    for (uint32_t r = 0; r < params->world_size; r++) {
        sum += dyti_world_maps(world, r) ? world->map[r].total_bytes : 0;
    }
    have = params->memory->available(pages);
    if (sum > have) {
        return DYTI_FAIL(DYT_ERR_NOMEM,
                         "%u ranks need %llu MiB together, %llu MiB are "
                         "available",
                         params->world_size, (unsigned long long)(sum >> 20),
                         (unsigned long long)(have >> 20));
    }
    return DYT_OK;
}

static enum dyt_status size_segment(const struct dyti_world *world,
                                    uint64_t bytes)
{
    const struct dyti_world_params *params = &world->params;
    uint64_t part[DYTI_ARENA_PARTS_MAX];
    uint32_t count = dyti_arena_parts(&world->map[params->rank], part);

    return dyti_world_memory_of(world, params->rank)
        ->resize(params->segment_handle[params->rank],
                 params->segment_pages[params->rank], bytes, part, count);
}

/* Own segment first: peers map it once they know that it has its size. */
static enum dyt_status open_memory(struct dyti_world *world)
{
    const struct dyti_world_params *params = &world->params;
    uint64_t bytes = world->map[params->rank].total_bytes;
    enum dyt_status st = DYT_OK;

    if (world->maps_own_memory && !params->own_is_sized && bytes > 0) {
        st = check_memory(world);
        if (st != DYT_OK) {
            return st;
        }
        st = size_segment(world, bytes);
        if (st != DYT_OK) {
            DYTI_NOTE("sizing the segment of rank %u", params->rank);
            return st;
        }
    }
    st = meet(world);
    for (uint32_t r = 0; r < params->world_size && st == DYT_OK; r++) {
        st = open_segment(world, r);
    }
    st = st != DYT_OK ? st : dyti_world_reach_agree(world);
    if (st == DYT_OK) {
        dyti_world_attach(world, true, 0, bytes);
    }
    return st == DYT_OK ? meet(world) : st;
}

static enum dyt_status open_tools(struct dyti_world *world)
{
    struct dyti_mover_params mover = {.struct_size = sizeof(mover),
                                      .rank = world->params.rank,
                                      .world_size = world->params.world_size,
                                      .kernels = &world->params.kernels};
    enum dyt_status st = world->params.mover->open(&mover, &world->mover);

    if (st == DYT_OK && world->params.message != NULL) {
        mover.group = &world->all;
        st = dyti_world_open_messages(world);
        st = st != DYT_OK
                 ? st
                 : world->params.message->open(&mover, &world->message);
    }
    if (st != DYT_OK) {
        return st;
    }
    return dyti_switch_cache_create(&world->cache);
}

enum dyt_status dyti_world_open(const struct dyti_world_params *params,
                                struct dyti_world **out_world)
{
    struct dyti_world *world = NULL;
    enum dyt_status st = check(params);

    if (st != DYT_OK) {
        return st;
    }
    world = calloc(1, sizeof(*world));
    if (world == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "the world of rank %u", params->rank);
    }
    world->params = *params;
    world->maps_own_memory = params->control_mem == NULL;
    st = dyti_group_table_init(&world->table, params->layout,
                               params->world_size, params->rank, params->group);
    if (st == DYT_OK) {
        world->message_at = world->table.total_bytes;
        world->table.total_bytes += dyti_world_message_bytes(
            params->message_group, params->group, params->world_size);
        st = allocate(world);
    }
    if (st == DYT_OK) {
        st = dyti_world_reach_init(world);
    }
    if (st == DYT_OK) {
        st = open_control(world);
    }
    if (st == DYT_OK) {
        st = open_groups(world);
    }
    if (st == DYT_OK) {
        st = open_tools(world);
    }
    if (st == DYT_OK) {
        st = open_memory(world);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("opening the world of rank %u", params->rank);
        if (world->control != NULL && st != DYT_ERR_PEER) {
            dyti_control_abort(world->control, params->wait, params->rank, st);
        }
        goto out;
    }
    *out_world = world;
    world = NULL;
out:
    dyti_world_close(world);
    return st;
}

void dyti_world_close(struct dyti_world *world)
{
    if (world == NULL) {
        return;
    }
    for (size_t i = 0; i < world->prepared_count; i++) {
        dyti_switch_destroy(world->prepared[i].self);
    }
    free(world->prepared);
    dyti_switch_cache_destroy(world->cache);
    dyti_backup_close(world);
    if (world->mover != NULL) {
        world->params.mover->close(world->mover);
    }
    if (world->message != NULL) {
        world->params.message->close(world->message);
    }
    dyti_world_close_messages(world);
    for (size_t i = 0; world->group != NULL && i < world->table.entry_count;
         i++) {
        if (world->group[i] != NULL) {
            world->params.group->close(world->group[i]);
        }
    }
    for (uint32_t r = 0; world->maps_own_memory && world->segment != NULL &&
                         r < world->params.world_size;
         r++) {
        if (world->segment[r].base != NULL) {
            dyti_world_memory_of(world, r)->unmap(&world->segment[r]);
        }
    }
    if (world->maps_own_memory) {
        world->params.memory->unmap(&world->control_mem);
    }
    dyti_group_table_fini(&world->table);
    free(world->map);
    free(world->segment);
    free(world->base);
    free(world->pages);
    free(world->group);
    free(world->domain);
    free(world->reach);
    free(world);
}

/* ---- look-ups ---------------------------------------------------------------
 */

struct dyti_control_page *dyti_world_control(const struct dyti_world *world)
{
    return world->control;
}

static struct dyti_group group_of(const struct dyti_world *world, size_t entry)
{
    const struct dyti_group_entry *e = &world->table.entry[entry];

    return (struct dyti_group){
        .ops = world->params.group,
        .self = world->group[entry],
        .rank = (uint32_t)dyti_group_member(e, world->params.rank),
        .size = e->size};
}

struct dyti_group dyti_world_group(const struct dyti_world *world,
                                   enum dyti_arena_slot slot,
                                   enum dyti_dimension dimension)
{
    int32_t entry = world->table.own[slot][dimension];

    return entry < 0 ? (struct dyti_group){0} : group_of(world, (size_t)entry);
}

struct dyti_group dyti_world_all(const struct dyti_world *world)
{
    return group_of(world, 0);
}

static uint32_t live_set(const struct dyti_world *world,
                         enum dyti_arena_slot slot)
{
    return atomic_load(&world->control->sets) >> (uint32_t)slot & 1u;
}

void *dyti_world_region_in(const struct dyti_world *world, uint32_t rank,
                           enum dyti_arena_slot slot, enum dyti_kind kind,
                           uint32_t set)
{
    const struct dyti_arena_map *map;

    if (rank >= world->params.world_size || set >= DYTI_ARENA_SETS ||
        world->base[rank] == NULL) {
        return NULL;
    }
    map = &world->map[rank];
    if (map->bytes[slot][kind] == 0 ||
        (set > 0 && map->offset1[slot][kind] == map->offset[slot][kind])) {
        return NULL;
    }
    return (unsigned char *)world->base[rank] +
           dyti_arena_offset(map, set, slot, kind);
}

void *dyti_world_region(const struct dyti_world *world, uint32_t rank,
                        enum dyti_arena_slot slot, enum dyti_kind kind)
{
    uint32_t set = live_set(world, slot);
    void *region = dyti_world_region_in(world, rank, slot, kind, set);

    /* what does not move is there once, whichever set is live */
    return region != NULL ? region
                          : dyti_world_region_in(world, rank, slot, kind, 0);
}

void *dyti_world_work(const struct dyti_world *world, uint64_t *out_bytes)
{
    const struct dyti_arena_map *map = &world->map[world->params.rank];

    *out_bytes = map->work_bytes;
    return map->work_bytes == 0
               ? NULL
               : (unsigned char *)world->base[world->params.rank] +
                     map->work_offset;
}
