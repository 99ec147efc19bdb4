/* Memory that somebody else allocated (PyTorch's caching allocator, expandable
 * segments, pools): what it is, and how another process can have it.  What can
 * be given is given once, to nobody: what the driver says of itself is not
 * enough to promise it. */
#include "device/cuda/memory.h"

#include <stdio.h>
#include <unistd.h>

/* What the driver tells of a pointer; all 0 where it knows nothing. */
struct told {
    CUmemorytype type;
    unsigned is_managed, has_ipc, is_mapped;
    int device;
    CUdeviceptr base;
    size_t bytes;
    CUmemoryPool pool;
};

/* The attributes of mapped memory are of all addresses that were reserved with
 * it, this is of the one mapping. */
static bool find_allocation(const struct dyti_cuda_calls *calls, CUdeviceptr at,
                            struct told *t)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;

    bool is_known =
        calls->cuMemGetAddressRange(&base, &bytes, at) == CUDA_SUCCESS;

    t->base = is_known ? base : 0;
    t->bytes = is_known ? bytes : 0;
    return is_known;
}

static enum dyt_status ask(const struct dyti_cuda_calls *calls, CUdeviceptr at,
                           struct told *out)
{
    struct told t = {0};
    CUpointer_attribute attribute[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_MAPPED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    void *data[] = {&t.type,   &t.is_managed, &t.has_ipc, &t.is_mapped,
                    &t.device, &t.base,       &t.bytes,   &t.pool};
    CUresult error = calls->cuPointerGetAttributes(
        sizeof(attribute) / sizeof(attribute[0]), attribute, data, at);

    if (error != CUDA_SUCCESS) {
        return dyti_cuda_fail(calls, error, "asking what memory is", 0);
    }
    *out = t;
    return DYT_OK;
}

static void refuse(struct dyti_memory_look *look, const char *why)
{
    look->way = DYTI_MEMORY_WAY_NONE;
    snprintf(look->why, sizeof(look->why), "%s", why);
}

static void refuse_by(const struct dyti_cuda_calls *calls, CUresult error,
                      const char *what, struct dyti_memory_look *look)
{
    const char *name = NULL;

    if (calls->cuGetErrorName(error, &name) != CUDA_SUCCESS || name == NULL) {
        name = "an error without a name";
    }
    look->way = DYTI_MEMORY_WAY_NONE;
    snprintf(look->why, sizeof(look->why), "%s: %.60s", what, name);
}

/* ---- kinds ------------------------------------------------------------------
 */

/* By virtual memory calls: false, it is something else. */
static bool look_at_mapped(const struct dyti_cuda_calls *calls, CUdeviceptr at,
                           bool tries, struct dyti_memory_look *look)
{
    CUmemGenericAllocationHandle memory = 0;
    CUmemAllocationProp prop = {0};
    CUresult error;
    int fd = -1;

    if (calls->cuMemRetainAllocationHandle(&memory, (void *)(uintptr_t)at) !=
        CUDA_SUCCESS) {
        return false;
    }
    look->kind = DYTI_MEMORY_MAPPED;
    error = calls->cuMemGetAllocationPropertiesFromHandle(&prop, memory);
    if (error == CUDA_SUCCESS &&
        ((unsigned)prop.requestedHandleTypes &
         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
        refuse(look, "it was made without a file descriptor to be had of it "
                     "(requestedHandleTypes)");
    } else {
        error = tries ? calls->cuMemExportToShareableHandle(
                            &fd, memory,
                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)
                      : error;
        look->way = DYTI_MEMORY_WAY_FD;
        if (error != CUDA_SUCCESS) {
            refuse_by(calls, error, "a file descriptor of it", look);
        } else if (fd >= 0) {
            (void)close(fd);
        }
    }
    (void)calls->cuMemRelease(memory);
    return true;
}

static void look_at_device(const struct dyti_cuda_calls *calls,
                           const struct told *t, CUdeviceptr at, bool tries,
                           struct dyti_memory_look *look)
{
    CUipcMemHandle handle;
    CUresult error;

    if (t->pool != NULL) {
        look->kind = DYTI_MEMORY_POOL;
        refuse(look, "it belongs to a stream-ordered pool, which only its "
                     "owner can share");
        return;
    }
    if (look_at_mapped(calls, at, tries, look)) {
        return;
    }
    look->kind = DYTI_MEMORY_DEVICE;
    if (t->has_ipc == 0) {
        refuse(look, "the driver has no IPC handles for it");
        return;
    }
    error = calls->cuIpcGetMemHandle(&handle, t->base);
    look->way = DYTI_MEMORY_WAY_IPC;
    if (error != CUDA_SUCCESS) {
        refuse_by(calls, error, "an IPC handle of it", look);
    }
}

static enum dyt_status name_owner(const struct dyti_cuda_calls *calls,
                                  int ordinal, struct dyti_memory_look *look)
{
    CUdevice device = 0;
    CUuuid uuid;
    CUresult error = calls->cuDeviceGet(&device, ordinal);

    error = error == CUDA_SUCCESS ? calls->cuDeviceGetUuid_v2(&uuid, device)
                                  : error;
    if (error != CUDA_SUCCESS) {
        return dyti_cuda_fail(calls, error, "asking whose memory it is", 0);
    }
    dyti_cuda_uuid_text(&uuid, look->device);
    return DYT_OK;
}

static enum dyt_status check_range(const struct told *t, CUdeviceptr at,
                                   uint64_t bytes)
{
    uint64_t inside = at - t->base;

    return t->bytes == 0 || (inside < t->bytes && bytes <= t->bytes - inside)
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_INVALID,
                           "%llu bytes at %#llx: the allocation there ends "
                           "after %llu bytes",
                           (unsigned long long)bytes, (unsigned long long)at,
                           (unsigned long long)(t->bytes - inside));
}

/* With the owner's context, which knows it. */
static enum dyt_status look_at(const struct dyti_cuda_calls *calls,
                               struct told *t, CUdeviceptr at, uint64_t bytes,
                               bool tries, struct dyti_memory_look *look)
{
    enum dyt_status st;

    if (t->type == CU_MEMORYTYPE_DEVICE && t->is_managed == 0 &&
        !find_allocation(calls, at, t) && t->is_mapped == 0) {
        *t = (struct told){0}; /* addresses that nothing lies at */
    }
    st = check_range(t, at, bytes);
    if (st != DYT_OK) {
        return st;
    }
    look->base = (void *)(uintptr_t)t->base;
    look->bytes = t->bytes;
    if (t->is_managed != 0) {
        look->kind = DYTI_MEMORY_MANAGED;
        refuse(look, "managed memory belongs to one process");
    } else if (t->type == CU_MEMORYTYPE_HOST) {
        look->kind = DYTI_MEMORY_PINNED;
        refuse(look, "memory of the host is shared by its own means");
    } else if (t->type == CU_MEMORYTYPE_DEVICE) {
        st = name_owner(calls, t->device, look);
        if (st == DYT_OK) {
            look_at_device(calls, t, at, tries, look);
        }
    } else {
        refuse(look, "the driver does not know it: memory of the host is "
                     "shared by its own means");
    }
    return st;
}

static enum dyt_status look_as(const void *ptr, uint64_t bytes, bool tries,
                               struct dyti_memory_look *out_look)
{
    struct dyti_memory_look look = {.kind = DYTI_MEMORY_HOST};
    const struct dyti_cuda_calls *calls = NULL;
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)ptr;
    CUdevice device = 0, before = 0;
    struct told t = {0};
    enum dyt_status st;

    if (ptr == NULL || bytes == 0) {
        return DYTI_FAIL(DYT_ERR_INVALID, "looking at %llu bytes at %p",
                         (unsigned long long)bytes, ptr);
    }
    st = dyti_cuda_context_get(&calls, &device);
    st = st != DYT_OK ? st : ask(calls, at, &t);
    if (st == DYT_OK) {
        st = dyti_cuda_context_enter(
            t.type == CU_MEMORYTYPE_DEVICE ? t.device : device, &before);
    }
    if (st != DYT_OK) {
        return st;
    }
    st = look_at(calls, &t, at, bytes, tries, &look);
    dyti_cuda_context_leave(before);
    if (st == DYT_OK) {
        *out_look = look;
    }
    return st;
}

enum dyt_status dyti_cuda_look(const void *ptr, uint64_t bytes,
                               struct dyti_memory_look *out_look)
{
    return look_as(ptr, bytes, true, out_look);
}

enum dyt_status dyti_cuda_look_at_piece(const void *ptr,
                                        struct dyti_memory_look *out_look)
{
    return look_as(ptr, 1, false, out_look);
}
