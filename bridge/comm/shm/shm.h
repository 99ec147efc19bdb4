/* Groups of ranks on one host, over memory that all of them map: processes, or
 * threads of one process.  The table is the contract (ops/group.h). */
#ifndef DYTI_COMM_SHM_H
#define DYTI_COMM_SHM_H

#include "ops/group.h"
#include "ops/wait.h"

extern const struct dyti_group_ops dyti_group_shm;
extern const struct dyti_wait_ops dyti_wait_futex;

#endif /* DYTI_COMM_SHM_H */
