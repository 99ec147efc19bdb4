/* Segments of device memory: answers "where do a rank's bytes live on a GPU, so
 * that its peers can map them and a sleeping part is nobody's?"
 *
 * By the virtual memory calls (VMM): each part of a segment is memory of its
 * own, which travels as a file descriptor.  Where a device or a container lacks
 * them, one allocation with a handle (IPC), which cannot sleep.  What a handle
 * is: segment.h. */
#include "device/cuda/memory.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB(bytes) ((unsigned long long)((bytes) >> 20))

static bool valid_pages(enum dyti_page_kind pages)
{
    return pages == DYTI_PAGES_VMM || pages == DYTI_PAGES_IPC;
}

/* ---- which ------------------------------------------------------------------
 */

static bool cuda_has(enum dyti_page_kind pages)
{
    const struct dyti_cuda_calls *calls = NULL;
    CUdevice device = 0;

    if (!valid_pages(pages) ||
        dyti_cuda_context_get(&calls, &device) != DYT_OK) {
        return false;
    }
    return pages == DYTI_PAGES_VMM ? dyti_cuda_vmm_works(calls, device)
                                   : dyti_cuda_ipc_works(calls);
}

static enum dyti_page_kind cuda_probe(uint64_t bytes)
{
    (void)bytes; /* how much is left, resize says */
    return cuda_has(DYTI_PAGES_VMM)   ? DYTI_PAGES_VMM
           : cuda_has(DYTI_PAGES_IPC) ? DYTI_PAGES_IPC
                                      : DYTI_PAGES_COUNT;
}

static uint64_t cuda_available(enum dyti_page_kind pages)
{
    const struct dyti_cuda_calls *calls = NULL;
    CUdevice device = 0;
    size_t left = 0, all = 0;

    if (!valid_pages(pages)) {
        return 0;
    }
    return dyti_cuda_context_get(&calls, &device) == DYT_OK &&
                   calls->cuMemGetInfo(&left, &all) == CUDA_SUCCESS
               ? left
               : UINT64_MAX;
}

/* ---- making -----------------------------------------------------------------
 */

static enum dyt_status cuda_create(const char *name, enum dyti_page_kind pages,
                                   int *out_handle)
{
    if (!valid_pages(pages)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "segment %s: page kind %d of a device", name,
                         (int)pages);
    }
    return dyti_cuda_segment_create(name, out_handle);
}

static enum dyt_status cut(struct dyti_cuda_note *note, const uint64_t *part,
                           uint32_t count)
{
    uint64_t before = 0;

    if (count > DYTI_CUDA_PARTS) {
        return DYTI_FAIL(DYT_ERR_INVALID, "a segment of %u parts, at most %u",
                         count, DYTI_CUDA_PARTS);
    }
    note->part_count = part == NULL ? 1 : count;
    note->part[0].end = note->bytes;
    for (uint32_t i = 0; part != NULL && i < count; i++) {
        if (part[i] <= before || part[i] % DYTI_CUDA_GRAIN != 0) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "part %u of a segment ends at byte %llu, behind "
                             "%llu",
                             i, (unsigned long long)part[i],
                             (unsigned long long)before);
        }
        before = note->part[i].end = part[i];
    }
    return part == NULL || before == note->bytes
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_INVALID,
                           "the parts of a segment of %llu bytes end at %llu",
                           (unsigned long long)note->bytes,
                           (unsigned long long)before);
}

static enum dyt_status check_new(int handle, enum dyti_page_kind pages,
                                 uint64_t bytes)
{
    struct dyti_cuda_note old;
    enum dyt_status st;

    if (!valid_pages(pages) || bytes == 0 ||
        bytes > INT64_MAX - DYTI_CUDA_GRAIN) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "segment of %llu bytes, page kind %d of a device",
                         (unsigned long long)bytes, (int)pages);
    }
    st = dyti_cuda_segment_peek(handle, &old);
    if (st == DYT_OK) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "segment handle %d already has its size of %llu MiB",
                         handle, MIB(old.bytes));
    }
    return st == DYT_PENDING ? DYT_OK : st;
}

