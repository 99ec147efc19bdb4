/* Products by cuBLAS over the simulator: settings that give equal bits, and a
 * library that is not there, too old or failing.  Numbers are for the contract
 * tests of kernels. */
#include "gpusim/sim_test.h"

#include "device/cuda/table.h"

#include "include/cublas_v2.h"

#include <math.h>

#define M 5
#define N 7
#define K 3

static const struct dyti_kernel_ops *const cuda = &dyti_kernels_cuda;

struct factors {
    void *a, *b, *c; /* of the device */
};

static struct factors make_factors(void)
{
    struct factors f = {dyt_sim_alloc(M * K * 4), dyt_sim_alloc(K * N * 4),
                        dyt_sim_alloc(M * N * 4)};
    float one[K * N];

    for (int i = 0; i < K * N; i++) {
        one[i] = 1.0f + 0x1p-13f; /* more bits than TF32 has */
    }
    assert_cuda(cudaMemcpy(f.a, one, M * K * 4, cudaMemcpyHostToDevice));
    assert_cuda(cudaMemcpy(f.b, one, K * N * 4, cudaMemcpyHostToDevice));
    return f;
}

static void free_factors(struct factors f)
{
    assert_cuda(cudaFree(f.a));
    assert_cuda(cudaFree(f.b));
    assert_cuda(cudaFree(f.c));
}

static struct dyti_gemm gemm_of(struct factors f, enum dyti_dtype dtype)
{
    return (struct dyti_gemm){.m = M,
                              .n = N,
                              .k = K,
                              .a = f.a,
                              .lda = K,
                              .b = f.b,
                              .ldb = N,
                              .c = f.c,
                              .ldc = N,
                              .b_dtype = dtype};
}

static void *open_cuda(bool tf32)
{
    struct dyti_kernel_params params = {.struct_size = sizeof(params),
                                        .tf32 = tf32};
    void *self = NULL;

    assert_ok(cuda->open(&params, &self));
    return self;
}

static float first_of(void *c)
{
    float *got = dyt_sim_get(c, M * N * 4), first = got[0];

    for (int i = 1; i < M * N; i++) {
        assert_true(got[i] == first);
    }
    free(got);
    return first;
}

static void bits_are_as_configured(void **state)
{
    struct factors f = make_factors();
    struct dyti_gemm g = gemm_of(f, DYTI_F32);
    float exact = (1.0f + 0x1p-13f) * (1.0f + 0x1p-13f) * K;
    void *full = open_cuda(false), *tf32 = open_cuda(true);

    (void)state;
    gpusim_cublas_add("libcublas.so.13");
    assert_int_equal(0, gpusim_cublas()->handles); /* not until asked for */
    assert_ok(cuda->gemm(full, &g));
    assert_true(gpusim_cublas()->is_deterministic);
    assert_int_equal(CUBLAS_PEDANTIC_MATH, gpusim_cublas()->math);
    assert_ok(cuda->wait(full));
    assert_true(fabsf(first_of(f.c) - exact) < 1e-6f);
    assert_ok(cuda->gemm(tf32, &g));
    assert_true(gpusim_cublas()->is_deterministic);
    assert_int_equal(CUBLAS_TF32_TENSOR_OP_MATH, gpusim_cublas()->math);
    assert_ok(cuda->wait(tf32));
    assert_true(first_of(f.c) == 3.0f);
    assert_int_equal(2, gpusim_cublas()->handles);
    cuda->close(full);
    cuda->close(tf32);
    assert_int_equal(0, gpusim_cublas()->handles);
    free_factors(f);
    assert_int_equal(0, gpusim_leaks());
}

/* Scratch is one piece, whoever needs it: the queue orders its users. */
static void products_follow_each_other(void **state)
{
    struct factors f = make_factors();
    struct dyti_gemm g = gemm_of(f, DYTI_BF16);
    void *self = open_cuda(false);

    (void)state;
    gpusim_cublas_add("libcublas.so.13");
    assert_cuda(cudaMemset(f.b, 0x3f, K * N * 4)); /* bf16 0x3f3f */
    assert_cuda(cudaDeviceSynchronize());
    for (int i = 0; i < 100; i++) {
        g.b_dtype = i % 2 == 0 ? DYTI_BF16 : DYTI_F16;
        g.accumulate = i > 0;
        assert_ok(cuda->gemm(self, &g));
    }
    assert_ok(cuda->wait(self));
    assert_int_equal(100, gpusim_cublas()->products);
    assert_true(first_of(f.c) > 0.0f);
    g.m = 0; /* nothing to do */
    assert_ok(cuda->gemm(self, &g));
    assert_int_equal(100, gpusim_cublas()->products);
    g.m = M;
    g.k = 0;
    g.accumulate = false;
    assert_ok(cuda->gemm(self, &g));
    assert_ok(cuda->wait(self));
    assert_true(first_of(f.c) == 0.0f);
    cuda->close(self);
    free_factors(f);
    assert_int_equal(0, gpusim_leaks());
}

