/* What can be said of a view alone: sizes, shapes, strides, flags, names. */
#include "plugin/resolve.h"

#include "base/checked.h"
#include "base/hash.h"
#include "plugin/faults.h"
#include "plugin/rows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 255u
#define ALL_FLAGS                                                              \
    (DYT_ROW_READ_ONLY | DYT_ROW_ALIAS | DYT_ROW_STAGED | DYT_ROW_OPTIONAL)

_Static_assert(sizeof(struct dyt_view) >= DYTI_VIEW_BYTES_0_1 &&
                   sizeof(struct dyt_row) >= DYTI_ROW_BYTES_0_1 &&
                   sizeof(struct dyt_piece) >= DYTI_PIECE_BYTES_0_1 &&
                   sizeof(struct dyt_rules) >= DYTI_RULES_BYTES_0_1 &&
                   sizeof(struct dyt_rule) >= DYTI_RULE_BYTES_0_1 &&
                   sizeof(struct dyt_rule_part) >= DYTI_PART_BYTES_0_1,
               "structs only grow");

/* The dtypes agree in both headers: a row's number is ours. */
_Static_assert((int)DYT_F32 == (int)DYTI_F32 &&
                   (int)DYT_BF16 == (int)DYTI_BF16 &&
                   (int)DYT_F16 == (int)DYTI_F16 &&
                   (int)DYT_I32 == (int)DYTI_I32 &&
                   (int)DYT_I64 == (int)DYTI_I64 &&
                   (int)DYT_EXTRA == (int)DYTI_EXTRA,
               "one numbering");

void dyti_row_strides(const struct dyt_row *row, int64_t stride[DYT_MAX_DIMS])
{
    bool dense = true;
    int64_t step = 1;

    for (uint32_t d = 0; d < row->ndim; d++) {
        dense = dense && row->stride[d] == 0;
    }
    for (uint32_t d = row->ndim; d-- > 0;) {
        stride[d] = dense ? step : row->stride[d];
        step *= row->shape[d];
    }
}

uint64_t dyti_row_extent(const struct dyt_row *row)
{
    int64_t stride[DYT_MAX_DIMS], last = 0;

    dyti_row_strides(row, stride);
    for (uint32_t d = 0; d < row->ndim; d++) {
        last += (row->shape[d] - 1) * stride[d];
    }
    return (uint64_t)(last + 1) * dyti_dtype_bytes((enum dyti_dtype)row->dtype);
}

/* ---- one row ------------------------------------------------------------- */

/* Name, kind, dtype, dimensions; false: nothing more can be asked. */
static bool check_head(const struct dyt_row *row, uint64_t at,
                       struct dyti_found *f)
{
    if (row->name == NULL || row->name[0] == '\0' ||
        strnlen(row->name, NAME_MAX_BYTES + 1) > NAME_MAX_BYTES) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %" PRIu64 ": its name must have 1 to %u bytes", at,
                       NAME_MAX_BYTES);
        return false;
    }
    if (row->struct_size < DYTI_ROW_BYTES_0_1) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s: struct_size %u, the first release had %u: set "
                       "it to sizeof(struct dyt_row)",
                       row->name, row->struct_size, DYTI_ROW_BYTES_0_1);
        return false;
    }
    if (row->dtype >= DYTI_DTYPE_COUNT) {
        dyti_found_add(f, DYT_ERR_UNSUPPORTED,
                       "row %s: dtype %u is none of f32, bf16, f16, i32, i64; "
                       "serve a quantised layer unquantised, or publish its "
                       "full weight with DYT_ROW_STAGED and quantise it after "
                       "each commit",
                       row->name, row->dtype);
        return false;
    }
    if (row->kind >= DYTI_KIND_COUNT || (row->flags & ~ALL_FLAGS) != 0) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s: kind %u, flags 0x%x: kinds are below %d, flags "
                       "within 0x%x",
                       row->name, row->kind, row->flags, (int)DYTI_KIND_COUNT,
                       ALL_FLAGS);
        return false;
    }
    if (row->ndim == 0 || row->ndim > DYT_MAX_DIMS) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s has %u dimensions: 1 to %u (a scalar is [1])",
                       row->name, row->ndim, DYT_MAX_DIMS);
        return false;
    }
    return true;
}

