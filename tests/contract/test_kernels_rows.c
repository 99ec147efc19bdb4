/* Norms, bias, rotary embedding, SwiGLU and embedding of the host against the
 * reference: odd sizes, leading dimensions, dtypes; the same bits for 1, 2, 3
 * threads. */
#include "kernels_test.h"

static const int64_t widths[] = {1, 7, 16, 64, 100, 577};
static const enum dyti_dtype dtypes[] = {DYTI_F32, DYTI_BF16};

/* Keep the bits of `got`, and compare it with `want`. */
static void same(struct bits *bits, const char *what, const float *got,
                 const float *want, int64_t count, double tolerance)
{
    keep_bits(bits, got, (size_t)count * sizeof(float));
    if (!bits->compare) {
        assert_close(what, got, want, count, tolerance, 1.0);
    }
}

/* Enough rows for several tiles at every width. */
static int64_t rows_for(int64_t cols)
{
    return 3 + 40000 / cols;
}

/* ---- norms ---- */

static void check_norm(struct dyti_kernels host, struct dyti_kernels reference,
                       struct bits *bits, int64_t cols, enum dyti_dtype dtype)
{
    struct bag bag = {0};
    int64_t rows = rows_for(cols), count = rows * cols;
    void *w = weights(&bag, cols, 1, 1.0f, dtype);
    float *x = floats(&bag, count, 2, 3.0f), *y = floats(&bag, count, 3, 0.0f);
    float *want = floats(&bag, count, 3, 0.0f);
    float *inv = floats(&bag, rows, 4, 0.0f), *other = floats(&bag, rows, 4, 0);

    assert_ok(
        host.ops->rmsnorm(host.self, x, w, dtype, 1e-5f, rows, cols, y, inv));
    assert_ok(reference.ops->rmsnorm(reference.self, x, w, dtype, 1e-5f, rows,
                                     cols, want, other));
    same(bits, "y", y, want, count, 2e-6);
    same(bits, "inv_rms", inv, other, rows, 2e-6);
    memcpy(want, x, (size_t)count * sizeof(float)); /* in place, unwanted inv */
    assert_ok(host.ops->rmsnorm(host.self, want, w, dtype, 1e-5f, rows, cols,
                                want, NULL));
    assert_memory_equal(y, want, (size_t)count * sizeof(float));
    bag_empty(&bag);
}

static void check_norm_back(struct dyti_kernels host,
                            struct dyti_kernels reference, struct bits *bits,
                            int64_t cols, enum dyti_dtype dtype,
                            bool accumulate)
{
    struct bag bag = {0};
    int64_t rows = rows_for(cols), count = rows * cols;
    void *w = weights(&bag, cols, 1, 1.0f, dtype);
    float *x = floats(&bag, count, 2, 3.0f), *dy = floats(&bag, count, 3, 1.0f);
    float *inv = floats(&bag, rows, 4, 1.0f);
    float *dx = accumulate ? floats(&bag, count, 5, 1.0f)
                           : copy_of(&bag, dy, (size_t)count * sizeof(float));
    float *want = copy_of(&bag, dx, (size_t)count * sizeof(float));
    float *dw = floats(&bag, cols, 6, 1.0f), *want_w = floats(&bag, cols, 6, 1);

    assert_ok(host.ops->rmsnorm_back(host.self, accumulate ? dy : dx, x, w,
                                     dtype, inv, rows, cols, dx, accumulate,
                                     dw));
    assert_ok(reference.ops->rmsnorm_back(
        reference.self, accumulate ? dy : want, x, w, dtype, inv, rows, cols,
        want, accumulate, want_w));
    same(bits, "dx", dx, want, count, 5e-6);
    same(bits, "dw", dw, want_w, cols, 1e-6 * (double)rows);
    bag_empty(&bag);
}

