// Allocations of other processes, by handles of 64 bytes.
#include "sim.hpp"

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace gpusim;

constexpr uint64_t ALIGNMENT = 256; // of allocations

struct ipc_handle {
    int pid, hardware, data_fd, written_fd, alive_fd;
    uint64_t offset, bytes;
};
static_assert(sizeof(ipc_handle) <= CUDA_IPC_HANDLE_SIZE, "fits");

void gpusim::set_alive(uint64_t base, bool alive)
{
    auto at = offset_of(reinterpret_cast<void *>(base)) / ALIGNMENT;
    unsigned char value = alive;

    if (pwrite(sim.memory.alive_fd, &value, 1, static_cast<off_t>(at)) != 1) {
        perror("alive");
    }
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *ptr)
{
    guard hold(sim.lock);
    auto found = below(sim.live, reinterpret_cast<uint64_t>(ptr));
    ipc_handle ours;

    GPUSIM_CALL();
    if (found == sim.live.end() || found->second.kind != RANGE_MALLOC ||
        found->second.is_pooled ||
        found->first != reinterpret_cast<uint64_t>(ptr)) {
        return result(cudaErrorInvalidValue);
    }
    ours = {getpid(),
            hardware_of(found->second.device),
            sim.memory.data_fd,
            sim.memory.written_fd,
            sim.memory.alive_fd,
            offset_of(ptr),
            found->second.bytes};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &ours, sizeof(ours));
    return result(cudaSuccess);
}

static int open_theirs(int pid, int fd)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

static bool is_alive(const ipc_handle &theirs)
{
    int fd = open_theirs(theirs.pid, theirs.alive_fd);
    unsigned char value = 0;

    if (fd >= 0) {
        if (pread(fd, &value, 1,
                  static_cast<off_t>(theirs.offset / ALIGNMENT)) != 1) {
            value = 0;
        }
        close(fd);
    }
    return value != 0;
}

// Once for a device: whoever wants it twice counts.
static bool is_open_here(const ipc_handle &theirs)
{
    for (const auto &entry : sim.live) {
        const range &r = entry.second;

        if (r.kind == RANGE_IPC && r.owner == theirs.pid &&
            r.owner_offset == theirs.offset &&
            r.opened_for == current_device()) {
            return true;
        }
    }
    return false;
}

// What stands against it, before anything is mapped.
static cudaError_t check(const ipc_handle &theirs, unsigned flags)
{
    int here = current_device(), device = device_of_hardware(theirs.hardware);

    if (theirs.pid == getpid() || !is_alive(theirs) || is_open_here(theirs)) {
        return cudaErrorInvalidResourceHandle; // as on a device
    }
    if (device < 0) {
        return cudaErrorInvalidDevice;
    }
    if (device == here) {
        return cudaSuccess;
    }
    if ((flags & cudaIpcMemLazyEnablePeerAccess) == 0 ||
        refuses(here, device)) {
        return cudaErrorPeerAccessUnsupported;
    }
    sim.peers[here][device] = true;
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **ptr, cudaIpcMemHandle_t handle,
                                 unsigned flags)
{
    guard hold(sim.lock);
    ipc_handle theirs;
    cudaError_t error;
    range r;

    GPUSIM_CALL();
    memcpy(&theirs, &handle, sizeof(theirs));
    error = check(theirs, flags);
    if (error != cudaSuccess) {
        return result(error);
    }
    uint64_t from = theirs.offset / PAGE * PAGE;
    uint64_t bytes = up(theirs.offset + theirs.bytes - from, PAGE);
    int data = open_theirs(theirs.pid, theirs.data_fd);
    int written = open_theirs(theirs.pid, theirs.written_fd);
    unsigned char *at = take_addresses(bytes, PAGE);

    if (data < 0 || written < 0 || at == nullptr) {
        close(data);
        close(written);
        return result(cudaErrorInvalidResourceHandle);
    }
    forget(at, bytes);
    must(mmap(at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, data,
              static_cast<off_t>(from)),
         "ipc");
    must(mmap(sim.memory.written + offset_of(at), bytes, PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_FIXED, written, static_cast<off_t>(from)),
         "ipc");
    close(data);
    close(written);
    r.bytes = theirs.bytes;
    r.kind = RANGE_IPC;
    r.device = device_of_hardware(theirs.hardware);
    r.owner = theirs.pid;
    r.owner_offset = theirs.offset;
    r.opened_for = current_device();
    *ptr = at + (theirs.offset - from);
    sim.live[reinterpret_cast<uint64_t>(*ptr)] = r;
    return result(cudaSuccess);
}

cudaError_t cudaIpcCloseMemHandle(void *ptr)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    run_all();
    return result(release(ptr, true));
}
