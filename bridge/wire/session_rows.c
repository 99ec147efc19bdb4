/* rows, catalogue: tensors by name. */
#include "wire/session.h"

#include "wire/define.h"

#include <stdlib.h>
#include <string.h>

/* Of each, besides those that depend on its dimensions. */
#define ROW_FIELDS    6u
#define PIECE_FIELDS  3u
#define TENSOR_FIELDS 7u

static void write_dims(struct dyti_writer *w, const int64_t *dim, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        dyti_write_i64(w, dim[i]);
    }
}

static void read_dims(struct dyti_reader *r, const char *field, int64_t *dim,
                      uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        dim[i] = dyti_read_i64(r, field);
    }
}

static uint32_t read_ndim(struct dyti_reader *r)
{
    return (uint32_t)dyti_read_u64(r, "dimensions", DYT_MAX_DIMS);
}

/* ---- rows ---------------------------------------------------------------- */

static void write_piece(struct dyti_writer *w, const struct dyt_piece *p,
                        uint32_t row_ndim)
{
    dyti_write_array(w, PIECE_FIELDS + 2u * p->box.ndim + row_ndim);
    dyti_write_text(w, p->tensor);
    dyti_write_u64(w, p->transposed);
    dyti_write_u64(w, p->box.ndim);
    write_dims(w, p->box.lo, p->box.ndim);
    write_dims(w, p->box.hi, p->box.ndim);
    write_dims(w, p->at, row_ndim);
}

static void write_rows(struct dyti_writer *w, const struct dyti_msg_rows *m)
{
    dyti_write_array(w, 1);
    dyti_write_array(w, m->row_count);
    for (uint32_t i = 0; i < m->row_count; i++) {
        const struct dyt_row *row = &m->row[i];

        dyti_write_array(w, ROW_FIELDS + 3u * row->ndim);
        dyti_write_text(w, row->name);
        dyti_write_u64(w, row->kind);
        dyti_write_u64(w, row->dtype);
        dyti_write_u64(w, row->flags);
        dyti_write_u64(w, row->ndim);
        write_dims(w, row->shape, row->ndim);
        write_dims(w, row->stride, row->ndim);
        write_dims(w, row->global_shape, row->ndim);
        dyti_write_array(w, row->piece_count);
        for (uint32_t p = 0; p < row->piece_count; p++) {
            const char *at = (const char *)row->piece;

            write_piece(
                w,
                (const struct dyt_piece
                     *)(const void *)(at + (size_t)p * row->piece_struct_size),
                row->ndim);
        }
    }
}

static void read_piece(struct dyti_reader *outer, struct dyt_piece *p,
                       uint32_t row_ndim)
{
    struct dyti_reader r;

    if (!dyti_read_nested(outer, "piece", &r)) {
        return;
    }
    p->struct_size = sizeof(*p);
    p->tensor = dyti_read_text(&r, "tensor");
    p->transposed = (uint32_t)dyti_read_u64(&r, "transposed", 1);
    p->box.ndim = read_ndim(&r);
    read_dims(&r, "box", p->box.lo, p->box.ndim);
    read_dims(&r, "box", p->box.hi, p->box.ndim);
    read_dims(&r, "place", p->at, row_ndim);
    dyti_read_join(outer, &r);
}

static void read_row(struct dyti_reader *outer, struct dyt_row *row)
{
    struct dyti_reader r, pieces = {0};
    struct dyt_piece *piece;

    if (!dyti_read_nested(outer, "row", &r)) {
        return;
    }
    row->struct_size = sizeof(*row);
    row->fd = -1;
    row->piece_struct_size = sizeof(*piece);
    row->name = dyti_read_text(&r, "name");
    row->kind = (uint32_t)dyti_read_u64(&r, "kind", DYTI_KIND_COUNT - 1);
    row->dtype = (uint32_t)dyti_read_u64(&r, "dtype", DYTI_DTYPE_COUNT - 1);
    row->flags = (uint32_t)dyti_read_u64(&r, "flags", UINT32_MAX);
    row->ndim = read_ndim(&r);
    read_dims(&r, "shape", row->shape, row->ndim);
    read_dims(&r, "stride", row->stride, row->ndim);
    read_dims(&r, "global shape", row->global_shape, row->ndim);
    if (dyti_read_nested(&r, "pieces", &pieces)) {
        piece = dyti_read_room(&pieces, "pieces", pieces.count, sizeof(*piece),
                               PIECE_FIELDS);
        row->piece = piece;
        row->piece_count = piece != NULL ? pieces.count : 0;
        for (uint32_t i = 0; i < row->piece_count; i++) {
            read_piece(&pieces, &piece[i], row->ndim);
        }
        dyti_read_join(&r, &pieces);
    }
    dyti_read_join(outer, &r);
}

