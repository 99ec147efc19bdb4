/* Groups over TCP by gloo, for ranks on several hosts.  The table is the
 * contract (ops/group.h).
 *
 * A group's region is where members leave their addresses when they open it,
 * and a word of how far they are, for messages; no byte of a collective goes
 * through it.  Sums are taken in member order by the one who owns the part. */
#ifndef DYTI_COMM_GLOO_H
#define DYTI_COMM_GLOO_H

#include "ops/group.h"

extern const struct dyti_group_ops dyti_group_gloo;

#endif /* DYTI_COMM_GLOO_H */
