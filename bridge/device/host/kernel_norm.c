/* Norms: tiles of rows.  Weight gradients are summed within a tile row by row,
 * then over the tiles in order. */
#include "device/host/kernels.h"

#include <string.h>

struct job {
    struct host *host;
    const float *x, *dy;
    const void *w;
    enum dyti_dtype w_dtype;
    float eps;
    int64_t rows, heads, ld, cols; /* heads of `cols` elements, rows ld apart */
    float *y, *inv, *dx;
    const float *inv_in;
    bool accumulate;
    float *partial; /* [tiles, cols] */
    int64_t per_tile;
};

static void norm_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *j = arg;
    int64_t lo = (int64_t)index * j->per_tile;
    int64_t hi = host_min(lo + j->per_tile, j->rows);

    (void)thread;
    for (int64_t r = lo; r < hi; r++) {
        for (int64_t h = 0; h < j->heads; h++) {
            int64_t at = r * j->ld + h * j->cols;
            float inv = j->host->simd->norm(j->x + at, j->w, j->w_dtype, j->eps,
                                            j->cols, j->y + at);

            if (j->inv != NULL) {
                j->inv[r * j->heads + h] = inv;
            }
        }
    }
}

static void back_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *j = arg;
    float *dw = j->partial + (int64_t)index * j->cols;
    int64_t lo = (int64_t)index * j->per_tile;
    int64_t hi = host_min(lo + j->per_tile, j->rows);

    (void)thread;
    memset(dw, 0, (size_t)j->cols * sizeof(float));
    for (int64_t r = lo; r < hi; r++) {
        for (int64_t h = 0; h < j->heads; h++) {
            int64_t at = r * j->ld + h * j->cols;

            j->host->simd->norm_back(j->dy + at, j->x + at, j->w, j->w_dtype,
                                     j->inv_in[r * j->heads + h], j->cols,
                                     j->dx + at, j->accumulate, dw);
        }
    }
}

static void run(struct job *j, dyti_tile_fn fn)
{
    j->per_tile = dyti_host_rows_per_tile(j->heads * j->cols);
    dyti_pool_run(j->host->pool, (size_t)host_parts(j->rows, j->per_tile), fn,
                  j);
}

static enum dyt_status run_back(struct job *j, float *dw)
{
    int64_t tiles =
        host_parts(j->rows, dyti_host_rows_per_tile(j->heads * j->cols));
    enum dyt_status st =
        dyti_host_shared(j->host, (size_t)(tiles * j->cols) * sizeof(float));

    if (st != DYT_OK) {
        return st;
    }
    j->partial = j->host->shared;
    run(j, back_tile);
    for (int64_t t = 0; t < tiles; t++) {
        j->host->simd->add(dw, j->partial + t * j->cols, j->cols);
    }
    return DYT_OK;
}

enum dyt_status dyti_host_rmsnorm(void *self, const float *x, const void *w,
                                  enum dyti_dtype w_dtype, float eps,
                                  int64_t rows, int64_t cols, float *y,
                                  float *inv_rms)
{
    struct job j = {.host = self,
                    .x = x,
                    .w = w,
                    .w_dtype = w_dtype,
                    .eps = eps,
                    .rows = rows,
                    .heads = 1,
                    .ld = cols,
                    .cols = cols,
                    .y = y,
                    .inv = inv_rms};

    run(&j, norm_tile);
    return DYT_OK;
}

enum dyt_status dyti_host_rmsnorm_back(void *self, const float *dy,
                                       const float *x, const void *w,
                                       enum dyti_dtype w_dtype,
                                       const float *inv_rms, int64_t rows,
                                       int64_t cols, float *dx, bool accumulate,
                                       float *dw)
{
    struct job j = {.host = self,
                    .x = x,
                    .dy = dy,
                    .w = w,
                    .w_dtype = w_dtype,
                    .rows = rows,
                    .heads = 1,
                    .ld = cols,
                    .cols = cols,
                    .dx = dx,
                    .inv_in = inv_rms,
                    .accumulate = accumulate};

    return run_back(&j, dw);
}

enum dyt_status dyti_host_headnorm(void *self, float *x, int64_t ld,
                                   int64_t rows, int64_t heads,
                                   int64_t head_dim, const void *w,
                                   enum dyti_dtype w_dtype, float eps,
                                   float *inv_rms)
{
    struct job j = {.host = self,
                    .x = x,
                    .w = w,
                    .w_dtype = w_dtype,
                    .eps = eps,
                    .rows = rows,
                    .heads = heads,
                    .ld = ld,
                    .cols = head_dim,
                    .y = x,
                    .inv = inv_rms};

    run(&j, norm_tile);
    return DYT_OK;
}

enum dyt_status dyti_host_headnorm_back(void *self, float *dy,
                                        const float *x_in, int64_t ld,
                                        int64_t rows, int64_t heads,
                                        int64_t head_dim, const void *w,
                                        enum dyti_dtype w_dtype,
                                        const float *inv_rms, float *dw)
{
    struct job j = {.host = self,
                    .x = x_in,
                    .dy = dy,
                    .w = w,
                    .w_dtype = w_dtype,
                    .rows = rows,
                    .heads = heads,
                    .ld = ld,
                    .cols = head_dim,
                    .dx = dy,
                    .inv_in = inv_rms};

    return run_back(&j, dw);
}
