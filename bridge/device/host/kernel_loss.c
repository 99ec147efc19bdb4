/* Statistics of logits and their gradient, in tiles of rows. */
#include "device/host/kernels.h"

#include <math.h>

struct job {
    struct host *host;
    const float *logits;
    float *inout;
    int64_t ld, rows, cols, per_tile;
    float scale;
    const float *max, *lse, *entropy, *dlogprob, *dentropy;
    const int32_t *target;
    int64_t vocab_lo;
    float *out_max, *sum_exp, *sum_zexp, *target_z;
};

static void run(struct job *j, dyti_tile_fn fn)
{
    j->per_tile = dyti_host_rows_per_tile(4 * j->cols);
    dyti_pool_run(j->host->pool, (size_t)host_parts(j->rows, j->per_tile), fn,
                  j);
}

static int64_t row_end(const struct job *j, size_t index)
{
    return host_min(((int64_t)index + 1) * j->per_tile, j->rows);
}

static void max_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *j = arg;

    (void)thread;
    for (int64_t r = (int64_t)index * j->per_tile; r < row_end(j, index); r++) {
        j->out_max[r] =
            j->host->simd->row_max(j->logits + r * j->ld, j->cols, j->scale);
    }
}

enum dyt_status dyti_host_row_max(void *self, const float *logits, int64_t ld,
                                  int64_t rows, int64_t cols, float scale,
                                  float *max)
{
    struct job j = {.host = self,
                    .logits = logits,
                    .ld = ld,
                    .rows = rows,
                    .cols = cols,
                    .scale = scale,
                    .out_max = max};

    run(&j, max_tile);
    return DYT_OK;
}

static void sums_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *j = arg;

    (void)thread;
    for (int64_t r = (int64_t)index * j->per_tile; r < row_end(j, index); r++) {
        const float *x = j->logits + r * j->ld;
        int64_t t = j->target[r] - j->vocab_lo;

        j->host->simd->row_sums(x, j->cols, j->scale, j->max[r], &j->sum_exp[r],
                                &j->sum_zexp[r]);
        j->target_z[r] = t >= 0 && t < j->cols ? x[t] * j->scale : 0.0f;
    }
}

enum dyt_status dyti_host_row_sums(void *self, const float *logits, int64_t ld,
                                   int64_t rows, int64_t cols, float scale,
                                   const float *max, const int32_t *target,
                                   int64_t vocab_lo, float *sum_exp,
                                   float *sum_zexp, float *target_z)
{
    struct job j = {.host = self,
                    .logits = logits,
                    .ld = ld,
                    .rows = rows,
                    .cols = cols,
                    .scale = scale,
                    .max = max,
                    .target = target,
                    .vocab_lo = vocab_lo,
                    .sum_exp = sum_exp,
                    .sum_zexp = sum_zexp,
                    .target_z = target_z};

    run(&j, sums_tile);
    return DYT_OK;
}

/* A logarithm a row: the pool would cost more than it saves. */
enum dyt_status dyti_host_row_finish(void *self, int64_t rows, const float *max,
                                     const float *sum_exp,
                                     const float *sum_zexp,
                                     const float *target_z, float *lse,
                                     float *logprob, float *entropy)
{
    (void)self;
    for (int64_t r = 0; r < rows; r++) {
        double z = (double)max[r] + log((double)sum_exp[r]);

        lse[r] = (float)z;
        logprob[r] = (float)((double)target_z[r] - z);
        entropy[r] = (float)(z - (double)sum_zexp[r] / (double)sum_exp[r]);
    }
    return DYT_OK;
}

static void back_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *j = arg;

    (void)thread;
    for (int64_t r = (int64_t)index * j->per_tile; r < row_end(j, index); r++) {
        float *x = j->inout + r * j->ld;
        int64_t t = j->target[r] - j->vocab_lo;

        j->host->simd->xent_back(x, j->cols, j->scale, j->lse[r], j->entropy[r],
                                 j->dlogprob[r], j->dentropy[r]);
        if (t >= 0 && t < j->cols) {
            x[t] += j->scale * j->dlogprob[r];
        }
    }
}

enum dyt_status dyti_host_xent_back(void *self, float *logits, int64_t ld,
                                    int64_t rows, int64_t cols, float scale,
                                    const float *lse, const float *entropy,
                                    const int32_t *target, int64_t vocab_lo,
                                    const float *dlogprob,
                                    const float *dentropy)
{
    struct job j = {.host = self,
                    .inout = logits,
                    .ld = ld,
                    .rows = rows,
                    .cols = cols,
                    .scale = scale,
                    .lse = lse,
                    .entropy = entropy,
                    .target = target,
                    .vocab_lo = vocab_lo,
                    .dlogprob = dlogprob,
                    .dentropy = dentropy};

    run(&j, back_tile);
    return DYT_OK;
}
