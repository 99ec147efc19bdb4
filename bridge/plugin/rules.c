/* A member's rows to pieces of the catalogue's tensors: those that it gave, by
 * rules where it gave none, and as they are named where there are no rules. */
#include "plugin/rules_apply.h"

#include "plugin/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows that say themselves what they hold ----------------------------- */

static void by_pieces(struct dyti_apply *a, const struct dyti_at_row *r)
{
    for (uint32_t i = 0; i < r->row->piece_count; i++) {
        const struct dyt_piece *p = dyti_piece_at(r->row, i);
        uint32_t tensor = dyti_model_find_name(a->catalogue, p->tensor);
        const struct dyti_tensor *t;
        bool inside = true;

        if (tensor == UINT32_MAX) {
            dyti_apply_unexpected(a, r, p->tensor);
            continue;
        }
        t = &a->catalogue->tensor[tensor];
        inside = p->box.ndim == t->ndim;
        for (uint32_t d = 0; inside && d < t->ndim; d++) {
            inside = p->box.hi[d] <= t->shape[d];
        }
        if (!inside) {
            dyti_found_add(&a->found, DYT_ERR_LAYOUT,
                           "mismatched: row %s, piece %u of %s: %s to %s of a "
                           "tensor of %s",
                           r->row->name, i, t->name,
                           dyti_shape_words(p->box.ndim, p->box.lo).text,
                           dyti_shape_words(p->box.ndim, p->box.hi).text,
                           dyti_shape_words(t->ndim, t->shape).text);
            continue;
        }
        if (dyti_apply_fits(a, r, tensor)) {
            dyti_apply_place(a, r, tensor, &p->box, p->at, p->transposed != 0,
                             (r->flags & DYT_ROW_ALIAS) != 0);
        }
    }
}

static void by_name(struct dyti_apply *a, const struct dyti_at_row *r)
{
    static const int64_t origin[DYT_MAX_DIMS];
    uint32_t tensor = dyti_model_find_name(a->catalogue, r->row->name);
    const struct dyti_tensor *t;
    struct dyt_box box = {.ndim = r->row->ndim};

    if (tensor == UINT32_MAX) {
        dyti_apply_unexpected(a, r, r->row->name);
        return;
    }
    t = &a->catalogue->tensor[tensor];
    if (t->ndim != r->row->ndim ||
        memcmp(t->shape, r->row->shape, t->ndim * sizeof(int64_t)) != 0) {
        a->touched[tensor] = 1;
        dyti_found_add(&a->found, DYT_ERR_LAYOUT,
                       "mismatched: row %s is %s, the tensor %s; rules or "
                       "pieces say which cut a row is",
                       r->row->name,
                       dyti_shape_words(r->row->ndim, r->row->shape).text,
                       dyti_shape_words(t->ndim, t->shape).text);
        return;
    }
    memcpy(box.hi, t->shape, t->ndim * sizeof(int64_t));
    if (dyti_apply_fits(a, r, tensor)) {
        dyti_apply_place(a, r, tensor, &box, origin, false,
                         (r->flags & DYT_ROW_ALIAS) != 0);
    }
}

/* ---- the whole ----------------------------------------------------------- */

static enum dyt_status check_place(const struct dyti_place *p)
{
    if (p->tp_size == 0 || p->tp_rank >= p->tp_size || p->ep_size == 0 ||
        p->ep_rank >= p->ep_size) {
        return DYTI_FAIL(
            DYT_ERR_INVALID,
            "a member at tp %u of %u, ep %u of %u: ranks are below "
            "their sizes, which are at least 1",
            p->tp_rank, p->tp_size, p->ep_rank, p->ep_size);
    }
    if ((p->expert == NULL && p->expert_count > 0) ||
        (p->attribute == NULL && p->attribute_count > 0)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "a member with %u experts and %u attributes, but "
                         "without the lists of them",
                         p->expert_count, p->attribute_count);
    }
    return DYT_OK;
}

