// Virtual memory calls: addresses, memory, and the tie between them, each on
// its own.  Memory is a memfd, which other processes can map: data in its first
// half, what is known of each byte in its second.
#include "sim.hpp"

#include "include/cuda.h"

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gpusim
{

static unsigned char *bytes_at(uint64_t address)
{
    return reinterpret_cast<unsigned char *>(address);
}

static unsigned char *written_at(uint64_t address)
{
    return sim.memory.written + (bytes_at(address) - sim.memory.base);
}

static void drop_memory(uint64_t handle)
{
    auto found = sim.physical.find(handle);

    if (found->second.maps == 0 && found->second.handles == 0) {
        close(found->second.fd);
        sim.physical.erase(found);
    }
}

static void unmap(uint64_t address, const range &r)
{
    auto at = static_cast<off_t>(bytes_at(address) - sim.memory.base);

    mmap(bytes_at(address), r.bytes, PROT_NONE,
         MAP_SHARED | MAP_NORESERVE | MAP_FIXED, sim.memory.data_fd, at);
    mmap(written_at(address), r.bytes, PROT_READ | PROT_WRITE,
         MAP_SHARED | MAP_NORESERVE | MAP_FIXED, sim.memory.written_fd, at);
    forget(bytes_at(address), r.bytes);
    sim.physical[r.physical].maps--;
    drop_memory(r.physical);
    sim.dead[address] = r;
}

void close_virtual()
{
    for (const auto &entry : sim.live) {
        if (entry.second.kind == RANGE_MAPPED) {
            unmap(entry.first, entry.second);
        }
    }
    for (auto &entry : sim.physical) {
        close(entry.second.fd);
    }
    for (auto &entry : sim.ledger) {
        close(entry.witness);
    }
    sim.ledger.clear();
    sim.physical.clear();
    sim.reserved.clear();
}

uint64_t leaked_virtual()
{
    uint64_t count = 0;

    for (const auto &entry : sim.live) {
        if (entry.second.kind == RANGE_MAPPED) {
            note(GPUSIM_LEAK, "%llu bytes that are mapped",
                 static_cast<unsigned long long>(entry.second.bytes));
            count++;
        }
    }
    for (const auto &entry : sim.physical) {
        if (entry.second.handles > 0) {
            note(GPUSIM_LEAK, "a handle of %llu bytes of memory",
                 static_cast<unsigned long long>(entry.second.bytes));
            count++;
        }
    }
    for (const auto &entry : sim.reserved) {
        note(GPUSIM_LEAK, "%llu bytes of addresses",
             static_cast<unsigned long long>(entry.second.bytes));
        count++;
    }
    return count;
}

static uint64_t add_physical(int fd, uint64_t bytes, int device,
                             bool is_exportable)
{
    physical_state p;

    p.fd = fd;
    p.bytes = bytes;
    p.device = device;
    p.is_exportable = is_exportable;
    sim.physical[++sim.next_physical] = p;
    return sim.next_physical;
}

// The file's name says whose memory it is, of the host's devices.
constexpr char MEMORY_NAME[] = "gpusim.memory.";

static int device_of(int fd)
{
    char path[64], name[128] = "";
    int hardware = -1;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (readlink(path, name, sizeof(name) - 1) > 0) {
        sscanf(name, "/memfd:gpusim.memory.%d", &hardware);
    }
    return device_of_hardware(hardware);
}

uint64_t physical_take(uint64_t bytes, int device, bool is_exportable)
{
    std::string name = MEMORY_NAME + std::to_string(hardware_of(device));
    int fd, witness;
    char path[64];

    if (!has_room(device, bytes)) {
        return 0;
    }
    fd = memfd_create(name.c_str(), MFD_CLOEXEC);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    witness = fd < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (witness < 0 || ftruncate(fd, static_cast<off_t>(2 * bytes)) != 0 ||
        flock(fd, LOCK_SH) != 0) {
        close(fd);
        close(witness);
        return 0;
    }
    sim.held[device] += bytes;
    sim.ledger.push_back({witness, bytes, device});
    return add_physical(fd, bytes, device, is_exportable);
}

// All who have it have the one open file, in whichever process; only when that
// is closed can another get the lock alone.
void sweep_held()
{
    for (size_t i = 0; i < sim.ledger.size();) {
        held_memory *m = &sim.ledger[i];

        if (flock(m->witness, LOCK_EX | LOCK_NB) != 0) {
            i++;
            continue;
        }
        close(m->witness);
        sim.held[m->device] -= m->bytes;
        *m = sim.ledger.back();
        sim.ledger.pop_back();
    }
}

} // namespace gpusim

