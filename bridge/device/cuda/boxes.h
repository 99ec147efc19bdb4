/* Lists of boxes as the kernels want them: answers "what does one launch move?"
 * A list is made once per cached schedule from strided copies or from a range
 * of a stream, uploaded once, and launched at every switch.
 *
 * Terms
 *   element  what is moved at a time: of a dtype where it is converted, else
 *            1, 2, 4, 8 or 16 bytes, as wide as all addresses of a box allow
 *   axis     the destination bytes of all boxes one behind the other: warps
 *            take equal parts of it, whatever the boxes are
 *
 * Threads: any, one list by one thread at a time. */
#ifndef DYTI_DEVICE_CUDA_BOXES_H
#define DYTI_DEVICE_CUDA_BOXES_H

#include "device/cuda/box.h"

#include "base/error.h"
#include "exec/pack.h"
#include "ops/kernels.h"

struct dyti_cuda_boxes {
    struct dyti_cuda_box *box; /* [count], owned */
    uint64_t *first; /* [count + 1] where box i begins on the axis, owned */
    uint32_t count, cap;
};

void dyti_cuda_boxes_fini(struct dyti_cuda_boxes *list);

/* Each adds to the list, which starts as zeros.  No box may overlap what
 * another of the list writes.
 * DYT_ERR_NOMEM, DYT_ERR_OVERFLOW: the list is as it was. */
enum dyt_status dyti_cuda_boxes_add(struct dyti_cuda_boxes *list,
                                    const struct dyti_copy *copy, size_t count);
/* Bytes [lo, hi) of a stream, to or from `dense` (exec/pack.h). */
enum dyt_status dyti_cuda_boxes_pack(struct dyti_cuda_boxes *list,
                                     const struct dyti_stream_boxes *stream,
                                     uint64_t lo, uint64_t hi, void *dense);
enum dyt_status dyti_cuda_boxes_unpack(struct dyti_cuda_boxes *list,
                                       const struct dyti_stream_boxes *stream,
                                       uint64_t lo, uint64_t hi,
                                       const void *dense);

/* ---- content hashes ----------------------------------------------------- */

/* The device's form of a box; the dimensions are sorted and merged. */
void dyti_cuda_hash_box_make(const struct dyti_hash_box *box, uint32_t word,
                             struct dyti_cuda_hash_box *out_box);

#endif /* DYTI_DEVICE_CUDA_BOXES_H */
