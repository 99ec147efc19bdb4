#include "rollout/blocks.h"

#include <stdlib.h>
#include <string.h>

enum dyt_status dyti_blocks_init(struct dyti_blocks *blocks, uint32_t count)
{
    struct dyti_blocks made = {.count = count};

    made.free = calloc(count + 1u, sizeof(*made.free));
    made.reference = calloc(count + 1u, sizeof(*made.reference));
    if (made.free == NULL || made.reference == NULL) {
        dyti_blocks_fini(&made);
        return DYTI_FAIL(DYT_ERR_NOMEM, "a table of %u cache blocks", count);
    }
    dyti_blocks_clear(&made);
    *blocks = made;
    return DYT_OK;
}

void dyti_blocks_fini(struct dyti_blocks *blocks)
{
    free(blocks->free);
    free(blocks->reference);
    memset(blocks, 0, sizeof(*blocks));
}

void dyti_blocks_clear(struct dyti_blocks *blocks)
{
    blocks->free_count = blocks->count;
    for (uint32_t i = 0; i < blocks->count; i++) {
        blocks->free[i] = (int32_t)(blocks->count - 1 - i);
        blocks->reference[i] = 0;
    }
    blocks->most_used = 0;
}

int32_t dyti_blocks_get(struct dyti_blocks *blocks)
{
    int32_t block;
    uint32_t used;

    dyti_require(blocks->free_count > 0);
    block = blocks->free[--blocks->free_count];
    blocks->reference[block] = 1;
    used = blocks->count - blocks->free_count;
    blocks->most_used = used > blocks->most_used ? used : blocks->most_used;
    return block;
}

void dyti_blocks_share(struct dyti_blocks *blocks, int32_t block)
{
    dyti_assert(blocks->reference[block] > 0);
    blocks->reference[block]++;
}

void dyti_blocks_put(struct dyti_blocks *blocks, int32_t block)
{
    dyti_assert(blocks->reference[block] > 0);
    if (--blocks->reference[block] == 0) {
        blocks->free[blocks->free_count++] = block;
    }
}
