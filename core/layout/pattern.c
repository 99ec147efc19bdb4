/* Turns what representatives hold into holders, patterns and geometries:
 * replicas are never listed, only counted into the sets of ranks. */
#include "layout/pattern.h"

#include "base/array.h"
#include "base/hash.h"
#include "layout/dialect.h"
#include "layout/intern.h"

#include <stdlib.h>
#include <string.h>

#define BOX_WORDS (4u * DYT_MAX_DIMS + 2u)

/* A box that a representative holds. */
struct entry {
    struct dyt_box box;
    uint32_t tensor;
    uint32_t group; /* index of the representative among those of this kind */
};

struct build {
    const struct dyti_layout *layout;
    struct dyti_patterns *out;
    /* Of the kind at hand: members that hold the same, as ranks. */
    uint32_t *group_first, *group_rank; /* [group_count + 1], [members] */
    uint32_t *group_member;             /* [group_count] the representative */
    uint32_t group_count;
    struct entry *entry; /* as emitted */
    size_t entry_count, entry_cap;
    uint32_t *order; /* entries by tensor, box, group */
    size_t order_cap;
    size_t *tensor_first;     /* [tensor_count + 1] into order */
    struct dyti_intern lists; /* groups that hold a box together */
    uint32_t *set_of_list;    /* [lists.count] */
    size_t set_of_list_cap;
    uint32_t at_group; /* being emitted */
    uint32_t *first;   /* [tensor_count] that a tensor is held like */
    /* Of all kinds. */
    struct dyti_intern sets, patterns;
    size_t pattern_cap, holder_cap;
    uint32_t *scratch;
    size_t scratch_cap;
};

/* ---- who holds the same -------------------------------------------------- */

/* Lists hold what ranks hold, so each rank stands for itself. */
static uint32_t holder_count_of(const struct dyti_layout *layout)
{
    return layout->desc.dialect == DYTI_DIALECT_LIST ? layout->desc.world_size
                                                     : layout->member_count;
}

static void group_by(struct build *b, const uint32_t *group_of, uint32_t count)
{
    const struct dyti_layout *layout = b->layout;
    bool list = layout->desc.dialect == DYTI_DIALECT_LIST;

    memset(b->group_first, 0, (count + 2u) * sizeof(*b->group_first));
    for (uint32_t m = 0; m < count; m++) {
        b->group_first[group_of[m] + 2]++;
    }
    for (uint32_t g = 2; g < b->group_count + 2; g++) {
        b->group_first[g] += b->group_first[g - 1];
    }
    for (uint32_t m = 0; m < count; m++) {
        b->group_rank[b->group_first[group_of[m] + 1]++] =
            list ? m : layout->desc.ranks[m];
    }
}

/* Number the representatives of a kind and list the ranks of each. */
static enum dyt_status group_members(struct build *b, enum dyti_kind kind)
{
    const struct dyti_dialect_ops *ops =
        dyti_dialect_ops(b->layout->desc.dialect);
    uint32_t count = holder_count_of(b->layout);
    uint32_t *group_of = malloc((count + 1u) * sizeof(*group_of));

    if (group_of == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u members", count);
    }
    b->group_count = 0;
    for (uint32_t m = 0; m < count; m++) {
        uint32_t lowest =
            ops == NULL ? m : ops->representative(b->layout, m, kind);

        if (lowest == m) {
            b->group_member[b->group_count] = m;
            group_of[m] = b->group_count++;
        } else {
            group_of[m] = group_of[lowest];
        }
    }
    group_by(b, group_of, count);
    free(group_of);
    return DYT_OK;
}

/* ---- what they hold ------------------------------------------------------ */

static enum dyt_status take(void *self, const struct dyti_shard *shard)
{
    struct build *b = self;
    enum dyt_status st;

    if (b->entry_count == UINT32_MAX) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "more than %u boxes in one layout",
                         UINT32_MAX);
    }
    st = DYTI_GROW(b->entry, b->entry_cap, b->entry_count + 1);
    if (st == DYT_OK) {
        b->entry[b->entry_count++] = (struct entry){
            .box = shard->box, .tensor = shard->tensor, .group = b->at_group};
    }
    return st;
}

static enum dyt_status take_view(struct build *b, uint32_t rank,
                                 enum dyti_kind kind)
{
    const struct dyti_view *view = &b->layout->view[rank];
    enum dyt_status st = DYT_OK;

    for (uint32_t i = view->kind_first[kind];
         i < view->kind_first[kind + 1] && st == DYT_OK; i++) {
        st = take(b, &view->shard[i]);
    }
    return st;
}

static enum dyt_status collect(struct build *b, enum dyti_kind kind)
{
    const struct dyti_dialect_ops *ops =
        dyti_dialect_ops(b->layout->desc.dialect);
    const struct dyti_shard_sink sink = {
        .self = b, .shard = take, .once = true};
    enum dyt_status st = DYT_OK;

