/* Time, handed in so that pure code has none and tests have theirs. */
#ifndef DYTI_OPS_CLOCK_H
#define DYTI_OPS_CLOCK_H

#include <stdint.h>

struct dyti_clock_ops {
    uint32_t struct_size;
    const char *name;
    int64_t (*now_ns)(void *self); /* monotonic */
};

#endif /* DYTI_OPS_CLOCK_H */
