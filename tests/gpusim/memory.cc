// Device memory: one span of addresses that are never used twice, so that
// memory which was given back is known for ever.  An allocation ends where its
// last page ends, and pages that nobody may touch follow.
#include "sim.hpp"

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace gpusim
{

constexpr uint64_t PAGE = 4096;
constexpr unsigned char SLACK = 0xA5; // what stands beside an allocation

static uint64_t up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

static void *must(void *at, const char *what)
{
    if (at == MAP_FAILED) {
        perror(what);
        _exit(1);
    }
    return at;
}

static int span_file(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC);

    if (fd < 0 || ftruncate(fd, static_cast<off_t>(ARENA_BYTES)) != 0) {
        perror(name);
        _exit(1);
    }
    return fd;
}

void open_arena()
{
    arena *m = &sim.memory;
    const int shared = MAP_SHARED | MAP_NORESERVE;
    const int own = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    const uint64_t grains = ARENA_BYTES / GRAIN * sizeof(work_id);

    m->data_fd = span_file("gpusim.data");
    m->written_fd = span_file("gpusim.written");
    m->base = static_cast<unsigned char *>(must(
        mmap(nullptr, ARENA_BYTES, PROT_NONE, shared, m->data_fd, 0), "data"));
    m->written = static_cast<unsigned char *>(
        must(mmap(nullptr, ARENA_BYTES, PROT_READ | PROT_WRITE, shared,
                  m->written_fd, 0),
             "written"));
    m->writer = static_cast<work_id *>(must(
        mmap(nullptr, grains, PROT_READ | PROT_WRITE, own, -1, 0), "writer"));
    m->reader = static_cast<work_id *>(must(
        mmap(nullptr, grains, PROT_READ | PROT_WRITE, own, -1, 0), "reader"));
    m->next = GUARD;
}

bool in_arena(const void *ptr)
{
    const auto *p = static_cast<const unsigned char *>(ptr);

    return sim.memory.base != nullptr && p >= sim.memory.base &&
           p < sim.memory.base + ARENA_BYTES;
}

void poison(const void *ptr, uint64_t bytes, bool on)
{
#ifdef WITH_ASAN
    if (on) {
        __asan_poison_memory_region(ptr, bytes);
    } else {
        __asan_unpoison_memory_region(ptr, bytes);
    }
#else
    (void)ptr;
    (void)bytes;
    (void)on;
#endif
}

unsigned char *take_addresses(uint64_t bytes, uint64_t alignment)
{
    arena *m = &sim.memory;
    auto base = reinterpret_cast<uint64_t>(m->base);
    uint64_t at = up(base + m->next, alignment) - base;

    if (bytes > ARENA_BYTES || at + up(bytes, PAGE) + GUARD > ARENA_BYTES) {
        return nullptr;
    }
    m->next = at + up(bytes, PAGE) + GUARD;
    return m->base + at;
}

// ---- what is known of each byte --------------------------------------------

static uint64_t offset_of(const void *ptr)
{
    return static_cast<uint64_t>(static_cast<const unsigned char *>(ptr) -
                                 sim.memory.base);
}

void forget(const void *ptr, uint64_t bytes)
{
    uint64_t at = offset_of(ptr), first = at / GRAIN;
    uint64_t count = (at + bytes + GRAIN - 1) / GRAIN - first;

    memset(sim.memory.written + at, 0, bytes);
    memset(sim.memory.writer + first, 0, count * sizeof(work_id));
    memset(sim.memory.reader + first, 0, count * sizeof(work_id));
}

// Had the other work to end before the one that runs?
static bool waited_for(work_id other)
{
    size_t stream = other >> 24;
    uint32_t number = other & 0xffffffu;

    return other == 0 || other == sim.running_id ||
           (stream < sim.running->needs.size() &&
            sim.running->needs[stream] >= number);
}

