/* The reference table.  It keeps no state; one thread, scalar code. */
#include "device/host/host.h"
#include "device/host/reference/reference.h"

#include <stdlib.h>
#include <string.h>

struct reference {
    int unused; /* a handle of its own: two handles are two pointers */
};

static enum dyt_status reference_open(const struct dyti_kernel_params *params,
                                      void **out_self)
{
    struct reference *self = NULL;

    if (params != NULL && params->isa != NULL &&
        strcmp(params->isa, "scalar") != 0) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "the reference kernels are scalar and know no "
                         "instruction set '%s'; take \"scalar\" or none",
                         params->isa);
    }
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "handle of the reference kernels");
    }
    *out_self = self;
    return DYT_OK;
}

static void reference_close(void *self)
{
    free(self);
}

static const char *reference_isa(void *self)
{
    (void)self;
    return "scalar";
}

const struct dyti_kernel_ops dyti_kernels_reference = {
    .struct_size = sizeof(struct dyti_kernel_ops),
    .name = "reference",
    .open = reference_open,
    .close = reference_close,
    .isa = reference_isa,
    .gemm = dyti_reference_gemm,
    .rmsnorm = dyti_reference_rmsnorm,
    .rmsnorm_back = dyti_reference_rmsnorm_back,
    .headnorm = dyti_reference_headnorm,
    .headnorm_back = dyti_reference_headnorm_back,
    .add_bias = dyti_reference_add_bias,
    .bias_back = dyti_reference_bias_back,
    .rope = dyti_reference_rope,
    .swiglu = dyti_reference_swiglu,
    .swiglu_back = dyti_reference_swiglu_back,
    .embed = dyti_reference_embed,
    .embed_back = dyti_reference_embed_back,
    .attention_paged = dyti_reference_attention_paged,
    .attention = dyti_reference_attention,
    .attention_back = dyti_reference_attention_back,
    .row_max = dyti_reference_row_max,
    .row_sums = dyti_reference_row_sums,
    .row_finish = dyti_reference_row_finish,
    .xent_back = dyti_reference_xent_back,
    .add = dyti_reference_add,
    .scale = dyti_reference_scale,
    .sum_squares = dyti_reference_sum_squares,
    .adamw = dyti_reference_adamw,
    .copy = dyti_reference_copy,
    .hash = dyti_reference_hash,
    .caps = DYTI_KERNELS_ANY_MEMORY,
};
