/* The slow, obvious way to say who holds each tensor: from everybody's views,
 * every kind on its own geometry, every tensor on its own pattern. */
#ifndef DYT_PATTERN_CASES_H
#define DYT_PATTERN_CASES_H

#include "layout/pattern.h"
#include "layout_cases.h"

struct dyt_case_held {
    struct dyt_box box;
    uint32_t rank;
};

static inline int dyt_case_by_held(const void *a, const void *b)
{
    const struct dyt_case_held *x = a, *y = b;
    int order = memcmp(&x->box.ndim, &y->box.ndim, sizeof(x->box.ndim));

    for (uint32_t d = 0; d < x->box.ndim && order == 0; d++) {
        order = (x->box.lo[d] > y->box.lo[d]) - (x->box.lo[d] < y->box.lo[d]);
    }
    for (uint32_t d = 0; d < x->box.ndim && order == 0; d++) {
        order = (x->box.hi[d] > y->box.hi[d]) - (x->box.hi[d] < y->box.hi[d]);
    }
    return order != 0 ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Every set its own number: equal sets are not found out. */
static inline void dyt_case_pattern(const struct dyti_layout *layout,
                                    enum dyti_kind kind, uint32_t tensor,
                                    struct dyti_patterns *p, uint32_t *set_cap)
{
    struct dyt_case_held *held = NULL;
    size_t count = 0, ranks = p->set_first[p->set_count];
    uint32_t first = p->holder_count;

    for (uint32_t r = 0; r < layout->desc.world_size; r++) {
        const struct dyti_view *v = &layout->view[r];

        for (uint32_t i = v->kind_first[kind]; i < v->kind_first[kind + 1];
             i++) {
            if (v->shard[i].tensor == tensor) {
                held = realloc(held, (count + 1) * sizeof(*held));
                assert_non_null(held);
                held[count++] = (struct dyt_case_held){v->shard[i].box, r};
            }
        }
    }
    if (count == 0) {
        return;
    }
    qsort(held, count, sizeof(*held), dyt_case_by_held);
    p->set_rank = realloc(p->set_rank, (ranks + count) * sizeof(uint32_t));
    for (size_t i = 0; i < count; i++) {
        bool again = i > 0 && dyt_case_same_box(&held[i - 1].box, &held[i].box);

        if (again && held[i - 1].rank == held[i].rank) {
            continue;
        }
        if (!again) {
            if (p->set_count + 2 > *set_cap) {
                *set_cap = *set_cap * 2;
                p->set_first =
                    realloc(p->set_first, *set_cap * sizeof(uint32_t));
            }
            p->holder =
                realloc(p->holder, (p->holder_count + 1) * sizeof(*p->holder));
            p->holder[p->holder_count++] =
                (struct dyti_holder){held[i].box, p->set_count++};
        }
        p->set_rank[ranks++] = held[i].rank;
        p->set_first[p->set_count] = (uint32_t)ranks;
    }
    free(held);
    p->pattern =
        realloc(p->pattern, (p->pattern_count + 1) * sizeof(*p->pattern));
    p->pattern[p->pattern_count++] = (struct dyti_pattern){
        .holder_first = first, .holder_count = p->holder_count - first};
}

static inline struct dyti_patterns *dyt_case_patterns(
    const struct dyti_layout *layout)
{
    struct dyti_patterns *p = calloc(1, sizeof(*p));
    uint32_t tensors = layout->model->tensor_count, set_cap = 64;

    assert_non_null(p);
    p->layout = layout;
    p->geometry_count = DYTI_KIND_COUNT;
    p->pattern_of =
        calloc((size_t)tensors * DYTI_KIND_COUNT + 1, sizeof(uint32_t));
    p->set_first = calloc(set_cap, sizeof(uint32_t));
    for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
        uint32_t before = p->pattern_count;

        for (uint32_t t = 0; t < tensors; t++) {
            uint32_t next = p->pattern_count;

            dyt_case_pattern(layout, (enum dyti_kind)k, t, p, &set_cap);
            p->pattern_of[(size_t)k * tensors + t] =
                p->pattern_count > next ? next : DYTI_NO_PATTERN;
        }
        p->geometry_of[k] = p->pattern_count > before ? k : DYTI_NO_GEOMETRY;
    }
    return p;
}

static inline void dyt_case_patterns_free(struct dyti_patterns *p)
{
    free(p->pattern_of);
    free(p->pattern);
    free(p->holder);
    free(p->set_first);
    free(p->set_rank);
    free(p);
}

#endif /* DYT_PATTERN_CASES_H */
