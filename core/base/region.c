#include "base/region.h"

#include "base/checked.h"

#include <inttypes.h>
#include <string.h>

#define ITEM_ALIGN 64u /* a cache line, and the widest vector register */

void dyti_region_init(struct dyti_region *region, void *base, uint64_t bytes)
{
    *region = (struct dyti_region){.base = base, .bytes = bytes};
}

enum dyt_status dyti_region_take(struct dyti_region *region, uint64_t bytes,
                                 uint64_t align, void **out)
{
    uint64_t at, pad, end;

    if (align == 0 || (align & (align - 1)) != 0) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "an alignment of %" PRIu64 " is no power of two",
                         align);
    }
    at = (uint64_t)(uintptr_t)region->base + region->used;
    pad = (0 - at) & (align - 1);
    if (dyti_add_overflow(region->used, pad, &end) ||
        dyti_add_overflow(end, bytes, &end) || end > region->bytes) {
        return DYTI_FAIL(DYT_ERR_NOMEM,
                         "%" PRIu64 " bytes do not fit: %" PRIu64 " of %" PRIu64
                         " are in use here",
                         bytes, region->used, region->bytes);
    }
    region->used = end;
    if (end > region->high_water) {
        region->high_water = end;
    }
    *out = (void *)(uintptr_t)(at + pad);
    return DYT_OK;
}

enum dyt_status dyti_region_take_items(struct dyti_region *region,
                                       uint64_t count, uint64_t item_bytes,
                                       void **out)
{
    uint64_t bytes;

    if (dyti_mul_overflow(count, item_bytes, &bytes)) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW,
                         "%" PRIu64 " items of %" PRIu64 " bytes", count,
                         item_bytes);
    }
    return dyti_region_take(region, bytes, ITEM_ALIGN, out);
}

void dyti_region_rewind(struct dyti_region *region, uint64_t mark)
{
    dyti_assert(mark <= region->used);
    region->used = mark;
}

void dyti_region_reset(struct dyti_region *region)
{
    region->used = 0;
}
