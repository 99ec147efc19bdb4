/* A member's rows to pieces of the catalogue's tensors: those that it gave, by
 * rules where it gave none, and as they are named where there are no rules. */
#include "plugin/rules.h"

#include "base/array.h"
#include "plugin/cut.h"
#include "plugin/near.h"
#include "plugin/pattern.h"
#include "plugin/rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PARTS 32u

struct apply {
    const struct dyti_model *catalogue;
    const struct dyt_view *view;
    const struct dyt_rules *rules;
    const struct dyti_place *place;
    struct dyti_placed *placed; /* [count] */
    size_t count, cap;
    uint8_t *touched; /* [tensor_count] some row names it */
    struct dyti_found found;
    enum dyt_status status; /* out of memory */
};

/* The row at hand. */
struct at_row {
    uint32_t index;
    const struct dyt_row *row;
    uint32_t flags; /* with those of its rule */
    struct dyti_captures captures;
};

/* A part with what it is of. */
struct part {
    const struct dyt_rule_part *part;
    uint32_t tensor; /* of the first expert, where it runs over them */
    int64_t experts; /* in all; 0: it does not */
    struct dyti_cut_range range;
    int64_t extent[DYT_MAX_DIMS]; /* [row's ndim] what it takes of the row */
};

/* ---- pieces -------------------------------------------------------------- */