/* Not one byte of it would fit: nothing is tried, and both numbers said. */
static enum dyt_status check_room(const struct dyti_cuda_calls *calls,
                                  uint64_t bytes)
{
    size_t left = 0, all = 0;

    return calls->cuMemGetInfo(&left, &all) == CUDA_SUCCESS && bytes > left
               ? dyti_cuda_fail(calls, CUDA_ERROR_OUT_OF_MEMORY, "a segment",
                                bytes)
               : DYT_OK;
}

static enum dyt_status cuda_resize(int handle, enum dyti_page_kind pages,
                                   uint64_t bytes, const uint64_t *part,
                                   uint32_t count)
{
    struct dyti_cuda_note note = {.generation = 1, .pages = (uint32_t)pages};
    const struct dyti_cuda_calls *calls = NULL;
    int fd[DYTI_CUDA_PARTS];
    CUdevice device = 0;
    enum dyt_status st = check_new(handle, pages, bytes);
    CUresult error;

    if (st != DYT_OK) {
        return st;
    }
    note.bytes = dyti_align_up(bytes, DYTI_CUDA_GRAIN);
    memset(fd, -1, sizeof(fd));
    st = cut(&note, part, count);
    st = st != DYT_OK ? st : dyti_cuda_context_get(&calls, &device);
    st = st != DYT_OK ? st : check_room(calls, note.bytes);
    if (st != DYT_OK) {
        return st;
    }
    error = calls->cuDeviceGetUuid_v2(&note.device, device);
    if (error != CUDA_SUCCESS) {
        return dyti_cuda_fail(calls, error, "asking for the device's UUID", 0);
    }
    dyti_cuda_note_own(&note);
    st = pages == DYTI_PAGES_VMM
             ? dyti_cuda_make_parts(calls, device, &note, fd)
             : dyti_cuda_make_ipc(calls, &note);
    if (st != DYT_OK) {
        DYTI_NOTE("a segment of %llu MiB", MIB(note.bytes));
        return st;
    }
    st = dyti_cuda_segment_write(handle, &note,
                                 pages == DYTI_PAGES_VMM ? fd : NULL);
    if (st != DYT_OK && pages == DYTI_PAGES_IPC) {
        (void)calls->cuMemFree(note.address);
    }
    dyti_cuda_segment_close_fds(fd);
    return st;
}

/* ---- mapping ----------------------------------------------------------------
 */

/* A peer's device must be one that this one reaches. */
static enum dyt_status check_reach(const struct dyti_cuda_calls *calls,
                                   CUdevice device,
                                   const struct dyti_cuda_note *note)
{
    CUdevice other = device;
    enum dyt_status st = dyti_cuda_device_find(calls, &note->device, &other);

    return st != DYT_OK ? st : dyti_cuda_device_reaches(calls, device, other);
}

static enum dyt_status map_parts(struct dyti_cuda_mapping *m, CUdevice device,
                                 const int *fd, void **out_base)
{
    enum dyt_status st =
        dyti_cuda_make_arena(m->calls, device, &m->note, &m->arena);

    for (uint32_t i = 0; i < m->note.part_count && st == DYT_OK; i++) {
        if (m->note.part[i].woken != 0) {
            st = dyti_cuda_arena_adopt(m->arena, i, fd[i]);
        }
    }
    if (st != DYT_OK) {
        dyti_cuda_arena_close(m->arena);
        m->arena = NULL;
        return st;
    }
    *out_base = (void *)(uintptr_t)dyti_cuda_arena_at(m->arena, 0);
    return DYT_OK;
}

/* The owner has it already: a handle is for others. */
static enum dyt_status map_ipc(struct dyti_cuda_mapping *m, CUdevice device,
                               void **out_base)
{
    CUresult error;

    if (dyti_cuda_note_is_own(&m->note)) {
        *out_base = (void *)(uintptr_t)m->note.address;
        return DYT_OK;
    }
    error = dyti_cuda_ipc_open(m->calls, device, &m->note.ipc, &m->opened);
    if (error != CUDA_SUCCESS) {
        return dyti_cuda_fail(m->calls, error, "a peer's IPC handle",
                              m->note.bytes);
    }
    *out_base = (void *)(uintptr_t)m->opened;
    return DYT_OK;
}

