/* Row by row: bias, rotary embedding, SwiGLU, token embedding.  Sums over rows
 * (gradients of bias and embedding) are cut by columns, so that each element
 * adds its rows in order. */
#include "device/host/kernels.h"

#include <string.h>

#define COLUMNS_PER_TILE 128

struct job {
    struct host *host;
    float *x;
    int64_t ld, rows, cols, heads, per_tile;
    const void *w;
    enum dyti_dtype dtype;
    const int32_t *ids;
    const float *table, *in, *dy;
    int64_t vocab_lo, vocab_hi;
    bool inverse;
};

/* Rows [lo, hi) of a tile. */
struct span {
    int64_t lo, hi;
};

static struct span rows_of(const struct job *j, size_t index)
{
    int64_t lo = (int64_t)index * j->per_tile;

    return (struct span){lo, host_min(lo + j->per_tile, j->rows)};
}

static void run_rows(struct job *j, int64_t row_elements, dyti_tile_fn fn)
{
    j->per_tile = dyti_host_rows_per_tile(row_elements);
    dyti_pool_run(j->host->pool, (size_t)host_parts(j->rows, j->per_tile), fn,
                  j);
}

static void run_columns(struct job *j, dyti_tile_fn fn)
{
    dyti_pool_run(j->host->pool, (size_t)host_parts(j->cols, COLUMNS_PER_TILE),
                  fn, j);
}

/* ---- bias ---- */

static void add_bias_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *j = arg;
    struct span s = rows_of(j, index);

    (void)thread;
    for (int64_t r = s.lo; r < s.hi; r++) {
        j->host->simd->add_weight(j->x + r * j->ld, j->w, j->dtype, j->cols);
    }
}

enum dyt_status dyti_host_add_bias(void *self, float *x, int64_t ld,
                                   int64_t rows, int64_t cols, const void *bias,
                                   enum dyti_dtype dtype)
{
    struct job j = {.host = self,
                    .x = x,
                    .ld = ld,
                    .rows = rows,
                    .cols = cols,
                    .w = bias,
                    .dtype = dtype};

    run_rows(&j, cols, add_bias_tile);
    return DYT_OK;
}

static void bias_back_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *j = arg;
    int64_t lo = (int64_t)index * COLUMNS_PER_TILE;
    int64_t count = host_min(COLUMNS_PER_TILE, j->cols - lo);

    (void)thread;
    for (int64_t r = 0; r < j->rows; r++) {
        j->host->simd->add(j->x + lo, j->dy + r * j->ld + lo, count);
    }
}

enum dyt_status dyti_host_bias_back(void *self, const float *dy, int64_t ld,
                                    int64_t rows, int64_t cols, float *db)
{
    struct job j = {
        .host = self, .x = db, .dy = dy, .ld = ld, .rows = rows, .cols = cols};

    run_columns(&j, bias_back_tile);
    return DYT_OK;
}

/* ---- rotary embedding ---- */

static void rope_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *j = arg;
    struct span s = rows_of(j, index);
    int64_t half = j->cols / 2;

    (void)thread;
    for (int64_t r = s.lo; r < s.hi; r++) {
        const float *cosine = j->table + (int64_t)j->ids[r] * j->cols;

        for (int64_t h = 0; h < j->heads; h++) {
            j->host->simd->rope(j->x + r * j->ld + h * j->cols, half, cosine,
                                cosine + half, j->inverse);
        }
    }
}

enum dyt_status dyti_host_rope(void *self, float *x, int64_t ld, int64_t rows,
                               int64_t heads, int64_t head_dim,
                               const int32_t *position, const float *table,
                               bool inverse)
{
    struct job j = {.host = self,
                    .x = x,
                    .ld = ld,
                    .rows = rows,
                    .heads = heads,
                    .cols = head_dim,
                    .ids = position,
                    .table = table,
                    .inverse = inverse};

    run_rows(&j, heads * head_dim, rope_tile);
    return DYT_OK;
}

/* ---- SwiGLU ---- */

