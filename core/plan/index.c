/* Buckets by tensor, sorted along the cut axis. */
#include "plan/index.h"

#include "base/error.h"

#include <stdlib.h>

static int by_lo(const void *a, const void *b)
{
    const struct dyti_index_entry *x = a, *y = b;

    if (x->lo != y->lo) {
        return x->lo < y->lo ? -1 : 1;
    }
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    return (x->shard > y->shard) - (x->shard < y->shard);
}

static void fill(struct dyti_index *index, size_t *at)
{
    const struct dyti_layout *layout = index->layout;

    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        const struct dyti_view *view = &layout->view[r];

        for (uint32_t i = view->kind_first[index->kind];
             i < view->kind_first[index->kind + 1]; i++) {
            const struct dyti_shard *s = &view->shard[i];
            uint32_t axis = layout->model->tensor[s->tensor].cut_axis;

            index->entry[at[s->tensor]++] =
                (struct dyti_index_entry){.rank = r,
                                          .shard = i,
                                          .lo = s->box.lo[axis],
                                          .hi = s->box.hi[axis]};
        }
    }
}

static void sort(struct dyti_index *index)
{
    for (uint32_t t = 0; t < index->layout->model->tensor_count; t++) {
        struct dyti_index_entry *e = index->entry + index->first[t];
        size_t count = index->first[t + 1] - index->first[t];

        if (count > 1) {
            qsort(e, count, sizeof(*e), by_lo);
        }
        for (size_t i = 0; i < count; i++) {
            e[i].reach =
                i > 0 && e[i - 1].reach > e[i].hi ? e[i - 1].reach : e[i].hi;
        }
    }
}

enum dyt_status dyti_index_init(struct dyti_index *index,
                                const struct dyti_layout *layout,
                                enum dyti_kind kind)
{
    uint32_t tensors = layout->model->tensor_count;
    size_t *at = calloc((size_t)tensors + 1, sizeof(*at));
    size_t total = 0;
    enum dyt_status st = DYT_OK;

    *index = (struct dyti_index){.layout = layout, .kind = kind};
    index->first = calloc((size_t)tensors + 1, sizeof(*index->first));
    if (at == NULL || index->first == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "an index of %u tensors", tensors);
        goto out;
    }
    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        const struct dyti_view *view = &layout->view[r];

        for (uint32_t i = view->kind_first[kind];
             i < view->kind_first[kind + 1]; i++) {
            index->first[view->shard[i].tensor + 1]++;
            total++;
        }
    }
    for (uint32_t t = 0; t < tensors; t++) {
        index->first[t + 1] += index->first[t];
        at[t] = index->first[t];
    }
    index->entry = calloc(total + 1, sizeof(*index->entry));
    if (index->entry == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "an index of %zu shards", total);
        goto out;
    }
    fill(index, at);
    sort(index);
out:
    free(at);
    if (st != DYT_OK) {
        dyti_index_fini(index);
    }
    return st;
}

void dyti_index_fini(struct dyti_index *index)
{
    free(index->first);
    free(index->entry);
    *index = (struct dyti_index){0};
}

void dyti_index_range(const struct dyti_index *index, uint32_t tensor,
                      int64_t lo, int64_t hi, size_t *out_first,
                      size_t *out_end)
{
    size_t end = index->first[tensor + 1];
    size_t a = index->first[tensor], b = end;

    while (a < b) { /* the first whose reach passes lo */
        size_t mid = a + (b - a) / 2;

        if (index->entry[mid].reach <= lo) {
            a = mid + 1;
        } else {
            b = mid;
        }
    }
    *out_first = a;
    b = end;
    while (a < b) { /* the first that begins behind hi */
        size_t mid = a + (b - a) / 2;

        if (index->entry[mid].lo < hi) {
            a = mid + 1;
        } else {
            b = mid;
        }
    }
    *out_end = a;
}