static void not_waited(const void *ptr, work_id other, const char *did)
{
    if (!sim.noted_order) {
        sim.noted_order = true;
        note(GPUSIM_MISSING_WAIT,
             "%s%s in stream %u touches %p, which number %u of stream %u %s; "
             "nothing orders the two",
             where_text(), sim.running->name.c_str(), sim.running_id >> 24, ptr,
             other & 0xffffffu, other >> 24, did);
    }
}

void touched(const void *ptr, uint64_t bytes, bool store, bool check_values)
{
    arena *m = &sim.memory;
    uint64_t at = offset_of(ptr);
    work_id last = 0;

    for (uint64_t g = at / GRAIN; g * GRAIN < at + bytes; g++) {
        if (m->writer[g] != last && !waited_for(m->writer[g])) {
            not_waited(ptr, m->writer[g], "writes");
        }
        last = m->writer[g];
        if (store) {
            if (!waited_for(m->reader[g])) {
                not_waited(ptr, m->reader[g], "reads");
            }
            m->writer[g] = sim.running_id;
        } else if (waited_for(m->reader[g])) {
            m->reader[g] = sim.running_id;
        }
    }
    if (store) {
        memset(m->written + at, 1, bytes);
    } else if (check_values && memchr(m->written + at, 0, bytes) != nullptr &&
               !sim.noted_value) {
        sim.noted_value = true;
        note(GPUSIM_UNINITIALISED, "%s%s reads %p", where_text(),
             sim.running->name.c_str(), ptr);
    }
}

// ---- what is where ---------------------------------------------------------

// The range of a map that holds or precedes an address.
template <class M> static auto below(M &ranges, uint64_t address)
{
    auto found = ranges.upper_bound(address);

    return found == ranges.begin() ? ranges.end() : --found;
}

const char *wrong_with(const void *ptr, uint64_t bytes, bool store,
                       gpusim_fault *out_kind)
{
    static char text[160];
    auto address = reinterpret_cast<uint64_t>(ptr);
    auto live = below(sim.live, address);
    auto dead = below(sim.dead, address);
    auto held = below(sim.reserved, address);

    if (live != sim.live.end() &&
        address + bytes <= live->first + live->second.bytes) {
        if (store ? live->second.is_writable : live->second.readable) {
            return nullptr;
        }
        *out_kind = GPUSIM_UNMAPPED;
        return "memory is mapped there, but without this access";
    }
    if (dead != sim.dead.end() && address < dead->first + dead->second.bytes) {
        *out_kind =
            dead->second.kind == RANGE_MAPPED ? GPUSIM_UNMAPPED : GPUSIM_FREED;
        return dead->second.kind == RANGE_MAPPED
                   ? "the memory that was here is unmapped"
                   : "the allocation was given back";
    }
    if (held != sim.reserved.end() &&
        address < held->first + held->second.bytes) {
        *out_kind = GPUSIM_UNMAPPED;
        return "addresses that are reserved, without memory";
    }
    *out_kind = GPUSIM_OUT_OF_BOUNDS;
    if (live == sim.live.end() || !in_arena(ptr)) {
        return "no device memory";
    }
    snprintf(text, sizeof(text),
             "%llu bytes at offset %llu of an allocation of %llu bytes",
             static_cast<unsigned long long>(bytes),
             static_cast<unsigned long long>(address - live->first),
             static_cast<unsigned long long>(live->second.bytes));
    return text;
}

// ---- allocations -----------------------------------------------------------

static unsigned char *pages_of(uint64_t base)
{
    auto at = reinterpret_cast<uint64_t>(sim.memory.base);

    return sim.memory.base + (base - at) / PAGE * PAGE;
}

static uint64_t pages_bytes(uint64_t base, uint64_t bytes)
{
    return up(base + bytes - reinterpret_cast<uint64_t>(pages_of(base)), PAGE);
}

