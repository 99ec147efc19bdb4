/* What is done row by row: bias, rotary embedding, SwiGLU, token embedding. */
#include "device/host/reference/reference.h"

#include <math.h>

enum dyt_status dyti_reference_add_bias(void *self, float *x, int64_t ld,
                                        int64_t rows, int64_t cols,
                                        const void *bias, enum dyti_dtype dtype)
{
    (void)self;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < cols; i++) {
            x[r * ld + i] += ref_load(bias, dtype, i);
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_reference_bias_back(void *self, const float *dy,
                                         int64_t ld, int64_t rows, int64_t cols,
                                         float *db)
{
    (void)self;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < cols; i++) {
            db[i] += dy[r * ld + i];
        }
    }
    return DYT_OK;
}

/* (a, b) -> (a cos - b sin, b cos + a sin); backward turns the other way. */
enum dyt_status dyti_reference_rope(void *self, float *x, int64_t ld,
                                    int64_t rows, int64_t heads,
                                    int64_t head_dim, const int32_t *position,
                                    const float *table, bool inverse)
{
    int64_t half = head_dim / 2;

    (void)self;
    for (int64_t r = 0; r < rows; r++) {
        const float *cosine = table + (int64_t)position[r] * head_dim;
        const float *sine = cosine + half;

        for (int64_t h = 0; h < heads; h++) {
            float *a = x + r * ld + h * head_dim, *b = a + half;

            for (int64_t i = 0; i < half; i++) {
                double c = cosine[i], s = inverse ? -sine[i] : sine[i];
                double u = a[i], v = b[i];

                a[i] = (float)(u * c - v * s);
                b[i] = (float)(v * c + u * s);
            }
        }
    }
    return DYT_OK;
}

/* y = g σ(g) u */
enum dyt_status dyti_reference_swiglu(void *self, const float *gate_up,
                                      int64_t rows, int64_t f, float *y)
{
    (void)self;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < f; i++) {
            double g = gate_up[r * 2 * f + i];
            double u = gate_up[r * 2 * f + f + i];

            y[r * f + i] = (float)(g / (1.0 + exp(-g)) * u);
        }
    }
    return DYT_OK;
}

/* du = dy g σ,  dg = dy u σ (1 + g (1 - σ)) */
enum dyt_status dyti_reference_swiglu_back(void *self, const float *dy,
                                           const float *gate_up, int64_t rows,
                                           int64_t f, float *dgate_up)
{
    (void)self;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < f; i++) {
            double g = gate_up[r * 2 * f + i];
            double u = gate_up[r * 2 * f + f + i];
            double d = dy[r * f + i], sigma = 1.0 / (1.0 + exp(-g));

            dgate_up[r * 2 * f + i] =
                (float)(d * u * sigma * (1.0 + g * (1.0 - sigma)));
            dgate_up[r * 2 * f + f + i] = (float)(d * g * sigma);
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_reference_embed(void *self, const int32_t *ids,
                                     int64_t rows, const void *table,
                                     enum dyti_dtype dtype, int64_t vocab_lo,
                                     int64_t vocab_hi, int64_t cols, float *out)
{
    (void)self;
    for (int64_t r = 0; r < rows; r++) {
        bool ours = ids[r] >= vocab_lo && ids[r] < vocab_hi;

        for (int64_t i = 0; i < cols; i++) {
            out[r * cols + i] =
                ours ? ref_load(table, dtype, (ids[r] - vocab_lo) * cols + i)
                     : 0.0f;
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_reference_embed_back(void *self, const int32_t *ids,
                                          int64_t rows, const float *dy,
                                          int64_t vocab_lo, int64_t vocab_hi,
                                          int64_t cols, float *dtable)
{
    (void)self;
    for (int64_t r = 0; r < rows; r++) {
        if (ids[r] < vocab_lo || ids[r] >= vocab_hi) {
            continue;
        }
        for (int64_t i = 0; i < cols; i++) {
            dtable[(ids[r] - vocab_lo) * cols + i] += dy[r * cols + i];
        }
    }
    return DYT_OK;
}
