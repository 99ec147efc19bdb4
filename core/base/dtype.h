/* Element types and state kinds: what of a tensor, stored how. */
#ifndef DYTI_BASE_DTYPE_H
#define DYTI_BASE_DTYPE_H

#include <stdint.h>

enum dyti_dtype {
    DYTI_F32,
    DYTI_BF16,
    DYTI_F16,
    DYTI_I32,
    DYTI_I64,
    DYTI_DTYPE_COUNT
};

enum dyti_kind {
    DYTI_PARAM,      /* what the forward pass reads */
    DYTI_GRAD,       /* f32 */
    DYTI_MASTER,     /* f32, what the optimizer updates */
    DYTI_EXP_AVG,    /* f32, first moment */
    DYTI_EXP_AVG_SQ, /* f32, second moment */
    DYTI_EXTRA,      /* state without a parameter's shape; dtype per tensor */
    DYTI_KIND_COUNT
};

/* Bytes of one element. */
uint32_t dyti_dtype_bytes(enum dyti_dtype dtype);
/* "f32", "bf16", … static; "?" outside the table. */
const char *dyti_dtype_name(enum dyti_dtype dtype);
/* "param", "grad", "master", "exp_avg", "exp_avg_sq",
 * "extra". */
const char *dyti_kind_name(enum dyti_kind kind);

#endif /* DYTI_BASE_DTYPE_H */