    b->entry_count = 0;
    for (uint32_t g = 0; g < b->group_count && st == DYT_OK; g++) {
        struct dyti_part part;
        uint64_t bytes;

        b->at_group = g;
        if (ops == NULL) {
            st = take_view(b, b->group_member[g], kind);
        } else {
            dyti_layout_part(b->layout, b->group_member[g], &part);
            st = ops->emit(b->layout, &part, kind, &sink, &bytes);
        }
    }
    return st;
}

static int compare_boxes(const struct dyt_box *a, const struct dyt_box *b)
{
    for (uint32_t d = 0; d < a->ndim; d++) {
        if (a->lo[d] != b->lo[d]) {
            return a->lo[d] < b->lo[d] ? -1 : 1;
        }
    }
    for (uint32_t d = 0; d < a->ndim; d++) {
        if (a->hi[d] != b->hi[d]) {
            return a->hi[d] < b->hi[d] ? -1 : 1;
        }
    }
    return 0;
}

static int by_box(const void *x, const void *y, void *entries)
{
    const struct entry *a =
        (const struct entry *)entries + *(const uint32_t *)x;
    const struct entry *b =
        (const struct entry *)entries + *(const uint32_t *)y;
    int order = compare_boxes(&a->box, &b->box);

    return order != 0 ? order : (a->group > b->group) - (a->group < b->group);
}

static enum dyt_status sort_entries(struct build *b)
{
    uint32_t tensors = b->layout->model->tensor_count;
    size_t *first = b->tensor_first;
    enum dyt_status st = DYTI_GROW(b->order, b->order_cap, b->entry_count + 1);

    if (st != DYT_OK) {
        return st;
    }
    memset(first, 0, (tensors + 2u) * sizeof(*first));
    for (size_t i = 0; i < b->entry_count; i++) {
        first[b->entry[i].tensor + 2]++;
    }
    for (uint32_t t = 2; t < tensors + 2; t++) {
        first[t] += first[t - 1];
    }
    for (size_t i = 0; i < b->entry_count; i++) {
        b->order[first[b->entry[i].tensor + 1]++] = (uint32_t)i;
    }
    for (uint32_t t = 0; t < tensors; t++) {
        if (first[t + 1] - first[t] > 1) {
            qsort_r(b->order + first[t], first[t + 1] - first[t],
                    sizeof(*b->order), by_box, b->entry);
        }
    }
    return DYT_OK;
}

/* ---- sets of ranks ------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* The set of all ranks of a list of groups. */
static enum dyt_status set_of_groups(struct build *b, const uint32_t *group,
                                     size_t count, uint32_t *out_set)
{
    size_t ranks = 0;
    bool fresh;
    enum dyt_status st;

    for (size_t i = 0; i < count; i++) {
        ranks += b->group_first[group[i] + 1] - b->group_first[group[i]];
    }
    st = DYTI_GROW(b->scratch, b->scratch_cap, ranks + 1);
    if (st != DYT_OK) {
        return st;
    }
    ranks = 0;
    for (size_t i = 0; i < count; i++) {
        for (uint32_t r = b->group_first[group[i]];
             r < b->group_first[group[i] + 1]; r++) {
            b->scratch[ranks++] = b->group_rank[r];
        }
    }
    qsort(b->scratch, ranks, sizeof(*b->scratch), by_number);
    return dyti_intern_add(&b->sets, b->scratch, ranks, out_set, &fresh);
}

/* The set behind a list of groups, found again by the list. */
static enum dyt_status set_of_list(struct build *b, const uint32_t *group,
                                   size_t count, uint32_t *out_set)
{
    uint32_t list, set;
    bool fresh;
    enum dyt_status st =
        dyti_intern_add(&b->lists, group, count, &list, &fresh);

    if (st == DYT_OK && fresh) {
        /* `group` may be the scratch that this uses: read the kept copy. */
        st =
            set_of_groups(b, b->lists.word + b->lists.first[list], count, &set);
        st = st != DYT_OK ? st
                          : DYTI_GROW(b->set_of_list, b->set_of_list_cap,
                                      b->lists.count);
        if (st == DYT_OK) {
            b->set_of_list[list] = set;
        }
    }
    if (st == DYT_OK) {
        *out_set = b->set_of_list[list];
    }
    return st;
}

/* ---- patterns ------------------------------------------------------------ */

static uint64_t hash_pattern(const struct build *b, uint32_t first)
{
    const struct dyti_patterns *p = b->out;
    uint64_t state = DYTI_FINGERPRINT_SEED;

    for (uint32_t h = first; h < p->holder_count; h++) {
        const struct dyt_box *box = &p->holder[h].box;

        for (uint32_t d = 0; d < box->ndim; d++) {
            state = dyti_fingerprint_u64(state, (uint64_t)box->lo[d]);
            state = dyti_fingerprint_u64(state, (uint64_t)box->hi[d]);
        }
        state = dyti_fingerprint_u64(state, b->sets.hash[p->holder[h].set]);
    }
    return state;
}

