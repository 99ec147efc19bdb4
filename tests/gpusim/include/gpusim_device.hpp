// The device language for a C++ compiler: threadIdx and friends, barriers,
// exchanges inside a warp, atomics, shared memory, launches.  Only what the
// project's kernels use; what is missing does not compile.
#ifndef DYT_GPUSIM_DEVICE_HPP
#define DYT_GPUSIM_DEVICE_HPP

#include "cuda_runtime_api.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1)
        : x(nx), y(ny), z(nz)
    {
    }
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}

// Of the thread that runs now.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace gpusim
{

enum class access { load, store, atomic };
enum class meeting { sync, shuffle, vote };

// An access of the running thread to global memory.
void global(const void *ptr, size_t bytes, size_t alignment, access how,
            const char *file, int line);
// All threads of the block.
void barrier(const char *file, int line);
// The lanes of `mask`, each with a value; what lane l brought is at [l].
const uint64_t *exchange(unsigned mask, meeting what, uint64_t value,
                         const char *file, int line);
unsigned lane();
void lane_must_take_part(unsigned lane_of, unsigned mask, const char *file,
                         int line);
void yield();

// Shared memory of the running block: the offset of a static array (one per
// key) or of the dynamic part.
size_t shared_static(const void *key, size_t bytes, size_t alignment);
size_t shared_dynamic(size_t *out_bytes);
unsigned char *shared_bytes(size_t offset, size_t bytes, size_t alignment,
                            access how);

cudaError_t launch(const char *name, const void *function, dim3 grid,
                   dim3 block, size_t shared_bytes, cudaStream_t stream,
                   std::function<void()> body);

// ---- shared memory -----------------------------------------------------

template <class T> struct shared_address {
    size_t offset;
};

// One element: reading and writing it is seen.
template <class T> class shared_element
{
  public:
    explicit shared_element(size_t at) : offset(at)
    {
    }
    operator T() const
    {
        T value;

        memcpy(&value,
               shared_bytes(offset, sizeof(T), alignof(T), access::load),
               sizeof(T));
        return value;
    }
    shared_element &operator=(T value)
    {
        memcpy(shared_bytes(offset, sizeof(T), alignof(T), access::store),
               &value, sizeof(T));
        return *this;
    }
    shared_element &operator=(const shared_element &other)
    {
        return *this = static_cast<T>(other);
    }
    shared_element(const shared_element &) = default;
    shared_element &operator+=(T value)
    {
        return *this = static_cast<T>(static_cast<T>(*this) + value);
    }
    shared_address<T> operator&() const
    {
        return {offset};
    }

  private:
    size_t offset;
};

// An array of the block.  Indices outside are seen as well.
template <class T> class shared_array
{
  public:
    shared_array(size_t at, size_t how_many) : offset(at), count(how_many)
    {
    }
    template <class I> shared_element<T> operator[](I index) const
    {
        // A wrong index ends outside of all arrays.
        size_t i = static_cast<size_t>(index);

        return shared_element<T>(i < count ? offset + i * sizeof(T)
                                           : SIZE_MAX / 2);
    }

  private:
    size_t offset, count;
};

template <class T> shared_array<T> shared_rest()
{
    size_t bytes = 0, at = shared_dynamic(&bytes);

    return {at, bytes / sizeof(T)};
}

} // namespace gpusim

#define GPUSIM_HERE                                                            \
    const char *file = __builtin_FILE(), int line = __builtin_LINE()

// ---- meeting ---------------------------------------------------------------

inline void __syncthreads(GPUSIM_HERE)
{
    gpusim::barrier(file, line);
}

inline void __syncwarp(unsigned mask = 0xffffffffu, GPUSIM_HERE)
{
    gpusim::exchange(mask, gpusim::meeting::sync, 0, file, line);
}

inline void __nanosleep(unsigned)
{
    gpusim::yield();
}

inline void __threadfence()
{
}
inline void __threadfence_system()
{
}

