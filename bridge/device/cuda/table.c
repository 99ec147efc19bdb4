/* The table of the cuda device, and its handles from open to close. */
#include "device/cuda/table.h"
#include "device/cuda/absent.h"
#include "device/cuda/blas.h"
#include "device/cuda/handle.h"
#include "device/cuda/kernels.h"
#include "device/cuda/range.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- open and close ----------------------------------------------------- */

static void cuda_close(void *self)
{
    struct dyti_cuda *k = self;

    if (k == NULL) {
        return;
    }
    (void)cudaSetDevice(k->device);
    if (k->stream != NULL) {
        (void)cudaStreamSynchronize(k->stream);
    }
    dyti_cuda_blas_close(k);
    dyti_cuda_free(k, k->scratch);
    dyti_cuda_free(k, k->ring_there);
    dyti_cuda_free(k, k->result_there);
    if (k->stream != NULL) {
        (void)cudaStreamSynchronize(k->stream);
        (void)cudaStreamDestroy(k->stream);
    }
    for (uint32_t i = 0; i < DYTI_CUDA_MARKS; i++) {
        if (k->mark[i].event != NULL) {
            (void)cudaEventDestroy(k->mark[i].event);
        }
    }
    if (k->meeting != NULL) {
        (void)cudaEventDestroy(k->meeting);
    }
    if (k->ring != NULL) {
        (void)cudaFreeHost(k->ring);
    }
    if (k->result != NULL) {
        (void)cudaFreeHost(k->result);
    }
    dyti_cuda_boxes_fini(&k->list);
    free(k);
}

static enum dyt_status ask(struct dyti_cuda *k, enum cudaDeviceAttr what,
                           int *out_value)
{
    return dyti_cuda_check(
        k, (int)cudaDeviceGetAttribute(out_value, what, k->device),
        "asking what the device can");
}

static enum dyt_status find_device(struct dyti_cuda *k, const char *uuid)
{
    const struct dyti_cuda_calls *calls = NULL;
    int major = 0, minor = 0, pools = 0;
    CUdevice device = 0;
    CUuuid its;
    enum dyt_status st = dyti_cuda_context_use(uuid);

    snprintf(k->name, sizeof(k->name), "the GPU");
    if (st == DYT_OK) {
        st = dyti_cuda_check(k, (int)cudaGetDevice(&k->device),
                             "asking for this thread's device");
    }
    if (st == DYT_OK) {
        st = dyti_cuda_context_get(&calls, &device);
    }
    if (st == DYT_OK &&
        calls->cuDeviceGetUuid_v2(&its, device) == CUDA_SUCCESS) {
        dyti_cuda_uuid_text(&its, k->name);
    }
    if (st == DYT_OK) {
        st = ask(k, cudaDevAttrComputeCapabilityMajor, &major);
    }
    if (st == DYT_OK) {
        st = ask(k, cudaDevAttrComputeCapabilityMinor, &minor);
    }
    if (st == DYT_OK) {
        st = ask(k, cudaDevAttrMemoryPoolsSupported, &pools);
    }
    k->has_pools = pools != 0;
    k->arch = major * 10 + minor;
    snprintf(k->arch_name, sizeof(k->arch_name), "sm_%d", k->arch);
    return st;
}

static enum dyt_status load_kernels(struct dyti_cuda *k)
{
    int error = dyti_cuda_copy_load();

    error = error == cudaSuccess ? dyti_cuda_hash_load() : error;
    if (error == (int)cudaErrorNoKernelImageForDevice) {
        (void)cudaGetLastError();
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s is %s, for which this module has no kernels: "
                         "build it with DYT_CUDA_ARCHS=%d, by a toolkit that "
                         "knows it",
                         k->name, k->arch_name, k->arch);
    }
    return dyti_cuda_check(k, error, "loading kernels");
}