static int by_row(const void *x, const void *y)
{
    const struct dyti_row_piece *a = &((const struct dyti_placed *)x)->piece;
    const struct dyti_row_piece *b = &((const struct dyti_placed *)y)->piece;

    if (a->row != b->row) {
        return a->row < b->row ? -1 : 1;
    }
    return (a->offset > b->offset) - (a->offset < b->offset);
}

/* Tensors that no row of this member names: with faults of its rows they may be
 * what was meant. */
static void remark_missing(const struct dyti_apply *a, char *text, size_t bytes)
{
    uint32_t count = 0, shown = 0;
    size_t used;

    for (uint32_t t = 0; t < a->catalogue->tensor_count; t++) {
        count += a->touched[t] == 0;
    }
    if (count == 0) {
        text[0] = '\0';
        return;
    }
    used = (size_t)snprintf(text, bytes, "missing on this member: %u tensors,",
                            count);
    for (uint32_t t = 0; t < a->catalogue->tensor_count && shown < 3; t++) {
        const char *name = a->catalogue->tensor[t].name;

        if (a->touched[t] == 0 && used + strlen(name) + 8 < bytes) {
            used += (size_t)snprintf(text + used, bytes - used, "%s %s",
                                     shown == 0 ? "" : ",", name);
            shown++;
        }
    }
    if (shown < count && used + 6 < bytes) {
        (void)snprintf(text + used, bytes - used, ", …");
    }
}

static enum dyt_status hand_out(struct dyti_apply *a,
                                struct dyti_row_pieces *out)
{
    struct dyti_row_piece *piece = malloc((a->count + 1) * sizeof(*piece));

    if (piece == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu pieces", a->count);
    }
    if (a->count > 1) {
        qsort(a->placed, a->count, sizeof(*a->placed), by_row);
    }
    for (size_t i = 0; i < a->count; i++) {
        piece[i] = a->placed[i].piece;
    }
    *out = (struct dyti_row_pieces){piece, a->count, a->pad, a->pad_count};
    a->pad = NULL; /* moved */
    return DYT_OK;
}

static void apply_all(struct dyti_apply *a)
{
    for (uint64_t i = 0; i < a->view->row_count && a->status == DYT_OK; i++) {
        struct dyti_at_row r = {.index = (uint32_t)i,
                                .row = dyti_row_at(a->view, i)};

        r.flags = r.row->flags;
        if ((r.flags & DYT_ROW_ALIAS) != 0 && (r.flags & DYT_ROW_STAGED) == 0) {
            continue; /* the row before it holds the memory */
        }
        if (r.row->piece_count > 0) {
            by_pieces(a, &r);
        } else if (a->rules == NULL) {
            by_name(a, &r);
        } else {
            dyti_apply_rules(a, &r);
        }
    }
}

enum dyt_status dyti_rules_apply(const struct dyti_model *catalogue,
                                 const struct dyt_view *view,
                                 const struct dyt_rules *rules,
                                 const struct dyti_place *place,
                                 struct dyti_row_pieces *out_pieces)
{
    struct dyti_apply a = {
        .catalogue = catalogue, .view = view, .rules = rules, .place = place};
    char remark[400];
    enum dyt_status st = check_place(place);

    st = st != DYT_OK || rules == NULL ? st : dyti_rules_check(rules);
    if (st != DYT_OK) {
        return st;
    }
    a.touched = calloc(catalogue->tensor_count, 1);
    if (a.touched == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u tensors", catalogue->tensor_count);
    }
    apply_all(&a);
    st = a.status;
    st = st != DYT_OK
             ? st
             : dyti_doubles_find(catalogue, view, a.placed, a.count, &a.found);
    if (st == DYT_OK && a.found.count > 0) {
        remark_missing(&a, remark, sizeof(remark));
        st = dyti_found_finish(&a.found, remark[0] == '\0' ? NULL : remark);
    }
    st = st != DYT_OK ? st : hand_out(&a, out_pieces);
    free(a.touched);
    free(a.placed);
    free(a.pad);
    return st;
}

void dyti_row_pieces_fini(struct dyti_row_pieces *pieces)
{
    free(pieces->piece);
    free(pieces->pad);
    *pieces = (struct dyti_row_pieces){0};
}
