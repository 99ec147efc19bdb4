/* What is done to a row: bias, rotary embedding, SwiGLU, widening. */

/* y += w */
static void simd_add_weight(float *y, const void *w, enum dyti_dtype dtype,
                            int64_t cols)
{
    VECTORS(cols, {
        vf a = v_part(y + i, n) + v_weight_part(w, dtype, i, n);

        v_put(y + i, a, n);
    });
}

/* y = w */
static void simd_take_weight(float *y, const void *w, enum dyti_dtype dtype,
                             int64_t at, int64_t cols)
{
    VECTORS(cols, v_put(y + i, v_weight_part(w, dtype, at + i, n), n));
}

/* One head: (a, b) -> (a cos - b sin, b cos + a sin). */
static void simd_rope(float *x, int64_t half, const float *cosine,
                      const float *sine, bool inverse)
{
    vf sign = v_set(inverse ? -1.0f : 1.0f);

    VECTORS(half, {
        vf c = v_part(cosine + i, n);
        vf s = v_part(sine + i, n) * sign;
        vf a = v_part(x + i, n);
        vf b = v_part(x + half + i, n);

        v_put(x + i, a * c - b * s, n);
        v_put(x + half + i, b * c + a * s, n);
    });
}

INLINE vf v_sigmoid(vf x)
{
    vf one = v_set(1.0f);

    return one / (one + v_exp(v_zero() - x));
}

static void simd_swiglu(const float *gate, const float *up, int64_t f, float *y)
{
    VECTORS(f, {
        vf g = v_part(gate + i, n);

        v_put(y + i, g * v_sigmoid(g) * v_part(up + i, n), n);
    });
}

static void simd_swiglu_back(const float *dy, const float *gate,
                             const float *up, int64_t f, float *dgate,
                             float *dup)
{
    vf one = v_set(1.0f);

    VECTORS(f, {
        vf g = v_part(gate + i, n);
        vf u = v_part(up + i, n);
        vf d = v_part(dy + i, n);
        vf s = v_sigmoid(g);
        vf slope = v_fma(g, one - s, one);

        v_put(dgate + i, d * u * s * slope, n);
        v_put(dup + i, d * g * s, n);
    });
}
