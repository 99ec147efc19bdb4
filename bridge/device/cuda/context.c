#include "device/cuda/context.h"

#include <ctype.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#define DIGITS 32u /* of a UUID */

void dyti_cuda_uuid_text(const CUuuid *uuid, char out[DYTI_CUDA_UUID])
{
    size_t at = (size_t)snprintf(out, DYTI_CUDA_UUID, "GPU-");

    for (size_t i = 0; i < sizeof(uuid->bytes); i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;

        at += (size_t)snprintf(out + at, DYTI_CUDA_UUID - at, "%s%02x",
                               dash ? "-" : "",
                               (unsigned)(unsigned char)uuid->bytes[i]);
    }
}

/* ---- names -----------------------------------------------------------------
 */

/* "GPU-…" or "MIG-…" or the digits alone; false: no UUID. */
static bool digits_of(const char *text, char out[DIGITS + 1])
{
    size_t n = 0;

    if (strncasecmp(text, "GPU-", 4) == 0 ||
        strncasecmp(text, "MIG-", 4) == 0) {
        text += 4;
    }
    for (; *text != '\0'; text++) {
        if (*text == '-') {
            continue;
        }
        if (!isxdigit((unsigned char)*text) || n == DIGITS) {
            return false;
        }
        out[n++] = (char)tolower((unsigned char)*text);
    }
    out[n] = '\0';
    return n == DIGITS;
}

/* UUIDs of all devices, for a message. */
static void list_devices(const struct dyti_cuda_calls *calls, int count,
                         char *out, size_t cap)
{
    size_t at = 0;

    out[0] = '\0';
    for (int i = 0; i < count && at + DYTI_CUDA_UUID < cap; i++) {
        CUdevice device = 0;
        CUuuid uuid;
        char text[DYTI_CUDA_UUID];

        if (calls->cuDeviceGet(&device, i) == CUDA_SUCCESS &&
            calls->cuDeviceGetUuid_v2(&uuid, device) == CUDA_SUCCESS) {
            dyti_cuda_uuid_text(&uuid, text);
            at += (size_t)snprintf(out + at, cap - at, "%s%s",
                                   at > 0 ? ", " : "", text);
        }
    }
}

/* DYT_PENDING: none of them. */
static enum dyt_status find_digits(const struct dyti_cuda_calls *calls,
                                   int count, const char *digits,
                                   CUdevice *out_device)
{
    for (int i = 0; i < count; i++) {
        char text[DYTI_CUDA_UUID], its[DIGITS + 1];
        CUdevice device = 0;
        CUuuid uuid;
        CUresult error = calls->cuDeviceGet(&device, i);

        error = error == CUDA_SUCCESS ? calls->cuDeviceGetUuid_v2(&uuid, device)
                                      : error;
        if (error != CUDA_SUCCESS) {
            return dyti_cuda_fail(calls, error, "asking for a device's UUID",
                                  0);
        }
        dyti_cuda_uuid_text(&uuid, text);
        if (digits_of(text, its) && strcmp(its, digits) == 0) {
            *out_device = device;
            return DYT_OK;
        }
    }
    return DYT_PENDING;
}

static enum dyt_status find_device(const struct dyti_cuda_calls *calls,
                                   const char *name, CUdevice *out_device)
{
    char digits[DIGITS + 1], all[512];
    enum dyt_status st = DYT_PENDING;
    CUresult error;
    int count = 0;

    error = calls->cuDeviceGetCount(&count);
    if (error != CUDA_SUCCESS) {
        return dyti_cuda_fail(calls, error, "counting devices", 0);
    }
    if (count == 0) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED, "the driver finds no device");
    }
    if (name == NULL && count == 1) {
        error = calls->cuDeviceGet(out_device, 0);
        return error == CUDA_SUCCESS
                   ? DYT_OK
                   : dyti_cuda_fail(calls, error, "taking the device", 0);
    }
    if (name != NULL && digits_of(name, digits)) {
        st = find_digits(calls, count, digits, out_device);
    }
    if (st != DYT_PENDING) {
        return st;
    }
    list_devices(calls, count, all, sizeof(all));
    if (name == NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "which of %d devices? One of %s has to be named",
                         count, all);
    }
    return DYTI_FAIL(DYT_ERR_INVALID, "device \"%.64s\": %s; there is %s", name,
                     name[strspn(name, "0123456789")] == '\0'
                         ? "an index means another device in another process, "
                           "a UUID does not"
                         : "nobody has this UUID here",
                     all);
}

