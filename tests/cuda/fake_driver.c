/* A driver that has the fault which the build names: FAKE_STATE is one of the
 * words below.  It answers as libcuda.so.1 does, with the header's own types,
 * and computes nothing. */
#include <cuda.h>
#include <stdio.h>
#include <string.h>

#define READY     0
#define NO_GPU    1 /* cuInit finds none */
#define EMPTY     2 /* cuInit succeeds, and there are none */
#define OLD       3 /* made for CUDA 11.8 */
#define OLD_CALLS 4 /* a call is missing */
#define MEMORY    5 /* the second device's context has no memory */
#define INIT_FULL 6 /* cuInit has no memory */
#define STUB      7 /* a toolkit's stub */
#define MISMATCH  8 /* library and kernel module differ */
#define UNKNOWN   9
#define OLD_GPU   10 /* only an sm_61 */
#define COMPAT    11 /* the compatibility package on a GPU it is not for */
#define MANY      12 /* 40 devices */
#define BEFORE    13 /* made for the CUDA before the toolkit's */
#define VOLTA     14 /* only an sm_70, which CUDA 13 compiles nothing for */
#define SWITCHES  15 /* nobody has set up those between the GPUs */

CUresult cuInit(unsigned flags)
{
    static const CUresult answer[] = {
        [NO_GPU] = CUDA_ERROR_NO_DEVICE,
        [INIT_FULL] = CUDA_ERROR_OUT_OF_MEMORY,
        [STUB] = CUDA_ERROR_STUB_LIBRARY,
        [MISMATCH] = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
        [UNKNOWN] = CUDA_ERROR_UNKNOWN,
        [COMPAT] = CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
        [SWITCHES] = CUDA_ERROR_SYSTEM_NOT_READY,
    };

    return flags == 0 ? answer[FAKE_STATE] : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = FAKE_STATE == OLD      ? 11080
               : FAKE_STATE == BEFORE ? CUDA_VERSION / 1000 * 1000 - 960
                                      : CUDA_VERSION / 1000 * 1000 + 40;
    return FAKE_STATE == STUB ? CUDA_ERROR_STUB_LIBRARY : CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    *name = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == CUDA_ERROR_UNKNOWN     ? NULL
                                              : "CUDA_ERROR_OTHER";
    return *name != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = FAKE_STATE == EMPTY ? 0 : FAKE_STATE == MANY ? 40 : 2;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal + 7; /* a handle is not an index */
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice device)
{
    snprintf(name, (size_t)len, "Fake %d", device - 7);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    memset(uuid->bytes, 0xab, sizeof(uuid->bytes));
    uuid->bytes[15] = (char)(device - 7);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    *bytes = (size_t)(device - 6) << 30;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which,
                              CUdevice device)
{
    switch ((int)which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = FAKE_STATE == OLD_GPU ? 6 : FAKE_STATE == VOLTA ? 7 : 9;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = FAKE_STATE == OLD_GPU ? 1 : 0;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *value = 1;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        *value = device == 7; /* the first one alone */
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* The first one reaches all, the others none. */
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    *can = device == 7;
    return device == peer ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

/* Contexts that are held; one that is left is what a test looks for. */
int fake_contexts(void);

static int contexts;

int fake_contexts(void)
{
    return contexts;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    if (FAKE_STATE == MEMORY && device == 8) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    contexts++;
    *context = (CUcontext)&contexts;
    return CUDA_SUCCESS;
}

#if FAKE_STATE != OLD_CALLS
CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    contexts--;
    return device >= 7 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
#endif
