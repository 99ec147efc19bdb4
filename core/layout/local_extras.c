/* State without a parameter's shape, for every dialect but native: each box a
 * buffer of its own.  Scales go where their parameter's shards are; all else by
 * the rule of the extra. */
#include "layout/local.h"

#include "base/array.h"
#include "base/checked.h"
#include "layout/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct extras {
    const struct dyti_layout *layout;
    const struct dyti_part *part;
    const struct dyti_shard_sink *sink;
    struct dyti_shard *shard; /* of parameters, by tensor */
    size_t shard_count, shard_cap;
    struct dyt_box *done; /* of the scale that is being placed */
    size_t done_count, done_cap;
    uint32_t last, copies; /* extra placed last, and its buffers so far */
    uint64_t end;          /* bytes of the region so far */
};

static enum dyt_status place(struct extras *e, uint32_t index,
                             const struct dyt_box *box)
{
    const struct dyti_tensor *t = &e->layout->model->tensor[index];
    struct dyti_shard s = {.tensor = index,
                           .kind = DYTI_EXTRA,
                           .dtype = (uint8_t)t->dtype,
                           .box = *box};
    struct dyti_view_buffer b = {.name = t->name,
                                 .kind = DYTI_EXTRA,
                                 .dtype = (uint8_t)t->dtype,
                                 .ndim = t->ndim};
    int64_t stride = dyti_dtype_bytes(t->dtype);
    char name[DYTI_LOCAL_NAME];
    enum dyt_status st = DYT_OK;

    e->copies = e->last == index ? e->copies + 1 : 0;
    e->last = index;
    if (e->copies > 0) { /* rows apart: "rng", "rng#1", … */
        (void)snprintf(name, sizeof(name), "%s#%u", t->name, e->copies);
        b.name = name;
    }
    for (uint32_t d = t->ndim; d-- > 0;) {
        b.shape[d] = box->hi[d] - box->lo[d];
        s.stride[d] = stride;
        stride *= b.shape[d];
    }
    s.offset = b.offset = dyti_align_up(e->end, DYTI_REGION_ALIGN);
    b.bytes = (uint64_t)stride;
    e->end = s.offset + b.bytes;
    if (e->sink->buffer != NULL) {
        st = e->sink->buffer(e->sink->self, &b);
    }
    return st != DYT_OK ? st : e->sink->shard(e->sink->self, &s);
}

/* ---- scales -------------------------------------------------------------- */

static enum dyt_status keep_shard(void *self, const struct dyti_shard *shard)
{
    struct extras *e = self;
    enum dyt_status st = DYTI_GROW(e->shard, e->shard_cap, e->shard_count + 1);

    if (st == DYT_OK) {
        e->shard[e->shard_count++] = *shard;
    }
    return st;
}

static bool is_placed(const struct extras *e, const struct dyt_box *box)
{
    for (size_t i = 0; i < e->done_count; i++) {
        bool inside = true;

        for (uint32_t d = 0; d < box->ndim; d++) {
            inside = inside && box->lo[d] >= e->done[i].lo[d] &&
                     box->hi[d] <= e->done[i].hi[d];
        }
        if (inside) {
            return true;
        }
    }
    return false;
}

/* The blocks that a shard touches: a border inside a block makes both sides
 * hold that element. */
static enum dyt_status place_blocks(struct extras *e, uint32_t index,
                                    const struct dyt_box *of)
{
    const struct dyti_tensor *t = &e->layout->model->tensor[index];
    struct dyt_box box = {.ndim = t->ndim};
    enum dyt_status st;

    for (uint32_t d = 0; d < t->ndim; d++) {
        box.lo[d] = of->lo[d] / t->block[d];
        box.hi[d] = (of->hi[d] + t->block[d] - 1) / t->block[d];
    }
    if (is_placed(e, &box)) {
        return DYT_OK;
    }
    st = DYTI_GROW(e->done, e->done_cap, e->done_count + 1);
    if (st != DYT_OK) {
        return st;
    }
    e->done[e->done_count++] = box;
    return place(e, index, &box);
}

static enum dyt_status place_scale(struct extras *e, uint32_t index)
{
    uint32_t of = e->layout->model->tensor[index].extra_of;
    size_t lo = 0, hi = e->shard_count;
    enum dyt_status st = DYT_OK;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (e->shard[mid].tensor < of) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    e->done_count = 0;
    for (; lo < e->shard_count && e->shard[lo].tensor == of && st == DYT_OK;
         lo++) {
        st = place_blocks(e, index, &e->shard[lo].box);
    }
    return st;
}

/* ---- the rest ------------------------------------------------------------ */

static enum dyt_status place_extra(struct extras *e, uint32_t index)
{
    const struct dyti_tensor *t = &e->layout->model->tensor[index];
    struct dyt_box box = {.ndim = t->ndim};
    uint32_t me = e->part->member_index;
    enum dyt_status st = DYT_OK;

    memcpy(box.hi, t->shape, t->ndim * sizeof(t->shape[0]));
    switch (t->extra) {
    case DYTI_EXTRA_SHARDED:
        return place_scale(e, index);
    case DYTI_EXTRA_OWNER:
        return me == 0 ? place(e, index, &box) : DYT_OK;
    case DYTI_EXTRA_PER_RANK:
        for (int64_t row = me; row < t->shape[0] && st == DYT_OK;
             row += e->layout->member_count) {
            box.lo[0] = row;
            box.hi[0] = row + 1;
            st = place(e, index, &box);
        }
        return st;
    default:
        return place(e, index, &box);
    }
}

static bool has_rule(const struct dyti_model *model, enum dyti_extra_rule rule)
{
    for (uint32_t i = model->parameter_count; i < model->tensor_count; i++) {
        if (model->tensor[i].extra == rule) {
            return true;
        }
    }
    return false;
}

enum dyt_status dyti_local_extras(const struct dyti_layout *layout,
                                  const struct dyti_part *part,
                                  const struct dyti_dialect_ops *ops,
                                  const struct dyti_shard_sink *sink,
                                  uint64_t *out_region_bytes)
{
    struct extras e = {
        .layout = layout, .part = part, .sink = sink, .last = UINT32_MAX};
    const struct dyti_model *model = layout->model;
    enum dyt_status st = DYT_OK;

    if (has_rule(model, DYTI_EXTRA_SHARDED)) {
        const struct dyti_shard_sink keep = {.self = &e, .shard = keep_shard};
        uint64_t bytes;

        st = ops->emit(layout, part, DYTI_PARAM, &keep, &bytes);
        if (e.shard_count > 0) {
            dyti_view_sort(e.shard, e.shard_count);
        }
    }
    for (uint32_t i = model->parameter_count;
         i < model->tensor_count && st == DYT_OK; i++) {
        st = place_extra(&e, i);
    }
    if (st == DYT_OK) {
        *out_region_bytes = e.end;
    }
    free(e.shard);
    free(e.done);
    return st;
}

bool dyti_local_has_own_extras(const struct dyti_layout *layout)
{
    return has_rule(layout->model, DYTI_EXTRA_PER_RANK) ||
           has_rule(layout->model, DYTI_EXTRA_OWNER);
}
