/* Which addresses show a file that can be truncated, and what to say when one
 * was. */
#include "lib/guard.h"

#include "lib/link_internal.h"

#include "base/array.h"
#include "layout/list.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NO_FILE UINT32_MAX

/* ---- files of ours ------------------------------------------------------- */

enum dyt_status dyti_memfd_open(const char *name, uint64_t bytes, int *out_fd)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
        enum dyt_status st =
            DYTI_FAIL(DYT_ERR_NOMEM, "%llu bytes for %s: %s",
                      (unsigned long long)bytes, name, strerror(errno));

        if (fd >= 0) {
            (void)close(fd);
        }
        return st;
    }
    *out_fd = fd;
    return DYT_OK;
}

/* ---- ranges -------------------------------------------------------------- */

static bool can_shrink(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS); /* -1: no memfd */

    return seals < 0 || (seals & F_SEAL_SHRINK) == 0;
}

/* The file of a descriptor; of rows behind each other it is the same one. */
static enum dyt_status find_file(struct dyti_guard *guard, int fd,
                                 const struct dyti_memory_view *memory,
                                 int32_t number, uint32_t *out_file)
{
    struct dyti_guard_file file = {
        .fd = -1, .memory = memory, .number = number};
    enum dyt_status st;

    if (memory != NULL && guard->last.memory == memory &&
        guard->last.number == number) {
        *out_file = guard->last.file;
        return DYT_OK;
    }
    *out_file = NO_FILE;
    if (can_shrink(fd)) {
        st = DYTI_GROW(guard->file, guard->file_cap, guard->file_count + 1);
        if (st != DYT_OK) {
            return st;
        }
        file.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (file.fd < 0) {
            return DYTI_FAIL(DYT_ERR_IO, "descriptor %d of a row: %s", number,
                             strerror(errno));
        }
        *out_file = (uint32_t)guard->file_count;
        guard->file[guard->file_count++] = file;
    }
    guard->last.memory = memory;
    guard->last.number = number;
    guard->last.file = *out_file;
    return DYT_OK;
}

/* The first range that ends behind an address. */
static size_t place_of(const struct dyti_guard *guard, uint64_t at)
{
    size_t lo = 0, hi = guard->count;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (guard->range[mid].hi <= at) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

/* One with those that it overlaps: the same memory by two kinds. */
static void insert(struct dyti_guard *guard, struct dyti_guard_range range)
{
    size_t from = place_of(guard, range.lo), to = from;

    for (; to < guard->count && guard->range[to].lo < range.hi; to++) {
        const struct dyti_guard_range *other = &guard->range[to];

        if (other->lo < range.lo) {
            range.lo = other->lo;
            range.offset = other->offset;
        }
        range.hi = other->hi > range.hi ? other->hi : range.hi;
    }
    memmove(&guard->range[from + 1], &guard->range[to],
            (guard->count - to) * sizeof(range));
    guard->range[from] = range;
    guard->count = guard->count - (to - from) + 1;
}

enum dyt_status dyti_guard_add(struct dyti_guard *guard, const void *at,
                               uint64_t bytes, int fd, uint64_t offset,
                               const struct dyti_memory_view *memory,
                               int32_t number)
{
    struct dyti_guard_range range = {.lo = (uint64_t)(uintptr_t)at,
                                     .hi = (uint64_t)(uintptr_t)at + bytes,
                                     .offset = offset};
    enum dyt_status st = find_file(guard, fd, memory, number, &range.file);

    if (st != DYT_OK || range.file == NO_FILE || bytes == 0) {
        return st;
    }
    st = DYTI_GROW(guard->range, guard->range_cap, guard->count + 1);
    if (st == DYT_OK) {
        insert(guard, range);
    }
    return st;
}

enum dyt_status dyti_guard_add_own(struct dyti_guard *guard,
                                   const struct dyti_memory_view *own)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < own->extent_count && st == DYT_OK; i++) {
        const struct dyti_extent *e = &own->extent[i];

        if (e->fd >= 0 && e->address != 0) {
            st = dyti_guard_add(guard, (const void *)(uintptr_t)e->address,
                                e->bytes, e->fd, e->fd_offset, own, e->fd);
        }
    }
    return st;
}

void dyti_guard_fini(struct dyti_guard *guard)
{
    for (size_t i = 0; i < guard->file_count; i++) {
        (void)close(guard->file[i].fd);
    }
    free(guard->file);
    free(guard->range);
    *guard = (struct dyti_guard){0};
}

const struct dyti_guard_range *dyti_guard_find(const struct dyti_guard *guard,
                                               const void *at)
{
    uint64_t address = (uint64_t)(uintptr_t)at;
    size_t i = place_of(guard, address);

    return i < guard->count && guard->range[i].lo <= address ? &guard->range[i]
                                                             : NULL;
}

/* ---- what is wrong ------------------------------------------------------- */

bool dyti_guard_is_whole(const struct dyti_guard *guard,
                         const struct dyti_guard_range *range, uint64_t hi)
{
    struct stat info;

    return fstat(guard->file[range->file].fd, &info) == 0 &&
           range->offset + (hi - range->lo) <= (uint64_t)info.st_size;
}

const char *dyti_guard_tensor(const struct dyti_guard *guard,
                              const struct dyti_memory_view *memory,
                              int32_t number, uint64_t byte)
{
    for (uint32_t i = 0;
         memory != NULL && guard->catalogue != NULL && i < memory->extent_count;
         i++) {
        const struct dyti_extent *e = &memory->extent[i];
        uint64_t at = e->offset + (byte - e->fd_offset);

        if (e->fd != number || byte < e->fd_offset ||
            byte - e->fd_offset >= e->bytes) {
            continue;
        }
        for (uint32_t k = 0; k < memory->view.shard_count; k++) {
            const struct dyti_shard *s = &memory->view.shard[k];
            int64_t lo, hi;

            if (s->kind == e->kind &&
                s->tensor < guard->catalogue->tensor_count &&
                dyti_shard_extent(s, &lo, &hi) && at >= (uint64_t)lo &&
                at < (uint64_t)hi) {
                return guard->catalogue->tensor[s->tensor].name;
            }
        }
    }
    return "?";
}

enum dyt_status dyti_guard_fail(const struct dyti_guard *guard,
                                const struct dyti_guard_range *range,
                                uint64_t at)
{
    const struct dyti_guard_file *file = &guard->file[range->file];
    uint64_t byte = range->offset + (at - range->lo);
    const char *tensor =
        dyti_guard_tensor(guard, file->memory, file->number, byte);
    struct stat info;

    if (fstat(file->fd, &info) != 0) {
        return DYTI_FAIL(DYT_ERR_IO, "descriptor %d of a row: %s", file->number,
                         strerror(errno));
    }
    return DYTI_FAIL(
        DYT_ERR_IO,
        "tensor %s: byte %llu of descriptor %d of process %u is gone, the file "
        "has %lld: %s",
        tensor, (unsigned long long)byte, file->number,
        file->memory == NULL ? 0 : file->memory->pid, (long long)info.st_size,
        byte < (uint64_t)info.st_size
            ? "it was unmapped, or was shorter for a while"
            : "it was truncated while its rows were published");
}
