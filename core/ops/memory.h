/* Shared memory segments of ranks.  Implemented by bridge/device/<name>.  A
 * segment is one memfd; it dies with the last process that has it open, so
 * nothing is left behind however a run ends.
 *
 * Rules: threads any, one segment by one thread at a time; everything may
 * block; pages are zero when first touched. */
#ifndef DYTI_OPS_MEMORY_H
#define DYTI_OPS_MEMORY_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum dyti_page_kind {
    DYTI_PAGES_HUGETLB, /* 2 MiB, reserved by the system */
    DYTI_PAGES_THP,     /* 2 MiB where the kernel finds them */
    DYTI_PAGES_4K,
    DYTI_PAGES_COUNT
};

struct dyti_segment_mem {
    void *base;     /* NULL while not mapped */
    uint64_t bytes; /* multiple of 2 MiB */
    int handle;     /* memfd, inheritable */
    enum dyti_page_kind pages;
};

struct dyti_memory_ops {
    uint32_t struct_size;
    const char *name;

    /* The best page kind for a segment of `bytes`, found by trying. */
    enum dyti_page_kind (*probe)(uint64_t bytes);
    /* Make an empty segment: a name for people, no size yet. */
    enum dyt_status (*create)(const char *name, enum dyti_page_kind pages,
                              int *out_handle);
    /* Give it its size (once).  Refused cleanly when memory is short. */
    enum dyt_status (*resize)(int handle, enum dyti_page_kind pages,
                              uint64_t bytes);
    /* Map one's own or a peer's. */
    enum dyt_status (*map)(int handle, enum dyti_page_kind pages,
                           uint64_t bytes, struct dyti_segment_mem *out_mem);
    void (*unmap)(struct dyti_segment_mem *mem); /* keeps the handle open */
    void (*close)(int handle);
    /* Bytes of [offset, offset + bytes) that have memory behind them. */
    enum dyt_status (*touched)(const struct dyti_segment_mem *mem,
                               uint64_t offset, uint64_t bytes,
                               uint64_t *out_bytes);
    /* Give the pages of a range back to the system; they read as zero. */
    enum dyt_status (*drop)(struct dyti_segment_mem *mem, uint64_t offset,
                            uint64_t bytes);
    /* Bytes of this page kind that the system can still give, as far as it
     * tells (UINT64_MAX: it does not).  Several segments that are sized one by
     * one share it, so whoever knows all of them asks first. */
    uint64_t (*available)(enum dyti_page_kind pages);
};

const char *dyti_page_kind_name(enum dyti_page_kind kind);

#endif /* DYTI_OPS_MEMORY_H */
