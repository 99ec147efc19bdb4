/* A bump allocator inside a given range of memory: no system call, no lock, no
 * per-piece free.  What a rank's arenas hold is cut from these, so that equal
 * requests give equal addresses.
 *
 * Pieces are given back in the order of a stack: mark, take, take, rewind.
 * Threads: one region by one thread at a time. */
#ifndef DYTI_BASE_REGION_H
#define DYTI_BASE_REGION_H

#include "base/error.h"

#include <stdint.h>

/* Plain value; the owner of the range keeps it alive.
 * Invariant: used <= high_water <= bytes. */
struct dyti_region {
    unsigned char *base;
    uint64_t bytes, used;
    uint64_t high_water; /* the largest `used` so far */
};

/* base may be NULL to measure: pieces then have addresses that count from 0
 * and must not be read; give UINT64_MAX bytes for "no limit". */
void dyti_region_init(struct dyti_region *region, void *base, uint64_t bytes);

/* The next `bytes` at a multiple of `align` (a power of two, an address, not
 * an offset).  Contents are what they were.  0 bytes is fine.
 * DYT_ERR_INVALID  align is no power of two
 * DYT_ERR_NOMEM    does not fit, the message says by how much; nothing taken */
enum dyt_status dyti_region_take(struct dyti_region *region, uint64_t bytes,
                                 uint64_t align, void **out);

/* dyti_region_rewind gives back all that was taken since the mark. */
static inline uint64_t dyti_region_mark(const struct dyti_region *region)
{
    return region->used;
}
void dyti_region_rewind(struct dyti_region *region, uint64_t mark);

/* Everything at once; the high water stays. */
void dyti_region_reset(struct dyti_region *region);

/* Typed and aligned to 64 bytes: st = DYTI_TAKE(region, &x->row, rows); */
#define DYTI_TAKE(region, ptr, count)                                          \
    dyti_region_take_items((region), (uint64_t)(count), sizeof(**(ptr)),       \
                           (void **)(ptr))
/* DYT_ERR_OVERFLOW when count * item_bytes does not fit. */
enum dyt_status dyti_region_take_items(struct dyti_region *region,
                                       uint64_t count, uint64_t item_bytes,
                                       void **out);

#endif /* DYTI_BASE_REGION_H */
