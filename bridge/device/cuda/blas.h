/* cuBLAS, opened when the first product is asked for: nothing is linked with
 * it.  A library that is not there, or too old, is refused by name. */
#ifndef DYTI_DEVICE_CUDA_BLAS_H
#define DYTI_DEVICE_CUDA_BLAS_H

#include "device/cuda/handle.h"

/* How a product is made: which dtype both factors have in memory, and with how
 * many bits f32 is multiplied. */
enum dyti_cuda_product {
    DYTI_CUDA_F32,  /* all 24 bits */
    DYTI_CUDA_TF32, /* 11 bits */
    DYTI_CUDA_BF16
};

/* Column-major, as cuBLAS has it: c[rows, cols] (+)= a·b, with sums in f32;
 * *_t: stored the other way.  a and b are of the product's dtype. */
struct dyti_cuda_blas_gemm {
    int64_t rows, cols, inner;
    const void *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
    bool a_t, b_t, accumulate;
    enum dyti_cuda_product product;
};

/* Open the library for a handle's queue, with a workspace of its own, so that
 * equal products on one kind of GPU give equal bits.
 * @return DYT_OK (also if it is open), DYT_ERR_UNSUPPORTED, DYT_ERR_NOMEM,
 *         DYT_ERR_DEVICE */
enum dyt_status dyti_cuda_blas_open(struct dyti_cuda *k);
void dyti_cuda_blas_close(struct dyti_cuda *k);
enum dyt_status dyti_cuda_blas_gemm(struct dyti_cuda *k,
                                    const struct dyti_cuda_blas_gemm *g);

#endif /* DYTI_DEVICE_CUDA_BLAS_H */
