// Allocations of other processes, by handles of 64 bytes.
#include "sim.hpp"

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace gpusim;

struct ipc_handle {
    int pid, data_fd, written_fd;
    uint64_t offset, bytes;
};
static_assert(sizeof(ipc_handle) <= CUDA_IPC_HANDLE_SIZE, "fits");

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
    ours = {getpid(), sim.memory.data_fd, sim.memory.written_fd, offset_of(ptr),
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

cudaError_t cudaIpcOpenMemHandle(void **ptr, cudaIpcMemHandle_t handle,
                                 unsigned)
{
    guard hold(sim.lock);
    ipc_handle theirs;
    range r;

    GPUSIM_CALL();
    memcpy(&theirs, &handle, sizeof(theirs));
    if (theirs.pid == getpid()) {
        return result(cudaErrorInvalidResourceHandle); // as on a device
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
