/* Rows by a table of rules: a row is a stack of parts, each a run of a tensor
 * or of one for each expert. */
#include "plugin/rules_apply.h"

#include "plugin/cut.h"
#include "plugin/rows.h"

#include <inttypes.h>
#include <string.h>

#define MOST_PARTS 32u

/* A part with what it is of. */
struct part {
    const struct dyt_rule_part *part;
    uint32_t tensor; /* of the first expert, where it runs over them */
    int64_t experts; /* in all; 0: it does not */
    struct dyti_cut_range range;
    int64_t extent[DYT_MAX_DIMS]; /* [row's ndim] what it takes of the row */
};

/* ---- rows by rules: what the parts are ----------------------------------- */

/* The tensor of a part, of one expert where the part runs over them. */
static uint32_t tensor_of(const struct dyti_apply *a,
                          const struct dyti_at_row *r,
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
static int64_t expert_count(const struct dyti_apply *a,
                            const struct dyti_at_row *r, const struct part *p)
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
static bool find_parts(const struct dyti_apply *a, const struct dyti_at_row *r,
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
static bool measure(struct dyti_apply *a, const struct dyti_at_row *r,
                    struct part *p)
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
static bool check_sum(struct dyti_apply *a, const struct dyti_at_row *r,
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

static bool seen_before(const struct dyti_apply *a, const struct part *p,
                        uint32_t place, int64_t expert)
{
    for (uint32_t i = 0; a->place->expert != NULL && i < place; i++) {
        if (dyti_expert_of_place(a->place, p->experts, i) == expert) {
            return true;
        }
    }
    return false;
}

static void put_expert(struct dyti_apply *a, const struct dyti_at_row *r,
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
    if (dyti_apply_fits(a, r, tensor)) {
        dyti_apply_place(a, r, tensor, &box, at, p->part->transposed != 0,
                         copy || seen_before(a, p, place, expert));
    }
}

/* Of the row where the tensor has fewer elements than its cut. */
static void pad_part(struct dyti_apply *a, const struct dyti_at_row *r,
                     const struct part *p, const int64_t *at)
{
    uint32_t ndim = a->catalogue->tensor[p->tensor].ndim, axis = p->part->axis;
    int64_t held = p->range.hi - p->range.lo;

    if (held < p->range.extent && a->status == DYT_OK) {
        dyti_apply_pad(a, r, at, p->extent,
                       p->part->transposed != 0 && axis + 2 >= ndim
                           ? 2 * ndim - 3 - axis
                           : axis,
                       held);
    }
}

static void put_parts(struct dyti_apply *a, const struct dyti_at_row *r,
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
        } else if (dyti_apply_fits(a, r, p->tensor)) {
            box_of(&a->catalogue->tensor[p->tensor], p, &box);
            dyti_apply_place(a, r, p->tensor, &box, at,
                             p->part->transposed != 0,
                             (r->flags & DYT_ROW_ALIAS) != 0);
            pad_part(a, r, p, at);
        }
        at[stack] += p->extent[stack];
    }
}

static void by_rule(struct dyti_apply *a, struct dyti_at_row *r,
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

void dyti_apply_rules(struct dyti_apply *a, struct dyti_at_row *r)
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
    dyti_apply_unexpected(a, r, known ? first_missing : NULL);
}
