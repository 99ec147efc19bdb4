/* Memory that somebody else allocated, lent to other processes: what it takes
 * to open it there.  An allocation has a handle of the whole; an expandable
 * segment is many pieces, each of which travels as a descriptor. */
#include "device/cuda/memory.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static bool is_of_a_device(enum dyti_memory_kind kind)
{
    return kind != DYTI_MEMORY_HOST;
}

/* ---- pieces -----------------------------------------------------------------
 */

static enum dyt_status add_piece(struct dyti_memory_loan *loan,
                                 const struct dyti_memory_look *look,
                                 uint64_t at)
{
    if (look->kind != DYTI_MEMORY_MAPPED ||
        strcmp(look->device, loan->device) != 0) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "byte %llu of %llu at %#llx is no mapped memory of %s "
                         "as the others are (%s%s%s)",
                         (unsigned long long)at,
                         (unsigned long long)loan->bytes,
                         (unsigned long long)loan->address, loan->device,
                         dyti_memory_kind_name(look->kind),
                         look->device[0] != '\0' ? ", of " : "", look->device);
    }
    if (look->bytes == 0) {
        return DYTI_FAIL(DYT_ERR_DEVICE,
                         "the driver does not tell where the piece of byte "
                         "%llu at %#llx ends",
                         (unsigned long long)at,
                         (unsigned long long)loan->address);
    }
    loan->piece_count++;
    loan->span += look->bytes;
    if (look->way != DYTI_MEMORY_WAY_FD && loan->way == DYTI_MEMORY_WAY_FD) {
        loan->way = DYTI_MEMORY_WAY_NONE;
        memcpy(loan->why, look->why, sizeof(loan->why));
    }
    return DYT_OK;
}

/* From the piece of its first byte to that of its last. */
static enum dyt_status lend_pieces(const struct dyti_memory_look *first,
                                   struct dyti_memory_loan *loan)
{
    struct dyti_memory_look look = *first;
    enum dyt_status st;

    loan->way = DYTI_MEMORY_WAY_FD;
    loan->offset = loan->address - (uintptr_t)look.base;
    st = add_piece(loan, &look, 0);
    while (st == DYT_OK && loan->span - loan->offset < loan->bytes) {
        uint64_t at = loan->span - loan->offset;

        st = dyti_cuda_look_at_piece((void *)(uintptr_t)(loan->address + at),
                                     &look);
        st = st != DYT_OK ? st : add_piece(loan, &look, at);
    }
    if (loan->way == DYTI_MEMORY_WAY_NONE) {
        loan->piece_count = 0;
    }
    return st;
}

static enum dyt_status lend_whole(const struct dyti_cuda_calls *calls,
                                  struct dyti_memory_loan *loan)
{
    struct dyti_memory_look look = {0};
    CUipcMemHandle handle;
    CUresult error;
    enum dyt_status st =
        dyti_cuda_look((void *)(uintptr_t)loan->address, loan->bytes, &look);

    if (st != DYT_OK) {
        return st;
    }
    loan->way = (uint32_t)look.way;
    memcpy(loan->why, look.why, sizeof(loan->why));
    loan->span = look.bytes;
    loan->offset = loan->address - (uintptr_t)look.base;
    if (look.bytes == 0) { /* of managed and pinned memory nobody asks */
        loan->span = loan->bytes;
        loan->offset = 0;
    }
    if (look.way != DYTI_MEMORY_WAY_IPC) {
        return DYT_OK;
    }
    error =
        calls->cuIpcGetMemHandle(&handle, (CUdeviceptr)(uintptr_t)look.base);
    if (error != CUDA_SUCCESS) {
        return dyti_cuda_fail(calls, error, "an IPC handle of what is lent",
                              loan->bytes);
    }
    _Static_assert(sizeof(handle) == sizeof(loan->ipc), "it has room");
    memcpy(loan->ipc, &handle, sizeof(handle));
    return DYT_OK;
}

/* ---- lend -------------------------------------------------------------------
 */

/* The rest of it with the owner's context. */
static enum dyt_status lend_as(const struct dyti_cuda_calls *calls,
                               const struct dyti_memory_look *look,
                               struct dyti_memory_loan *loan)
{
    CUdevice owner = -1, before = 0;
    enum dyt_status st =
        look->device[0] == '\0'
            ? DYT_OK
            : dyti_cuda_device_named(calls, look->device, &owner);

    st = st != DYT_OK ? st : dyti_cuda_context_enter(owner, &before);
    if (st != DYT_OK) {
        return st;
    }
    st = look->kind == DYTI_MEMORY_MAPPED ? lend_pieces(look, loan)
                                          : lend_whole(calls, loan);
    dyti_cuda_context_leave(before);
    return st;
}

