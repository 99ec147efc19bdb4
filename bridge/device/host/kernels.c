/* The fast table of the host device: what stands where. */
#include "device/host/kernels.h"
#include "device/host/host.h"

#define TILE_ELEMENTS 16384 /* some microseconds of work */

int64_t dyti_host_rows_per_tile(int64_t row_elements)
{
    return host_max(TILE_ELEMENTS / host_max(row_elements, 1), 1);
}

const struct dyti_kernel_ops dyti_kernels_host = {
    .struct_size = sizeof(struct dyti_kernel_ops),
    .name = "host",
    .open = dyti_host_open,
    .close = dyti_host_close,
    .isa = dyti_host_isa,
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
    .copy_past = dyti_host_copy_past,
    .hash = dyti_host_hash,
    .caps = DYTI_KERNELS_ANY_MEMORY,
};
