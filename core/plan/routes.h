/* dyti_traffic_routes() for the planner's own use. */
#ifndef DYTI_PLAN_ROUTES_H
#define DYTI_PLAN_ROUTES_H

#include "plan/traffic.h"

/* As dyti_traffic_routes(), in no order; -1: of all ranks. */
enum dyt_status dyti_routes_list(const struct dyti_traffic *traffic,
                                 int64_t rank, struct dyti_routes *out_routes);

#endif /* DYTI_PLAN_ROUTES_H */
