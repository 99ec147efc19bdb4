/* Memory of other processes of this user, by their descriptors: /proc/PID/fd.
 * A pid may be used again, so its start time is looked at, and what the
 * descriptor shows. */
#include "lib/link_internal.h"

#include "base/checked.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define HUGE_BYTES (2u << 20)

static enum dyt_status open_fd(const struct dyti_process_fd *of, bool writes,
                               int *out_fd)
{
    char path[64];
    uint64_t start = 0;
    int fd;
    enum dyt_status st;

    (void)snprintf(path, sizeof(path), "/proc/%" PRIu32 "/fd/%" PRId32, of->pid,
                   of->fd);
    fd = open(path, (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (fd < 0) {
        int why = errno;

        st = dyti_process_start(of->pid, &start);
        return st != DYT_OK ? st
                            : DYTI_FAIL(DYT_ERR_IO,
                                        "%s: %s (another user or container?)",
                                        path, strerror(why));
    }
    st = dyti_process_start(of->pid, &start);
    if (st == DYT_OK && start != of->pid_start) {
        st = DYTI_FAIL(DYT_ERR_PEER,
                       "process %" PRIu32 " is another one by now", of->pid);
    }
    if (st != DYT_OK) {
        (void)close(fd);
        return st;
    }
    *out_fd = fd;
    return DYT_OK;
}

/* The right file, long enough; its page size. */
static enum dyt_status check_fd(const struct dyti_process_fd *of, int fd,
                                uint64_t hi, uint64_t *out_page)
{
    struct stat info;
    struct statfs system;

    if (fstat(fd, &info) != 0 || fstatfs(fd, &system) != 0) {
        return DYTI_FAIL(DYT_ERR_IO,
                         "descriptor %" PRId32 " of process %" PRIu32 ": %s",
                         of->fd, of->pid, strerror(errno));
    }
    if ((of->device != 0 || of->inode != 0) &&
        ((uint64_t)info.st_dev != of->device ||
         (uint64_t)info.st_ino != of->inode)) {
        return DYTI_FAIL(DYT_ERR_IO,
                         "descriptor %" PRId32 " of process %" PRIu32
                         " shows another file than it told: was it closed?",
                         of->fd, of->pid);
    }
    if (info.st_size < 0 || (uint64_t)info.st_size < hi) {
        return DYTI_FAIL(DYT_ERR_IO,
                         "descriptor %" PRId32 " of process %" PRIu32
                         " has %lld, %llu bytes are needed",
                         of->fd, of->pid, (long long)info.st_size,
                         (unsigned long long)hi);
    }
    *out_page = system.f_type == (__typeof__(system.f_type))HUGETLBFS_MAGIC
                    ? (uint64_t)info.st_blksize
                    : (uint64_t)sysconf(_SC_PAGESIZE);
    return DYT_OK;
}

/* Addresses for `bytes` that are congruent to `offset` in 2 MiB, or in a page
 * if that is larger: so pages of any size can be mapped as such. */
static unsigned char *reserve(uint64_t bytes, uint64_t offset, uint64_t step)
{
    uint64_t head;
    unsigned char *raw =
        mmap(NULL, bytes + step, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (raw == MAP_FAILED) {
        return NULL;
    }
    head = (offset - (uintptr_t)raw) & (step - 1);
    if (head > 0) {
        (void)munmap(raw, head);
    }
    if (step - head > 0) {
        (void)munmap(raw + head + bytes, step - head);
    }
    return raw + head;
}

static enum dyt_status map_fd(int fd, uint64_t lo, uint64_t hi, uint64_t page,
                              bool writes, void **out_base, uint64_t *out_bytes,
                              unsigned char **out_at)
{
    uint64_t from = lo & ~(page - 1), bytes = dyti_align_up(hi, page) - from;
    unsigned char *room =
        reserve(bytes, from, page > HUGE_BYTES ? page : HUGE_BYTES);

    if (room == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "addresses for %llu MiB: %s",
                         (unsigned long long)(bytes >> 20), strerror(errno));
    }
    if (mmap(room, bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ,
             MAP_SHARED | MAP_FIXED, fd, (off_t)from) == MAP_FAILED) {
        enum dyt_status st =
            DYTI_FAIL(DYT_ERR_NOMEM, "mapping %llu MiB: %s",
                      (unsigned long long)(bytes >> 20), strerror(errno));

        (void)munmap(room, bytes);
        return st;
    }
    (void)madvise(room, bytes, MADV_HUGEPAGE); /* where the file has them */
    *out_base = room;
    *out_bytes = bytes;
    *out_at = room + (lo - from);
    return DYT_OK;
}

enum dyt_status dyti_process_map(const struct dyti_process_fd *of, uint64_t lo,
                                 uint64_t hi, bool writes,
                                 struct dyti_guard *guard,
                                 const struct dyti_memory_view *memory,
                                 void **out_base, uint64_t *out_bytes,
                                 unsigned char **out_at)
{
    uint64_t page = 0;
    void *base = NULL;
    uint64_t bytes = 0;
    unsigned char *at = NULL;
    int fd = -1;
    enum dyt_status st = open_fd(of, writes, &fd);

    st = st != DYT_OK ? st : check_fd(of, fd, hi, &page);
    st = st != DYT_OK ? st
                      : map_fd(fd, lo, hi, page, writes, &base, &bytes, &at);
    st = st != DYT_OK
             ? st
             : dyti_guard_add(guard, at, hi - lo, fd, lo, memory, of->fd);
    if (fd >= 0) {
        (void)close(fd);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("mapping descriptor %" PRId32 " of process %" PRIu32, of->fd,
                  of->pid);
        if (base != NULL) {
            (void)munmap(base, bytes);
        }
        return st;
    }
    *out_base = base;
    *out_bytes = bytes;
    *out_at = at;
    return DYT_OK;
}
