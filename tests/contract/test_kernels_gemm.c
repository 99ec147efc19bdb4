/* The host's products, and those of cuda under the simulator, against the
 * reference's: every way that dispatch knows, odd shapes, leading dimensions,
 * dtypes; the same bits for 1, 2, 3 threads. */
#include "kernels_test.h"

struct shape {
    int64_t m, n, k;
};

enum { NT, NN, TN }; /* is b, is nothing, is a stored transposed */

/* Rounding of a sum of k products in lanes; bf16 products round a as well. */
static double tolerance(struct dyti_kernels host, const struct dyti_gemm *g)
{
    bool rounds_a = g->b_dtype == DYTI_BF16 &&
                    (strcmp(host.ops->name, "cuda") == 0 ||
                     (g->trans_b && g->m > 4 &&
                      strcmp(host.ops->isa(host.self), "avx512_bf16") == 0));

    return rounds_a ? 0x1p-9 : 0x1p-20;
}

static void check_shape(struct dyti_kernels host, struct dyti_kernels reference,
                        struct bits *bits, struct shape s, int way,
                        enum dyti_dtype dtype, bool accumulate)
{
    struct bag bag = {0};
    int64_t a_cols = way == TN ? s.m : s.k, b_cols = way == NT ? s.k : s.n;
    int64_t lda = a_cols + 3, ldb = b_cols + 1, ldc = s.n + 2;
    struct dyti_gemm g = {
        .m = s.m,
        .n = s.n,
        .k = s.k,
        .a = floats(&bag, (way == TN ? s.k : s.m) * lda, 1, 1.0f),
        .lda = lda,
        .b = weights(&bag, (way == NT ? s.n : s.k) * ldb, 2, 1.0f, dtype),
        .ldb = ldb,
        .c = floats(&bag, s.m * ldc, 3, 1.0f),
        .ldc = ldc,
        .b_dtype = dtype,
        .trans_a = way == TN,
        .trans_b = way == NT,
        .accumulate = accumulate};
    size_t bytes = (size_t)(s.m * ldc) * sizeof(float);
    float *want = copy_of(&bag, g.c, bytes), *got = g.c;

    assert_ok(host.ops->gemm(host.self, &g));
    keep_bits(bits, got, bytes);
    if (!bits->compare) {
        g.c = want;
        assert_ok(reference.ops->gemm(reference.self, &g));
        assert_close("c", got, want, s.m * ldc, tolerance(host, &g),
                     (double)s.k);
    }
    bag_empty(&bag);
}

static void check_shapes(struct dyti_kernels host,
                         struct dyti_kernels reference, struct bits *bits)
{
    /* Decode, tiny and tile-crossing shapes, and edges of every block. */
    static const struct shape shape[] = {
        {1, 1, 1},     {1, 7, 3},      {1, 50, 600},  {2, 33, 64},
        {3, 5, 17},    {7, 130, 300},  {16, 9, 33},   {17, 31, 257},
        {32, 42, 64},  {33, 192, 64},  {97, 130, 31}, {130, 131, 289},
        {200, 17, 65}, {400, 390, 20}, {5, 64, 515},  {19, 3, 1}};

    for (size_t i = 0; i < DYT_TEST_COUNT(shape); i++) {
        for (int way = NT; way <= TN; way++) {
            bool accumulate = (i + (size_t)way) % 2 == 1;

            check_shape(host, reference, bits, shape[i], way, DYTI_F32,
                        accumulate);
            check_shape(host, reference, bits, shape[i], way, DYTI_BF16,
                        !accumulate);
            if (strcmp(host.ops->name, "cuda") == 0) {
                check_shape(host, reference, bits, shape[i], way, DYTI_F16,
                            accumulate);
            }
        }
    }
}

static void products_agree_with_the_reference(void **state)
{
    (void)state;
    each_isa(check_shapes);
}

static void check_empty(struct dyti_kernels host, struct dyti_kernels reference,
                        struct bits *bits)
{
    float c[4] = {1.0f, 2.0f, 3.0f, 4.0f}, zero[4] = {0};
    struct dyti_gemm g = {.m = 2,
                          .n = 2,
                          .k = 0,
                          .a = c,
                          .lda = 2,
                          .b = c,
                          .ldb = 2,
                          .c = c,
                          .ldc = 2,
                          .accumulate = true};

