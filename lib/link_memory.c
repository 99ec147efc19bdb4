/* What a member's memory looks like: the places of its rows (link_rows.h) as
 * extents behind each other, and the boxes in them as shards of regions. */
#include "lib/link_rows.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN 64u /* the least gap between two extents of a region */

struct builder {
    const struct dyti_model *catalogue;
    const struct dyt_view *rows;
    const struct dyti_row_pieces *pieces;
    struct dyti_row_places places;
    struct dyti_memory_view out;
    bool there; /* rows of devices */
};

void dyti_memory_view_fini(struct dyti_memory_view *memory)
{
    free(memory->extent);
    free(memory->shard_row);
    free(memory->row_as);
    dyti_view_fini(&memory->view);
    *memory = (struct dyti_memory_view){0};
}

/* ---- extents --------------------------------------------------------------
 */

static int by_place(const void *left, const void *right)
{
    const struct dyti_row_place *a = left, *b = right;

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
                      uint64_t at, const struct dyti_row_place *last,
                      const struct dyti_row_place *place)
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

    qsort(b->places.place, b->places.count, sizeof(*b->places.place), by_place);
    b->out.extent = calloc((size_t)b->places.count + 1, sizeof(*b->out.extent));
    if (b->out.extent == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u extents", b->places.count);
    }
    for (uint32_t i = 0; i < b->places.count; i++) {
        struct dyti_row_place *p = &b->places.place[i];

        b->places.of[p->row] = i;
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
    const struct dyti_row_place *place = NULL;
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
    if (b->places.of[piece->row] != UINT32_MAX) {
        place = &b->places.place[b->places.of[piece->row]];
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
        struct dyt_row row = dyti_link_row(b->rows, piece->row);

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

    st = st != DYT_OK
             ? st
             : dyti_row_places_init(&b->places, b->rows, b->pieces, b->there);
    if (st == DYT_OK) {
        b->out.row_as = b->places.row_as;
        b->out.row_count = (uint32_t)b->rows->row_count;
        b->places.row_as = NULL; /* moved */
    }
    st = st != DYT_OK ? st : make_extents(b);
    st = st != DYT_OK ? st : make_shards(b);
    dyti_row_places_fini(&b->places);
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
