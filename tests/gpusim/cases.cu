// Kernels with exactly one fault each, and without it.
#include "gpusim/cases.h"

#include "device/cuda/launch.cuh"

__global__ static void bounds_checked(uint32_t *data, uint32_t count, bool over)
{
    if (threadIdx.x < count) {
        dev_store(data + threadIdx.x + (over ? 1 : 0), threadIdx.x);
    }
}

int case_bounds_checked(uint32_t *data, uint32_t count, bool wrong)
{
    return DYTI_LAUNCH(bounds_checked, 1, 64, 0, nullptr, data, count, wrong);
}

// Far enough behind that a page nobody may touch is there.
__global__ static void bounds_plain(uint32_t *data, uint32_t count, bool over)
{
    if (threadIdx.x < count) {
        data[threadIdx.x + (over ? 4096u : 0u)] = threadIdx.x;
    }
}

int case_bounds_plain(uint32_t *data, uint32_t count, bool wrong)
{
    return DYTI_LAUNCH(bounds_plain, 1, 64, 0, nullptr, data, count, wrong);
}

__global__ static void store_behind(unsigned char *data, uint32_t at)
{
    data[at] = 1;
}

int case_store_behind_plain(unsigned char *data, uint32_t bytes, bool wrong)
{
    return DYTI_LAUNCH(store_behind, 1, 1, 0, nullptr, data,
                       wrong ? bytes : bytes - 1);
}

__global__ static void misaligned(uint32_t *data, uint32_t at)
{
    dev_store(reinterpret_cast<uint4 *>(data + at), make_uint4(1, 2, 3, 4));
}

int case_misaligned(uint32_t *data, bool wrong)
{
    return DYTI_LAUNCH(misaligned, 1, 1, 0, nullptr, data, wrong ? 1u : 4u);
}

__global__ static void read_one(const uint32_t *data, uint32_t *out)
{
    dev_store(out, dev_load(data));
}

int case_read(const uint32_t *data, uint32_t *out, void *stream)
{
    return DYTI_LAUNCH(read_one, 1, 1, 0, stream, data, out);
}

// ---- shared memory -------------------------------------------------------

__global__ static void shared_race(uint32_t *out, bool with_barrier)
{
    DYTI_SHARED(uint32_t, word, 64);

    word[threadIdx.x] = threadIdx.x;
    if (with_barrier) {
        __syncthreads();
    }
    dev_store(out + threadIdx.x, word[63 - threadIdx.x] + 0u);
}

int case_shared_race(uint32_t *out, bool wrong)
{
    return DYTI_LAUNCH(shared_race, 1, 64, 0, nullptr, out, !wrong);
}

// Lanes of one warp do not run in step either.
__global__ static void shared_race_warp(uint32_t *out, bool with_sync)
{
    DYTI_SHARED(uint32_t, word, 32);

    word[threadIdx.x] = threadIdx.x;
    if (with_sync) {
        __syncwarp();
    }
    dev_store(out + threadIdx.x, word[31 - threadIdx.x] + 0u);
}

int case_shared_race_warp(uint32_t *out, bool wrong)
{
    return DYTI_LAUNCH(shared_race_warp, 1, 32, 0, nullptr, out, !wrong);
}

__global__ static void shared_bounds(uint32_t *out, uint32_t at)
{
    DYTI_SHARED(uint32_t, word, 8);
    DYTI_SHARED(uint32_t, other, 8);

    other[0] = 1;
    word[at] = 5;
    dev_store(out, word[at] + other[0]);
}

int case_shared_bounds(uint32_t *out, bool wrong)
{
    return DYTI_LAUNCH(shared_bounds, 1, 1, 0, nullptr, out, wrong ? 8u : 7u);
}

__global__ static void shared_uninitialised(uint32_t *out, bool set)
{
    DYTI_SHARED(uint32_t, word, 8);

    if (set) {
        word[3] = 9;
    }
    dev_store(out, word[3] + 0u);
}

int case_shared_uninitialised(uint32_t *out, bool wrong)
{
    return DYTI_LAUNCH(shared_uninitialised, 1, 1, 0, nullptr, out, !wrong);
}

