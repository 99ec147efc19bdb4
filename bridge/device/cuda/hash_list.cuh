// The content hash of a list of boxes: a warp takes a part of all elements, and
// adds what it has of each box to that box's sum.  Rows that lie dense are read
// 16 bytes a thread.
#ifndef DYTI_DEVICE_CUDA_HASH_LIST_CUH
#define DYTI_DEVICE_CUDA_HASH_LIST_CUH

#include "device/cuda/box.h"
#include "device/cuda/convert.cuh"
#include "device/cuda/warp.cuh"

namespace
{

typedef struct dyti_cuda_hash_box hash_box_t;

constexpr uint64_t HASH_ROW_MIN = 64; // elements; shorter rows go one by one

// dyti_content_mix() of base/hash.h.
__device__ __forceinline__ uint64_t mix(uint64_t salt, uint64_t index,
                                        uint64_t bits)
{
    uint64_t x =
        (salt + index * 0x9e3779b97f4a7c15u) ^ (bits * 0xd6e8feb86659fd93u);

    x ^= x >> 32;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 29);
}

__device__ __forceinline__ uint64_t element(uint64_t address, uint32_t bytes)
{
    switch (bytes) {
    case 8:
        return dev_load(reinterpret_cast<const uint64_t *>(address));
    case 4:
        return dev_load(reinterpret_cast<const uint32_t *>(address));
    case 2:
        return dev_load(reinterpret_cast<const uint16_t *>(address));
    default:
        return dev_load(reinterpret_cast<const uint8_t *>(address));
    }
}

// One vector of elements of BYTES bytes.
template <int BYTES>
__device__ __forceinline__ uint64_t mix_vector(uint4 v, uint64_t salt,
                                               uint64_t index, uint64_t step)
{
    uint32_t word[4] = {v.x, v.y, v.z, v.w};
    uint64_t sum = 0;

#pragma unroll
    for (int i = 0; i < 16 / BYTES; i++) {
        uint64_t bits =
            BYTES == 8 ? word[i * 2 % 4] |
                             static_cast<uint64_t>(word[(i * 2 + 1) % 4]) << 32
            : BYTES == 4 ? word[i % 4]
                         : word[i / 2 % 4] >> 16 * (i % 2) & 0xffffu;

        sum += mix(salt, index + static_cast<uint64_t>(i) * step, bits);
    }
    return sum;
}

template <int BYTES>
__device__ __forceinline__ uint64_t hash_row(uint64_t address, uint64_t count,
                                             uint64_t salt, uint64_t index,
                                             uint64_t step)
{
    constexpr uint64_t N = 16 / BYTES;
    uint32_t lane = threadIdx.x % 32;
    uint64_t head = (16 - address % 16) % 16 / BYTES, sum = 0;
    uint64_t vectors = head < count ? (count - head) / N : 0;
    uint64_t tail = head + vectors * N;

    for (uint64_t v = lane; v < vectors; v += 32) {
        uint64_t at = head + v * N;

        sum += mix_vector<BYTES>(
            dev_load(reinterpret_cast<const uint4 *>(address + at * BYTES)),
            salt, index + at * step, step);
    }
    for (uint64_t i = lane; i < head && i < count; i += 32) {
        sum += mix(salt, index + i * step, element(address + i * BYTES, BYTES));
    }
    for (uint64_t i = tail + lane; i < count; i += 32) {
        sum += mix(salt, index + i * step, element(address + i * BYTES, BYTES));
    }
    return sum;
}

// Elements [lo, hi) of a box, one by one.
__device__ __forceinline__ uint64_t hash_elements(const hash_box_t *b,
                                                  uint64_t lo, uint64_t hi)
{
    uint64_t sum = 0;

    for (uint64_t e = lo + threadIdx.x % 32; e < hi; e += 32) {
        uint64_t rest = e, address = b->data, index = b->index;

#pragma unroll
        for (int d = 3; d >= 0; d--) {
            uint64_t at = rest;

            if (d > 0) {
                rest = divide(rest, b->size[d], &at);
            }
            address += static_cast<uint64_t>(b->stride[d]) * at;
            index += static_cast<uint64_t>(b->index_stride[d]) * at;
        }
        rest = element(address, b->bytes);
        if (b->dtype != b->as) {
            rest = convert(static_cast<uint32_t>(rest), b->dtype, b->as);
        }
        sum += mix(b->salt, index, rest);
    }
    return sum;
}

__device__ __forceinline__ uint64_t hash_rows(const hash_box_t *b, uint64_t lo,
                                              uint64_t hi)
{
    uint64_t sum = 0, step = static_cast<uint64_t>(b->index_stride[3]), col;
    uint64_t row = divide(lo, b->size[3], &col);

    for (uint64_t at = lo; at < hi; row++) {
        uint64_t rest = row, address = b->data, index = b->index;
        uint64_t count = b->size[3] - col;

#pragma unroll
        for (int d = 2; d >= 0; d--) {
            uint64_t i;

            rest = divide(rest, b->size[d], &i);
            address += static_cast<uint64_t>(b->stride[d]) * i;
            index += static_cast<uint64_t>(b->index_stride[d]) * i;
        }
        count = count < hi - at ? count : hi - at;
        address += col * b->bytes;
        index += col * step;
        sum += b->bytes == 8 ? hash_row<8>(address, count, b->salt, index, step)
               : b->bytes == 4
                   ? hash_row<4>(address, count, b->salt, index, step)
                   : hash_row<2>(address, count, b->salt, index, step);
        at += count;
        col = 0;
    }
    return sum;
}

// What a warp has of a list: the part `mine` of all elements.
__device__ __forceinline__ void hash_part(const hash_box_t *box,
                                          const uint64_t *first, uint32_t count,
                                          part mine, uint64_t *total)
{
    if (mine.lo == mine.hi) {
        return;
    }
    for (uint32_t i = box_at(first, count, mine.lo);
         i < count && first[i] < mine.hi; i++) {
        const hash_box_t *b = box + i;
        uint64_t lo = mine.lo > first[i] ? mine.lo - first[i] : 0;
        uint64_t hi =
            (mine.hi < first[i + 1] ? mine.hi : first[i + 1]) - first[i];
        uint64_t has = b->size[0] * b->size[1] * b->size[2] * b->size[3];
        bool rows = b->size[3] >= HASH_ROW_MIN && b->stride[3] == b->bytes &&
                    b->bytes > 1 && b->dtype == b->as;
        uint64_t sum;

        hi = hi < has ? hi : has;
        if (lo >= hi) {
            continue;
        }
        sum = rows ? hash_rows(b, lo, hi) : hash_elements(b, lo, hi);
        for (int by = 16; by > 0; by /= 2) {
            sum += __shfl_xor_sync(ALL, sum, by);
        }
        if (threadIdx.x % 32 == 0) {
            atomicAdd(reinterpret_cast<unsigned long long *>(total + b->word),
                      static_cast<unsigned long long>(sum));
        }
    }
}

} // namespace

#endif // DYTI_DEVICE_CUDA_HASH_LIST_CUH
