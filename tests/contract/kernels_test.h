/* Shared by the tests of the kernel tables: random arrays, handles of every
 * instruction set, comparison within a tolerance. */
#ifndef DYT_KERNELS_TEST_H
#define DYT_KERNELS_TEST_H

#include "dyt_test.h"

#include "base/num.h"
#include "base/rng.h"
#include "device/host/host.h"
#ifdef DYT_TEST_CUDA
#include "gpusim/gpusim.h"
#include "gpusim/mirror.h"
#endif

#include <math.h>

/* Arrays of one test; released together. */
struct bag {
    void *block[256];
    size_t count;
};

static inline void *bag_bytes(struct bag *bag, size_t bytes)
{
    size_t size = (bytes + 63) / 64 * 64 + 64;
    void *p = aligned_alloc(64, size);

    assert_non_null(p);
    assert_true(bag->count < DYT_TEST_COUNT(bag->block));
    memset(p, 0, size);
    bag->block[bag->count++] = p;
    return p;
}

static inline void bag_empty(struct bag *bag)
{
    for (size_t i = 0; i < bag->count; i++) {
        free(bag->block[i]);
    }
    bag->count = 0;
}

/* Uniform in [-amplitude, amplitude). */
static inline float random_value(uint64_t seed, int64_t i, float amplitude)
{
    double u = dyti_rng_unit(dyti_rng_u64(seed, (uint64_t)i, 0, 0));

    return amplitude * (float)(2.0 * u - 1.0);
}

static inline float *floats(struct bag *bag, int64_t count, uint64_t seed,
                            float amplitude)
{
    float *x = bag_bytes(bag, (size_t)count * sizeof(float));

    for (int64_t i = 0; i < count; i++) {
        x[i] = random_value(seed, i, amplitude);
    }
    return x;
}

/* The same values rounded, where the dtype is narrow. */
static inline void *weights(struct bag *bag, int64_t count, uint64_t seed,
                            float amplitude, enum dyti_dtype dtype)
{
    float *x = floats(bag, count, seed, amplitude);
    uint16_t *h = NULL;

    if (dtype == DYTI_F32) {
        return x;
    }
    h = bag_bytes(bag, (size_t)count * sizeof(uint16_t));
    for (int64_t i = 0; i < count; i++) {
        h[i] =
            dtype == DYTI_BF16 ? dyti_f32_to_bf16(x[i]) : dyti_f32_to_f16(x[i]);
    }
    return h;
}

static inline void *copy_of(struct bag *bag, const void *p, size_t bytes)
{
    return memcpy(bag_bytes(bag, bytes), p, bytes);
}

static inline int64_t random_int(uint64_t seed, int64_t i, int64_t bound)
{
    return (int64_t)(dyti_rng_u64(seed, (uint64_t)i, 1, 0) % (uint64_t)bound);
}

/* |got - want| <= tolerance (|want| + scale) everywhere. */
static inline void assert_close(const char *what, const float *got,
                                const float *want, int64_t count,
                                double tolerance, double scale)
{
    for (int64_t i = 0; i < count; i++) {
        double bound = tolerance * (fabs((double)want[i]) + scale);

        if (!(fabs((double)got[i] - want[i]) <= bound)) {
            fail_msg("%s[%lld] is %.9g, want %.9g within %.3g", what,
                     (long long)i, (double)got[i], (double)want[i], bound);
        }
    }
}

/* ---- handles ----------------------------------------------------------- */

static inline struct dyti_kernels open_kernels(
    const struct dyti_kernel_ops *ops, const char *isa, struct dyti_pool *pool)
{
    struct dyti_kernel_params params = {
        .struct_size = sizeof(params), .pool = pool, .isa = isa};
    struct dyti_kernels k = {ops, NULL};

    assert_ok(ops->open(&params, &k.self));
    return k;
}

static inline struct dyti_kernels open_reference(void)
{
    return open_kernels(&dyti_kernels_reference, NULL, NULL);
}

static inline void close_kernels(struct dyti_kernels k)
{
    k.ops->close(k.self);
}

#define TEST_THREADS 3

/* `check(host, reference)` for each instruction set of this machine and each
 * number of threads; the check writes its results into `result` through
 * keep_bits, which must not depend on the number of threads. */
struct bits {
    void *bytes;
    size_t size, at;
    bool compare;
};

static inline void keep_bits(struct bits *bits, const void *p, size_t bytes)
{
    if (bytes == 0) {
        return;
    }
    if (bits->compare) {
        assert_true(bits->at + bytes <= bits->size);
        assert_memory_equal((char *)bits->bytes + bits->at, p, bytes);
    } else {
        bits->bytes = realloc(bits->bytes, bits->at + bytes);
        assert_non_null(bits->bytes);
        memcpy((char *)bits->bytes + bits->at, p, bytes);
        bits->size = bits->at + bytes;
    }
    bits->at += bytes;
}

typedef void (*kernels_check_fn)(struct dyti_kernels host,
                                 struct dyti_kernels reference,
                                 struct bits *bits);

static inline void check_isa(const char *isa, kernels_check_fn check)
{
    struct dyti_kernels reference = open_reference();
    struct bits bits = {0};

    for (uint32_t threads = 1; threads <= TEST_THREADS; threads++) {
        struct dyti_pool *pool = NULL;
        struct dyti_kernels host;

        assert_ok(dyti_pool_create(threads, &pool));
        host = open_kernels(&dyti_kernels_host, isa, pool);
        assert_string_equal(isa, host.ops->isa(host.self));
        bits.at = 0;
        bits.compare = threads > 1;
        check(host, reference, &bits);
        assert_int_equal(bits.size, bits.at);
        close_kernels(host);
        dyti_pool_destroy(pool);
    }
    free(bits.bytes);
    close_kernels(reference);
}

static inline void each_isa(kernels_check_fn check)
{
    static const char *const isa[] = {"scalar", "avx2", "avx512",
                                      "avx512_bf16"};

    for (size_t i = 0; i < DYT_TEST_COUNT(isa); i++) {
        struct dyti_kernel_params params = {.struct_size = sizeof(params),
                                            .isa = isa[i]};
        void *self = NULL;

        if (dyti_kernels_host.open(&params, &self) != DYT_OK) {
            assert_error_has(isa[i]); /* this machine has not got it */
            continue;
        }
        dyti_kernels_host.close(self);
        check_isa(isa[i], check);
    }
}

/* The same for the cuda table, in each order that the simulator knows: bits do
 * not depend on that either.  Builds without the simulator: nothing. */
static inline void on_cuda(kernels_check_fn check)
{
#ifdef DYT_TEST_CUDA
    static const enum gpusim_order order[] = {GPUSIM_LATE, GPUSIM_EARLY,
                                              GPUSIM_SHUFFLED};
    struct dyti_kernels reference = open_reference();
    struct bits bits = {0};

    gpusim_cublas_add("libcublas.so.13");
    for (size_t i = 0; i < DYT_TEST_COUNT(order); i++) {
        struct dyti_kernels cuda;

        gpusim_set_order(order[i], i);
        cuda = open_kernels(&dyt_kernels_cuda_mirror, NULL, NULL);
        bits.at = 0;
        bits.compare = i > 0;
        check(cuda, reference, &bits);
        assert_int_equal(bits.size, bits.at);
        close_kernels(cuda);
        assert_int_equal(0, gpusim_leaks());
        assert_int_equal(0, gpusim_unexpected());
    }
    free(bits.bytes);
    close_kernels(reference);
#else
    (void)check;
#endif
}

#endif /* DYT_KERNELS_TEST_H */