__global__ static void shared_rest(uint32_t *out, uint32_t use)
{
    DYTI_SHARED_REST(uint32_t, word);

    for (uint32_t i = 0; i < use; i++) {
        word[i] = i;
    }
    dev_store(out, word[use - 1] + 0u);
}

int case_shared_rest(uint32_t *out, uint32_t bytes, uint32_t use)
{
    return DYTI_LAUNCH(shared_rest, 1, 1, bytes, nullptr, out, use);
}

__global__ static void shared_static_large(uint32_t last)
{
    if (last > 48u * 1024u - 1u) {
        DYTI_SHARED(unsigned char, bytes, 48 * 1024 + 16);

        bytes[last] = 1;
        bytes[0] = bytes[last];
    } else {
        DYTI_SHARED(unsigned char, bytes, 48 * 1024);

        bytes[last] = 1;
        bytes[0] = bytes[last];
    }
}

int case_shared_static_large(bool wrong)
{
    return DYTI_LAUNCH(shared_static_large, 1, 1, 0, nullptr,
                       wrong ? 48u * 1024u : 1u);
}

// ---- meeting ---------------------------------------------------------------

__global__ static void barrier_left_out(uint32_t who)
{
    if (threadIdx.x == who) {
        return;
    }
    __syncthreads();
}

int case_barrier_left_out(bool wrong)
{
    return DYTI_LAUNCH(barrier_left_out, 2, 96, 0, nullptr, wrong ? 40u : 96u);
}

__global__ static void barrier_two_places(uint32_t who)
{
    if (threadIdx.x < who) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}

int case_barrier_two_places(bool wrong)
{
    return DYTI_LAUNCH(barrier_two_places, 1, 64, 0, nullptr, wrong ? 7u : 64u);
}

__global__ static void warp_left_out(uint32_t *out, uint32_t who)
{
    if (threadIdx.x != who) {
        dev_store(out + threadIdx.x,
                  __shfl_xor_sync(0xffffffffu, threadIdx.x, 1));
    }
}

int case_warp_left_out(uint32_t *out, bool wrong)
{
    return DYTI_LAUNCH(warp_left_out, 1, 32, 0, nullptr, out, wrong ? 5u : 32u);
}

__global__ static void warp_reads_absent(uint32_t *out, int from)
{
    if (threadIdx.x < 16) {
        dev_store(out + threadIdx.x, __shfl_sync(0xffffu, threadIdx.x, from));
    }
}

int case_warp_reads_absent(uint32_t *out, bool wrong)
{
    return DYTI_LAUNCH(warp_reads_absent, 1, 32, 0, nullptr, out,
                       wrong ? 16 : 15);
}

// ---- launches and streams --------------------------------------------------

__global__ static void nothing()
{
}

int case_launch(uint32_t grid, uint32_t grid_y, uint32_t threads,
                uint32_t shared_bytes)
{
    return DYTI_LAUNCH(nothing, dim3(grid, grid_y), threads, shared_bytes,
                       nullptr);
}

__global__ static void write_all(uint32_t *data, uint32_t count, uint32_t value)
{
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
        dev_store(data + i, value + i);
    }
}

int case_write(uint32_t *data, uint32_t count, uint32_t value, void *stream)
{
    return DYTI_LAUNCH(write_all, 1, 32, 0, stream, data, count, value);
}

__global__ static void add_one(uint32_t *data, uint32_t count)
{
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
        dev_store(data + i, dev_load(data + i) + 1);
    }
}

int case_add_one(uint32_t *data, uint32_t count, void *stream)
{
    return DYTI_LAUNCH(add_one, 1, 32, 0, stream, data, count);
}

// ---- the model -------------------------------------------------------------

__global__ static void block_sum(const uint32_t *data, uint32_t count,
                                 uint32_t *out)
{
    DYTI_SHARED(uint32_t, part, 256);
    uint32_t sum = 0;

    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += gridDim.x * blockDim.x) {
        sum += dev_load(data + i);
    }
    part[threadIdx.x] = sum;
    for (uint32_t half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            part[threadIdx.x] += part[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        atomicAdd(out, part[0] + 0u);
    }
}

