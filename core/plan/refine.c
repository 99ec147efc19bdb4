/* Holders that overlap become boxes that do not: each with all who hold it.
 * Pieces with equal holders stay apart: they may lie in different shards. */
#include "plan/common.h"

#include "base/array.h"
#include "plan/boxes.h"

#include <stdlib.h>

static enum dyt_status append(struct dyti_held_list *list,
                              const struct dyt_box *box, uint32_t set)
{
    enum dyt_status st = DYTI_GROW(list->held, list->cap, list->count + 1);

    if (st == DYT_OK) {
        list->held[list->count++] = (struct dyti_held){.box = *box, .set = set};
    }
    return st;
}

static int by_box(const void *a, const void *b)
{
    const struct dyti_held *x = a, *y = b;

    for (uint32_t d = 0; d < x->box.ndim; d++) {
        if (x->box.lo[d] != y->box.lo[d]) {
            return x->box.lo[d] < y->box.lo[d] ? -1 : 1;
        }
    }
    for (uint32_t d = 0; d < x->box.ndim; d++) {
        if (x->box.hi[d] != y->box.hi[d]) {
            return x->box.hi[d] < y->box.hi[d] ? -1 : 1;
        }
    }
    return (x->set > y->set) - (x->set < y->set);
}

/* The first axis along which the boxes begin at different places: sorted by
 * box they are sorted along it too. */
static void set_axis(struct dyti_held_list *list)
{
    const struct dyti_held *h = list->held;
    int64_t reach = INT64_MIN;

    list->axis = 0;
    while (list->count > 0 && list->axis + 1 < h[0].box.ndim &&
           h[0].box.lo[list->axis] == h[list->count - 1].box.lo[list->axis]) {
        list->axis++;
    }
    for (size_t i = 0; i < list->count; i++) {
        int64_t hi = h[i].box.hi[list->axis];

        reach = hi > reach ? hi : reach;
        list->held[i].reach = reach;
    }
}

static void sort(struct dyti_held_list *list)
{
    bool sorted = true;

    for (size_t i = 1; i < list->count && sorted; i++) {
        sorted = by_box(&list->held[i - 1], &list->held[i]) <= 0;
    }
    if (!sorted) {
        qsort(list->held, list->count, sizeof(*list->held), by_box);
    }
    set_axis(list);
}

size_t dyti_held_from(const struct dyti_held_list *list, int64_t lo)
{
    size_t a = 0, b = list->count;

    while (a < b) { /* the first whose reach passes lo */
        size_t mid = a + (b - a) / 2;

        if (list->held[mid].reach <= lo) {
            a = mid + 1;
        } else {
            b = mid;
        }
    }
    return a;
}

static bool overlaps_itself(const struct dyti_held_list *list)
{
    uint32_t axis = list->axis;

    for (size_t i = 1; i < list->count; i++) {
        const struct dyti_held *h = &list->held[i];
        struct dyt_box both;

        for (size_t k = i; k-- > 0 && list->held[k].reach > h->box.lo[axis];) {
            if (dyti_boxes_overlap(&list->held[k].box, &h->box, &both)) {
                return true;
            }
        }
    }
    return false;
}

/* Lay one more holder over the disjoint boxes found so far.  Boxes that it cuts
 * leave their rest at the end of the list, where the loop still comes by. */
static enum dyt_status lay(struct dyti_sets *sets, struct dyti_held_list *out,
                           const struct dyti_held *add)
{
    struct dyti_held_list pending = {0};
    enum dyt_status st = append(&pending, &add->box, add->set);

    for (size_t i = 0; st == DYT_OK && i < out->count; i++) {
        for (size_t p = 0; st == DYT_OK && p < pending.count; p++) {
            struct dyt_box whole = out->held[i].box, both;
            struct dyt_box piece = pending.held[p].box;
            struct dyt_box rest[2 * DYT_MAX_DIMS];
            uint32_t old = out->held[i].set, count, both_set = 0;

            if (!dyti_boxes_overlap(&whole, &piece, &both)) {
                continue;
            }
            st = dyti_sets_union(sets, old, add->set, &both_set);
            out->held[i].box = both;
            out->held[i].set = both_set;
            count = dyti_boxes_without(&whole, &both, rest);
            for (uint32_t k = 0; st == DYT_OK && k < count; k++) {
                st = append(out, &rest[k], old);
            }
            pending.held[p] = pending.held[--pending.count];
            count = dyti_boxes_without(&piece, &both, rest);
            for (uint32_t k = 0; st == DYT_OK && k < count; k++) {
                st = append(&pending, &rest[k], add->set);
            }
            break; /* what is left of the piece does not touch this box */
        }
    }
    for (size_t p = 0; st == DYT_OK && p < pending.count; p++) {
        st = append(out, &pending.held[p].box, add->set);
    }
    free(pending.held);
    return st;
}

enum dyt_status dyti_refine(struct dyti_sets *sets, struct dyti_held_list *list)
{
    struct dyti_held_list out = {0};
    enum dyt_status st = DYT_OK;

    sort(list);
    if (!overlaps_itself(list)) {
        return DYT_OK;
    }
    for (size_t i = 0; i < list->count && st == DYT_OK; i++) {
        st = lay(sets, &out, &list->held[i]);
    }
    if (st == DYT_OK) {
        free(list->held);
        *list = out;
        sort(list);
        return DYT_OK;
    }
    free(out.held);
    return st;
}
