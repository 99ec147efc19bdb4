/* What pack.c and unpack.c share: the walk over whole elements of a box as
 * strided copies, a batch of which goes to the kernel at once. */
#ifndef DYTI_EXEC_PACK_INTERNAL_H
#define DYTI_EXEC_PACK_INTERNAL_H

#include "exec/pack.h"

#define DYTI_PACK_BATCH  64u   /* copies in a kernel call */
#define DYTI_PACK_BOUNCE 2048u /* bytes; a multiple of every element */

struct dyti_pack_batch {
    const struct dyti_kernels *kernels; /* borrowed */
    bool past_caches;
    uint32_t count;
    struct dyti_copy copy[DYTI_PACK_BATCH];
};

/* The part of a stream that one step of the walk takes. */
struct dyti_pack_part {
    const struct dyti_copy *box;
    uint64_t element;       /* first of the box */
    uint32_t skip;          /* bytes of that element before the part */
    uint64_t bytes;         /* > 0; whole elements if > 1 of them */
    uint32_t element_bytes; /* of the dense side: the destination's dtype */
};

/* What comes next of at most `bytes`, and the cursor behind it: the rest or the
 * beginning of one element, or as many whole ones as the box has. */
struct dyti_pack_part dyti_pack_next(const struct dyti_stream_boxes *stream,
                                     struct dyti_stream_cursor *cursor,
                                     uint64_t bytes);

/* The next strided copy of elements [*element, *element + *count) of a box:
 * sizes, strides and dtypes of the box's own side, dense ones of the other;
 * src and dst hold the offset of the own side in `*out_offset`. */
void dyti_pack_cut(const struct dyti_copy *box, bool own_is_src,
                   uint64_t *element, uint64_t *count,
                   struct dyti_copy *out_copy, int64_t *out_offset,
                   uint64_t *out_elements);

/* Run what the batch holds. */
enum dyt_status dyti_pack_flush(struct dyti_pack_batch *batch);
/* Where the next copy of a batch is written, and that it has been.  In place:
 * a struct that was written word by word and is copied at once as vectors waits
 * for all stores before it. */
static inline struct dyti_copy *dyti_pack_slot(struct dyti_pack_batch *batch)
{
    return &batch->copy[batch->count];
}
enum dyt_status dyti_pack_add(struct dyti_pack_batch *batch);

/* Byte offset of an element of a box in its own memory. */
int64_t dyti_pack_offset(const struct dyti_copy *box, const int64_t *stride,
                         uint64_t element);

#endif /* DYTI_EXEC_PACK_INTERNAL_H */
