/* The vocabulary of the kernel bodies on AVX-512 F, BW, DQ, VL: see
 * vec_scalar.h. */
#ifndef DYTI_VEC_AVX512_H
#define DYTI_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

typedef __m512 vf;

#define VL       16
#define DOT_MR   6
#define DOT_NR   4
#define OUTER_MR 12
#define OUTER_NV 2

static inline __mmask16 mask_of(int64_t n)
{
    return (__mmask16)((1u << n) - 1u);
}

static inline vf v_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline vf v_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(mask_of(n), p);
}

static inline void v_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}

static inline void v_store_n(float *p, vf x, int64_t n)
{
    _mm512_mask_storeu_ps(p, mask_of(n), x);
}

static inline void v_stream(float *p, vf x)
{
    _mm512_stream_ps(p, x);
}

static inline void v_fence(void)
{
    _mm_sfence();
}

static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

static inline vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

static inline vf v_sqrt(vf x)
{
    return _mm512_sqrt_ps(x);
}

static inline vf v_round(vf x)
{
    return _mm512_roundscale_ps(x,
                                _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline vf v_scale2(vf x, vf n)
{
    return _mm512_scalef_ps(x, n);
}

/* x where not a < b, else 0: NaN stays. */
static inline vf v_keep_ge(vf x, vf a, vf b)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ), x);
}

/* x in the first n lanes, `other` in the rest. */
static inline vf v_edge(vf x, float other, int64_t n)
{
    return n == VL ? x : _mm512_mask_mov_ps(v_set(other), mask_of(n), x);
}

static inline __m256 v_fold(vf x)
{
    return _mm256_add_ps(_mm512_castps512_ps256(x),
                         _mm512_extractf32x8_ps(x, 1));
}

static inline __m128 v_fold2(vf x)
{
    __m256 y = v_fold(x);

    return _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
}

static inline float v_sum(vf x)
{
    __m128 s = v_fold2(x);

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* v_sum of four vectors: the same tree, so the same bits. */
static inline void v_sum4(const vf x[4], float out[4])
{
    __m128 s[4], lo, hi;

    for (int i = 0; i < 4; i++) {
        s[i] = v_fold2(x[i]);
    }
    _MM_TRANSPOSE4_PS(s[0], s[1], s[2], s[3]);
    lo = _mm_add_ps(s[0], s[2]);
    hi = _mm_add_ps(s[1], s[3]);
    _mm_storeu_ps(out, _mm_add_ps(lo, hi));
}

static inline float v_top(vf x)
{
    __m256 y =
        _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 s =
        _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));

    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

static inline vf v_widen_bf16(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

static inline vf v_load_bf16(const uint16_t *p)
{
    return v_widen_bf16(_mm256_loadu_si256((const __m256i *)p));
}

static inline vf v_load_bf16_n(const uint16_t *p, int64_t n)
{
    return v_widen_bf16(_mm256_maskz_loadu_epi16(mask_of(n), p));
}

/* To nearest even; NaN stays a quiet NaN. */
static inline __m256i v_narrow_bf16(vf x)
{
    __m512i u = _mm512_castps_si512(x);
    __m512i odd =
        _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i even =
        _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);

    even = _mm512_mask_or_epi32(even, nan, u, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(even, 16));
}

static inline void v_store_bf16(uint16_t *p, vf x)
{
    _mm256_storeu_si256((__m256i *)p, v_narrow_bf16(x));
}

static inline void v_store_bf16_n(uint16_t *p, vf x, int64_t n)
{
    _mm256_mask_storeu_epi16(p, mask_of(n), v_narrow_bf16(x));
}

static inline vf v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

/* To nearest even; NaN becomes the one quiet NaN of its sign. */
static inline void v_store_f16(uint16_t *p, vf x)
{
    __m512 quiet =
        _mm512_or_ps(_mm512_and_ps(x, _mm512_set1_ps(-0.0f)),
                     _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));

    x = _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet);
    _mm256_storeu_si256((__m256i *)p,
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

/* Σ x² of VL floats added to double lanes. */
typedef struct {
    __m512d lo, hi;
} vd;

static inline vd vd_zero(void)
{
    return (vd){_mm512_setzero_pd(), _mm512_setzero_pd()};
}

static inline vd vd_add_squares(vd sum, vf x)
{
    __m512d lo = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    __m512d hi = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));

    return (vd){_mm512_fmadd_pd(lo, lo, sum.lo),
                _mm512_fmadd_pd(hi, hi, sum.hi)};
}

static inline double vd_sum(vd x)
{
    double lane[8];

    _mm512_storeu_pd(lane, _mm512_add_pd(x.lo, x.hi));
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* dst[c*ldd + r] = src[r*lds + c] for 4 x 4 elements. */
static inline void v_transpose4(const float *src, int64_t lds, float *dst,
                                int64_t ldd)
{
    __m128 r[4];

    for (int i = 0; i < 4; i++) {
        r[i] = _mm_loadu_ps(src + i * lds);
    }
    _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]);
    for (int i = 0; i < 4; i++) {
        _mm_storeu_ps(dst + i * ldd, r[i]);
    }
}

/* 64-bit lanes of the content hash. */
typedef uint64_t hv __attribute__((vector_size(64)));

#define HASH_LANES 8

static inline hv hv_load16(const char *p)
{
    return (hv)_mm512_cvtepu16_epi64(_mm_loadu_si128((const __m128i *)p));
}

static inline hv hv_load32(const char *p)
{
    return (hv)_mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)p));
}

static inline hv hv_load64(const char *p)
{
    return (hv)_mm512_loadu_si512(p);
}

#endif /* DYTI_VEC_AVX512_H */
