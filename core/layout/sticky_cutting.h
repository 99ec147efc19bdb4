/* What the two files of sticky cuts share. */
#ifndef DYTI_LAYOUT_STICKY_CUTTING_H
#define DYTI_LAYOUT_STICKY_CUTTING_H

#include "layout/sticky.h"

#define DYTI_FREE UINT32_MAX

/* A cut while it is changed. */
struct dyti_cutting {
    struct dyti_zero_range *span; /* covers all, rising; owner = new position or
                                     DYTI_FREE */
    size_t count, cap;
    struct dyti_zero_range *next; /* being rebuilt */
    size_t next_count, next_cap;
    uint32_t owners;
    uint64_t *have; /* [owners] */
    uint32_t *spans_of;
};

/* Where the even share of a position ends. */
static inline uint64_t dyti_share_end(uint32_t owners, uint32_t position)
{
    return DYTI_ZERO_WHOLE * ((uint64_t)position + 1) / owners;
}

/* Append to the rebuilt list; touching spans of one owner are one. */
enum dyt_status dyti_cutting_put(struct dyti_cutting *c, uint64_t lo,
                                 uint64_t hi, uint32_t owner);
/* The rebuilt list takes the place of the old one. */
void dyti_cutting_turn(struct dyti_cutting *c);

/* One even range each: the largest overlaps say who gets which.  `old`: the
 * spans as they were, in new positions. */
enum dyt_status dyti_cut_anew(struct dyti_cutting *c,
                              const struct dyti_zero_range *old,
                              size_t old_count);

#endif /* DYTI_LAYOUT_STICKY_CUTTING_H */
