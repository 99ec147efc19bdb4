// Pack, unpack and copy: a list of boxes, cut into equal parts.
//
//   axis    |--- box 0 ---|b1|b2|-------- box 3 --------|     destination bytes
//   warps   |  0  |  1  |  2  |  3  |  4  |  5  |  6  |  7    equal parts
//
// Each box says which way it goes: copy_rows.cuh, copy_elements.cuh,
// copy_turned.cuh.
#ifndef DYTI_DEVICE_CUDA_COPY_LIST_CUH
#define DYTI_DEVICE_CUDA_COPY_LIST_CUH

#include "device/cuda/copy_elements.cuh"
#include "device/cuda/copy_rows.cuh"
#include "device/cuda/copy_turned.cuh"

namespace
{

constexpr uint32_t TILES = WARPS * TILE * PITCH; // words of shared memory

// What a warp has of a list: the part `mine` of the axis.
template <class Shared>
__device__ __forceinline__ void copy_part(const box_t *box,
                                          const uint64_t *first, uint32_t count,
                                          part mine, Shared tile)
{
    if (mine.lo == mine.hi) {
        return;
    }
    for (uint32_t i = box_at(first, count, mine.lo);
         i < count && first[i] < mine.hi;) {
        switch (box[i].variant) {
        case DYTI_CUDA_ROWS:
            move_rows(box + i, mine, first[i]);
            i++;
            break;
        case DYTI_CUDA_TURNED:
            move_turned(box + i, mine, first[i], first[i + 1], tile);
            i++;
            break;
        default:
            i += move_elements(box, first, i, count, mine);
        }
    }
}

} // namespace

#endif // DYTI_DEVICE_CUDA_COPY_LIST_CUH
