/* What a member's memory looks like: its rows as extents behind each other, and
 * the boxes in them as shards of regions. */
#include "lib/link_internal.h"

#include "base/array.h"
#include "base/checked.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ALIGN 64u /* the least gap between two extents of a region */

/* A row's bytes.  Of private memory `at` is the address; of shared, the place
 * in the file. */
struct place {
    uint64_t at, bytes, address;
    uint64_t device, inode;
    uint64_t offset; /* in the region, when extents have been made */
    uint32_t row, kind;
    int32_t fd;
    bool read_only;
};

struct builder {
    const struct dyti_model *catalogue;
    const struct dyt_view *rows;
    const struct dyti_row_pieces *pieces;
    struct dyti_memory_view out;
    struct place *place; /* [place_count], by kind, descriptor, at */
    uint32_t place_count;
    uint32_t *place_of; /* [row_count] place of a row, UINT32_MAX: none */
    bool there;         /* rows of devices */
};

void dyti_memory_view_fini(struct dyti_memory_view *memory)
{
    free(memory->extent);
    free(memory->shard_row);
    free(memory->row_as);
    dyti_view_fini(&memory->view);
    *memory = (struct dyti_memory_view){0};
}

/* Of whatever release the caller is. */
static struct dyt_row row_at(const struct dyt_view *rows, uint64_t i)
{
    struct dyt_row row = {0};
    size_t bytes = rows->row_struct_size < sizeof(row) ? rows->row_struct_size
                                                       : sizeof(row);

    memcpy(&row, (const char *)rows->row + i * rows->row_struct_size, bytes);
    return row;
}

/* ---- rows ---------------------------------------------------------------- */

/* From the first element to behind the last; false: too many. */
static bool extent_of(const struct dyt_row *row, uint64_t *out_bytes)
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

static enum dyt_status check_fd(const struct dyt_row *row, struct place *place)
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

static enum dyt_status check_row(const struct builder *b,
                                 const struct dyt_row *row)
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
    if (b->there && row->device.type == DYT_DEVICE_HOST) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED, "row %s lies on the host",
                         row->name);
    }
    if (!b->there && row->device.type != DYT_DEVICE_HOST) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "row %s lies on a device: links copy memory of the "
                         "host, such rows go by their mirror (lib/mirror.h)",
                         row->name);
    }
    return DYT_OK;
}

/* Add the place of a row that holds pieces. */
static enum dyt_status add_place(struct builder *b, uint32_t index,
                                 const struct dyt_row *row)
{
    struct place place = {.row = index,
                          .kind = row->kind,
                          .fd = -1,
                          .read_only = (row->flags & DYT_ROW_READ_ONLY) != 0,
                          .address = (uint64_t)(uintptr_t)row->data};
    uint64_t element;
    enum dyt_status st = check_row(b, row);

    if (st != DYT_OK) {
        return st;
    }
    if (!extent_of(row, &place.bytes)) {
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
    st = b->there ? DYT_OK : check_fd(row, &place);
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
    b->place_of[index] = b->place_count;
    b->place[b->place_count++] = place;
    return DYT_OK;
}

/* The earlier row whose memory an alias has. */
static enum dyt_status find_alias(struct builder *b, uint32_t index,
                                  const struct dyt_row *row)
{
    for (uint32_t i = 0; i < index; i++) {
        struct dyt_row other = row_at(b->rows, i);

        if (other.kind == row->kind &&
            (row->data != NULL ? other.data == row->data
                               : other.fd == row->fd && row->fd >= 0 &&
                                     other.fd_offset == row->fd_offset)) {
            b->out.row_as[index] = b->out.row_as[i];
            return DYT_OK;
        }
    }
    return DYTI_FAIL(DYT_ERR_INVALID,
                     "row %s is an alias, but no row before it has its memory",
                     row->name);
}

static enum dyt_status read_rows(struct builder *b)
{
    uint64_t count = b->rows->row_count;
    bool *used = NULL;
    enum dyt_status st = DYT_OK;

    if (count > UINT32_MAX - 1u) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "%llu rows",
                         (unsigned long long)count);
    }
    used = calloc(count + 1, sizeof(*used));
    b->place = calloc(count + 1, sizeof(*b->place));
    b->place_of = calloc(count + 1, sizeof(*b->place_of));
    b->out.row_as = calloc(count + 1, sizeof(*b->out.row_as));
    b->out.row_count = (uint32_t)count;
    if (used == NULL || b->place == NULL || b->place_of == NULL ||
        b->out.row_as == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%llu rows", (unsigned long long)count);
        goto out;
    }
    for (size_t i = 0; i < b->pieces->count; i++) {
        if (b->pieces->piece[i].row >= count) {
            st = DYTI_FAIL(DYT_ERR_INVALID, "a piece of row %u of %llu",
                           b->pieces->piece[i].row, (unsigned long long)count);
            goto out;
        }
        used[b->pieces->piece[i].row] = true;
    }
    for (uint32_t i = 0; i < count && st == DYT_OK; i++) {
        struct dyt_row row = row_at(b->rows, i);

        b->place_of[i] = UINT32_MAX;
        b->out.row_as[i] = i;
        if ((row.flags & DYT_ROW_ALIAS) != 0) {
            st = find_alias(b, i, &row);
        } else if (used[i]) {
            st = add_place(b, i, &row);
        }
    }
