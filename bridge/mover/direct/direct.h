/* The mover where a rank maps its peer's memory: bytes move once, from shard to
 * shard.  The table is the contract (ops/mover.h). */
#ifndef DYTI_MOVER_DIRECT_H
#define DYTI_MOVER_DIRECT_H

#include "ops/mover.h"

extern const struct dyti_mover_ops dyti_mover_direct;

#endif /* DYTI_MOVER_DIRECT_H */
