/* What the files that build a schedule share: the lists on their way. */
#ifndef DYTI_SCHED_BUILDER_H
#define DYTI_SCHED_BUILDER_H

#include "sched/sched.h"
#include "sched/spans.h"

struct dyti_sched_edge {
    uint32_t before, after; /* steps */
};

struct dyti_sched_builder {
    const struct dyti_plan *plan;
    struct dyti_schedule *schedule;
    struct dyti_span_list spans;
    struct dyti_sched_edge *edge; /* owned, by `after` */
    size_t edge_count, edge_cap;
    size_t step_cap, stream_cap, at_count, at_cap, part_cap;
    uint32_t fence;       /* the last one, or DYTI_NO_STEP */
    uint32_t first_slack; /* first step behind it */
    /* Appends the spans of a stream; NULL: those of the plan's transfers. */
    enum dyt_status (*stream)(struct dyti_sched_builder *b, uint32_t src,
                              uint32_t dst, uint32_t wave);
    const void *stream_arg;
};

/* Append a step; it waits for the last fence. */
enum dyt_status dyti_sched_add_step(struct dyti_sched_builder *b,
                                    const struct dyti_step *step,
                                    uint32_t *out_index);
/* before: DYTI_NO_STEP is none. */
enum dyt_status dyti_sched_add_edge(struct dyti_sched_builder *b,
                                    uint32_t before, uint32_t after);

/* Rounds of the pairing: the next power of two. */
uint32_t dyti_sched_rounds(uint32_t world_size);
/* A fence waits for all that nobody else waits for since the last one. */
enum dyt_status dyti_sched_add_fence(struct dyti_sched_builder *b);
/* Followers of each step, from the list of edges. */
enum dyt_status dyti_sched_finish_edges(struct dyti_sched_builder *b);
/* One more span of a COPY step that is being made. */
void dyti_sched_count_span(struct dyti_step *step, const struct dyti_span *span,
                           const struct dyti_span_range *of);

/* ---- message_order.c, messages.c ------------------------------------------
 */

struct dyti_message_order; /* pieces of all waves, and the slots */

/* Order the messages of the whole world, choose slots.  NULL: none. */
enum dyt_status dyti_message_order_init(const struct dyti_sched_builder *b,
                                        const struct dyti_schedule_links *links,
                                        struct dyti_message_order **out_order);
void dyti_message_order_fini(struct dyti_message_order *order);
/* Steps of this rank's messages in one wave; the waves rise. */
enum dyt_status dyti_message_order_add(struct dyti_message_order *order,
                                       struct dyti_sched_builder *b,
                                       const struct dyti_schedule_links *links,
                                       uint32_t wave);
/* ---- chains.c ------------------------------------------------------------ */

/* Equal: streams of one source are the same bytes. */
uint64_t dyti_stream_content(const struct dyti_plan *plan,
                             const struct dyti_plan_pair *pair, uint32_t wave);
/* [world_size] host of each rank; NULL: nobody says that there are several. */
const uint32_t *dyti_links_hosts(const struct dyti_plan *plan,
                                 const struct dyti_schedule_links *links);

/* ---- message_order.c again ----------------------------------------------- */

/* Slots and bytes of a message that a cap allows.
 * DYT_ERR_UNSUPPORTED: too small. */
enum dyt_status dyti_message_slots(const struct dyti_schedule_links *links,
                                   uint64_t *out_message_bytes,
                                   uint32_t *out_slots);

#endif /* DYTI_SCHED_BUILDER_H */