static bool check_shape(const struct dyt_row *row, struct dyti_found *f)
{
    int64_t bytes = dyti_dtype_bytes((enum dyti_dtype)row->dtype);
    int64_t total = bytes;

    for (uint32_t d = 0; d < row->ndim; d++) {
        if (row->shape[d] == 0) {
            dyti_found_add(f, DYT_ERR_UNSUPPORTED,
                           "row %s has shape %s: weights that were packed away "
                           "leave none; publish the full local shape with "
                           "DYT_ROW_STAGED and repack after each commit, or "
                           "switch packing off; a cut of nothing (the last "
                           "ranks of a sharded trainer) has no row",
                           row->name,
                           dyti_shape_words(row->ndim, row->shape).text);
            return false;
        }
        if (row->shape[d] < 0 ||
            __builtin_mul_overflow(total, row->shape[d], &total)) {
            dyti_found_add(f, DYT_ERR_INVALID, "row %s: shape %s is no size",
                           row->name,
                           dyti_shape_words(row->ndim, row->shape).text);
            return false;
        }
    }
    return true;
}

/* Dimensions from the smallest stride to the largest: each must step over all
 * that the ones before it span. */
static bool check_strides(const struct dyt_row *row, struct dyti_found *f)
{
    uint32_t order[DYT_MAX_DIMS], count = 0;
    int64_t stride[DYT_MAX_DIMS], span = 1, bytes, last;
    bool over = false;

    dyti_row_strides(row, stride);
    for (uint32_t d = 0; d < row->ndim; d++) {
        uint32_t at = count;

        if (row->shape[d] == 1) {
            continue;
        }
        for (; at > 0 && stride[order[at - 1]] > stride[d]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = d;
        count++;
    }
    bytes = dyti_dtype_bytes((enum dyti_dtype)row->dtype);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t d = order[i];

        if (stride[d] < span) {
            dyti_found_add(f, DYT_ERR_INVALID,
                           "row %s: strides %s of shape %s put two elements "
                           "into one place; hand in the tensor itself, not an "
                           "expanded view",
                           row->name, dyti_shape_words(row->ndim, stride).text,
                           dyti_shape_words(row->ndim, row->shape).text);
            return false;
        }
        over = over ||
               __builtin_mul_overflow(row->shape[d] - 1, stride[d], &last) ||
               __builtin_add_overflow(span, last, &span);
    }
    if (over || __builtin_mul_overflow(span, bytes, &span)) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s: strides %s of shape %s reach over 2^63 bytes",
                       row->name, dyti_shape_words(row->ndim, stride).text,
                       dyti_shape_words(row->ndim, row->shape).text);
        return false;
    }
    return true;
}

static void check_place(const struct dyt_row *row, struct dyti_found *f)
{
    uintptr_t bytes = dyti_dtype_bytes((enum dyti_dtype)row->dtype);
    bool staged = (row->flags & DYT_ROW_STAGED) != 0;

    if (!staged && row->data == NULL && row->fd < 0) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s: neither data nor fd says where it lies; "
                       "DYT_ROW_STAGED asks for memory of the library",
                       row->name);
    }
    if (staged && (row->flags & DYT_ROW_READ_ONLY) != 0) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s is both DYT_ROW_STAGED and DYT_ROW_READ_ONLY: "
                       "what is lent is there to be written",
                       row->name);
    }
    if ((uintptr_t)row->data % bytes != 0 ||
        (row->fd >= 0 && row->fd_offset % bytes != 0)) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s at %p, offset %" PRIu64
                       ": both must be multiples of its %" PRIuPTR " bytes",
                       row->name, row->data, row->fd_offset, bytes);
    }
    if (row->device.type == DYT_DEVICE_CUDA) {
        if (staged || row->fd >= 0) {
            dyti_found_add(f, DYT_ERR_UNSUPPORTED,
                           "row %s lies on a CUDA device, and %s", row->name,
                           staged ? "DYT_ROW_STAGED lends memory of the host: "
                                    "give it the device of a host"
                                  : "has a descriptor: those are of memory of "
                                    "the host; set fd to -1");
        }
    } else if (row->device.type != DYT_DEVICE_HOST) {
        dyti_found_add(f, DYT_ERR_UNSUPPORTED,
                       "row %s: device type %u is not known", row->name,
                       row->device.type);
    }
}

/* ---- pieces -------------------------------------------------------------- */

