/* Whether rows lie in memory that may be read and written, by what the kernel
 * says of the process: nothing is touched, so that a wrong pointer is an error
 * and not a crash. */
#include "plugin/resolve.h"

#include "base/array.h"
#include "plugin/faults.h"
#include "plugin/rows.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct mapping {
    uint64_t lo, hi; /* addresses */
    bool readable, writable;
    uint64_t inode, offset; /* of the file; inode 0: none */
};

struct mappings {
    struct mapping *item; /* [count], by address */
    size_t count, cap;
};

/* ---- /proc/self/maps ----------------------------------------------------- */

static enum dyt_status read_all(char **out_text)
{
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    char *text = NULL;
    size_t used = 0, cap = 0;
    enum dyt_status st = DYT_OK;

    if (fd < 0) {
        return DYTI_FAIL(DYT_ERR_IO,
                         "/proc/self/maps: %s; pointers cannot be checked "
                         "without /proc",
                         strerror(errno));
    }
    for (;;) {
        ssize_t got;

        st = DYTI_GROW(text, cap, used + 65536);
        if (st != DYT_OK) {
            break;
        }
        got = read(fd, text + used, cap - used - 1);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            st = DYTI_FAIL(DYT_ERR_IO, "/proc/self/maps: %s", strerror(errno));
            break;
        }
        if (got == 0) {
            text[used] = '\0';
            *out_text = text;
            text = NULL;
            break;
        }
        used += (size_t)got;
    }
    free(text);
    close(fd);
    return st;
}

/* "7f00-7f10 rw-s 00001000 00:01 1044 /memfd:x": false if it is not one. */
static bool parse_line(const char *line, struct mapping *out)
{
    char *end;
    struct mapping m = {0};

    m.lo = strtoull(line, &end, 16);
    if (*end != '-') {
        return false;
    }
    m.hi = strtoull(end + 1, &end, 16);
    if (*end != ' ' || strnlen(end, 6) < 6) {
        return false;
    }
    m.readable = end[1] == 'r';
    m.writable = end[2] == 'w';
    m.offset = strtoull(end + 5, &end, 16);
    end = *end == ' ' ? strchr(end + 1, ' ') : NULL; /* device */
    if (end == NULL) {
        return false;
    }
    m.inode = strtoull(end, NULL, 10);
    *out = m;
    return true;
}

static enum dyt_status read_mappings(struct mappings *out)
{
    char *text = NULL;
    enum dyt_status st = read_all(&text);

    for (char *line = text; st == DYT_OK && line != NULL && *line != '\0';) {
        char *next = strchr(line, '\n');

        st = DYTI_GROW(out->item, out->cap, out->count + 1);
        if (st == DYT_OK && parse_line(line, &out->item[out->count])) {
            out->count++;
        }
        line = next == NULL ? NULL : next + 1;
    }
    free(text);
    return st;
}

/* The mapping that holds an address, NULL: none does. */
static const struct mapping *find(const struct mappings *m, uint64_t address)
{
    size_t lo = 0, hi = m->count;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (m->item[mid].hi <= address) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < m->count && m->item[lo].lo <= address ? &m->item[lo] : NULL;
}

/* ---- one row ------------------------------------------------------------- */

static void check_address(const struct dyt_row *row, bool writes,
                          const struct mappings *m, struct dyti_found *f)
{
    uint64_t lo = (uint64_t)(uintptr_t)row->data, bytes = dyti_row_extent(row);
    uint64_t at = lo;

    if (bytes > UINT64_MAX - lo) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s at %p: %" PRIu64
                       " bytes reach over the end of the address space",
                       row->name, row->data, bytes);
        return;
    }
    while (at < lo + bytes) {
        const struct mapping *in = find(m, at);

        if (in == NULL || !in->readable || (writes && !in->writable)) {
            const char *what = in == NULL      ? "not mapped"
                               : !in->readable ? "not readable"
                                               : "read-only";

            dyti_found_add(f, DYT_ERR_INVALID,
                           "row %s: %" PRIu64 " bytes at %p, of which byte "
                           "%" PRIu64 " is %s%s",
                           row->name, bytes, row->data, at - lo, what,
                           in != NULL && in->readable
                               ? "; flag it DYT_ROW_READ_ONLY if it is only a "
                                 "source"
                               : "; hand in memory that is alive");
            return;
        }
        at = in->hi;
    }
}

