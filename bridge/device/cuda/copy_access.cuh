// What the three ways of copying share: accesses as wide as addresses allow,
// one element with its conversion, and which units of a box a warp has.
#ifndef DYTI_DEVICE_CUDA_COPY_ACCESS_CUH
#define DYTI_DEVICE_CUDA_COPY_ACCESS_CUH

#include "device/cuda/box.h"
#include "device/cuda/convert.cuh"
#include "device/cuda/warp.cuh"

namespace
{

typedef struct dyti_cuda_box box_t;

constexpr uint64_t SECTOR = 32;

template <class T> __device__ __forceinline__ T load_at(uint64_t address)
{
    return dev_load(reinterpret_cast<const T *>(address));
}

template <class T>
__device__ __forceinline__ void store_at(uint64_t address, T value)
{
    dev_store(reinterpret_cast<T *>(address), value);
}

// `bytes` bytes in accesses of `unit`; little endian.
__device__ __forceinline__ uint64_t load_bits(uint64_t address, uint32_t bytes,
                                              uint32_t unit)
{
    uint64_t bits = 0;

    switch (unit) {
    case 8:
        return load_at<uint64_t>(address);
    case 4:
        for (uint32_t i = 0; i < bytes; i += 4) {
            bits |= static_cast<uint64_t>(load_at<uint32_t>(address + i))
                    << i * 8;
        }
        return bits;
    case 2:
        for (uint32_t i = 0; i < bytes; i += 2) {
            bits |= static_cast<uint64_t>(load_at<uint16_t>(address + i))
                    << i * 8;
        }
        return bits;
    default:
        for (uint32_t i = 0; i < bytes; i++) {
            bits |= static_cast<uint64_t>(load_at<uint8_t>(address + i))
                    << i * 8;
        }
        return bits;
    }
}

__device__ __forceinline__ void store_bits(uint64_t address, uint64_t bits,
                                           uint32_t bytes, uint32_t unit)
{
    switch (unit) {
    case 8:
        store_at<uint64_t>(address, bits);
        break;
    case 4:
        for (uint32_t i = 0; i < bytes; i += 4) {
            store_at(address + i, static_cast<uint32_t>(bits >> i * 8));
        }
        break;
    case 2:
        for (uint32_t i = 0; i < bytes; i += 2) {
            store_at(address + i, static_cast<uint16_t>(bits >> i * 8));
        }
        break;
    default:
        for (uint32_t i = 0; i < bytes; i++) {
            store_at(address + i, static_cast<uint8_t>(bits >> i * 8));
        }
    }
}

__device__ __forceinline__ void move_element(const box_t *b, uint64_t src,
                                             uint64_t dst, uint32_t src_unit,
                                             uint32_t dst_unit)
{
    uint64_t bits;

    if (b->src_bytes == 16) {
        store_at(dst, load_at<uint4>(src));
        return;
    }
    bits = load_bits(src, b->src_bytes, src_unit);
    if (b->src_dtype != b->dst_dtype) {
        bits = convert(static_cast<uint32_t>(bits), b->src_dtype, b->dst_dtype);
    }
    if (b->take > 0) {
        store_bits(dst, bits >> b->skip * 8, b->take, 1);
    } else {
        store_bits(dst, bits, b->dst_bytes, dst_unit);
    }
}

__device__ __forceinline__ uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

// The units of a box, each of `each` bytes of the axis, that begin in a part.
__device__ __forceinline__ part units_of(part mine, uint64_t first,
                                         uint64_t each, uint64_t count)
{
    part units = {0, 0};
    uint64_t rest;

    if (mine.lo > first) {
        units.lo = divide(mine.lo - first, each, &rest);
        units.lo += rest > 0;
    }
    if (mine.hi > first) {
        units.hi = divide(mine.hi - first, each, &rest);
        units.hi += rest > 0;
    }
    units.lo = smaller(units.lo, count);
    units.hi = smaller(units.hi, count);
    return units;
}

} // namespace

#endif // DYTI_DEVICE_CUDA_COPY_ACCESS_CUH
