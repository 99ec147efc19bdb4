/* A rank's own list of shards, made by the rules of the native dialect. */
#ifndef DYTI_LAYOUT_VIEW_H
#define DYTI_LAYOUT_VIEW_H

#include "layout/layout.h"

/* Fill the view of a member; desc of the layout is complete.  On failure the
 * view holds what its owner frees anyway. */
enum dyt_status dyti_view_build(const struct dyti_layout *layout,
                                uint32_t member, struct dyti_view *view);

#endif /* DYTI_LAYOUT_VIEW_H */
