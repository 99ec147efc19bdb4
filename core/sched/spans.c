/* Strided copies of transfers: dims that lie densely behind each other on both
 * sides fold into one, copies that continue each other join, large ones are
 * split along their slowest dim. */
#include "sched/spans.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

#define LAST           (DYTI_SPAN_DIMS - 1u)
#define SPLIT_ELEMENTS 64 /* borders of a dense run that is cut */

void dyti_spans_fini(struct dyti_span_list *list)
{
    free(list->span);
    free(list->of);
    *list = (struct dyti_span_list){0};
}

uint64_t dyti_span_elements(const struct dyti_span *span)
{
    uint64_t count = 1;

    for (uint32_t d = 0; d < DYTI_SPAN_DIMS; d++) {
        count *= (uint64_t)span->size[d];
    }
    return count;
}

static uint32_t src_bytes(const struct dyti_span *span)
{
    return dyti_dtype_bytes((enum dyti_dtype)span->src_dtype);
}

static uint32_t dst_bytes(const struct dyti_span *span)
{
    return dyti_dtype_bytes((enum dyti_dtype)span->dst_dtype);
}

/* One run without gaps on both sides. */
static bool is_dense(const struct dyti_span *span)
{
    return span->size[0] == 1 && span->size[1] == 1 && span->size[2] == 1 &&
           span->src_stride[LAST] == src_bytes(span) &&
           span->dst_stride[LAST] == dst_bytes(span);
}

static bool same_regions(const struct dyti_span *a, const struct dyti_span *b)
{
    return a->src_slot == b->src_slot && a->dst_slot == b->dst_slot &&
           a->src_kind == b->src_kind && a->dst_kind == b->dst_kind &&
           a->src_dtype == b->src_dtype && a->dst_dtype == b->dst_dtype;
}

/* `next` begins where the dense `span` ends, on both sides. */
static bool continues(const struct dyti_span *span,
                      const struct dyti_span *next)
{
    uint64_t count = (uint64_t)span->size[LAST];

    return is_dense(span) && is_dense(next) && same_regions(span, next) &&
           span->src_offset + count * src_bytes(span) == next->src_offset &&
           span->dst_offset + count * dst_bytes(span) == next->dst_offset;
}

static enum dyt_status append(struct dyti_span_list *list,
                              const struct dyti_span *span,
                              uint32_t transfer_first, uint32_t transfer_last)
{
    enum dyt_status st =
        DYTI_GROW(list->span, list->span_cap, list->span_count + 1);

    st = st != DYT_OK ? st
                      : DYTI_GROW(list->of, list->of_cap, list->span_count + 1);
    if (st == DYT_OK) {
        list->of[list->span_count] =
            (struct dyti_span_range){transfer_first, transfer_last};
        list->span[list->span_count++] = *span;
    }
    return st;
}

enum dyt_status dyti_spans_push(struct dyti_span_list *list,
                                const struct dyti_span *span,
                                const struct dyti_span_range *of)
{
    return append(list, span, of->transfer_first, of->transfer_last);
}

/* ---- folding ------------------------------------------------------------ */

/* The dims of a transfer, slow to fast, without those of size 1 and with those
 * folded that are dense on both sides. */
struct dims {
    uint32_t count;
    int64_t size[DYT_MAX_DIMS], src[DYT_MAX_DIMS], dst[DYT_MAX_DIMS];
};

static void fold(const struct dyt_box *box, const struct dyti_shard *src,
                 const struct dyti_shard *dst, struct dims *out)
{
    memset(out, 0, sizeof(*out));
    for (uint32_t d = 0; d < box->ndim; d++) {
        int64_t size = box->hi[d] - box->lo[d];
        uint32_t last = out->count - 1;

        if (size == 1) {
            continue;
        }
        if (out->count > 0 && out->src[last] == size * src->stride[d] &&
            out->dst[last] == size * dst->stride[d]) {
            out->size[last] *= size;
        } else {
            last = out->count++;
            out->size[last] = size;
        }
        out->src[last] = src->stride[d];
        out->dst[last] = dst->stride[d];
    }
}

static uint64_t offset_of(const struct dyti_shard *shard,
                          const struct dyt_box *box)
{
    int64_t offset = (int64_t)shard->offset;

    for (uint32_t d = 0; d < box->ndim; d++) {
        offset += (box->lo[d] - shard->box.lo[d]) * shard->stride[d];
    }
    return (uint64_t)offset;
}

/* Spans of one transfer: one, or one for each index of the slow dims that a
 * span has no room for. */
