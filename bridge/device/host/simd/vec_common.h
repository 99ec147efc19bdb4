/* What the kernel bodies share on top of a vec_*.h. */
#ifndef DYTI_VEC_COMMON_H
#define DYTI_VEC_COMMON_H

#include "base/dtype.h"
#include "base/num.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Loops over register blocks of constant size must be unrolled fully, or the
 * accumulators live in memory. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 64")
#endif
#define INLINE static inline __attribute__((always_inline))

/* The last cols % VL elements, or 0. */
#define TAIL(cols) ((cols) % VL)

/* Do `body` for each vector of an array: at element i, its first n lanes. */
#define VECTORS(count, body)                                                   \
    do {                                                                       \
        int64_t i = 0;                                                         \
                                                                               \
        for (; i + VL <= (count); i += VL) {                                   \
            const int64_t n = VL;                                              \
            body;                                                              \
        }                                                                      \
        if (i < (count)) {                                                     \
            const int64_t n = (count)-i;                                       \
            body;                                                              \
        }                                                                      \
    } while (0)

INLINE vf v_zero(void)
{
    return v_set(0.0f);
}

/* VL elements of a weight, f32 or bf16, from element i on. */
INLINE vf v_weight(const void *w, enum dyti_dtype dtype, int64_t i)
{
    return dtype == DYTI_F32 ? v_load((const float *)w + i)
                             : v_load_bf16((const uint16_t *)w + i);
}

INLINE vf v_weight_n(const void *w, enum dyti_dtype dtype, int64_t i, int64_t n)
{
    return dtype == DYTI_F32 ? v_load_n((const float *)w + i, n)
                             : v_load_bf16_n((const uint16_t *)w + i, n);
}

INLINE vf v_part(const float *p, int64_t n)
{
    return n == VL ? v_load(p) : v_load_n(p, n);
}

INLINE void v_put(float *p, vf x, int64_t n)
{
    if (n == VL) {
        v_store(p, x);
    } else {
        v_store_n(p, x, n);
    }
}

INLINE vf v_weight_part(const void *w, enum dyti_dtype dtype, int64_t i,
                        int64_t n)
{
    return n == VL ? v_weight(w, dtype, i) : v_weight_n(w, dtype, i, n);
}

/* e^x within 2 ulp; 0 below the normal range, infinity above; NaN stays.
 * x = n ln 2 + r with |r| <= ln 2 / 2, e^r by a polynomial. */
INLINE vf v_exp(vf x)
{
    const vf low = v_set(-87.33654f);
    vf c = v_max(low, v_min(v_set(89.0f), x));
    vf n = v_round(c * v_set(1.44269504089f));
    vf r = v_fma(n, v_set(-0.693359375f), c);
    vf p = v_set(1.9875691500e-4f);

    r = v_fma(n, v_set(2.12194440e-4f), r);
    p = v_fma(p, r, v_set(1.3981999507e-3f));
    p = v_fma(p, r, v_set(8.3334519073e-3f));
    p = v_fma(p, r, v_set(4.1665795894e-2f));
    p = v_fma(p, r, v_set(1.6666665459e-1f));
    p = v_fma(p, r, v_set(5.0000001201e-1f));
    p = v_fma(p, r * r, r) + v_set(1.0f);
    return v_keep_ge(v_scale2(p, n), x, low);
}

/* ln x as float of a double series: the nearest float but for ties of the
 * last bits, the same on every machine, and without libm, which
 * libdynatrain.so does not need.  x = m 2^e with m within sqrt 2 of 1,
 * ln m = 2 artanh s with s = (m - 1) / (m + 1), |s| < 0.172. */
static inline float f_log(float x)
{
    uint32_t u = dyti_f32_bits(x);
    int32_t e = 0;
    double s, z, sum = 0.0;

    if (!(x > 0.0f) || u >= 0x7f800000u) {
        return x == 0.0f ? -INFINITY : x < 0.0f ? NAN : x;
    }
    if (u < 0x00800000u) { /* subnormal */
        u = dyti_f32_bits(x * 0x1p24f);
        e = -24;
    }
    e += (int32_t)(u >> 23) - 127;
    u = (u & 0x007fffffu) | 0x3f800000u;
    if (u > 0x3fb504f3u) { /* sqrt 2 */
        u -= 0x00800000u;
        e++;
    }
    s = ((double)dyti_bits_f32(u) - 1.0) / ((double)dyti_bits_f32(u) + 1.0);
    z = s * s;
    for (int k = 17; k >= 1; k -= 2) {
        sum = sum * z + 1.0 / k;
    }
    return (float)(2.0 * s * sum + e * 0.6931471805599453);
}

#endif /* DYTI_VEC_COMMON_H */
