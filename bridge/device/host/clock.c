/* This host's monotonic clock. */
#include "device/host/clock.h"

#include <stddef.h>
#include <time.h>

static int64_t host_now_ns(void *self)
{
    struct timespec now;

    (void)self;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

const struct dyti_clock_ops dyti_clock_host = {
    .struct_size = sizeof(struct dyti_clock_ops),
    .name = "host",
    .now_ns = host_now_ns,
};
