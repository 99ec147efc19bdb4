/* What the driver's errors mean, in words. */
#include "device/cuda/calls.h"

#define MIB(bytes) ((unsigned long long)((bytes) >> 20))

enum dyt_status dyti_cuda_memory_fail(
    const struct dyti_cuda_memory_calls *calls, CUresult error,
    const char *doing, uint64_t bytes)
{
    const char *name = NULL;
    size_t left = 0, all = 0;

    if (calls->error_name(error, &name) != CUDA_SUCCESS || name == NULL) {
        name = "an error without a name";
    }
    if (error == CUDA_ERROR_OUT_OF_MEMORY && calls->info != NULL &&
        calls->info(&left, &all) == CUDA_SUCCESS) {
        return DYTI_FAIL(DYT_ERR_NOMEM,
                         "%s: %llu MiB wanted, %llu MiB of the device's %llu "
                         "are free (%s): let other parts sleep first, end "
                         "other programs on it, or use a smaller layout",
                         doing, MIB(bytes), MIB(left), MIB(all), name);
    }
    if (error == CUDA_ERROR_OUT_OF_MEMORY) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s: %llu MiB wanted (%s)", doing,
                         MIB(bytes), name);
    }
    if (error == CUDA_ERROR_NOT_SUPPORTED) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED, "%s: the device cannot (%s)",
                         doing, name);
    }
    if (bytes == 0) {
        return DYTI_FAIL(DYT_ERR_DEVICE, "%s: %s (%d)", doing, name,
                         (int)error);
    }
    return DYTI_FAIL(DYT_ERR_DEVICE, "%s, of %llu MiB: %s (%d)", doing,
                     MIB(bytes), name, (int)error);
}

enum dyt_status dyti_cuda_fail(const struct dyti_cuda_calls *calls,
                               CUresult error, const char *doing,
                               uint64_t bytes)
{
    return dyti_cuda_memory_fail(&calls->arena, error, doing, bytes);
}

void dyti_cuda_calls_complete(struct dyti_cuda_calls *calls)
{
    calls->arena = (struct dyti_cuda_memory_calls){
        .error_name = calls->cuGetErrorName,
        .granularity = calls->cuMemGetAllocationGranularity,
        .reserve = calls->cuMemAddressReserve,
        .unreserve = calls->cuMemAddressFree,
        .create = calls->cuMemCreate,
        .release = calls->cuMemRelease,
        .map = calls->cuMemMap,
        .unmap = calls->cuMemUnmap,
        .access = calls->cuMemSetAccess,
        .give = calls->cuMemExportToShareableHandle,
        .take = calls->cuMemImportFromShareableHandle,
        .info = calls->cuMemGetInfo};
}
