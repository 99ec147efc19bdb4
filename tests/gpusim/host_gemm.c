/* The host's product for the simulated cuBLAS, which is C++. */
#include "gpusim/host_gemm.h"

#include "device/host/host.h"

int gpusim_host_gemm(int64_t m, int64_t n, int64_t k, const float *a,
                     const float *b, float *c, int64_t ldc, bool accumulate)
{
    struct dyti_gemm g = {.m = m,
                          .n = n,
                          .k = k,
                          .a = a,
                          .lda = k > 0 ? k : 1,
                          .b = b,
                          .ldb = n,
                          .c = c,
                          .ldc = ldc,
                          .b_dtype = DYTI_F32,
                          .accumulate = accumulate};

    return (int)dyti_kernels_reference.gemm(NULL, &g);
}
