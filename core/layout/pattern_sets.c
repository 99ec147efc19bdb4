/* Which ranks hold each box of a tensor, and is there a pattern already that is
 * the same? */
#include "base/array.h"
#include "base/hash.h"
#include "layout/pattern_internal.h"

#include <stdlib.h>

#define BOX_WORDS (4u * DYT_MAX_DIMS + 2u)

/* ---- sets of ranks ------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* The set of all ranks of a list of groups. */
static enum dyt_status set_of_groups(struct dyti_pattern_build *b,
                                     const uint32_t *group, size_t count,
                                     uint32_t *out_set)
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
static enum dyt_status set_of_list(struct dyti_pattern_build *b,
                                   const uint32_t *group, size_t count,
                                   uint32_t *out_set)
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

static uint64_t hash_pattern(const struct dyti_pattern_build *b, uint32_t first)
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
static enum dyt_status intern_pattern(struct dyti_pattern_build *b,
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
enum dyt_status dyti_pattern_add(struct dyti_pattern_build *b, uint32_t tensor,
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
        const struct dyti_pattern_entry *e = &b->entry[b->order[i]];
        size_t count = 0;
        uint32_t set;
        enum dyt_status st = DYTI_GROW(b->scratch, b->scratch_cap, end - i + 1);

        for (; st == DYT_OK && i < end; i++) {
            const struct dyti_pattern_entry *next = &b->entry[b->order[i]];

            if (dyti_pattern_compare(&e->box, &next->box) != 0) {
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
