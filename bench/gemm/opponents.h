/* Matrix products of others, with their own threads: y = a·b by dnnl_sgemm and
 * by cblas_sgemm (OpenBLAS, loaded if it is there). */
#ifndef DYT_BENCH_GEMM_OPPONENTS_H
#define DYT_BENCH_GEMM_OPPONENTS_H

#include "ops/kernels.h"

struct opponent {
    const char *name;
    bool (*run)(const struct dyti_gemm *g, int threads); /* f32 only */
};

/* Those of this machine; returns how many (at most 2). */
int opponents_find(struct opponent out[2]);

#endif /* DYT_BENCH_GEMM_OPPONENTS_H */