int case_block_sum(const uint32_t *data, uint32_t count, uint32_t *out)
{
    return DYTI_LAUNCH(block_sum, 7, 256, 0, nullptr, data, count, out);
}

__global__ static void warp_calls(uint32_t *out)
{
    uint32_t lane = threadIdx.x % 32, *mine = out + threadIdx.x * 6;
    uint64_t wide = 0x100000000ull * lane + 7;

    dev_store(mine + 0, __shfl_sync(0xffffffffu, lane * 3, 9));
    dev_store(mine + 1, __shfl_up_sync(0xffffffffu, lane, 4));
    dev_store(mine + 2, __shfl_down_sync(0xffffffffu, lane, 4));
    dev_store(mine + 3, __ballot_sync(0xffffffffu, lane % 3 == 0));
    dev_store(mine + 4, static_cast<uint32_t>(
                            __shfl_xor_sync(0xffffffffu, wide, 31) >> 32));
    dev_store(mine + 5,
              static_cast<uint32_t>(__any_sync(0xffffffffu, lane == 31) * 2 +
                                    __all_sync(0xffffffffu, lane < 31)));
}

int case_warp_calls(uint32_t *out)
{
    return DYTI_LAUNCH(warp_calls, 1, 64, 0, nullptr, out);
}

__global__ static void count_all(unsigned long long *out)
{
    DYTI_SHARED(uint32_t, here, 1);

    if (threadIdx.x == 0) {
        here[0] = 0;
    }
    __syncthreads();
    atomicAdd(&here[0], 1u);
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(out, static_cast<unsigned long long>(here[0] + 0u));
    }
}

int case_count_all(unsigned long long *out, uint32_t grid, uint32_t threads)
{
    return DYTI_LAUNCH(count_all, grid, threads, 0, nullptr, out);
}

// out[0]: the next place; then the threads as they came.
__global__ static void order(uint32_t *out)
{
    dev_store(out + 1 + atomicAdd(out, 1u), threadIdx.x);
}

int case_order(uint32_t *out, uint32_t threads)
{
    return DYTI_LAUNCH(order, 1, threads, 0, nullptr, out);
}

__global__ static void indices(uint32_t *out)
{
    uint32_t thread = threadIdx.x + blockDim.x * threadIdx.y +
                      blockDim.x * blockDim.y * threadIdx.z;
    uint32_t block = blockIdx.x + gridDim.x * blockIdx.y +
                     gridDim.x * gridDim.y * blockIdx.z;
    uint32_t size = blockDim.x * blockDim.y * blockDim.z;

    dev_store(out + block * size + thread, block * 1000 + thread);
}

int case_indices(uint32_t *out)
{
    return DYTI_LAUNCH(indices, dim3(2, 3, 2), dim3(4, 3, 5), 0, nullptr, out);
}

// Block 0 waits for what block 1 writes: both must be there at a time.
__global__ static void flag_of_another(volatile uint32_t *flag, uint32_t *out)
{
    if (blockIdx.x == 1) {
        *flag = 1;
        return;
    }
    while (*flag == 0) {
        __nanosleep(100);
    }
    dev_store(out, 77u);
}

int case_flag(volatile uint32_t *flag, uint32_t *out)
{
    return DYTI_LAUNCH(flag_of_another, 2, 1, 0, nullptr, flag, out);
}

__global__ static void copy_vectors(const uint32_t *src, uint32_t *dst,
                                    uint32_t vectors, uint32_t apart)
{
    for (uint32_t i = threadIdx.x; i < vectors; i += blockDim.x) {
        dev_store(reinterpret_cast<uint4 *>(dst) + i * apart,
                  dev_load(reinterpret_cast<const uint4 *>(src) + i));
    }
}

int case_copy_vectors(const uint32_t *src, uint32_t *dst, uint32_t vectors,
                      uint32_t apart)
{
    return DYTI_LAUNCH(copy_vectors, 1, 64, 0, nullptr, src, dst, vectors,
                       apart);
}
