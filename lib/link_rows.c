/* Where the bytes of rows lie: in this process's own memory, or in a file that
 * a descriptor shows. */
#include "lib/link_rows.h"

#include "base/checked.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct dyt_row dyti_link_row(const struct dyt_view *rows, uint64_t i)
{
    struct dyt_row row = {0};
    size_t bytes = rows->row_struct_size < sizeof(row) ? rows->row_struct_size
                                                       : sizeof(row);

    memcpy(&row, (const char *)rows->row + i * rows->row_struct_size, bytes);
    return row;
}

/* ---- rows ---------------------------------------------------------------- */

bool dyti_link_row_bytes(const struct dyt_row *row, uint64_t *out_bytes)
{
    uint64_t bytes = dyti_dtype_bytes((enum dyti_dtype)row->dtype);
    uint64_t dense = bytes, sum = bytes, step;
    bool strided = false, empty = false, over = false;

    for (uint32_t d = 0; d < row->ndim; d++) {
        strided |= row->stride[d] != 0;
        empty |= row->shape[d] == 0;
    }
    for (uint32_t d = row->ndim; d-- > 0 && !empty && !over;) {
        uint64_t size = (uint64_t)row->shape[d];
        uint64_t stride = dense;

        if (strided) {
            over |= dyti_mul_overflow((uint64_t)row->stride[d], bytes, &stride);
        }
        over |= dyti_mul_overflow(size - 1, stride, &step) ||
                dyti_add_overflow(sum, step, &sum) ||
                dyti_mul_overflow(dense, size, &dense);
    }
    *out_bytes = empty ? 0 : sum;
    return !over && sum <= INT64_MAX;
}

static enum dyt_status check_fd(const struct dyt_row *row,
                                struct dyti_row_place *place)
{
    struct stat info;

    if (row->fd < 0) {
        return DYT_OK;
    }
    if (fstat(row->fd, &info) != 0) {
        return DYTI_FAIL(DYT_ERR_INVALID, "row %s: descriptor %d: %s",
                         row->name, row->fd, strerror(errno));
    }
    if ((uint64_t)info.st_size < place->bytes ||
        row->fd_offset > (uint64_t)info.st_size - place->bytes) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "row %s: %llu bytes at %llu of descriptor %d, which "
                         "has %lld",
                         row->name, (unsigned long long)place->bytes,
                         (unsigned long long)row->fd_offset, row->fd,
                         (long long)info.st_size);
    }
    place->at = row->fd_offset;
    place->fd = row->fd;
    place->device = (uint64_t)info.st_dev;
    place->inode = (uint64_t)info.st_ino;
    return DYT_OK;
}

static enum dyt_status check_row(const struct dyt_row *row, bool there)
{
    if (row->dtype >= DYTI_DTYPE_COUNT || row->kind >= DYTI_KIND_COUNT ||
        row->ndim > DYT_MAX_DIMS) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "row %s: dtype %u, kind %u, %u dimensions", row->name,
                         row->dtype, row->kind, row->ndim);
    }
    for (uint32_t d = 0; d < row->ndim; d++) {
        if (row->shape[d] < 0 || row->stride[d] < 0) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "row %s: a size or stride below 0", row->name);
        }
    }
    if (there && row->device.type == DYT_DEVICE_HOST) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED, "row %s lies on the host",
                         row->name);
    }
    if (!there && row->device.type != DYT_DEVICE_HOST) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "row %s lies on a device: links copy memory of the "
                         "host, such rows go by their mirror (lib/mirror.h)",
                         row->name);
    }
    return DYT_OK;
}

