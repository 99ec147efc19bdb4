/* One piece of a row: where it lies, and what of it does not fit. */
#include "plugin/rules_apply.h"

#include "base/array.h"
#include "plugin/near.h"
#include "plugin/rows.h"

void dyti_apply_place(struct dyti_apply *a, const struct dyti_at_row *r,
                      uint32_t tensor, const struct dyt_box *box,
                      const int64_t *at, bool transposed, bool copy)
{
    int64_t stride[DYT_MAX_DIMS], bytes, offset = 0;
    uint32_t lead = r->row->ndim - box->ndim;
    struct dyti_row_piece p = {.row = r->index, .tensor = tensor, .box = *box};

    a->touched[tensor] = 1;
    for (uint32_t d = 0; d < box->ndim; d++) {
        if (box->lo[d] == box->hi[d]) {
            return; /* a rank that has padding only */
        }
    }
    bytes = dyti_dtype_bytes((enum dyti_dtype)r->row->dtype);
    dyti_row_strides(r->row, stride);
    for (uint32_t d = 0; d < r->row->ndim; d++) {
        offset += at[d] * stride[d];
    }
    for (uint32_t d = 0; d < box->ndim; d++) {
        uint32_t turned =
            transposed && d + 2 >= box->ndim ? 2 * box->ndim - 3 - d : d;

        p.stride[d] = stride[lead + turned] * bytes;
    }
    p.offset = (uint64_t)(offset * bytes);
    a->status = DYTI_GROW(a->placed, a->cap, a->count + 1);
    if (a->status == DYT_OK) {
        a->placed[a->count++] = (struct dyti_placed){p, copy};
    }
}

void dyti_apply_pad(struct dyti_apply *a, const struct dyti_at_row *r,
                    const int64_t *at, const int64_t *extent, uint32_t axis,
                    int64_t held)
{
    int64_t stride[DYT_MAX_DIMS], offset = 0;
    int64_t bytes = dyti_dtype_bytes((enum dyti_dtype)r->row->dtype);
    struct dyti_row_pad p = {.row = r->index, .ndim = r->row->ndim};

    dyti_row_strides(r->row, stride);
    for (uint32_t d = 0; d < p.ndim; d++) {
        offset += (at[d] + (d == axis ? held : 0)) * stride[d];
        p.shape[d] = extent[d] - (d == axis ? held : 0);
        p.stride[d] = stride[d] * bytes;
    }
    p.offset = (uint64_t)(offset * bytes);
    a->status = DYTI_GROW(a->pad, a->pad_cap, a->pad_count + 1);
    if (a->status == DYT_OK) {
        a->pad[a->pad_count++] = p;
    }
}

bool dyti_apply_fits(struct dyti_apply *a, const struct dyti_at_row *r,
                     uint32_t tensor)
{
    const struct dyti_tensor *t = &a->catalogue->tensor[tensor];
    bool whole = t->dtype == DYTI_I32 || t->dtype == DYTI_I64;
    bool row_whole = r->row->dtype == DYT_I32 || r->row->dtype == DYT_I64;

    a->touched[tensor] = 1;
    if ((t->kinds >> r->row->kind & 1u) == 0) {
        dyti_found_add(&a->found, DYT_ERR_LAYOUT,
                       "unexpected: row %s is %s, of which %s has none",
                       r->row->name,
                       dyti_kind_name((enum dyti_kind)r->row->kind), t->name);
        return false;
    }
    if ((t->fixed_dtype && whole) != row_whole ||
        (row_whole && r->row->dtype != (uint32_t)t->dtype)) {
        dyti_found_add(&a->found, DYT_ERR_UNSUPPORTED,
                       "row %s is %s, %s is %s: whole numbers are not "
                       "converted; a quantised layer must be served "
                       "unquantised",
                       r->row->name,
                       dyti_dtype_name((enum dyti_dtype)r->row->dtype), t->name,
                       dyti_dtype_name(t->dtype));
        return false;
    }
    return true;
}

void dyti_apply_unexpected(struct dyti_apply *a, const struct dyti_at_row *r,
                           const char *tensor)
{
    const char *refused = dyti_name_refused(r->row->name);
    const char *near_what = tensor == NULL ? r->row->name : tensor;
    struct dyti_near_words near = {""};

    if ((r->flags & DYT_ROW_OPTIONAL) != 0) {
        return;
    }
    if (refused != NULL) {
        dyti_found_add(&a->found, DYT_ERR_UNSUPPORTED, "row %s %s",
                       r->row->name, refused);
        return;
    }
    if (dyti_found_shows(&a->found)) {
        near = dyti_near_words(a->catalogue, near_what);
    }
    if (tensor == NULL) {
        dyti_found_add(&a->found, DYT_ERR_LAYOUT,
                       "unexpected: row %s fits no rule of %s%s", r->row->name,
                       a->rules->family == NULL ? "the table"
                                                : a->rules->family,
                       near.text);
    } else {
        dyti_found_add(&a->found, DYT_ERR_LAYOUT,
                       "unexpected: row %s is made of %s, which the trainer "
                       "does not offer%s",
                       r->row->name, tensor, near.text);
    }
}
