/* Overlap, difference and union of boxes. */
#include "plan/boxes.h"

bool dyti_boxes_overlap(const struct dyt_box *a, const struct dyt_box *b,
                        struct dyt_box *out)
{
    out->ndim = a->ndim;
    for (uint32_t d = 0; d < a->ndim; d++) {
        out->lo[d] = a->lo[d] > b->lo[d] ? a->lo[d] : b->lo[d];
        out->hi[d] = a->hi[d] < b->hi[d] ? a->hi[d] : b->hi[d];
        if (out->lo[d] >= out->hi[d]) {
            return false;
        }
    }
    for (uint32_t d = a->ndim; d < DYT_MAX_DIMS; d++) {
        out->lo[d] = out->hi[d] = 0;
    }
    return true;
}

/* Cut off what lies before and behind the hole, one axis after the other; what
 * is left after the last axis is the hole. */
uint32_t dyti_boxes_without(const struct dyt_box *whole,
                            const struct dyt_box *hole,
                            struct dyt_box out[2 * DYT_MAX_DIMS])
{
    struct dyt_box rest = *whole;
    uint32_t count = 0;

    for (uint32_t d = 0; d < whole->ndim; d++) {
        if (rest.lo[d] < hole->lo[d]) {
            out[count] = rest;
            out[count++].hi[d] = hole->lo[d];
        }
        if (hole->hi[d] < rest.hi[d]) {
            out[count] = rest;
            out[count++].lo[d] = hole->hi[d];
        }
        rest.lo[d] = hole->lo[d];
        rest.hi[d] = hole->hi[d];
    }
    return count;
}

bool dyti_boxes_join(struct dyt_box *a, const struct dyt_box *b)
{
    uint32_t axis = DYT_MAX_DIMS;

    for (uint32_t d = 0; d < a->ndim; d++) {
        if (a->lo[d] == b->lo[d] && a->hi[d] == b->hi[d]) {
            continue;
        }
        if (axis != DYT_MAX_DIMS ||
            (a->hi[d] != b->lo[d] && b->hi[d] != a->lo[d])) {
            return false;
        }
        axis = d;
    }
    if (axis == DYT_MAX_DIMS) {
        return false; /* the same box twice is not a union */
    }
    a->lo[axis] = a->lo[axis] < b->lo[axis] ? a->lo[axis] : b->lo[axis];
    a->hi[axis] = a->hi[axis] > b->hi[axis] ? a->hi[axis] : b->hi[axis];
    return true;
}

uint64_t dyti_boxes_elements(const struct dyt_box *box)
{
    uint64_t count = 1;

    for (uint32_t d = 0; d < box->ndim; d++) {
        count *= (uint64_t)(box->hi[d] - box->lo[d]);
    }
    return count;
}
