/* Matrix products on register blocks.
 *   dot    y = x·Wᵀ with W as it lies: vectors run along k, one accumulator per
 *          element, lanes added at the end.  No packing.
 *   outer  the others: vectors run along n; b is packed (and widened) into a
 *          panel that stays in the cache, a is read as it lies. */

/* ---- dot ---- */

INLINE void dot_finish(const struct simd_dot *t, int64_t i, int64_t j,
                       const int nr, const vf *acc)
{
    float sum[4], *c = t->c + i * t->ldc + j;

    if (nr == 4) {
        v_sum4(acc, sum);
    } else {
        UNROLL
        for (int x = 0; x < nr; x++) {
            sum[x] = v_sum(acc[x]);
        }
    }
    UNROLL
    for (int x = 0; x < nr; x++) {
        c[x] = t->accumulate ? c[x] + sum[x] : sum[x];
    }
}

/* The weights of the next columns into the second cache, which this pass has
 * time to wait for; into the first they would drive out what is in use.  Beyond
 * the end it is a hint without effect. */
INLINE void prefetch_weight(const void *w, enum dyti_dtype dtype, int64_t i)
{
    int64_t bytes = dtype == DYTI_F32 ? 4 : 2;

    __builtin_prefetch((const void *)((uintptr_t)w + (uintptr_t)(i * bytes)), 0,
                       2);
}

INLINE void dot_block(const struct simd_dot *t, int64_t i, int64_t j,
                      const int mr, const int nr, const enum dyti_dtype dtype,
                      const bool ahead)
{
    vf acc[DOT_MR][4], x[DOT_MR];
    const float *a = t->a + i * t->lda;
    int64_t whole = t->k - TAIL(t->k), lda = t->lda, ldb = t->ldb;

    UNROLL
    for (int r = 0; r < mr; r++) {
        UNROLL
        for (int s = 0; s < nr; s++) {
            acc[r][s] = v_zero();
        }
    }
    for (int64_t p = 0; p < whole; p += VL) {
        UNROLL
        for (int r = 0; r < mr; r++) {
            x[r] = v_load(a + r * lda + p);
        }
        UNROLL
        for (int s = 0; s < nr; s++) {
            vf w = v_weight(t->b, dtype, (j + s) * ldb + p);

            if (ahead) {
                prefetch_weight(t->b, dtype, (j + s + nr) * ldb + p);
            }
            UNROLL
            for (int r = 0; r < mr; r++) {
                acc[r][s] = v_fma(x[r], w, acc[r][s]);
            }
        }
    }
    if (whole < t->k) {
        UNROLL
        for (int s = 0; s < nr; s++) {
            vf w = v_weight_n(t->b, dtype, (j + s) * ldb + whole, t->k - whole);

            UNROLL
            for (int r = 0; r < mr; r++) {
                acc[r][s] = v_fma(v_load_n(a + r * lda + whole, t->k - whole),
                                  w, acc[r][s]);
            }
        }
    }
    UNROLL
    for (int r = 0; r < mr; r++) {
        dot_finish(t, i + r, j, nr, acc[r]);
    }
}

/* The last t->m - i < DOT_MR rows. */
INLINE void dot_rest(const struct simd_dot *t, int64_t i, int64_t j,
                     const int nr, const enum dyti_dtype dtype,
                     const bool ahead)
{
    switch (t->m - i) {
    case 1:
        dot_block(t, i, j, 1, nr, dtype, ahead);
        break;
#if DOT_MR > 2
    case 2:
        dot_block(t, i, j, 2, nr, dtype, ahead);
        break;
#endif
#if DOT_MR > 3
    case 3:
        dot_block(t, i, j, 3, nr, dtype, ahead);
        break;
    case 4:
        dot_block(t, i, j, 4, nr, dtype, ahead);
        break;
    case 5:
        dot_block(t, i, j, 5, nr, dtype, ahead);
        break;
#endif
    default:
        break;
    }
}

/* All rows against columns [j, j + nr). */
INLINE void dot_stripe(const struct simd_dot *t, int64_t j, const int nr,
                       const enum dyti_dtype dtype)
{
    int64_t i = DOT_MR;

    if (t->m < DOT_MR) {
        dot_rest(t, 0, j, nr, dtype, true);
        return;
    }
    dot_block(t, 0, j, DOT_MR, nr, dtype, true);
    for (; i + DOT_MR <= t->m; i += DOT_MR) {
        dot_block(t, i, j, DOT_MR, nr, dtype, false);
    }
    dot_rest(t, i, j, nr, dtype, false);
}

INLINE void dot_typed(const struct simd_dot *t, const enum dyti_dtype dtype)
{
    int64_t j = 0;

    for (; j + DOT_NR <= t->n; j += DOT_NR) {
        dot_stripe(t, j, DOT_NR, dtype);
    }
    for (; j < t->n; j++) {
        dot_stripe(t, j, 1, dtype);
    }
}

static void simd_dot_f32(const struct simd_dot *t)
{
    dot_typed(t, DYTI_F32);
}

static void simd_dot_bf16(const struct simd_dot *t)
{
    dot_typed(t, DYTI_BF16);
}

static void simd_dot_any(const struct simd_dot *t)
{
    if (t->b_dtype == DYTI_F32) {
        simd_dot_f32(t);
    } else {
        simd_dot_bf16(t);
    }
}

/* ---- outer ---- */

#define OUTER_NC (OUTER_NV * VL) /* columns of a panel */
#define OUTER_KC 256             /* rows of a panel */

