/* What the parts of bench/gpu share. */
#ifndef DYT_BENCH_GPU_H
#define DYT_BENCH_GPU_H

#include "base/error.h"
#include "bench.h"

/* Copies of boxes against a device memcpy of as many bytes. */
enum dyt_status gpu_bench_pack(struct bench *bench);
/* Switches of four ranks, a process each, on one GPU.  Before anything else in
 * this process starts the driver: it forks. */
enum dyt_status gpu_bench_switch(struct bench *bench);

#endif /* DYT_BENCH_GPU_H */
