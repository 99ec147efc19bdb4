/* The catalogue of a trainer: what its ranks' rows name, whole. */
#include "plugin/resolve.h"

#include "base/array.h"
#include "base/hash.h"
#include "plugin/faults.h"
#include "plugin/rows.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct known {
    struct dyti_listed_desc desc;
    bool said;           /* its shape, by a global_shape or a whole row */
    uint8_t param_dtype; /* 1 + dtype, 0: no rank holds its param */
    uint32_t rank;       /* that named it first */
};

struct union_of {
    struct known *item; /* [count] in the order in which they were named */
    size_t count, cap;
    uint32_t *place; /* by name, open addressing: 0 free, else 1 + item */
    size_t size;
    struct dyti_found found;
};

/* ---- by name ------------------------------------------------------------- */

static enum dyt_status rehash(struct union_of *u, size_t size)
{
    uint32_t *place = calloc(size, sizeof(*place));

    if (place == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "names of %zu tensors", size / 2);
    }
    for (size_t i = 0; i < u->count; i++) {
        size_t at =
            dyti_fingerprint_text(DYTI_FINGERPRINT_SEED, u->item[i].desc.name) &
            (size - 1);

        while (place[at] != 0) {
            at = (at + 1) & (size - 1);
        }
        place[at] = (uint32_t)i + 1u;
    }
    free(u->place);
    u->place = place;
    u->size = size;
    return DYT_OK;
}

/* "model.layers.12.mlp.experts.7.w1": the number behind a component; the first
 * number of all is the layer's. */
static int32_t number_after(const char *name, const char *component)
{
    const char *at = name;
    size_t bytes = strlen(component);

    while ((at = strchr(at, '.')) != NULL) {
        const char *head = at;

        at++;
        if (!isdigit((unsigned char)*at)) {
            continue;
        }
        if (bytes == 0 || ((size_t)(head - name) >= bytes &&
                           strncmp(head - bytes, component, bytes) == 0)) {
            long value = strtol(at, NULL, 10);

            return value <= INT32_MAX ? (int32_t)value : -1;
        }
    }
    return -1;
}

/* The item of a name, made if it is new. */
static enum dyt_status item_of(struct union_of *u, const char *name,
                               uint32_t rank, struct known **out_item)
{
    enum dyt_status st = DYT_OK;
    size_t at;

    if (u->count * 2 + 2 > u->size) {
        st = rehash(u, u->size == 0 ? 256 : u->size * 2);
    }
    st = st != DYT_OK ? st : DYTI_GROW(u->item, u->cap, u->count + 1);
    if (st != DYT_OK) {
        return st;
    }
    at = dyti_fingerprint_text(DYTI_FINGERPRINT_SEED, name) & (u->size - 1);
    for (; u->place[at] != 0; at = (at + 1) & (u->size - 1)) {
        if (strcmp(u->item[u->place[at] - 1].desc.name, name) == 0) {
            *out_item = &u->item[u->place[at] - 1];
            return DYT_OK;
        }
    }
    u->item[u->count] =
        (struct known){.desc = {.name = name,
                                .layer = number_after(name, ""),
                                .expert = number_after(name, "experts")},
                       .rank = rank};
    u->place[at] = (uint32_t)++u->count;
    *out_item = &u->item[u->count - 1];
    return DYT_OK;
}

/* ---- one row ------------------------------------------------------------- */

static void take_shape(struct union_of *u, struct known *k, uint32_t ndim,
                       const int64_t *shape, bool said, uint32_t rank)
{
    struct dyti_listed_desc *d = &k->desc;
    bool differs = d->ndim != 0 && d->ndim != ndim;

    if (d->ndim == 0) {
        d->ndim = ndim;
    }
    for (uint32_t i = 0; i < ndim && !differs; i++) {
        if (said && k->said) {
            differs = d->shape[i] != shape[i];
        } else if (said || (!k->said && shape[i] > d->shape[i])) {
            differs = said && d->shape[i] > shape[i];
            d->shape[i] = shape[i];
        } else if (shape[i] > d->shape[i]) {
            differs = true; /* a piece reaches out of the said shape */
        }
    }
    k->said = k->said || said;
    if (differs) {
        dyti_found_add(&u->found, DYT_ERR_LAYOUT,
                       "%s is %s on rank %u and %s on rank %u", d->name,
                       dyti_shape_words(d->ndim, d->shape).text, k->rank,
                       dyti_shape_words(ndim, shape).text, rank);
    }
}

static void take_kind(struct union_of *u, struct known *k,
                      const struct dyt_row *row, uint32_t rank)
{
    bool whole_number = row->dtype == DYT_I32 || row->dtype == DYT_I64;

    k->desc.kinds |= 1u << row->kind;
    if (row->kind == DYT_EXTRA || row->kind == DYT_PARAM) {
        if (k->param_dtype != 0 && k->param_dtype != 1u + row->dtype) {
            dyti_found_add(
                &u->found, DYT_ERR_LAYOUT,
                "%s is %s on one rank and %s on rank %u", k->desc.name,
                dyti_dtype_name((enum dyti_dtype)(k->param_dtype - 1)),
                dyti_dtype_name((enum dyti_dtype)row->dtype), rank);
        }
        k->param_dtype = (uint8_t)(1u + row->dtype);
        k->desc.fixed_dtype = k->desc.fixed_dtype || whole_number;
        k->desc.dtype = (enum dyti_dtype)row->dtype;
    }
}

