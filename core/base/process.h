/* Processes of this host by their numbers, which may be used again: the time
 * they started goes with them.
 * Threads: any. */
#ifndef DYTI_BASE_PROCESS_H
#define DYTI_BASE_PROCESS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* starttime of a process; DYT_ERR_PEER: there is none. */
enum dyt_status dyti_process_start(uint32_t pid, uint64_t *out_start);
/* This one. */
enum dyt_status dyti_process_self(uint32_t *out_pid, uint64_t *out_start);
bool dyti_process_is_self(uint32_t pid, uint64_t start);
/* What this process's numbers count in (a container has its own); 0: not
 * known. */
int64_t dyti_process_space(void);

#endif /* DYTI_BASE_PROCESS_H */
