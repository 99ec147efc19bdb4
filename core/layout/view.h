/* Views from what a dialect emits. */
#ifndef DYTI_LAYOUT_VIEW_H
#define DYTI_LAYOUT_VIEW_H

#include "layout/dialect.h"

/* Fill the zeroed view of a member; desc and index of the layout are complete.
 * On failure dyti_view_fini() frees what there is. */
enum dyt_status dyti_view_build(const struct dyti_layout *layout,
                                uint32_t member, struct dyti_view *view);

/* A deep copy.  On failure *out_view is untouched. */
enum dyt_status dyti_view_copy(const struct dyti_view *view,
                               struct dyti_view *out_view);

/* Order the shards of one kind by tensor, then offset. */
void dyti_view_sort(struct dyti_shard *shard, size_t count);

#endif /* DYTI_LAYOUT_VIEW_H */
