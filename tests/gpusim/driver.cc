// The driver's calls for what the runtime has calls for as well, and what it
// says of a pointer.
#include "sim.hpp"

#include "include/cuda.h"

#include <cstring>

namespace gpusim
{

static CUresult driver(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return CUDA_SUCCESS;
    case cudaErrorInvalidValue:
        return CUDA_ERROR_INVALID_VALUE;
    case cudaErrorMemoryAllocation:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case cudaErrorInvalidResourceHandle:
        return CUDA_ERROR_INVALID_HANDLE;
    case cudaErrorIllegalAddress:
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    case cudaErrorInvalidDevice:
        return CUDA_ERROR_INVALID_DEVICE;
    case cudaErrorPeerAccessUnsupported:
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    default:
        return CUDA_ERROR_UNKNOWN;
    }
}

static void *pointer(CUdeviceptr ptr)
{
    return reinterpret_cast<void *>(ptr);
}

} // namespace gpusim

using namespace gpusim;

// ---- allocations -----------------------------------------------------------

CUresult cuMemAlloc(CUdeviceptr *ptr, size_t bytes)
{
    guard hold(sim.lock);
    void *at = nullptr;
    cudaError_t error;

    GPUSIM_CALL();
    if (bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    error = cudaMalloc(&at, bytes);
    *ptr = reinterpret_cast<uint64_t>(at);
    return driver(error);
}

CUresult cuMemFree(CUdeviceptr ptr)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    return driver(cudaFree(pointer(ptr)));
}

CUresult cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    return driver(cudaHostAlloc(ptr, bytes, flags));
}

CUresult cuMemFreeHost(void *ptr)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    return driver(cudaFreeHost(ptr));
}

CUresult cuMemHostRegister(void *ptr, size_t bytes, unsigned)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    if (ptr == nullptr || bytes == 0 || in_arena(ptr)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim.registered[reinterpret_cast<uint64_t>(ptr)] = bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *ptr)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    run_all();
    return sim.registered.erase(reinterpret_cast<uint64_t>(ptr)) == 1
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

// ---- handles of other processes --------------------------------------------

static_assert(sizeof(CUipcMemHandle) == sizeof(cudaIpcMemHandle_t), "one");

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
    guard hold(sim.lock);
    cudaIpcMemHandle_t its;
    cudaError_t error;

    GPUSIM_CALL();
    error = cudaIpcGetMemHandle(&its, pointer(ptr));
    if (error == cudaSuccess) {
        memcpy(handle, &its, sizeof(its));
    }
    return driver(error);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *ptr, CUipcMemHandle handle,
                            unsigned flags)
{
    guard hold(sim.lock);
    cudaIpcMemHandle_t its;
    void *at = nullptr;
    cudaError_t error;

    GPUSIM_CALL();
    memcpy(&its, &handle, sizeof(its));
    error = cudaIpcOpenMemHandle(&at, its, flags);
    *ptr = reinterpret_cast<uint64_t>(at);
    return driver(error);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr ptr)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    return driver(cudaIpcCloseMemHandle(pointer(ptr)));
}

// ---- streams ---------------------------------------------------------------

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    return driver(cudaStreamCreateWithFlags(stream, flags));
}

CUresult cuStreamSynchronize(CUstream stream)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    return driver(cudaStreamSynchronize(stream));
}

CUresult cuStreamDestroy(CUstream stream)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    return driver(cudaStreamDestroy(stream));
}

CUresult cuMemsetD8Async(CUdeviceptr ptr, unsigned char value, size_t bytes,
                         CUstream stream)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    return driver(cudaMemsetAsync(pointer(ptr), value, bytes, stream));
}

// ---- pointers --------------------------------------------------------------

namespace
{

struct known {
    uint64_t base = 0;
    size_t bytes = 0;
    CUmemorytype type = static_cast<CUmemorytype>(0);
    int device = -2; // as the driver says of what it does not know
    unsigned is_managed = 0, has_ipc = 0, is_mapped = 0;
    CUmemoryPool pool = nullptr;
};

bool lies_in(const std::map<uint64_t, uint64_t> &ranges, uint64_t address,
             known *out)
{
    auto found = below(ranges, address);

    if (found == ranges.end() || address >= found->first + found->second) {
        return false;
    }
    out->base = found->first;
    out->bytes = found->second;
    out->type = CU_MEMORYTYPE_HOST;
    out->device = 0;
    return true;
}

// As a device tells of them: all of what was reserved, whatever lies there.
bool reserved_of(uint64_t address, known *out)
{
    auto found = below(sim.reserved, address);

    if (found == sim.reserved.end() ||
        address >= found->first + found->second.bytes) {
        return false;
    }
    out->base = found->first;
    out->bytes = found->second.bytes;
    out->type = CU_MEMORYTYPE_DEVICE;
    return true;
}

known known_of(uint64_t address)
{
    auto found = below(sim.live, address);
    known k;

    bool is_reserved = reserved_of(address, &k);

    if (lies_in(sim.pinned, address, &k) ||
        lies_in(sim.registered, address, &k) || found == sim.live.end() ||
        address >= found->first + found->second.bytes) {
        return k;
    }
    if (!is_reserved) {
        k.base = found->first;
        k.bytes = found->second.bytes;
    }
    k.is_mapped = 1;
    k.type = CU_MEMORYTYPE_DEVICE;
    k.device = found->second.device;
    k.is_managed = found->second.kind == RANGE_MANAGED;
    k.has_ipc = found->second.kind == RANGE_MALLOC && !found->second.is_pooled;
    if (found->second.is_pooled) {
        k.pool = reinterpret_cast<CUmemoryPool>(&sim);
    }
    return k;
}

template <class T> void give(void *to, T value)
{
    memcpy(to, &value, sizeof(value));
}

} // namespace

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attribute,
                                void **data, CUdeviceptr ptr)
{
    guard hold(sim.lock);
    known k;

    GPUSIM_CALL();
    k = known_of(ptr);
    for (unsigned i = 0; i < count; i++) {
        switch (attribute[i]) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            give(data[i], k.type);
            break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            give(data[i], k.is_managed);
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            give(data[i], k.device);
            break;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            give(data[i], k.has_ipc);
            break;
        case CU_POINTER_ATTRIBUTE_MAPPED:
            give(data[i], k.is_mapped);
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            give(data[i], k.base);
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            give(data[i], k.bytes);
            break;
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            give(data[i], k.pool);
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr)
{
    guard hold(sim.lock);
    auto found = below(sim.live, ptr);

    GPUSIM_CALL();
    if (found == sim.live.end() || ptr >= found->first + found->second.bytes ||
        found->second.device != current_device()) {
        return CUDA_ERROR_NOT_FOUND;
    }
    *base = found->first;
    *bytes = found->second.bytes;
    return CUDA_SUCCESS;
}
