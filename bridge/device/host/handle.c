/* The handle of the fast host kernels, and the table of those that move bytes:
 * what a library needs that computes nothing. */
#include "device/host/host.h"
#include "device/host/isa.h"
#include "device/host/kernels.h"

#include <stdlib.h>

static const struct host_simd *const simd_of[HOST_ISA_COUNT] = {
    [HOST_SCALAR] = &dyti_host_simd_scalar,
#if defined(__x86_64__)
    [HOST_AVX2] = &dyti_host_simd_avx2,
    [HOST_AVX512] = &dyti_host_simd_avx512,
    [HOST_AVX512_BF16] = &dyti_host_simd_avx512,
#endif
};

enum dyt_status dyti_host_scratch(struct host *host, size_t bytes)
{
    bytes = (bytes + 4095) / 4096 * 4096;
    if (bytes <= host->scratch_bytes) {
        return DYT_OK;
    }
    host->scratch_bytes = 0;
    for (uint32_t t = 0; t < host->threads; t++) {
        free(host->scratch[t]);
        host->scratch[t] = aligned_alloc(4096, bytes);
        if (host->scratch[t] == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM,
                             "%zu bytes of kernel scratch for thread %u", bytes,
                             t);
        }
    }
    host->scratch_bytes = bytes;
    return DYT_OK;
}

enum dyt_status dyti_host_shared(struct host *host, size_t bytes)
{
    bytes = (bytes + 4095) / 4096 * 4096;
    if (bytes <= host->shared_bytes) {
        return DYT_OK;
    }
    host->shared_bytes = 0;
    free(host->shared);
    host->shared = aligned_alloc(4096, bytes);
    if (host->shared == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu bytes of kernel partial sums",
                         bytes);
    }
    host->shared_bytes = bytes;
    return DYT_OK;
}

void dyti_host_close(void *self)
{
    struct host *host = self;

    if (host == NULL) {
        return;
    }
    for (uint32_t t = 0; host->scratch != NULL && t < host->threads; t++) {
        free(host->scratch[t]);
    }
    free(host->scratch);
    free(host->shared);
    free(host);
}

enum dyt_status dyti_host_open(const struct dyti_kernel_params *params,
                               void **out_self)
{
    struct host *host = NULL;
    enum host_isa isa = HOST_SCALAR;
    enum dyt_status st = DYT_OK;

    st = dyti_host_isa_find(params != NULL ? params->isa : NULL, &isa);
    if (st != DYT_OK) {
        DYTI_NOTE("opening the host kernels");
        return st;
    }
    host = calloc(1, sizeof(*host));
    if (host == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "handle of the host kernels");
    }
    host->pool = params != NULL ? params->pool : NULL;
    host->threads = dyti_pool_threads(host->pool);
    host->isa = isa;
    host->simd = simd_of[isa];
    host->onednn = isa == dyti_host_isa_best() && isa != HOST_SCALAR;
    host->scratch = calloc(host->threads, sizeof(*host->scratch));
    if (host->scratch == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "host kernels of %u threads",
                       host->threads);
        goto out;
    }
    *out_self = host;
    host = NULL;
out:
    dyti_host_close(host);
    return st;
}

const char *dyti_host_isa(void *self)
{
    return dyti_host_isa_name(((struct host *)self)->isa);
}

const struct dyti_kernel_ops dyti_kernels_host_copy = {
    .struct_size = sizeof(struct dyti_kernel_ops),
    .name = "host copy",
    .open = dyti_host_open,
    .close = dyti_host_close,
    .isa = dyti_host_isa,
    .copy = dyti_host_copy,
    .copy_past = dyti_host_copy_past,
    .hash = dyti_host_hash,
    .caps = DYTI_KERNELS_ANY_MEMORY,
};
