/* What the files of a mirror share.
 *   mirror.c       which rows have one, and where they lie in it
 *   mirror_bind.c  which boxes are copied
 *   mirror_copy.c  what runs: copies, padding, hashes of rows
 *   mirror_seal.c  was a row written meanwhile? */
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
    struct dyti_mirror_way pads;       /* that alone, without a mirror */
    void **stream; /* [stream_count] of the rows, each once; owned */
    uint32_t stream_count;
};

struct dyti_mirror_hash {
    struct dyti_hash_box box;
    uint32_t row, device, tensor, kind;
};

#define DYTI_MIRROR_CHUNK (8u << 20) /* bytes of the pinned buffer */

struct dyti_mirror {
    struct dyti_devices *devices;
    struct dyti_segment_mem segment;
    bool awake; /* its memory is used, and counted */
    bool pinned;
    void *zero;  /* pinned, an element of padding; NULL: there is none */
    void *chunk; /* pinned memory, where the segment cannot be */
    struct dyti_hands hands; /* likewise: from it to the segment and back */
    uint64_t bytes;
    struct dyt_row *row; /* [row_count]; owned */
    bool *has, *used;    /* [row_count] a mirror; pieces; owned */
    uint64_t row_count;
    struct dyti_device_place *place; /* [place_count], names owned */
    size_t place_count;
    struct dyti_mirror_part *part; /* [devices->count]; owned */
    struct dyti_mirror_hash *hash; /* [hash_count]; owned */
    /* Of a seal: [hash_count]; owned. */
    uint64_t *taken, *now, *sum;
    struct dyti_hash_box *use;
    uint64_t seal; /* what it draws by */
    size_t hash_count;
};

/* Boxes that move often are given to the device once: of padding when they are
 * bound, the others when the mirror wakes. */
enum dyt_status dyti_mirror_upload_pads(struct dyti_mirror *mirror);

/* Under the devices' lock: a kernel that meets memory which is gone takes the
 * process's device with it, so it is asked first. */
enum dyt_status dyti_mirror_look(const struct dyti_mirror *mirror);

#endif /* DYTI_LIB_MIRROR_INTERNAL_H */
