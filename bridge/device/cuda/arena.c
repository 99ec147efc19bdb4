#include "device/cuda/arena.h"

#include "base/checked.h"

#include <fcntl.h>
#include <stdlib.h>

struct part {
    uint64_t offset, bytes;
    CUmemGenericAllocationHandle memory; /* while awake */
    bool is_awake;
};

struct dyti_cuda_arena {
    const struct dyti_cuda_memory_calls *calls;
    CUmemAllocationProp prop;
    CUmemAccessDesc access;
    CUdeviceptr base;
    uint64_t bytes;
    uint32_t count;
    struct part part[];
};

/* ---- errors ---------------------------------------------------------------
 */

static enum dyt_status check_part(const struct dyti_cuda_arena *arena,
                                  uint32_t part)
{
    return part < arena->count
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_INVALID, "part %u of an arena of %u", part,
                           arena->count);
}

/* ---- open and close -------------------------------------------------------
 */

/* Where parts begin, in whole granules. */
static enum dyt_status place(struct dyti_cuda_arena *arena,
                             const uint64_t *bytes, uint64_t grain)
{
    for (uint32_t i = 0; i < arena->count; i++) {
        struct part *p = &arena->part[i];

        if (bytes[i] == 0) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "part %u of an arena has no bytes", i);
        }
        if (bytes[i] > UINT64_MAX - grain) {
            return DYTI_FAIL(DYT_ERR_OVERFLOW, "part %u of an arena", i);
        }
        p->offset = arena->bytes;
        p->bytes = dyti_align_up(bytes[i], grain);
        if (dyti_add_overflow(arena->bytes, p->bytes, &arena->bytes)) {
            return DYTI_FAIL(DYT_ERR_OVERFLOW, "the parts of an arena");
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_cuda_arena_open(const struct dyti_cuda_memory_calls *calls,
                                     CUdevice device, const uint64_t *bytes,
                                     uint32_t count,
                                     struct dyti_cuda_arena **out_arena)
{
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                .id = device};
    struct dyti_cuda_arena *a;
    size_t grain = 0;
    enum dyt_status st;
    CUresult error;

    if (count == 0) {
        return DYTI_FAIL(DYT_ERR_INVALID, "an arena without parts");
    }
    a = calloc(1, sizeof(*a) + count * sizeof(a->part[0]));
    if (a == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "an arena of %u parts", count);
    }
    a->calls = calls;
    a->count = count;
    a->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    a->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    a->prop.location = here;
    a->access.location = here;
    a->access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    error = calls->granularity(&grain, &a->prop,
                               CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    st = error == CUDA_SUCCESS
             ? place(a, bytes, grain)
             : dyti_cuda_memory_fail(calls, error, "an arena", 0);
    if (st == DYT_OK) {
        error = calls->reserve(&a->base, a->bytes, grain, 0, 0);
        st = error == CUDA_SUCCESS
                 ? DYT_OK
                 : dyti_cuda_memory_fail(calls, error, "addresses", a->bytes);
    }
    if (st != DYT_OK) {
        free(a);
        return st;
    }
    *out_arena = a;
    return DYT_OK;
}

void dyti_cuda_arena_close(struct dyti_cuda_arena *arena)
{
    if (arena == NULL) {
        return;
    }
    for (uint32_t i = 0; i < arena->count; i++) {
        (void)dyti_cuda_arena_sleep(arena, i);
    }
    (void)arena->calls->unreserve(arena->base, arena->bytes);
    free(arena);
}

CUdeviceptr dyti_cuda_arena_at(const struct dyti_cuda_arena *arena,
                               uint32_t part)
{
    return arena->base + arena->part[part].offset;
}

bool dyti_cuda_arena_is_awake(const struct dyti_cuda_arena *arena,
                              uint32_t part)
{
    return arena->part[part].is_awake;
}

uint64_t dyti_cuda_arena_bytes(const struct dyti_cuda_arena *arena,
                               uint32_t part)
{
    return arena->part[part].bytes;
}