static enum dyt_status check_map(int handle, enum dyt_status read,
                                 const struct dyti_cuda_note *note,
                                 enum dyti_page_kind pages, uint64_t bytes)
{
    if (read == DYT_PENDING) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "segment handle %d has no size yet, %llu MiB wanted",
                         handle, MIB(bytes));
    }
    if (read == DYT_OK && note->pages != (uint32_t)pages) {
        return DYTI_FAIL(
            DYT_ERR_INVALID, "segment handle %d is of pages of %s, not of %s",
            handle, dyti_page_kind_name((enum dyti_page_kind)note->pages),
            dyti_page_kind_name(pages));
    }
    if (read == DYT_OK && note->bytes < bytes) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "segment handle %d has %llu MiB, %llu MiB wanted",
                         handle, MIB(note->bytes), MIB(bytes));
    }
    return read;
}

static enum dyt_status map_note(struct dyti_cuda_mapping *m, int handle,
                                enum dyti_page_kind pages, uint64_t bytes,
                                void **out_base)
{
    int fd[DYTI_CUDA_PARTS];
    CUdevice device = 0;
    enum dyt_status st = dyti_cuda_context_get(&m->calls, &device);

    if (st != DYT_OK) {
        return st;
    }
    st = dyti_cuda_segment_read(handle, &m->note, fd);
    st = check_map(handle, st, &m->note, pages, bytes);
    st = st != DYT_OK ? st : check_reach(m->calls, device, &m->note);
    if (st == DYT_OK) {
        st = pages == DYTI_PAGES_VMM ? map_parts(m, device, fd, out_base)
                                     : map_ipc(m, device, out_base);
    }
    dyti_cuda_segment_close_fds(fd);
    return st;
}

static enum dyt_status cuda_map(int handle, enum dyti_page_kind pages,
                                uint64_t bytes,
                                struct dyti_segment_mem *out_mem)
{
    struct dyti_cuda_mapping *m;
    enum dyt_status st;
    void *base = NULL;

    if (!valid_pages(pages) || bytes == 0 ||
        bytes > INT64_MAX - DYTI_CUDA_GRAIN) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "mapping %llu bytes, page kind %d of a device",
                         (unsigned long long)bytes, (int)pages);
    }
    m = calloc(1, sizeof(*m));
    if (m == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "mapping a segment");
    }
    bytes = dyti_align_up(bytes, DYTI_CUDA_GRAIN);
    st = map_note(m, handle, pages, bytes, &base);
    if (st != DYT_OK) {
        free(m);
        return st;
    }
    *out_mem = (struct dyti_segment_mem){.base = base,
                                         .bytes = bytes,
                                         .handle = handle,
                                         .pages = pages,
                                         .self = m};
    return DYT_OK;
}

static void cuda_unmap(struct dyti_segment_mem *mem)
{
    struct dyti_cuda_mapping *m = mem->self;

    if (mem->base == NULL) {
        return;
    }
    dyti_cuda_arena_close(m->arena);
    if (m->opened != 0) {
        dyti_cuda_ipc_close(m->calls, m->opened);
    }
    free(m);
    mem->base = NULL;
    mem->self = NULL;
}

/* Its device is this thread's, if none is. */
static const struct dyti_cuda_calls *calls_for(
    const struct dyti_cuda_note *note)
{
    const struct dyti_cuda_calls *calls = NULL;
    char uuid[DYTI_CUDA_UUID];
    CUdevice device = 0;

    if (dyti_cuda_context_get(&calls, &device) != DYT_OK) {
        dyti_cuda_uuid_text(&note->device, uuid);
        if (dyti_cuda_context_use(uuid) != DYT_OK ||
            dyti_cuda_calls(&calls) != DYT_OK) {
            return NULL;
        }
    }
    return calls;
}

static void cuda_close(int handle)
{
    struct dyti_cuda_note note;

    if (handle < 0) {
        return;
    }
    if (dyti_cuda_segment_peek(handle, &note) == DYT_OK &&
        note.pages == DYTI_PAGES_IPC && dyti_cuda_note_is_own(&note)) {
        const struct dyti_cuda_calls *calls = calls_for(&note);

        dyti_cuda_segment_clear(handle);
        if (calls != NULL) {
            (void)calls->cuMemFree(note.address);
        }
    }
    (void)close(handle);
}

