/* Boxes as the kernels read them from device memory.  For C and for kernels. */
#ifndef DYTI_DEVICE_CUDA_BOX_H
#define DYTI_DEVICE_CUDA_BOX_H

#include <stdint.h>

#define DYTI_CUDA_DIMS 4

enum dyti_cuda_variant {
    DYTI_CUDA_ROWS,     /* dense rows on both sides, of 64 bytes or more */
    DYTI_CUDA_ELEMENTS, /* anything: one element per thread */
    DYTI_CUDA_TURNED    /* the last axis is dense in the destination, the one
                           before it in the source */
};

/* One box; sizes and strides from slow to fast.  Kernels read it as it is. */
struct dyti_cuda_box {
    uint64_t src, dst; /* addresses of the first element */
    uint64_t size[DYTI_CUDA_DIMS];
    int64_t src_stride[DYTI_CUDA_DIMS], dst_stride[DYTI_CUDA_DIMS]; /* bytes */
    uint8_t variant;              /* enum dyti_cuda_variant */
    uint8_t src_bytes, dst_bytes; /* of an element */
    uint8_t src_unit, dst_unit;   /* ELEMENTS: widest aligned access */
    uint8_t src_dtype, dst_dtype; /* equal: not converted */
    uint8_t skip, take; /* take > 0: only these bytes of the one element */
    uint8_t reserved[7];
};

struct dyti_cuda_hash_box {
    uint64_t data, index, salt;
    uint64_t size[DYTI_CUDA_DIMS];
    int64_t stride[DYTI_CUDA_DIMS], index_stride[DYTI_CUDA_DIMS];
    uint32_t word;     /* of the sums, where this box's is added */
    uint8_t bytes;     /* of an element */
    uint8_t dtype, as; /* equal: elements are hashed as they are stored */
    uint8_t reserved;
};

/* Of which a seed draws a box to hash: ops/sample.h, with box.index left as it
 * is there. */
struct dyti_cuda_sample {
    struct dyti_cuda_hash_box box; /* of the whole piece, dims as they come */
    uint64_t lo[DYTI_CUDA_DIMS], step[DYTI_CUDA_DIMS], count[DYTI_CUDA_DIMS];
    uint64_t starts[DYTI_CUDA_DIMS], key;
};

#endif /* DYTI_DEVICE_CUDA_BOX_H */
