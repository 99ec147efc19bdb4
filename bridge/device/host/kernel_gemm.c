/* Matrix products: which way, and cut how.
 *   dot    y = x·Wᵀ, weights as they lie: decode shapes, and up to some 100
 *          rows where k is long
 *   bf16   the same with activations rounded to bf16, where the machine
 *          multiplies bf16 (M > 4; below that memory is the limit)
 *   outer  short k, small products, and where weights must be widened
 *   onednn all other, on tiles that we cut, one thread each.  Not where another
 *          instruction set than the machine's best was asked for: dot and outer
 *          take its place
 * Measured by bench/gemm. */
#include "device/host/kernels.h"
#include "device/host/reference/reference.h"

#include <dnnl.h>
#include <stdatomic.h>

/* Of the OpenMP library that oneDNN was linked with. */
extern void omp_set_num_threads(int threads);

#define DECODE_ROWS    16  /* at most so many rows are bound by memory */
#define BF16_ROWS      4   /* few rows are bound by memory even in bf16 */
#define DOT_LONG_K     256 /* from here on the sum over lanes is hidden */
#define ONEDNN_ROWS    128 /* from here on its packing pays */
#define BF16_STEP      32  /* elements of k in one bf16 product */
#define INLINE_FLOPS   100000.0
#define PIECE_PRODUCTS 2000000.0 /* smaller pieces are not worth a thread */
#define SMALL_PRODUCTS 1e8       /* up to here oneDNN is not faster */
#define PIECES         8

struct job {
    struct host *host;
    const struct dyti_gemm *g;
    int64_t mt, nt; /* a tile is mt x nt elements of c */
    int64_t row_tiles, column_tiles;
    atomic_int failed; /* oneDNN's status */
};

/* The part of c that a tile makes. */
struct part {
    int64_t i, j, m, n;
};

static struct part part_of(const struct job *job, size_t index)
{
    int64_t at = (int64_t)index;
    struct part p = {.i = at / job->column_tiles * job->mt,
                     .j = at % job->column_tiles * job->nt};

    if (job->g->n > job->g->m) { /* the larger operand is read once */
        p.i = at % job->row_tiles * job->mt;
        p.j = at / job->row_tiles * job->nt;
    }
    p.m = host_min(job->mt, job->g->m - p.i);
    p.n = host_min(job->nt, job->g->n - p.j);
    return p;
}

static const void *b_at(const struct dyti_gemm *g, int64_t j)
{
    int64_t at = g->trans_b ? j * g->ldb : j;

    return (const char *)g->b + at * (int64_t)dyti_dtype_bytes(g->b_dtype);
}

static const float *a_at(const struct dyti_gemm *g, int64_t i)
{
    return g->a + (g->trans_a ? i : i * g->lda);
}

static void dot_tile(void *arg, size_t index, uint32_t thread)
{
    struct job *job = arg;
    const struct dyti_gemm *g = job->g;
    struct part p = part_of(job, index);
    struct simd_dot t = {.m = p.m,
                         .n = p.n,
                         .k = g->k,
                         .a = a_at(g, p.i),
                         .lda = g->lda,
                         .b = b_at(g, p.j),
                         .ldb = g->ldb,
                         .b_dtype = g->b_dtype,
                         .c = g->c + p.i * g->ldc + p.j,
                         .ldc = g->ldc,
                         .accumulate = g->accumulate};

    (void)thread;
    job->host->simd->dot(&t);
}

static int64_t bf16_row(int64_t k)
{
    return host_parts(k, BF16_STEP) * BF16_STEP;
}

