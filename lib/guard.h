/* Memory that others can take away.  Whoever has a file open may truncate it,
 * and who touches a mapping of what is gone gets SIGBUS.  So a link touches no
 * such memory itself: it has the kernel copy it, in and out of small memory of
 * ours, and the kernel says EFAULT.
 *
 *   range  addresses here that show a file which can be truncated
 *   guard  the ranges of one user: a link, a snapshot, a seal
 *   lane   the small memory of one thread, a memfd: what is written to it from
 *          a range, or read from it into one, passes through the kernel
 *
 * Not a range: private memory, which only its own process can take away; and a
 * memfd that is sealed against it (F_SEAL_SHRINK), as all of ours are.
 *
 * Bytes that pass a lane are copied twice, once by the kernel: at a third to
 * half of the speed.
 *
 * Threads: a guard by one thread until its kernels are used, then it stays as
 * it is. */
#ifndef DYTI_LIB_GUARD_H
#define DYTI_LIB_GUARD_H

#include "ops/kernels.h"

#include <stddef.h>

struct dyti_memory_view; /* lib/link.h */
struct dyti_model;

struct dyti_guard_range {
    uint64_t lo, hi; /* addresses */
    uint64_t offset; /* of lo in the file */
    uint32_t file;
};

struct dyti_guard_file {
    int fd; /* ours */
    /* How its owner calls it, for what is said. */
    const struct dyti_memory_view *memory; /* borrowed; NULL: none */
    int32_t number;
};

/* Zeroed: it guards nothing. */
struct dyti_guard {
    const struct dyti_model *catalogue; /* for names; borrowed; NULL: none */
    struct dyti_guard_range *range;     /* [count], by address; owned */
    size_t count, range_cap;
    struct dyti_guard_file *file; /* owned */
    size_t file_count, file_cap;
    struct {
        const struct dyti_memory_view *memory;
        int32_t number;
        uint32_t file; /* UINT32_MAX: it cannot be truncated */
    } last;            /* that was added */
};

/**
 * Bytes [at, at + bytes) show byte `offset` on of `fd`, which is `number` to
 * the owner of `memory` (NULL: nobody's rows).  Nothing where it cannot be
 * truncated.
 * @param fd  borrowed for the call
 */
enum dyt_status dyti_guard_add(struct dyti_guard *guard, const void *at,
                               uint64_t bytes, int fd, uint64_t offset,
                               const struct dyti_memory_view *memory,
                               int32_t number);
/* All extents of this process's own memory that are known by a descriptor too.
 * DYT_ERR_IO: one that was closed. */
enum dyt_status dyti_guard_add_own(struct dyti_guard *guard,
                                   const struct dyti_memory_view *own);
void dyti_guard_fini(struct dyti_guard *guard);

/* The range that holds an address, NULL: none does. */
const struct dyti_guard_range *dyti_guard_find(const struct dyti_guard *guard,
                                               const void *at);
/* The tensor that has a byte of a descriptor of `memory`; "?": nobody knows. */
const char *dyti_guard_tensor(const struct dyti_guard *guard,
                              const struct dyti_memory_view *memory,
                              int32_t number, uint64_t byte);
/* Is the file still there up to this address of the range? */
bool dyti_guard_is_whole(const struct dyti_guard *guard,
                         const struct dyti_guard_range *range, uint64_t hi);
/* Always an error: what is wrong with byte `at` of a range. */
enum dyt_status dyti_guard_fail(const struct dyti_guard *guard,
                                const struct dyti_guard_range *range,
                                uint64_t at);

/* ---- guard_copy.c --------------------------------------------------------
 */

/**
 * The kernels that move and hash bytes (device/host's), for memory that may be
 * in a range: copy, hash, carry, fill.
 * @param inner  opened with `pool`; owned by the new ones on DYT_OK
 * @param guard  borrowed until they are closed; ranges may still be added
 */
enum dyt_status dyti_guard_kernels(const struct dyti_guard *guard,
                                   struct dyti_pool *pool,
                                   const struct dyti_kernels *inner,
                                   struct dyti_kernels *out_kernels);

/* A file of ours of `bytes`, zeroed, that nobody can shorten; closed on exec.
 */
enum dyt_status dyti_memfd_open(const char *name, uint64_t bytes, int *out_fd);

#endif /* DYTI_LIB_GUARD_H */
