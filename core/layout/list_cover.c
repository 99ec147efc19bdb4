/* Whether boxes that may overlap cover a whole: axis by axis, between two
 * borders the same boxes count. */
#include "layout/list.h"

#include <stdlib.h>
#include <string.h>

struct cover {
    const struct dyt_box *whole;
    int64_t *missing;
};

struct ordering {
    uint32_t axis;
};

static int by_lo(const void *a, const void *b, void *ordering)
{
    uint32_t axis = ((const struct ordering *)ordering)->axis;
    const struct dyt_box *x = *(const struct dyt_box *const *)a;
    const struct dyt_box *y = *(const struct dyt_box *const *)b;

    return (x->lo[axis] > y->lo[axis]) - (x->lo[axis] < y->lo[axis]);
}

/* Where the slab that begins at x ends: the next border of an active box, of
 * the next one to come, or of the whole. */
static int64_t slab_end(const struct dyt_box *const *active, size_t count,
                        const struct dyt_box *next, uint32_t axis,
                        int64_t whole_hi)
{
    int64_t end = whole_hi;

    for (size_t i = 0; i < count; i++) {
        end = active[i]->hi[axis] < end ? active[i]->hi[axis] : end;
    }
    return next != NULL && next->lo[axis] < end ? next->lo[axis] : end;
}

/* box: [count] in this call's scratch; what is behind them is free for the
 * axes to come. */
static bool covers(const struct cover *c, const struct dyt_box **box,
                   size_t count, uint32_t axis)
{
    struct ordering ordering = {axis};
    const struct dyt_box **active = box + count;
    size_t next = 0, used = 0;
    int64_t x = c->whole->lo[axis];

    if (count > 1) {
        qsort_r(box, count, sizeof(*box), by_lo, &ordering);
    }
    while (x < c->whole->hi[axis]) {
        size_t kept = 0;

        for (size_t i = 0; i < used; i++) {
            if (active[i]->hi[axis] > x) {
                active[kept++] = active[i];
            }
        }
        used = kept;
        for (; next < count && box[next]->lo[axis] <= x; next++) {
            if (box[next]->hi[axis] > x) {
                active[used++] = box[next];
            }
        }
        c->missing[axis] = x;
        if (used == 0) {
            return false;
        }
        if (axis + 1 < c->whole->ndim) {
            /* The next axis sorts its own copy. */
            memcpy(active + used, active, used * sizeof(*active));
            if (!covers(c, active + used, used, axis + 1)) {
                return false;
            }
        }
        x = slab_end(active, used, next < count ? box[next] : NULL, axis,
                     c->whole->hi[axis]);
    }
    return true;
}

enum dyt_status dyti_find_missing(const struct dyt_box *const *box,
                                  size_t count, const struct dyt_box *whole,
                                  bool *out_covered,
                                  int64_t out_missing[DYT_MAX_DIMS])
{
    struct cover c = {.whole = whole, .missing = out_missing};
    const struct dyt_box **scratch;

    for (uint32_t d = 0; d < DYT_MAX_DIMS; d++) {
        out_missing[d] = d < whole->ndim ? whole->lo[d] : 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (memcmp(box[i]->lo, whole->lo, whole->ndim * sizeof(int64_t)) == 0 &&
            memcmp(box[i]->hi, whole->hi, whole->ndim * sizeof(int64_t)) == 0) {
            *out_covered = true; /* the common case */
            return DYT_OK;
        }
    }
    scratch = calloc((count + 1) * 2 * (whole->ndim + 1u), sizeof(*scratch));
    if (scratch == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu boxes of a tensor", count);
    }
    if (count > 0) {
        memcpy(scratch, box, count * sizeof(*scratch));
    }
    *out_covered = covers(&c, scratch, count, 0);
    free(scratch);
    return DYT_OK;
}
