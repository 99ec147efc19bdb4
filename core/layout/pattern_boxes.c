/* Which members of a layout hold the same, and which boxes do those hold that
 * stand for them? */
#include "base/array.h"
#include "layout/dialect.h"
#include "layout/pattern_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- who holds the same -------------------------------------------------- */

/* Lists hold what ranks hold, so each rank stands for itself. */
uint32_t dyti_pattern_holder_count(const struct dyti_layout *layout)
{
    return layout->desc.dialect == DYTI_DIALECT_LIST ? layout->desc.world_size
                                                     : layout->member_count;
}

static void group_by(struct dyti_pattern_build *b, const uint32_t *group_of,
                     uint32_t count)
{
    const struct dyti_layout *layout = b->layout;
    bool list = layout->desc.dialect == DYTI_DIALECT_LIST;

    memset(b->group_first, 0, (count + 2u) * sizeof(*b->group_first));
    for (uint32_t m = 0; m < count; m++) {
        b->group_first[group_of[m] + 2]++;
    }
    for (uint32_t g = 2; g < b->group_count + 2; g++) {
        b->group_first[g] += b->group_first[g - 1];
    }
    for (uint32_t m = 0; m < count; m++) {
        b->group_rank[b->group_first[group_of[m] + 1]++] =
            list ? m : layout->desc.ranks[m];
    }
}

/* Number the representatives of a kind and list the ranks of each. */
enum dyt_status dyti_pattern_group(struct dyti_pattern_build *b,
                                   enum dyti_kind kind)
{
    const struct dyti_dialect_ops *ops =
        dyti_dialect_ops(b->layout->desc.dialect);
    uint32_t count = dyti_pattern_holder_count(b->layout);
    uint32_t *group_of = malloc((count + 1u) * sizeof(*group_of));

    if (group_of == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u members", count);
    }
    b->group_count = 0;
    for (uint32_t m = 0; m < count; m++) {
        uint32_t lowest =
            ops == NULL ? m : ops->representative(b->layout, m, kind);

        if (lowest == m) {
            b->group_member[b->group_count] = m;
            group_of[m] = b->group_count++;
        } else {
            group_of[m] = group_of[lowest];
        }
    }
    group_by(b, group_of, count);
    free(group_of);
    return DYT_OK;
}

/* ---- what they hold ------------------------------------------------------ */

static enum dyt_status take(void *self, const struct dyti_shard *shard)
{
    struct dyti_pattern_build *b = self;
    enum dyt_status st;

    if (b->entry_count == UINT32_MAX) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "more than %u boxes in one layout",
                         UINT32_MAX);
    }
    st = DYTI_GROW(b->entry, b->entry_cap, b->entry_count + 1);
    if (st == DYT_OK) {
        b->entry[b->entry_count++] = (struct dyti_pattern_entry){
            .box = shard->box, .tensor = shard->tensor, .group = b->at_group};
    }
    return st;
}

static enum dyt_status take_view(struct dyti_pattern_build *b, uint32_t rank,
                                 enum dyti_kind kind)
{
    const struct dyti_view *view = &b->layout->view[rank];
    enum dyt_status st = DYT_OK;

    for (uint32_t i = view->kind_first[kind];
         i < view->kind_first[kind + 1] && st == DYT_OK; i++) {
        st = take(b, &view->shard[i]);
    }
    return st;
}

enum dyt_status dyti_pattern_collect(struct dyti_pattern_build *b,
                                     enum dyti_kind kind)
{
    const struct dyti_dialect_ops *ops =
        dyti_dialect_ops(b->layout->desc.dialect);
    const struct dyti_shard_sink sink = {
        .self = b, .shard = take, .once = true};
    enum dyt_status st = DYT_OK;

    b->entry_count = 0;
    for (uint32_t g = 0; g < b->group_count && st == DYT_OK; g++) {
        struct dyti_part part;
        uint64_t bytes;

        b->at_group = g;
        if (ops == NULL) {
            st = take_view(b, b->group_member[g], kind);
        } else {
            dyti_layout_part(b->layout, b->group_member[g], &part);
            st = ops->emit(b->layout, &part, kind, &sink, &bytes);
        }
    }
    return st;
}

int dyti_pattern_compare(const struct dyt_box *a, const struct dyt_box *b)
{
    for (uint32_t d = 0; d < a->ndim; d++) {
        if (a->lo[d] != b->lo[d]) {
            return a->lo[d] < b->lo[d] ? -1 : 1;
        }
    }
    for (uint32_t d = 0; d < a->ndim; d++) {
        if (a->hi[d] != b->hi[d]) {
            return a->hi[d] < b->hi[d] ? -1 : 1;
        }
    }
    return 0;
}

static int by_box(const void *x, const void *y, void *entries)
{
    const struct dyti_pattern_entry *a =
        (const struct dyti_pattern_entry *)entries + *(const uint32_t *)x;
    const struct dyti_pattern_entry *b =
        (const struct dyti_pattern_entry *)entries + *(const uint32_t *)y;
    int order = dyti_pattern_compare(&a->box, &b->box);

    return order != 0 ? order : (a->group > b->group) - (a->group < b->group);
}

enum dyt_status dyti_pattern_sort(struct dyti_pattern_build *b)
{
    uint32_t tensors = b->layout->model->tensor_count;
    size_t *first = b->tensor_first;
    enum dyt_status st = DYTI_GROW(b->order, b->order_cap, b->entry_count + 1);

    if (st != DYT_OK) {
        return st;
    }
    memset(first, 0, (tensors + 2u) * sizeof(*first));
    for (size_t i = 0; i < b->entry_count; i++) {
        first[b->entry[i].tensor + 2]++;
    }
    for (uint32_t t = 2; t < tensors + 2; t++) {
        first[t] += first[t - 1];
    }
    for (size_t i = 0; i < b->entry_count; i++) {
        b->order[first[b->entry[i].tensor + 1]++] = (uint32_t)i;
    }
    for (uint32_t t = 0; t < tensors; t++) {
        if (first[t + 1] - first[t] > 1) {
            qsort_r(b->order + first[t], first[t + 1] - first[t],
                    sizeof(*b->order), by_box, b->entry);
        }
    }
    return DYT_OK;
}
