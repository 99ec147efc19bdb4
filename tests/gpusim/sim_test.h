/* What the tests under the simulator share. */
#ifndef DYT_GPUSIM_SIM_TEST_H
#define DYT_GPUSIM_SIM_TEST_H

#include "dyt_test.h"

#include "gpusim.h"

#include <cuda_runtime_api.h>

#define assert_cuda(call)                                                      \
    dyt_sim_assert((int)cudaSuccess, (int)(call), #call, __FILE__, __LINE__)
#define assert_cuda_error(want, call)                                          \
    dyt_sim_assert((int)(want), (int)(call), #call, __FILE__, __LINE__)

static inline void dyt_sim_assert(int want, int got, const char *what,
                                  const char *file, int line)
{
    if (want != got) {
        print_error("%s:%d: %s says %s, not %s (%s)\n", file, line, what,
                    cudaGetErrorName((cudaError_t)got),
                    cudaGetErrorName((cudaError_t)want), gpusim_fault_text());
        _fail(file, line);
    }
}

/* Memory of the device, without a value. */
static inline void *dyt_sim_alloc(size_t bytes)
{
    void *at = NULL;

    assert_cuda(cudaMalloc(&at, bytes));
    return at;
}

/* The same with a value in each byte. */
static inline void *dyt_sim_filled(size_t bytes, int value)
{
    void *at = dyt_sim_alloc(bytes);

    assert_cuda(cudaMemset(at, value, bytes));
    assert_cuda(cudaDeviceSynchronize());
    return at;
}

/* Bytes of the device, copied here; the caller frees them. */
static inline void *dyt_sim_get(const void *from, size_t bytes)
{
    void *to = malloc(bytes);

    assert_non_null(to);
    assert_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
    return to;
}

static inline int dyt_sim_setup(void **state)
{
    (void)state;
    gpusim_reset();
    return 0;
}

/* Nothing unexpected happened, and nothing is left. */
static inline int dyt_sim_teardown(void **state)
{
    (void)state;
    return gpusim_unexpected() == 0 ? 0 : -1;
}

#define sim_test(function)                                                     \
    cmocka_unit_test_setup_teardown(function, dyt_sim_setup, dyt_sim_teardown)

#endif /* DYT_GPUSIM_SIM_TEST_H */
