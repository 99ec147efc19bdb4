/* Finds the sources of one destination shard. */
#ifndef DYTI_PLAN_COVER_H
#define DYTI_PLAN_COVER_H

#include "plan/index.h"
#include "plan/plan.h"

struct dyti_candidate; /* a source shard that touches the destination shard */

/* The planner: indices of all sources and scratch that grows once. */
struct dyti_cover {
    const struct dyti_plan_inputs *inputs; /* borrowed */
    /* [want][source]; equal (layout, kind) share one index */
    const struct dyti_index *index[DYTI_KIND_COUNT][DYTI_PLAN_MAX_SOURCES];
    struct dyti_index own[DYTI_KIND_COUNT * DYTI_PLAN_MAX_SOURCES];
    uint32_t own_count;
    struct dyti_candidate *candidate;
    size_t candidate_count, candidate_cap;
    struct dyt_box *rest; /* what has no source yet */
    size_t rest_count, rest_cap;
    struct dyti_transfer *found; /* [found_count]: of the last shard */
    size_t found_count, found_cap;
};

/* inputs are checked; fini on a zeroed cover is fine. */
enum dyt_status dyti_cover_init(struct dyti_cover *cover,
                                const struct dyti_plan_inputs *inputs);
void dyti_cover_fini(struct dyti_cover *cover);

/* Transfers that fill shard `shard` of `rank`, in cover->found.  Depends on
 * nothing but the inputs, so every rank finds the same.
 * DYT_ERR_LAYOUT: part of it has no source. */
enum dyt_status dyti_cover_shard(struct dyti_cover *cover, uint32_t want,
                                 uint32_t rank, uint32_t shard);

#endif /* DYTI_PLAN_COVER_H */
