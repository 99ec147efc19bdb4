/* Mode in_place: source and destination lie over each other in the ranks'
 * memories, so copies go in waves (waves.h), with a fence between two.  Answers
 * "which copies, in which wave, through which staging memory?", and makes a
 * schedule of one rank of it.
 *
 * in: a plan's inputs, where the regions lie, which links go by messages
 * out: exec/in_place.c runs the schedule; a manager asks before anything starts
 *      whether the cap can be met
 *
 * The staging memory of a rank (arena.h) is divided: what waves stage lies at
 * its start, the slots of messages behind it.  Spans refer to the first as slot
 * DYTI_SLOT_STAGING.  Pure: all ranks compute the same for the whole world. */
#ifndef DYTI_SCHED_OVERLAY_H
#define DYTI_SCHED_OVERLAY_H

#include "sched/sched.h"
#include "sched/spans.h"
#include "sched/waves.h"

/* Borrowed. */
struct dyti_overlay_params {
    const struct dyti_plan_inputs *inputs; /* without fan-out */
    const struct dyti_arena_map *map;      /* [world_size] */
    uint32_t world_size;
    enum dyti_side side;
    uint64_t chunk_bytes; /* of a step; 0: default */
    /* domain, strategy, cluster, staging_bytes (most of the slots),
     * message_bytes. */
    const struct dyti_schedule_links *links;
};

/* Of the whole world. */
struct dyti_overlay {
    struct dyti_span_list spans;
    struct dyti_wave_item *item; /* [item_count], owned */
    uint32_t *span;              /* [item_count] of each item, owned */
    size_t item_count;
    struct dyti_waves waves;
    uint64_t cap_bytes;  /* staging memory of every rank */
    uint64_t slot_bytes; /* of it for messages, at its end; 0: none go */
};

/**
 * @return DYT_ERR_UNSUPPORTED  fan-out; or the cap cannot be met: the text has
 *                              the smallest that can
 * @return DYT_ERR_NOMEM, DYT_ERR_OVERFLOW
 */
enum dyt_status dyti_overlay_build(const struct dyti_overlay_params *params,
                                   struct dyti_overlay *out_overlay);
/* The smallest staging memory with which it can be built. */
enum dyt_status dyti_overlay_smallest(const struct dyti_overlay_params *params,
                                      uint64_t *out_cap_bytes);
void dyti_overlay_fini(struct dyti_overlay *overlay); /* zeroed: fine */

uint64_t dyti_overlay_fingerprint(const struct dyti_overlay *overlay);

/* The first wave in which something is written over the old on a rank; the
 * number of waves: in none. */
uint32_t dyti_overlay_overwrites(const struct dyti_overlay *overlay,
                                 uint32_t rank);

/* What one rank does, with a fence behind each wave. */
enum dyt_status dyti_overlay_schedule(const struct dyti_overlay_params *params,
                                      const struct dyti_overlay *overlay,
                                      uint32_t rank,
                                      struct dyti_schedule **out_schedule);

#endif /* DYTI_SCHED_OVERLAY_H */
