/* bf16 and f16 against f32, round to nearest even.  Bit-exact, branch-light,
 * so that kernels and references agree.  The smaller and larger of two. */
#ifndef DYTI_BASE_NUM_H
#define DYTI_BASE_NUM_H

#include <stdint.h>
#include <string.h>

static inline uint32_t dyti_f32_bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

static inline float dyti_bits_f32(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

/* Of numbers that are not NaN: without libm. */
static inline double dyti_min_f64(double a, double b)
{
    return b < a ? b : a;
}

static inline double dyti_max_f64(double a, double b)
{
    return b > a ? b : a;
}

static inline float dyti_bf16_to_f32(uint16_t h)
{
    return dyti_bits_f32((uint32_t)h << 16);
}

/* NaN stays a quiet NaN. */
static inline uint16_t dyti_f32_to_bf16(float x)
{
    uint32_t u = dyti_f32_bits(x);

    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((u >> 16) | 0x40u);
    }
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static inline float dyti_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exp = (h >> 10) & 0x1fu, man = h & 0x3ffu;

    if (exp == 31) {
        return dyti_bits_f32(sign | 0x7f800000u | (man << 13));
    }
    if (exp == 0) { /* zero or subnormal: man * 2^-24 is exact in f32 */
        float v = (float)man * 0x1p-24f;

        return sign ? -v : v;
    }
    return dyti_bits_f32(sign | ((exp + 112u) << 23) | (man << 13));
}

static inline uint16_t dyti_f32_to_f16(float x)
{
    uint32_t u = dyti_f32_bits(x);
    uint32_t sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;

    if (a > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (a >= 0x477ff000u) { /* rounds to 65536 or more */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (a < 0x38800000u) { /* subnormal: let the FPU round at 2^-24 */
        float v = dyti_bits_f32(a) + 0.5f; /* ulp of 0.5 is 2^-24 */

        return (uint16_t)(sign | (dyti_f32_bits(v) - 0x3f000000u));
    }
    return (uint16_t)(sign |
                      ((a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13));
}

#endif /* DYTI_BASE_NUM_H */