bool check_slack(uint64_t base, const range &r)
{
#ifndef WITH_ASAN
    const unsigned char *from = pages_of(base);
    const auto *data = reinterpret_cast<const unsigned char *>(base);
    const unsigned char *end = from + pages_bytes(base, r.bytes);

    if (r.kind != RANGE_MALLOC) {
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

static cudaError_t allocate(void **ptr, uint64_t bytes)
{
    uint64_t held = up(up(bytes, 256), PAGE);
    unsigned char *pages;

    if (bytes == 0) {
        *ptr = nullptr;
        return cudaSuccess;
    }
    if (sim.held_bytes + held > sim.machine.memory_bytes ||
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
    r.kind = RANGE_MALLOC;
    sim.live[reinterpret_cast<uint64_t>(*ptr)] = r;
    sim.held_bytes += held;
    return cudaSuccess;
}

static void give_back(uint64_t base, const range &r)
{
    unsigned char *pages = pages_of(base);
    uint64_t bytes = pages_bytes(base, r.bytes);
    auto at = static_cast<off_t>(offset_of(pages));

    check_slack(base, r);
    poison(pages, bytes, false);
    if (r.kind == RANGE_MALLOC) {
        fallocate(sim.memory.data_fd,
                  FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at,
                  static_cast<off_t>(bytes));
        sim.held_bytes -= bytes;
    }
    mmap(pages, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
         sim.memory.data_fd, at);
    mmap(sim.memory.written + at, bytes, PROT_READ | PROT_WRITE,
         MAP_SHARED | MAP_NORESERVE | MAP_FIXED, sim.memory.written_fd, at);
    forget(pages, bytes);
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
    return count + leaked_virtual();
}

static cudaError_t release(void *ptr, int kind)
{
    auto found = sim.live.find(reinterpret_cast<uint64_t>(ptr));

    if (ptr == nullptr) {
        return cudaSuccess;
    }
    if (found == sim.live.end() || found->second.kind != kind) {
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

static cudaError_t result(cudaError_t error)
{
    if (sim.sticky != cudaSuccess) {
        error = sim.sticky;
    }
    if (error != cudaSuccess) {
        sim.last = error;
    }
    return error;
}

cudaError_t cudaMalloc(void **ptr, size_t bytes)
{
    guard hold(sim.lock);

    return result(sim.sticky != cudaSuccess ? sim.sticky
                                            : allocate(ptr, bytes));
}

// As on a device, it waits for everything.
cudaError_t cudaFree(void *ptr)
{
    guard hold(sim.lock);

    run_all();
    return result(release(ptr, RANGE_MALLOC));
}

cudaError_t cudaMallocAsync(void **ptr, size_t bytes, cudaStream_t stream)
{
    guard hold(sim.lock);

    return result(stream_of(stream) == nullptr ? cudaErrorInvalidResourceHandle
                                               : allocate(ptr, bytes));
}

cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream)
{
    guard hold(sim.lock);

    if (stream_of(stream) == nullptr) {
        return result(cudaErrorInvalidResourceHandle);
    }
    enqueue(stream, "free", [=] { release(ptr, RANGE_MALLOC); });
    return result(cudaSuccess);
}

cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned)
{
    guard hold(sim.lock);
    void *at = mmap(nullptr, up(bytes, PAGE), PROT_READ | PROT_WRITE,
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

    run_all();
    if (found == sim.pinned.end()) {
        return result(cudaErrorInvalidValue);
    }
    munmap(ptr, up(found->second, PAGE));
    sim.pinned.erase(found);
    return result(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    guard hold(sim.lock);

    *total_bytes = sim.machine.memory_bytes;
    *free_bytes = sim.machine.memory_bytes > sim.held_bytes
                      ? sim.machine.memory_bytes - sim.held_bytes
                      : 0;
    return result(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes,
                                     const void *ptr)
{
    guard hold(sim.lock);
    gpusim_fault kind;

    *attributes = {};
    attributes->device = -1;
    if (in_arena(ptr) && wrong_with(ptr, 1, false, &kind) == nullptr) {
        attributes->type = cudaMemoryTypeDevice;
        attributes->device = 0;
        attributes->devicePointer = const_cast<void *>(ptr);
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

// ---- memory of other processes ---------------------------------------------

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

    if (found == sim.live.end() || found->second.kind != RANGE_MALLOC ||
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
    must(mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, data,
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

    run_all();
    return result(release(ptr, RANGE_IPC));
}