static enum dyt_status add_transfer(struct dyti_span_list *list,
                                    const struct dyti_plan *plan,
                                    uint32_t index)
{
    const struct dyti_transfer *t = &plan->transfer[index];
    const struct dyti_shard *src = dyti_plan_src(plan, t);
    const struct dyti_shard *dst = dyti_plan_dst(plan, t);
    struct dyti_span span = {.src_slot = t->src_slot,
                             .dst_slot = t->dst_slot,
                             .src_kind = t->src_kind,
                             .dst_kind = t->dst_kind,
                             .src_dtype = src->dtype,
                             .dst_dtype = dst->dtype};
    int64_t at[DYT_MAX_DIMS] = {0}; /* of the slow dims */
    struct dims dims;
    uint32_t slow;

    fold(&t->box, src, dst, &dims);
    slow = dims.count > DYTI_SPAN_DIMS ? dims.count - DYTI_SPAN_DIMS : 0;
    for (uint32_t d = 0; d < DYTI_SPAN_DIMS; d++) {
        span.size[d] = 1;
        /* a single element is a dense run of one */
        span.src_stride[d] = d == LAST ? src_bytes(&span) : 0;
        span.dst_stride[d] = d == LAST ? dst_bytes(&span) : 0;
    }
    for (uint32_t d = slow; d < dims.count; d++) {
        uint32_t to = DYTI_SPAN_DIMS - dims.count + d;

        span.size[to] = dims.size[d];
        span.src_stride[to] = dims.src[d];
        span.dst_stride[to] = dims.dst[d];
    }
    for (;;) {
        enum dyt_status st;
        uint32_t d = slow;

        span.src_offset = offset_of(src, &t->box);
        span.dst_offset = offset_of(dst, &t->box);
        for (uint32_t i = 0; i < slow; i++) {
            span.src_offset += (uint64_t)(at[i] * dims.src[i]);
            span.dst_offset += (uint64_t)(at[i] * dims.dst[i]);
        }
        st = append(list, &span, index, index);
        if (st != DYT_OK) {
            return st;
        }
        while (d > 0 && ++at[d - 1] == dims.size[d - 1]) {
            at[--d] = 0;
        }
        if (d == 0) {
            return DYT_OK;
        }
    }
}

/* Join spans [first, count) that continue each other. */
static void join(struct dyti_span_list *list, size_t first)
{
    size_t kept = first;

    for (size_t i = first + 1; i < list->span_count; i++) {
        if (continues(&list->span[kept], &list->span[i])) {
            list->span[kept].size[LAST] += list->span[i].size[LAST];
            list->of[kept].transfer_last = list->of[i].transfer_last;
        } else {
            kept++;
            list->span[kept] = list->span[i];
            list->of[kept] = list->of[i];
        }
    }
    if (list->span_count > first) {
        list->span_count = kept + 1;
    }
}

/* ---- splitting ---------------------------------------------------------- */

/* Append `span` in pieces of at most chunk_bytes written, as far as its dims
 * allow. */
static enum dyt_status add_pieces(struct dyti_span_list *list,
                                  const struct dyti_span *span,
                                  struct dyti_span_range of,
                                  uint64_t chunk_bytes)
{
    struct dyti_span piece = *span;
    uint32_t axis = 0;
    uint64_t step; /* written bytes of one index of the axis */
    int64_t most;

    while (axis < LAST && span->size[axis] == 1) {
        axis++;
    }
    step =
        dyti_span_elements(span) / (uint64_t)span->size[axis] * dst_bytes(span);
    if (step > chunk_bytes && axis < LAST) {
        most = 1;
    } else {
        most = (int64_t)(chunk_bytes / step);
        if (axis == LAST) {
            most = most / SPLIT_ELEMENTS * SPLIT_ELEMENTS;
            most = most > 0 ? most : SPLIT_ELEMENTS;
        }
        most = most > 0 ? most : 1;
    }
    for (int64_t at = 0; at < span->size[axis]; at += most) {
        int64_t left = span->size[axis] - at;
        enum dyt_status st;

        piece.size[axis] = left < most ? left : most;
        piece.src_offset =
            span->src_offset + (uint64_t)(at * span->src_stride[axis]);
        piece.dst_offset =
            span->dst_offset + (uint64_t)(at * span->dst_stride[axis]);
        st = piece.size[axis] == 1 && axis < LAST && step > chunk_bytes
                 ? add_pieces(list, &piece, of, chunk_bytes)
                 : append(list, &piece, of.transfer_first, of.transfer_last);
        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}

/* All waves, or one. */
static enum dyt_status add_whole(struct dyti_span_list *list,
                                 const struct dyti_plan *plan,
                                 const struct dyti_plan_pair *pair,
                                 int64_t wave)
{
    size_t first = list->span_count;
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < pair->transfer_count && st == DYT_OK; i++) {
        uint32_t index = pair->transfer_first + i;

        if (wave < 0 || plan->transfer[index].wave == wave) {
            st = add_transfer(list, plan, index);
        }
    }
    if (st == DYT_OK) {
        join(list, first);
    }
    return st;
}

static enum dyt_status add_cut(struct dyti_span_list *list,
                               const struct dyti_plan *plan,
                               const struct dyti_plan_pair *pair, int64_t wave,
                               uint64_t chunk_bytes)
{
    struct dyti_span_list whole = {0};
    enum dyt_status st = add_whole(&whole, plan, pair, wave);

    for (size_t i = 0; i < whole.span_count && st == DYT_OK; i++) {
        st = add_pieces(list, &whole.span[i], whole.of[i], chunk_bytes);
    }
    dyti_spans_fini(&whole);
    return st;
}

enum dyt_status dyti_spans_add(struct dyti_span_list *list,
                               const struct dyti_plan *plan,
                               const struct dyti_plan_pair *pair,
                               uint64_t chunk_bytes)
{
    return add_cut(list, plan, pair, -1, chunk_bytes);
}

enum dyt_status dyti_spans_add_wave(struct dyti_span_list *list,
                                    const struct dyti_plan *plan,
                                    const struct dyti_plan_pair *pair,
                                    uint32_t wave, uint64_t chunk_bytes)
{
    return chunk_bytes == 0 ? add_whole(list, plan, pair, wave)
                            : add_cut(list, plan, pair, wave, chunk_bytes);
}
