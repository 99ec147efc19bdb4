/* Turns the transfers of one pair of ranks into as few strided copies as
 * possible, none larger than a chunk. */
#ifndef DYTI_SCHED_SPANS_H
#define DYTI_SCHED_SPANS_H

#include "sched/sched.h"

/* A list that grows; `of[i]` says which transfers span i serves. */
struct dyti_span_list {
    struct dyti_span *span;
    size_t span_count, span_cap;
    struct dyti_span_range {
        uint32_t transfer_first, transfer_last;
    } * of;
    size_t of_cap;
};

/* Append the spans of transfers [pair->transfer_first, + count). */
enum dyt_status dyti_spans_add(struct dyti_span_list *list,
                               const struct dyti_plan *plan,
                               const struct dyti_plan_pair *pair,
                               uint64_t chunk_bytes);
/* … of those of one wave; chunk_bytes 0: not cut. */
enum dyt_status dyti_spans_add_wave(struct dyti_span_list *list,
                                    const struct dyti_plan *plan,
                                    const struct dyti_plan_pair *pair,
                                    uint32_t wave, uint64_t chunk_bytes);
/* … one that is made already. */
enum dyt_status dyti_spans_push(struct dyti_span_list *list,
                                const struct dyti_span *span,
                                const struct dyti_span_range *of);
void dyti_spans_fini(struct dyti_span_list *list);

uint64_t dyti_span_elements(const struct dyti_span *span);

/* Bytes that one end of a span touches: `below` its first element, and from
 * there on.  No size: none. */
struct dyti_span_reach {
    uint64_t below, above;
};

static inline struct dyti_span_reach dyti_span_reach(const int64_t size[],
                                                     const int64_t stride[],
                                                     uint8_t dtype)
{
    struct dyti_span_reach r = {.above =
                                    dyti_dtype_bytes((enum dyti_dtype)dtype)};

    for (uint32_t d = 0; d < DYTI_SPAN_DIMS; d++) {
        if (size[d] <= 0) {
            return (struct dyti_span_reach){0, 0};
        }
        if (stride[d] < 0) {
            r.below += (uint64_t)(size[d] - 1) * (uint64_t)-stride[d];
        } else {
            r.above += (uint64_t)(size[d] - 1) * (uint64_t)stride[d];
        }
    }
    return r;
}

#endif /* DYTI_SCHED_SPANS_H */
