// What the kernels over lists of boxes share: which part of the axis a warp
// has, and where that begins.
#ifndef DYTI_DEVICE_CUDA_WARP_CUH
#define DYTI_DEVICE_CUDA_WARP_CUH

#include "device/cuda/launch.cuh"

constexpr uint32_t BLOCK = 128; // threads
constexpr uint32_t WARPS = BLOCK / 32;
constexpr uint32_t ALL = 0xffffffffu;

// Quotient and rest of sizes, which mostly fit in 32 bits.  The compiler's own
// division of 64 bits is a call, around which a kernel would spill.
__device__ __forceinline__ uint64_t divide(uint64_t a, uint64_t b,
                                           uint64_t *out_rest)
{
    uint64_t quotient = 0, rest = 0;

    if (((a | b) >> 32) == 0) {
        uint32_t q = static_cast<uint32_t>(a) / static_cast<uint32_t>(b);

        *out_rest = static_cast<uint32_t>(a) - q * static_cast<uint32_t>(b);
        return q;
    }
#pragma unroll 1
    for (int bit = 63; bit >= 0; bit--) {
        rest = rest << 1 | (a >> bit & 1u);
        quotient <<= 1;
        if (rest >= b) {
            rest -= b;
            quotient |= 1u;
        }
    }
    *out_rest = rest;
    return quotient;
}

struct part {
    uint64_t lo, hi;
};

// Equal parts of [0, total) for all warps of the grid.
__device__ __forceinline__ part part_of(uint64_t total)
{
    uint64_t warps = static_cast<uint64_t>(gridDim.x) * WARPS;
    uint64_t warp =
        static_cast<uint64_t>(blockIdx.x) * WARPS + threadIdx.x / 32;
    uint64_t rest, each = divide(total, warps, &rest);

    // The first `rest` warps have one more.
    return {warp * each + (warp < rest ? warp : rest),
            (warp + 1) * each + (warp + 1 < rest ? warp + 1 : rest)};
}

// The box that holds place `at`: 32 probes at a time.
__device__ __forceinline__ uint32_t box_at(const uint64_t *first,
                                           uint32_t count, uint64_t at)
{
    uint32_t lane = threadIdx.x % 32, lo = 0, n = count;

    while (n > 1) {
        uint32_t step = (n + 31) / 32, probe = lane * step;
        bool before = probe < n && first[lo + probe] <= at;
        uint32_t last =
            static_cast<uint32_t>(__popc(__ballot_sync(ALL, before))) - 1;

        lo += last * step;
        n = n - last * step < step ? n - last * step : step;
    }
    return lo;
}

#endif // DYTI_DEVICE_CUDA_WARP_CUH
