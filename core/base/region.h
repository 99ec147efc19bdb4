/* A bump allocator inside a given range: take, take, …, reset to a mark.
 * Owns nothing, frees nothing. */
#ifndef DYTI_BASE_REGION_H
#define DYTI_BASE_REGION_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define DYTI_REGION_LINE 64u /* default alignment, bytes */

struct dyti_region {
    unsigned char *base;
    uint64_t bytes, used, high_water;
};

static inline void dyti_region_init(struct dyti_region *region, void *base,
                                    uint64_t size_bytes)
{
    *region = (struct dyti_region){base, size_bytes, 0, 0};
}

/* `align` is a power of two.  DYT_ERR_NOMEM names both sizes; nothing taken. */
enum dyt_status dyti_region_take(struct dyti_region *region,
                                 uint64_t size_bytes, uint64_t align,
                                 void **out_ptr);

static inline uint64_t dyti_region_mark(const struct dyti_region *region)
{
    return region->used;
}

static inline void dyti_region_reset(struct dyti_region *region, uint64_t mark)
{
    region->used = mark;
}

#endif /* DYTI_BASE_REGION_H */
