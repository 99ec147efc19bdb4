/* Geometry of boxes: overlap and size, with their invariant checked. */
#include <dynatrain/box.h>

#include "base/checked.h"
#include "base/error.h"

#include <stdbool.h>

static bool box_is_sound(const struct dyt_box *box)
{
    if (box->ndim < 1 || box->ndim > DYT_MAX_DIMS) {
        return false;
    }
    for (uint32_t d = 0; d < box->ndim; d++) {
        if (box->lo[d] < 0 || box->lo[d] > box->hi[d]) {
            return false;
        }
    }
    return true;
}

enum dyt_status dyt_box_intersect(const struct dyt_box *a,
                                  const struct dyt_box *b,
                                  struct dyt_box *out_box)
{
    struct dyt_box both = {.ndim = a->ndim};

    if (!box_is_sound(a) || !box_is_sound(b)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "a box of %u and one of %u dimensions: 1 to %u with 0 "
                         "<= lo <= hi are allowed",
                         a->ndim, b->ndim, DYT_MAX_DIMS);
    }
    if (a->ndim != b->ndim) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "boxes of %u and %u dimensions do not lie in one "
                         "tensor",
                         a->ndim, b->ndim);
    }
    for (uint32_t d = 0; d < a->ndim; d++) {
        both.lo[d] = a->lo[d] > b->lo[d] ? a->lo[d] : b->lo[d];
        both.hi[d] = a->hi[d] < b->hi[d] ? a->hi[d] : b->hi[d];
        if (both.hi[d] < both.lo[d]) {
            both.hi[d] = both.lo[d];
        }
    }
    *out_box = both;
    return DYT_OK;
}

enum dyt_status dyt_box_count(const struct dyt_box *box, uint64_t *out_count)
{
    uint64_t count = 1;

    if (!box_is_sound(box)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "a box of %u dimensions breaks 0 <= lo <= hi or 1 <= "
                         "ndim <= %u",
                         box->ndim, DYT_MAX_DIMS);
    }
    for (uint32_t d = 0; d < box->ndim; d++) {
        if (box->lo[d] == box->hi[d]) {
            *out_count = 0;
            return DYT_OK;
        }
    }
    for (uint32_t d = 0; d < box->ndim; d++) {
        if (dyti_mul_overflow(count, (uint64_t)(box->hi[d] - box->lo[d]),
                              &count)) {
            return DYTI_FAIL(DYT_ERR_OVERFLOW,
                             "a box of %u dimensions has more than 2^64 "
                             "elements",
                             box->ndim);
        }
    }
    *out_count = count;
    return DYT_OK;
}
