/* Ranges as NVIDIA's tools show them, in the domain "dynatrain".  Without a
 * tool attached a call costs a test of a pointer; without NVTX's headers when
 * this was built, nothing.  Threads: any, ranges are of the calling one. */
#ifndef DYTI_DEVICE_CUDA_RANGE_H
#define DYTI_DEVICE_CUDA_RANGE_H

void dyti_cuda_range_push(const char *name);
void dyti_cuda_range_pop(void);

#endif /* DYTI_DEVICE_CUDA_RANGE_H */
