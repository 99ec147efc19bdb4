/* This host's monotonic clock. */
#ifndef DYTI_DEVICE_HOST_CLOCK_H
#define DYTI_DEVICE_HOST_CLOCK_H

#include "ops/clock.h"

extern const struct dyti_clock_ops dyti_clock_host; /* self is not used */

#endif /* DYTI_DEVICE_HOST_CLOCK_H */
