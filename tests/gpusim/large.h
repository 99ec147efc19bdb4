/* A window of an axis that is longer than memory: the kernels' own loops over
 * [lo, hi) of a list, for tests/gpusim/test_large.c. */
#ifndef DYT_GPUSIM_LARGE_H
#define DYT_GPUSIM_LARGE_H

#include "device/cuda/box.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As dyti_cuda_copy_launch(), for bytes [lo, hi) of the list. */
int large_copy_launch(const struct dyti_cuda_box *box, const uint64_t *first,
                      uint32_t count, uint64_t lo, uint64_t hi,
                      uint32_t blocks);
/* As dyti_cuda_hash_launch(), for elements [lo, hi). */
int large_hash_launch(const struct dyti_cuda_hash_box *box,
                      const uint64_t *first, uint32_t count, uint64_t lo,
                      uint64_t hi, uint64_t *sum, uint32_t blocks);

/* What a thread has of [0, total): lo [warps], hi [warps] of a grid. */
int large_parts_launch(uint64_t total, uint64_t *lo, uint64_t *hi,
                       uint32_t blocks);
/* quotient[i], rest[i] of a[i] / b[i]; 128 of them. */
int large_divide_launch(const uint64_t *a, const uint64_t *b,
                        uint64_t *quotient, uint64_t *rest);

#ifdef __cplusplus
}
#endif

#endif /* DYT_GPUSIM_LARGE_H */
