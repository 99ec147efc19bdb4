// The boxes that a seed draws of a list of samples, one thread each: what
// dyti_sample_draw() of ops/sample.h does on a host.
#ifndef DYTI_DEVICE_CUDA_SAMPLE_LIST_CUH
#define DYTI_DEVICE_CUDA_SAMPLE_LIST_CUH

#include "device/cuda/box.h"
#include "device/cuda/warp.cuh"

namespace
{

typedef struct dyti_cuda_sample sample_t;

// dyti_mix64() of base/hash.h, and dyti_rng_u64(seed, key, 0, 0).
__device__ __forceinline__ uint64_t mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

__device__ __forceinline__ uint64_t random_of(uint64_t seed, uint64_t key)
{
    uint64_t x = mix64(seed + 0x9e3779b97f4a7c15u);

    x = mix64(x ^ mix64(key + 0x3c6ef372fe94f82bu));
    x = mix64(x ^ mix64(0xdaa66d2c7ddf743fu));
    return mix64(x ^ mix64(0x78dde6e5fd29f053u));
}

// How many of start, start + step, ... lie below `at`.
__device__ __forceinline__ uint64_t below(uint64_t at, uint64_t start,
                                          uint64_t step)
{
    uint64_t rest;

    return at <= start ? 0 : divide(at - start + step - 1, step, &rest);
}

__device__ __forceinline__ void draw(const sample_t *s, uint64_t seed,
                                     struct dyti_cuda_hash_box *out)
{
    uint64_t bits = random_of(seed, s->key);
    uint64_t data = s->box.data, index = s->box.index;

#pragma unroll 1
    for (int d = 0; d < DYTI_CUDA_DIMS; d++) {
        uint64_t step = s->step[d], lo = s->lo[d], start, first, end;
        int64_t stride = s->box.stride[d], place = s->box.index_stride[d];

        bits = divide(bits, s->starts[d], &start);
        first = below(lo, start, step);
        end = below(lo + s->box.size[d], start, step);
        end = end < s->count[d] ? end : s->count[d];
        start += first * step;
        data += (start - lo) * static_cast<uint64_t>(stride);
        index += start * static_cast<uint64_t>(place);
        dev_store(&out->size[d], first < end ? end - first : 0);
        dev_store(&out->stride[d], stride * static_cast<int64_t>(step));
        dev_store(&out->index_stride[d], place * static_cast<int64_t>(step));
    }
    dev_store(&out->data, data);
    dev_store(&out->index, index);
}

} // namespace

#endif // DYTI_DEVICE_CUDA_SAMPLE_LIST_CUH
