/* The fast table of the host device: its handle, and what stands where. */
#include "device/host/kernels.h"
#include "device/host/host.h"
#include "device/host/isa.h"

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

#define TILE_ELEMENTS 16384 /* some microseconds of work */

int64_t dyti_host_rows_per_tile(int64_t row_elements)
{
    return host_max(TILE_ELEMENTS / host_max(row_elements, 1), 1);
}

static void host_close(void *self)
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

static enum dyt_status host_open(const struct dyti_kernel_params *params,
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
    host_close(host);
    return st;
}

static const char *host_isa(void *self)
{
    return dyti_host_isa_name(((struct host *)self)->isa);
}

const struct dyti_kernel_ops dyti_kernels_host = {
    .struct_size = sizeof(struct dyti_kernel_ops),
    .name = "host",
    .open = host_open,
    .close = host_close,
    .isa = host_isa,
    .gemm = dyti_host_gemm,
    .rmsnorm = dyti_host_rmsnorm,
    .rmsnorm_back = dyti_host_rmsnorm_back,
    .headnorm = dyti_host_headnorm,
    .headnorm_back = dyti_host_headnorm_back,
    .add_bias = dyti_host_add_bias,
    .bias_back = dyti_host_bias_back,
    .rope = dyti_host_rope,
    .swiglu = dyti_host_swiglu,
    .swiglu_back = dyti_host_swiglu_back,
    .embed = dyti_host_embed,
    .embed_back = dyti_host_embed_back,
    .attention_paged = dyti_host_attention_paged,
    .attention = dyti_host_attention,
    .attention_back = dyti_host_attention_back,
    .row_max = dyti_host_row_max,
    .row_sums = dyti_host_row_sums,
    .row_finish = dyti_host_row_finish,
    .xent_back = dyti_host_xent_back,
    .add = dyti_host_add,
    .scale = dyti_host_scale,
    .sum_squares = dyti_host_sum_squares,
    .adamw = dyti_host_adamw,
    .copy = dyti_host_copy,
    .hash = dyti_host_hash,
};
