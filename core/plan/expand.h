/* Routes → transfers with the shards that they go from and to. */
#ifndef DYTI_PLAN_EXPAND_H
#define DYTI_PLAN_EXPAND_H

#include "plan/traffic.h"

/**
 * All transfers, or those of one rank (`rank` >= 0), in no order.  The layouts
 * have views.  *out_transfer: free().
 * @return DYT_ERR_UNSUPPORTED  a layout is lazy
 * @return DYT_ERR_INVALID      a view does not hold what the patterns say
 */
enum dyt_status dyti_expand(const struct dyti_traffic *traffic, int64_t rank,
                            struct dyti_transfer **out_transfer,
                            size_t *out_count);

#endif /* DYTI_PLAN_EXPAND_H */