static void check_headnorm(struct dyti_kernels host,
                           struct dyti_kernels reference, struct bits *bits,
                           int64_t dim, enum dyti_dtype dtype)
{
    struct bag bag = {0};
    int64_t rows = rows_for(3 * dim), ld = 3 * dim + 5, count = rows * ld;
    void *w = weights(&bag, dim, 1, 1.0f, dtype);
    float *x = floats(&bag, count, 2, 3.0f), *y = floats(&bag, count, 2, 3.0f);
    float *want = floats(&bag, count, 2, 3.0f);
    float *inv = floats(&bag, rows * 3, 4, 0.0f);
    float *other = floats(&bag, rows * 3, 4, 0.0f);
    float *dy = floats(&bag, count, 5, 1.0f), *d = floats(&bag, count, 5, 1.0f);
    float *dw = floats(&bag, dim, 6, 1.0f), *want_w = floats(&bag, dim, 6, 1);

    assert_ok(host.ops->headnorm(host.self, y, ld, rows, 3, dim, w, dtype,
                                 1e-5f, inv));
    assert_ok(reference.ops->headnorm(reference.self, want, ld, rows, 3, dim, w,
                                      dtype, 1e-5f, other));
    same(bits, "y", y, want, count, 2e-6);
    same(bits, "inv_rms", inv, other, rows * 3, 2e-6);
    assert_ok(host.ops->headnorm_back(host.self, dy, x, ld, rows, 3, dim, w,
                                      dtype, other, dw));
    assert_ok(reference.ops->headnorm_back(reference.self, d, x, ld, rows, 3,
                                           dim, w, dtype, other, want_w));
    same(bits, "dy", dy, d, count, 5e-6);
    same(bits, "dw", dw, want_w, dim, 1e-6 * (double)rows);
    bag_empty(&bag);
}

static void check_norms(struct dyti_kernels host, struct dyti_kernels reference,
                        struct bits *bits)
{
    for (size_t i = 0; i < DYT_TEST_COUNT(widths); i++) {
        for (size_t d = 0; d < DYT_TEST_COUNT(dtypes); d++) {
            check_norm(host, reference, bits, widths[i], dtypes[d]);
            check_norm_back(host, reference, bits, widths[i], dtypes[d], true);
            check_norm_back(host, reference, bits, widths[i], dtypes[d], false);
            check_headnorm(host, reference, bits, widths[i], dtypes[d]);
        }
    }
}

static void norms(void **state)
{
    (void)state;
    each_isa(check_norms);
}

/* ---- bias, rotary embedding, SwiGLU ---- */

static void check_bias(struct dyti_kernels host, struct dyti_kernels reference,
                       struct bits *bits, int64_t cols, enum dyti_dtype dtype)
{
    struct bag bag = {0};
    int64_t rows = rows_for(cols), ld = cols + 3, count = rows * ld;
    void *bias = weights(&bag, cols, 1, 1.0f, dtype);
    float *x = floats(&bag, count, 2, 3.0f), *want = floats(&bag, count, 2, 3);
    float *db = floats(&bag, cols, 3, 1.0f), *sum = floats(&bag, cols, 3, 1.0f);

    assert_ok(host.ops->add_bias(host.self, x, ld, rows, cols, bias, dtype));
    assert_ok(reference.ops->add_bias(reference.self, want, ld, rows, cols,
                                      bias, dtype));
    same(bits, "x", x, want, count, 0.0);
    assert_ok(host.ops->bias_back(host.self, x, ld, rows, cols, db));
    assert_ok(reference.ops->bias_back(reference.self, x, ld, rows, cols, sum));
    same(bits, "db", db, sum, cols, 0.0);
    bag_empty(&bag);
}

static void check_rope(struct dyti_kernels host, struct dyti_kernels reference,
                       struct bits *bits, int64_t half, bool inverse)
{
    struct bag bag = {0};
    int64_t rows = rows_for(6 * half), ld = 6 * half + 1, count = rows * ld;
    float *x = floats(&bag, count, 2, 3.0f), *want = floats(&bag, count, 2, 3);
    float *table = floats(&bag, 50 * 2 * half, 3, 1.0f);
    int32_t *position = bag_bytes(&bag, (size_t)rows * sizeof(int32_t));

    for (int64_t r = 0; r < rows; r++) {
        position[r] = (int32_t)random_int(4, r, 50);
    }
    assert_ok(host.ops->rope(host.self, x, ld, rows, 3, 2 * half, position,
                             table, inverse));
    assert_ok(reference.ops->rope(reference.self, want, ld, rows, 3, 2 * half,
                                  position, table, inverse));
    same(bits, "x", x, want, count, 1e-6);
    bag_empty(&bag);
}