/* Add the place of a row that holds pieces. */
static enum dyt_status add_place(struct dyti_row_places *p, uint32_t index,
                                 const struct dyt_row *row, bool there)
{
    struct dyti_row_place place = {.row = index,
                                   .kind = row->kind,
                                   .fd = -1,
                                   .read_only =
                                       (row->flags & DYT_ROW_READ_ONLY) != 0,
                                   .address = (uint64_t)(uintptr_t)row->data};
    uint64_t element;
    enum dyt_status st = check_row(row, there);

    if (st != DYT_OK) {
        return st;
    }
    if (!dyti_link_row_bytes(row, &place.bytes)) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "row %s is too large", row->name);
    }
    if (place.bytes == 0) {
        return DYT_OK;
    }
    if (row->data == NULL && row->fd < 0) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "row %s has neither an address nor a descriptor",
                         row->name);
    }
    place.at = place.address;
    st = there ? DYT_OK : check_fd(row, &place);
    if (st != DYT_OK) {
        return st;
    }
    element = dyti_dtype_bytes((enum dyti_dtype)row->dtype);
    if (place.at % element != 0 || place.address % element != 0) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "row %s begins at byte %llu (address %llx), no "
                         "multiple of its element of %llu bytes",
                         row->name, (unsigned long long)place.at,
                         (unsigned long long)place.address,
                         (unsigned long long)element);
    }
    p->of[index] = p->count;
    p->place[p->count++] = place;
    return DYT_OK;
}

/* The earlier row whose memory an alias has. */
static enum dyt_status find_alias(struct dyti_row_places *p,
                                  const struct dyt_view *rows, uint32_t index,
                                  const struct dyt_row *row)
{
    for (uint32_t i = 0; i < index; i++) {
        struct dyt_row other = dyti_link_row(rows, i);

        if (other.kind == row->kind &&
            (row->data != NULL ? other.data == row->data
                               : other.fd == row->fd && row->fd >= 0 &&
                                     other.fd_offset == row->fd_offset)) {
            p->row_as[index] = p->row_as[i];
            return DYT_OK;
        }
    }
    return DYTI_FAIL(DYT_ERR_INVALID,
                     "row %s is an alias, but no row before it has its memory",
                     row->name);
}

/* Which rows have pieces. */
static enum dyt_status note_used(const struct dyti_row_pieces *pieces,
                                 uint64_t count, bool *used)
{
    for (size_t i = 0; i < pieces->count; i++) {
        if (pieces->piece[i].row >= count) {
            return DYTI_FAIL(DYT_ERR_INVALID, "a piece of row %u of %llu",
                             pieces->piece[i].row, (unsigned long long)count);
        }
        used[pieces->piece[i].row] = true;
    }
    return DYT_OK;
}

static enum dyt_status place_rows(struct dyti_row_places *p,
                                  const struct dyt_view *rows, const bool *used,
                                  bool there)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < rows->row_count && st == DYT_OK; i++) {
        struct dyt_row row = dyti_link_row(rows, i);

        p->of[i] = UINT32_MAX;
        p->row_as[i] = i;
        if ((row.flags & DYT_ROW_ALIAS) != 0) {
            st = find_alias(p, rows, i, &row);
        } else if (used[i]) {
            st = add_place(p, i, &row, there);
        }
    }
    return st;
}

enum dyt_status dyti_row_places_init(struct dyti_row_places *places,
                                     const struct dyt_view *rows,
                                     const struct dyti_row_pieces *pieces,
                                     bool there)
{
    uint64_t count = rows->row_count;
    bool *used = NULL;
    enum dyt_status st = DYT_OK;

    *places = (struct dyti_row_places){0};
    if (count > UINT32_MAX - 1u) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "%llu rows",
                         (unsigned long long)count);
    }
    used = calloc(count + 1, sizeof(*used));
    places->place = calloc(count + 1, sizeof(*places->place));
    places->of = calloc(count + 1, sizeof(*places->of));
    places->row_as = calloc(count + 1, sizeof(*places->row_as));
    if (used == NULL || places->place == NULL || places->of == NULL ||
        places->row_as == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%llu rows", (unsigned long long)count);
    }
    st = st != DYT_OK ? st : note_used(pieces, count, used);
    st = st != DYT_OK ? st : place_rows(places, rows, used, there);
    free(used);
    if (st != DYT_OK) {
        dyti_row_places_fini(places);
    }
    return st;
}

void dyti_row_places_fini(struct dyti_row_places *places)
{
    free(places->place);
    free(places->of);
    free(places->row_as);
    *places = (struct dyti_row_places){0};
}
