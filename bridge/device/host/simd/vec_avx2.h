/* The vocabulary of the kernel bodies on AVX2, FMA and F16C: see vec_scalar.h.
 */
#ifndef DYTI_VEC_AVX2_H
#define DYTI_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef __m256 vf;

#define VL       8
#define DOT_MR   3
#define DOT_NR   4
#define OUTER_MR 6
#define OUTER_NV 2

static const int32_t mask_table[16] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                       0,  0,  0,  0,  0,  0,  0,  0};

static inline __m256i mask_of(int64_t n)
{
    return _mm256_loadu_si256((const __m256i *)(mask_table + 8 - n));
}

static inline vf v_set(float x)
{
    return _mm256_set1_ps(x);
}

static inline vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline vf v_load_n(const float *p, int64_t n)
{
    return _mm256_maskload_ps(p, mask_of(n));
}

static inline void v_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}

static inline void v_store_n(float *p, vf x, int64_t n)
{
    _mm256_maskstore_ps(p, mask_of(n), x);
}

static inline void v_stream(float *p, vf x)
{
    _mm256_stream_ps(p, x);
}

static inline void v_fence(void)
{
    _mm_sfence();
}

static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vf v_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}

static inline vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

static inline vf v_sqrt(vf x)
{
    return _mm256_sqrt_ps(x);
}

static inline vf v_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline vf v_power2(__m256i n)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

static inline vf v_scale2(vf x, vf n)
{
    __m256i i = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(i, 1);

    return x * v_power2(half) * v_power2(_mm256_sub_epi32(i, half));
}

/* x where not a < b, else 0: NaN stays. */
static inline vf v_keep_ge(vf x, vf a, vf b)
{
    return _mm256_and_ps(x, _mm256_cmp_ps(a, b, _CMP_NLT_UQ));
}

/* x in the first n lanes, `other` in the rest. */
static inline vf v_edge(vf x, float other, int64_t n)
{
    return n == VL ? x
                   : _mm256_blendv_ps(_mm256_set1_ps(other), x,
                                      _mm256_castsi256_ps(mask_of(n)));
}

static inline float v_sum(vf x)
{
    __m128 s =
        _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* v_sum of four vectors: the same tree, so the same bits. */
static inline void v_sum4(const vf x[4], float out[4])
{
    __m128 s[4], lo, hi;

    for (int i = 0; i < 4; i++) {
        s[i] = _mm_add_ps(_mm256_castps256_ps128(x[i]),
                          _mm256_extractf128_ps(x[i], 1));
    }
    _MM_TRANSPOSE4_PS(s[0], s[1], s[2], s[3]);
    lo = _mm_add_ps(s[0], s[2]);
    hi = _mm_add_ps(s[1], s[3]);
    _mm_storeu_ps(out, _mm_add_ps(lo, hi));
}

static inline float v_top(vf x)
{
    __m128 s =
        _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

static inline vf v_load_bf16(const uint16_t *p)
{
    __m128i h = _mm_loadu_si128((const __m128i *)p);

    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

static inline vf v_load_bf16_n(const uint16_t *p, int64_t n)
{
    uint16_t tail[8] = {0};

    memcpy(tail, p, (size_t)n * sizeof(tail[0]));
    return v_load_bf16(tail);
}

/* To nearest even; NaN stays a quiet NaN. */
static inline void v_store_bf16(uint16_t *p, vf x)
{
    __m256i u = _mm256_castps_si256(x);
    __m256i odd =
        _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i even =
        _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i h = _mm256_srli_epi32(_mm256_blendv_epi8(even, quiet, nan), 16);

    h = _mm256_packus_epi32(h, h);
    h = _mm256_permute4x64_epi64(h, 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(h));
}

static inline void v_store_bf16_n(uint16_t *p, vf x, int64_t n)
{
    uint16_t tail[8];

    v_store_bf16(tail, x);
    memcpy(p, tail, (size_t)n * sizeof(tail[0]));
}

static inline vf v_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

/* To nearest even; NaN becomes the one quiet NaN of its sign. */
static inline void v_store_f16(uint16_t *p, vf x)
{
    __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    __m256 quiet =
        _mm256_or_ps(_mm256_and_ps(x, _mm256_set1_ps(-0.0f)),
                     _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)));

    x = _mm256_blendv_ps(x, quiet, nan);
    _mm_storeu_si128((__m128i *)p,
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

/* Σ x² of VL floats added to double lanes. */
typedef struct {
    __m256d lo, hi;
} vd;

static inline vd vd_zero(void)
{
    return (vd){_mm256_setzero_pd(), _mm256_setzero_pd()};
}

static inline vd vd_add_squares(vd sum, vf x)
{
    __m256d lo = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    __m256d hi = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));

    return (vd){_mm256_fmadd_pd(lo, lo, sum.lo),
                _mm256_fmadd_pd(hi, hi, sum.hi)};
}

static inline double vd_sum(vd x)
{
    double lane[4];

    _mm256_storeu_pd(lane, _mm256_add_pd(x.lo, x.hi));
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
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
typedef uint64_t hv __attribute__((vector_size(32)));

#define HASH_LANES 4

static inline hv hv_load16(const char *p)
{
    return (hv)_mm256_cvtepu16_epi64(_mm_loadl_epi64((const __m128i *)p));
}

static inline hv hv_load32(const char *p)
{
    return (hv)_mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)p));
}

static inline hv hv_load64(const char *p)
{
    return (hv)_mm256_loadu_si256((const __m256i *)p);
}

#endif /* DYTI_VEC_AVX2_H */
