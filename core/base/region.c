#include "base/region.h"

enum dyt_status dyti_region_take(struct dyti_region *region,
                                 uint64_t size_bytes, uint64_t align,
                                 void **out_ptr)
{
    uint64_t at = (uint64_t)(uintptr_t)region->base + region->used;
    uint64_t pad = (align - (at & (align - 1))) & (align - 1);
    uint64_t left = region->bytes - region->used;

    if (pad > left || size_bytes > left - pad) {
        return DYTI_FAIL(DYT_ERR_NOMEM,
                         "%llu bytes asked of a workspace of %llu with %llu "
                         "in use",
                         (unsigned long long)size_bytes,
                         (unsigned long long)region->bytes,
                         (unsigned long long)region->used);
    }
    *out_ptr = region->base + region->used + pad;
    region->used += pad + size_bytes;
    if (region->used > region->high_water) {
        region->high_water = region->used;
    }
    return DYT_OK;
}
