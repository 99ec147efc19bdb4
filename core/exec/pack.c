/* Strided boxes to dense bytes, and the walk that both directions share. */
#include "exec/pack_internal.h"

#include <string.h>

#define LAST (DYTI_COPY_DIMS - 1u)

/* ---- the walk ----------------------------------------------------------- */

void dyti_stream_seek(const struct dyti_stream_boxes *stream, uint64_t byte,
                      struct dyti_stream_cursor *out_cursor)
{
    uint32_t lo = 0, hi = stream->box_count;

    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (stream->at[mid] <= byte) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    out_cursor->box = lo;
    out_cursor->byte = stream->box_count == 0 ? 0 : byte - stream->at[lo];
}

struct dyti_pack_part dyti_pack_next(const struct dyti_stream_boxes *stream,
                                     struct dyti_stream_cursor *cursor,
                                     uint64_t bytes)
{
    struct dyti_pack_part part = {.bytes = bytes};
    uint64_t have;

    while (cursor->byte ==
           stream->at[cursor->box + 1] - stream->at[cursor->box]) {
        cursor->box++; /* the end of one is the beginning of the next */
        cursor->byte = 0;
    }
    part.box = &stream->box[cursor->box];
    part.element_bytes = dyti_dtype_bytes((enum dyti_dtype)part.box->dst_dtype);
    part.element = cursor->byte == 0 ? 0 : cursor->byte / part.element_bytes;
    part.skip = (uint32_t)(cursor->byte - part.element * part.element_bytes);
    have = stream->at[cursor->box + 1] - stream->at[cursor->box] - cursor->byte;
    if (part.bytes > have) {
        part.bytes = have;
    }
    if (part.skip > 0 || part.bytes < part.element_bytes) {
        uint64_t rest = part.element_bytes - part.skip;

        part.bytes = part.bytes < rest ? part.bytes : rest;
    } else if (part.bytes != have) {
        part.bytes -= part.bytes % part.element_bytes;
    }
    cursor->byte += part.bytes;
    return part;
}

int64_t dyti_pack_offset(const struct dyti_copy *box, const int64_t *stride,
                         uint64_t element)
{
    int64_t offset = 0;

    for (uint32_t d = DYTI_COPY_DIMS; d-- > 0;) {
        uint64_t size = (uint64_t)box->size[d];

        offset += (int64_t)(element % size) * stride[d];
        element /= size;
    }
    return offset;
}

/* The slowest axis along which whole inner boxes can be taken from here. */
static uint32_t cut_axis(const struct dyti_copy *box, uint64_t element,
                         uint64_t count, uint64_t *out_inner)
{
    uint32_t axis = LAST;
    uint64_t inner = 1;

    while (axis > 0) {
        uint64_t size = (uint64_t)box->size[axis];

        if ((element != 0 && element % size != 0) || inner * size > count) {
            break;
        }
        element = element == 0 ? 0 : element / size;
        inner *= size;
        axis--;
    }
    *out_inner = inner;
    return axis;
}

/* Divisions are for cuts alone: most boxes are taken whole. */
void dyti_pack_cut(const struct dyti_copy *box, bool own_is_src,
                   uint64_t *element, uint64_t *count,
                   struct dyti_copy *out_copy, int64_t *out_offset,
                   uint64_t *out_elements)
{
    const int64_t *stride = own_is_src ? box->src_stride : box->dst_stride;
    int64_t dense = dyti_dtype_bytes((enum dyti_dtype)box->dst_dtype);
    uint64_t inner, at, rows;
    uint32_t axis = cut_axis(box, *element, *count, &inner);

    at = *element == 0 ? 0 : *element / inner % (uint64_t)box->size[axis];
    rows = (uint64_t)box->size[axis] - at;
    if (rows * inner > *count) {
        rows = *count / inner;
    }
    out_copy->src_dtype = box->src_dtype;
    out_copy->dst_dtype = box->dst_dtype;
    for (uint32_t d = DYTI_COPY_DIMS; d-- > 0;) {
        out_copy->size[d] = d < axis    ? 1
                            : d == axis ? (int64_t)rows
                                        : box->size[d];
        out_copy->src_stride[d] = own_is_src ? stride[d] : dense;
        out_copy->dst_stride[d] = own_is_src ? dense : stride[d];
        dense *= out_copy->size[d];
    }
    *out_offset = *element == 0 ? 0 : dyti_pack_offset(box, stride, *element);
    *out_elements = rows * inner;
    *element += rows * inner;
    *count -= rows * inner;
}