namespace gpusim
{

template <class T>
T shuffle(unsigned mask, T value, unsigned from, const char *file, int line)
{
    uint64_t bits = 0;
    T result;

    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "as on a device");
    memcpy(&bits, &value, sizeof(T));
    const uint64_t *all = exchange(mask, meeting::shuffle, bits, file, line);

    lane_must_take_part(from, mask, file, line);
    memcpy(&result, &all[from], sizeof(T));
    return result;
}

} // namespace gpusim

template <class T> T __shfl_sync(unsigned mask, T value, int from, GPUSIM_HERE)
{
    return gpusim::shuffle(mask, value, static_cast<unsigned>(from) % 32u, file,
                           line);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, GPUSIM_HERE)
{
    return gpusim::shuffle(
        mask, value, gpusim::lane() ^ static_cast<unsigned>(bits), file, line);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, GPUSIM_HERE)
{
    unsigned lane = gpusim::lane();

    return gpusim::shuffle(mask, value, lane < by ? lane : lane - by, file,
                           line);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, GPUSIM_HERE)
{
    unsigned lane = gpusim::lane();

    return gpusim::shuffle(mask, value, lane + by > 31 ? lane : lane + by, file,
                           line);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, GPUSIM_HERE)
{
    const uint64_t *all = gpusim::exchange(mask, gpusim::meeting::vote,
                                           predicate != 0, file, line);
    unsigned votes = 0;

    for (unsigned l = 0; l < 32; l++) {
        if ((mask >> l & 1u) != 0 && all[l] != 0) {
            votes |= 1u << l;
        }
    }
    return votes;
}

inline int __any_sync(unsigned mask, int predicate, GPUSIM_HERE)
{
    return __ballot_sync(mask, predicate, file, line) != 0;
}

inline int __all_sync(unsigned mask, int predicate, GPUSIM_HERE)
{
    return __ballot_sync(mask, predicate, file, line) == mask;
}

inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}
inline int __clz(int bits)
{
    return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits));
}
inline int __ffs(int bits)
{
    return __builtin_ffs(bits);
}

// ---- atomics ---------------------------------------------------------------

namespace gpusim
{

// Fibers change only where they meet: what is between is atomic.
template <class T, class F>
T atomic(T *at, F change, const char *file, int line)
{
    T old;

    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "as on a device");
    global(at, sizeof(T), sizeof(T), access::atomic, file, line);
    old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(at, &old, change(old), false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return old;
}

template <class T, class F> T atomic(shared_address<T> at, F change)
{
    T old, changed;
    unsigned char *p =
        shared_bytes(at.offset, sizeof(T), sizeof(T), access::atomic);

    memcpy(&old, p, sizeof(T));
    changed = change(old);
    memcpy(p, &changed, sizeof(T));
    return old;
}

} // namespace gpusim

template <class T> T atomicAdd(T *at, std::common_type_t<T> value, GPUSIM_HERE)
{
    return gpusim::atomic(
        at, [=](T old) { return static_cast<T>(old + value); }, file, line);
}
template <class T>
T atomicAdd(gpusim::shared_address<T> at, std::common_type_t<T> value)
{
    return gpusim::atomic(at,
                          [=](T old) { return static_cast<T>(old + value); });
}
template <class T> T atomicMax(T *at, std::common_type_t<T> value, GPUSIM_HERE)
{
    return gpusim::atomic(
        at, [=](T old) { return old > value ? old : value; }, file, line);
}
template <class T> T atomicExch(T *at, std::common_type_t<T> value, GPUSIM_HERE)
{
    return gpusim::atomic(
        at, [=](T) { return value; }, file, line);
}
template <class T>
T atomicCAS(T *at, std::common_type_t<T> want, std::common_type_t<T> value,
            GPUSIM_HERE)
{
    return gpusim::atomic(
        at, [=](T old) { return old == want ? value : old; }, file, line);
}

#endif // DYT_GPUSIM_DEVICE_HPP
