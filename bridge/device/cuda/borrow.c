/* Memory of another process, or another device, at an address of this one: what
 * a loan and its descriptors say, opened for the device in use. */
#include "device/cuda/memory.h"

#include "base/checked.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

/* Behind struct dyti_memory_borrowed. */
struct borrowing {
    const struct dyti_cuda_calls *calls;
    CUdevice device;
    char uuid[DYTI_CUDA_UUID]; /* of that */
    CUdeviceptr opened;        /* IPC; 0: not */
    CUdeviceptr base;          /* FD: addresses; 0: none */
    uint64_t span, mapped;     /* bytes of them */
    uint32_t count;            /* pieces that are mapped */
    uint64_t *piece;           /* [count] their bytes, owned */
};

/* ---- reach ------------------------------------------------------------------
 */

enum dyt_status dyti_cuda_reaches(const char *device, const char *other)
{
    const struct dyti_cuda_calls *calls = NULL;
    CUdevice one = 0, two = 0;
    enum dyt_status st = dyti_cuda_calls(&calls);

    st = st != DYT_OK ? st : dyti_cuda_device_named(calls, device, &one);
    st = st != DYT_OK ? st : dyti_cuda_device_named(calls, other, &two);
    return st != DYT_OK ? st : dyti_cuda_device_reaches(calls, one, two);
}

/* ---- in the same process ----------------------------------------------------
 */

/* Allocations of another device, for the one in use. */
static enum dyt_status enable_peer(CUdevice other)
{
    cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);

    if (error == cudaSuccess) {
        return DYT_OK;
    }
    (void)cudaGetLastError();
    return error == cudaErrorPeerAccessAlreadyEnabled
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                           "reaching another device's memory: %s (%d)",
                           cudaGetErrorName(error), (int)error);
}

/* Mappings are opened device by device; who has them already keeps them. */
static enum dyt_status enable_mapped(const struct borrowing *b,
                                     CUdeviceptr base, uint64_t bytes)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = b->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult error = b->calls->cuMemSetAccess(base, bytes, &access, 1);

    return error == CUDA_SUCCESS
               ? DYT_OK
               : dyti_cuda_fail(b->calls, error,
                                "opening mapped memory to a device", bytes);
}

static enum dyt_status borrow_own(const struct borrowing *b,
                                  const struct dyti_memory_loan *loan,
                                  CUdevice other)
{
    bool is_near = other == b->device;

    switch ((enum dyti_memory_kind)loan->kind) {
    case DYTI_MEMORY_PINNED:
    case DYTI_MEMORY_MANAGED:
        return DYT_OK;
    case DYTI_MEMORY_DEVICE:
        return is_near ? DYT_OK : enable_peer(other);
    case DYTI_MEMORY_MAPPED:
        return is_near
                   ? DYT_OK
                   : enable_mapped(b, loan->address - loan->offset, loan->span);
    default:
        return is_near
                   ? DYT_OK
                   : DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                               "memory (%s) of %s: only its owner can open it "
                               "to another device",
                               dyti_memory_kind_name(
                                   (enum dyti_memory_kind)loan->kind),
                               loan->device);
    }
}

/* ---- of another process -----------------------------------------------------
 */

/* The driver has one word for many things that may be. */
static enum dyt_status open_failed(const struct borrowing *b,
                                   const struct dyti_memory_loan *loan,
                                   CUresult error)
{
    const char *name = NULL;
    int driver = 0;
    enum dyt_status st = dyti_memory_loan_alive(loan);

    if (st != DYT_OK) {
        return st;
    }
    (void)b->calls->cuDriverGetVersion(&driver);
    if (b->calls->cuGetErrorName(error, &name) != CUDA_SUCCESS ||
        name == NULL) {
        name = "an error without a name";
    }
    switch (error) {
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_TOO_MANY_PEERS:
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s refuses memory of %s of process %u: %s", b->uuid,
                         loan->device, loan->owner_pid, name);
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_MAP_FAILED:
        break;
    default:
        return dyti_cuda_fail(b->calls, error, "memory of another process",
                              loan->span);
    }
    return loan->driver == (uint64_t)driver
               ? DYTI_FAIL(DYT_ERR_PEER,
                           "process %u has no such memory (%s): was it freed, "
                           "or is the process in another container?",
                           loan->owner_pid, name)
               : DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                           "process %u has the driver's library of CUDA %d.%d, "
                           "this one of %d.%d, and does not know its memory "
                           "(%s): use one",
                           loan->owner_pid, (int)(loan->driver / 1000),
                           (int)(loan->driver % 1000 / 10), driver / 1000,
                           driver % 1000 / 10, name);
}