// ---- the calls -------------------------------------------------------------

using namespace gpusim;

static bool whole(uint64_t value)
{
    return value % VMM_GRAIN == 0;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes,
                                       const CUmemAllocationProp *,
                                       CUmemAllocationGranularity_flags)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    *bytes = VMM_GRAIN;
    return sim.machine.has_vmm ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t bytes, size_t alignment,
                             CUdeviceptr, unsigned long long)
{
    guard hold(sim.lock);
    unsigned char *at;

    GPUSIM_CALL();
    if (!sim.machine.has_vmm) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (bytes == 0 || !whole(bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    at = take_addresses(bytes, alignment > VMM_GRAIN ? alignment : VMM_GRAIN);
    if (at == nullptr) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ptr = reinterpret_cast<uint64_t>(at);
    sim.reserved[*ptr] = {bytes};
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t bytes)
{
    guard hold(sim.lock);
    auto found = sim.reserved.find(ptr);
    auto mapped = sim.live.lower_bound(ptr);

    GPUSIM_CALL();
    if (found == sim.reserved.end() || found->second.bytes != bytes ||
        (mapped != sim.live.end() && mapped->first < ptr + bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim.reserved.erase(found);
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *prop, unsigned long long)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    if (!sim.machine.has_vmm) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (bytes == 0 || !whole(bytes) ||
        prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        prop->location.id < 0 ||
        prop->location.id >= sim.machine.device_count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *handle = physical_take(bytes, prop->location.id,
                            prop->requestedHandleTypes ==
                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    return *handle == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    guard hold(sim.lock);
    auto found = sim.physical.find(handle);

    GPUSIM_CALL();
    if (found == sim.physical.end() || found->second.handles == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    found->second.handles--;
    drop_memory(handle);
    return CUDA_SUCCESS;
}

static bool is_reserved(uint64_t ptr, uint64_t bytes)
{
    auto found = sim.reserved.upper_bound(ptr);

    return found != sim.reserved.begin() &&
           (--found, ptr + bytes <= found->first + found->second.bytes);
}

static bool is_free(uint64_t ptr, uint64_t bytes)
{
    auto after = sim.live.lower_bound(ptr);

    if (after != sim.live.end() && after->first < ptr + bytes) {
        return false;
    }
    return after == sim.live.begin() ||
           (--after, after->first + after->second.bytes <= ptr);
}

CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long)
{
    guard hold(sim.lock);
    auto found = sim.physical.find(handle);
    range r;

    GPUSIM_CALL();
    if (found == sim.physical.end() || found->second.handles == 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!whole(ptr) || !whole(bytes) || bytes == 0 || offset != 0 ||
        bytes > found->second.bytes || !is_reserved(ptr, bytes) ||
        !is_free(ptr, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    forget(bytes_at(ptr), bytes);
    if (mmap(bytes_at(ptr), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
             found->second.fd, 0) == MAP_FAILED ||
        mmap(written_at(ptr), bytes, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED, found->second.fd,
             static_cast<off_t>(found->second.bytes)) == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    r.bytes = bytes;
    r.kind = RANGE_MAPPED;
    r.physical = handle;
    r.device = found->second.device;
    r.readable = r.is_writable = false;
    sim.live[ptr] = r;
    sim.dead.erase(ptr);
    found->second.maps++;
    return CUDA_SUCCESS;
}

// The mappings of a span: whole ones only.
template <class F>
static CUresult each_mapping(uint64_t ptr, uint64_t bytes, F what)
{
    auto found = sim.live.find(ptr);
    uint64_t at = ptr;

    while (at < ptr + bytes) {
        if (found == sim.live.end() || found->first != at ||
            found->second.kind != RANGE_MAPPED ||
            at + found->second.bytes > ptr + bytes) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        at += found->second.bytes;
        found = what(found);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes)
{
    guard hold(sim.lock);
    CUresult end;

    GPUSIM_CALL();
    // A device does not wait here: work that is still queued must fail.
    end = each_mapping(ptr, bytes, [](auto at) { return ++at; });
    if (end != CUDA_SUCCESS) {
        return end;
    }
    return each_mapping(ptr, bytes, [](auto at) {
        unmap(at->first, at->second);
        return sim.live.erase(at);
    });
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t bytes,
                        const CUmemAccessDesc *desc, size_t count)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    watch_signals();
    for (size_t i = 0; i < count; i++) {
        if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            desc[i].location.id < 0 ||
            desc[i].location.id >= sim.machine.device_count) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    bool refused = false;
    CUresult result = each_mapping(ptr, bytes, [&](auto at) {
        for (size_t i = 0; i < count; i++) {
            refused |= desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
                       refuses(desc[i].location.id, at->second.device);
        }
        return ++at;
    });

    if (result != CUDA_SUCCESS || refused) {
        return refused ? CUDA_ERROR_INVALID_DEVICE : result;
    }
    return each_mapping(ptr, bytes, [=](auto at) {
        range *r = &at->second;

        // Devices that are not named keep what they had.
        for (size_t i = 0; i < count; i++) {
            uint32_t bit = 1u << desc[i].location.id;
            CUmemAccess_flags how = desc[i].flags;

            r->opened_to &= ~bit;
            r->written_by &= ~bit;
            r->opened_to |= how != CU_MEM_ACCESS_FLAGS_PROT_NONE ? bit : 0;
            r->written_by |=
                how == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? bit : 0;
        }
        r->is_writable = r->written_by != 0;
        r->readable = r->opened_to != 0;
        r->is_open = false;
        mprotect(bytes_at(at->first), r->bytes, PROT_NONE);
        return ++at;
    });
}

CUresult cuMemExportToShareableHandle(void *shareable,
                                      CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type,
                                      unsigned long long)
{
    guard hold(sim.lock);
    auto found = sim.physical.find(handle);

    GPUSIM_CALL();
    if (found == sim.physical.end() || !found->second.is_exportable ||
        type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int fd = dup(found->second.fd);

    memcpy(shareable, &fd, sizeof(fd));
    return fd < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                        void *shareable,
                                        CUmemAllocationHandleType type)
{
    guard hold(sim.lock);
    struct stat info;
    // The descriptor itself is what is handed in, as on a device.
    auto given = static_cast<int>(reinterpret_cast<intptr_t>(shareable));
    int fd;

    GPUSIM_CALL();
    fd = fcntl(given, F_DUPFD_CLOEXEC, 0);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fd < 0 ||
        fstat(fd, &info) != 0 || info.st_size == 0 || device_of(fd) < 0 ||
        !whole(static_cast<uint64_t>(info.st_size) / 2)) {
        close(fd);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *handle = add_physical(fd, static_cast<uint64_t>(info.st_size) / 2,
                           device_of(fd), true);
    return CUDA_SUCCESS;
}

// Any address of a mapping will do; each handle is one to release.
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle,
                                     void *ptr)
{
    guard hold(sim.lock);
    auto address = reinterpret_cast<uint64_t>(ptr);
    auto found = below(sim.live, address);

    GPUSIM_CALL();
    if (found == sim.live.end() || found->second.kind != RANGE_MAPPED ||
        address >= found->first + found->second.bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *handle = found->second.physical;
    sim.physical[*handle].handles++;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    guard hold(sim.lock);
    auto found = sim.physical.find(handle);

    GPUSIM_CALL();
    if (found == sim.physical.end() || found->second.handles == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *prop = {};
    prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop->requestedHandleTypes = found->second.is_exportable
                                     ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                     : CU_MEM_HANDLE_TYPE_NONE;
    prop->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop->location.id = found->second.device;
    return CUDA_SUCCESS;
}