static enum dyt_status lend(const struct dyti_cuda_calls *calls,
                            struct dyti_memory_loan *loan)
{
    void *at = (void *)(uintptr_t)loan->address;
    struct dyti_memory_look look = {0};
    int driver = 0;
    enum dyt_status st = dyti_cuda_look(at, 1, &look);

    if (st != DYT_OK) {
        return st;
    }
    if (!is_of_a_device(look.kind)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "lending %llu bytes at %p: no device knows them",
                         (unsigned long long)loan->bytes, at);
    }
    loan->kind = (uint32_t)look.kind;
    memcpy(loan->device, look.device, sizeof(loan->device));
    (void)calls->cuDriverGetVersion(&driver);
    loan->driver = (uint64_t)driver;
    st = lend_as(calls, &look, loan);
    return st != DYT_OK ? st : dyti_memory_loan_sign(loan);
}

enum dyt_status dyti_cuda_lend(const void *ptr, uint64_t bytes,
                               struct dyti_memory_loan *out_loan)
{
    struct dyti_memory_loan loan = {.address = (uintptr_t)ptr, .bytes = bytes};
    const struct dyti_cuda_calls *calls = NULL;
    CUdevice device = 0;
    enum dyt_status st;

    if (ptr == NULL || bytes == 0 || bytes > UINT64_MAX - (uintptr_t)ptr) {
        return DYTI_FAIL(DYT_ERR_INVALID, "lending %llu bytes at %p",
                         (unsigned long long)bytes, ptr);
    }
    st = dyti_cuda_context_get(&calls, &device);
    st = st != DYT_OK ? st : lend(calls, &loan);
    if (st == DYT_OK) {
        *out_loan = loan;
    }
    return st;
}

/* ---- descriptors ------------------------------------------------------------
 */

/* The mapping at an address: where it begins, and its bytes. */
static enum dyt_status find_piece(const struct dyti_cuda_calls *calls,
                                  CUdeviceptr at, uint64_t *out_bytes)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;

    if (calls->cuMemGetAddressRange(&base, &bytes, at) != CUDA_SUCCESS ||
        base != at || bytes == 0) {
        return DYTI_FAIL(DYT_ERR_PEER,
                         "no piece begins at %#llx any more: the memory that "
                         "was lent was freed",
                         (unsigned long long)at);
    }
    *out_bytes = bytes;
    return DYT_OK;
}

static enum dyt_status export_piece(const struct dyti_cuda_calls *calls,
                                    CUdeviceptr at, int *out_fd)
{
    CUmemGenericAllocationHandle memory = 0;
    CUresult error;
    int fd = -1;

    error = calls->cuMemRetainAllocationHandle(&memory, (void *)(uintptr_t)at);
    if (error == CUDA_SUCCESS) {
        error = calls->cuMemExportToShareableHandle(
            &fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        (void)calls->cuMemRelease(memory);
    }
    if (error != CUDA_SUCCESS) {
        return dyti_cuda_fail(calls, error, "a descriptor of a piece", 0);
    }
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* who wants it gets it handed on */
    *out_fd = fd;
    return DYT_OK;
}

enum dyt_status dyti_cuda_lend_piece(const struct dyti_memory_loan *loan,
                                     uint64_t at, uint64_t *out_bytes,
                                     int *out_fd)
{
    const struct dyti_cuda_calls *calls = NULL;
    CUdeviceptr address;
    CUdevice owner = 0, before = 0;
    uint64_t bytes = 0;
    enum dyt_status st = dyti_memory_loan_check(loan);

    if (st != DYT_OK) {
        return st;
    }
    if (loan->way != DYTI_MEMORY_WAY_FD || at >= loan->span ||
        !dyti_memory_loan_is_own(loan)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "a piece %llu bytes behind the start of a loan of %u "
                         "(way %s, of process %u)",
                         (unsigned long long)at, loan->piece_count,
                         dyti_memory_way_name((enum dyti_memory_way)loan->way),
                         loan->owner_pid);
    }
    address = loan->address - loan->offset + at;
    st = dyti_cuda_calls(&calls);
    st =
        st != DYT_OK ? st : dyti_cuda_device_named(calls, loan->device, &owner);
    st = st != DYT_OK ? st : dyti_cuda_context_enter(owner, &before);
    if (st != DYT_OK) {
        return st;
    }
    st = find_piece(calls, address, &bytes);
    st = st != DYT_OK ? st : export_piece(calls, address, out_fd);
    dyti_cuda_context_leave(before);
    if (st == DYT_OK) {
        *out_bytes = bytes;
    }
    return st;
}
