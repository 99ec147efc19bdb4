/* What the files that look for collectives share: the search, sorting without a
 * global, and the answer as it grows. */
#ifndef DYTI_SCHED_PROMOTE_INTERNAL_H
#define DYTI_SCHED_PROMOTE_INTERNAL_H

#include "sched/promote.h"

#include <stdbool.h>

/* Items of one content from one rank: positions in `sorted`. */
struct dyti_promote_group {
    uint32_t wave, root;
    uint32_t item_first, item_count;     /* in search.sorted */
    uint32_t member_first, member_count; /* in search.member */
    uint64_t bytes;
    const uint32_t *members; /* for sorting */
};

struct dyti_promote_search {
    const struct dyti_promotable *item;
    size_t count;
    struct dyti_promote_options options;
    uint32_t *sorted; /* [count] */
    bool *taken;      /* [count] by item */
    struct dyti_promote_group *group;
    size_t group_count, group_cap;
    uint32_t *member;
    size_t member_count, member_cap;
    struct dyti_promotion out;
    size_t collective_cap, out_member_cap, out_item_cap;
};

enum dyti_promote_order {
    DYTI_PROMOTE_BY_CONTENT,
    DYTI_PROMOTE_BY_SOURCE,
    DYTI_PROMOTE_BY_DESTINATION
};

static inline bool dyti_promote_wants(const struct dyti_promote_search *s,
                                      enum dyti_collective_kind kind)
{
    return (s->options.kinds >> kind & 1u) != 0;
}

/* ---- promote.c ----------------------------------------------------------- */

/* Sorts what is not taken into s->sorted. */
enum dyt_status dyti_promote_sort(struct dyti_promote_search *s,
                                  enum dyti_promote_order by,
                                  size_t *out_count);
enum dyt_status dyti_promote_begin(struct dyti_promote_search *s,
                                   enum dyti_collective_kind kind,
                                   const struct dyti_promote_group *g,
                                   uint64_t bytes, const uint32_t *member);
/* Adds sorted[first, first + count) to the collective begun last. */
enum dyt_status dyti_promote_take(struct dyti_promote_search *s, uint32_t first,
                                  uint32_t count);

/* ---- promote_same.c: broadcasts and all-gathers -------------------------- */

enum dyt_status dyti_promote_same(struct dyti_promote_search *s);

/* ---- promote_stars.c: scatters and gathers ------------------------------- */

enum dyt_status dyti_promote_stars(struct dyti_promote_search *s,
                                   enum dyti_collective_kind kind);

#endif /* DYTI_SCHED_PROMOTE_INTERNAL_H */
