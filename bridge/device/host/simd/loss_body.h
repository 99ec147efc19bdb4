/* One row of logits.  Long rows are summed in blocks, the blocks in double. */

#define LOSS_BLOCK 2048

static float simd_row_max(const float *x, int64_t cols, float scale)
{
    vf top = v_set(-INFINITY), s = v_set(scale);

    VECTORS(cols, top = v_max(v_edge(v_part(x + i, n) * s, -INFINITY, n), top));
    return v_top(top);
}

static void simd_row_sums(const float *x, int64_t cols, float scale, float max,
                          float *out_sum, float *out_zsum)
{
    double sum = 0.0, zsum = 0.0;

    for (int64_t at = 0; at < cols; at += LOSS_BLOCK) {
        int64_t count = cols - at < LOSS_BLOCK ? cols - at : LOSS_BLOCK;
        vf a = v_zero(), b = v_zero();

        VECTORS(count, {
            vf z = v_part(x + at + i, n) * v_set(scale);
            vf e = v_exp(v_edge(z - v_set(max), -INFINITY, n));

            a = a + e;
            b = v_fma(z, e, b);
        });
        sum += (double)v_sum(a);
        zsum += (double)v_sum(b);
    }
    *out_sum = (float)sum;
    *out_zsum = (float)zsum;
}

/* scale (-dl p - dh p (z - lse + h)); the caller adds scale dl at the target.
 */
static void simd_xent_back(float *x, int64_t cols, float scale, float lse,
                           float entropy, float dl, float dh)
{
    vf s = v_set(scale), l = v_set(lse), h = v_set(entropy);

    VECTORS(cols, {
        vf z = v_part(x + i, n) * s - l;
        vf g = v_fma(v_set(dh), z + h, v_set(dl));

        v_put(x + i, (v_zero() - s) * v_exp(z) * g, n);
    });
}