/* What the kernel says of a descriptor: many rows have the same one. */
struct looked {
    int fd; /* -1: none was looked at */
    int flags, seals, error;
    struct stat info;
};

static void look_at(int fd, struct looked *out)
{
    if (out->fd == fd) {
        return;
    }
    *out = (struct looked){.fd = fd, .flags = fcntl(fd, F_GETFL)};
    out->seals = fcntl(fd, F_GET_SEALS);
    if (out->flags < 0 || fstat(fd, &out->info) != 0) {
        out->flags = -1;
        out->error = errno;
    }
}

/* A descriptor that the library is to map, or that others are to. */
static void check_descriptor(const struct dyt_row *row, bool writes,
                             const struct mappings *m, struct looked *looked,
                             struct dyti_found *f)
{
    const struct stat *info = &looked->info;
    uint64_t bytes = dyti_row_extent(row), end;
    const struct mapping *in =
        row->data == NULL ? NULL : find(m, (uint64_t)(uintptr_t)row->data);

    look_at(row->fd, looked);
    if (looked->flags < 0) {
        dyti_found_add(f, DYT_ERR_INVALID, "row %s: fd %d: %s", row->name,
                       row->fd, strerror(looked->error));
    } else if (!S_ISREG(info->st_mode)) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s: fd %d is neither a memfd nor a file; set fd to "
                       "-1 where there is none",
                       row->name, row->fd);
    } else if (__builtin_add_overflow(row->fd_offset, bytes, &end) ||
               end > (uint64_t)info->st_size) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s: fd %d has %lld bytes, the row is %" PRIu64
                       " at %" PRIu64,
                       row->name, row->fd, (long long)info->st_size, bytes,
                       row->fd_offset);
    } else if (writes &&
               ((looked->flags & O_ACCMODE) != O_RDWR ||
                (looked->seals > 0 &&
                 (looked->seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))))) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s: fd %d cannot be mapped for writing: open it "
                       "O_RDWR, without a seal on writing",
                       row->name, row->fd);
    } else if (in != NULL &&
               (in->inode != (uint64_t)info->st_ino ||
                in->offset + ((uint64_t)(uintptr_t)row->data - in->lo) !=
                    row->fd_offset)) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s: what is mapped at %p is not byte %" PRIu64
                       " of fd %d",
                       row->name, row->data, row->fd_offset, row->fd);
    }
}

/* ---- the whole ----------------------------------------------------------- */

enum dyt_status dyti_view_check_memory(const struct dyt_view *view, bool writes)
{
    return dyti_view_check_alive(view, NULL, writes);
}

enum dyt_status dyti_view_check_alive(const struct dyt_view *view,
                                      const bool *used, bool writes)
{
    struct dyti_found found = {.count = 0};
    struct mappings mappings = {0};
    struct looked looked = {.fd = -1};
    enum dyt_status st = read_mappings(&mappings);

    for (uint64_t i = 0; st == DYT_OK && i < view->row_count; i++) {
        const struct dyt_row *row = dyti_row_at(view, i);
        bool written = writes && (row->flags & DYT_ROW_READ_ONLY) == 0;

        if ((row->flags & DYT_ROW_STAGED) != 0 || (used != NULL && !used[i]) ||
            row->device.type != DYT_DEVICE_HOST) {
            continue; /* the library lends it; nobody touches it; a device is
                         asked (lib/device.h) */
        }
        if (row->data != NULL) {
            check_address(row, written, &mappings, &found);
        }
        if (row->fd >= 0) {
            check_descriptor(row, written, &mappings, &looked, &found);
        }
    }
    free(mappings.item);
    return st != DYT_OK ? st : dyti_found_finish(&found, NULL);
}
