/* The vocabulary of the kernel bodies on plain C: a vector of one.  The other
 * vec_*.h give the same names on wider registers:
 *   vf, VL           a vector of VL floats
 *   *_n              the first n <= VL elements only; others read as zero
 *   v_fma            a*b + c
 *   v_sum, v_top     over the lanes, in a fixed order
 *   v_scale2         x * 2^n for whole n
 *   v_min, v_max     give the second operand where one is NaN */
#ifndef DYTI_VEC_SCALAR_H
#define DYTI_VEC_SCALAR_H

#include "base/num.h"

#include <math.h>
#include <stdint.h>

typedef float vf;

#define VL 1

/* Register blocks of the GEMM bodies: rows x columns (dot), rows x vectors
 * (outer). */
#define DOT_MR   2
#define DOT_NR   4
#define OUTER_MR 4
#define OUTER_NV 4

static inline vf v_set(float x)
{
    return x;
}

static inline vf v_load(const float *p)
{
    return *p;
}

static inline vf v_load_n(const float *p, int64_t n)
{
    (void)n;
    return *p;
}

static inline void v_store(float *p, vf x)
{
    *p = x;
}

static inline void v_store_n(float *p, vf x, int64_t n)
{
    (void)n;
    *p = x;
}

static inline void v_stream(float *p, vf x)
{
    *p = x;
}

static inline void v_fence(void)
{
}

static inline vf v_fma(vf a, vf b, vf c)
{
    return a * b + c;
}

static inline vf v_min(vf a, vf b)
{
    return a < b ? a : b;
}

static inline vf v_max(vf a, vf b)
{
    return a > b ? a : b;
}

static inline vf v_sqrt(vf x)
{
    return sqrtf(x);
}

static inline vf v_round(vf x)
{
    /* |x| < 2^22 here.  Round to nearest even, as the vector units do, and
     * without libm, which libdynatrain.so does not need. */
    return x + 0x1.8p23f - 0x1.8p23f;
}

static inline vf v_scale2(vf x, vf n)
{
    int32_t i = (int32_t)n, half = i / 2;

    return x * dyti_bits_f32((uint32_t)(half + 127) << 23) *
           dyti_bits_f32((uint32_t)(i - half + 127) << 23);
}

/* x where a >= b, else 0. */
static inline vf v_keep_ge(vf x, vf a, vf b)
{
    return a < b ? 0.0f : x;
}

/* x in the first n lanes, `other` in the rest. */
static inline vf v_edge(vf x, float other, int64_t n)
{
    (void)other;
    (void)n;
    return x;
}

static inline float v_sum(vf x)
{
    return x;
}

static inline void v_sum4(const vf x[4], float out[4])
{
    for (int i = 0; i < 4; i++) {
        out[i] = x[i];
    }
}

static inline float v_top(vf x)
{
    return x;
}

static inline vf v_load_bf16(const uint16_t *p)
{
    return dyti_bf16_to_f32(*p);
}

static inline vf v_load_bf16_n(const uint16_t *p, int64_t n)
{
    (void)n;
    return dyti_bf16_to_f32(*p);
}

static inline void v_store_bf16(uint16_t *p, vf x)
{
    *p = dyti_f32_to_bf16(x);
}

static inline void v_store_bf16_n(uint16_t *p, vf x, int64_t n)
{
    (void)n;
    *p = dyti_f32_to_bf16(x);
}

static inline vf v_load_f16(const uint16_t *p)
{
    return dyti_f16_to_f32(*p);
}

static inline void v_store_f16(uint16_t *p, vf x)
{
    *p = dyti_f32_to_f16(x);
}

/* Σ x² of VL floats added to double lanes. */
typedef double vd;

static inline vd vd_zero(void)
{
    return 0.0;
}

static inline vd vd_add_squares(vd sum, vf x)
{
    return sum + (double)x * x;
}

static inline double vd_sum(vd x)
{
    return x;
}

/* dst[c*ldd + r] = src[r*lds + c] for 4 x 4 elements. */
static inline void v_transpose4(const float *src, int64_t lds, float *dst,
                                int64_t ldd)
{
    for (int64_t r = 0; r < 4; r++) {
        for (int64_t c = 0; c < 4; c++) {
            dst[c * ldd + r] = src[r * lds + c];
        }
    }
}

/* 64-bit lanes of the content hash. */
typedef uint64_t hv __attribute__((vector_size(8)));

#define HASH_LANES 1

static inline hv hv_load16(const char *p)
{
    uint16_t x;

    memcpy(&x, p, sizeof(x));
    return (hv){x};
}

static inline hv hv_load32(const char *p)
{
    uint32_t x;

    memcpy(&x, p, sizeof(x));
    return (hv){x};
}

static inline hv hv_load64(const char *p)
{
    uint64_t x;

    memcpy(&x, p, sizeof(x));
    return (hv){x};
}

#endif /* DYTI_VEC_SCALAR_H */