static void bf16_tile(void *arg, size_t index, uint32_t thread)
{
    struct job *job = arg;
    const struct dyti_gemm *g = job->g;
    struct part p = part_of(job, index);
    int64_t lda = bf16_row(g->k);
    uint16_t *a = job->host->scratch[thread];
    struct simd_dot_bf16 t = {.m = p.m,
                              .n = p.n,
                              .k = g->k,
                              .a = a,
                              .lda = lda,
                              .b = b_at(g, p.j),
                              .ldb = g->ldb,
                              .c = g->c + p.i * g->ldc + p.j,
                              .ldc = g->ldc,
                              .accumulate = g->accumulate};

    for (int64_t i = 0; i < p.m; i++) {
        job->host->simd->narrow(a_at(g, p.i + i), a + i * lda, g->k);
        for (int64_t x = g->k; x < lda; x++) {
            a[i * lda + x] = 0;
        }
    }
#if defined(__x86_64__)
    dyti_simd_dot_bf16(&t);
#endif
}

static void outer_tile(void *arg, size_t index, uint32_t thread)
{
    struct job *job = arg;
    const struct dyti_gemm *g = job->g;
    struct part p = part_of(job, index);
    struct simd_outer t = {.m = p.m,
                           .n = p.n,
                           .k = g->k,
                           .a = a_at(g, p.i),
                           .a_row = g->trans_a ? 1 : g->lda,
                           .a_col = g->trans_a ? g->lda : 1,
                           .b = b_at(g, p.j),
                           .ldb = g->ldb,
                           .b_dtype = g->b_dtype,
                           .b_trans = g->trans_b,
                           .c = g->c + p.i * g->ldc + p.j,
                           .ldc = g->ldc,
                           .accumulate = g->accumulate};

    job->host->simd->outer(&t, job->host->scratch[thread]);
}

static void onednn_tile(void *arg, size_t index, uint32_t thread)
{
    struct job *job = arg;
    const struct dyti_gemm *g = job->g;
    struct part p = part_of(job, index);
    dnnl_status_t st;

    (void)thread;
    /* Our pool is the only one: oneDNN would start its own on each thread. */
    omp_set_num_threads(1);
    st = dnnl_sgemm(g->trans_a ? 'T' : 'N', g->trans_b ? 'T' : 'N', p.m, p.n,
                    g->k, 1.0f, a_at(g, p.i), g->lda, b_at(g, p.j), g->ldb,
                    g->accumulate ? 1.0f : 0.0f, g->c + p.i * g->ldc + p.j,
                    g->ldc);
    if (st != dnnl_success) {
        atomic_store(&job->failed, (int)st);
    }
}

/* A side of at most `tile`, so that all tiles are about equal. */
static int64_t even(int64_t whole, int64_t tile, int64_t block)
{
    int64_t each = host_parts(whole, host_parts(whole, tile));

    return host_parts(each, block) * block;
}

/* Halve the tile until there are enough pieces worth a thread, keeping its
 * sides multiples of a register block. */
static void cut(struct job *job, int64_t mt, int64_t nt, int64_t rows,
                int64_t cols)
{
    const struct dyti_gemm *g = job->g;
    double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k;

    mt = host_min(mt, host_parts(g->m, rows) * rows);
    nt = host_min(nt, host_parts(g->n, cols) * cols);
    if (flops < INLINE_FLOPS) {
        mt = g->m;
        nt = g->n;
    }
    while (host_parts(g->m, mt) * host_parts(g->n, nt) < PIECES &&
           (double)mt * (double)nt * (double)g->k > PIECE_PRODUCTS &&
           (mt > rows || nt > cols)) {
        if (mt / rows >= nt / cols) {
            mt = host_parts(mt / 2, rows) * rows;
        } else {
            nt = host_parts(nt / 2, cols) * cols;
        }
    }
    job->mt = even(g->m, mt, rows);
    job->nt = even(g->n, nt, cols);
}

static void cut_dot(struct job *job)
{
    const struct dyti_gemm *g = job->g;
    const struct host_simd *simd = job->host->simd;
    int64_t width = (int64_t)dyti_dtype_bytes(g->b_dtype);
    int64_t mt, nt;

    if (g->m <= DECODE_ROWS) { /* a stripe of weights of about 128 KiB */
        nt = host_max(131072 / (g->k * width) / 16 * 16, 16);
        cut(job, g->m, nt, g->m, 16);
        return;
    }
    /* Rows of a stay in the second cache. */
    mt = 196608 / (g->k * 4) / simd->dot_rows * simd->dot_rows;
    mt = host_min(host_max(mt, 4 * simd->dot_rows), 192);
    cut(job, mt, 128, simd->dot_rows, simd->dot_cols);
}