static enum dyt_status make_marks(struct dyti_cuda *k)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < DYTI_CUDA_MARKS && st == DYT_OK; i++) {
        st = dyti_cuda_check(k,
                             (int)cudaEventCreateWithFlags(
                                 &k->mark[i].event, cudaEventDisableTiming),
                             "making an event");
    }
    return st;
}

/* Pinned memory, and as much on the device. */
static enum dyt_status make_pair(struct dyti_cuda *k, uint64_t bytes,
                                 const char *what, void **out_here,
                                 void **out_there)
{
    enum dyt_status st = dyti_cuda_check(
        k, (int)cudaHostAlloc(out_here, bytes, cudaHostAllocDefault), what);

    return st == DYT_OK ? dyti_cuda_alloc(k, bytes, what, out_there) : st;
}

static enum dyt_status cuda_open(const struct dyti_kernel_params *params,
                                 void **out_self)
{
    struct dyti_cuda *k = calloc(1, sizeof(*k));
    enum dyt_status st = DYT_OK;
    void *here = NULL, *there = NULL;

    if (k == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "handle of the cuda kernels");
    }
    k->tf32 = params != NULL && params->tf32;
    st = find_device(k, params != NULL ? params->device : NULL);
    if (st == DYT_OK) {
        st = load_kernels(k);
    }
    if (st == DYT_OK) {
        st = dyti_cuda_check(
            k,
            (int)cudaStreamCreateWithFlags(&k->stream, cudaStreamNonBlocking),
            "making a stream");
    }
    if (st == DYT_OK) {
        st = make_marks(k);
    }
    if (st == DYT_OK) {
        here = there = NULL;
        st = make_pair(k, DYTI_CUDA_RING, "lists of boxes", &here, &there);
        k->ring = here;
        k->ring_there = there;
    }
    if (st == DYT_OK) {
        here = there = NULL;
        st = make_pair(k, DYTI_CUDA_RESULTS * sizeof(uint64_t), "results",
                       &here, &there);
        k->result = here;
        k->result_there = there;
    }
    if (st != DYT_OK) {
        DYTI_NOTE("opening the cuda kernels");
        cuda_close(k);
        return st;
    }
    *out_self = k;
    return DYT_OK;
}

static const char *cuda_isa(void *self)
{
    return ((struct dyti_cuda *)self)->arch_name;
}

/* ---- ranges ------------------------------------------------------------- */

static void cuda_range_push(void *self, const char *name)
{
    (void)self;
    dyti_cuda_range_push(name);
}

static void cuda_range_pop(void *self)
{
    (void)self;
    dyti_cuda_range_pop();
}

/* ---- the table ---------------------------------------------------------- */

const struct dyti_kernel_ops dyti_kernels_cuda = {
    .struct_size = sizeof(struct dyti_kernel_ops),
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .isa = cuda_isa,
#define ABSENT(entry) .entry = dyti_cuda_no_##entry,
    DYTI_CUDA_ABSENT(ABSENT)
#undef ABSENT
        .gemm = dyti_cuda_gemm,
    .copy = dyti_cuda_copy,
    .hash = dyti_cuda_hash,
    .wait = dyti_cuda_wait,
    .mark = dyti_cuda_mark,
    .passed = dyti_cuda_passed,
    .stream = dyti_cuda_stream,
    .list_make = dyti_cuda_list_make,
    .list_pack = dyti_cuda_list_pack,
    .list_unpack = dyti_cuda_list_unpack,
    .list_run = dyti_cuda_list_run,
    .list_free = dyti_cuda_list_free,
    .sample_make = dyti_cuda_sample_make,
    .sample_run = dyti_cuda_sample_run,
    .sample_free = dyti_cuda_sample_free,
    .fill = dyti_cuda_fill,
    .carry = dyti_cuda_carry,
    .after_stream = dyti_cuda_after_stream,
    .after_event = dyti_cuda_after_event,
    .range_push = cuda_range_push,
    .range_pop = cuda_range_pop,
};