static bool piece_lies_inside(const struct dyt_row *row,
                              const struct dyt_piece *p)
{
    uint32_t lead = row->ndim - p->box.ndim;

    for (uint32_t r = 0; r < row->ndim; r++) {
        int64_t size = 1, end;

        if (r >= lead) {
            uint32_t d = r - lead;

            if (p->transposed != 0 && d + 2 >= p->box.ndim) {
                d = 2 * p->box.ndim - 3 - d; /* the last two change places */
            }
            size = p->box.hi[d] - p->box.lo[d];
        }
        if (p->at[r] < 0 || __builtin_add_overflow(p->at[r], size, &end) ||
            end > row->shape[r]) {
            return false;
        }
    }
    return true;
}

static void check_piece(const struct dyt_row *row, uint32_t i,
                        struct dyti_found *f)
{
    const struct dyt_piece *p = dyti_piece_at(row, i);
    uint32_t shown = p->box.ndim < DYT_MAX_DIMS ? p->box.ndim : DYT_MAX_DIMS;
    uint64_t count;

    if (p->struct_size < DYTI_PIECE_BYTES_0_1) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s, piece %u: struct_size %u, the first release "
                       "had %u",
                       row->name, i, p->struct_size, DYTI_PIECE_BYTES_0_1);
    } else if (p->tensor == NULL || p->tensor[0] == '\0' ||
               strnlen(p->tensor, NAME_MAX_BYTES + 1) > NAME_MAX_BYTES) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s, piece %u: the tensor's name must have 1 to %u "
                       "bytes",
                       row->name, i, NAME_MAX_BYTES);
    } else if (dyt_box_count(&p->box, &count) != DYT_OK ||
               p->box.ndim > row->ndim || p->transposed > 1 ||
               (p->transposed == 1 && p->box.ndim < 2)) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s, piece %u of %s: from %s to %s, %u dimensions "
                       "in a row of %u, transposed %u; 0 <= lo <= hi, at most "
                       "the row's dimensions, and two to transpose are needed",
                       row->name, i, p->tensor,
                       dyti_shape_words(shown, p->box.lo).text,
                       dyti_shape_words(shown, p->box.hi).text, p->box.ndim,
                       row->ndim, p->transposed);
    } else if (!piece_lies_inside(row, p)) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s, piece %u of %s: at %s it reaches out of the "
                       "row's shape %s",
                       row->name, i, p->tensor,
                       dyti_shape_words(row->ndim, p->at).text,
                       dyti_shape_words(row->ndim, row->shape).text);
    }
}

static void check_pieces(const struct dyt_row *row, struct dyti_found *f)
{
    if (row->piece_count == 0) {
        return;
    }
    if (row->piece == NULL || row->piece_struct_size < DYTI_PIECE_BYTES_0_1) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s: %u pieces of %u bytes each at %p; the first "
                       "release had %u bytes: set piece_struct_size to "
                       "sizeof(struct dyt_piece)",
                       row->name, row->piece_count, row->piece_struct_size,
                       (const void *)row->piece, DYTI_PIECE_BYTES_0_1);
        return;
    }
    for (uint32_t i = 0; i < row->piece_count && dyti_found_shows(f); i++) {
        check_piece(row, i, f);
    }
}

static bool check_row(const struct dyt_row *row, uint64_t at,
                      struct dyti_found *f)
{
    if (!check_head(row, at, f) || !check_shape(row, f) ||
        !check_strides(row, f)) {
        return false;
    }
    check_place(row, f);
    check_pieces(row, f);
    return true;
}

/* ---- between rows -------------------------------------------------------- */

/* Rows by a key in open addressing; 0 = free, else 1 + row. */
struct table {
    uint32_t *place;
    uint64_t size;
};

static uint64_t name_key(const struct dyt_row *row)
{
    return dyti_fingerprint_text(
        dyti_fingerprint_u64(DYTI_FINGERPRINT_SEED, row->kind), row->name);
}

static uint64_t memory_key(const struct dyt_row *row)
{
    return row->data != NULL
               ? dyti_mix64((uint64_t)(uintptr_t)row->data)
               : dyti_mix64(row->fd_offset * 31 + (uint64_t)row->fd);
}

static bool same_name(const struct dyt_row *a, const struct dyt_row *b)
{
    return a->kind == b->kind && strcmp(a->name, b->name) == 0;
}

static bool same_memory(const struct dyt_row *a, const struct dyt_row *b)
{
    if ((b->flags & DYT_ROW_STAGED) != 0 || a->dtype != b->dtype) {
        return false;
    }
    return a->data != NULL ? a->data == b->data
                           : b->data == NULL && a->fd == b->fd &&
                                 a->fd_offset == b->fd_offset;
}

