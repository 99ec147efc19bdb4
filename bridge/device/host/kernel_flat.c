/* Flat arrays, in tiles of a fixed number of elements. */
#include "device/host/kernels.h"

#define PER_TILE 32768

struct job {
    struct host *host;
    float *x;
    const float *y;
    int64_t count;
    float s;
    double *partial;
    const struct dyti_adamw *how;
    float *master, *exp_avg, *exp_avg_sq;
    void *param;
    enum dyti_dtype param_dtype;
};

static void run(struct job *j, dyti_tile_fn fn)
{
    dyti_pool_run(j->host->pool, (size_t)host_parts(j->count, PER_TILE), fn, j);
}

static int64_t tile_count(const struct job *j, size_t index)
{
    return host_min(PER_TILE, j->count - (int64_t)index * PER_TILE);
}

static void add_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *j = arg;
    int64_t at = (int64_t)index * PER_TILE;

    (void)thread;
    j->host->simd->add(j->x + at, j->y + at, tile_count(j, index));
}

enum dyt_status dyti_host_add(void *self, float *y, const float *x,
                              int64_t count)
{
    struct job j = {.host = self, .x = y, .y = x, .count = count};

    run(&j, add_tile);
    return DYT_OK;
}

static void scale_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *j = arg;

    (void)thread;
    j->host->simd->scale(j->x + (int64_t)index * PER_TILE, tile_count(j, index),
                         j->s);
}

enum dyt_status dyti_host_scale(void *self, float *x, int64_t count, float s)
{
    struct job j = {.host = self, .x = x, .count = count, .s = s};

    run(&j, scale_tile);
    return DYT_OK;
}

static void squares_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *j = arg;

    (void)thread;
    j->partial[index] = j->host->simd->sum_squares(
        j->y + (int64_t)index * PER_TILE, tile_count(j, index));
}

enum dyt_status dyti_host_sum_squares(void *self, const float *x, int64_t count,
                                      double *out_sum)
{
    struct job j = {.host = self, .y = x, .count = count};
    int64_t tiles = host_parts(count, PER_TILE);
    double sum = 0.0;
    enum dyt_status st = dyti_host_shared(self, (size_t)tiles * sizeof(double));

    if (st != DYT_OK) {
        return st;
    }
    j.partial = j.host->shared;
    run(&j, squares_tile);
    for (int64_t t = 0; t < tiles; t++) {
        sum += j.partial[t];
    }
    *out_sum = sum;
    return DYT_OK;
}

static void adamw_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *j = arg;
    int64_t at = (int64_t)index * PER_TILE;
    char *param = j->param;

    (void)thread;
    if (param != NULL) {
        param += at * (int64_t)dyti_dtype_bytes(j->param_dtype);
    }
    j->host->simd->adamw(j->how, tile_count(j, index), j->y + at,
                         j->master + at, j->exp_avg + at, j->exp_avg_sq + at,
                         param, j->param_dtype);
}

enum dyt_status dyti_host_adamw(void *self, const struct dyti_adamw *how,
                                int64_t count, const float *grad, float *master,
                                float *exp_avg, float *exp_avg_sq, void *param,
                                enum dyti_dtype param_dtype)
{
    struct job j = {.host = self,
                    .y = grad,
                    .count = count,
                    .how = how,
                    .master = master,
                    .exp_avg = exp_avg,
                    .exp_avg_sq = exp_avg_sq,
                    .param = param,
                    .param_dtype = param_dtype};

    run(&j, adamw_tile);
    return DYT_OK;
}
