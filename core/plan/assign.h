/* Linear assignment: each row its own column, at the least total cost. */
#ifndef DYTI_PLAN_ASSIGN_H
#define DYTI_PLAN_ASSIGN_H

#include "base/error.h"

#include <stdint.h>

/* Wide enough for a cost in bytes with a second one below it that only breaks
 * ties: DYTI_COST(first, second), |second| < 2^62. */
__extension__ typedef __int128 dyti_cost;

#define DYTI_COST(first, second)                                               \
    ((dyti_cost)(first) * ((dyti_cost)1 << 63) + (dyti_cost)(second))

/* `cost` [n][n] by row; |cost| < 2^118 / n.  Exact, O(n^3): the Hungarian
 * method by shortest augmenting paths (Jonker and Volgenant's scheme) after a
 * greedy start that leaves row i on column i where that is cheapest.  Equal
 * input, equal answer.  DYT_ERR_NOMEM */
enum dyt_status dyti_assign(const dyti_cost *cost, uint32_t n,
                            uint32_t *out_column);

#endif /* DYTI_PLAN_ASSIGN_H */
