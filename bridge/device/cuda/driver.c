#include "device/cuda/driver.h"

#include "base/env.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The runtime in this module works over drivers of its own major version of
 * CUDA or later; the first release that is one. */
#define DRIVER_MIN ((uint32_t)CUDA_VERSION / 1000u * 1000u)
#if CUDA_VERSION >= 14000
#error "which release of the driver is the first for this CUDA?"
#elif CUDA_VERSION >= 13000
#define DRIVER_NAME "580"
#else
#define DRIVER_NAME "525"
#endif

/* Which kernels are compiled for, oldest first; of the last there is PTX. */
#ifndef DYTI_CUDA_ARCHS
#define DYTI_CUDA_ARCHS 70
#endif
static const uint32_t archs[] = {DYTI_CUDA_ARCHS};
#define ARCH_COUNT (sizeof(archs) / sizeof(archs[0]))

/* What is called.  The header renames some to their newest version, and so
 * every use of these words is the renamed one: member, type and symbol. */
#define CALLS(X)                                                               \
    X(cuInit)                                                                  \
    X(cuDriverGetVersion)                                                      \
    X(cuGetErrorName)                                                          \
    X(cuDeviceGetCount)                                                        \
    X(cuDeviceGet)                                                             \
    X(cuDeviceGetName)                                                         \
    X(cuDeviceGetUuid_v2)                                                      \
    X(cuDeviceTotalMem)                                                        \
    X(cuDeviceGetAttribute)                                                    \
    X(cuDeviceCanAccessPeer)                                                   \
    X(cuDevicePrimaryCtxRetain)                                                \
    X(cuDevicePrimaryCtxRelease)

struct driver {
#define MEMBER(f) __typeof__(&(f)) f;
    CALLS(MEMBER)
#undef MEMBER
};

__attribute__((format(printf, 3, 4))) static void tell(
    struct dyti_device_report *r, enum dyti_device_state state,
    const char *form, ...)
{
    va_list args;

    r->state = state;
    va_start(args, form);
    vsnprintf(r->text, sizeof(r->text), form, args);
    va_end(args);
}

/* ---- the library ----------------------------------------------------------
 */

/* False: `name` is not in it.  Functions and objects have one size here. */
static bool find(void *library, const char *name, void *out_function)
{
    void *at = dlsym(library, name);

    memcpy(out_function, &at, sizeof(at));
    return at != NULL;
}

static bool find_calls(void *library, struct driver *out,
                       struct dyti_device_report *r)
{
#define TEXT_OF(f) #f
#define FIND(f)                                                                \
    if (!find(library, TEXT_OF(f), &out->f)) {                                 \
        tell(r, DYTI_DEVICE_DRIVER_TOO_OLD,                                    \
             "the driver has no %s: install NVIDIA's driver " DRIVER_NAME      \
             " or newer",                                                      \
             TEXT_OF(f));                                                      \
        return false;                                                          \
    }
    CALLS(FIND)
#undef FIND
#undef TEXT_OF
    return true;
}

static bool open_driver(const char *library, struct driver *out,
                        struct dyti_device_report *r)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const char *why = handle == NULL ? dlerror() : NULL;
    int version = 0;

    if (handle == NULL) {
        tell(r, DYTI_DEVICE_NO_DRIVER,
             "%s: install NVIDIA's driver " DRIVER_NAME
             " or newer, or start the container with its GPUs (docker run "
             "--gpus all)",
             why != NULL ? why : library);
        return false;
    }
    if (!find_calls(handle, out, r)) {
        return false;
    }
    if (out->cuDriverGetVersion(&version) == CUDA_SUCCESS && version > 0) {
        r->driver = (uint32_t)version;
    }
    if (r->driver != 0 && r->driver < DRIVER_MIN) {
        tell(r, DYTI_DEVICE_DRIVER_TOO_OLD,
             "the driver is made for CUDA %u.%u, and %u.0 is needed: install "
             "NVIDIA's driver " DRIVER_NAME " or newer%s",
             r->driver / 1000, r->driver % 1000 / 10, DRIVER_MIN / 1000,
             r->driver < 12000 ? ""
                               : ", or build the module with the toolkit of "
                                 "an older CUDA");
        return false;
    }
    return true;
}

/* ---- errors ---------------------------------------------------------------
 */

