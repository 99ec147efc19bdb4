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
void dyti_spans_fini(struct dyti_span_list *list);

uint64_t dyti_span_elements(const struct dyti_span *span);

#endif /* DYTI_SCHED_SPANS_H */
