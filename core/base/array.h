/* Growable arrays: a pointer, a count and a capacity that the owner declares.
 *   struct thing *thing; size_t thing_count, thing_cap;
 *   st = DYTI_GROW(x->thing, x->thing_cap, x->thing_count + 1);  */
#ifndef DYTI_BASE_ARRAY_H
#define DYTI_BASE_ARRAY_H

#include "base/error.h"

#include <stdint.h>
#include <stdlib.h>

#define DYTI_GROW(ptr, cap, need)                                              \
    dyti_grow((void **)&(ptr), &(cap), (need), sizeof(*(ptr)))

/* Make room for `need` items; capacity at least doubles.  On DYT_ERR_NOMEM
 * nothing has changed. */
static inline enum dyt_status dyti_grow(void **ptr, size_t *cap, size_t need,
                                        size_t item_bytes)
{
    size_t want, bytes;
    void *bigger;

    if (need <= *cap) {
        return DYT_OK;
    }
    want = *cap < 8 ? 8 : *cap * 2;
    want = want < need ? need : want;
    if (__builtin_mul_overflow(want, item_bytes, &bytes)) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "%zu items of %zu bytes", want,
                         item_bytes);
    }
    bigger = realloc(*ptr, bytes);
    if (bigger == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu bytes for an array", bytes);
    }
    *ptr = bigger;
    *cap = want;
    return DYT_OK;
}

#endif /* DYTI_BASE_ARRAY_H */