enum dyt_status dyti_pack_flush(struct dyti_pack_batch *batch)
{
    uint32_t count = batch->count;

    batch->count = 0;
    if (count == 0) {
        return DYT_OK;
    }
    return batch->past_caches
               ? dyti_kernels_copy_past(batch->kernels, batch->copy, count)
               : batch->kernels->ops->copy(batch->kernels->self, batch->copy,
                                           count);
}

enum dyt_status dyti_pack_add(struct dyti_pack_batch *batch)
{
    return ++batch->count == DYTI_PACK_BATCH ? dyti_pack_flush(batch) : DYT_OK;
}

/* ---- pack --------------------------------------------------------------- */

/* Elements of a box, to dense memory that is aligned for them. */
static enum dyt_status pack_aligned(struct dyti_pack_batch *batch,
                                    const struct dyti_copy *box,
                                    uint64_t element, uint64_t count,
                                    unsigned char *dense)
{
    enum dyt_status st = DYT_OK;

    while (count > 0 && st == DYT_OK) {
        struct dyti_copy *copy = dyti_pack_slot(batch);
        uint64_t taken;
        int64_t offset;

        dyti_pack_cut(box, true, &element, &count, copy, &offset, &taken);
        copy->src = (const unsigned char *)box->src + offset;
        copy->dst = dense;
        dense += taken * dyti_dtype_bytes((enum dyti_dtype)box->dst_dtype);
        st = dyti_pack_add(batch);
    }
    return st;
}

/* Through aligned memory: part of an element, or elements at an odd address. */
static enum dyt_status pack_bounced(struct dyti_pack_batch *batch,
                                    const struct dyti_pack_part *part,
                                    unsigned char *dense)
{
    _Alignas(16) unsigned char bounce[DYTI_PACK_BOUNCE];
    uint64_t element = part->element, left = part->bytes, skip = part->skip;
    enum dyt_status st = dyti_pack_flush(batch);

    while (left > 0 && st == DYT_OK) {
        uint64_t most = DYTI_PACK_BOUNCE - skip;
        uint64_t now = left < most ? left : most;
        uint64_t count =
            (skip + now + part->element_bytes - 1) / part->element_bytes;

        st = pack_aligned(batch, part->box, element, count, bounce);
        st = st != DYT_OK ? st : dyti_pack_flush(batch);
        if (st == DYT_OK) {
            memcpy(dense, bounce + skip, now);
            dense += now;
            left -= now;
            element += count;
            skip = 0;
        }
    }
    return st;
}

enum dyt_status dyti_pack(const struct dyti_kernels *kernels,
                          const struct dyti_stream_boxes *stream,
                          struct dyti_stream_cursor *cursor, void *dense,
                          uint64_t bytes)
{
    struct dyti_pack_batch batch;
    unsigned char *to = dense;
    enum dyt_status st = DYT_OK;

    batch.kernels = kernels;
    batch.past_caches = false;
    batch.count = 0;
    while (bytes > 0 && st == DYT_OK) {
        struct dyti_pack_part part = dyti_pack_next(stream, cursor, bytes);

        if (part.skip > 0 || part.bytes < part.element_bytes ||
            (uintptr_t)to % part.element_bytes != 0) {
            st = pack_bounced(&batch, &part, to);
        } else {
            st = pack_aligned(&batch, part.box, part.element,
                              part.bytes / part.element_bytes, to);
        }
        to += part.bytes;
        bytes -= part.bytes;
    }
    return st == DYT_OK ? dyti_pack_flush(&batch) : st;
}
