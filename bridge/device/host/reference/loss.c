/* Statistics of logits, and their gradient: see ops/kernels.h for the formulas.
 * Entropy H = lse - Σ p z, so dH/dz_j = -p_j (z_j - lse + H). */
#include "device/host/reference/reference.h"

#include <math.h>

enum dyt_status dyti_reference_row_max(void *self, const float *logits,
                                       int64_t ld, int64_t rows, int64_t cols,
                                       float scale, float *max)
{
    (void)self;
    for (int64_t r = 0; r < rows; r++) {
        float best = -INFINITY;

        for (int64_t i = 0; i < cols; i++) {
            best = fmaxf(best, logits[r * ld + i] * scale);
        }
        max[r] = best;
    }
    return DYT_OK;
}

enum dyt_status dyti_reference_row_sums(void *self, const float *logits,
                                        int64_t ld, int64_t rows, int64_t cols,
                                        float scale, const float *max,
                                        const int32_t *target, int64_t vocab_lo,
                                        float *sum_exp, float *sum_zexp,
                                        float *target_z)
{
    (void)self;
    for (int64_t r = 0; r < rows; r++) {
        int64_t t = target[r] - vocab_lo;
        double sum = 0.0, zsum = 0.0;

        for (int64_t i = 0; i < cols; i++) {
            float z = logits[r * ld + i] * scale;
            double e = exp((double)z - max[r]);

            sum += e;
            zsum += z * e;
        }
        sum_exp[r] = (float)sum;
        sum_zexp[r] = (float)zsum;
        target_z[r] = t >= 0 && t < cols ? logits[r * ld + t] * scale : 0.0f;
    }
    return DYT_OK;
}

enum dyt_status dyti_reference_row_finish(void *self, int64_t rows,
                                          const float *max,
                                          const float *sum_exp,
                                          const float *sum_zexp,
                                          const float *target_z, float *lse,
                                          float *logprob, float *entropy)
{
    (void)self;
    for (int64_t r = 0; r < rows; r++) {
        double sum = (double)sum_exp[r];
        double all = (double)max[r] + log(sum);

        lse[r] = (float)all;
        logprob[r] = (float)((double)target_z[r] - all);
        entropy[r] = (float)(all - (double)sum_zexp[r] / sum);
    }
    return DYT_OK;
}

enum dyt_status dyti_reference_xent_back(
    void *self, float *logits, int64_t ld, int64_t rows, int64_t cols,
    float scale, const float *lse, const float *entropy, const int32_t *target,
    int64_t vocab_lo, const float *dlogprob, const float *dentropy)
{
    (void)self;
    for (int64_t r = 0; r < rows; r++) {
        int64_t t = target[r] - vocab_lo;

        for (int64_t i = 0; i < cols; i++) {
            double z = logits[r * ld + i] * scale;
            double p = exp(z - lse[r]), hit = i == t ? 1.0 : 0.0;

            logits[r * ld + i] =
                (float)(scale * (dlogprob[r] * (hit - p) -
                                 dentropy[r] * p * (z - lse[r] + entropy[r])));
        }
    }
    return DYT_OK;
}