/* `at`: element of the row where box.lo lies. */
static void place_piece(struct apply *a, const struct at_row *r,
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

/* Kind and dtype of a row fit those of a tensor. */
static bool fits(struct apply *a, const struct at_row *r, uint32_t tensor)
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

/* `tensor`: what the row would be; NULL: no rule knows it. */
static void unexpected(struct apply *a, const struct at_row *r,
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

/* ---- rows that say themselves what they hold ----------------------------- */

static void by_pieces(struct apply *a, const struct at_row *r)
{
    for (uint32_t i = 0; i < r->row->piece_count; i++) {
        const struct dyt_piece *p = dyti_piece_at(r->row, i);
        uint32_t tensor = dyti_model_find_name(a->catalogue, p->tensor);
        const struct dyti_tensor *t;
        bool inside = true;

        if (tensor == UINT32_MAX) {
            unexpected(a, r, p->tensor);
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
        if (fits(a, r, tensor)) {
            place_piece(a, r, tensor, &p->box, p->at, p->transposed != 0,
                        (r->flags & DYT_ROW_ALIAS) != 0);
        }
    }
}

static void by_name(struct apply *a, const struct at_row *r)
{
    static const int64_t origin[DYT_MAX_DIMS];
    uint32_t tensor = dyti_model_find_name(a->catalogue, r->row->name);
    const struct dyti_tensor *t;
    struct dyt_box box = {.ndim = r->row->ndim};

    if (tensor == UINT32_MAX) {
        unexpected(a, r, r->row->name);
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
    if (fits(a, r, tensor)) {
        place_piece(a, r, tensor, &box, origin, false,
                    (r->flags & DYT_ROW_ALIAS) != 0);
    }
}

/* ---- rows by rules: what the parts are ----------------------------------- */

/* The tensor of a part, of one expert where the part runs over them. */
static uint32_t tensor_of(const struct apply *a, const struct at_row *r,
                          const struct dyt_rule_part *part, int64_t expert,
                          char name[DYTI_PATTERN_BYTES])
{
    struct dyti_captures captures = r->captures;

    if (part->per_expert == 1) {
        captures.expert = expert;
    }
    return dyti_pattern_fill(part->tensor, &captures, name)
               ? dyti_model_find_name(a->catalogue, name)
               : UINT32_MAX;
}

/* How many experts the catalogue has of a part. */
static int64_t expert_count(const struct apply *a, const struct at_row *r,
                            const struct part *p)
{
    char name[DYTI_PATTERN_BYTES];
    int64_t count = 0;

    if (p->part->per_expert == 2) {
        return a->catalogue->tensor[p->tensor].shape[0];
    }
    while (p->part->per_expert == 1 &&
           tensor_of(a, r, p->part, count, name) != UINT32_MAX) {
        count++;
    }
    return count;
}

/* Whether all tensors of a rule exist; else the first that does not. */
static bool find_parts(const struct apply *a, const struct at_row *r,
                       const struct dyt_rule *rule, struct part *part,
                       char missing[DYTI_PATTERN_BYTES])
{
    for (uint32_t i = 0; i < rule->part_count; i++) {
        part[i] = (struct part){.part = dyti_part_at(rule, i)};
        part[i].tensor = tensor_of(a, r, part[i].part, 0, missing);
        if (part[i].tensor == UINT32_MAX) {
            return false;
        }
    }
    return true;
}

/* The run of its axis and what it takes of the row. */
static bool measure(struct apply *a, const struct at_row *r, struct part *p)
{
    const struct dyt_rule_part *part = p->part;
    const struct dyti_tensor *t = &a->catalogue->tensor[p->tensor];
    uint32_t lead = part->per_expert == 1 ? 1 : 0;
    struct dyti_cut_words why = {""};

    a->touched[p->tensor] = 1;
    if (t->ndim + lead != r->row->ndim || part->axis >= t->ndim ||
        part->stack_axis >= r->row->ndim ||
        (part->transposed != 0 && t->ndim < 2) ||
        (part->per_expert == 2 && part->axis == 0)) {
        dyti_found_add(&a->found, DYT_ERR_LAYOUT,
                       "mismatched: row %s has %u dimensions, its part %s has "
                       "%u and is cut along axis %u",
                       r->row->name, r->row->ndim, t->name, t->ndim,
                       part->axis);
        return false;
    }
    if (!dyti_cut_range(part, a->place, t->shape[part->axis], &p->range,
                        &why)) {
        dyti_found_add(&a->found, DYT_ERR_LAYOUT,
                       "odd: row %s: axis %u of %s: %s", r->row->name,
                       part->axis, t->name, why.text);
        return false;
    }
    p->experts = expert_count(a, r, p);
    for (uint32_t d = 0; d < t->ndim; d++) {
        uint32_t turned =
            part->transposed != 0 && d + 2 >= t->ndim ? 2 * t->ndim - 3 - d : d;

        p->extent[lead + turned] =
            d == part->axis ? p->range.extent : t->shape[d];
    }
    if (part->per_expert != 0) {
        p->extent[0] = dyti_expert_place_count(a->place, p->experts);
    }
    return true;
}

/* The row's shape is what its parts sum to. */
static bool check_sum(struct apply *a, const struct at_row *r,
                      const struct part *part, uint32_t count)
{
    int64_t sum[DYT_MAX_DIMS] = {0};
    uint32_t stack = part[0].part->stack_axis;
    bool equal = true;

    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t d = 0; d < r->row->ndim; d++) {
            equal =
                equal && (i == 0 || d == stack || sum[d] == part[i].extent[d]);
            sum[d] = i == 0 || d != stack ? part[i].extent[d]
                                          : sum[d] + part[i].extent[d];
        }
        equal = equal && part[i].part->stack_axis == stack;
    }
    for (uint32_t d = 0; d < r->row->ndim; d++) {
        equal = equal && sum[d] == r->row->shape[d];
    }
    if (!equal) {
        dyti_found_add(
            &a->found, DYT_ERR_LAYOUT,
            "mismatched: row %s is %s, by rule it is %s (%s first, "
            "tp %u of %u, ep %u of %u)",
            r->row->name, dyti_shape_words(r->row->ndim, r->row->shape).text,
            dyti_shape_words(r->row->ndim, sum).text,
            a->catalogue->tensor[part[0].tensor].name, a->place->tp_rank,
            a->place->tp_size, a->place->ep_rank, a->place->ep_size);
    }
    return equal;
}

/* ---- rows by rules: pieces ----------------------------------------------- */

static void box_of(const struct dyti_tensor *t, const struct part *p,
                   struct dyt_box *out_box)
{
    *out_box = (struct dyt_box){.ndim = t->ndim};
    memcpy(out_box->hi, t->shape, t->ndim * sizeof(int64_t));
    out_box->lo[p->part->axis] = p->range.lo;
    out_box->hi[p->part->axis] = p->range.hi;
}

static bool seen_before(const struct apply *a, const struct part *p,
                        uint32_t place, int64_t expert)
{
    for (uint32_t i = 0; a->place->expert != NULL && i < place; i++) {
        if (dyti_expert_of_place(a->place, p->experts, i) == expert) {
            return true;
        }
    }
    return false;
}

static void put_expert(struct apply *a, const struct at_row *r,
                       const struct part *p, int64_t *at, uint32_t place)
{
    int64_t expert = dyti_expert_of_place(a->place, p->experts, place);
    const struct dyti_tensor *first = &a->catalogue->tensor[p->tensor], *t;
    bool copy = (r->flags & DYT_ROW_ALIAS) != 0;
    char name[DYTI_PATTERN_BYTES];
    uint32_t tensor = p->tensor;
    struct dyt_box box;

    if (expert < 0) {
        return; /* an empty place */
    }
    if (expert >= p->experts) {
        dyti_found_add(&a->found, DYT_ERR_LAYOUT,
                       "odd: row %s: place %u is expert %" PRId64
                       ", the model has %" PRId64,
                       r->row->name, place, expert, p->experts);
        return;
    }
    if (p->part->per_expert == 1) {
        tensor = tensor_of(a, r, p->part, expert, name);
    }
    t = &a->catalogue->tensor[tensor];
    if (t->ndim != first->ndim ||
        memcmp(t->shape, first->shape, t->ndim * sizeof(int64_t)) != 0) {
        dyti_found_add(&a->found, DYT_ERR_LAYOUT,
                       "mismatched: %s is %s, %s is %s: experts of one row are "
                       "alike",
                       first->name,
                       dyti_shape_words(first->ndim, first->shape).text,
                       t->name, dyti_shape_words(t->ndim, t->shape).text);
        return;
    }
    box_of(t, p, &box);
    if (p->part->per_expert == 2) {
        box.lo[0] = expert;
        box.hi[0] = expert + 1;
    }
    at[0] = place;
    if (fits(a, r, tensor)) {
        place_piece(a, r, tensor, &box, at, p->part->transposed != 0,
                    copy || seen_before(a, p, place, expert));
    }
}

static void put_parts(struct apply *a, const struct at_row *r,
                      const struct part *part, uint32_t count)
{
    int64_t at[DYT_MAX_DIMS] = {0};

    for (uint32_t i = 0; i < count && a->status == DYT_OK; i++) {
        const struct part *p = &part[i];
        uint32_t stack = p->part->stack_axis;
        struct dyt_box box;

        if (p->part->per_expert != 0) {
            for (int64_t e = 0; e < p->extent[0]; e++) {
                put_expert(a, r, p, at, (uint32_t)e);
            }
            at[0] = 0;
        } else if (fits(a, r, p->tensor)) {
            box_of(&a->catalogue->tensor[p->tensor], p, &box);
            place_piece(a, r, p->tensor, &box, at, p->part->transposed != 0,
                        (r->flags & DYT_ROW_ALIAS) != 0);
        }
        at[stack] += p->extent[stack];
    }
}

static void by_rule(struct apply *a, struct at_row *r,
                    const struct dyt_rule *rule, struct part *part)
{
    bool sound = true;

    r->flags |= rule->flags;
    for (uint32_t i = 0; i < rule->part_count; i++) {
        sound = measure(a, r, &part[i]) && sound;
    }
    if (sound && rule->part_count > 0 &&
        check_sum(a, r, part, rule->part_count)) {
        put_parts(a, r, part, rule->part_count);
    }
}

/* The first rule whose name fits and whose tensors exist. */
static void by_rules(struct apply *a, struct at_row *r)
{
    char missing[DYTI_PATTERN_BYTES], first_missing[DYTI_PATTERN_BYTES] = "";
    struct part part[MOST_PARTS];
    bool known = false;

    for (size_t i = 0; i < a->rules->rule_count; i++) {
        const struct dyt_rule *rule = dyti_rule_at(a->rules, i);

        if (!dyti_pattern_match(rule->name, r->row->name, &r->captures)) {
            continue;
        }
        if (rule->part_count > MOST_PARTS) {
            dyti_found_add(&a->found, DYT_ERR_INVALID,
                           "rule %s has %u parts: at most %u", rule->name,
                           rule->part_count, MOST_PARTS);
            return;
        }
        if (find_parts(a, r, rule, part, missing)) {
            by_rule(a, r, rule, part);
            return;
        }
        if (!known) {
            memcpy(first_missing, missing, sizeof(missing));
        }
        known = true;
        r->flags |= rule->flags & DYT_ROW_OPTIONAL;
    }
    unexpected(a, r, known ? first_missing : NULL);
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
static void remark_missing(const struct apply *a, char *text, size_t bytes)
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

static enum dyt_status hand_out(struct apply *a, struct dyti_row_pieces *out)
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
    *out = (struct dyti_row_pieces){piece, a->count};
    return DYT_OK;
}

static void apply_all(struct apply *a)
{
    for (uint64_t i = 0; i < a->view->row_count && a->status == DYT_OK; i++) {
        struct at_row r = {.index = (uint32_t)i,
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
            by_rules(a, &r);
        }
    }
}

enum dyt_status dyti_rules_apply(const struct dyti_model *catalogue,
                                 const struct dyt_view *view,
                                 const struct dyt_rules *rules,
                                 const struct dyti_place *place,
                                 struct dyti_row_pieces *out_pieces)
{
    struct apply a = {
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
    return st;
}

void dyti_row_pieces_fini(struct dyti_row_pieces *pieces)
{
    free(pieces->piece);
    *pieces = (struct dyti_row_pieces){0};
}
