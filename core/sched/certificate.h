/* How good is an order of pieces, and is it one at all?
 * in: flows and pieces   out: makespan_s and load_s of the pieces; explain/ */
#ifndef DYTI_SCHED_CERTIFICATE_H
#define DYTI_SCHED_CERTIFICATE_H

#include "sched/strategy.h"

/* Where bytes queue up. */
enum dyti_place {
    DYTI_PLACE_RANK, /* one rank's link of one class */
    DYTI_PLACE_HOST, /* the NICs of one host together */
    DYTI_PLACE_CORE, /* the middle of the fabric */
    DYTI_PLACE_COUNT
};

struct dyti_busiest {
    enum dyti_place place;
    enum dyti_link_class link;
    uint32_t at;    /* rank, host, or 0: up, 1: down */
    bool receiving; /* which direction (RANK, HOST) */
    uint64_t bytes;
    double seconds;
};

/* The busiest rank or link of a traffic: no order can take less. */
enum dyt_status dyti_busiest_of_flows(const struct dyti_cluster *cluster,
                                      const struct dyti_flow *flow,
                                      size_t flow_count,
                                      struct dyti_busiest *out_busiest);
/* … of pieces: more than the flows' where they take detours. */
enum dyt_status dyti_busiest_of_pieces(const struct dyti_cluster *cluster,
                                       const struct dyti_piece *piece,
                                       size_t count,
                                       struct dyti_busiest *out_busiest);

/* What a piece order must be: every byte of every flow on each hop of one way
 * exactly once; sorted; matchings in each round; all waits go backwards, so
 * that nothing waits in a circle.
 * @return DYT_ERR_INVALID names the piece; DYT_ERR_NOMEM */
enum dyt_status dyti_pieces_check(const struct dyti_order *in,
                                  const struct dyti_pieces *pieces);

/* makespan_s / load_s; 1 where nothing moves. */
double dyti_pieces_ratio(const struct dyti_pieces *pieces);

const char *dyti_link_class_name(enum dyti_link_class link); /* "self", … */

#endif /* DYTI_SCHED_CERTIFICATE_H */
