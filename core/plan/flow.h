/* What one rank sends another, added up: what strategies order. */
#ifndef DYTI_PLAN_FLOW_H
#define DYTI_PLAN_FLOW_H

#include <stdint.h>

/* Traffic of one ordered pair, src != dst. */
struct dyti_flow {
    uint32_t src, dst;
    uint64_t bytes;
    uint32_t messages; /* transfers: what `per-tensor` sends one by one */
    uint32_t wave;     /* 0: first; fan-out inside a host comes after */
};

#endif /* DYTI_PLAN_FLOW_H */
