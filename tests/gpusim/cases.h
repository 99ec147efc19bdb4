/* Kernels for the tests of the simulator: each fault alone, and the same
 * without it.  `wrong` false: the good one. */
#ifndef DYT_GPUSIM_CASES_H
#define DYT_GPUSIM_CASES_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Return what the launch says (cudaError_t).  `data` [count] words of the
 * device; the good ones stay inside. */
int case_bounds_checked(uint32_t *data, uint32_t count, bool wrong);
int case_bounds_plain(uint32_t *data, uint32_t count, bool wrong);
int case_store_behind_plain(unsigned char *data, uint32_t bytes, bool wrong);
int case_misaligned(uint32_t *data, bool wrong);
int case_read(const uint32_t *data, uint32_t *out, void *stream);
int case_shared_race(uint32_t *out, bool wrong);
int case_shared_race_warp(uint32_t *out, bool wrong);
int case_shared_bounds(uint32_t *out, bool wrong);
int case_shared_uninitialised(uint32_t *out, bool wrong);
int case_shared_rest(uint32_t *out, uint32_t bytes, uint32_t use);
int case_barrier_left_out(bool wrong);
int case_barrier_two_places(bool wrong);
int case_warp_left_out(uint32_t *out, bool wrong);
int case_warp_reads_absent(uint32_t *out, bool wrong);
int case_launch(uint32_t grid, uint32_t grid_y, uint32_t threads,
                uint32_t shared_bytes);
int case_shared_static_large(bool wrong);
int case_write(uint32_t *data, uint32_t count, uint32_t value, void *stream);
int case_add_one(uint32_t *data, uint32_t count, void *stream);

/* The execution model. */
int case_block_sum(const uint32_t *data, uint32_t count, uint32_t *out);
int case_warp_calls(uint32_t *out);
int case_count_all(unsigned long long *out, uint32_t grid, uint32_t threads);
int case_order(uint32_t *out, uint32_t threads);
int case_indices(uint32_t *out);
int case_flag(volatile uint32_t *flag, uint32_t *out);
int case_copy_vectors(const uint32_t *src, uint32_t *dst, uint32_t vectors,
                      uint32_t apart);

#ifdef __cplusplus
}
#endif

#endif /* DYT_GPUSIM_CASES_H */
