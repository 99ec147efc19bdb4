/* The group of comm/shm that carries what simulated ranks say to each other,
 * for C++, which does not read the table's header. */
#ifndef DYT_GPUSIM_NCCL_CARRY_H
#define DYT_GPUSIM_NCCL_CARRY_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUSIM_CARRIED 256u /* messages under way */

uint64_t gpusim_carry_bytes(uint32_t size);
/* NULL: no memory.  `shared` is zero before the first opens it. */
void *gpusim_carry_open(void *shared, uint32_t rank, uint32_t size);
void gpusim_carry_close(void *self);
/* 1: on its way; 0: no room now; -1: gpusim_carry_error() says why. */
int gpusim_carry_post(void *self, uint32_t peer, bool is_send, void *buf,
                      uint64_t bytes, uint64_t *out_ticket);
/* How many have ended; -1 likewise. */
int gpusim_carry_landed(void *self, uint64_t ticket[GPUSIM_CARRIED]);
const char *gpusim_carry_error(void);

#ifdef __cplusplus
}
#endif

#endif /* DYT_GPUSIM_NCCL_CARRY_H */