/* The number of the pattern made of the holders behind `first`; they go again
 * if it is known. */
static enum dyt_status intern_pattern(struct build *b,
                                      const struct dyti_tensor *t,
                                      uint32_t first, uint32_t *out_pattern)
{
    struct dyti_patterns *p = b->out;
    size_t count = (size_t)(p->holder_count - first), words = 0;
    bool fresh;
    enum dyt_status st = DYTI_GROW(b->scratch, b->scratch_cap,
                                   2 * DYT_MAX_DIMS + count * BOX_WORDS);

    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t d = 0; d < t->ndim; d++) {
        b->scratch[words++] = (uint32_t)t->shape[d];
        b->scratch[words++] = (uint32_t)((uint64_t)t->shape[d] >> 32);
    }
    for (uint32_t h = first; h < p->holder_count; h++) {
        const struct dyt_box *box = &p->holder[h].box;

        for (uint32_t d = 0; d < box->ndim; d++) {
            b->scratch[words++] = (uint32_t)box->lo[d];
            b->scratch[words++] = (uint32_t)((uint64_t)box->lo[d] >> 32);
            b->scratch[words++] = (uint32_t)box->hi[d];
            b->scratch[words++] = (uint32_t)((uint64_t)box->hi[d] >> 32);
        }
        b->scratch[words++] = p->holder[h].set;
    }
    st = dyti_intern_add(&b->patterns, b->scratch, words, out_pattern, &fresh);
    if (st != DYT_OK || !fresh) {
        p->holder_count = first;
        return st;
    }
    st = DYTI_GROW(p->pattern, b->pattern_cap, p->pattern_count + 1u);
    if (st == DYT_OK) {
        p->pattern[p->pattern_count++] =
            (struct dyti_pattern){.holder_first = first,
                                  .holder_count = (uint32_t)count,
                                  .hash = hash_pattern(b, first)};
    }
    return st;
}

/* Holders of one tensor: a run of equal boxes is one. */
static enum dyt_status add_tensor(struct build *b, uint32_t tensor,
                                  uint32_t *out_pattern)
{
    struct dyti_patterns *p = b->out;
    size_t end = b->tensor_first[tensor + 1], i = b->tensor_first[tensor];
    uint32_t first = p->holder_count;

    if (i == end) {
        *out_pattern = DYTI_NO_PATTERN;
        return DYT_OK;
    }
    while (i < end) {
        const struct entry *e = &b->entry[b->order[i]];
        size_t count = 0;
        uint32_t set;
        enum dyt_status st = DYTI_GROW(b->scratch, b->scratch_cap, end - i + 1);

        for (; st == DYT_OK && i < end; i++) {
            const struct entry *next = &b->entry[b->order[i]];

            if (compare_boxes(&e->box, &next->box) != 0) {
                break;
            }
            if (count == 0 || b->scratch[count - 1] != next->group) {
                b->scratch[count++] = next->group;
            }
        }
        st = st != DYT_OK ? st : set_of_list(b, b->scratch, count, &set);
        st = st != DYT_OK
                 ? st
                 : DYTI_GROW(p->holder, b->holder_cap, p->holder_count + 1u);
        if (st != DYT_OK) {
            return st;
        }
        p->holder[p->holder_count++] =
            (struct dyti_holder){.box = e->box, .set = set};
    }
    return intern_pattern(b, &b->layout->model->tensor[tensor], first,
                          out_pattern);
}

/* ---- geometries ---------------------------------------------------------- */

/* An earlier kind with the same holders of every tensor, as the dialect knows
 * without listing them; DYTI_KIND_COUNT: none. */
static int find_alike(const struct build *b, enum dyti_kind kind)
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
static void find_first(struct build *b, enum dyti_kind kind)
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

static enum dyt_status add_kind(struct build *b, enum dyti_kind kind)
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
    st = group_members(b, kind);
    st = st != DYT_OK ? st : collect(b, kind);
    st = st != DYT_OK ? st : sort_entries(b);
    dyti_intern_clear(&b->lists);
    for (uint32_t t = 0; t < tensors && st == DYT_OK; t++) {
        if (b->first[t] == t) {
            st = add_tensor(b, t, &fresh[t]);
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

static enum dyt_status reserve(struct build *b)
{
    uint32_t tensors = b->layout->model->tensor_count;
    size_t count = holder_count_of(b->layout);

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
static enum dyt_status hand_out_sets(struct build *b)
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

static void fini(struct build *b)
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
    struct build b = {.layout = layout};
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
