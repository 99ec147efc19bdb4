/* Root-mean-square norms.  With r = 1 / sqrt(mean(x²) + eps):
 *   y_i  = x_i r w_i
 *   dw_i = dy_i x_i r
 *   dx_i = r (dy_i w_i - x_i r² mean(dy w x)) */
#include "device/host/reference/reference.h"

#include <math.h>

static float norm_row(const float *x, const void *w, enum dyti_dtype dtype,
                      float eps, int64_t cols, float *y)
{
    double sum = 0.0;
    float inv = 0.0f;

    for (int64_t i = 0; i < cols; i++) {
        sum += (double)x[i] * x[i];
    }
    inv = (float)(1.0 / sqrt(sum / (double)cols + eps));
    for (int64_t i = 0; i < cols; i++) {
        y[i] = x[i] * inv * ref_load(w, dtype, i);
    }
    return inv;
}

static void norm_row_back(const float *dy, const float *x, const void *w,
                          enum dyti_dtype dtype, float inv, int64_t cols,
                          float *dx, bool accumulate, float *dw)
{
    double dot = 0.0;

    for (int64_t i = 0; i < cols; i++) {
        dot += (double)dy[i] * ref_load(w, dtype, i) * x[i];
    }
    dot *= (double)inv * inv / (double)cols;
    for (int64_t i = 0; i < cols; i++) {
        double g = dy[i];
        double d = inv * (g * ref_load(w, dtype, i) - x[i] * dot);

        dw[i] += (float)(g * x[i] * inv);
        dx[i] = accumulate ? dx[i] + (float)d : (float)d;
    }
}

enum dyt_status dyti_reference_rmsnorm(void *self, const float *x,
                                       const void *w, enum dyti_dtype w_dtype,
                                       float eps, int64_t rows, int64_t cols,
                                       float *y, float *inv_rms)
{
    (void)self;
    for (int64_t r = 0; r < rows; r++) {
        float inv = norm_row(x + r * cols, w, w_dtype, eps, cols, y + r * cols);

        if (inv_rms != NULL) {
            inv_rms[r] = inv;
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_reference_rmsnorm_back(void *self, const float *dy,
                                            const float *x, const void *w,
                                            enum dyti_dtype w_dtype,
                                            const float *inv_rms, int64_t rows,
                                            int64_t cols, float *dx,
                                            bool accumulate, float *dw)
{
    (void)self;
    for (int64_t r = 0; r < rows; r++) {
        norm_row_back(dy + r * cols, x + r * cols, w, w_dtype, inv_rms[r], cols,
                      dx + r * cols, accumulate, dw);
    }
    return DYT_OK;
}

enum dyt_status dyti_reference_headnorm(void *self, float *x, int64_t ld,
                                        int64_t rows, int64_t heads,
                                        int64_t head_dim, const void *w,
                                        enum dyti_dtype w_dtype, float eps,
                                        float *inv_rms)
{
    (void)self;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t h = 0; h < heads; h++) {
            float *head = x + r * ld + h * head_dim;
            float inv = norm_row(head, w, w_dtype, eps, head_dim, head);

            if (inv_rms != NULL) {
                inv_rms[r * heads + h] = inv;
            }
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_reference_headnorm_back(void *self, float *dy,
                                             const float *x_in, int64_t ld,
                                             int64_t rows, int64_t heads,
                                             int64_t head_dim, const void *w,
                                             enum dyti_dtype w_dtype,
                                             const float *inv_rms, float *dw)
{
    (void)self;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t h = 0; h < heads; h++) {
            int64_t at = r * ld + h * head_dim;

            norm_row_back(dy + at, x_in + at, w, w_dtype,
                          inv_rms[r * heads + h], head_dim, dy + at, false, dw);
        }
    }
    return DYT_OK;
}
