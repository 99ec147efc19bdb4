/* Groups of ranks on one host, over memory that all of them map: processes, or
 * threads of one process.  The table is the contract (ops/group.h). */
#ifndef DYTI_COMM_SHM_H
#define DYTI_COMM_SHM_H

#include "ops/group.h"

extern const struct dyti_group_ops dyti_group_shm;

#endif /* DYTI_COMM_SHM_H */
