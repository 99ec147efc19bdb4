/* A rectangular part of one tensor, in global element coordinates.
 *
 * Terms used in every comment of this file
 *   lo, hi   element coordinates, half open: lo <= x < hi
 */
#ifndef DYNATRAIN_BOX_H
#define DYNATRAIN_BOX_H

#include <dynatrain/api.h>
#include <dynatrain/status.h>

#include <stdint.h>

DYT_BEGIN_DECLS

#define DYT_MAX_DIMS 8u

/** Plain value: copy freely, owns nothing.
 *  Invariant: 1 <= ndim <= DYT_MAX_DIMS and 0 <= lo[i] <= hi[i].
 *  A box is empty when lo[i] == hi[i] for any i. */
struct dyt_box {
    uint32_t ndim;
    int64_t lo[DYT_MAX_DIMS]; /* [ndim], elements */
    int64_t hi[DYT_MAX_DIMS]; /* [ndim], elements, exclusive */
};

/**
 * Overlap of two boxes of the same tensor.
 *
 * No overlap is not an error: *out_box is then empty.
 *
 * @return DYT_OK
 * @return DYT_ERR_INVALID  a->ndim != b->ndim, or a box breaks its invariant;
 *                          *out_box untouched
 */
DYT_API enum dyt_status dyt_box_intersect(const struct dyt_box *a,
                                          const struct dyt_box *b,
                                          struct dyt_box *out_box);

/**
 * Number of elements in a box (0 if empty).
 *
 * @return DYT_OK
 * @return DYT_ERR_INVALID   the box breaks its invariant
 * @return DYT_ERR_OVERFLOW  more than UINT64_MAX elements; *out_count untouched
 */
DYT_API enum dyt_status dyt_box_count(const struct dyt_box *box,
                                      uint64_t *out_count);

DYT_END_DECLS

#endif /* DYNATRAIN_BOX_H */
