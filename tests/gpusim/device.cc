// Devices: which there are, whose turn it is on a thread, what they can do, how
// much memory is left, and who reaches whose.
#include "sim.hpp"

#include "include/cuda.h"

#include <cstdio>
#include <cstring>

namespace gpusim
{

limits limits_of(int arch)
{
    // Threads and grids are the same everywhere; shared memory that a block may
    // have without and with asking, in KiB.
    static const struct {
        int arch;
        size_t optin;
    } rows[] = {{70, 96},   {72, 96},  {75, 64},  {80, 163},  {86, 99},
                {87, 163},  {89, 99},  {90, 227}, {100, 227}, {103, 227},
                {110, 227}, {120, 99}, {121, 99}};
    limits l = {1024, 65535, 48u << 10, 96u << 10};

    for (const auto &row : rows) {
        if (row.arch == arch) {
            l.shared_optin = row.optin << 10;
        }
    }
    return l;
}

static thread_local int chosen = -1; // none: the runtime's calls take 0

int current_device()
{
    return chosen >= 0 && chosen < sim.machine.device_count ? chosen : 0;
}

bool has_room(int device, uint64_t bytes)
{
    sweep_held();
    return sim.held[device] + bytes <= sim.machine.memory_bytes;
}

static size_t room_of(int device)
{
    return has_room(device, 0) ? sim.machine.memory_bytes - sim.held[device]
                               : 0;
}

int hardware_of(int device)
{
    return sim.machine.hardware[device];
}

int device_of_hardware(int hardware)
{
    for (int i = 0; i < sim.machine.device_count; i++) {
        if (hardware_of(i) == hardware) {
            return i;
        }
    }
    return -1;
}

static bool is_device(int device)
{
    return device >= 0 && device < sim.machine.device_count;
}

} // namespace gpusim

using namespace gpusim;

// ---- the runtime's calls ---------------------------------------------------

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = sim.machine.driver_version;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

static cudaError_t device_state()
{
    return sim.machine.driver_version < 12000 ? cudaErrorInsufficientDriver
           : sim.machine.device_count == 0    ? cudaErrorNoDevice
                                              : cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    *count = device_state() == cudaSuccess ? sim.machine.device_count : 0;
    return result(device_state());
}

cudaError_t cudaSetDevice(int device)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    if (device_state() != cudaSuccess) {
        return result(device_state());
    }
    if (device < 0 || device >= sim.machine.device_count) {
        return result(cudaErrorInvalidDevice);
    }
    chosen = device;
    return result(cudaSuccess);
}

cudaError_t cudaGetDevice(int *device)
{
    guard hold(sim.lock);

    *device = current_device();
    return result(device_state());
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attr, int device)
{
    guard hold(sim.lock);
    limits l = limits_of(sim.machine.arch);

    GPUSIM_CALL();
    if (device < 0 || device >= sim.machine.device_count) {
        return result(cudaErrorInvalidDevice);
    }
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = static_cast<int>(l.threads);
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = static_cast<int>(l.shared);
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = static_cast<int>(l.shared_optin);
        break;
    case cudaDevAttrMaxGridDimX:
        *value = INT32_MAX;
        break;
    case cudaDevAttrMaxGridDimY:
        *value = static_cast<int>(l.grid_y);
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = 4;
        break;
    case cudaDevAttrMemoryPoolsSupported:
        *value = sim.machine.has_vmm; // devices have both or neither
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = static_cast<int>(l.shared_optin + 1024);
        break;
    case cudaDevAttrL2CacheSize:
        *value = 4 << 20;
        break;
    case cudaDevAttrConcurrentManagedAccess:
        *value = 1;
        break;
    case cudaDevAttrWarpSize:
        *value = 32;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = sim.machine.arch / 10;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = sim.machine.arch % 10;
        break;
    default:
        return result(cudaErrorInvalidValue);
    }
    return result(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    *total_bytes = sim.machine.memory_bytes;
    *free_bytes = room_of(current_device());
    return result(cudaSuccess);
}

namespace gpusim
{

bool refuses(int device, int peer)
{
    return (sim.machine.refuses[device] >> peer & 1u) != 0;
}

} // namespace gpusim

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    if (!is_device(device) || !is_device(peer)) {
        return result(cudaErrorInvalidDevice);
    }
    *can = device != peer && !refuses(device, peer);
    return result(cudaSuccess);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    if (!is_device(peer) || peer == current_device()) {
        return result(cudaErrorInvalidDevice);
    }
    if (refuses(current_device(), peer)) {
        return result(cudaErrorPeerAccessUnsupported);
    }
    if (sim.peers[current_device()][peer]) {
        return result(cudaErrorPeerAccessAlreadyEnabled);
    }
    sim.peers[current_device()][peer] = true;
    return result(cudaSuccess);
}

cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    guard hold(sim.lock);

    if (!is_device(peer) || !sim.peers[current_device()][peer]) {
        return result(cudaErrorPeerAccessNotEnabled);
    }
    sim.peers[current_device()][peer] = false;
    return result(cudaSuccess);
}

// ---- the driver's calls ----------------------------------------------------

CUresult cuInit(unsigned)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    return sim.machine.device_count == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = sim.machine.driver_version;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return is_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    memcpy(uuid->bytes, "simulated gpu  ", 16);
    if (!is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    uuid->bytes[15] = static_cast<char>(hardware_of(device));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice)
{
    snprintf(name, static_cast<size_t>(bytes), "simulated sm_%d",
             sim.machine.arch);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attr,
                              CUdevice device)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    if (!is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    switch (attr) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = sim.machine.arch / 10;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = sim.machine.arch % 10;
        break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
        *value = 1;
        break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        *value = sim.machine.has_vmm;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    *count = sim.machine.device_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    *bytes = sim.machine.memory_bytes;
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    *total_bytes = sim.machine.memory_bytes;
    *free_bytes = room_of(current_device());
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    return cudaDeviceCanAccessPeer(can, device, peer) == cudaSuccess
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_DEVICE;
}

// ---- contexts --------------------------------------------------------------

// There is one for each device, and a thread has the device's or none.
static CUcontext context_of(int device)
{
    return reinterpret_cast<CUcontext>(static_cast<uintptr_t>(device) + 1);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    if (!is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *context = context_of(device);
    sim.contexts++;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    guard hold(sim.lock);

    if (!is_device(device) || sim.contexts == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim.contexts--;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    guard hold(sim.lock);
    auto device = static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1;

    GPUSIM_CALL();
    if (context != nullptr && !is_device(device)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    chosen = context == nullptr ? -1 : device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    guard hold(sim.lock);

    *context = chosen < 0 ? nullptr : context_of(current_device());
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    guard hold(sim.lock);

    *device = current_device();
    return chosen < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
