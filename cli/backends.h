/* The one place that names backends: which tables serve which device. */
#ifndef DYTI_CLI_BACKENDS_H
#define DYTI_CLI_BACKENDS_H

#include "ops/clock.h"
#include "ops/group.h"
#include "ops/kernels.h"
#include "ops/memory.h"
#include "ops/mover.h"
#include "ops/wait.h"

/* Tables of the `host` device: static, never NULL. */
struct dyti_backends {
    const struct dyti_memory_ops *memory;
    const struct dyti_kernel_ops *kernels;
    const struct dyti_group_ops *group;
    const struct dyti_mover_ops *mover;   /* of mapped memory */
    const struct dyti_mover_ops *message; /* of messages */
    const struct dyti_wait_ops *wait;
    const struct dyti_clock_ops *clock;
};

const struct dyti_backends *dyti_backends_host(void);

/* Monotonic time, ns. */
int64_t dyti_now_ns(void);
/* Seconds of a deadline, which may be inf, as a time that can be added to now.
 */
int64_t dyti_seconds_ns(double seconds);

#endif /* DYTI_CLI_BACKENDS_H */