static void check_swiglu(struct dyti_kernels host,
                         struct dyti_kernels reference, struct bits *bits,
                         int64_t f, float amplitude)
{
    struct bag bag = {0};
    int64_t rows = rows_for(f), count = rows * f;
    float *in = floats(&bag, 2 * count, 1, amplitude);
    float *dy = floats(&bag, count, 2, 1.0f);
    float *y = floats(&bag, count, 3, 0.0f), *want = floats(&bag, count, 3, 0);
    float *d = floats(&bag, 2 * count, 4, 1.0f);
    float *want_d = floats(&bag, 2 * count, 4, 1.0f);

    assert_ok(host.ops->swiglu(host.self, in, rows, f, y));
    assert_ok(reference.ops->swiglu(reference.self, in, rows, f, want));
    same(bits, "y", y, want, count, 1e-6);
    assert_ok(host.ops->swiglu_back(host.self, dy, in, rows, f, d));
    assert_ok(
        reference.ops->swiglu_back(reference.self, dy, in, rows, f, want_d));
    /* 1 - sigma loses digits that g multiplies. */
    same(bits, "dgate_up", d, want_d, 2 * count, 1e-6 * (double)amplitude);
    bag_empty(&bag);
}

static void check_row_work(struct dyti_kernels host,
                           struct dyti_kernels reference, struct bits *bits)
{
    for (size_t i = 0; i < DYT_TEST_COUNT(widths); i++) {
        check_bias(host, reference, bits, widths[i], dtypes[i % 2]);
        check_rope(host, reference, bits, widths[i], i % 2 == 0);
        check_swiglu(host, reference, bits, widths[i], 4.0f);
        check_swiglu(host, reference, bits, widths[i], 200.0f);
    }
}

static void row_work(void **state)
{
    (void)state;
    each_isa(check_row_work);
}

/* ---- embedding ---- */

static void check_embed(struct dyti_kernels host, struct dyti_kernels reference,
                        struct bits *bits, int64_t cols, enum dyti_dtype dtype)
{
    struct bag bag = {0};
    int64_t rows = rows_for(cols), count = rows * cols;
    void *table = weights(&bag, 30 * cols, 1, 1.0f, dtype);
    float *x = floats(&bag, count, 2, 3.0f), *want = floats(&bag, count, 2, 3);
    float *dy = floats(&bag, count, 3, 1.0f);
    float *d = floats(&bag, 30 * cols, 4, 1.0f);
    float *sum = floats(&bag, 30 * cols, 4, 1.0f);
    int32_t *ids = bag_bytes(&bag, (size_t)rows * sizeof(int32_t));

    for (int64_t r = 0; r < rows; r++) { /* 10..39 are ours */
        ids[r] = (int32_t)random_int(5, r, 50);
    }
    assert_ok(
        host.ops->embed(host.self, ids, rows, table, dtype, 10, 40, cols, x));
    assert_ok(reference.ops->embed(reference.self, ids, rows, table, dtype, 10,
                                   40, cols, want));
    same(bits, "out", x, want, count, 0.0);
    assert_ok(host.ops->embed_back(host.self, ids, rows, dy, 10, 40, cols, d));
    assert_ok(reference.ops->embed_back(reference.self, ids, rows, dy, 10, 40,
                                        cols, sum));
    same(bits, "dtable", d, sum, 30 * cols, 0.0);
    bag_empty(&bag);
}

static void check_embeddings(struct dyti_kernels host,
                             struct dyti_kernels reference, struct bits *bits)
{
    for (size_t i = 0; i < DYT_TEST_COUNT(widths); i++) {
        for (size_t d = 0; d < DYT_TEST_COUNT(dtypes); d++) {
            check_embed(host, reference, bits, widths[i], dtypes[d]);
        }
    }
}

static void embeddings(void **state)
{
    (void)state;
    each_isa(check_embeddings);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(norms),
    cmocka_unit_test(row_work),
    cmocka_unit_test(embeddings),
};

DYT_TEST_MAIN(tests)
