/* The kernels of the cuda device, as C calls that queue one launch.  No type of
 * CUDA in it: `stream` is a cudaStream_t, and what is returned a cudaError_t.
 * Lists, sums and what boxes point to are on the device, borrowed until
 * `stream` is past this point.  Nothing here allocates or waits. */
#ifndef DYTI_DEVICE_CUDA_KERNELS_H
#define DYTI_DEVICE_CUDA_KERNELS_H

#include "device/cuda/box.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Load the kernels for this thread's device, before anything is under way on
 * it: a launch never has to. */
int dyti_cuda_copy_load(void);
int dyti_cuda_hash_load(void);

/* Move all boxes of a list: box [count], first [count + 1], bytes = first of
 * the last.  At most `most_blocks` blocks; 0: as many as are worth it. */
int dyti_cuda_copy_launch(const struct dyti_cuda_box *box,
                          const uint64_t *first, uint32_t count, uint64_t bytes,
                          uint32_t most_blocks, void *stream);

/* sum[box.word] += content hash of each box (base/hash.h); first [count + 1] in
 * elements, which may be more than the box has. */
int dyti_cuda_hash_launch(const struct dyti_cuda_hash_box *box,
                          const uint64_t *first, uint32_t count,
                          uint64_t elements, uint64_t *sum,
                          uint32_t most_blocks, void *stream);

/* box[i] = what the seed draws of sample i; a box without elements: nothing. */
int dyti_cuda_sample_launch(const struct dyti_cuda_sample *sample,
                            uint32_t count, uint64_t seed,
                            struct dyti_cuda_hash_box *box, void *stream);

#ifdef __cplusplus
}
#endif

#endif /* DYTI_DEVICE_CUDA_KERNELS_H */
