// Allocations: an allocation ends where its last page ends, and pages that
// nobody may touch follow.  What stands beside it in its pages is looked at
// when a kernel that had them has ended.
#include "sim.hpp"

#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gpusim
{

constexpr unsigned char SLACK = 0xA5;

bool check_slack(uint64_t base, const range &r)
{
#ifndef WITH_ASAN
    const unsigned char *from = pages_of(base);
    const auto *data = reinterpret_cast<const unsigned char *>(base);
    const unsigned char *end = from + pages_bytes(base, r.bytes);

    if ((r.kind != RANGE_MALLOC && r.kind != RANGE_MANAGED) || !r.is_open) {
        return true;
    }
    for (const unsigned char *p = from; p < end; p++) {
        if (p == data) {
            p += r.bytes;
            if (p >= end) {
                break;
            }
        }
        if (*p != SLACK) {
            note(GPUSIM_OUT_OF_BOUNDS,
                 "somebody wrote byte %lld of an allocation of %llu bytes",
                 static_cast<long long>(p - data),
                 static_cast<unsigned long long>(r.bytes));
            return false;
        }
    }
#else
    (void)base;
    (void)r;
#endif
    return true;
}

static cudaError_t allocate(void **ptr, uint64_t bytes, int kind)
{
    uint64_t held = up(up(bytes, 256), PAGE);
    unsigned char *pages;

    if (bytes == 0) {
        *ptr = nullptr;
        return cudaSuccess;
    }
    if (!has_room(current_device(), held) ||
        (pages = take_addresses(held, PAGE)) == nullptr) {
        return cudaErrorMemoryAllocation;
    }
    mprotect(pages, held, PROT_READ | PROT_WRITE);
    poison(pages, held, false);
    memset(pages, SLACK, held);
    forget(pages, held);
    *ptr = pages + held - up(bytes, 256);
    poison(pages, held - up(bytes, 256), true);
    poison(static_cast<unsigned char *>(*ptr) + bytes, up(bytes, 256) - bytes,
           true);
    range r;

    r.bytes = bytes;
    r.kind = kind;
    r.device = current_device();
    r.is_open = kind == RANGE_MANAGED;
    if (!r.is_open) {
        mprotect(pages, held, PROT_NONE);
    }
    sim.live[reinterpret_cast<uint64_t>(*ptr)] = r;
    set_alive(reinterpret_cast<uint64_t>(*ptr), true);
    watch_signals();
    sim.held[r.device] += held;
    return cudaSuccess;
}

static void give_back(uint64_t base, range r)
{
    unsigned char *pages = pages_of(base);
    uint64_t bytes = pages_bytes(base, r.bytes);
    auto at = static_cast<off_t>(offset_of(pages));

    open_pages(base, r);
    check_slack(base, r);
    poison(pages, bytes, false);
    if (r.kind != RANGE_IPC) {
        fallocate(sim.memory.data_fd,
                  FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at,
                  static_cast<off_t>(bytes));
        sim.held[r.device] -= bytes;
        set_alive(base, false);
    }
    mmap(pages, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
         sim.memory.data_fd, at);
    mmap(sim.memory.written + at, bytes, PROT_READ | PROT_WRITE,
         MAP_SHARED | MAP_NORESERVE | MAP_FIXED, sim.memory.written_fd, at);
    forget(pages, bytes);
    r.is_open = false;
    sim.dead[base] = r;
}

void close_all_memory()
{
    for (const auto &entry : sim.live) {
        if (entry.second.kind != RANGE_MAPPED) {
            give_back(entry.first, entry.second);
        }
    }
    for (const auto &entry : sim.pinned) {
        munmap(reinterpret_cast<void *>(entry.first), up(entry.second, PAGE));
    }
    close_virtual();
    sim.live.clear();
    sim.dead.clear();
    sim.pinned.clear();
    sim.registered.clear();
}

uint64_t leaked_memory()
{
    uint64_t count = 0;

    for (const auto &entry : sim.live) {
        if (entry.second.kind != RANGE_MAPPED) {
            note(GPUSIM_LEAK, "%llu bytes of device memory",
                 static_cast<unsigned long long>(entry.second.bytes));
            count++;
        }
    }
    for (const auto &entry : sim.pinned) {
        note(GPUSIM_LEAK, "%llu bytes of pinned memory",
             static_cast<unsigned long long>(entry.second));
        count++;
    }
    for (const auto &entry : sim.registered) {
        note(GPUSIM_LEAK, "%llu bytes of registered memory",
             static_cast<unsigned long long>(entry.second));
        count++;
    }
    return count + leaked_virtual();
}

cudaError_t release(void *ptr, bool is_ipc)
{
    auto found = sim.live.find(reinterpret_cast<uint64_t>(ptr));

    if (ptr == nullptr) {
        return cudaSuccess;
    }
    if (found == sim.live.end() || found->second.kind == RANGE_MAPPED ||
        (found->second.kind == RANGE_IPC) != is_ipc) {
        note(GPUSIM_FREED, "%p is given back, and is no allocation", ptr);
        return cudaErrorInvalidValue;
    }
    give_back(found->first, found->second);
    sim.live.erase(found);
    return cudaSuccess;
}

} // namespace gpusim