    (void)reference;
    assert_ok(host.ops->gemm(host.self, &g));
    assert_true(c[0] == 1.0f && c[3] == 4.0f);
    g.accumulate = false;
    assert_ok(host.ops->gemm(host.self, &g));
    assert_memory_equal(c, zero, sizeof(c));
    keep_bits(bits, c, sizeof(c));
}

static void empty_products(void **state)
{
    (void)state;
    each_isa(check_empty);
}

static void cuda_does_the_same(void **state)
{
    (void)state;
    on_cuda(check_shapes);
    on_cuda(check_empty);
}

/* A row's result does not depend on the rows beside it (f32, long k): decoding
 * and training see the same numbers. */
static void rows_do_not_depend_on_their_neighbours(void **state)
{
    struct dyti_kernels host = open_kernels(&dyti_kernels_host, NULL, NULL);
    struct bag bag = {0};
    struct dyti_gemm g = {.m = 40,
                          .n = 130,
                          .k = 300,
                          .a = floats(&bag, 40 * 300, 1, 1.0f),
                          .lda = 300,
                          .b = floats(&bag, 130 * 300, 2, 1.0f),
                          .ldb = 300,
                          .c = floats(&bag, 40 * 130, 3, 0.0f),
                          .ldc = 130,
                          .trans_b = true};
    float *all = g.c;

    (void)state;
    assert_ok(host.ops->gemm(host.self, &g));
    g.c = floats(&bag, 130, 4, 0.0f);
    g.m = 1;
    for (int64_t i = 0; i < 40; i++) {
        assert_ok(host.ops->gemm(host.self, &g));
        assert_memory_equal(all + i * 130, g.c, 130 * sizeof(float));
        g.a += 300;
    }
    bag_empty(&bag);
    close_kernels(host);
}

/* A product for oneDNN, which comes with a pool of its own that must never
 * start. */
static void large_products_start_no_threads(void **state)
{
    struct dyti_pool *pool = NULL;
    struct dyti_kernels host;
    struct bag bag = {0};
    struct dyti_gemm g = {.m = 600,
                          .n = 900,
                          .k = 200,
                          .a = floats(&bag, 600 * 200, 1, 1.0f),
                          .lda = 200,
                          .b = floats(&bag, 200 * 900, 2, 1.0f),
                          .ldb = 900,
                          .c = floats(&bag, 600 * 900, 3, 0.0f),
                          .ldc = 900};
    struct dyti_kernels alone = open_kernels(&dyti_kernels_host, NULL, NULL);
    struct dyti_kernels reference = open_reference();
    float *one = floats(&bag, 600 * 900, 4, 0.0f), *got = NULL;
    uint32_t before = 0;

    (void)state;
    assert_ok(dyti_pool_create(3, &pool));
    host = open_kernels(&dyti_kernels_host, NULL, pool);
    before = dyt_threads();
    assert_true(before == 3 || dyt_test_instrumented());
    assert_ok(host.ops->gemm(host.self, &g));
    assert_int_equal(before, dyt_threads());
    /* The same bits as in one thread, and right. */
    got = g.c;
    g.c = one;
    assert_ok(alone.ops->gemm(alone.self, &g));
    assert_memory_equal(got, one, 600 * 900 * sizeof(float));
    assert_ok(reference.ops->gemm(reference.self, &g));
    assert_close("c", got, one, 600 * 900, 0x1p-20, 200.0);
    close_kernels(alone);
    close_kernels(reference);
    close_kernels(host);
    dyti_pool_destroy(pool);
    bag_empty(&bag);
}

static void unknown_instruction_sets_are_refused(void **state)
{
    struct dyti_kernel_params params = {.struct_size = sizeof(params),
                                        .isa = "avx9"};
    void *self = NULL;

    (void)state;
    assert_status(DYT_ERR_INVALID, dyti_kernels_host.open(&params, &self));
    assert_error_has("'avx9'");
    assert_null(self);
    params.isa = "avx2";
    assert_status(DYT_ERR_UNSUPPORTED,
                  dyti_kernels_reference.open(&params, &self));
    assert_error_has("'avx2'");
    assert_null(self);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(products_agree_with_the_reference),
    cmocka_unit_test(empty_products),
    cmocka_unit_test(cuda_does_the_same),
    cmocka_unit_test(rows_do_not_depend_on_their_neighbours),
    cmocka_unit_test(large_products_start_no_threads),
    cmocka_unit_test(unknown_instruction_sets_are_refused),
};

DYT_TEST_MAIN(tests)
