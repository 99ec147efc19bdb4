/* What of a tensor's axis a member holds, by a part of a rule. */
#ifndef DYTI_PLUGIN_CUT_H
#define DYTI_PLUGIN_CUT_H

#include "plugin/resolve.h"

/* A run of an axis, and the elements that it takes in the row: more than
 * hi - lo where padding follows. */
struct dyti_cut_range {
    int64_t lo, hi, extent;
};

struct dyti_cut_words {
    char text[160];
};

/* `size` elements of the axis.  False: it cannot be cut so, *out_why says why.
 */
bool dyti_cut_range(const struct dyt_rule_part *part,
                    const struct dyti_place *place, int64_t size,
                    struct dyti_cut_range *out_range,
                    struct dyti_cut_words *out_why);

/* Experts of a member, of `experts` in all: the i-th in order of their places,
 * -1 = an empty place; and how many places it has. */
uint32_t dyti_expert_place_count(const struct dyti_place *place,
                                 int64_t experts);
int64_t dyti_expert_of_place(const struct dyti_place *place, int64_t experts,
                             uint32_t i);

/* An attribute of a place by name; false: it was not given. */
bool dyti_attribute_find(const struct dyti_place *place, const char *name,
                         int64_t *out_value);

#endif /* DYTI_PLUGIN_CUT_H */