// ---- the calls -------------------------------------------------------------

using namespace gpusim;

cudaError_t cudaMalloc(void **ptr, size_t bytes)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    return result(sim.sticky != cudaSuccess
                      ? sim.sticky
                      : allocate(ptr, bytes, RANGE_MALLOC));
}

// As on a device, it waits for everything.
cudaError_t cudaFree(void *ptr)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    run_all();
    return result(release(ptr, false));
}

cudaError_t cudaMallocAsync(void **ptr, size_t bytes, cudaStream_t stream)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    if (stream_of(stream) == nullptr) {
        return result(cudaErrorInvalidResourceHandle);
    }
    cudaError_t error = allocate(ptr, bytes, RANGE_MALLOC);

    if (error == cudaSuccess && *ptr != nullptr) {
        sim.live[reinterpret_cast<uint64_t>(*ptr)].is_pooled = true;
    }
    return result(error);
}

cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    if (stream_of(stream) == nullptr) {
        return result(cudaErrorInvalidResourceHandle);
    }
    enqueue(stream, "free", [=] { release(ptr, false); });
    return result(cudaSuccess);
}

cudaError_t cudaMallocManaged(void **ptr, size_t bytes, unsigned)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    return result(allocate(ptr, bytes, RANGE_MANAGED));
}

cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned)
{
    guard hold(sim.lock);
    void *at;

    GPUSIM_CALL();
    at = mmap(nullptr, up(bytes, PAGE), PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || bytes == 0) {
        return result(cudaErrorMemoryAllocation);
    }
    sim.pinned[reinterpret_cast<uint64_t>(at)] = bytes;
    *ptr = at;
    return result(cudaSuccess);
}

cudaError_t cudaFreeHost(void *ptr)
{
    guard hold(sim.lock);
    auto found = sim.pinned.find(reinterpret_cast<uint64_t>(ptr));

    GPUSIM_CALL();
    run_all();
    if (found == sim.pinned.end()) {
        return result(cudaErrorInvalidValue);
    }
    munmap(ptr, up(found->second, PAGE));
    sim.pinned.erase(found);
    return result(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes,
                                     const void *ptr)
{
    guard hold(sim.lock);
    gpusim_fault kind;

    GPUSIM_CALL();
    *attributes = {};
    attributes->device = -1;
    if (in_arena(ptr) && wrong_with(ptr, 1, false, &kind) == nullptr) {
        auto found = below(sim.live, reinterpret_cast<uint64_t>(ptr));
        bool is_managed = found->second.kind == RANGE_MANAGED;

        attributes->type =
            is_managed ? cudaMemoryTypeManaged : cudaMemoryTypeDevice;
        attributes->device = found->second.device;
        attributes->devicePointer = const_cast<void *>(ptr);
        attributes->hostPointer =
            is_managed ? attributes->devicePointer : nullptr;
    } else if (below(sim.pinned, reinterpret_cast<uint64_t>(ptr)) !=
               sim.pinned.end()) {
        auto found = below(sim.pinned, reinterpret_cast<uint64_t>(ptr));

        if (reinterpret_cast<uint64_t>(ptr) < found->first + found->second) {
            attributes->type = cudaMemoryTypeHost;
            attributes->hostPointer = const_cast<void *>(ptr);
        }
    }
    return result(cudaSuccess);
}
