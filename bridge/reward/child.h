/* Internal to bridge/reward: one run of a command, from spawn to the last
 * process of its group.
 *
 * The command runs under a small shell guard in a process group of its own:
 * the guard kills the whole group when a pipe from us closes, so that even a
 * kill -9 of this process leaves nothing behind. */
#ifndef DYTI_REWARD_CHILD_H
#define DYTI_REWARD_CHILD_H

#include "base/error.h"
#include "ops/reward.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct dyti_child {
    pid_t pid; /* of the guard, and its process group; 0: none */
    int request, answer, life; /* our ends; -1: closed */
    char *line;                /* what was read beyond the last newline */
    size_t line_bytes, line_cap;
    const struct dyti_reward_watch *watch; /* borrowed; NULL: none */
};

/* argv is [argc].  DYT_ERR_CONFIG: no such program. */
enum dyt_status dyti_child_start(char *const *argv, uint32_t argc,
                                 struct dyti_child *out_child);

/* Send a line and read one back before `deadline_ns` (CLOCK_MONOTONIC).  The
 * answer is without its newline and malloc'ed.
 * DYT_ERR_TIMEOUT; DYT_ERR_IO: it ended or closed its output; what the watch
 * says;
 * DYT_ERR_FORMAT: more than 256 MiB without a newline. */
enum dyt_status dyti_child_ask(struct dyti_child *child, const char *line,
                               size_t line_bytes, int64_t deadline_ns,
                               char **out_answer, size_t *out_bytes);

/* Close its input, give it `grace_ms` to end by itself, then kill its group.
 * `how` (may be NULL) says how it ended: "exited with 3", "was killed by signal
 * 9", "had to be killed".  A zeroed child with pid 0 is fine. */
void dyti_child_stop(struct dyti_child *child, int grace_ms, char *how,
                     size_t how_bytes);

int64_t dyti_child_now_ns(void);

#endif /* DYTI_REWARD_CHILD_H */
