/* Dense bytes to strided boxes.  They have the destination's dtype already, so
 * nothing is converted, and parts of elements are bytes like others. */
#include "exec/pack_internal.h"

#include <string.h>

/* Whole elements of a box. */
static enum dyt_status unpack_whole(struct dyti_pack_batch *batch,
                                    const struct dyti_pack_part *part,
                                    const unsigned char *dense)
{
    uint64_t element = part->element;
    uint64_t count = part->bytes / part->element_bytes;
    enum dyt_status st = DYT_OK;

    while (count > 0 && st == DYT_OK) {
        struct dyti_copy *copy = dyti_pack_slot(batch);
        uint64_t taken;
        int64_t offset;

        dyti_pack_cut(part->box, false, &element, &count, copy, &offset,
                      &taken);
        copy->src = dense;
        copy->dst = (unsigned char *)part->box->dst + offset;
        copy->src_dtype = copy->dst_dtype;
        dense += taken * part->element_bytes;
        st = dyti_pack_add(batch);
    }
    return st;
}

/* At an odd address, which a device may not read from. */
static enum dyt_status unpack_bounced(struct dyti_pack_batch *batch,
                                      const struct dyti_pack_part *part,
                                      const unsigned char *dense)
{
    _Alignas(16) unsigned char bounce[DYTI_PACK_BOUNCE];
    struct dyti_pack_part now = *part;
    uint64_t left = part->bytes;
    enum dyt_status st = dyti_pack_flush(batch);

    while (left > 0 && st == DYT_OK) {
        now.bytes = left < DYTI_PACK_BOUNCE ? left : DYTI_PACK_BOUNCE;
        memcpy(bounce, dense, now.bytes);
        st = unpack_whole(batch, &now, bounce);
        st = st != DYT_OK ? st : dyti_pack_flush(batch);
        now.element += now.bytes / now.element_bytes;
        dense += now.bytes;
        left -= now.bytes;
    }
    return st;
}

/* A part of one element. */
static enum dyt_status unpack_bytes(const struct dyti_kernels *kernels,
                                    const struct dyti_pack_part *part,
                                    const unsigned char *dense)
{
    int64_t offset =
        dyti_pack_offset(part->box, part->box->dst_stride, part->element);

    return dyti_kernels_carry(
        kernels, (unsigned char *)part->box->dst + offset + part->skip, dense,
        part->bytes);
}

enum dyt_status dyti_unpack(const struct dyti_kernels *kernels,
                            const struct dyti_stream_boxes *stream,
                            struct dyti_stream_cursor *cursor,
                            const void *dense, uint64_t bytes)
{
    struct dyti_pack_batch batch;
    const unsigned char *from = dense;
    enum dyt_status st = DYT_OK;

    batch.kernels = kernels;
    batch.past_caches = stream->past_caches;
    batch.count = 0;
    while (bytes > 0 && st == DYT_OK) {
        struct dyti_pack_part part = dyti_pack_next(stream, cursor, bytes);

        if (part.skip > 0 || part.bytes < part.element_bytes) {
            st = unpack_bytes(kernels, &part, from);
        } else if ((uintptr_t)from % part.element_bytes != 0) {
            st = unpack_bounced(&batch, &part, from);
        } else {
            st = unpack_whole(&batch, &part, from);
        }
        from += part.bytes;
        bytes -= part.bytes;
    }
    return st == DYT_OK ? dyti_pack_flush(&batch) : st;
}
