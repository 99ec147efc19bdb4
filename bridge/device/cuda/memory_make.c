/* Making memory that others can map: parts by the virtual memory calls, or one
 * allocation with a handle. */
#include "device/cuda/memory.h"

#include <unistd.h>

/* ---- zero -------------------------------------------------------------------
 */

/* In a stream of its own: no other work is waited for. */
static enum dyt_status zero(const struct dyti_cuda_calls *calls, CUdeviceptr at,
                            uint64_t bytes)
{
    CUstream stream = NULL;
    CUresult error = calls->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);

    if (error != CUDA_SUCCESS) {
        return dyti_cuda_fail(calls, error, "a stream", 0);
    }
    error = calls->cuMemsetD8Async(at, 0, bytes, stream);
    if (error == CUDA_SUCCESS) {
        error = calls->cuStreamSynchronize(stream);
    }
    (void)calls->cuStreamDestroy(stream);
    return error == CUDA_SUCCESS
               ? DYT_OK
               : dyti_cuda_fail(calls, error, "zeroing memory", bytes);
}

/* ---- parts ------------------------------------------------------------------
 */

static uint64_t start_of(const struct dyti_cuda_note *note, uint32_t part)
{
    return part == 0 ? 0 : note->part[part - 1].end;
}

enum dyt_status dyti_cuda_make_arena(const struct dyti_cuda_calls *calls,
                                     CUdevice device,
                                     const struct dyti_cuda_note *note,
                                     struct dyti_cuda_arena **out_arena)
{
    uint64_t bytes[DYTI_CUDA_PARTS];
    struct dyti_cuda_arena *arena = NULL;
    enum dyt_status st;

    for (uint32_t i = 0; i < note->part_count; i++) {
        bytes[i] = note->part[i].end - start_of(note, i);
    }
    st = dyti_cuda_arena_open(&calls->arena, device, bytes, note->part_count,
                              &arena);
    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t i = 0; i < note->part_count; i++) {
        if (dyti_cuda_arena_bytes(arena, i) != bytes[i]) {
            dyti_cuda_arena_close(arena);
            return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                             "the device gives memory in granules of more than "
                             "2 MiB: use pages of kind \"%s\"",
                             dyti_page_kind_name(DYTI_PAGES_IPC));
        }
    }
    *out_arena = arena;
    return DYT_OK;
}

enum dyt_status dyti_cuda_make_part(const struct dyti_cuda_calls *calls,
                                    struct dyti_cuda_arena *arena,
                                    uint32_t part, int *out_fd)
{
    enum dyt_status st = dyti_cuda_arena_wake(arena, part);

    if (st != DYT_OK) {
        return st;
    }
    st = zero(calls, dyti_cuda_arena_at(arena, part),
              dyti_cuda_arena_bytes(arena, part));
    st = st != DYT_OK ? st : dyti_cuda_arena_export(arena, part, out_fd);
    if (st != DYT_OK) {
        (void)dyti_cuda_arena_sleep(arena, part);
    }
    return st;
}

/* Mapped here only until it is zero: whoever maps it later takes it from the
 * descriptors, this process too. */
enum dyt_status dyti_cuda_make_parts(const struct dyti_cuda_calls *calls,
                                     CUdevice device,
                                     struct dyti_cuda_note *note, int *fd)
{
    struct dyti_cuda_arena *arena = NULL;
    enum dyt_status st = dyti_cuda_make_arena(calls, device, note, &arena);

    for (uint32_t i = 0; i < note->part_count && st == DYT_OK; i++) {
        st = dyti_cuda_make_part(calls, arena, i, &fd[i]);
        note->part[i].woken = note->generation;
    }
    dyti_cuda_arena_close(arena);
    if (st != DYT_OK) {
        dyti_cuda_segment_close_fds(fd);
    }
    return st;
}

enum dyt_status dyti_cuda_make_ipc(const struct dyti_cuda_calls *calls,
                                   struct dyti_cuda_note *note)
{
    CUdeviceptr at = 0;
    enum dyt_status st;
    CUresult error = calls->cuMemAlloc(&at, note->bytes);

    if (error != CUDA_SUCCESS) {
        return dyti_cuda_fail(calls, error, "an allocation", note->bytes);
    }
    st = zero(calls, at, note->bytes);
    if (st == DYT_OK) {
        error = calls->cuIpcGetMemHandle(&note->ipc, at);
        st = error == CUDA_SUCCESS
                 ? DYT_OK
                 : dyti_cuda_fail(calls, error, "an IPC handle", note->bytes);
    }
    if (st != DYT_OK) {
        (void)calls->cuMemFree(at);
        return st;
    }
    note->address = at;
    for (uint32_t i = 0; i < note->part_count; i++) {
        note->part[i].woken = note->generation;
    }
    return DYT_OK;
}

/* ---- whether ----------------------------------------------------------------
 */

static bool has(const struct dyti_cuda_calls *calls, CUdevice device,
                CUdevice_attribute attribute)
{
    int value = 0;

    return calls->cuDeviceGetAttribute(&value, attribute, device) ==
               CUDA_SUCCESS &&
           value != 0;
}

bool dyti_cuda_vmm_works(const struct dyti_cuda_calls *calls, CUdevice device)
{
    struct dyti_cuda_note note = {.bytes = DYTI_CUDA_GRAIN,
                                  .part_count = 1,
                                  .part = {{.end = DYTI_CUDA_GRAIN}}};
    struct dyti_cuda_arena *arena = NULL;
    enum dyt_status st;
    int fd = -1;

    if (!has(calls, device,
             CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
        !has(calls, device,
             CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
        return false;
    }
    st = dyti_cuda_make_arena(calls, device, &note, &arena);
    st = st != DYT_OK ? st : dyti_cuda_arena_wake(arena, 0);
    st = st != DYT_OK ? st : dyti_cuda_arena_export(arena, 0, &fd);
    dyti_cuda_arena_close(arena);
    if (fd >= 0) {
        (void)close(fd);
    }
    return st == DYT_OK || st == DYT_ERR_NOMEM;
}

bool dyti_cuda_ipc_works(const struct dyti_cuda_calls *calls)
{
    CUdeviceptr at = 0;
    CUipcMemHandle handle;
    CUresult error = calls->cuMemAlloc(&at, DYTI_CUDA_GRAIN);

    if (error == CUDA_SUCCESS) {
        error = calls->cuIpcGetMemHandle(&handle, at);
        (void)calls->cuMemFree(at);
    }
    return error == CUDA_SUCCESS || error == CUDA_ERROR_OUT_OF_MEMORY;
}
