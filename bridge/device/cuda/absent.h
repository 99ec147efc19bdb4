/* The entries of the kernel table that the cuda device has not got yet: the
 * model's own kernels.  Each answers DYT_ERR_UNSUPPORTED by its name. */
#ifndef DYTI_DEVICE_CUDA_ABSENT_H
#define DYTI_DEVICE_CUDA_ABSENT_H

#include "ops/kernels.h"

#define DYTI_CUDA_ABSENT(X)                                                    \
    X(rmsnorm)                                                                 \
    X(rmsnorm_back)                                                            \
    X(headnorm)                                                                \
    X(headnorm_back)                                                           \
    X(add_bias)                                                                \
    X(bias_back)                                                               \
    X(rope)                                                                    \
    X(swiglu)                                                                  \
    X(swiglu_back)                                                             \
    X(embed)                                                                   \
    X(embed_back)                                                              \
    X(attention_paged)                                                         \
    X(attention)                                                               \
    X(attention_back)                                                          \
    X(row_max)                                                                 \
    X(row_sums)                                                                \
    X(row_finish)                                                              \
    X(xent_back)                                                               \
    X(add)                                                                     \
    X(scale)                                                                   \
    X(sum_squares)                                                             \
    X(adamw)

#define DYTI_CUDA_DECLARE(name)                                                \
    __typeof__(*((struct dyti_kernel_ops *)0)->name) dyti_cuda_no_##name;
DYTI_CUDA_ABSENT(DYTI_CUDA_DECLARE)
#undef DYTI_CUDA_DECLARE

#endif /* DYTI_DEVICE_CUDA_ABSENT_H */
