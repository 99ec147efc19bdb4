/* Flat arrays: sums, scaling and the optimizer (PyTorch's AdamW):
 *   g = grad · grad_scale
 *   m = β1 m + (1 - β1) g,  v = β2 v + (1 - β2) g²
 *   θ = θ (1 - lr·wd) - lr/bias1 · m / (sqrt(v)/sqrt(bias2) + eps) */
#include "device/host/reference/reference.h"

#include <math.h>

enum dyt_status dyti_reference_add(void *self, float *y, const float *x,
                                   int64_t count)
{
    (void)self;
    for (int64_t i = 0; i < count; i++) {
        y[i] += x[i];
    }
    return DYT_OK;
}

enum dyt_status dyti_reference_scale(void *self, float *x, int64_t count,
                                     float s)
{
    (void)self;
    for (int64_t i = 0; i < count; i++) {
        x[i] *= s;
    }
    return DYT_OK;
}

enum dyt_status dyti_reference_sum_squares(void *self, const float *x,
                                           int64_t count, double *out_sum)
{
    double sum = 0.0;

    (void)self;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)x[i] * x[i];
    }
    *out_sum = sum;
    return DYT_OK;
}

enum dyt_status dyti_reference_adamw(void *self, const struct dyti_adamw *how,
                                     int64_t count, const float *grad,
                                     float *master, float *exp_avg,
                                     float *exp_avg_sq, void *param,
                                     enum dyti_dtype param_dtype)
{
    double keep = 1.0 - (double)how->lr * how->weight_decay;

    (void)self;
    for (int64_t i = 0; i < count; i++) {
        double g = (double)grad[i] * how->grad_scale;
        double m = how->beta1 * (double)exp_avg[i] + (1.0 - how->beta1) * g;
        double v =
            how->beta2 * (double)exp_avg_sq[i] + (1.0 - how->beta2) * g * g;
        double root = sqrt(v) / sqrt(how->bias2) + how->eps;

        exp_avg[i] = (float)m;
        exp_avg_sq[i] = (float)v;
        master[i] =
            (float)(master[i] * keep - (double)how->lr / how->bias1 * m / root);
        if (param != NULL) {
            ref_store(param, param_dtype, i, master[i]);
        }
    }
    return DYT_OK;
}