static void no_device(struct dyti_device_report *r)
{
    const char *visible = dyti_env_foreign("CUDA_VISIBLE_DEVICES");

    tell(r, DYTI_DEVICE_NO_DEVICE,
         "the driver finds no GPU%s%.64s%s: nvidia-smi -L lists what the "
         "machine has; a container is started with its GPUs (docker run "
         "--gpus all)",
         visible != NULL ? " among CUDA_VISIBLE_DEVICES=" : "",
         visible != NULL ? visible : "",
         visible != NULL ? " (unset it to see all)" : "");
}

/* What a call that failed says of the machine.  where: "starting the driver" */
static void failed(const struct driver *d, CUresult error, const char *where,
                   struct dyti_device_report *r)
{
    const char *name = NULL;

    if (d->cuGetErrorName(error, &name) != CUDA_SUCCESS || name == NULL) {
        name = "an error that it has no name for";
    }
    switch (error) {
    case CUDA_ERROR_NO_DEVICE:
        no_device(r);
        return;
    case CUDA_ERROR_OUT_OF_MEMORY:
        tell(r, DYTI_DEVICE_NO_MEMORY,
             "%s: %s: nvidia-smi shows which processes hold the memory; end "
             "them, or choose other devices with CUDA_VISIBLE_DEVICES",
             where, name);
        return;
    case CUDA_ERROR_STUB_LIBRARY:
        tell(r, DYTI_DEVICE_NO_DRIVER,
             "%s: %s: a toolkit's stub was found in the driver's place; take "
             "its folder out of LD_LIBRARY_PATH, and install NVIDIA's "
             "driver " DRIVER_NAME " or newer",
             where, name);
        return;
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
        tell(r, DYTI_DEVICE_DRIVER_TOO_OLD,
             "%s: %s: the compatibility package is not for this GPU; install "
             "a newer driver instead, or take the package away",
             where, name);
        return;
    case CUDA_ERROR_SYSTEM_NOT_READY:
        tell(r, DYTI_DEVICE_FAILED,
             "%s: %s: the GPUs' switches are not set up; start "
             "nvidia-fabricmanager, of the driver's version (systemctl status "
             "nvidia-fabricmanager)",
             where, name);
        return;
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        tell(r, DYTI_DEVICE_FAILED,
             "%s: %s: the driver's library and its kernel module are of "
             "different versions; reboot after an update of the driver",
             where, name);
        return;
    default:
        tell(r, DYTI_DEVICE_FAILED,
             "%s: %s (%d): nvidia-smi, and Xid lines of dmesg, say more", where,
             name, (int)error);
        return;
    }
}

/* ---- devices --------------------------------------------------------------
 */

/* Code of an architecture runs on later ones with the same first number, and
 * PTX on all later ones. */
static bool has_kernels(uint32_t arch)
{
    bool has = arch >= archs[ARCH_COUNT - 1];

    for (size_t i = 0; i < ARCH_COUNT; i++) {
        has = has || (archs[i] / 10 == arch / 10 && archs[i] <= arch);
    }
    return has;
}

static void write_uuid(const CUuuid *uuid, char *out, size_t n)
{
    size_t at = (size_t)snprintf(out, n, "GPU-");

    for (size_t i = 0; i < sizeof(uuid->bytes) && at < n; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;

        at += (size_t)snprintf(out + at, n - at, "%s%02x", dash ? "-" : "",
                               (unsigned)(unsigned char)uuid->bytes[i]);
    }
}

static int attribute(const struct driver *d, CUdevice device,
                     CUdevice_attribute which)
{
    int value = 0;

    return d->cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS
               ? value
               : 0;
}

static CUresult describe(const struct driver *d, CUdevice device,
                         struct dyti_device_row *out)
{
    size_t memory = 0;
    CUuuid uuid;
    CUresult error =
        d->cuDeviceGetName(out->name, (int)sizeof(out->name), device);

