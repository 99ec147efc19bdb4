// One launch moves a whole list of boxes (copy_list.cuh says how).
#include "device/cuda/copy_list.cuh"
#include "device/cuda/kernels.h"

namespace
{

constexpr uint64_t WORTH = 4096; // bytes for a warp
[[maybe_unused]] constexpr int MIN_BLOCKS =
    5; // on a multiprocessor: 102 registers, no spill

__global__ void __launch_bounds__(BLOCK, MIN_BLOCKS)
    copy_boxes(const box_t *box, const uint64_t *first, uint32_t count,
               uint64_t bytes)
{
    DYTI_SHARED(uint32_t, tile, TILES);

    copy_part(box, first, count, part_of(bytes), tile);
}

} // namespace

int dyti_cuda_copy_load(void)
{
    return dev_load_kernel(reinterpret_cast<const void *>(&copy_boxes));
}

int dyti_cuda_copy_launch(const struct dyti_cuda_box *box,
                          const uint64_t *first, uint32_t count, uint64_t bytes,
                          uint32_t most_blocks, void *stream)
{
    uint64_t blocks = (bytes + WARPS * WORTH - 1) / (WARPS * WORTH);

    most_blocks = most_blocks == 0 ? 4096 : most_blocks;
    if (bytes == 0) {
        return cudaSuccess;
    }
    return DYTI_LAUNCH(
        copy_boxes,
        static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks),
        BLOCK, 0, stream, box, first, count, bytes);
}
