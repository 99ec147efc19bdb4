/* The native dialect: who holds what of a tensor.
 *
 *   query heads, FFN, vocabulary   as evenly as can be, first ranks get more
 *   KV heads                       those that the rank's query heads read
 *   norms                          all of them
 *   routed experts                 by the expert map over ep, their FFN over
 *                                  etp like the dense one over tp
 *
 * A region keeps, one behind the other: the flat buffer of the dense
 * parameters; that of the experts, if the members that hold the same expert
 * parameters are not those that hold the same dense ones (otherwise experts
 * lie in the one buffer, in catalogue order); what lies aside: parameters with
 * a dtype of their own or without some kind (a router's bias), each on
 * DYTI_ASIDE_ALIGN bytes.  ZeRO cuts each flat buffer between its own group,
 * dp x cp for the dense one and edp for the experts', and never what lies
 * aside: stage 1 cuts master and moments, 2 grad too, 3 param too. */
#include "layout/native.h"

#include "base/checked.h"
#include "layout/index.h"
#include "layout/native_keep.h"

#include <stdlib.h>
#include <string.h>

#define DYTI_ASIDE_ALIGN 256u

struct emission {
    const struct dyti_layout *layout;
    const struct dyti_part *part;
    enum dyti_kind kind;
    const struct dyti_shard_sink *sink;
    struct dyti_keeping keep;
};

