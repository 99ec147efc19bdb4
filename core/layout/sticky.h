/* ZeRO cuts that stay where they are when the group grows or shrinks: from a
 * to b owners only (b - a) / b of the flat buffer changes hands growing, and
 * (a - b) / a shrinking.  Pure; the result goes into desc.zero_range.
 *
 * A cut that would leave some owner with more than 2 * resizes + 1 ranges is
 * made anew: one range each, in the order that keeps the most.  From a to b
 * with a < b some owner needs about a / (2 (b - a)) ranges, so a group that
 * grows by little (8 to 9) is cut anew, one that grows by a third is not. */
#ifndef DYTI_LAYOUT_STICKY_H
#define DYTI_LAYOUT_STICKY_H

#include "layout/layout.h"

struct dyti_sticky_cut {
    struct dyti_zero_range *range; /* [range_count] rising; owned */
    uint32_t range_count;
    uint32_t resizes; /* since the cut was last made anew: 0 if it was now */
    uint64_t moved;   /* of DYTI_ZERO_WHOLE: what has another owner now */
};

/**
 * Derive the cut of `owners` from that of `old_owners`.
 *
 * @param old         NULL with old_count 0: even, as the layout cuts it.
 * @param resizes     what the old cut said, 0 for an even one.
 * @param old_of_new  [owners] position that each new one had in the old group,
 *                    -1 = it is new; NULL: position i stays i.
 * @return DYT_ERR_LAYOUT   the old ranges do not cover all, or name an owner
 *                          that the group does not have
 * @return DYT_ERR_INVALID  no owners, or two new ones with one old position
 */
enum dyt_status dyti_sticky_resize(const struct dyti_zero_range *old,
                                   uint32_t old_count, uint32_t old_owners,
                                   uint32_t resizes, const int32_t *old_of_new,
                                   uint32_t owners,
                                   struct dyti_sticky_cut *out_cut);
void dyti_sticky_fini(struct dyti_sticky_cut *cut);

#endif /* DYTI_LAYOUT_STICKY_H */
