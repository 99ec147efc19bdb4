/* Small products inside a tile of attention: everything padded to vectors, in
 * the first cache. */

/* c[m, nv vectors] (+)= a·b: element (i, p) of a at a[i*a_row + p*a_col]. */
struct mini {
    int64_t m, k;
    const float *a;
    int64_t a_row, a_col;
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
    bool add;
};

INLINE void mini_block(const struct mini *t, int64_t i, int64_t j, const int mr,
                       const int nv)
{
    vf acc[OUTER_MR][OUTER_NV];
    const float *a = t->a + i * t->a_row, *b = t->b + j;
    float *c = t->c + i * t->ldc + j;

    UNROLL
    for (int r = 0; r < mr; r++) {
        UNROLL
        for (int s = 0; s < nv; s++) {
            acc[r][s] = t->add ? v_load(c + r * t->ldc + s * VL) : v_zero();
        }
    }
    for (int64_t p = 0; p < t->k; p++) {
        vf w[OUTER_NV];

        UNROLL
        for (int s = 0; s < nv; s++) {
            w[s] = v_load(b + p * t->ldb + s * VL);
        }
        UNROLL
        for (int r = 0; r < mr; r++) {
            vf x = v_set(a[r * t->a_row + p * t->a_col]);

            UNROLL
            for (int s = 0; s < nv; s++) {
                acc[r][s] = v_fma(x, w[s], acc[r][s]);
            }
        }
    }
    UNROLL
    for (int r = 0; r < mr; r++) {
        UNROLL
        for (int s = 0; s < nv; s++) {
            v_store(c + r * t->ldc + s * VL, acc[r][s]);
        }
    }
}

INLINE void mini_stripe(const struct mini *t, int64_t j, const int nv)
{
    int64_t i = 0;

    for (; i + OUTER_MR <= t->m; i += OUTER_MR) {
        mini_block(t, i, j, OUTER_MR, nv);
    }
    for (; i + OUTER_MR / 2 <= t->m; i += OUTER_MR / 2) {
        mini_block(t, i, j, OUTER_MR / 2, nv);
    }
#if OUTER_MR > 8
    for (; i + 3 <= t->m; i += 3) {
        mini_block(t, i, j, 3, nv);
    }
#endif
    for (; i < t->m; i++) {
        mini_block(t, i, j, 1, nv);
    }
}

static void mini_run(const struct mini *t, int64_t columns)
{
    int64_t j = 0;

    for (; j + OUTER_NC <= columns; j += OUTER_NC) {
        mini_stripe(t, j, OUTER_NV);
    }
    for (; j < columns; j += VL) {
        mini_stripe(t, j, 1);
    }
}

/* dst[rows][ldd] = src, zeros up to whole vectors. */
static void tile_load(const void *src, enum dyti_dtype dtype, int64_t first,
                      int64_t stride, int64_t rows, int64_t cols, float *dst,
                      int64_t ldd)
{
    for (int64_t r = 0; r < rows; r++) {
        VECTORS(cols,
                v_store(dst + r * ldd + i,
                        v_weight_part(src, dtype, first + r * stride + i, n)));
    }
}

/* dst[rows][cols] (+)= src, true columns only. */
static void tile_store(const float *src, int64_t lds, int64_t rows,
                       int64_t cols, float *dst, int64_t stride, bool add)
{
    for (int64_t r = 0; r < rows; r++) {
        VECTORS(cols, {
            vf x = v_load(src + r * lds + i);

            if (add) {
                x = x + v_part(dst + r * stride + i, n);
            }
            v_put(dst + r * stride + i, x, n);
        });
    }
}