static enum dyt_status borrow_ipc(struct borrowing *b,
                                  const struct dyti_memory_loan *loan,
                                  CUdeviceptr *out_at)
{
    CUipcMemHandle handle;
    CUresult error;

    memcpy(&handle, loan->ipc, sizeof(handle));
    error = dyti_cuda_ipc_open(b->calls, b->device, &handle, &b->opened);
    if (error != CUDA_SUCCESS) {
        return open_failed(b, loan, error);
    }
    *out_at = b->opened + loan->offset;
    return DYT_OK;
}

/* Addresses for all its pieces, which come by and by. */
static enum dyt_status borrow_pieces(struct borrowing *b,
                                     const struct dyti_memory_loan *loan,
                                     CUdeviceptr *out_at)
{
    CUresult error =
        b->calls->cuMemAddressReserve(&b->base, loan->span, 0, 0, 0);

    if (error != CUDA_SUCCESS) {
        b->base = 0;
        return dyti_cuda_fail(b->calls, error, "addresses for a loan",
                              loan->span);
    }
    b->span = loan->span;
    *out_at = b->base + loan->offset;
    return DYT_OK;
}

static enum dyt_status borrow_other(struct borrowing *b,
                                    const struct dyti_memory_loan *loan,
                                    CUdeviceptr *out_at)
{
    switch ((enum dyti_memory_way)loan->way) {
    case DYTI_MEMORY_WAY_IPC:
        return borrow_ipc(b, loan, out_at);
    case DYTI_MEMORY_WAY_FD:
        return borrow_pieces(b, loan, out_at);
    default:
        return DYTI_FAIL(
            DYT_ERR_UNSUPPORTED, "memory (%s) of process %u: %s",
            dyti_memory_kind_name((enum dyti_memory_kind)loan->kind),
            loan->owner_pid, loan->why);
    }
}

/* ---- borrow, give back ------------------------------------------------------
 */

static enum dyt_status check_device(const struct borrowing *b,
                                    const struct dyti_memory_loan *loan,
                                    CUdevice *out_other)
{
    enum dyt_status st;

    if (loan->kind == DYTI_MEMORY_PINNED ||
        loan->kind == DYTI_MEMORY_MANAGED) { /* of no device, and of all */
        return DYT_OK;
    }
    if (loan->device[0] == '\0') {
        return DYTI_FAIL(
            DYT_ERR_INVALID, "memory (%s) of process %u is of no device",
            dyti_memory_kind_name((enum dyti_memory_kind)loan->kind),
            loan->owner_pid);
    }
    st = dyti_cuda_device_named(b->calls, loan->device, out_other);
    return st != DYT_OK
               ? st
               : dyti_cuda_device_reaches(b->calls, b->device, *out_other);
}

static void let_go(struct borrowing *b)
{
    CUdeviceptr at = b->base;

    if (b->opened != 0) {
        dyti_cuda_ipc_close(b->calls, b->opened);
    }
    for (uint32_t i = 0; i < b->count; i++) {
        (void)b->calls->cuMemUnmap(at, b->piece[i]);
        at += b->piece[i];
    }
    if (b->base != 0) {
        (void)b->calls->cuMemAddressFree(b->base, b->span);
    }
    free(b->piece);
    free(b);
}

static enum dyt_status borrow(struct borrowing *b,
                              const struct dyti_memory_loan *loan,
                              struct dyti_memory_borrowed *out_borrowed)
{
    bool is_own = dyti_memory_loan_is_own(loan);
    CUdeviceptr at = loan->address;
    CUdevice other = b->device;
    CUuuid uuid;
    CUresult error = b->calls->cuDeviceGetUuid_v2(&uuid, b->device);
    enum dyt_status st =
        error == CUDA_SUCCESS
            ? check_device(b, loan, &other)
            : dyti_cuda_fail(b->calls, error, "asking for a device's UUID", 0);

