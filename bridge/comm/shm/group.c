/* A group's region and its handles: answers "where in the shared memory is what
 * of whom?" */
#include "comm/shm/shm_group.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES  4096u
#define FEW_MEMBERS 8u

/* Big enough that a round costs more in copying than in meeting, small enough
 * to stay in a cache. */
static uint64_t slot_bytes(uint32_t size)
{
    return size <= FEW_MEMBERS ? 512u << 10 : 128u << 10;
}

/* There are size² of them. */
static uint64_t ring_bytes(uint32_t size)
{
    return size <= FEW_MEMBERS ? 256u << 10 : 32u << 10;
}

static uint64_t header_bytes(uint32_t size)
{
    return dyti_align_up(sizeof(struct dyti_shm_rendezvous) +
                             size * sizeof(struct dyti_shm_member),
                         PAGE_BYTES);
}

static uint64_t ring_stride(uint64_t bytes)
{
    return dyti_align_up(sizeof(struct dyti_shm_ring) + bytes, PAGE_BYTES);
}

static uint64_t region_bytes(uint32_t size)
{
    return header_bytes(size) + 2u * size * slot_bytes(size) +
           (uint64_t)size * size * ring_stride(ring_bytes(size));
}

unsigned char *dyti_shm_slot(const struct dyti_shm_group *group,
                             uint32_t member, uint32_t parity)
{
    return group->shared + header_bytes(group->size) +
           (2u * member + parity) * group->slot_bytes;
}

struct dyti_shm_ring *dyti_shm_ring(const struct dyti_shm_group *group,
                                    uint32_t source, uint32_t dest)
{
    uint64_t index = (uint64_t)source * group->size + dest;

    return (
        struct dyti_shm_ring *)(void *)(group->shared +
                                        header_bytes(group->size) +
                                        2u * group->size * group->slot_bytes +
                                        index * ring_stride(group->ring_bytes));
}

static enum dyt_status check(const struct dyti_group_params *params)
{
    if (params->size == 0 || params->rank >= params->size) {
        return DYTI_FAIL(DYT_ERR_INVALID, "group %s: member %u of %u",
                         params->name, params->rank, params->size);
    }
    if (params->shared == NULL || params->abort == NULL ||
        (uintptr_t)params->shared % LINE_BYTES != 0 ||
        params->shared_bytes < region_bytes(params->size)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "group %s of %u needs an abort word and %llu shared "
                         "bytes at a multiple of %u, got %llu",
                         params->name, params->size,
                         (unsigned long long)region_bytes(params->size),
                         LINE_BYTES, (unsigned long long)params->shared_bytes);
    }
    return DYT_OK;
}

static void group_close(void *self)
{
    struct dyti_shm_group *group = self;

    if (group != NULL) {
        dyti_shm_posts_fini(group);
        free(group->world_rank);
        free(group->send);
        free(group->recv);
        free(group);
    }
}

static enum dyt_status group_open(const struct dyti_group_params *params,
                                  void **out_self)
{
    struct dyti_shm_group *group = NULL;
    enum dyt_status st = check(params);

    if (st != DYT_OK) {
        return st;
    }
    group = calloc(1, sizeof(*group));
    if (group != NULL) {
        group->world_rank = calloc(params->size, sizeof(*group->world_rank));
        group->send = calloc(params->size, sizeof(*group->send));
        group->recv = calloc(params->size, sizeof(*group->recv));
    }
    if (group == NULL || group->world_rank == NULL || group->send == NULL ||
        group->recv == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "group %s of %u", params->name,
                       params->size);
        goto out;
    }
    group->size = params->size;
    st = dyti_shm_posts_init(group);
    if (st != DYT_OK) {
        goto out;
    }
    group->name = params->name;
    group->rank = params->rank;
    for (uint32_t i = 0; i < params->size; i++) {
        group->world_rank[i] =
            params->world_rank == NULL ? i : params->world_rank[i];
    }
    group->shared = params->shared;
    group->abort = params->abort;
    group->timeout_ns = params->timeout_ns;
    group->oversubscribed = params->oversubscribed;
    group->slot_bytes = slot_bytes(params->size);
    group->ring_bytes = ring_bytes(params->size);
    /* With a core for each, one drains what the other fills; without, a peer
     * is woken for as much as there can be. */
    group->part_bytes =
        params->oversubscribed ? group->ring_bytes : group->ring_bytes / 4;
    group->rendezvous = params->shared;
    group->member = (struct dyti_shm_member *)(group->rendezvous + 1);
    /* A handle that is opened again goes on where the last one stopped. */
    group->round = atomic_load(&group->member[group->rank].round);
    *out_self = group;
    group = NULL;
out:
    group_close(group);
    return st;
}

static void group_traffic(void *self, struct dyti_group_traffic *out_traffic)
{
    const struct dyti_shm_group *group = self;

    *out_traffic = group->traffic;
}

const struct dyti_group_ops dyti_group_shm = {
    .struct_size = sizeof(struct dyti_group_ops),
    .name = "shm",
    .caps = DYTI_GROUP_CAP_RANK_ORDER | DYTI_GROUP_CAP_THROUGH,
    .region_bytes = region_bytes,
    .open = group_open,
    .close = group_close,
    .barrier = dyti_shm_barrier,
    .broadcast = dyti_shm_broadcast,
    .all_gather = dyti_shm_all_gather,
    .reduce_scatter = dyti_shm_reduce_scatter,
    .all_reduce = dyti_shm_all_reduce,
    .exchange = dyti_shm_exchange,
    .traffic = group_traffic,
    .post = dyti_shm_post,
    .poll = dyti_shm_poll,
    .wait = dyti_shm_wait,
    .cancel = dyti_shm_cancel,
    .landed = dyti_shm_landed,
};
