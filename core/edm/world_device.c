/* Memory of devices in a world: which table serves whose segment, and which
 * ranks map each other's memory. */
#include "edm/world_internal.h"

#include <stdlib.h>

enum dyti_page_kind dyti_world_pages(const struct dyti_world_params *params,
                                     uint32_t rank)
{
    return params->segment_mem != NULL ? params->segment_mem[rank].pages
                                       : params->segment_pages[rank];
}

bool dyti_world_is_device(const struct dyti_world *world, uint32_t rank)
{
    return !dyti_pages_are_host(dyti_world_pages(&world->params, rank));
}

const struct dyti_memory_ops *dyti_world_memory_of(
    const struct dyti_world *world, uint32_t rank)
{
    return dyti_world_is_device(world, rank) ? world->params.device_memory
                                             : world->params.memory;
}

bool dyti_world_maps(const struct dyti_world *world, uint32_t rank)
{
    return world->reach[rank] == world->reach[world->params.rank];
}

/* ---- who maps whom ----------------------------------------------------------
 */

/* One host, and the same sort of memory. */
static bool may_map(const struct dyti_world *world, uint32_t a, uint32_t b)
{
    const uint32_t *host = world->params.host;

    return (host == NULL || host[a] == host[b]) &&
           dyti_world_is_device(world, a) == dyti_world_is_device(world, b);
}

bool dyti_world_is_spread(const struct dyti_world_params *params)
{
    for (uint32_t r = 0; params->host != NULL && r < params->world_size; r++) {
        if (params->host[r] != params->host[0]) {
            return true;
        }
    }
    return false;
}

static bool has_devices(const struct dyti_world *world)
{
    for (uint32_t r = 0; r < world->params.world_size; r++) {
        if (dyti_world_is_device(world, r)) {
            return true;
        }
    }
    return false;
}

enum dyt_status dyti_world_reach_init(struct dyti_world *world)
{
    const struct dyti_world_params *params = &world->params;
    bool is_device = dyti_world_is_device(world, params->rank);

    world->has_devices = has_devices(world);
    if (is_device && params->device_memory == NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "the segment of rank %u is of a device, and its world "
                         "has no table for such memory",
                         params->rank);
    }
    if (is_device == dyti_kernels_any_memory(&params->kernels)) {
        return DYTI_FAIL(
            DYT_ERR_INVALID,
            "the segment of rank %u has pages \"%s\", which its "
            "kernels \"%s\" are not for",
            params->rank,
            dyti_page_kind_name(dyti_world_pages(params, params->rank)),
            params->kernels.ops->name);
    }
    for (uint32_t r = 0; r < params->world_size; r++) {
        uint32_t first = 0;

        while (!may_map(world, first, r)) {
            first++;
        }
        world->reach[r] = first;
    }
    return DYT_OK;
}

/* Each rank joins the first set of ranks that all map it, and that it maps. */
static void make_sets(struct dyti_world *world, const uint8_t *maps)
{
    uint32_t ranks = world->params.world_size;

    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t first = 0;

        for (; first < r; first++) {
            bool fits = world->reach[first] == first;

            for (uint32_t m = first; m < r && fits; m++) {
                fits = world->reach[m] != first ||
                       (maps[m * ranks + r] != 0 && maps[r * ranks + m] != 0);
            }
            if (fits) {
                break;
            }
        }
        world->reach[r] = first;
    }
}

enum dyt_status dyti_world_reach_agree(struct dyti_world *world)
{
    const struct dyti_world_params *params = &world->params;
    uint32_t ranks = params->world_size;
    struct dyti_group all = dyti_world_all(world);
    uint64_t *counts = NULL;
    uint8_t *maps = NULL;
    enum dyt_status st = DYT_OK;

    if (!world->has_devices || ranks == 1) {
        return DYT_OK; /* memory of one host is always mapped */
    }
    maps = calloc(ranks, ranks);
    counts = calloc(ranks, sizeof(*counts));
    if (maps == NULL || counts == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "who maps whom of %u ranks", ranks);
        goto out;
    }
    for (uint32_t r = 0; r < ranks; r++) {
        counts[r] = ranks;
        maps[params->rank * ranks + r] =
            dyti_world_maps(world, r) &&
            (world->map[r].total_bytes == 0 || world->base[r] != NULL);
    }
    st = all.ops->all_gather(all.self, maps + (size_t)params->rank * ranks,
                             maps, counts);
    if (st != DYT_OK) {
        goto out;
    }
    make_sets(world, maps);
    for (uint32_t r = 0; r < ranks; r++) {
        if (!dyti_world_maps(world, r) && world->maps_own_memory &&
            world->base[r] != NULL) {
            dyti_world_memory_of(world, r)->unmap(&world->segment[r]);
        }
        world->base[r] = dyti_world_maps(world, r) ? world->base[r] : NULL;
    }
out:
    free(maps);
    free(counts);
    return st;
}

/* ---- peers' memory ----------------------------------------------------------
 */

enum dyt_status dyti_world_refresh(struct dyti_world *world)
{
    const struct dyti_world_params *params = &world->params;

    if (!world->maps_own_memory || !dyti_world_is_device(world, params->rank)) {
        return DYT_OK;
    }
    for (uint32_t r = 0; r < params->world_size; r++) {
        enum dyt_status st =
            r == params->rank || world->base[r] == NULL
                ? DYT_OK
                : params->device_memory->refresh(&world->segment[r]);

        if (st != DYT_OK) {
            DYTI_NOTE("following the memory of rank %u on rank %u", r,
                      params->rank);
            return st;
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_world_met(void *world)
{
    return dyti_world_refresh(world);
}
