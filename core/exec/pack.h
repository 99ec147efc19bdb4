/* Packing and unpacking: answers "which bytes of a stream are these?"
 *
 * A stream is what one rank sends another, its boxes one after the other, each
 * row by row, in the destination's dtypes: dense bytes.  Any range of those
 * bytes can be packed or unpacked alone, also one that begins or ends in the
 * middle of an element, and conversion happens in the same pass.
 *
 * Terms
 *   box     a strided part of this rank's memory: one dyti_copy of the stream.
 *           The sender's have `src`, the receiver's `dst`; the other end is the
 *           dense one and is not looked at
 *   stream  struct dyti_stream_boxes of ops/kernels.h
 *   cursor  where in a stream one is
 *
 * Threads: one cursor by one thread; a stream by any number. */
#ifndef DYTI_EXEC_PACK_H
#define DYTI_EXEC_PACK_H

#include "ops/kernels.h"

struct dyti_stream_cursor {
    uint32_t box;
    uint64_t byte; /* of the box */
};

/* The cursor of a byte of the stream, 0 <= byte <= length.  O(log n). */
void dyti_stream_seek(const struct dyti_stream_boxes *stream, uint64_t byte,
                      struct dyti_stream_cursor *out_cursor);

/**
 * Write the next `bytes` of the stream to `dense` / read them from there, and
 * move the cursor.  The range must lie inside the stream.  No allocation.
 * @return what the copy kernel returns
 */
enum dyt_status dyti_pack(const struct dyti_kernels *kernels,
                          const struct dyti_stream_boxes *stream,
                          struct dyti_stream_cursor *cursor, void *dense,
                          uint64_t bytes);
enum dyt_status dyti_unpack(const struct dyti_kernels *kernels,
                            const struct dyti_stream_boxes *stream,
                            struct dyti_stream_cursor *cursor,
                            const void *dense, uint64_t bytes);

#endif /* DYTI_EXEC_PACK_H */
