// The one place where kernels meet their compiler: nvcc, or a C++ compiler with
// the simulator of tests/gpusim in front.  Kernels launch with DYTI_LAUNCH,
// have shared memory by DYTI_SHARED, and reach global memory by dev_load() and
// dev_store(), which are plain accesses for nvcc and checked ones elsewhere.
#ifndef DYTI_DEVICE_CUDA_LAUNCH_CUH
#define DYTI_DEVICE_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__)

#define DYTI_LAUNCH_ALONE(kernel, grid, block, shared_bytes, stream, ...)      \
    kernel<<<(grid), (block), (shared_bytes),                                  \
             static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__)

#define DYTI_SHARED(type, name, count) __shared__ type name[count]
#define DYTI_SHARED_REST(type, name)                                           \
    extern __shared__ __align__(16) unsigned char dyti_shared_rest[];          \
    type *name = reinterpret_cast<type *>(dyti_shared_rest)

template <class T> __device__ __forceinline__ T dev_load(const T *ptr)
{
    return *ptr;
}

template <class T> __device__ __forceinline__ void dev_store(T *ptr, T value)
{
    *ptr = value;
}

#else

#define DYTI_LAUNCH_ALONE(kernel, grid, block, shared_bytes, stream, ...)      \
    (void)gpusim::launch(#kernel, reinterpret_cast<const void *>(&kernel),     \
                         (grid), (block), (shared_bytes),                      \
                         static_cast<cudaStream_t>(stream),                    \
                         [=] { kernel(__VA_ARGS__); })

#define DYTI_SHARED(type, name, how_many)                                      \
    static const char name##_key = 0;                                          \
    gpusim::shared_array<type> name(                                           \
        gpusim::shared_static(&name##_key, sizeof(type) * (how_many),          \
                              alignof(type)),                                  \
        (how_many))
#define DYTI_SHARED_REST(type, name)                                           \
    gpusim::shared_array<type> name = gpusim::shared_rest<type>()

template <class T>
T dev_load(const T *ptr, const char *file = __builtin_FILE(),
           int line = __builtin_LINE())
{
    gpusim::global(ptr, sizeof(T), alignof(T), gpusim::access::load, file,
                   line);
    return *ptr;
}

template <class T>
void dev_store(T *ptr, std::common_type_t<T> value,
               const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    gpusim::global(ptr, sizeof(T), alignof(T), gpusim::access::store, file,
                   line);
    *ptr = value;
}

#endif

// cudaError_t of the launch; what happens in the kernel comes later.  An error
// of before is not the launch's: of "not ready", which is the answer to a
// question, some versions of the runtime make the last error as well.
#define DYTI_LAUNCH(...)                                                       \
    ((void)cudaGetLastError(), DYTI_LAUNCH_ALONE(__VA_ARGS__),                 \
     cudaGetLastError())

// Have a kernel loaded.  Its first launch would do so otherwise, and wait for
// the device, on which work may wait for another rank that does the same.
static inline cudaError_t dev_load_kernel(const void *kernel)
{
    cudaFuncAttributes attributes;

    return cudaFuncGetAttributes(&attributes, kernel);
}

#endif // DYTI_DEVICE_CUDA_LAUNCH_CUH
