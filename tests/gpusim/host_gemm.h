/* c[m,n] (+)= a[m,k]·b[k,n] in f32, row-major, a and b dense: the reference's
 * product (ops/kernels.h), for C++.  0: done. */
#ifndef DYT_GPUSIM_HOST_GEMM_H
#define DYT_GPUSIM_HOST_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

int gpusim_host_gemm(int64_t m, int64_t n, int64_t k, const float *a,
                     const float *b, float *c, int64_t ldc, bool accumulate);

#ifdef __cplusplus
}
#endif

#endif /* DYT_GPUSIM_HOST_GEMM_H */