enum dyt_status dyti_cuda_device_named(const struct dyti_cuda_calls *calls,
                                       const char *name, CUdevice *out_device)
{
    char digits[DIGITS + 1];
    enum dyt_status st = DYT_PENDING;
    CUresult error;
    int count = 0;

    if (name == NULL) {
        return dyti_cuda_context_get(&calls, out_device);
    }
    error = calls->cuDeviceGetCount(&count);
    if (error != CUDA_SUCCESS) {
        return dyti_cuda_fail(calls, error, "counting devices", 0);
    }
    if (digits_of(name, digits)) {
        st = find_digits(calls, count, digits, out_device);
    }
    return st == DYT_PENDING
               ? DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                           "device %.64s is not seen by this process (is it "
                           "missing in CUDA_VISIBLE_DEVICES?)",
                           name)
               : st;
}

enum dyt_status dyti_cuda_device_find(const struct dyti_cuda_calls *calls,
                                      const CUuuid *uuid, CUdevice *out_device)
{
    char text[DYTI_CUDA_UUID];

    dyti_cuda_uuid_text(uuid, text);
    return dyti_cuda_device_named(calls, text, out_device);
}

static void name_device(const struct dyti_cuda_calls *calls, CUdevice device,
                        char out[DYTI_CUDA_UUID])
{
    CUuuid uuid = {0};

    (void)calls->cuDeviceGetUuid_v2(&uuid, device);
    dyti_cuda_uuid_text(&uuid, out);
}

enum dyt_status dyti_cuda_device_reaches(const struct dyti_cuda_calls *calls,
                                         CUdevice device, CUdevice other)
{
    char one[DYTI_CUDA_UUID], two[DYTI_CUDA_UUID];
    int can = 0;

    if (other == device ||
        (calls->cuDeviceCanAccessPeer(&can, device, other) == CUDA_SUCCESS &&
         can != 0)) {
        return DYT_OK;
    }
    name_device(calls, device, one);
    name_device(calls, other, two);
    return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                     "device %s does not reach the memory of %s: no peer "
                     "access between them",
                     one, two);
}

/* ---- contexts ---------------------------------------------------------------
 */

/* The runtime keeps a device's context from its first use on, and counts it
 * once: kernels of this module have the same. */
static enum dyt_status make_current(CUdevice device)
{
    cudaError_t error = cudaSetDevice(device);

    if (error == cudaSuccess) {
        return DYT_OK;
    }
    (void)cudaGetLastError();
    return DYTI_FAIL(error == cudaErrorMemoryAllocation ? DYT_ERR_NOMEM
                                                        : DYT_ERR_DEVICE,
                     "starting the device's context: %s (%d)",
                     cudaGetErrorName(error), (int)error);
}

enum dyt_status dyti_cuda_context_use(const char *name)
{
    const struct dyti_cuda_calls *calls = NULL;
    CUcontext context = NULL;
    CUdevice device = 0, current = -1;
    enum dyt_status st = dyti_cuda_calls(&calls);

    st = st != DYT_OK ? st : find_device(calls, name, &device);
    if (st == DYT_OK && calls->cuCtxGetCurrent(&context) == CUDA_SUCCESS &&
        context != NULL && calls->cuCtxGetDevice(&current) == CUDA_SUCCESS &&
        current == device) {
        return DYT_OK;
    }
    st = st != DYT_OK ? st : make_current(device);
    if (st != DYT_OK) {
        DYTI_NOTE("using device %s", name != NULL ? name : "(the only one)");
    }
    return st;
}

enum dyt_status dyti_cuda_context_get(const struct dyti_cuda_calls **out_calls,
                                      CUdevice *out_device)
{
    const struct dyti_cuda_calls *calls = NULL;
    CUcontext current = NULL;
    CUdevice device = 0;
    enum dyt_status st = dyti_cuda_calls(&calls);
    CUresult error;

    if (st != DYT_OK) {
        return st;
    }
    error = calls->cuCtxGetCurrent(&current);
    if (error == CUDA_SUCCESS && current == NULL) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "no device is in use on this thread: use() one");
    }
    error = error == CUDA_SUCCESS ? calls->cuCtxGetDevice(&device) : error;
    if (error != CUDA_SUCCESS) {
        return dyti_cuda_fail(calls, error, "asking for the thread's device",
                              0);
    }
    *out_calls = calls;
    *out_device = device;
    return DYT_OK;
}

enum dyt_status dyti_cuda_context_enter(CUdevice device, CUdevice *out_before)
{
    const struct dyti_cuda_calls *calls = NULL;
    CUdevice before = 0;
    enum dyt_status st = dyti_cuda_context_get(&calls, &before);

    if (st == DYT_OK && device >= 0 && device != before) {
        st = make_current(device);
    }
    if (st == DYT_OK) {
        *out_before = before;
    }
    return st;
}

void dyti_cuda_context_leave(CUdevice before)
{
    CUdevice device = before;

    if (cudaGetDevice(&device) == cudaSuccess && device != before) {
        (void)make_current(before);
    }
}