/* panel[p][OUTER_NC] = b[p0 + p][j .. j + n), zeros beyond n. */
INLINE void pack_panel(const struct simd_outer *t, int64_t p0, int64_t kc,
                       int64_t j, int64_t n, const enum dyti_dtype dtype,
                       float *panel)
{
    for (int64_t p = 0; p < kc; p++) {
        int64_t at = (p0 + p) * t->ldb + j;

        UNROLL
        for (int s = 0; s < OUTER_NV; s++) {
            int64_t left = n - s * VL;
            vf w = v_zero();

            if (left >= VL) {
                w = v_weight(t->b, dtype, at + s * VL);
            } else if (left > 0) {
                w = v_weight_n(t->b, dtype, at + s * VL, left);
            }
            v_store(panel + p * OUTER_NC + s * VL, w);
        }
    }
}

/* The same where b is stored [n,k]. */
static void pack_panel_trans(const struct simd_outer *t, int64_t p0, int64_t kc,
                             int64_t j, int64_t n, float *panel)
{
    const uint16_t *half = (const uint16_t *)t->b + j * t->ldb + p0;

    if (t->b_dtype == DYTI_F32) {
        tile_turn((const float *)t->b + j * t->ldb + p0, t->ldb, n, kc, panel,
                  OUTER_NC);
    } else {
        for (int64_t s = 0; s < n; s++) {
            for (int64_t p = 0; p < kc; p++) {
                panel[p * OUTER_NC + s] =
                    dyti_bf16_to_f32(half[s * t->ldb + p]);
            }
        }
    }
    for (int64_t p = 0; p < kc; p++) { /* zeros beyond n */
        for (int64_t s = n; s < OUTER_NC; s++) {
            panel[p * OUTER_NC + s] = 0.0f;
        }
    }
}

INLINE void outer_finish(float *c, int64_t n, bool add, const vf *acc,
                         const int nv)
{
    UNROLL
    for (int s = 0; s < nv; s++) {
        int64_t left = n - s * VL;
        float *at = c + s * VL;
        vf y = acc[s];

        if (left >= VL) {
            v_store(at, add ? y + v_load(at) : y + v_zero());
        } else if (left > 0) {
            v_store_n(at, add ? y + v_load_n(at, left) : y + v_zero(), left);
        }
    }
}

/* A panel that is ready: its columns [0, n), k from p0 on for kc. */
struct panel_part {
    const float *panel;
    int64_t p0, kc, j, n;
};

INLINE void outer_block(const struct simd_outer *t, const struct panel_part *w,
                        int64_t i, const int mr, const int nv)
{
    vf acc[OUTER_MR][OUTER_NV];
    int64_t row = t->a_row, col = t->a_col;
    const float *a = t->a + i * row + w->p0 * col;

    UNROLL
    for (int r = 0; r < mr; r++) {
        UNROLL
        for (int s = 0; s < nv; s++) {
            acc[r][s] = v_zero();
        }
    }
    for (int64_t p = 0; p < w->kc; p++) {
        vf b[OUTER_NV];

        UNROLL
        for (int s = 0; s < nv; s++) {
            b[s] = v_load(w->panel + p * OUTER_NC + s * VL);
        }
        UNROLL
        for (int r = 0; r < mr; r++) {
            vf x = v_set(a[r * row + p * col]);

            UNROLL
            for (int s = 0; s < nv; s++) {
                acc[r][s] = v_fma(x, b[s], acc[r][s]);
            }
        }
    }
    UNROLL
    for (int r = 0; r < mr; r++) {
        outer_finish(t->c + (i + r) * t->ldc + w->j, w->n,
                     t->accumulate || w->p0 > 0, acc[r], nv);
    }
}

/* All rows against one panel. */
INLINE void outer_stripe(const struct simd_outer *t, const struct panel_part *w,
                         const int nv)
{
    int64_t i = 0;

    for (; i + OUTER_MR <= t->m; i += OUTER_MR) {
        outer_block(t, w, i, OUTER_MR, nv);
    }
#if OUTER_MR > 4
    for (; i + 4 <= t->m; i += 4) {
        outer_block(t, w, i, 4, nv);
    }
#endif
    for (; i < t->m; i++) {
        outer_block(t, w, i, 1, nv);
    }
}

static void simd_outer_any(const struct simd_outer *t, float *scratch)
{
    struct panel_part w = {.panel = scratch};

    for (w.p0 = 0; w.p0 < t->k; w.p0 += OUTER_KC) {
        w.kc = t->k - w.p0 < OUTER_KC ? t->k - w.p0 : OUTER_KC;
        for (w.j = 0; w.j < t->n; w.j += OUTER_NC) {
            w.n = t->n - w.j < OUTER_NC ? t->n - w.j : OUTER_NC;
            if (t->b_trans) {
                pack_panel_trans(t, w.p0, w.kc, w.j, w.n, scratch);
            } else if (t->b_dtype == DYTI_F32) {
                pack_panel(t, w.p0, w.kc, w.j, w.n, DYTI_F32, scratch);
            } else {
                pack_panel(t, w.p0, w.kc, w.j, w.n, DYTI_BF16, scratch);
            }
            if (w.n <= VL) {
                outer_stripe(t, &w, 1);
            } else {
                outer_stripe(t, &w, OUTER_NV);
            }
        }
    }
}

/* ---- conversions ---- */

static void simd_widen(const uint16_t *src, float *dst, int64_t count)
{
    int64_t i = 0;

    for (; i + VL <= count; i += VL) {
        v_store(dst + i, v_load_bf16(src + i));
    }
    if (i < count) {
        v_store_n(dst + i, v_load_bf16_n(src + i, count - i), count - i);
    }
}

static void simd_narrow(const float *src, uint16_t *dst, int64_t count)
{
    int64_t i = 0;

    for (; i + VL <= count; i += VL) {
        v_store_bf16(dst + i, v_load(src + i));
    }
    if (i < count) {
        v_store_bf16_n(dst + i, v_load_n(src + i, count - i), count - i);
    }
}
