/* The driver's calls that memory is made of: found once in a process, when they
 * are asked for.  Contexts do not live on in a child of fork(), and so nor do
 * these.
 * Threads: any. */
#ifndef DYTI_DEVICE_CUDA_CALLS_H
#define DYTI_DEVICE_CUDA_CALLS_H

#include "device/cuda/arena.h"

/* The header renames some to their newest version, and so every use of these
 * words is the renamed one: member, type and symbol.  The UUID of a part of a
 * device (MIG) is only what the second version of that call tells, which not
 * all headers rename. */
#define DYTI_CUDA_CALLS(X)                                                     \
    X(cuInit)                                                                  \
    X(cuGetErrorName)                                                          \
    X(cuDriverGetVersion)                                                      \
    X(cuDeviceGetCount)                                                        \
    X(cuDeviceGet)                                                             \
    X(cuDeviceGetUuid_v2)                                                      \
    X(cuDeviceGetAttribute)                                                    \
    X(cuDeviceCanAccessPeer)                                                   \
    X(cuCtxGetCurrent)                                                         \
    X(cuCtxGetDevice)                                                          \
    X(cuMemGetInfo)                                                            \
    X(cuMemAlloc)                                                              \
    X(cuMemFree)                                                               \
    X(cuMemHostAlloc)                                                          \
    X(cuMemFreeHost)                                                           \
    X(cuMemHostRegister)                                                       \
    X(cuMemHostUnregister)                                                     \
    X(cuMemsetD8Async)                                                         \
    X(cuStreamCreate)                                                          \
    X(cuStreamSynchronize)                                                     \
    X(cuStreamDestroy)                                                         \
    X(cuIpcGetMemHandle)                                                       \
    X(cuIpcOpenMemHandle)                                                      \
    X(cuIpcCloseMemHandle)                                                     \
    X(cuPointerGetAttributes)                                                  \
    X(cuMemGetAddressRange)                                                    \
    X(cuMemGetAllocationGranularity)                                           \
    X(cuMemAddressReserve)                                                     \
    X(cuMemAddressFree)                                                        \
    X(cuMemCreate)                                                             \
    X(cuMemRelease)                                                            \
    X(cuMemMap)                                                                \
    X(cuMemUnmap)                                                              \
    X(cuMemSetAccess)                                                          \
    X(cuMemExportToShareableHandle)                                            \
    X(cuMemImportFromShareableHandle)                                          \
    X(cuMemRetainAllocationHandle)                                             \
    X(cuMemGetAllocationPropertiesFromHandle)

struct dyti_cuda_calls {
#define DYTI_CUDA_CALL_MEMBER(f) __typeof__(&(f)) f;
    DYTI_CUDA_CALLS(DYTI_CUDA_CALL_MEMBER)
#undef DYTI_CUDA_CALL_MEMBER
    struct dyti_cuda_memory_calls arena; /* the same, for arenas */
};

/* @return DYT_ERR_UNSUPPORTED  no driver, no device, or an older driver
 *         DYT_ERR_NOMEM        it finds no memory to start in
 *         DYT_ERR_DEVICE       it does not start
 *         DYT_ERR_STATE        this process is a child of one that had it */
enum dyt_status dyti_cuda_calls(const struct dyti_cuda_calls **out_calls);

/* Fills in `arena` from the others. */
void dyti_cuda_calls_complete(struct dyti_cuda_calls *calls);

/* What a call failed with, while `doing` ("while …"): the driver's own word.
 * bytes > 0: how many it was about; where memory is short both numbers are
 * named. */
enum dyt_status dyti_cuda_fail(const struct dyti_cuda_calls *calls,
                               CUresult error, const char *doing,
                               uint64_t bytes);

#endif /* DYTI_DEVICE_CUDA_CALLS_H */
