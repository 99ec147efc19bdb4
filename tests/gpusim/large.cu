// The kernels' loops over a window of a list.
#include "gpusim/large.h"

#include "device/cuda/copy_list.cuh"
#include "device/cuda/hash_list.cuh"

namespace
{

__device__ part window_of(uint64_t lo, uint64_t hi)
{
    part mine = part_of(hi - lo);

    return {mine.lo + lo, mine.hi + lo};
}

__global__ void large_copy(const box_t *box, const uint64_t *first,
                           uint32_t count, uint64_t lo, uint64_t hi)
{
    DYTI_SHARED(uint32_t, tile, TILES);

    copy_part(box, first, count, window_of(lo, hi), tile);
}

__global__ void large_hash(const hash_box_t *box, const uint64_t *first,
                           uint32_t count, uint64_t lo, uint64_t hi,
                           uint64_t *sum)
{
    hash_part(box, first, count, window_of(lo, hi), sum);
}

__global__ void large_parts(uint64_t total, uint64_t *lo, uint64_t *hi)
{
    part mine = part_of(total);
    uint32_t warp = blockIdx.x * WARPS + threadIdx.x / 32;

    if (threadIdx.x % 32 == 0) {
        dev_store(lo + warp, mine.lo);
        dev_store(hi + warp, mine.hi);
    }
}

__global__ void large_divide(const uint64_t *a, const uint64_t *b,
                             uint64_t *quotient, uint64_t *rest)
{
    uint32_t i = threadIdx.x;
    uint64_t left = 0;

    dev_store(quotient + i, divide(dev_load(a + i), dev_load(b + i), &left));
    dev_store(rest + i, left);
}

} // namespace

int large_copy_launch(const struct dyti_cuda_box *box, const uint64_t *first,
                      uint32_t count, uint64_t lo, uint64_t hi, uint32_t blocks)
{
    return DYTI_LAUNCH(large_copy, blocks, BLOCK, 0, nullptr, box, first, count,
                       lo, hi);
}

int large_hash_launch(const struct dyti_cuda_hash_box *box,
                      const uint64_t *first, uint32_t count, uint64_t lo,
                      uint64_t hi, uint64_t *sum, uint32_t blocks)
{
    return DYTI_LAUNCH(large_hash, blocks, BLOCK, 0, nullptr, box, first, count,
                       lo, hi, sum);
}

int large_parts_launch(uint64_t total, uint64_t *lo, uint64_t *hi,
                       uint32_t blocks)
{
    return DYTI_LAUNCH(large_parts, blocks, BLOCK, 0, nullptr, total, lo, hi);
}

int large_divide_launch(const uint64_t *a, const uint64_t *b,
                        uint64_t *quotient, uint64_t *rest)
{
    return DYTI_LAUNCH(large_divide, 1, BLOCK, 0, nullptr, a, b, quotient,
                       rest);
}
