/* Who holds each tensor, seen from the tensor: what the planner works on.
 * in: any layout (lazy ones too)   out: plan/
 *
 *   holder    a box of a tensor and the set of ranks that hold exactly it
 *   pattern   the holders of one tensor in one geometry; tensors of equal
 *             shape with equal holders (equal layers, experts) share one
 *   geometry  kinds whose holders are the same for every tensor share one
 *             (master, exp_avg, exp_avg_sq)
 *   rank set  world ranks in rising order; interned: equal sets, equal number
 *
 * Offsets and strides are not part of it: a rank finds those of its own shards,
 * and of its peers', in views.  Holders of a pattern may overlap (one rank
 * holds rows that are a part of what another holds) and always cover the
 * tensor. */
#ifndef DYTI_LAYOUT_PATTERN_H
#define DYTI_LAYOUT_PATTERN_H

#include "layout/layout.h"

#define DYTI_NO_GEOMETRY UINT32_MAX
#define DYTI_NO_PATTERN  UINT32_MAX

struct dyti_holder {
    struct dyt_box box;
    uint32_t set; /* into dyti_patterns.set_first */
};

struct dyti_pattern {
    uint32_t holder_first, holder_count;
    uint64_t hash;
};

struct dyti_patterns {
    const struct dyti_layout *layout; /* borrowed */
    uint32_t geometry_count;
    uint32_t geometry_of[DYTI_KIND_COUNT]; /* DYTI_NO_GEOMETRY: not held */
    uint32_t *pattern_of; /* [geometry_count][tensor_count] or NO_PATTERN */
    struct dyti_pattern *pattern; /* [pattern_count] */
    uint32_t pattern_count;
    struct dyti_holder *holder; /* [holder_count] by pattern, box.lo, box.hi */
    uint32_t holder_count;
    uint32_t *set_first; /* [set_count + 1] into set_rank */
    uint32_t set_count;
    uint32_t *set_rank;
};

/* Cost: shards of the representatives, not of all ranks. */
enum dyt_status dyti_patterns_build(const struct dyti_layout *layout,
                                    struct dyti_patterns **out_patterns);
void dyti_patterns_destroy(struct dyti_patterns *patterns);

#endif /* DYTI_LAYOUT_PATTERN_H */
