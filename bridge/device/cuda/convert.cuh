// f32, bf16 and f16 as bits: to nearest even, NaN stays NaN, subnormals kept;
// the same bits as base/num.h.
#ifndef DYTI_DEVICE_CUDA_CONVERT_CUH
#define DYTI_DEVICE_CUDA_CONVERT_CUH

#include "device/cuda/launch.cuh"

#include "base/dtype.h"

#include <string.h>

__device__ __forceinline__ uint32_t bits_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

__device__ __forceinline__ float float_of(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

__device__ __forceinline__ uint32_t f16_widen(uint32_t h)
{
    uint32_t sign = (h & 0x8000u) << 16, exp = h >> 10 & 0x1fu,
             man = h & 0x3ffu;

    if (exp == 31) {
        return sign | 0x7f800000u | man << 13;
    }
    if (exp == 0) { // man * 2^-24 is exact
        return sign | bits_of(static_cast<float>(man) * 0x1p-24f);
    }
    return sign | (exp + 112u) << 23 | man << 13;
}

__device__ __forceinline__ uint32_t bf16_narrow(uint32_t u)
{
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return u >> 16 | 0x40u;
    }
    return (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}

__device__ __forceinline__ uint32_t f16_narrow(uint32_t u)
{
    uint32_t sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;

    if (a > 0x7f800000u) {
        return sign | 0x7e00u;
    }
    if (a >= 0x477ff000u) { // rounds to 65536 or more
        return sign | 0x7c00u;
    }
    if (a < 0x38800000u) { // the unit of 0.5 is that of a subnormal
        return sign | (bits_of(float_of(a) + 0.5f) - 0x3f000000u);
    }
    return sign | (a + 0xfffu + (a >> 13 & 1u) - 0x38000000u) >> 13;
}

// An element of one dtype as another's bits.
__device__ __forceinline__ uint32_t convert(uint32_t bits, uint32_t from,
                                            uint32_t to)
{
    uint32_t f32 = from == DYTI_BF16  ? bits << 16
                   : from == DYTI_F16 ? f16_widen(bits)
                                      : bits;

    return from == to        ? bits
           : to == DYTI_BF16 ? bf16_narrow(f32)
           : to == DYTI_F16  ? f16_narrow(f32)
                             : f32;
}

#endif // DYTI_DEVICE_CUDA_CONVERT_CUH