static enum dyt_status emit_slot(const struct emission *e,
                                 const struct dyti_native_slot *slot)
{
    static const int64_t origin[DYT_MAX_DIMS] = {0};
    const struct dyti_tensor *t = &e->layout->model->tensor[slot->tensor];
    const struct dyti_flat_piece piece = {.tensor = slot->tensor,
                                          .kind = e->kind,
                                          .dtype =
                                              e->layout->desc.dtype[e->kind],
                                          .ndim = t->ndim,
                                          .axis = t->cut_axis,
                                          .range_count = slot->range_count,
                                          .local = slot->shape,
                                          .origin = origin,
                                          .range = slot->range};
    uint64_t bytes = dyti_dtype_bytes(piece.dtype);
    uint64_t end = slot->flat + slot->elements;

    for (uint32_t i =
             dyti_keeping_first(&e->keep, (int)slot->buffer, slot->flat);
         i < e->keep.count[slot->buffer]; i++) {
        const struct dyti_kept *r = &e->keep.range[slot->buffer][i];
        uint64_t lo = slot->flat > r->lo ? slot->flat : r->lo;
        uint64_t hi = end < r->hi ? end : r->hi;
        enum dyt_status st;

        if (lo >= hi) {
            break;
        }
        st = dyti_emit_piece(e->sink, &piece, lo - slot->flat, hi - slot->flat,
                             (r->at + (lo - r->lo)) * bytes);
        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}

static enum dyt_status emit_run(const struct emission *e, uint32_t run,
                                const uint64_t begin[])
{
    struct dyti_native_walk walk;

    dyti_native_walk_run(&walk, e->layout, e->part, run, begin);
    while (dyti_native_next(&walk)) {
        enum dyt_status st = emit_slot(e, &walk.slot);

        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}

/* What a member holds of a tensor outside the flat buffers, at *end bytes of
 * the region. */
static enum dyt_status emit_aside(const struct emission *e, uint32_t index,
                                  enum dyti_dtype dtype, uint64_t *end)
{
    static const int64_t origin[DYT_MAX_DIMS] = {0};
    const struct dyti_tensor *t = &e->layout->model->tensor[index];
    struct dyti_native_range range[DYTI_MAX_SEGMENTS];
    int64_t shape[DYT_MAX_DIMS];
    struct dyti_flat_piece piece = {.tensor = index,
                                    .kind = e->kind,
                                    .dtype = dtype,
                                    .ndim = t->ndim,
                                    .axis = t->cut_axis,
                                    .local = shape,
                                    .origin = origin,
                                    .range = range};
    uint64_t elements = 1;
    int32_t second = -1;
    enum dyt_status st = DYT_OK;

    piece.range_count = dyti_native_ranges(e->layout->model, t, e->part, range);
    memcpy(shape, t->shape, sizeof(shape));
    shape[t->cut_axis] = 0;
    for (uint32_t r = 0; r < piece.range_count; r++) {
        shape[t->cut_axis] += range[r].hi - range[r].lo;
    }
    for (uint32_t d = 0; d < t->ndim; d++) {
        elements *= (uint64_t)shape[d];
    }
    if (t->expert >= 0) {
        (void)dyti_layout_expert_slot(e->layout, e->part, t->expert, &second);
    }
    for (int copy = 0; copy < (second >= 0 ? 2 : 1) && st == DYT_OK; copy++) {
        *end = dyti_align_up(*end, DYTI_ASIDE_ALIGN);
        st = dyti_emit_piece(e->sink, &piece, 0, elements, *end);
        *end += elements * dyti_dtype_bytes(dtype);
    }
    return st;
}

static enum dyt_status emit_rest(const struct emission *e, uint64_t *end)
{
    const struct dyti_layout_index *index = e->layout->index;
    const struct dyti_model *model = e->layout->model;

    for (uint32_t i = 0; i < index->aside_count; i++) {
        const struct dyti_tensor *t = &model->tensor[index->aside[i]];
        enum dyti_dtype dtype = t->fixed_dtype && e->kind == DYTI_PARAM
                                    ? t->dtype
                                    : e->layout->desc.dtype[e->kind];
        enum dyt_status st;

        if ((t->kinds >> e->kind & 1u) == 0 ||
            !dyti_native_at_home(e->layout, t, e->part)) {
            continue;
        }
        st = emit_aside(e, index->aside[i], dtype, end);
        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}

/* Equal layers are held alike unless ZeRO cuts the buffer that they lie in. */
static void first_alike(const struct dyti_layout *layout, enum dyti_kind kind,
                        uint32_t *out_first)
{
    const struct dyti_layout_index *index = layout->index;

    for (uint32_t t = 0; t < layout->model->tensor_count; t++) {
        out_first[t] = t;
    }
    if (kind == DYTI_EXTRA || dyti_native_is_cut(layout->desc.zero, kind)) {
        return;
    }
    for (uint32_t run = 0; run < index->run_count; run++) {
        uint32_t like = dyti_layout_run_before(layout, run);
        uint32_t first = index->run[run].first;

        for (uint32_t t = first; like != UINT32_MAX && t < index->run[run].end;
             t++) {
            if (dyti_tensor_is_flat(&layout->model->tensor[t])) {
                out_first[t] = out_first[index->run[like].first + t - first];
            }
        }
    }
}

static enum dyt_status emit_parameters(struct emission *e,
                                       uint64_t *out_region_bytes)
{
    const struct dyti_layout_index *index = e->layout->index;
    struct dyti_native_sizes sizes = {.layout = e->layout, .part = e->part};
    bool once =
        e->sink->once && !dyti_native_is_cut(e->layout->desc.zero, e->kind);
    uint64_t total[DYTI_NATIVE_BUFFERS] = {0}, at[DYTI_NATIVE_BUFFERS] = {0};
    uint64_t bytes;
    enum dyt_status st;

    for (uint32_t run = 0; run < index->run_count; run++) {
        (void)dyti_native_skip_run(&sizes, run, total);
    }
    st = dyti_keeping_init(e->layout, e->part,
                           dyti_native_is_cut(e->layout->desc.zero, e->kind),
                           total, &e->keep);
    for (uint32_t run = 0; run < index->run_count && st == DYT_OK; run++) {
        uint64_t begin[DYTI_NATIVE_BUFFERS];

        memcpy(begin, at, sizeof(begin));
        if (dyti_native_skip_run(&sizes, run, at) &&
            !(once && dyti_layout_run_before(e->layout, run) != UINT32_MAX) &&
            (dyti_keeping_meets(&e->keep, DYTI_DENSE, begin[0], at[0]) ||
             dyti_keeping_meets(&e->keep, DYTI_EXPERTS, begin[1], at[1]))) {
            st = emit_run(e, run, begin);
        }
    }
    bytes = e->keep.elements * dyti_dtype_bytes(e->layout->desc.dtype[e->kind]);
    st = st != DYT_OK ? st : emit_rest(e, &bytes);
    dyti_keeping_fini(&e->keep);
    if (st == DYT_OK) {
        *out_region_bytes = bytes;
    }
    return st;
}

/* ---- extras -------------------------------------------------------------- */

/* One box of an extra, dense, at *end bytes of the region. */
static enum dyt_status emit_extra_box(const struct emission *e, uint32_t index,
                                      const struct dyt_box *box, uint64_t *end)
{
    const struct dyti_tensor *t = &e->layout->model->tensor[index];
    struct dyti_shard shard = {.tensor = index,
                               .kind = DYTI_EXTRA,
                               .dtype = (uint8_t)t->dtype,
                               .box = *box};
    int64_t stride = dyti_dtype_bytes(t->dtype);

    shard.box.ndim = t->ndim;
    for (uint32_t d = t->ndim; d-- > 0;) {
        shard.stride[d] = stride;
        stride *= box->hi[d] - box->lo[d];
    }
    if (stride == 0) {
        return DYT_OK;
    }
    shard.offset = dyti_align_up(*end, DYTI_ASIDE_ALIGN);
    *end = shard.offset + (uint64_t)stride;
    return e->sink->shard(e->sink->self, &shard);
}

/* The blocks in which the member's part of the parameter lies: both sides of a
 * border inside a block hold it. */
static enum dyt_status emit_blocks(const struct emission *e, uint32_t index,
                                   struct dyt_box *box, uint64_t *end)
{
    const struct dyti_model *model = e->layout->model;
    const struct dyti_tensor *t = &model->tensor[index];
    struct dyti_native_range range[DYTI_MAX_SEGMENTS];
    int64_t block = t->block[t->cut_axis], reached = 0;
    uint32_t count = dyti_native_ranges(model, t, e->part, range);

    for (uint32_t r = 0; r < count; r++) {
        int64_t lo = range[r].lo / block;
        int64_t hi = (range[r].hi + block - 1) / block;
        enum dyt_status st;

        lo = lo > reached ? lo : reached; /* a block across two segments */
        reached = hi > reached ? hi : reached;
        box->lo[t->cut_axis] = lo;
        box->hi[t->cut_axis] = hi > lo ? hi : lo;
        st = emit_extra_box(e, index, box, end);
        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}

static enum dyt_status emit_extra(const struct emission *e, uint32_t index,
                                  uint64_t *end)
{
    const struct dyti_tensor *t = &e->layout->model->tensor[index];
    struct dyt_box box = {.ndim = t->ndim};
    int64_t rows = t->shape[0];
    enum dyt_status st = DYT_OK;

    memcpy(box.hi, t->shape, t->ndim * sizeof(t->shape[0]));
    switch (t->extra) {
    case DYTI_EXTRA_SHARDED:
        return dyti_native_at_home(e->layout, t, e->part)
                   ? emit_blocks(e, index, &box, end)
                   : DYT_OK;
    case DYTI_EXTRA_OWNER:
        return e->part->member_index == 0 ? emit_extra_box(e, index, &box, end)
                                          : DYT_OK;
    case DYTI_EXTRA_PER_RANK:
        for (int64_t row = e->part->member_index; row < rows && st == DYT_OK;
             row += e->layout->member_count) {
            box.lo[0] = row;
            box.hi[0] = row + 1;
            st = emit_extra_box(e, index, &box, end);
        }
        return st;
    default:
        return emit_extra_box(e, index, &box, end);
    }
}

static enum dyt_status emit_extras(const struct emission *e,
                                   uint64_t *out_bytes)
{
    const struct dyti_layout_index *index = e->layout->index;
    uint64_t end = 0;

    for (uint32_t i = 0; i < index->extra_count; i++) {
        enum dyt_status st = emit_extra(e, index->extra[i], &end);

        if (st != DYT_OK) {
            return st;
        }
    }
    *out_bytes = end;
    return DYT_OK;
}

/* ---- the table ----------------------------------------------------------- */

static enum dyt_status emit(const struct dyti_layout *layout,
                            const struct dyti_part *part, enum dyti_kind kind,
                            const struct dyti_shard_sink *sink,
                            uint64_t *out_region_bytes)
{
    struct emission e = {
        .layout = layout, .part = part, .kind = kind, .sink = sink};

    *out_region_bytes = 0;
    return kind == DYTI_EXTRA ? emit_extras(&e, out_region_bytes)
                              : emit_parameters(&e, out_region_bytes);
}

static enum dyt_status describe(const struct dyti_layout *layout,
                                const struct dyti_part *part,
                                struct dyti_view *view)
{
    struct dyti_native_sizes sizes = {.layout = layout, .part = part};
    uint64_t total[DYTI_NATIVE_BUFFERS] = {0};
    struct dyti_keeping k;
    enum dyt_status st;

    for (uint32_t run = 0; run < layout->index->run_count; run++) {
        (void)dyti_native_skip_run(&sizes, run, total);
    }
    view->flat_elements = total[DYTI_DENSE] + total[DYTI_EXPERTS];
    st = dyti_keeping_init(layout, part, layout->desc.zero > 0, total, &k);
    if (st == DYT_OK) {
        view->zero =
            calloc((size_t)k.count[0] + k.count[1] + 1u, sizeof(*view->zero));
        if (view->zero == NULL) {
            st = DYTI_FAIL(DYT_ERR_NOMEM, "ZeRO ranges of a view");
        }
    }
    for (int b = 0; b < DYTI_NATIVE_BUFFERS && st == DYT_OK; b++) {
        uint64_t base = b == DYTI_DENSE ? 0 : total[DYTI_DENSE];

        for (uint32_t i = 0; i < k.count[b]; i++) {
            struct dyti_zero_cut r = {base + k.range[b][i].lo,
                                      base + k.range[b][i].hi};
            struct dyti_zero_cut *last =
                view->zero_count > 0 ? &view->zero[view->zero_count - 1] : NULL;

            if (last != NULL && last->hi == r.lo) {
                last->hi = r.hi;
            } else {
                view->zero[view->zero_count++] = r;
            }
        }
    }
    if (st == DYT_OK && view->zero_count == 1) {
        view->zero_lo = view->zero[0].lo;
        view->zero_hi = view->zero[0].hi;
    }
    dyti_keeping_fini(&k);
    return st;
}

static bool alike(const struct dyti_layout *layout, enum dyti_kind a,
                  enum dyti_kind b)
{
    uint32_t zero = layout->desc.zero;

    return a != DYTI_EXTRA && b != DYTI_EXTRA &&
           dyti_native_is_cut(zero, a) == dyti_native_is_cut(zero, b);
}

const struct dyti_dialect_ops dyti_dialect_native = {
    .name = "native",
    .check = dyti_native_check,
    .representative = dyti_native_representative,
    .alike = alike,
    .first_alike = first_alike,
    .emit = emit,
    .describe = describe,
};
