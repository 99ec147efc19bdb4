/* Memory of a device whose addresses stay: answers "how does a rank give its
 * memory back while it sleeps, and find it at the same addresses when it
 * wakes?"  An arena is one range of addresses in parts, each of which has
 * physical memory behind it or none; a peer maps parts that it was handed.
 *
 * What a sleeping part held is gone: who needs it copies it first.  Work of the
 * device on a part must have ended before it sleeps, which nothing here waits
 * for.  A part that a peer still maps keeps its memory on the device until the
 * peer lets it go too.
 *
 * Rules: one arena by one thread at a time; the device's context is current;
 * on failure a part is as it was, but for memory that cannot be given back:
 * that part sleeps. */
#ifndef DYTI_DEVICE_CUDA_ARENA_H
#define DYTI_DEVICE_CUDA_ARENA_H

#include "base/error.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* Of the driver, which nothing is linked with. */
struct dyti_cuda_memory_calls {
    __typeof__(&cuGetErrorName) error_name;
    __typeof__(&cuMemGetAllocationGranularity) granularity;
    __typeof__(&cuMemAddressReserve) reserve;
    __typeof__(&cuMemAddressFree) unreserve;
    __typeof__(&cuMemCreate) create;
    __typeof__(&cuMemRelease) release;
    __typeof__(&cuMemMap) map;
    __typeof__(&cuMemUnmap) unmap;
    __typeof__(&cuMemSetAccess) access;
    __typeof__(&cuMemExportToShareableHandle) give;
    __typeof__(&cuMemImportFromShareableHandle) take;
    __typeof__(&cuMemGetInfo) info; /* NULL: messages have one number */
};

/* As dyti_cuda_fail(). */
enum dyt_status dyti_cuda_memory_fail(
    const struct dyti_cuda_memory_calls *calls, CUresult error,
    const char *doing, uint64_t bytes);

struct dyti_cuda_arena;

/**
 * Addresses for parts of these sizes, none of which has memory yet.
 *
 * @param calls   Borrowed as long as the arena.
 * @param device  That reads and writes; of a peer's memory too.
 * @param bytes   [count] each more than 0
 * @return DYT_ERR_UNSUPPORTED  the device has no virtual memory calls
 *         DYT_ERR_NOMEM        no addresses, or no memory for the list
 */
enum dyt_status dyti_cuda_arena_open(const struct dyti_cuda_memory_calls *calls,
                                     CUdevice device, const uint64_t *bytes,
                                     uint32_t count,
                                     struct dyti_cuda_arena **out_arena);
/* Everything that is mapped, and the addresses.  NULL is fine. */
void dyti_cuda_arena_close(struct dyti_cuda_arena *arena);

/* Its address: the same from open to close. */
CUdeviceptr dyti_cuda_arena_at(const struct dyti_cuda_arena *arena,
                               uint32_t part);
bool dyti_cuda_arena_is_awake(const struct dyti_cuda_arena *arena,
                              uint32_t part);
/* Bytes that parts take when they are awake: whole granules. */
uint64_t dyti_cuda_arena_bytes(const struct dyti_cuda_arena *arena,
                               uint32_t part);

/* Memory behind a part, without a value.  Awake already: nothing happens.
 * DYT_ERR_NOMEM: the device is full. */
enum dyt_status dyti_cuda_arena_wake(struct dyti_cuda_arena *arena,
                                     uint32_t part);
/* Gives it back.  Asleep already: nothing happens. */
enum dyt_status dyti_cuda_arena_sleep(struct dyti_cuda_arena *arena,
                                      uint32_t part);

/* A part as a file descriptor, the caller's to close, for dyti_cuda_arena_adopt
 * of another process.  DYT_ERR_STATE: it sleeps. */
enum dyt_status dyti_cuda_arena_export(const struct dyti_cuda_arena *arena,
                                       uint32_t part, int *out_fd);
/* A peer's memory behind a part of the same size, which sleeps; it is let go by
 * sleep.  The descriptor stays the caller's. */
enum dyt_status dyti_cuda_arena_adopt(struct dyti_cuda_arena *arena,
                                      uint32_t part, int fd);

#endif /* DYTI_DEVICE_CUDA_ARENA_H */
