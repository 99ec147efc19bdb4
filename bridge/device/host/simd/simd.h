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

/* Keys and values of one head: position p at element p*stride, or through the
 * block table of the cache. */
struct simd_keys {
    const void *k, *v;
    enum dyti_dtype dtype;
    int64_t stride, dim;
    const int32_t *block; /* NULL: one run, behind that of a prefix */
    int64_t block_size;
    /* Positions < prefix lie from element prefix_at on, which may be before k;
     * the others follow from element 0 on.  0: no prefix. */
    int64_t prefix, prefix_at;
};

/* Rows of one query head: row r, at q + r*ldq, sees before + r + 1 positions.
 */
struct simd_attend {
    struct simd_keys keys;
    const float *q;
    int64_t ldq, rows, before;
    float scale;
    float *out, *lse; /* lse: NULL or one value per row, ldl apart */
    int64_t ldo, ldl;
};

/* keys.block is NULL, before is keys.prefix; dk and dv lie as k and v do, dq
 * has ldq, dout and out have ldo. */
struct simd_attend_back {
    struct simd_keys keys;
    const float *q, *dout, *out, *lse;
    int64_t ldq, ldo, ldl, rows;
    float scale;
    float *dq, *dk, *dv;
    bool add; /* to dk and dv of the rows; written otherwise (prefix: added) */
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

    /* Floats of scratch for rows of `dim`, the last of which sees `seen`. */
    int64_t (*attend_scratch)(int64_t dim, int64_t rows, int64_t seen);
    void (*attend)(const struct simd_attend *t, float *scratch);
    void (*attend_back)(const struct simd_attend_back *t, float *scratch);

    /* One row, or one head of it.  norm returns 1 / rms; norm_back adds to
     * dw. */
    float (*norm)(const float *x, const void *w, enum dyti_dtype dtype,
                  float eps, int64_t cols, float *y);
    void (*norm_back)(const float *dy, const float *x, const void *w,
                      enum dyti_dtype dtype, float inv, int64_t cols, float *dx,
                      bool accumulate, float *dw);
    void (*add_weight)(float *y, const void *w, enum dyti_dtype dtype,
                       int64_t cols);
    void (*take_weight)(float *y, const void *w, enum dyti_dtype dtype,
                        int64_t at, int64_t cols);
    void (*rope)(float *x, int64_t half, const float *cosine, const float *sine,
                 bool inverse);
    void (*swiglu)(const float *gate, const float *up, int64_t f, float *y);
    void (*swiglu_back)(const float *dy, const float *gate, const float *up,
                        int64_t f, float *dgate, float *dup);
    float (*row_max)(const float *x, int64_t cols, float scale);
    void (*row_sums)(const float *x, int64_t cols, float scale, float max,
                     float *out_sum, float *out_zsum);
    void (*xent_back)(float *x, int64_t cols, float scale, float lse,
                      float entropy, float dl, float dh);

    /* Rows of copies (convert: between different float types; stream: past
     * the caches, to be followed by a fence; rows: several, of a few bytes
     * each) and of the content hash. */
    void (*convert)(const void *src, enum dyti_dtype from, void *dst,
                    enum dyti_dtype to, int64_t count);
    void (*stream)(const char *src, char *dst, int64_t bytes);
    void (*fence)(void);
    void (*rows)(const char *src, int64_t src_stride, char *dst,
                 int64_t dst_stride, int64_t bytes, int64_t rows);
    void (*stream_rows)(const char *src, int64_t src_stride, char *dst,
                        int64_t dst_stride, int64_t bytes, int64_t rows);
    uint64_t (*hash)(const char *p, int64_t bytes, int64_t count, uint64_t salt,
                     uint64_t index, uint64_t step);

    /* A part of a flat array. */
    void (*add)(float *y, const float *x, int64_t count);
    void (*scale)(float *x, int64_t count, float s);
    double (*sum_squares)(const float *x, int64_t count);
    void (*adamw)(const struct dyti_adamw *how, int64_t count,
                  const float *grad, float *master, float *exp_avg,
                  float *exp_avg_sq, void *param, enum dyti_dtype param_dtype);
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
