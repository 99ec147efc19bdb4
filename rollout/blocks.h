/* Blocks of the KV cache: counted references, lowest free block first, so that
 * equal requests give equal tables.  Bounded: never allocates after init. */
#ifndef DYTI_ROLLOUT_BLOCKS_H
#define DYTI_ROLLOUT_BLOCKS_H

#include "base/error.h"

#include <stdint.h>

struct dyti_blocks {
    int32_t *free;       /* [free_count], a stack, owned */
    uint16_t *reference; /* [count], owned */
    uint32_t count, free_count;
    uint32_t most_used;
};

enum dyt_status dyti_blocks_init(struct dyti_blocks *blocks, uint32_t count);
void dyti_blocks_fini(struct dyti_blocks *blocks);
void dyti_blocks_clear(struct dyti_blocks *blocks); /* all free again */

/* The caller has made sure that one is free. */
int32_t dyti_blocks_get(struct dyti_blocks *blocks);
void dyti_blocks_share(struct dyti_blocks *blocks, int32_t block);
void dyti_blocks_put(struct dyti_blocks *blocks, int32_t block);

#endif /* DYTI_ROLLOUT_BLOCKS_H */
