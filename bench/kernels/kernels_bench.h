/* Shared by the files of this program. */
#ifndef DYT_BENCH_KERNELS_H
#define DYT_BENCH_KERNELS_H

#include "bench.h"
#include "device/host/host.h"

#define KERNELS_ROUNDS 9

struct kernels_bench {
    struct bench *bench;
    struct dyti_pool *pool;
    struct dyti_kernels host, reference;
    float *x, *y, *z; /* KERNELS_FLOATS each */
    int rounds;
};

#define KERNELS_FLOATS ((size_t)64 << 20)

/* Copies and hashes against memcpy and reading. */
void bench_memory(struct kernels_bench *k);

#endif /* DYT_BENCH_KERNELS_H */
