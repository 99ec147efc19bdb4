/* What a traffic object keeps for routes and placement. */
#ifndef DYTI_PLAN_TRAFFIC_DETAIL_H
#define DYTI_PLAN_TRAFFIC_DETAIL_H

#include "plan/common.h"
#include "plan/tapes.h"
#include "plan/traffic.h"

struct dyti_traffic_detail {
    struct dyti_common atoms;
    struct dyti_tapes tapes; /* its marks change when it is visited */
};

/* The cluster to plan with: the caller's, or the default one over the hosts of
 * the layouts.  *out_host is owned by the caller of this. */
enum dyt_status dyti_traffic_cluster(const struct dyti_plan_inputs *inputs,
                                     const struct dyti_traffic_options *options,
                                     struct dyti_cluster *out_cluster,
                                     uint32_t **out_host);

/* Patterns of each layout that the inputs name, once. */
struct dyti_pattern_list {
    struct dyti_patterns *patterns[DYTI_MAX_PATTERNS];
    uint32_t count;
};

enum dyt_status dyti_pattern_list_build(const struct dyti_plan_inputs *inputs,
                                        struct dyti_pattern_list *out_list);
void dyti_pattern_list_fini(struct dyti_pattern_list *list);

#endif /* DYTI_PLAN_TRAFFIC_DETAIL_H */
