/* The mover where a device maps its peer's memory: one launch reads the peer's
 * shards and writes its own, or the reverse.  The table is the contract
 * (ops/mover.h). */
#ifndef DYTI_MOVER_DIRECT_CUDA_H
#define DYTI_MOVER_DIRECT_CUDA_H

#include "ops/mover.h"

extern const struct dyti_mover_ops dyti_mover_direct_cuda;

#endif /* DYTI_MOVER_DIRECT_CUDA_H */
