/* Boxes between a file and memory.  A box is walked row by row (its innermost
 * dimension) in file order.
 *
 * Reading: a window of the mapping slides over the rows.  It is populated by
 * one call and let go when the rows have left it, so that resident memory does
 * not grow with the file.  Writing: rows that touch in the file are gathered
 * into one buffer and leave by one pwrite. */
#include "format/convert.h"
#include "format/file.h"
#include "format/safetensors_set.h"

#include "base/banned.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WINDOW_BYTES (2u << 20)
#define SPARSE_BYTES (64u << 10) /* larger gaps are not read through */
#define GATHER_BYTES (256u << 10)

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

/* ---- the walk over rows ------------------------------------------------- */

struct walk {
    uint32_t ndim;
    int64_t extent[DYT_MAX_DIMS];      /* of the box */
    int64_t at[DYT_MAX_DIMS];          /* odometer of the outer dimensions */
    int64_t file_stride[DYT_MAX_DIMS]; /* bytes */
    int64_t memory_stride[DYT_MAX_DIMS];
    uint64_t file;  /* bytes from the tensor's start to the current row */
    int64_t memory; /* bytes from the box's first element */
    int64_t count;  /* elements of a row */
    uint64_t row_bytes, gap_bytes; /* in the file: of a row, between rows */
};

enum dyt_status dyti_safetensors_check_box(const char *name, uint32_t ndim,
                                           const int64_t *shape,
                                           const struct dyt_box *box)
{
    bool inside = box->ndim == ndim;

    for (uint32_t i = 0; inside && i < ndim; i++) {
        inside = box->lo[i] >= 0 && box->lo[i] <= box->hi[i] &&
                 box->hi[i] <= shape[i];
    }
    if (!inside) {
        return DYTI_FAIL(DYT_ERR_INVALID, "%s: the box lies outside", name);
    }
    return DYT_OK;
}

/* False if the box is empty. */
static bool walk_start(struct walk *w, const int64_t *shape,
                       const struct dyt_box *box, uint32_t item_bytes,
                       const int64_t *memory_stride)
{
    int64_t stride = item_bytes;
    uint32_t last = box->ndim - 1;

    memset(w, 0, sizeof(*w));
    w->ndim = box->ndim;
    for (uint32_t i = box->ndim; i-- > 0;) {
        w->extent[i] = box->hi[i] - box->lo[i];
        w->file_stride[i] = stride;
        w->memory_stride[i] = memory_stride[i];
        w->file += (uint64_t)(box->lo[i] * stride);
        stride *= shape[i];
        if (w->extent[i] == 0) {
            return false;
        }
    }
    w->count = w->extent[last];
    w->row_bytes = (uint64_t)w->count * item_bytes;
    w->gap_bytes =
        last == 0 ? 0 : (uint64_t)w->file_stride[last - 1] - w->row_bytes;
    return true;
}

/* To the next row; false behind the last. */
static bool walk_next(struct walk *w)
{
    for (uint32_t i = w->ndim - 1; i-- > 0;) {
        w->file += (uint64_t)w->file_stride[i];
        w->memory += w->memory_stride[i];
        if (++w->at[i] < w->extent[i]) {
            return true;
        }
        w->file -= (uint64_t)(w->file_stride[i] * w->extent[i]);
        w->memory -= w->memory_stride[i] * w->extent[i];
        w->at[i] = 0;
    }
    return false;
}

/* ---- reading ------------------------------------------------------------ */

struct window {
    uintptr_t lo, hi; /* populated; 0, 0 at first */
    uintptr_t page;
    bool mapped;
};

static void window_drop(struct window *win)
{
    if (win->mapped && win->hi > win->lo) {
        /* Advice only: what stays resident is a cost, not an error. */
        (void)madvise((void *)win->lo, win->hi - win->lo, MADV_DONTNEED);
    }
    win->lo = win->hi = 0;
}

/* Touching a page that is no longer in the file would kill the process. */
static enum dyt_status check_length(
    const struct dyti_safetensors_source *source)
{
    struct stat info;

    if (fstat(source->fd, &info) != 0) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", source->path, strerror(errno));
    }
    if ((uint64_t)info.st_size < source->map_bytes) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: became shorter while it was read",
                         source->path);
    }
    return DYT_OK;
}

/* Have [from, from + need) readable; up to `ahead` bytes more come along. */
static enum dyt_status window_move(struct window *win,
                                   const struct dyti_safetensors_source *source,
                                   uintptr_t from, uint64_t need,
                                   uint64_t ahead)
{
    uintptr_t lo = from & ~(win->page - 1), hi;
    enum dyt_status st;

    if (!win->mapped || (from >= win->lo && from + need <= win->hi)) {
        return DYT_OK;
    }
    window_drop(win);
    st = check_length(source);
    if (st != DYT_OK) {
        return st;
    }
    hi = (from + need + ahead + win->page - 1) & ~(win->page - 1);
    /* One call in place of a fault per page; kernels without it fault. */
    (void)madvise((void *)lo, hi - lo, MADV_POPULATE_READ);
    win->lo = lo;
    win->hi = hi;
    return DYT_OK;
}

static enum dyt_status read_rows(const struct dyti_safetensors *set,
                                 const struct dyti_safetensor *tensor,
                                 struct walk *w, enum dyti_dtype dtype,
                                 char *dst)
{
    const struct dyti_safetensors_source *source = &set->source[tensor->file];
    struct window win = {.page = (uintptr_t)sysconf(_SC_PAGESIZE),
                         .mapped = source->mapped};
    uint32_t last = w->ndim - 1;
    enum dyt_status st = DYT_OK;

    do {
        uint64_t left = tensor->bytes - w->file - w->row_bytes;
        uint64_t ahead = w->gap_bytes > SPARSE_BYTES ? 0 : WINDOW_BYTES;

        st = window_move(&win, source, (uintptr_t)tensor->data + w->file,
                         w->row_bytes, ahead < left ? ahead : left);
        if (st != DYT_OK) {
            break;
        }
        dyti_convert_row(dtype, dst + w->memory, w->memory_stride[last],
                         tensor->dtype, tensor->data + w->file,
                         w->file_stride[last], w->count);
    } while (walk_next(w));
    window_drop(&win);
    return st;
}

