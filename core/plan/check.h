/* Refusals of inputs that no plan can be made of. */
#ifndef DYTI_PLAN_CHECK_H
#define DYTI_PLAN_CHECK_H

#include "plan/plan.h"

/* Same model, same world.  DYT_ERR_LAYOUT. */
enum dyt_status dyti_plan_check_world(const struct dyti_layout *src,
                                      const struct dyti_layout *dst);
enum dyt_status dyti_plan_check_inputs(const struct dyti_plan_inputs *inputs);

#endif /* DYTI_PLAN_CHECK_H */