/* An earlier row that is the same by `same`, NULL if there is none; `row` is
 * added where it is not one of them. */
static const struct dyt_row *earlier(
    struct table *t, const struct dyt_view *view, uint64_t i, uint64_t key,
    bool (*same)(const struct dyt_row *, const struct dyt_row *))
{
    uint64_t at = key & (t->size - 1);

    for (; t->place[at] != 0; at = (at + 1) & (t->size - 1)) {
        const struct dyt_row *other = dyti_row_at(view, t->place[at] - 1u);

        if (same(dyti_row_at(view, i), other)) {
            return other;
        }
    }
    t->place[at] = (uint32_t)i + 1u;
    return NULL;
}

static enum dyt_status table_init(struct table *t, uint64_t rows)
{
    for (t->size = 16; t->size < rows * 2; t->size *= 2) {
    }
    t->place = calloc(t->size, sizeof(*t->place));
    return t->place != NULL
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_NOMEM, "names of %" PRIu64 " rows", rows);
}

static void check_between(const struct dyt_view *view, uint64_t i,
                          struct table *names, struct table *memory,
                          struct dyti_found *f)
{
    const struct dyt_row *row = dyti_row_at(view, i);
    const struct dyt_row *other =
        earlier(names, view, i, name_key(row), same_name);
    bool own = (row->flags & DYT_ROW_STAGED) != 0;

    if (other != NULL) {
        dyti_found_add(f, DYT_ERR_INVALID, "two rows are called %s (kind %s)",
                       row->name, dyti_kind_name((enum dyti_kind)row->kind));
    }
    if (own || (row->data == NULL && row->fd < 0)) {
        return;
    }
    other = earlier(memory, view, i, memory_key(row), same_memory);
    if (other != NULL && (row->flags & DYT_ROW_ALIAS) == 0) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "rows %s and %s lie in the same memory: flag the later "
                       "one DYT_ROW_ALIAS if they are one tensor",
                       other->name, row->name);
    }
    if (other != NULL && (row->flags & DYT_ROW_ALIAS) != 0 &&
        (row->ndim != other->ndim ||
         memcmp(row->shape, other->shape, row->ndim * sizeof(int64_t)) != 0)) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s of shape %s is an alias of %s of shape %s",
                       row->name, dyti_shape_words(row->ndim, row->shape).text,
                       other->name,
                       dyti_shape_words(other->ndim, other->shape).text);
    }
    if (other == NULL && (row->flags & DYT_ROW_ALIAS) != 0) {
        dyti_found_add(f, DYT_ERR_INVALID,
                       "row %s is flagged DYT_ROW_ALIAS, but no earlier row "
                       "lies at %p: drop the flag where it is memory of its "
                       "own",
                       row->name, row->data);
    }
}

/* ---- the whole ----------------------------------------------------------- */

static enum dyt_status check_sizes(const struct dyt_view *view)
{
    if (view->struct_size < DYTI_VIEW_BYTES_0_1 ||
        view->row_struct_size < DYTI_ROW_BYTES_0_1) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "a view of struct_size %u with rows of %u bytes; the "
                         "first release had %u and %u",
                         view->struct_size, view->row_struct_size,
                         DYTI_VIEW_BYTES_0_1, DYTI_ROW_BYTES_0_1);
    }
    if (view->row_count == 0 || view->row == NULL ||
        view->row_count > UINT32_MAX / 4) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "a view of %" PRIu64 " rows: 1 to %u are possible",
                         view->row_count, UINT32_MAX / 4);
    }
    return DYT_OK;
}

enum dyt_status dyti_view_check(const struct dyt_view *view)
{
    struct dyti_found found = {.count = 0};
    struct table names = {0}, memory = {0};
    enum dyt_status st = check_sizes(view);

    st = st != DYT_OK ? st : table_init(&names, view->row_count);
    st = st != DYT_OK ? st : table_init(&memory, view->row_count);
    for (uint64_t i = 0; st == DYT_OK && i < view->row_count; i++) {
        if (check_row(dyti_row_at(view, i), i, &found)) {
            check_between(view, i, &names, &memory, &found);
        }
    }
    free(names.place);
    free(memory.place);
    return st != DYT_OK ? st : dyti_found_finish(&found, NULL);
}
