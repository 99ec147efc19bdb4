// One launch hashes a whole list of boxes (hash_list.cuh says how).  Another,
// before it, draws the boxes of a sample.
#include "device/cuda/hash_list.cuh"
#include "device/cuda/kernels.h"
#include "device/cuda/sample_list.cuh"

namespace
{

constexpr uint64_t WORTH = 2048; // elements for a warp

__global__ void __launch_bounds__(BLOCK)
    hash_boxes(const hash_box_t *box, const uint64_t *first, uint32_t count,
               uint64_t elements, uint64_t *total)
{
    hash_part(box, first, count, part_of(elements), total);
}

__global__ void __launch_bounds__(BLOCK)
    draw_samples(const sample_t *sample, uint32_t count, uint64_t seed,
                 hash_box_t *box)
{
    uint32_t i = blockIdx.x * BLOCK + threadIdx.x;

    if (i < count) {
        draw(sample + i, seed, box + i);
    }
}

} // namespace

int dyti_cuda_hash_load(void)
{
    cudaError_t error =
        dev_load_kernel(reinterpret_cast<const void *>(&hash_boxes));

    return error == cudaSuccess
               ? dev_load_kernel(reinterpret_cast<const void *>(&draw_samples))
               : error;
}

int dyti_cuda_hash_launch(const struct dyti_cuda_hash_box *box,
                          const uint64_t *first, uint32_t count,
                          uint64_t elements, uint64_t *sum,
                          uint32_t most_blocks, void *stream)
{
    uint64_t blocks = (elements + WARPS * WORTH - 1) / (WARPS * WORTH);

    most_blocks = most_blocks == 0 ? 4096 : most_blocks;
    if (elements == 0) {
        return cudaSuccess;
    }
    return DYTI_LAUNCH(
        hash_boxes,
        static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks),
        BLOCK, 0, stream, box, first, count, elements, sum);
}

int dyti_cuda_sample_launch(const struct dyti_cuda_sample *sample,
                            uint32_t count, uint64_t seed,
                            struct dyti_cuda_hash_box *box, void *stream)
{
    if (count == 0) {
        return cudaSuccess;
    }
    return DYTI_LAUNCH(draw_samples, (count + BLOCK - 1) / BLOCK, BLOCK, 0,
                       stream, sample, count, seed, box);
}
