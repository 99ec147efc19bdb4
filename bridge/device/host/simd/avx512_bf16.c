/* y = x·Wᵀ with bf16 products (AVX-512-BF16): as `dot` in gemm_body.h, two
 * elements of k to a lane. */
#include "device/host/simd/simd.h"
#include "device/host/simd/vec_avx512.h"
#include "device/host/simd/vec_common.h"

#define MR   6
#define NR   4
#define STEP 32

INLINE __m512bh load(const uint16_t *p)
{
    return (__m512bh)_mm512_loadu_si512(p);
}

INLINE void block(const struct simd_dot_bf16 *t, int64_t i, int64_t j,
                  const int mr, const int nr, const bool ahead)
{
    vf acc[MR][NR];
    const uint16_t *a = t->a + i * t->lda, *b = t->b + j * t->ldb;
    int64_t whole = t->k - t->k % STEP;

    UNROLL
    for (int r = 0; r < mr; r++) {
        UNROLL
        for (int s = 0; s < nr; s++) {
            acc[r][s] = v_zero();
        }
    }
    for (int64_t p = 0; p < t->k; p += STEP) {
        __m512bh x[MR];

        UNROLL
        for (int r = 0; r < mr; r++) {
            x[r] = load(a + r * t->lda + p);
        }
        UNROLL
        for (int s = 0; s < nr; s++) {
            const uint16_t *at = b + s * t->ldb + p;
            __m512bh w =
                p < whole ? load(at)
                          : (__m512bh)_mm512_maskz_loadu_epi16(
                                (__mmask32)((1u << (t->k - whole)) - 1u), at);

            if (ahead) { /* as in gemm_body.h */
                __builtin_prefetch((const void *)((uintptr_t)at +
                                                  (uintptr_t)(nr * t->ldb * 2)),
                                   0, 2);
            }
            UNROLL
            for (int r = 0; r < mr; r++) {
                acc[r][s] = _mm512_dpbf16_ps(acc[r][s], x[r], w);
            }
        }
    }
    UNROLL
    for (int r = 0; r < mr; r++) {
        UNROLL
        for (int s = 0; s < nr; s++) {
            float *c = t->c + (i + r) * t->ldc + j + s;
            float sum = v_sum(acc[r][s]);

            *c = t->accumulate ? *c + sum : sum;
        }
    }
}

INLINE void stripe(const struct simd_dot_bf16 *t, int64_t j, const int nr)
{
    int64_t i = 0;

    if (t->m >= MR) {
        block(t, 0, j, MR, nr, true);
        i = MR;
    }
    for (; i + MR <= t->m; i += MR) {
        block(t, i, j, MR, nr, false);
    }
    for (; i + 2 <= t->m; i += 2) {
        block(t, i, j, 2, nr, i == 0);
    }
    if (i < t->m) {
        block(t, i, j, 1, nr, false);
    }
}

void dyti_simd_dot_bf16(const struct simd_dot_bf16 *t)
{
    int64_t j = 0;

    for (; j + NR <= t->n; j += NR) {
        stripe(t, j, NR);
    }
    for (; j < t->n; j++) {
        stripe(t, j, 1);
    }
}
