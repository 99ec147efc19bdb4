/* layout.h: layouts from the lists that members hand in.  A row's place in its
 * region is its address, so that rows that share memory are found. */
#include "lib/handles.h"
#include "plugin/resolve.h"
#include "plugin/rows.h"

#include <stdlib.h>
#include <string.h>

/* Where each row begins in the region of its kind, and how long the regions
 * are. */
static void place_rows(const struct dyt_view *rows, uint64_t *offset,
                       struct dyti_view *view)
{
    uint64_t first[DYTI_KIND_COUNT];

    memset(first, 0xff, sizeof(first));
    for (uint64_t i = 0; i < rows->row_count; i++) {
        const struct dyt_row *row = dyti_row_at(rows, i);
        uint64_t at = (uint64_t)(uintptr_t)row->data & ~UINT64_C(63);

        if (row->data != NULL && at < first[row->kind]) {
            first[row->kind] = at;
        }
    }
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t i = 0; i < rows->row_count; i++) {
            const struct dyt_row *row = dyti_row_at(rows, i);
            uint64_t *end = &view->region_bytes[row->kind];
            uint64_t behind;

            if ((row->data == NULL) != (pass == 1)) {
                continue; /* those without an address lie behind the others */
            }
            offset[i] = pass == 0
                            ? (uint64_t)(uintptr_t)row->data - first[row->kind]
                            : (*end + 63) & ~UINT64_C(63);
            behind = offset[i] + dyti_row_extent(row);
            *end = behind > *end ? behind : *end;
        }
    }
}

static enum dyt_status fill_buffers(const struct dyt_view *rows,
                                    const uint64_t *offset,
                                    struct dyti_view *view)
{
    size_t bytes = 0;
    char *name;

    for (uint64_t i = 0; i < rows->row_count; i++) {
        bytes += strlen(dyti_row_at(rows, i)->name) + 1;
    }
    view->buffer = calloc(rows->row_count, sizeof(*view->buffer));
    view->names = malloc(bytes + 1);
    if (view->buffer == NULL || view->names == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%llu rows",
                         (unsigned long long)rows->row_count);
    }
    name = view->names;
    for (uint64_t i = 0; i < rows->row_count; i++) {
        const struct dyt_row *row = dyti_row_at(rows, i);
        struct dyti_view_buffer *b = &view->buffer[view->buffer_count];

        if ((row->flags & DYT_ROW_ALIAS) != 0 &&
            (row->flags & DYT_ROW_STAGED) == 0) {
            continue;
        }
        bytes = strlen(row->name) + 1;
        memcpy(name, row->name, bytes);
        *b = (struct dyti_view_buffer){.name = name,
                                       .kind = (uint8_t)row->kind,
                                       .dtype = (uint8_t)row->dtype,
                                       .ndim = row->ndim,
                                       .offset = offset[i],
                                       .bytes = dyti_row_extent(row)};
        memcpy(b->shape, row->shape, sizeof(b->shape));
        name += bytes;
        view->buffer_count++;
    }
    return DYT_OK;
}

static int by_place(const void *x, const void *y)
{
    const struct dyti_view_buffer *a = x, *b = y;

    if (a->kind != b->kind) {
        return a->kind < b->kind ? -1 : 1;
    }
    return (a->offset > b->offset) - (a->offset < b->offset);
}

static enum dyt_status fill_shards(const struct dyt_view *rows,
                                   const struct dyti_row_pieces *pieces,
                                   const uint64_t *offset,
                                   struct dyti_view *view)
{
    view->shard = calloc(pieces->count + 1, sizeof(*view->shard));
    if (view->shard == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu shards", pieces->count);
    }
    for (size_t i = 0; i < pieces->count; i++) {
        const struct dyti_row_piece *p = &pieces->piece[i];
        const struct dyt_row *row = dyti_row_at(rows, p->row);
        struct dyti_shard *s = &view->shard[view->shard_count++];

        *s = (struct dyti_shard){.tensor = p->tensor,
                                 .kind = (uint8_t)row->kind,
                                 .dtype = (uint8_t)row->dtype,
                                 .box = p->box,
                                 .offset = offset[p->row] + p->offset};
        memcpy(s->stride, p->stride, sizeof(s->stride));
    }
    return DYT_OK;
}

