/* Root-mean-square norm of one row, and its gradient. */

/* Returns 1 / sqrt(mean(x²) + eps). */
static float simd_norm(const float *x, const void *w, enum dyti_dtype dtype,
                       float eps, int64_t cols, float *y)
{
    vf sum = v_zero();
    float inv;

    VECTORS(cols, {
        vf a = v_part(x + i, n);

        sum = v_fma(a, a, sum);
    });
    inv = 1.0f / sqrtf(v_sum(sum) / (float)cols + eps);
    VECTORS(cols, {
        vf a = v_part(x + i, n) * v_set(inv);

        v_put(y + i, a * v_weight_part(w, dtype, i, n), n);
    });
    return inv;
}

static void simd_norm_back(const float *dy, const float *x, const void *w,
                           enum dyti_dtype dtype, float inv, int64_t cols,
                           float *dx, bool accumulate, float *dw)
{
    vf sum = v_zero(), r = v_set(inv);
    float dot;

    VECTORS(cols, {
        vf g = v_part(dy + i, n) * v_weight_part(w, dtype, i, n);

        sum = v_fma(g, v_part(x + i, n), sum);
    });
    dot = v_sum(sum) * inv * inv / (float)cols;
    VECTORS(cols, {
        vf g = v_part(dy + i, n);
        vf a = v_part(x + i, n);
        vf d = r * (g * v_weight_part(w, dtype, i, n) - a * v_set(dot));

        v_put(dw + i, v_fma(g, a * r, v_part(dw + i, n)), n);
        if (accumulate) {
            d = d + v_part(dx + i, n);
        }
        v_put(dx + i, d, n);
    });
}
