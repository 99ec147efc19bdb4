/* Collectives as the messages that they are made of.  Of this room only. */
#ifndef DYTI_EXPLAIN_RINGS_H
#define DYTI_EXPLAIN_RINGS_H

#include "sched/promote.h"
#include "sched/strategy.h"

/* Appends the pieces of the collectives of wave 0 (`later` false), or of all
 * other waves, in an order that their waits allow.  Their streams are named by
 * numbers that no rank has.  chunk_bytes 0: 1/16 of each part. */
enum dyt_status dyti_rings_add(const struct dyti_cluster *cluster,
                               const struct dyti_promotion *promotion,
                               bool later, uint64_t chunk_bytes,
                               struct dyti_piece **io_piece, size_t *io_count,
                               size_t *io_cap);

#endif /* DYTI_EXPLAIN_RINGS_H */
