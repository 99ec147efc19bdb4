/* Backups in host memory: what sleeps on a device and comes back as it was.
 * The memory is pinned, taken when it is first needed, never more than the
 * world was given, and kept until the world is closed. */
#include "edm/world_internal.h"

#include "base/checked.h"

#define MIB(bytes) ((unsigned long long)((bytes) >> 20))

static const struct dyti_arena_map *map_of(const struct dyti_world *world)
{
    return &world->map[world->params.rank];
}

/* Where a region lies in the backup: behind those of the mask before it. */
static uint64_t bytes_before(const struct dyti_world *world, uint64_t regions,
                             uint32_t until)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < until; i++) {
        uint32_t slot = i / DYTI_KIND_COUNT, kind = i % DYTI_KIND_COUNT;

        if ((regions & dyti_region_bit(slot, kind)) != 0) {
            sum += dyti_align_up(map_of(world)->bytes[slot][kind], 4096);
        }
    }
    return sum;
}

static enum dyt_status make_room(struct dyti_world *world, uint64_t bytes)
{
    struct dyti_world_backup *b = &world->backup;
    const struct dyti_memory_ops *ops = world->params.device_memory;
    void *at = NULL;
    enum dyt_status st;

    if (bytes > world->params.backup_bytes) {
        return DYTI_FAIL(DYT_ERR_NOMEM,
                         "%llu MiB of rank %u would have to be kept in host "
                         "memory, which may hold %llu MiB: give it more, or "
                         "let the state stay on the device",
                         MIB(bytes + (1u << 20) - 1), world->params.rank,
                         MIB(world->params.backup_bytes));
    }
    if (bytes <= b->bytes) {
        return DYT_OK;
    }
    st = ops->host_alloc(bytes, &at);
    if (st != DYT_OK) {
        DYTI_NOTE("keeping what sleeps in host memory");
        return st;
    }
    ops->host_free(b->at);
    b->at = at;
    b->bytes = bytes;
    return DYT_OK;
}

/* One way or the other; regions of one `mask` lie where that says. */
static enum dyt_status carry(struct dyti_world *world, uint64_t mask,
                             uint64_t regions, bool back)
{
    const struct dyti_arena_map *map = map_of(world);
    unsigned char *here = world->backup.at;
    unsigned char *there = world->base[world->params.rank];
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0;
         i < DYTI_ARENA_SLOT_COUNT * DYTI_KIND_COUNT && st == DYT_OK; i++) {
        uint32_t slot = i / DYTI_KIND_COUNT, kind = i % DYTI_KIND_COUNT;
        unsigned char *of, *at;

        if ((regions & dyti_region_bit(slot, kind)) == 0 ||
            map->bytes[slot][kind] == 0) {
            continue;
        }
        of = there + map->offset[slot][kind];
        at = here + bytes_before(world, mask, i);
        st = dyti_kernels_carry(&world->params.kernels, back ? of : at,
                                back ? at : of, map->bytes[slot][kind]);
    }
    return st;
}

enum dyt_status dyti_backup_save(struct dyti_world *world, uint64_t regions)
{
    struct dyti_world_backup *b = &world->backup;
    enum dyt_status st;

    if (regions == 0) {
        return DYT_OK;
    }
    if (b->regions != 0) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "rank %u has put state into host memory already: "
                         "restore it first",
                         world->params.rank);
    }
    st =
        make_room(world, bytes_before(world, regions,
                                      DYTI_ARENA_SLOT_COUNT * DYTI_KIND_COUNT));
    st = st != DYT_OK ? st : dyti_kernels_wait(&world->params.kernels);
    st = st != DYT_OK ? st : carry(world, regions, regions, false);
    if (st != DYT_OK) {
        DYTI_NOTE("keeping state of rank %u in host memory",
                  world->params.rank);
        return st;
    }
    b->mask = b->regions = regions;
    return DYT_OK;
}

enum dyt_status dyti_backup_load(struct dyti_world *world, uint64_t regions)
{
    struct dyti_world_backup *b = &world->backup;
    enum dyt_status st = carry(world, b->mask, regions & b->regions, true);

    if (st != DYT_OK) {
        DYTI_NOTE("bringing state of rank %u back from host memory",
                  world->params.rank);
        return st;
    }
    b->regions &= ~regions;
    return DYT_OK;
}

void dyti_backup_close(struct dyti_world *world)
{
    if (world->backup.at != NULL) {
        world->params.device_memory->host_free(world->backup.at);
    }
}