static enum dyt_status view_of(const struct dyti_model *model,
                               const struct dyt_view *rows,
                               struct dyti_view *view)
{
    const struct dyti_place place = {.tp_size = 1, .ep_size = 1};
    struct dyti_row_pieces pieces = {0};
    uint64_t *offset = NULL;
    enum dyt_status st = dyti_view_check(rows);

    st = st != DYT_OK ? st
                      : dyti_rules_apply(model, rows, NULL, &place, &pieces);
    if (st != DYT_OK) {
        return st;
    }
    offset = calloc(rows->row_count, sizeof(*offset));
    if (offset == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%llu rows",
                       (unsigned long long)rows->row_count);
    } else {
        place_rows(rows, offset, view);
        st = fill_buffers(rows, offset, view);
        st = st != DYT_OK ? st : fill_shards(rows, &pieces, offset, view);
    }
    if (st == DYT_OK && view->buffer_count > 1) {
        qsort(view->buffer, view->buffer_count, sizeof(*view->buffer),
              by_place);
    }
    free(offset);
    dyti_row_pieces_fini(&pieces);
    return st;
}

/* Kinds that any rank holds, and the dtype of each that bytes are counted in
 * before there are shards. */
static void note_kinds(const struct dyti_view *view, uint32_t world,
                       struct dyti_layout_desc *desc)
{
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        desc->residency[kind] = DYTI_DROPPED;
    }
    for (uint32_t r = 0; r < world; r++) {
        for (uint32_t i = 0; i < view[r].shard_count; i++) {
            const struct dyti_shard *s = &view[r].shard[i];

            desc->residency[s->kind] = DYTI_HELD;
            desc->dtype[s->kind] = (enum dyti_dtype)s->dtype;
        }
    }
}

enum dyt_status dyt_layout_from_views(const dyt_model *model,
                                      const struct dyt_view *view,
                                      uint32_t world_size,
                                      dyt_layout **out_layout)
{
    struct dyti_layout_desc desc = {
        .phase = "views", .world_size = world_size, .own_dtypes = true};
    struct dyti_layout *layout = NULL;
    struct dyti_view *own;
    enum dyt_status st = DYT_OK;

    if (model == NULL || view == NULL || out_layout == NULL) {
        return dyti_null_argument("dyt_layout_from_views");
    }
    if (world_size == 0 || world_size > UINT32_MAX / 2) {
        return DYTI_FAIL(DYT_ERR_INVALID, "views of %u ranks", world_size);
    }
    own = calloc(world_size, sizeof(*own));
    if (own == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "views of %u ranks", world_size);
    }
    for (uint32_t r = 0; r < world_size && st == DYT_OK; r++) {
        const struct dyt_view *rows =
            (const void *)((const char *)view + (size_t)r * view->struct_size);

        if (rows->row_count == 0) {
            continue;
        }
        st = view_of(model->model, rows, &own[r]);
        if (st != DYT_OK) {
            DYTI_NOTE("taking the rows of rank %u", r);
        }
    }
    if (st == DYT_OK) {
        note_kinds(own, world_size, &desc);
        st = dyti_layout_from_views(model->model, &desc, own, &layout);
    }
    st = st != DYT_OK ? st : dyti_handle_from(model, layout, out_layout);
    if (st != DYT_OK) {
        dyti_layout_destroy(layout);
        for (uint32_t r = 0; r < world_size; r++) {
            dyti_view_fini(&own[r]);
        }
    }
    free(own);
    return st;
}
