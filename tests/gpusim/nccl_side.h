/* What tests of groups over the simulated NCCL share: a rank's group, with a
 * buffer of its device. */
#ifndef DYT_GPUSIM_NCCL_SIDE_H
#define DYT_GPUSIM_NCCL_SIDE_H

#include "group_posts.h"

#include "comm/nccl/nccl.h"
#include "gpusim.h"
#include "gpusim_nccl.h"

#include <cuda_runtime_api.h>

#define BYTES 4096u

/* One rank's own: opened group, a buffer of the device. */
struct side {
    void *group;
    cudaStream_t stream;
    unsigned char *at;
};

/* A stream, and a buffer of `bytes` that each hold the rank's number. */
static inline enum dyt_status side_make(const struct dyt_rank *me,
                                        uint64_t bytes, struct side *side)
{
    *side = (struct side){0};
    return cudaStreamCreateWithFlags(&side->stream, cudaStreamNonBlocking) ==
                       cudaSuccess &&
                   cudaMalloc((void **)&side->at, bytes) == cudaSuccess &&
                   cudaMemset(side->at, (int)me->rank, bytes) == cudaSuccess &&
                   cudaDeviceSynchronize() == cudaSuccess
               ? DYT_OK
               : DYT_ERR_DEVICE;
}

static inline struct dyti_group_params side_params(
    const struct dyt_rank *me, const struct group_fixture *fixture,
    int64_t timeout_ns, const struct side *side)
{
    return (struct dyti_group_params){.struct_size =
                                          sizeof(struct dyti_group_params),
                                      .name = "test",
                                      .rank = me->rank,
                                      .size = me->size,
                                      .shared = fixture->region,
                                      .shared_bytes = fixture->region_bytes,
                                      .abort = fixture->abort,
                                      .timeout_ns = timeout_ns,
                                      .stream = side->stream};
}

static inline enum dyt_status side_open(struct dyt_rank *me,
                                        const struct group_fixture *fixture,
                                        int64_t timeout_ns, struct side *side)
{
    enum dyt_status st = side_make(me, BYTES, side);
    struct dyti_group_params params =
        side_params(me, fixture, timeout_ns, side);

    return st == DYT_OK ? dyti_group_nccl.open(&params, &side->group) : st;
}

static inline void side_close(struct side *side)
{
    dyti_group_nccl.close(side->group);
    (void)cudaStreamSynchronize(side->stream);
    (void)cudaFree(side->at);
    (void)cudaStreamDestroy(side->stream);
}

static inline unsigned char byte_at(const struct side *side, uint64_t i)
{
    unsigned char byte = 0;

    (void)cudaMemcpy(&byte, side->at + i, 1, cudaMemcpyDeviceToHost);
    return byte;
}

static inline struct group_fixture side_fixture(uint64_t bytes)
{
    char *page = dyt_ranks_shared(4096);

    return (struct group_fixture){.ops = &dyti_group_nccl,
                                  .region_bytes = bytes,
                                  .region = dyt_ranks_shared(bytes),
                                  .abort = (void *)page,
                                  .arrived = (void *)(page + 64)};
}

static inline void side_fixture_fini(struct group_fixture *f)
{
    munmap(f->region, f->region_bytes);
    munmap((void *)f->abort, 4096);
}

static inline void run(enum dyt_ranks_kind kind, uint32_t size,
                       group_check_fn check)
{
    uint64_t bytes =
        dyti_group_nccl.region_bytes(size) + dyti_group_shm.region_bytes(size);
    struct group_call call = {.fixture = side_fixture(bytes), .check = check};

    dyt_ranks_run(kind, size, group_body, &call);
    side_fixture_fini(&call.fixture);
}

/* What a manager does. */
static inline void tell_death(uint32_t rank, void *arg)
{
    const struct group_call *call = arg;

    atomic_store(&call->fixture.abort->value,
                 dyti_abort_pack(rank, DYT_ERR_PEER));
}

#endif /* DYT_GPUSIM_NCCL_SIDE_H */
