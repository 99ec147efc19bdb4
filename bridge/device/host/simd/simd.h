/* One tile of each kernel, on one instruction set.  The bodies (*_body.h) are
 * written once over the vocabulary of vec_*.h and compiled once per set; the
 * files beside this folder cut the work into tiles and call these.
 *
 * All functions: one thread, no allocation, a fixed order of summation that
 * depends on the shape of the tile only. */
#ifndef DYTI_DEVICE_HOST_SIMD_H
#define DYTI_DEVICE_HOST_SIMD_H

#include "ops/kernels.h"

/* c[m,n] = a·bᵀ (+ c): b stored [n,k], f32 or bf16.  Every element is one sum
 * over k in lanes, whatever m and n are. */
struct simd_dot {
    int64_t m, n, k;
    const float *a;
    int64_t lda;
    const void *b;
    int64_t ldb;
    enum dyti_dtype b_dtype;
    float *c;
    int64_t ldc;
    bool accumulate;
};

/* c[m,n] = a·b (+ c): element (i, p) of a at a[i*a_row + p*a_col]; b stored
 * [k,n], or [n,k] if b_trans, f32 or bf16. */
struct simd_outer {
    int64_t m, n, k;
    const float *a;
    int64_t a_row, a_col;
    const void *b;
    int64_t ldb;
    enum dyti_dtype b_dtype;
    bool b_trans;
    float *c;
    int64_t ldc;
    bool accumulate;
};

struct host_simd {
    int64_t lanes;
    /* Rows of a register block, and columns of one of `outer`: tile borders
     * are best multiples of them. */
    int64_t dot_rows, dot_cols, outer_rows, outer_cols;
    int64_t outer_scratch; /* floats that `outer` needs */

    void (*dot)(const struct simd_dot *t);
    void (*outer)(const struct simd_outer *t, float *scratch);
    void (*widen)(const uint16_t *src, float *dst, int64_t count);
    void (*narrow)(const float *src, uint16_t *dst, int64_t count);
};

/* c[m,n] = a·bᵀ (+ c), both bf16: a [m,k] at its own leading dimension, rows
 * padded with zeros to a multiple of 32; b stored [n,k]. */
struct simd_dot_bf16 {
    int64_t m, n, k;
    const uint16_t *a;
    int64_t lda;
    const uint16_t *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
    bool accumulate;
};

/* On AVX-512-BF16 only. */
void dyti_simd_dot_bf16(const struct simd_dot_bf16 *t);

extern const struct host_simd dyti_host_simd_scalar, dyti_host_simd_avx2,
    dyti_host_simd_avx512;

#endif /* DYTI_DEVICE_HOST_SIMD_H */