static enum dyt_status take_whole(struct union_of *u, const struct dyt_row *row,
                                  uint32_t rank)
{
    struct known *k = NULL;
    enum dyt_status st = item_of(u, row->name, rank, &k);
    bool given = false, equal = true;

    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t d = 0; d < row->ndim; d++) {
        given = given || row->global_shape[d] != 0;
        equal = equal && row->global_shape[d] == row->shape[d];
    }
    if (given && !equal) {
        dyti_found_add(&u->found, DYT_ERR_LAYOUT,
                       "row %s of rank %u is %s of a tensor of %s and has no "
                       "piece that says which cut of it",
                       row->name, rank,
                       dyti_shape_words(row->ndim, row->shape).text,
                       dyti_shape_words(row->ndim, row->global_shape).text);
        return DYT_OK;
    }
    take_shape(u, k, row->ndim, row->shape, true, rank);
    take_kind(u, k, row, rank);
    return DYT_OK;
}

/* Where the row says the shape of its one tensor, that; otherwise the furthest
 * that any piece reaches. */
static enum dyt_status take_pieces(struct union_of *u,
                                   const struct dyt_row *row, uint32_t rank)
{
    bool given = false;

    for (uint32_t d = 0; d < row->ndim; d++) {
        given = given || row->global_shape[d] != 0;
    }
    for (uint32_t i = 0; i < row->piece_count; i++) {
        const struct dyt_piece *p = dyti_piece_at(row, i);
        bool one = given && p->box.ndim == row->ndim &&
                   strcmp(p->tensor, dyti_piece_at(row, 0)->tensor) == 0;
        struct known *k = NULL;
        enum dyt_status st = item_of(u, p->tensor, rank, &k);

        if (st != DYT_OK) {
            return st;
        }
        if (given && !one) {
            dyti_found_add(&u->found, DYT_ERR_LAYOUT,
                           "row %s of rank %u gives a global_shape, but has "
                           "pieces of more than one tensor, or of fewer "
                           "dimensions: leave it 0",
                           row->name, rank);
            return DYT_OK;
        }
        take_shape(u, k, p->box.ndim, one ? row->global_shape : p->box.hi, one,
                   rank);
        take_kind(u, k, row, rank);
    }
    return DYT_OK;
}

static enum dyt_status take_row(struct union_of *u, const struct dyt_row *row,
                                uint32_t rank)
{
    if ((row->flags & DYT_ROW_ALIAS) != 0) {
        return DYT_OK;
    }
    return row->piece_count == 0 ? take_whole(u, row, rank)
                                 : take_pieces(u, row, rank);
}

/* ---- the whole ----------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Numbers by their value: layer 2 before layer 10. */
static int compare_names(const char *a, const char *b)
{
    while (*a != '\0' && *b != '\0') {
        if (is_digit(*a) && is_digit(*b)) {
            size_t na = strspn(a, "0"), nb = strspn(b, "0");
            size_t da = strspn(a + na, "0123456789");
            size_t db = strspn(b + nb, "0123456789");
            int c = da != db ? (da < db ? -1 : 1) : memcmp(a + na, b + nb, da);

            if (c != 0 || na != nb) {
                return c != 0 ? c : na < nb ? -1 : 1;
            }
            a += na + da;
            b += nb + db;
        } else if (*a != *b) {
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        } else {
            a++;
            b++;
        }
    }
    return (*a != '\0') - (*b != '\0');
}

static int by_name(const void *a, const void *b)
{
    const struct dyti_listed_desc *one = a, *other = b;

    return compare_names(one->name, other->name);
}

/* Tensors are numbered by their names, not by which rank named them first:
 * however a trainer cuts its tensors, content hashes are the same. */
static enum dyt_status build(struct union_of *u, struct dyti_model **out_model)
{
    struct dyti_listed_desc *desc = calloc(u->count + 1, sizeof(*desc));
    enum dyt_status st;

    if (desc == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a catalogue of %zu tensors", u->count);
    }
    for (size_t i = 0; i < u->count; i++) {
        struct known *k = &u->item[i];

        desc[i] = k->desc;
        if ((k->desc.kinds & 1u << DYTI_EXTRA) == 0) {
            desc[i].kinds |= 1u << DYTI_PARAM; /* what receivers hold */
        }
    }
    qsort(desc, u->count, sizeof(*desc), by_name);
    st = dyti_model_build_listed(desc, u->count, out_model);
    free(desc);
    return st;
}

enum dyt_status dyti_catalogue_build(const struct dyt_view *view,
                                     uint32_t view_count,
                                     struct dyti_model **out_model)
{
    struct union_of u = {.count = 0};
    enum dyt_status st = DYT_OK;

    for (uint32_t r = 0; r < view_count && st == DYT_OK; r++) {
        for (uint64_t i = 0; i < view[r].row_count && st == DYT_OK; i++) {
            st = take_row(&u, dyti_row_at(&view[r], i), r);
        }
    }
    st = st != DYT_OK ? st : dyti_found_finish(&u.found, NULL);
    st = st != DYT_OK ? st : build(&u, out_model);
    if (st != DYT_OK) {
        DYTI_NOTE("making the catalogue of %u ranks", view_count);
    }
    free(u.item);
    free(u.place);
    return st;
}
