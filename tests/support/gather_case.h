/* A switch in which every rank takes something from every other: the ZeRO cuts
 * of dp replicas fill each replica's param. */
#ifndef DYT_GATHER_CASE_H
#define DYT_GATHER_CASE_H

#include "plan_cases.h"

struct dyt_gather_case {
    struct dyti_model *model;
    struct dyti_layout *layout;
    struct dyti_plan_inputs inputs;
};

static inline void dyt_gather_open(struct dyti_arch arch, uint32_t dp,
                                   struct dyt_gather_case *g)
{
    const struct dyti_layout_desc desc = {.phase = "train",
                                          .world_size = dp,
                                          .tp = 1,
                                          .pp = 1,
                                          .dp = dp,
                                          .zero = 1};

    memset(g, 0, sizeof(*g));
    assert_ok(dyti_model_build(&arch, &g->model));
    assert_ok(dyti_layout_build(g->model, &desc, &g->layout));
    g->inputs.dst = g->layout;
    g->inputs.dst_slot = DYTI_ARENA_TRAIN;
    g->inputs.want_count = 1;
    g->inputs.want[0] = (struct dyti_plan_want){
        .kind = DYTI_PARAM,
        .source = {{g->layout, DYTI_ARENA_TRAIN, DYTI_MASTER}},
        .source_count = 1};
}

static inline void dyt_gather_close(struct dyt_gather_case *g)
{
    dyti_layout_destroy(g->layout);
    dyti_model_destroy(g->model);
}

#endif /* DYT_GATHER_CASE_H */
