/* Groups of ranks with a GPU each, over NCCL, which is opened when the first
 * group is, or found out about by the table's probe().  The table is the
 * contract (ops/group.h).  What it adds:
 *
 *   memory    buffers are memory of the device (DYTI_GROUP_CAP_DEVICE)
 *   device    a group's is the one that is current when it opens; its calls
 *             are made with that one current
 *   host      members share their region; where they do not (params.apart),
 *             the first one keeps it, and a thread of it answers the others
 * over params.carrier.  Without one such groups are refused by name sums the
 * same bits on all members and on repetition, but not in rank order: NCCL
 * promises none failure   a call that began on the device and did not end is
 * aborted, and with it the group: later calls say so
 */
#ifndef DYTI_COMM_NCCL_H
#define DYTI_COMM_NCCL_H

#include "ops/group.h"

extern const struct dyti_group_ops dyti_group_nccl;

#endif /* DYTI_COMM_NCCL_H */