enum way { DOT, BF16, ONEDNN, OUTER };

static enum way way_of(const struct host *host, const struct dyti_gemm *g)
{
    double products = (double)g->m * (double)g->n * (double)g->k;
    bool onednn = host->onednn && g->b_dtype == DYTI_F32;

    if (g->trans_b && g->b_dtype == DYTI_BF16 && g->m > BF16_ROWS &&
        g->k >= DOT_LONG_K && host->isa == HOST_AVX512_BF16) {
        return BF16;
    }
    if (g->trans_b && g->m <= DECODE_ROWS) {
        return DOT;
    }
    if (g->trans_b && g->k < DOT_LONG_K) {
        return OUTER;
    }
    if (g->trans_b && g->b_dtype == DYTI_BF16) {
        return DOT;
    }
    if (g->trans_b) {
        return onednn && g->m >= ONEDNN_ROWS ? ONEDNN : DOT;
    }
    return onednn && (g->trans_a || products > SMALL_PRODUCTS) ? ONEDNN : OUTER;
}

static enum dyt_status choose_bf16(struct job *job, dyti_tile_fn *out_tile)
{
    int64_t k = bf16_row(job->g->k);
    int64_t mt = host_min(host_max(196608 / (k * 2) / 6 * 6, 24), 192);

    if (job->g->m <= DECODE_ROWS) { /* a stripe of about 128 KiB */
        cut(job, job->g->m, host_max(65536 / k / 16 * 16, 16), job->g->m, 16);
    } else {
        cut(job, mt, 256, 6, 4);
    }
    *out_tile = bf16_tile;
    return dyti_host_scratch(job->host,
                             (size_t)(job->mt * k) * sizeof(uint16_t));
}

/* Choose the way and the tile; make room for it. */
static enum dyt_status choose(struct job *job, dyti_tile_fn *out_tile)
{
    const struct dyti_gemm *g = job->g;
    struct host *host = job->host;
    const struct host_simd *simd = host->simd;

    switch (way_of(host, g)) {
    case DOT:
        cut_dot(job);
        *out_tile = dot_tile;
        return DYT_OK;
    case BF16:
        return choose_bf16(job, out_tile);
    case ONEDNN:
        cut(job, 768, 768, 48, 48);
        *out_tile = onednn_tile;
        return DYT_OK;
    default:
        cut(job, 192, 128, simd->outer_rows, simd->outer_cols);
        *out_tile = outer_tile;
        return dyti_host_scratch(host,
                                 (size_t)simd->outer_scratch * sizeof(float));
    }
}

enum dyt_status dyti_host_gemm(void *self, const struct dyti_gemm *g)
{
    struct job job = {.host = self, .g = g};
    dyti_tile_fn tile = NULL;
    enum dyt_status st = DYT_OK;

    dyti_assert(!(g->trans_a && g->trans_b));
    if (g->m == 0 || g->n == 0 || g->k == 0) {
        return dyti_reference_gemm(NULL, g);
    }
    st = choose(&job, &tile);
    if (st != DYT_OK) {
        return st;
    }
    job.row_tiles = host_parts(g->m, job.mt);
    job.column_tiles = host_parts(g->n, job.nt);
    dyti_pool_run(job.host->pool, (size_t)(job.row_tiles * job.column_tiles),
                  tile, &job);
    if (atomic_load(&job.failed) != 0) {
        return DYTI_FAIL(DYT_ERR_DEVICE,
                         "oneDNN's product of %lld x %lld x %lld answers %d",
                         (long long)g->m, (long long)g->n, (long long)g->k,
                         atomic_load(&job.failed));
    }
    return DYT_OK;
}
