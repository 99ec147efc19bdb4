/* Ranks of a layout, one after the other: buffers of the framework, shards in
 * them, bytes and strides.  Text, JSON (docs/layout-schema.md) and a drawing of
 * one tensor.  Views are built one at a time, so that a layout may be lazy and
 * its world large. */
#ifndef DYTI_EXPLAIN_VIEWS_H
#define DYTI_EXPLAIN_VIEWS_H

#include "base/json_out.h"
#include "layout/layout.h"

#include <stdio.h>

#define DYTI_LAYOUT_SCHEMA "dynatrain.layout/1"

/* What to show; all of it where a member says "any". */
struct dyti_views_show {
    int64_t rank;     /* -1: any */
    uint32_t tensor;  /* UINT32_MAX: any */
    int32_t kind;     /* -1: any */
    const char *spec; /* the layout on one line, as it was understood */
    FILE *drain; /* JSON: ranks that are done go there, so that memory is that
                    of one rank; NULL: all stays in the writer */
};

/* One line a rank; with a rank or a tensor chosen, every buffer and shard. */
enum dyt_status dyti_explain_views(const struct dyti_layout *layout,
                                   const struct dyti_views_show *show,
                                   FILE *out);
/* All of it.  DYT_ERR_LAYOUT, DYT_ERR_NOMEM: a view cannot be built. */
enum dyt_status dyti_explain_views_json(const struct dyti_layout *layout,
                                        const struct dyti_views_show *show,
                                        struct dyti_json *json);
/* show->tensor and show->kind are chosen. */
enum dyt_status dyti_explain_tensor_svg(const struct dyti_layout *layout,
                                        const struct dyti_views_show *show,
                                        FILE *out);

#endif /* DYTI_EXPLAIN_VIEWS_H */
