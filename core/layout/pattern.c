/* Turns what representatives hold into holders, patterns and geometries:
 * replicas are never listed, only counted into the sets of ranks. */
#include "layout/pattern.h"

#include "layout/dialect.h"
#include "layout/pattern_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- geometries ---------------------------------------------------------- */

/* An earlier kind with the same holders of every tensor, as the dialect knows
 * without listing them; DYTI_KIND_COUNT: none. */
static int find_alike(const struct dyti_pattern_build *b, enum dyti_kind kind)
{
    const struct dyti_layout *layout = b->layout;
    const struct dyti_dialect_ops *ops = dyti_dialect_ops(layout->desc.dialect);

    for (int k = 0; ops != NULL && ops->alike != NULL && k < (int)kind; k++) {
        const uint32_t both = 1u << k | 1u << kind;
        uint32_t t = 0;

        if (b->out->geometry_of[k] == DYTI_NO_GEOMETRY ||
            !ops->alike(layout, (enum dyti_kind)k, kind)) {
            continue;
        }
        while (t < layout->model->tensor_count &&
               ((layout->model->tensor[t].kinds & both) == both ||
                (layout->model->tensor[t].kinds & both) == 0)) {
            t++;
        }
        if (t == layout->model->tensor_count) {
            return k;
        }
    }
    return DYTI_KIND_COUNT;
}

/* Which tensors are listed, and which are held like one of those. */
static void find_first(struct dyti_pattern_build *b, enum dyti_kind kind)
{
    const struct dyti_dialect_ops *ops =
        dyti_dialect_ops(b->layout->desc.dialect);

    if (ops != NULL && ops->first_alike != NULL) {
        ops->first_alike(b->layout, kind, b->first);
        return;
    }
    for (uint32_t t = 0; t < b->layout->model->tensor_count; t++) {
        b->first[t] = t;
    }
}

static enum dyt_status add_kind(struct dyti_pattern_build *b,
                                enum dyti_kind kind)
{
    struct dyti_patterns *p = b->out;
    uint32_t tensors = b->layout->model->tensor_count;
    uint32_t *fresh = p->pattern_of + (size_t)p->geometry_count * tensors;
    int known = find_alike(b, kind);
    enum dyt_status st;

    if (known < DYTI_KIND_COUNT) {
        p->geometry_of[kind] = p->geometry_of[known];
        return DYT_OK;
    }
    find_first(b, kind);
    st = dyti_pattern_group(b, kind);
    st = st != DYT_OK ? st : dyti_pattern_collect(b, kind);
    st = st != DYT_OK ? st : dyti_pattern_sort(b);
    dyti_intern_clear(&b->lists);
    for (uint32_t t = 0; t < tensors && st == DYT_OK; t++) {
        if (b->first[t] == t) {
            st = dyti_pattern_add(b, t, &fresh[t]);
        } else {
            fresh[t] = fresh[b->first[t]];
        }
    }
    if (st != DYT_OK) {
        DYTI_NOTE("listing who holds %s", dyti_kind_name(kind));
        return st;
    }
    for (uint32_t g = 0; g < p->geometry_count; g++) {
        if (memcmp(p->pattern_of + (size_t)g * tensors, fresh,
                   tensors * sizeof(*fresh)) == 0) {
            p->geometry_of[kind] = g;
            return DYT_OK;
        }
    }
    p->geometry_of[kind] = p->geometry_count++;
    return DYT_OK;
}

static enum dyt_status reserve(struct dyti_pattern_build *b)
{
    uint32_t tensors = b->layout->model->tensor_count;
    size_t count = dyti_pattern_holder_count(b->layout);

    b->group_first = calloc(count + 2, sizeof(*b->group_first));
    b->group_rank = calloc(count + 1, sizeof(*b->group_rank));
    b->group_member = calloc(count + 1, sizeof(*b->group_member));
    b->tensor_first = calloc((size_t)tensors + 2, sizeof(*b->tensor_first));
    b->first = calloc((size_t)tensors + 1, sizeof(*b->first));
    b->out->pattern_of = calloc((size_t)tensors * DYTI_KIND_COUNT + 1,
                                sizeof(*b->out->pattern_of));
    return b->group_first != NULL && b->group_rank != NULL &&
                   b->group_member != NULL && b->tensor_first != NULL &&
                   b->first != NULL && b->out->pattern_of != NULL
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_NOMEM, "patterns of %u tensors", tensors);
}

/* The sets, in the form that their readers want. */
static enum dyt_status hand_out_sets(struct dyti_pattern_build *b)
{
    struct dyti_patterns *p = b->out;

    if (b->sets.word_count > UINT32_MAX) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "sets of %zu ranks together",
                         b->sets.word_count);
    }
    p->set_first = calloc(b->sets.count + 1u, sizeof(*p->set_first));
    if (p->set_first == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u sets of ranks", b->sets.count);
    }
    for (uint32_t s = 0; s < b->sets.count; s++) {
        p->set_first[s + 1] = (uint32_t)b->sets.first[s + 1];
    }
    p->set_count = b->sets.count;
    p->set_rank = b->sets.word;
    b->sets.word = NULL;
    return DYT_OK;
}

static void fini(struct dyti_pattern_build *b)
{
    free(b->group_first);
    free(b->group_rank);
    free(b->group_member);
    free(b->entry);
    free(b->order);
    free(b->tensor_first);
    free(b->first);
    free(b->set_of_list);
    free(b->scratch);
    dyti_intern_fini(&b->lists);
    dyti_intern_fini(&b->sets);
    dyti_intern_fini(&b->patterns);
}

enum dyt_status dyti_patterns_build(const struct dyti_layout *layout,
                                    struct dyti_patterns **out_patterns)
{
    struct dyti_pattern_build b = {.layout = layout};
    enum dyt_status st;

    b.out = calloc(1, sizeof(*b.out));
    if (b.out == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "patterns of a layout");
    }
    b.out->layout = layout;
    st = reserve(&b);
    for (int kind = 0; kind < DYTI_KIND_COUNT && st == DYT_OK; kind++) {
        b.out->geometry_of[kind] = DYTI_NO_GEOMETRY;
        if (dyti_layout_holds(layout, (enum dyti_kind)kind)) {
            st = add_kind(&b, (enum dyti_kind)kind);
        }
    }
    st = st != DYT_OK ? st : hand_out_sets(&b);
    fini(&b);
    if (st != DYT_OK) {
        DYTI_NOTE("listing the holders of phase %s", layout->desc.phase);
        dyti_patterns_destroy(b.out);
        return st;
    }
    *out_patterns = b.out;
    return DYT_OK;
}

void dyti_patterns_destroy(struct dyti_patterns *patterns)
{
    if (patterns != NULL) {
        free(patterns->pattern_of);
        free(patterns->pattern);
        free(patterns->holder);
        free(patterns->set_first);
        free(patterns->set_rank);
        free(patterns);
    }
}