/* A long row (a vector, a box of whole rows merged) is cut so that windows
 * stay small. */
static enum dyt_status read_cut(const struct dyti_safetensors *set,
                                const struct dyti_safetensor *tensor,
                                struct walk *w, enum dyti_dtype dtype,
                                char *dst)
{
    int64_t item = w->file_stride[w->ndim - 1];
    int64_t most = (int64_t)WINDOW_BYTES / item, total = w->count;
    enum dyt_status st = DYT_OK;

    if (w->ndim > 1 || total <= most) {
        return read_rows(set, tensor, w, dtype, dst);
    }
    for (int64_t done = 0; done < total && st == DYT_OK; done += most) {
        w->count = total - done < most ? total - done : most;
        w->row_bytes = (uint64_t)(w->count * item);
        st = read_rows(set, tensor, w, dtype, dst);
        w->file += w->row_bytes;
        dst += most * w->memory_stride[0];
    }
    return st;
}

enum dyt_status dyti_safetensors_read_box(const struct dyti_safetensors *set,
                                          const struct dyti_safetensor *tensor,
                                          const struct dyt_box *box,
                                          enum dyti_dtype dtype, void *dst,
                                          const int64_t *stride)
{
    static const int64_t one = 1;
    uint32_t ndim = tensor->ndim == 0 ? 1 : tensor->ndim;
    const int64_t *shape = tensor->ndim == 0 ? &one : tensor->shape;
    struct walk w;
    enum dyt_status st;

    st = dyti_safetensors_check_box(tensor->name, ndim, shape, box);
    if (st != DYT_OK) {
        return st;
    }
    if (tensor->dtype >= DYTI_DTYPE_COUNT ||
        !dyti_convertible(tensor->dtype, dtype)) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED, "%s: %s is %s, cannot become %s",
                         set->source[tensor->file].path, tensor->name,
                         tensor->type, dyti_dtype_name(dtype));
    }
    if (!walk_start(&w, shape, box, dyti_dtype_bytes(tensor->dtype), stride)) {
        return DYT_OK;
    }
    return read_cut(set, tensor, &w, dtype, dst);
}

/* ---- writing ------------------------------------------------------------ */

struct gather {
    int fd;
    const char *path;
    char *buffer;  /* [GATHER_BYTES] */
    uint64_t at;   /* file offset of buffer[0] */
    size_t filled; /* bytes */
};

static enum dyt_status gather_flush(struct gather *g)
{
    enum dyt_status st = DYT_OK;

    if (g->filled > 0) {
        st = dyti_pwrite_all(g->fd, g->buffer, g->filled, g->at, g->path);
    }
    g->filled = 0;
    return st;
}

/* One row, in pieces of what fits. */
static enum dyt_status gather_row(struct gather *g, uint64_t offset,
                                  enum dyti_dtype to, enum dyti_dtype from,
                                  const char *src, int64_t stride,
                                  int64_t count)
{
    int64_t item = dyti_dtype_bytes(to);
    enum dyt_status st = DYT_OK;

    if (g->filled > 0 && g->at + g->filled != offset) {
        st = gather_flush(g);
    }
    while (count > 0 && st == DYT_OK) {
        int64_t room = (int64_t)(GATHER_BYTES - g->filled) / item;
        int64_t take = count < room ? count : room;

        if (take == 0) {
            st = gather_flush(g);
            continue;
        }
        if (g->filled == 0) {
            g->at = offset;
        }
        dyti_convert_row(to, g->buffer + g->filled, item, from, src, stride,
                         take);
        g->filled += (size_t)(take * item);
        offset += (uint64_t)(take * item);
        src += take * stride;
        count -= take;
    }
    return st;
}

enum dyt_status dyti_safetensors_write_box(
    int fd, const char *path, const struct dyti_safetensors_plan *plan,
    size_t index, const struct dyt_box *box, enum dyti_dtype dtype,
    const void *src, const int64_t *stride)
{
    static const int64_t one = 1;
    const struct dyti_safetensors_entry *entry = &plan->entry[index];
    uint32_t ndim = entry->ndim == 0 ? 1 : entry->ndim;
    const int64_t *shape = entry->ndim == 0 ? &one : entry->shape;
    struct gather g = {.fd = fd, .path = path};
    struct walk w;
    enum dyt_status st;

    st = dyti_safetensors_check_box(path, ndim, shape, box);
    if (st != DYT_OK) {
        return st;
    }
    if (!dyti_convertible(dtype, entry->dtype)) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED, "%s: %s cannot become %s", path,
                         dyti_dtype_name(dtype), dyti_dtype_name(entry->dtype));
    }
    if (!walk_start(&w, shape, box, dyti_dtype_bytes(entry->dtype), stride)) {
        return DYT_OK;
    }
    g.buffer = malloc(GATHER_BYTES);
    if (g.buffer == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s: %u bytes", path, GATHER_BYTES);
    }
    do {
        st = gather_row(&g, plan->offset[index] + w.file, entry->dtype, dtype,
                        (const char *)src + w.memory,
                        w.memory_stride[w.ndim - 1], w.count);
    } while (st == DYT_OK && walk_next(&w));
    if (st == DYT_OK) {
        st = gather_flush(&g);
    }
    free(g.buffer);
    return st;
}