static void an_older_library_is_taken_where_it_is_alone(void **state)
{
    struct factors f = make_factors();
    struct dyti_gemm g = gemm_of(f, DYTI_F32);
    void *self = open_cuda(false);

    (void)state;
    gpusim_cublas_add("libcublas.so.12");
    gpusim_library_hide("libcublas.so.13", true);
    assert_ok(cuda->gemm(self, &g));
    assert_ok(cuda->wait(self));
    gpusim_library_hide("libcublas.so.12", true);
    cuda->close(self);
    free_factors(f);
}

static void what_is_missing_is_named(void **state)
{
    struct factors f = make_factors();
    struct dyti_gemm g = gemm_of(f, DYTI_F32);
    void *self = open_cuda(false);

    (void)state;
    gpusim_cublas_add("libcublas.so.13");
    gpusim_library_hide("libcublas.so.13", true);
    gpusim_library_hide("libcublas.so.12", true);
    assert_status(DYT_ERR_UNSUPPORTED, cuda->gemm(self, &g));
    assert_error_has("no cuBLAS (libcublas.so.13:");
    assert_error_has("LD_LIBRARY_PATH");
    gpusim_library_hide("libcublas.so.13", false);
    gpusim_symbol_hide("cublasGemmEx_64");
    assert_status(DYT_ERR_UNSUPPORTED, cuda->gemm(self, &g));
    assert_error_has("cublasGemmEx_64");
    gpusim_symbol_hide(NULL);
    gpusim_cublas()->version = 110900;
    assert_status(DYT_ERR_UNSUPPORTED, cuda->gemm(self, &g));
    assert_error_has("of version 110900");
    gpusim_cublas()->version = 0;
    assert_int_equal(0, gpusim_cublas()->handles);
    assert_ok(cuda->gemm(self, &g)); /* as soon as it is there */
    cuda->close(self);
    free_factors(f);
    assert_int_equal(0, gpusim_leaks());
}

static void failures_are_named(void **state)
{
    struct factors f = make_factors();
    struct dyti_gemm g = gemm_of(f, DYTI_F32);
    struct gpusim_machine machine;
    void *self = open_cuda(false);

    (void)state;
    gpusim_cublas_add("libcublas.so.13");
    gpusim_get_machine(&machine);
    machine.memory_bytes = gpusim_held_bytes();
    gpusim_set_machine(&machine);
    assert_status(DYT_ERR_NOMEM, cuda->gemm(self, &g));
    assert_error_has("the workspace of cuBLAS");
    machine.memory_bytes = 4ull << 30;
    gpusim_set_machine(&machine);
    assert_ok(cuda->gemm(self, &g));
    gpusim_cublas()->fails_next = true;
    assert_status(DYT_ERR_DEVICE, cuda->gemm(self, &g));
    assert_error_has("CUBLAS_STATUS_EXECUTION_FAILED");
    assert_ok(cuda->gemm(self, &g));
    assert_ok(cuda->wait(self));
    g.ldc = N - 1; /* a mistake of ours is the library's to find */
    assert_status(DYT_ERR_DEVICE, cuda->gemm(self, &g));
    assert_error_has("CUBLAS_STATUS_INVALID_VALUE");
    g.ldc = N;
    gpusim_expect(GPUSIM_OUT_OF_BOUNDS);
    g.n = g.ldb = g.ldc = N + 100;
    assert_ok(cuda->gemm(self, &g)); /* it does not know yet */
    assert_status(DYT_ERR_DEVICE, cuda->wait(self));
    assert_error_has("product with columns, of 107");
    cuda->close(self);
    gpusim_reset();
}

static const struct CMUnitTest tests[] = {
    sim_test(bits_are_as_configured),
    sim_test(products_follow_each_other),
    sim_test(an_older_library_is_taken_where_it_is_alone),
    sim_test(what_is_missing_is_named),
    sim_test(failures_are_named),
};
DYT_TEST_MAIN(tests)
