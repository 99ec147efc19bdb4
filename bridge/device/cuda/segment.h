/* The handle of a device's segment: one file descriptor that is inherited
 * before it has a size, and through which everybody learns how to map it.
 *
 * It is a datagram socket that is connected to itself, so that nobody else can
 * send to it, and holds one message at most: the owner's note, with a file
 * descriptor for the memory of each part that is awake.  Reading is a peek, and
 * hands the descriptors out as well; a note is replaced by a newer one, which
 * is sent before the older one is taken out.  Memory lives as long as a process
 * has the socket, maps it, or both.
 *
 * Threads: any, the owner's changes by one at a time. */
#ifndef DYTI_DEVICE_CUDA_SEGMENT_H
#define DYTI_DEVICE_CUDA_SEGMENT_H

#include "ops/memory.h"

#include <cuda.h>
#include <sys/types.h>

#define DYTI_CUDA_PARTS                                                        \
    250u /* of a segment: that is how many descriptors a                       \
            message carries, and a few less */

struct dyti_cuda_part_note {
    uint64_t end;   /* bytes, from the segment's start */
    uint64_t woken; /* the generation in which it woke; 0: it sleeps */
};

struct dyti_cuda_note {
    char magic[8];
    uint64_t generation; /* from 1; grows with every change */
    uint64_t bytes;
    uint32_t pages; /* enum dyti_page_kind */
    uint32_t part_count;
    /* The process that sized it: number, and the space of such numbers. */
    int64_t owner, owner_space;
    CUuuid device;
    /* IPC: its handle, and its address in the owner's process. */
    uint64_t address;
    CUipcMemHandle ipc;
    struct dyti_cuda_part_note part[DYTI_CUDA_PARTS];
};

enum dyt_status dyti_cuda_segment_create(const char *name, int *out_handle);

/* The note.  DYT_PENDING: there is none yet. */
enum dyt_status dyti_cuda_segment_peek(int handle,
                                       struct dyti_cuda_note *out_note);
/* With the descriptors of its parts, -1 for those that sleep; the caller's to
 * close.  fd: [DYTI_CUDA_PARTS] */
enum dyt_status dyti_cuda_segment_read(int handle,
                                       struct dyti_cuda_note *out_note,
                                       int *fd);
void dyti_cuda_segment_close_fds(int *fd);

/* Put the note in the place of the one that is there.  Descriptors are
 * borrowed.  On failure the old one stays. */
enum dyt_status dyti_cuda_segment_write(int handle,
                                        const struct dyti_cuda_note *note,
                                        const int *fd);
/* Take the note out: it has no size any more. */
void dyti_cuda_segment_clear(int handle);

/* Owner of a new note: this process. */
void dyti_cuda_note_own(struct dyti_cuda_note *note);
bool dyti_cuda_note_is_own(const struct dyti_cuda_note *note);

#endif /* DYTI_DEVICE_CUDA_SEGMENT_H */