out:
    free(used);
    return st;
}

/* ---- extents --------------------------------------------------------------
 */

static int by_place(const void *left, const void *right)
{
    const struct place *a = left, *b = right;

    if (a->kind != b->kind) {
        return a->kind < b->kind ? -1 : 1;
    }
    if (a->fd != b->fd) {
        return a->fd < b->fd ? -1 : 1;
    }
    if (a->at != b->at) {
        return a->at < b->at ? -1 : 1;
    }
    return (a->row > b->row) - (a->row < b->row);
}

/* Touches or overlaps the extent, at the same distance in both numberings.
 * Equal memory that is only read is kept apart: it is no conflict. */
static bool continues(const struct builder *b, const struct dyti_extent *extent,
                      uint64_t at, const struct place *last,
                      const struct place *place)
{
    bool same = last->at == place->at && last->bytes == place->bytes;

    return !(b->there && place->at == at + extent->bytes) &&
           extent->kind == place->kind && extent->fd == place->fd &&
           place->at <= at + extent->bytes &&
           (place->address == 0) == (extent->address == 0) &&
           (place->address == 0 ||
            place->address - extent->address == place->at - at) &&
           !(same && last->read_only && place->read_only);
}

static enum dyt_status make_extents(struct builder *b)
{
    uint64_t end[DYTI_KIND_COUNT] = {0}, at = 0;
    struct dyti_extent *extent = NULL;

    qsort(b->place, b->place_count, sizeof(*b->place), by_place);
    b->out.extent = calloc((size_t)b->place_count + 1, sizeof(*b->out.extent));
    if (b->out.extent == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u extents", b->place_count);
    }
    for (uint32_t i = 0; i < b->place_count; i++) {
        struct place *p = &b->place[i];

        b->place_of[p->row] = i;
        if (extent == NULL || !continues(b, extent, at, p - 1, p)) {
            uint64_t offset = end[p->kind];

            /* Alignment in a region is what it is in memory. */
            offset = dyti_align_up(offset + ALIGN, ALIGN) + p->at % ALIGN;
            extent = &b->out.extent[b->out.extent_count++];
            *extent = (struct dyti_extent){.offset = offset,
                                           .address = p->address,
                                           .fd = p->fd,
                                           .kind = p->kind,
                                           .fd_offset = p->fd < 0 ? 0 : p->at,
                                           .device = p->device,
                                           .inode = p->inode};
            at = p->at;
        }
        p->offset = extent->offset + (p->at - at);
        if (p->at - at + p->bytes > extent->bytes) {
            extent->bytes = p->at - at + p->bytes;
        }
        end[p->kind] = extent->offset + extent->bytes;
        if (end[p->kind] > INT64_MAX / 2) {
            return DYTI_FAIL(DYT_ERR_OVERFLOW, "the rows of this process");
        }
    }
    memcpy(b->out.view.region_bytes, end, sizeof(end));
    return DYT_OK;
}

/* ---- shards ---------------------------------------------------------------
 */

struct row_shard {
    struct dyti_shard shard;
    uint32_t row;
};

static int by_shard(const void *left, const void *right)
{
    const struct dyti_shard *a = &((const struct row_shard *)left)->shard;
    const struct dyti_shard *b = &((const struct row_shard *)right)->shard;

    if (a->kind != b->kind) {
        return a->kind < b->kind ? -1 : 1;
    }
    if (a->tensor != b->tensor) {
        return a->tensor < b->tensor ? -1 : 1;
    }
    return (a->offset > b->offset) - (a->offset < b->offset);
}

/* false: it lies outside of its row or tensor, or is empty. */
static bool make_shard(const struct builder *b,
                       const struct dyti_row_piece *piece,
                       const struct dyt_row *row, struct row_shard *out,
                       enum dyt_status *st)
{
    const struct place *place = NULL;
    const struct dyti_tensor *tensor;
    uint64_t last = piece->offset;

