/* Geometry of sound boxes of one tensor, without the checks of the C API. */
#ifndef DYTI_PLAN_BOXES_H
#define DYTI_PLAN_BOXES_H

#include <dynatrain/box.h>
#include <stdbool.h>

/* Overlap; false, and *out undefined, if there is none. */
bool dyti_boxes_overlap(const struct dyt_box *a, const struct dyt_box *b,
                        struct dyt_box *out);

/* `whole` without `hole`, which lies inside it: at most 2*ndim boxes that do
 * not overlap.  Returns how many. */
uint32_t dyti_boxes_without(const struct dyt_box *whole,
                            const struct dyt_box *hole,
                            struct dyt_box out[2 * DYT_MAX_DIMS]);

/* If both together are a box, make *a that box. */
bool dyti_boxes_join(struct dyt_box *a, const struct dyt_box *b);

uint64_t dyti_boxes_elements(const struct dyt_box *box);

#endif /* DYTI_PLAN_BOXES_H */
