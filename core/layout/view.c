/* Lists a rank's shards: one box per tensor and segment, or, where ZeRO cut
 * the flat buffer, as many as the cut's piece of the tensor needs. */
#include "layout/view.h"

#include "base/array.h"
#include "base/checked.h"
#include "layout/native.h"

#include <stdlib.h>

/* What is being listed: one kind of one rank. */
struct lister {
    const struct dyti_layout *layout;
    struct dyti_view *view;
    size_t shard_cap;
    enum dyti_kind kind;
    uint64_t lo, hi; /* elements of the flat buffer that the region keeps */
};

/* Kinds of which a ZeRO rank keeps only its own cut. */
static bool is_cut_by_zero(enum dyti_kind kind)
{
    return kind == DYTI_MASTER || kind == DYTI_EXP_AVG ||
           kind == DYTI_EXP_AVG_SQ;
}

/* Borders of the dp cuts: units of DYTI_ZERO_ALIGN, as evenly as can be. */
static void cut_flat(const struct dyti_layout *layout, struct dyti_view *view)
{
    int64_t lo, hi;

    view->zero_hi = view->flat_elements;
    if (layout->desc.zero == 0) {
        return;
    }
    dyti_native_share((int64_t)(view->flat_elements / DYTI_ZERO_ALIGN),
                      view->part.dp_size, view->part.dp_rank, &lo, &hi);
    view->zero_lo = (uint64_t)lo * DYTI_ZERO_ALIGN;
    view->zero_hi = (uint64_t)hi * DYTI_ZERO_ALIGN;
}

/* Add `local`, a box in the slot's local coordinates, as the part of it that
 * lies in one segment.  seg_lo, seg_hi: that segment's local elements of the
 * cut axis; global_lo: where they begin in the whole tensor. */
static enum dyt_status add_piece(struct lister *l,
                                 const struct dyti_native_slot *slot,
                                 const struct dyt_box *local, int64_t seg_lo,
                                 int64_t seg_hi, int64_t global_lo)
{
    const struct dyti_tensor *t = &l->layout->model->tensor[slot->tensor];
    struct dyti_view *view = l->view;
    struct dyti_shard *shard;
    int64_t element = dyti_dtype_bytes(l->layout->desc.dtype[l->kind]);
    int64_t offset, stride = element;
    uint32_t axis = t->cut_axis;
    struct dyt_box box = *local;
    enum dyt_status st;

    box.lo[axis] = box.lo[axis] > seg_lo ? box.lo[axis] : seg_lo;
    box.hi[axis] = box.hi[axis] < seg_hi ? box.hi[axis] : seg_hi;
    if (box.lo[axis] >= box.hi[axis]) {
        return DYT_OK;
    }
    st = DYTI_GROW(view->shard, l->shard_cap, view->shard_count + 1u);
    if (st != DYT_OK) {
        return st;
    }
    shard = &view->shard[view->shard_count++];
    *shard =
        (struct dyti_shard){.tensor = slot->tensor,
                            .kind = (uint8_t)l->kind,
                            .dtype = (uint8_t)l->layout->desc.dtype[l->kind]};
    offset = ((int64_t)slot->flat - (int64_t)l->lo) * element;
    for (uint32_t d = t->ndim; d-- > 0;) {
        shard->stride[d] = stride;
        offset += box.lo[d] * stride;
        stride *= slot->shape[d];
    }
    shard->offset = (uint64_t)offset;
    box.lo[axis] += global_lo - seg_lo;
    box.hi[axis] += global_lo - seg_lo;
    shard->box = box;
    return DYT_OK;
}

static enum dyt_status add_local_box(struct lister *l,
                                     const struct dyti_native_slot *slot,
                                     const struct dyt_box *local)
{
    const struct dyti_model *model = l->layout->model;
    const struct dyti_tensor *t = &model->tensor[slot->tensor];
    int64_t at = 0; /* local element where the segment begins */

    for (uint32_t s = 0; s < t->segment_count; s++) {
        int64_t lo, hi;
        enum dyt_status st;

        dyti_native_cut(model, t, s, &l->view->part, &lo, &hi);
        st = add_piece(l, slot, local, at, at + (hi - lo), lo);
        if (st != DYT_OK) {
            return st;
        }
        at += hi - lo;
    }
    return DYT_OK;
}

/* The part of one tensor that lies in [l->lo, l->hi) of the flat buffer. */
static enum dyt_status add_tensor(struct lister *l,
                                  const struct dyti_native_slot *slot)
{
    const struct dyti_tensor *t = &l->layout->model->tensor[slot->tensor];
    struct dyt_box box[DYTI_FLAT_BOXES];
    uint64_t lo = slot->flat > l->lo ? slot->flat : l->lo;
    uint64_t end = slot->flat + slot->elements;
    uint64_t hi = end < l->hi ? end : l->hi;
    uint32_t count;

    if (lo >= hi) {
        return DYT_OK;
    }
    count = dyti_native_flat_boxes(t->ndim, slot->shape, lo - slot->flat,
                                   hi - slot->flat, box);
    for (uint32_t i = 0; i < count; i++) {
        enum dyt_status st = add_local_box(l, slot, &box[i]);

        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}

static enum dyt_status list_kind(struct lister *l)
{
    struct dyti_view *view = l->view;
    struct dyti_native_walk walk;
    bool cut = is_cut_by_zero(l->kind);

    if (l->layout->desc.residency[l->kind] != DYTI_HELD ||
        (l->layout->model->kinds >> l->kind & 1u) == 0) {
        return DYT_OK;
    }
    l->lo = cut ? view->zero_lo : 0;
    l->hi = cut ? view->zero_hi : view->flat_elements;
    view->region_bytes[l->kind] =
        (l->hi - l->lo) * dyti_dtype_bytes(l->layout->desc.dtype[l->kind]);
    dyti_native_walk_init(&walk, l->layout->model, &view->part);
    while (dyti_native_next(&walk)) {
        enum dyt_status st = add_tensor(l, &walk.slot);

        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_view_build(const struct dyti_layout *layout,
                                uint32_t member, struct dyti_view *view)
{
    struct lister l = {.layout = layout, .view = view};
    struct dyti_native_walk walk;

    dyti_native_part(layout->model, &layout->desc, member, &view->part);
    dyti_native_walk_init(&walk, layout->model, &view->part);
    while (dyti_native_next(&walk)) {
    }
    view->flat_elements = dyti_align_up(walk.end, DYTI_REGION_ALIGN);
    cut_flat(layout, view);
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        enum dyt_status st;

        view->kind_first[kind] = view->shard_count;
        l.kind = (enum dyti_kind)kind;
        st = list_kind(&l);
        if (st != DYT_OK) {
            return st;
        }
    }
    view->kind_first[DYTI_KIND_COUNT] = view->shard_count;
    return DYT_OK;
}

const struct dyti_shard *dyti_view_find(const struct dyti_view *view,
                                        enum dyti_kind kind, uint32_t tensor)
{
    uint32_t lo = view->kind_first[kind], hi = view->kind_first[kind + 1];
    uint32_t end = hi;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (view->shard[mid].tensor < tensor) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < end && view->shard[lo].tensor == tensor ? &view->shard[lo]
                                                        : NULL;
}