    if (piece->tensor >= b->catalogue->tensor_count ||
        piece->box.ndim != b->catalogue->tensor[piece->tensor].ndim) {
        *st = DYTI_FAIL(DYT_ERR_INVALID, "row %s: a piece of tensor %u",
                        row->name, piece->tensor);
        return false;
    }
    tensor = &b->catalogue->tensor[piece->tensor];
    *out = (struct row_shard){.row = piece->row,
                              .shard = {.tensor = piece->tensor,
                                        .kind = (uint8_t)row->kind,
                                        .dtype = (uint8_t)row->dtype,
                                        .box = piece->box}};
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        int64_t size = piece->box.hi[d] - piece->box.lo[d];

        if (size <= 0) {
            return false;
        }
        out->shard.stride[d] = piece->stride[d];
        last += (uint64_t)(size - 1) * (uint64_t)piece->stride[d];
    }
    if (b->place_of[piece->row] != UINT32_MAX) {
        place = &b->place[b->place_of[piece->row]];
    }
    if (place == NULL || last > place->bytes ||
        dyti_dtype_bytes((enum dyti_dtype)row->dtype) > place->bytes - last) {
        *st = DYTI_FAIL(DYT_ERR_INVALID,
                        "row %s: its piece of %s reaches out of it", row->name,
                        tensor->name);
        return false;
    }
    out->shard.offset = place->offset + piece->offset;
    return true;
}

static enum dyt_status take_shards(struct builder *b, struct row_shard *shard,
                                   size_t count)
{
    struct dyti_view *view = &b->out.view;
    uint32_t at = 0;

    qsort(shard, count, sizeof(*shard), by_shard);
    view->shard = calloc(count + 1, sizeof(*view->shard));
    b->out.shard_row = calloc(count + 1, sizeof(*b->out.shard_row));
    if (view->shard == NULL || b->out.shard_row == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu shards", count);
    }
    for (size_t i = 0; i < count; i++) {
        view->shard[i] = shard[i].shard;
        b->out.shard_row[i] = shard[i].row;
    }
    view->shard_count = (uint32_t)count;
    for (uint32_t kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        view->kind_first[kind] = at;
        while (at < count && view->shard[at].kind == kind) {
            at++;
        }
    }
    view->kind_first[DYTI_KIND_COUNT] = at;
    return DYT_OK;
}

static enum dyt_status make_shards(struct builder *b)
{
    struct row_shard *shard = calloc(b->pieces->count + 1, sizeof(*shard));
    size_t count = 0;
    enum dyt_status st = DYT_OK;

    if (shard == NULL || b->pieces->count >= UINT32_MAX) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu pieces", b->pieces->count);
    }
    for (size_t i = 0; i < b->pieces->count && st == DYT_OK; i++) {
        const struct dyti_row_piece *piece = &b->pieces->piece[i];
        struct dyt_row row = row_at(b->rows, piece->row);

        if ((row.flags & DYT_ROW_ALIAS) == 0 &&
            make_shard(b, piece, &row, &shard[count], &st)) {
            count++;
        }
    }
    st = st != DYT_OK ? st : take_shards(b, shard, count);
    free(shard);
    return st;
}

static enum dyt_status build(struct builder *b,
                             struct dyti_memory_view *out_memory)
{
    enum dyt_status st = dyti_process_self(&b->out.pid, &b->out.pid_start);

    st = st != DYT_OK ? st : read_rows(b);
    st = st != DYT_OK ? st : make_extents(b);
    st = st != DYT_OK ? st : make_shards(b);
    free(b->place);
    free(b->place_of);
    if (st != DYT_OK) {
        DYTI_NOTE("describing the memory of this process");
        dyti_memory_view_fini(&b->out);
        return st;
    }
    *out_memory = b->out;
    return DYT_OK;
}

enum dyt_status dyti_memory_view_build(const struct dyti_model *catalogue,
                                       const struct dyt_view *rows,
                                       const struct dyti_row_pieces *pieces,
                                       struct dyti_memory_view *out_memory)
{
    struct builder b = {.catalogue = catalogue, .rows = rows, .pieces = pieces};

    return build(&b, out_memory);
}

enum dyt_status dyti_memory_view_build_there(
    const struct dyti_model *catalogue, const struct dyt_view *rows,
    const struct dyti_row_pieces *pieces, struct dyti_memory_view *out_memory)
{
    struct builder b = {
        .catalogue = catalogue, .rows = rows, .pieces = pieces, .there = true};

    return build(&b, out_memory);
}