static void read_rows(struct dyti_reader *outer, struct dyti_msg_rows *m)
{
    struct dyti_reader r;

    if (!dyti_read_nested(outer, "rows", &r)) {
        return;
    }
    m->row = dyti_read_room(&r, "rows", r.count, sizeof(*m->row), ROW_FIELDS);
    m->row_count = m->row != NULL ? r.count : 0;
    for (uint32_t i = 0; i < m->row_count; i++) {
        read_row(&r, &m->row[i]);
    }
    dyti_read_join(outer, &r);
}

void dyti_msg_rows_fini(struct dyti_msg_rows *m)
{
    for (uint32_t i = 0; i < m->row_count; i++) {
        for (uint32_t p = 0; p < m->row[i].piece_count; p++) {
            free((void *)(uintptr_t)m->row[i].piece[p].tensor);
        }
        free((void *)(uintptr_t)m->row[i].piece);
        free((void *)(uintptr_t)m->row[i].name);
    }
    free(m->row);
    memset(m, 0, sizeof(*m));
}

DYTI_WIRE_DEFINE(rows)

/* ---- catalogue ----------------------------------------------------------- */

static void write_catalogue(struct dyti_writer *w,
                            const struct dyti_msg_catalogue *m)
{
    dyti_write_array(w, 2);
    dyti_write_u64(w, m->fingerprint);
    dyti_write_array(w, m->tensor_count);
    for (uint32_t i = 0; i < m->tensor_count; i++) {
        const struct dyti_msg_tensor *t = &m->tensor[i];

        dyti_write_array(w, TENSOR_FIELDS + t->ndim);
        dyti_write_text(w, t->name);
        dyti_write_u64(w, t->kinds);
        dyti_write_i64(w, t->layer);
        dyti_write_i64(w, t->expert);
        dyti_write_bool(w, t->fixed_dtype);
        dyti_write_u64(w, t->dtype);
        dyti_write_u64(w, t->ndim);
        write_dims(w, t->shape, t->ndim);
    }
}

static void read_tensor(struct dyti_reader *outer, struct dyti_msg_tensor *t)
{
    struct dyti_reader r;

    if (!dyti_read_nested(outer, "tensor", &r)) {
        return;
    }
    t->name = dyti_read_text(&r, "name");
    t->kinds = (uint32_t)dyti_read_u64(&r, "kinds", UINT32_MAX);
    t->layer = dyti_read_i32(&r, "layer");
    t->expert = dyti_read_i32(&r, "expert");
    t->fixed_dtype = dyti_read_bool(&r, "fixed dtype");
    t->dtype = (uint32_t)dyti_read_u64(&r, "dtype", DYTI_DTYPE_COUNT - 1);
    t->ndim = read_ndim(&r);
    read_dims(&r, "shape", t->shape, t->ndim);
    dyti_read_join(outer, &r);
}

static void read_catalogue(struct dyti_reader *outer,
                           struct dyti_msg_catalogue *m)
{
    struct dyti_reader r;

    m->fingerprint = dyti_read_u64(outer, "fingerprint", UINT64_MAX);
    if (!dyti_read_nested(outer, "tensors", &r)) {
        return;
    }
    m->tensor = dyti_read_room(&r, "tensors", r.count, sizeof(*m->tensor),
                               TENSOR_FIELDS);
    m->tensor_count = m->tensor != NULL ? r.count : 0;
    for (uint32_t i = 0; i < m->tensor_count; i++) {
        read_tensor(&r, &m->tensor[i]);
    }
    dyti_read_join(outer, &r);
}

void dyti_msg_catalogue_fini(struct dyti_msg_catalogue *m)
{
    for (uint32_t i = 0; i < m->tensor_count; i++) {
        free(m->tensor[i].name);
    }
    free(m->tensor);
    memset(m, 0, sizeof(*m));
}

DYTI_WIRE_DEFINE(catalogue)