    if (error == CUDA_SUCCESS) {
        error = d->cuDeviceGetUuid_v2(&uuid, device);
    }
    if (error == CUDA_SUCCESS) {
        error = d->cuDeviceTotalMem(&memory, device);
    }
    if (error != CUDA_SUCCESS) {
        return error;
    }
    write_uuid(&uuid, out->uuid, sizeof(out->uuid));
    out->memory_bytes = memory;
    out->arch =
        (uint32_t)(attribute(d, device,
                             CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) *
                       10 +
                   attribute(d, device,
                             CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
    out->maps_memory =
        attribute(d, device,
                  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0;
    out->exports_fd =
        out->maps_memory &&
        attribute(
            d, device,
            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) !=
            0;
    return CUDA_SUCCESS;
}

/* The device's context is what a run starts first, and what takes memory. */
static CUresult start(const struct driver *d, CUdevice device)
{
    CUcontext context = NULL;
    CUresult error = d->cuDevicePrimaryCtxRetain(&context, device);

    return error == CUDA_SUCCESS ? d->cuDevicePrimaryCtxRelease(device) : error;
}

/* Device `index`, into its row; false: the report says what is wrong. */
static bool look_at(const struct driver *d, uint32_t index,
                    struct dyti_device_report *r)
{
    struct dyti_device_row *row = &r->row[index];
    CUdevice device = 0;
    CUresult error = d->cuDeviceGet(&device, (int)index);
    char where[192];

    if (error == CUDA_SUCCESS) {
        error = describe(d, device, row);
    }
    if (error == CUDA_SUCCESS && has_kernels(row->arch)) {
        error = start(d, device);
    }
    if (error != CUDA_SUCCESS) {
        snprintf(where, sizeof(where), "starting device %u (%s)", index,
                 row->uuid[0] != '\0' ? row->uuid : "no UUID yet");
        failed(d, error, where, r);
    }
    return error == CUDA_SUCCESS;
}

/* A pair that the driver does not know of reaches nothing. */
static bool can_reach(const struct driver *d, uint32_t from, uint32_t to)
{
    CUdevice one = 0, other = 0;
    int can = 0;

    return from != to && d->cuDeviceGet(&one, (int)from) == CUDA_SUCCESS &&
           d->cuDeviceGet(&other, (int)to) == CUDA_SUCCESS &&
           d->cuDeviceCanAccessPeer(&can, one, other) == CUDA_SUCCESS &&
           can != 0;
}

static void look_who_reaches(const struct driver *d, uint32_t count,
                             struct dyti_device_report *r)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < count; j++) {
            r->row[i].reaches |= (uint32_t)can_reach(d, i, j) << j;
        }
    }
}

static void look_at_all(const struct driver *d, struct dyti_device_report *r)
{
    uint32_t fit = 0;
    uint32_t told = r->count < DYTI_DEVICES_MAX ? r->count : DYTI_DEVICES_MAX;

    for (uint32_t i = 0; i < told; i++) {
        if (!look_at(d, i, r)) {
            return;
        }
        fit += has_kernels(r->row[i].arch);
    }
    look_who_reaches(d, told, r);
    if (fit == 0) {
        tell(r, DYTI_DEVICE_NO_DEVICE,
             "none of %u is a GPU that this module has kernels for: they are "
             "for sm_%u and newer%s; the first is %s, sm_%u",
             r->count, archs[0],
             r->row[0].arch < archs[0]
                 ? ""
                 : ", but not for all (DYT_CUDA_ARCHS, when it was built)",
             r->row[0].name, r->row[0].arch);
        return;
    }
    tell(r, DYTI_DEVICE_READY, "%u of %u devices, driver for CUDA %u.%u", fit,
         r->count, r->driver / 1000, r->driver % 1000 / 10);
}

void dyti_cuda_probe(const char *library, struct dyti_device_report *out_report)
{
    struct dyti_device_report *r = out_report;
    struct driver d;
    CUresult error;
    int count = 0;

    memset(r, 0, sizeof(*r));
    if (!open_driver(library, &d, r)) {
        return;
    }
    error = d.cuInit(0);
    if (error == CUDA_SUCCESS) {
        error = d.cuDeviceGetCount(&count);
    }
    if (error != CUDA_SUCCESS) {
        failed(&d, error, "starting the driver", r);
        return;
    }
    if (count <= 0) {
        no_device(r);
        return;
    }
    r->count = (uint32_t)count;
    look_at_all(&d, r);
}

static void probe(struct dyti_device_report *out_report)
{
    dyti_cuda_probe(DYTI_CUDA_DRIVER, out_report);
}

const struct dyti_device_ops dyti_device_cuda = {
    .struct_size = sizeof(dyti_device_cuda), .name = "cuda", .probe = probe};
