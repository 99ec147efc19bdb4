/* Attention of one head of one sequence, a query row at a time, for the one or
 * few rows of decoding: scores of all keys that the row sees, softmax over
 * them, weighted sum of the values.  Keys are read as they lie: rows of the
 * fused matrix, or blocks of the cache. */

/* Positions [at, at + count) lie `stride` elements apart from element `first`.
 */
struct run {
    int64_t at, count, first;
};

/* The run from position `at` on, at most up to `end`. */
INLINE struct run run_from(const struct simd_keys *keys, int64_t at,
                           int64_t end)
{
    struct run run = {at, end - at, (at - keys->prefix) * keys->stride};

    if (at < keys->prefix) {
        int64_t left = keys->prefix - at;

        run.first = keys->prefix_at + at * keys->stride;
        run.count = run.count < left ? run.count : left;
    } else if (keys->block != NULL) {
        int64_t inside = at % keys->block_size;
        int64_t left = keys->block_size - inside;
        int64_t row = keys->block[at / keys->block_size] * keys->block_size;

        run.first = (row + inside) * keys->stride;
        run.count = run.count < left ? run.count : left;
    }
    return run;
}

/* out[x] = scale * q·(row x of `count` rows). */
INLINE void score_rows(const float *q, const void *rows, enum dyti_dtype dtype,
                       int64_t first, int64_t stride, int64_t dim, float scale,
                       float *out, const int count)
{
    int64_t whole = dim - TAIL(dim);
    vf acc[4];

    UNROLL
    for (int x = 0; x < count; x++) {
        acc[x] = v_zero();
    }
    for (int64_t d = 0; d < whole; d += VL) {
        vf y = v_load(q + d);

        UNROLL
        for (int x = 0; x < count; x++) {
            acc[x] =
                v_fma(y, v_weight(rows, dtype, first + x * stride + d), acc[x]);
        }
    }
    if (whole < dim) {
        vf y = v_load_n(q + whole, dim - whole);

        UNROLL
        for (int x = 0; x < count; x++) {
            vf w = v_weight_n(rows, dtype, first + x * stride + whole,
                              dim - whole);

            acc[x] = v_fma(y, w, acc[x]);
        }
    }
    if (count == 4) {
        v_sum4(acc, out);
    } else {
        out[0] = v_sum(acc[0]);
    }
    UNROLL
    for (int x = 0; x < count; x++) {
        out[x] *= scale;
    }
}

/* out[p] = scale * q·row p, p < seen. */
INLINE void score_all(const struct simd_keys *keys, const void *rows,
                      enum dyti_dtype dtype, const float *q, int64_t seen,
                      float scale, float *out)
{
    for (int64_t p = 0; p < seen;) {
        struct run run = run_from(keys, p, seen);
        int64_t x = 0;

        for (; x + 4 <= run.count; x += 4) {
            score_rows(q, rows, dtype, run.first + x * keys->stride,
                       keys->stride, keys->dim, scale, out + p + x, 4);
        }
        for (; x < run.count; x++) {
            score_rows(q, rows, dtype, run.first + x * keys->stride,
                       keys->stride, keys->dim, scale, out + p + x, 1);
        }
        p += run.count;
    }
}

/* Columns [d, d + nv vectors), the last one of n lanes, of Σ w_p row_p. */
INLINE void mix_block(const struct simd_keys *keys, const void *rows,
                      enum dyti_dtype dtype, const float *w, int64_t seen,
                      int64_t d, float scale, float *out, const int nv,
                      int64_t n)
{
    vf acc[4];

    UNROLL
    for (int v = 0; v < nv; v++) {
        acc[v] = v_zero();
    }
    for (int64_t p = 0; p < seen;) {
        struct run run = run_from(keys, p, seen);

        for (int64_t x = 0; x < run.count; x++) {
            vf e = v_set(w[p + x]);
            int64_t at = run.first + x * keys->stride + d;

            UNROLL
            for (int v = 0; v < nv; v++) {
                vf y = v < nv - 1 || n == VL
                           ? v_weight(rows, dtype, at + v * VL)
                           : v_weight_n(rows, dtype, at + v * VL, n);

                acc[v] = v_fma(e, y, acc[v]);
            }
        }
        p += run.count;
    }
    UNROLL
    for (int v = 0; v < nv; v++) {
        vf y = acc[v] * v_set(scale);

        if (v < nv - 1 || n == VL) {
            v_store(out + d + v * VL, y);
        } else {
            v_store_n(out + d + v * VL, y, n);
        }
    }
}

/* out[dim] = scale * Σ w_p row_p. */
INLINE void mix_all(const struct simd_keys *keys, const void *rows,
                    enum dyti_dtype dtype, const float *w, int64_t seen,
                    float scale, float *out)
{
    int64_t d = 0;

    for (; d + 4 * VL <= keys->dim; d += 4 * VL) {
        mix_block(keys, rows, dtype, w, seen, d, scale, out, 4, VL);
    }
    if (d + 2 * VL <= keys->dim) {
        mix_block(keys, rows, dtype, w, seen, d, scale, out, 2, VL);
        d += 2 * VL;
    }
    if (d + VL <= keys->dim) {
        mix_block(keys, rows, dtype, w, seen, d, scale, out, 1, VL);
        d += VL;
    }
    if (d < keys->dim) {
        mix_block(keys, rows, dtype, w, seen, d, scale, out, 1, keys->dim - d);
    }
}

INLINE float top_of(const float *x, int64_t count)
{
    vf top = v_set(x[0]);
    int64_t i = 0;

    for (; i + VL <= count; i += VL) {
        top = v_max(v_load(x + i), top);
    }
    for (float best = v_top(top);; i++) {
        if (i == count) {
            return best;
        }
        best = x[i] > best ? x[i] : best;
    }
}

/* x = e^(x - top) in place; their sum. */
INLINE float exp_all(float *x, int64_t count, float top)
{
    vf sum = v_zero(), m = v_set(top);

    VECTORS(count, {
        /* Lanes beyond the end become e^-inf = 0. */
        vf e = v_exp(v_edge(v_part(x + i, n) - m, -INFINITY, n));

        v_put(x + i, e, n);
        sum = sum + e;
    });
    return v_sum(sum);
}

INLINE void attend_rows(const struct simd_attend *t, float *scratch,
                        const enum dyti_dtype dtype)
{
    const struct simd_keys *keys = &t->keys;

    for (int64_t r = 0; r < t->rows; r++) {
        int64_t seen = t->before + r + 1;
        float top, sum;

        score_all(keys, keys->k, dtype, t->q + r * t->ldq, seen, t->scale,
                  scratch);
        top = top_of(scratch, seen);
        sum = exp_all(scratch, seen, top);
        mix_all(keys, keys->v, dtype, scratch, seen, 1.0f / sum,
                t->out + r * t->ldo);
        if (t->lse != NULL) {
            t->lse[r * t->ldl] = top + f_log(sum);
        }
    }
}
