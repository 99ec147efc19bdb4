/* What the tests of the cuda device's table share: handles, the orders in which
 * work may run, many small copies. */
#ifndef DYT_GPUSIM_KERNELS_CASE_H
#define DYT_GPUSIM_KERNELS_CASE_H

#include "boxes_case.h"

#include "device/cuda/table.h"

static const struct dyti_kernel_ops *const cuda = &dyti_kernels_cuda;

static inline void *open_cuda(void)
{
    struct dyti_kernel_params params = {.struct_size = sizeof(params)};
    void *self = NULL;

    assert_ok(cuda->open(&params, &self));
    return self;
}

/* Nothing is left of it. */
static inline void close_cuda(void *self)
{
    cuda->close(self);
    assert_int_equal(0, gpusim_leaks());
}

/* The whole of it in the first order. */
static inline void in_each_order(void (*check)(uint64_t seed))
{
    static const enum gpusim_order order[] = {GPUSIM_LATE, GPUSIM_EARLY,
                                              GPUSIM_SHUFFLED};

    for (size_t i = 0; i < DYT_TEST_COUNT(order); i++) {
        gpusim_reset();
        gpusim_set_order(order[i], i);
        check(i);
        assert_int_equal(0, gpusim_unexpected());
    }
}

/* `count` copies of `cols` bf16, at odd places; the last `spread` of each. */
static inline void small_copies(const struct boxes_case *c,
                                struct dyti_copy *copy, size_t count,
                                int64_t cols)
{
    for (size_t i = 0; i < count; i++) {
        copy[i] = (struct dyti_copy){.src = c->src + i * (size_t)(cols + 3) * 2,
                                     .dst = c->dst + i * (size_t)(cols + 1) * 2,
                                     .size = {1, 1, 1, cols},
                                     .src_stride = {0, 0, 0, 2},
                                     .dst_stride = {0, 0, 0, 2},
                                     .src_dtype = DYTI_BF16,
                                     .dst_dtype = DYTI_BF16};
    }
}

#endif /* DYT_GPUSIM_KERNELS_CASE_H */
