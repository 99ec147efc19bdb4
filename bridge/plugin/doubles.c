/* Elements that a member would hold twice: one of the two would be forgotten
 * by whoever reads them. */
#include "plugin/rules.h"

#include "plugin/rows.h"

#include <stdlib.h>
#include <string.h>

struct order {
    const struct dyt_view *view;
    const struct dyti_placed *placed;
};

static uint32_t kind_of(const struct order *o, const struct dyti_placed *p)
{
    return dyti_row_at(o->view, p->piece.row)->kind;
}

static int by_tensor(const void *a, const void *b, void *order)
{
    const struct order *o = order;
    const struct dyti_placed *x = &o->placed[*(const uint32_t *)a];
    const struct dyti_placed *y = &o->placed[*(const uint32_t *)b];
    uint32_t kx = kind_of(o, x), ky = kind_of(o, y);

    if (x->piece.tensor != y->piece.tensor) {
        return x->piece.tensor < y->piece.tensor ? -1 : 1;
    }
    if (kx != ky) {
        return kx < ky ? -1 : 1;
    }
    return x < y ? -1 : x > y;
}

struct by_axis {
    const struct dyti_placed *placed;
    uint32_t axis;
};

static int by_lo(const void *a, const void *b, void *order)
{
    const struct by_axis *o = order;
    int64_t x = o->placed[*(const uint32_t *)a].piece.box.lo[o->axis];
    int64_t y = o->placed[*(const uint32_t *)b].piece.box.lo[o->axis];

    return (x > y) - (x < y);
}

/* The axis along which most boxes begin anew: fewest of them share a place
 * there. */
static uint32_t best_axis(const struct order *o, const uint32_t *at,
                          size_t count)
{
    uint32_t best = 0;
    size_t most = 0;

    for (uint32_t d = 0; d < o->placed[at[0]].piece.box.ndim; d++) {
        size_t changes = 0;

        for (size_t i = 1; i < count; i++) {
            changes += o->placed[at[i]].piece.box.lo[d] !=
                       o->placed[at[i - 1]].piece.box.lo[d];
        }
        if (changes > most) {
            most = changes;
            best = d;
        }
    }
    return best;
}

static bool overlap(const struct dyt_box *a, const struct dyt_box *b)
{
    for (uint32_t d = 0; d < a->ndim; d++) {
        if (a->lo[d] >= b->hi[d] || b->lo[d] >= a->hi[d]) {
            return false;
        }
    }
    return true;
}

/* Pieces of one tensor and kind: the first two that overlap. */
static void check_tensor(const struct dyti_model *catalogue,
                         const struct order *o, uint32_t *at, size_t count,
                         struct dyti_found *found)
{
    struct by_axis axis = {o->placed, best_axis(o, at, count)};

    qsort_r(at, count, sizeof(*at), by_lo, &axis);
    for (size_t i = 0; i < count; i++) {
        const struct dyti_row_piece *a = &o->placed[at[i]].piece;

        for (size_t j = i + 1; j < count; j++) {
            const struct dyti_row_piece *b = &o->placed[at[j]].piece;
            struct dyt_box both;

            if (b->box.lo[axis.axis] >= a->box.hi[axis.axis]) {
                break;
            }
            if (overlap(&a->box, &b->box) &&
                dyt_box_intersect(&a->box, &b->box, &both) == DYT_OK) {
                dyti_found_add(
                    found, DYT_ERR_LAYOUT,
                    "doubly covered: %s from %s to %s is in row %s and in row "
                    "%s",
                    catalogue->tensor[a->tensor].name,
                    dyti_shape_words(both.ndim, both.lo).text,
                    dyti_shape_words(both.ndim, both.hi).text,
                    dyti_row_at(o->view, a->row)->name,
                    dyti_row_at(o->view, b->row)->name);
                return;
            }
        }
    }
}

enum dyt_status dyti_doubles_find(const struct dyti_model *catalogue,
                                  const struct dyt_view *view,
                                  const struct dyti_placed *placed,
                                  size_t count, struct dyti_found *found)
{
    struct order order = {view, placed};
    uint32_t *at = malloc((count + 1) * sizeof(*at));
    size_t used = 0, lo = 0;

    if (at == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu pieces", count);
    }
    for (size_t i = 0; i < count; i++) {
        if (!placed[i].copy) {
            at[used++] = (uint32_t)i;
        }
    }
    if (used > 1) {
        qsort_r(at, used, sizeof(*at), by_tensor, &order);
    }
    while (lo < used) {
        const struct dyti_placed *first = &placed[at[lo]];
        size_t hi = lo + 1;

        while (hi < used &&
               placed[at[hi]].piece.tensor == first->piece.tensor &&
               kind_of(&order, &placed[at[hi]]) == kind_of(&order, first)) {
            hi++;
        }
        if (hi - lo > 1) {
            check_tensor(catalogue, &order, at + lo, hi - lo, found);
        }
        lo = hi;
    }
    free(at);
    return DYT_OK;
}