static void swiglu_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *j = arg;
    struct span s = rows_of(j, index);

    (void)thread;
    for (int64_t r = s.lo; r < s.hi; r++) {
        const float *gate = j->in + r * 2 * j->cols;

        j->host->simd->swiglu(gate, gate + j->cols, j->cols,
                              j->x + r * j->cols);
    }
}

enum dyt_status dyti_host_swiglu(void *self, const float *gate_up, int64_t rows,
                                 int64_t f, float *y)
{
    struct job j = {
        .host = self, .x = y, .in = gate_up, .rows = rows, .cols = f};

    run_rows(&j, 4 * f, swiglu_tile);
    return DYT_OK;
}

static void swiglu_back_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *j = arg;
    struct span s = rows_of(j, index);

    (void)thread;
    for (int64_t r = s.lo; r < s.hi; r++) {
        const float *gate = j->in + r * 2 * j->cols;
        float *d = j->x + r * 2 * j->cols;

        j->host->simd->swiglu_back(j->dy + r * j->cols, gate, gate + j->cols,
                                   j->cols, d, d + j->cols);
    }
}

enum dyt_status dyti_host_swiglu_back(void *self, const float *dy,
                                      const float *gate_up, int64_t rows,
                                      int64_t f, float *dgate_up)
{
    struct job j = {.host = self,
                    .x = dgate_up,
                    .in = gate_up,
                    .dy = dy,
                    .rows = rows,
                    .cols = f};

    run_rows(&j, 4 * f, swiglu_back_tile);
    return DYT_OK;
}

/* ---- token embedding ---- */

static bool is_ours(const struct job *j, int64_t r)
{
    return j->ids[r] >= j->vocab_lo && j->ids[r] < j->vocab_hi;
}

static void embed_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *j = arg;
    struct span s = rows_of(j, index);

    (void)thread;
    for (int64_t r = s.lo; r < s.hi; r++) {
        float *out = j->x + r * j->cols;

        if (is_ours(j, r)) {
            j->host->simd->take_weight(out, j->w, j->dtype,
                                       (j->ids[r] - j->vocab_lo) * j->cols,
                                       j->cols);
        } else {
            memset(out, 0, (size_t)j->cols * sizeof(float));
        }
    }
}

enum dyt_status dyti_host_embed(void *self, const int32_t *ids, int64_t rows,
                                const void *table, enum dyti_dtype dtype,
                                int64_t vocab_lo, int64_t vocab_hi,
                                int64_t cols, float *out)
{
    struct job j = {.host = self,
                    .x = out,
                    .rows = rows,
                    .cols = cols,
                    .w = table,
                    .dtype = dtype,
                    .ids = ids,
                    .vocab_lo = vocab_lo,
                    .vocab_hi = vocab_hi};

    run_rows(&j, cols, embed_tile);
    return DYT_OK;
}

static void embed_back_tile(void *arg, size_t index, uint32_t thread)
{
    const struct job *j = arg;
    int64_t lo = (int64_t)index * COLUMNS_PER_TILE;
    int64_t count = host_min(COLUMNS_PER_TILE, j->cols - lo);

    (void)thread;
    for (int64_t r = 0; r < j->rows; r++) {
        if (is_ours(j, r)) {
            j->host->simd->add(j->x + (j->ids[r] - j->vocab_lo) * j->cols + lo,
                               j->dy + r * j->cols + lo, count);
        }
    }
}

enum dyt_status dyti_host_embed_back(void *self, const int32_t *ids,
                                     int64_t rows, const float *dy,
                                     int64_t vocab_lo, int64_t vocab_hi,
                                     int64_t cols, float *dtable)
{
    struct job j = {.host = self,
                    .x = dtable,
                    .dy = dy,
                    .rows = rows,
                    .cols = cols,
                    .ids = ids,
                    .vocab_lo = vocab_lo,
                    .vocab_hi = vocab_hi};

    run_columns(&j, embed_back_tile);
    return DYT_OK;
}