/* ---- memory that comes and goes -------------------------------------------
 */

/* Takes over the handle, also where it fails. */
static enum dyt_status tie(struct dyti_cuda_arena *arena, uint32_t part,
                           CUmemGenericAllocationHandle memory)
{
    const struct dyti_cuda_memory_calls *calls = arena->calls;
    struct part *p = &arena->part[part];
    CUdeviceptr at = dyti_cuda_arena_at(arena, part);
    CUresult error = calls->map(at, p->bytes, 0, memory, 0);

    if (error == CUDA_SUCCESS) {
        error = calls->access(at, p->bytes, &arena->access, 1);
        if (error != CUDA_SUCCESS) {
            (void)calls->unmap(at, p->bytes);
        }
    }
    if (error != CUDA_SUCCESS) {
        (void)calls->release(memory);
        return dyti_cuda_memory_fail(calls, error, "mapping a part", p->bytes);
    }
    p->memory = memory;
    p->is_awake = true;
    return DYT_OK;
}

enum dyt_status dyti_cuda_arena_wake(struct dyti_cuda_arena *arena,
                                     uint32_t part)
{
    enum dyt_status st = check_part(arena, part);
    CUmemGenericAllocationHandle memory = 0;
    CUresult error;

    if (st != DYT_OK || arena->part[part].is_awake) {
        return st;
    }
    error =
        arena->calls->create(&memory, arena->part[part].bytes, &arena->prop, 0);
    return error == CUDA_SUCCESS
               ? tie(arena, part, memory)
               : dyti_cuda_memory_fail(arena->calls, error, "memory",
                                       arena->part[part].bytes);
}

enum dyt_status dyti_cuda_arena_sleep(struct dyti_cuda_arena *arena,
                                      uint32_t part)
{
    enum dyt_status st = check_part(arena, part);
    struct part *p;
    CUresult error;

    if (st != DYT_OK || !arena->part[part].is_awake) {
        return st;
    }
    p = &arena->part[part];
    error = arena->calls->unmap(dyti_cuda_arena_at(arena, part), p->bytes);
    if (error != CUDA_SUCCESS) {
        return dyti_cuda_memory_fail(arena->calls, error, "unmapping a part",
                                     p->bytes);
    }
    p->is_awake = false;
    error = arena->calls->release(p->memory);
    return error == CUDA_SUCCESS
               ? DYT_OK
               : dyti_cuda_memory_fail(arena->calls, error,
                                       "giving back a part", p->bytes);
}

/* ---- peers ----------------------------------------------------------------
 */

enum dyt_status dyti_cuda_arena_export(const struct dyti_cuda_arena *arena,
                                       uint32_t part, int *out_fd)
{
    enum dyt_status st = check_part(arena, part);
    CUresult error;
    int fd = -1;

    if (st != DYT_OK) {
        return st;
    }
    if (!arena->part[part].is_awake) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "part %u sleeps: it has no memory to hand on", part);
    }
    error = arena->calls->give(&fd, arena->part[part].memory,
                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (error != CUDA_SUCCESS) {
        return dyti_cuda_memory_fail(arena->calls, error, "handing on a part",
                                     arena->part[part].bytes);
    }
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* who wants it gets it handed on */
    *out_fd = fd;
    return DYT_OK;
}

enum dyt_status dyti_cuda_arena_adopt(struct dyti_cuda_arena *arena,
                                      uint32_t part, int fd)
{
    enum dyt_status st = check_part(arena, part);
    CUmemGenericAllocationHandle memory = 0;
    CUresult error;

    if (st != DYT_OK) {
        return st;
    }
    if (arena->part[part].is_awake) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "part %u has memory: let it sleep first", part);
    }
    /* The descriptor itself goes where the call has a pointer. */
    error = arena->calls->take(&memory, (void *)(intptr_t)fd,
                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    return error == CUDA_SUCCESS
               ? tie(arena, part, memory)
               : dyti_cuda_memory_fail(arena->calls, error, "a peer's part",
                                       arena->part[part].bytes);
}
