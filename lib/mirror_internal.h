/* What the two files of a mirror share. */
#ifndef DYTI_LIB_MIRROR_INTERNAL_H
#define DYTI_LIB_MIRROR_INTERNAL_H

#include "lib/link_internal.h"
#include "lib/mirror.h"

/* Boxes that are copied one way. */
struct dyti_mirror_way {
    struct dyti_copy *copy; /* [count]; owned */
    uint64_t *at;           /* [count + 1] bytes of them as a stream; owned */
    uint32_t count;
    struct dyti_copy_list *list; /* pinned: on the device */
};

/* What is copied to and from one device. */
struct dyti_mirror_part {
    struct dyti_mirror_way take, give; /* give: padding besides */
    void **stream; /* [stream_count] of the rows, each once; owned */
    uint32_t stream_count;
};

struct dyti_mirror_hash {
    struct dyti_hash_box box;
    uint32_t row, device;
};

#define DYTI_MIRROR_CHUNK (8u << 20) /* bytes of the pinned buffer */

struct dyti_mirror {
    struct dyti_devices *devices;
    struct dyti_segment_mem segment;
    bool pinned;
    void *chunk;             /* pinned memory, where the segment cannot be */
    struct dyti_hands hands; /* likewise: from it to the segment and back */
    uint64_t bytes;
    struct dyt_row *row; /* [row_count]; owned */
    bool *has, *used;    /* [row_count] a mirror; pieces; owned */
    uint64_t row_count;
    struct dyti_device_place *place; /* [place_count], names owned */
    size_t place_count;
    struct dyti_mirror_part *part; /* [devices->count]; owned */
    struct dyti_mirror_hash *hash; /* [hash_count]; owned */
    size_t hash_count;
};

/* Boxes that move often are given to the device once. */
enum dyt_status dyti_mirror_upload(struct dyti_mirror *mirror);

#endif /* DYTI_LIB_MIRROR_INTERNAL_H */
