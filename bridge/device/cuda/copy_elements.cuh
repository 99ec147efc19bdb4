// ELEMENTS: a thread moves an element; up to 32 boxes are one sequence, which a
// warp takes in steps that end where a sector of the destination ends.
#ifndef DYTI_DEVICE_CUDA_COPY_ELEMENTS_CUH
#define DYTI_DEVICE_CUDA_COPY_ELEMENTS_CUH

#include "device/cuda/copy_access.cuh"

namespace
{

// What this lane's box, if it is of the right kind, gives to the sequence.
struct share {
    uint64_t lo, behind; // its first element; end of its part of the sequence
};

// The boxes from `i` on that are one sequence; *out_boxes of them.
__device__ __forceinline__ share gather(const box_t *box, const uint64_t *first,
                                        uint32_t i, uint32_t count, part mine,
                                        uint32_t *out_boxes)
{
    uint32_t lane = threadIdx.x % 32, k = i + lane;
    bool fits =
        k < count && first[k] < mine.hi && box[k].variant == DYTI_CUDA_ELEMENTS;
    uint32_t others = ~__ballot_sync(ALL, fits);
    part elements = {0, 0};
    share s;

    *out_boxes =
        others == 0
            ? 32
            : static_cast<uint32_t>(__ffs(static_cast<int>(others))) - 1;
    if (lane < *out_boxes) {
        const box_t *b = box + k;

        elements =
            units_of(mine, first[k], b->take > 0 ? b->take : b->dst_bytes,
                     b->size[0] * b->size[1] * b->size[2] * b->size[3]);
    }
    s.lo = elements.lo;
    s.behind = elements.hi - elements.lo;
    for (uint32_t by = 1; by < 32; by *= 2) {
        uint64_t before = __shfl_up_sync(ALL, s.behind, by);

        s.behind += lane >= by ? before : 0;
    }
    // From here on, of an element of the sequence: minus what is before it.
    s.lo -= s.behind - (elements.hi - elements.lo);
    return s;
}

// The lane whose box has element `t` of the sequence.
__device__ __forceinline__ uint32_t owner_of(uint64_t behind, uint64_t t)
{
    uint32_t owner = 0;

    for (uint32_t step = 16; step > 0; step /= 2) {
        uint64_t end =
            __shfl_sync(ALL, behind, static_cast<int>(owner + step - 1));

        owner += end <= t ? step : 0;
    }
    return owner;
}

__device__ __forceinline__ void element_at(const box_t *b, uint64_t element,
                                           uint64_t *out_src, uint64_t *out_dst)
{
    *out_src = b->src;
    *out_dst = b->dst;
#pragma unroll
    for (int d = 3; d >= 0; d--) {
        uint64_t index = element;

        if (d > 0) {
            element = divide(element, b->size[d], &index);
        }
        *out_src += static_cast<uint64_t>(b->src_stride[d]) * index;
        *out_dst += static_cast<uint64_t>(b->dst_stride[d]) * index;
    }
}

// How many of a step's elements: up to the last end of a sector.
__device__ __forceinline__ uint32_t step_of(uint64_t dst, uint32_t bytes)
{
    uint32_t lane = threadIdx.x % 32;
    uint64_t before = __shfl_up_sync(ALL, dst / SECTOR, 1);
    uint32_t starts = __ballot_sync(ALL, lane > 0 && dst / SECTOR != before);
    uint64_t end = __shfl_sync(ALL, dst + bytes, 31);

    return end % SECTOR == 0 || starts == 0
               ? 32
               : 31 - static_cast<uint32_t>(__clz(static_cast<int>(starts)));
}

// All that this warp has of the boxes from `i` on; how many boxes that are.
__device__ __forceinline__ uint32_t move_elements(const box_t *box,
                                                  const uint64_t *first,
                                                  uint32_t i, uint32_t count,
                                                  part mine)
{
    uint32_t lane = threadIdx.x % 32, boxes, step;
    share s = gather(box, first, i, count, mine, &boxes);
    uint64_t total = __shfl_sync(ALL, s.behind, 31);

    for (uint64_t at = 0; at < total; at += step) {
        uint64_t t = smaller(at + lane, total - 1), src, dst;
        uint32_t owner = owner_of(s.behind, t);
        uint64_t lo = __shfl_sync(ALL, s.lo, static_cast<int>(owner));
        const box_t *b = box + i + owner;

        element_at(b, t + lo, &src, &dst);
        step = step_of(dst, b->dst_bytes);
        if (lane < step && at + lane < total) {
            move_element(b, src, dst, b->src_unit, b->dst_unit);
        }
    }
    return boxes;
}

} // namespace

#endif // DYTI_DEVICE_CUDA_COPY_ELEMENTS_CUH
