#include "gpusim/nccl_carry.h"

#include "comm/shm/shm.h"

_Static_assert(GPUSIM_CARRIED == DYTI_GROUP_POSTS, "as many as a group has");

uint64_t gpusim_carry_bytes(uint32_t size)
{
    return dyti_group_shm.region_bytes(size);
}

void *gpusim_carry_open(void *shared, uint32_t rank, uint32_t size)
{
    /* Nobody sets it: an abort of NCCL is of one rank alone. */
    static struct dyti_abort_word never;
    struct dyti_group_params params = {.struct_size = sizeof(params),
                                       .name = "simulated nccl",
                                       .rank = rank,
                                       .size = size,
                                       .shared = shared,
                                       .shared_bytes =
                                           dyti_group_shm.region_bytes(size),
                                       .abort = &never,
                                       .oversubscribed = true};
    void *self = NULL;

    return dyti_group_shm.open(&params, &self) == DYT_OK ? self : NULL;
}

void gpusim_carry_close(void *self)
{
    dyti_group_shm.close(self);
}

int gpusim_carry_post(void *self, uint32_t peer, bool is_send, void *buf,
                      uint64_t bytes, uint64_t *out_ticket)
{
    struct dyti_p2p message = {
        .peer = peer, .is_send = is_send, .buf = buf, .size_bytes = bytes};
    enum dyt_status st = dyti_group_shm.post(self, &message, out_ticket);

    return st == DYT_OK ? 1 : st == DYT_PENDING ? 0 : -1;
}

int gpusim_carry_landed(void *self, uint64_t ticket[GPUSIM_CARRIED])
{
    uint32_t count = 0;

    return dyti_group_shm.landed(self, ticket, GPUSIM_CARRIED, &count) == DYT_OK
               ? (int)count
               : -1;
}

const char *gpusim_carry_error(void)
{
    return dyti_error_message();
}
