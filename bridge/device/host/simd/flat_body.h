/* Flat arrays. */

static void simd_add(float *y, const float *x, int64_t count)
{
    VECTORS(count, v_put(y + i, v_part(y + i, n) + v_part(x + i, n), n));
}

static void simd_scale(float *x, int64_t count, float s)
{
    VECTORS(count, v_put(x + i, v_part(x + i, n) * v_set(s), n));
}

static double simd_sum_squares(const float *x, int64_t count)
{
    vd sum = vd_zero();

    VECTORS(count, sum = vd_add_squares(sum, v_part(x + i, n)));
    return vd_sum(sum);
}

INLINE void adamw_param(void *param, enum dyti_dtype dtype, int64_t i, vf x,
                        int64_t n)
{
    if (dtype == DYTI_F32) {
        v_put((float *)param + i, x, n);
    } else if (n == VL) {
        v_store_bf16((uint16_t *)param + i, x);
    } else {
        v_store_bf16_n((uint16_t *)param + i, x, n);
    }
}

static void simd_adamw(const struct dyti_adamw *how, int64_t count,
                       const float *grad, float *master, float *exp_avg,
                       float *exp_avg_sq, void *param,
                       enum dyti_dtype param_dtype)
{
    vf b1 = v_set(how->beta1), c1 = v_set(1.0f - how->beta1);
    vf b2 = v_set(how->beta2), c2 = v_set(1.0f - how->beta2);
    vf keep = v_set(1.0f - how->lr * how->weight_decay);
    vf rate = v_set(how->lr / how->bias1), eps = v_set(how->eps);
    vf root = v_set(1.0f / sqrtf(how->bias2)), clip = v_set(how->grad_scale);

    VECTORS(count, {
        vf g = v_part(grad + i, n) * clip;
        vf m = v_fma(b1, v_part(exp_avg + i, n), c1 * g);
        vf v = v_fma(b2, v_part(exp_avg_sq + i, n), c2 * g * g);
        vf d = v_fma(v_sqrt(v), root, eps);
        vf x = v_part(master + i, n) * keep - rate * m / d;

        v_put(exp_avg + i, m, n);
        v_put(exp_avg_sq + i, v, n);
        v_put(master + i, x, n);
        if (param != NULL) {
            adamw_param(param, param_dtype, i, x, n);
        }
    });
}