    if (st != DYT_OK) {
        return st;
    }
    dyti_cuda_uuid_text(&uuid, b->uuid);
    st = is_own ? borrow_own(b, loan, other) : borrow_other(b, loan, &at);
    if (st == DYT_OK) {
        *out_borrowed = (struct dyti_memory_borrowed){
            .ptr = (void *)(uintptr_t)at,
            .bytes = loan->bytes,
            .wanted = is_own ? 0 : loan->piece_count,
            .self = b};
    }
    return st;
}

enum dyt_status dyti_cuda_borrow(const struct dyti_memory_loan *loan,
                                 struct dyti_memory_borrowed *out_borrowed)
{
    struct borrowing *b;
    enum dyt_status st = dyti_memory_loan_check(loan);

    if (st == DYT_OK && loan->kind == DYTI_MEMORY_HOST) {
        st = DYTI_FAIL(DYT_ERR_INVALID,
                       "borrowing memory of the host for a device: it is not "
                       "pinned");
    }
    if (st != DYT_OK) {
        return st;
    }
    b = calloc(1, sizeof(*b));
    if (b == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "borrowing memory");
    }
    st = dyti_cuda_context_get(&b->calls, &b->device);
    st = st != DYT_OK ? st : borrow(b, loan, out_borrowed);
    if (st != DYT_OK) {
        free(b);
        DYTI_NOTE("borrowing %llu bytes of process %u",
                  (unsigned long long)loan->bytes, loan->owner_pid);
    }
    return st;
}

void dyti_cuda_give_back(struct dyti_memory_borrowed *borrowed)
{
    struct borrowing *b = borrowed->self;

    if (b == NULL) {
        return;
    }
    (void)dyti_cuda_context_use(b->uuid);
    let_go(b);
    *borrowed = (struct dyti_memory_borrowed){0};
}

/* ---- pieces -----------------------------------------------------------------
 */

/* Mapped and opened, or as before.  The mapping keeps the memory. */
static CUresult map_piece(struct borrowing *b, uint64_t bytes, int fd)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = b->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory = 0;
    CUdeviceptr at = b->base + b->mapped;
    /* The descriptor itself goes where the call has a pointer. */
    CUresult error = b->calls->cuMemImportFromShareableHandle(
        &memory, (void *)(intptr_t)fd,
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

    if (error != CUDA_SUCCESS) {
        return error;
    }
    error = b->calls->cuMemMap(at, bytes, 0, memory, 0);
    if (error == CUDA_SUCCESS) {
        error = b->calls->cuMemSetAccess(at, bytes, &access, 1);
        if (error != CUDA_SUCCESS) {
            (void)b->calls->cuMemUnmap(at, bytes);
        }
    }
    (void)b->calls->cuMemRelease(memory);
    return error;
}

static enum dyt_status check_piece(const struct dyti_memory_borrowed *borrowed,
                                   uint64_t bytes)
{
    const struct borrowing *b = borrowed->self;

    if (b == NULL || borrowed->wanted == 0) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "a piece of %llu bytes, where none is wanted",
                         (unsigned long long)bytes);
    }
    return bytes > 0 && bytes <= b->span - b->mapped &&
                   (borrowed->wanted > 1 || bytes == b->span - b->mapped)
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_INVALID,
                           "a piece of %llu bytes, where %llu bytes are wanted "
                           "in %u pieces",
                           (unsigned long long)bytes,
                           (unsigned long long)(b->span - b->mapped),
                           borrowed->wanted);
}

enum dyt_status dyti_cuda_borrow_piece(struct dyti_memory_borrowed *borrowed,
                                       uint64_t bytes, int fd)
{
    struct borrowing *b = borrowed->self;
    enum dyt_status st = check_piece(borrowed, bytes);
    uint64_t *grown;
    CUresult error;

    if (st == DYT_OK) {
        st = dyti_cuda_context_use(b->uuid);
    }
    if (st != DYT_OK) {
        return st;
    }
    grown = realloc(b->piece, (b->count + 1u) * sizeof(*grown));
    if (grown == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u pieces of a loan", b->count + 1u);
    }
    b->piece = grown;
    error = map_piece(b, bytes, fd);
    if (error != CUDA_SUCCESS) {
        return dyti_cuda_fail(b->calls, error, "mapping a piece of a loan",
                              bytes);
    }
    b->piece[b->count++] = bytes;
    b->mapped += bytes;
    borrowed->wanted--;
    return DYT_OK;
}