/* ---- of the host ------------------------------------------------------------
 */

static enum dyt_status cuda_host_alloc(uint64_t bytes, void **out_ptr)
{
    const struct dyti_cuda_calls *calls = NULL;
    CUdevice device = 0;
    void *at = NULL;
    enum dyt_status st;
    CUresult error;

    if (bytes == 0 || bytes > SIZE_MAX / 2) {
        return DYTI_FAIL(DYT_ERR_INVALID, "%llu bytes of pinned memory",
                         (unsigned long long)bytes);
    }
    st = dyti_cuda_context_get(&calls, &device);
    if (st != DYT_OK) {
        return st;
    }
    error = calls->cuMemHostAlloc(&at, (size_t)bytes, CU_MEMHOSTALLOC_PORTABLE);
    if (error == CUDA_ERROR_OUT_OF_MEMORY) {
        return DYTI_FAIL(DYT_ERR_NOMEM,
                         "%llu MiB of pinned host memory: the system has no "
                         "such pages left",
                         MIB(bytes));
    }
    if (error != CUDA_SUCCESS) {
        return dyti_cuda_fail(calls, error, "pinned host memory", bytes);
    }
    *out_ptr = at;
    return DYT_OK;
}

static void cuda_host_free(void *ptr)
{
    const struct dyti_cuda_calls *calls = NULL;

    if (ptr != NULL && dyti_cuda_calls(&calls) == DYT_OK) {
        (void)calls->cuMemFreeHost(ptr);
    }
}

/* Kernels take the host's address, so that must be the device's as well. */
static enum dyt_status cuda_host_pin(void *ptr, uint64_t bytes)
{
    const struct dyti_cuda_calls *calls = NULL;
    CUdevice device = 0;
    int same = 0;
    enum dyt_status st;
    CUresult error;

    if (ptr == NULL || bytes == 0 || bytes > SIZE_MAX / 2) {
        return DYTI_FAIL(DYT_ERR_INVALID, "pinning %llu bytes at %p",
                         (unsigned long long)bytes, ptr);
    }
    st = dyti_cuda_context_get(&calls, &device);
    if (st != DYT_OK) {
        return st;
    }
    if (calls->cuDeviceGetAttribute(
            &same, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
            device) != CUDA_SUCCESS ||
        same == 0) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "the device has other addresses for memory of the "
                         "host that is pinned later");
    }
    error = calls->cuMemHostRegister(ptr, (size_t)bytes,
                                     CU_MEMHOSTREGISTER_PORTABLE);
    if (error == CUDA_ERROR_OUT_OF_MEMORY) {
        return DYTI_FAIL(DYT_ERR_NOMEM,
                         "pinning %llu MiB of host memory: the system lets no "
                         "more be locked (ulimit -l)",
                         MIB(bytes));
    }
    return error == CUDA_SUCCESS
               ? DYT_OK
               : dyti_cuda_fail(calls, error, "pinning host memory", bytes);
}

static void cuda_host_unpin(void *ptr)
{
    const struct dyti_cuda_calls *calls = NULL;

    if (ptr != NULL && dyti_cuda_calls(&calls) == DYT_OK) {
        (void)calls->cuMemHostUnregister(ptr);
    }
}

const struct dyti_memory_ops dyti_memory_cuda = {
    .struct_size = sizeof(struct dyti_memory_ops),
    .name = "cuda",
    .probe = cuda_probe,
    .has = cuda_has,
    .create = cuda_create,
    .resize = cuda_resize,
    .map = cuda_map,
    .unmap = cuda_unmap,
    .close = cuda_close,
    .touched = dyti_cuda_touched,
    .drop = dyti_cuda_drop,
    .wake = dyti_cuda_wake,
    .refresh = dyti_cuda_refresh,
    .available = cuda_available,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .use = dyti_cuda_context_use,
    .look = dyti_cuda_look,
    .host_pin = cuda_host_pin,
    .host_unpin = cuda_host_unpin,
    .lend = dyti_cuda_lend,
    .lend_piece = dyti_cuda_lend_piece,
    .borrow = dyti_cuda_borrow,
    .borrow_piece = dyti_cuda_borrow_piece,
    .give_back = dyti_cuda_give_back,
    .reaches = dyti_cuda_reaches,
};
