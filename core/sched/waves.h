/* Which moves go in which wave, when source and destination lie over each other
 * in the ranks' memories and only a little room besides may be used.  Pure: all
 * ranks compute the same from the same whole list.
 *
 *   item     one copy: what it reads of one rank's memory, what it writes of
 *            another's (or the same), as byte ranges that bound both
 *   wave     what the ranks do between two barriers
 *   direct   read and write at once: every other reader of what it writes has
 *            finished in a wave before
 *   stage    read now, into staging memory of the destination's rank
 *   unstage  write what was staged: every reader of what it writes has finished
 *            in a wave before
 *
 * An item that may go direct never waits.  Only when none can, some are staged:
 * those whose reading lets another one go, fewest bytes first, as many as there
 * is room for.  So an order without cycles needs no room at all, and a full
 * cycle one spare item.
 */
#ifndef DYTI_SCHED_WAVES_H
#define DYTI_SCHED_WAVES_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DYTI_WAVE_ALIGN 64u /* bytes: of places in staging memory */

/* Ranges are half open, in bytes of the rank's segment. */
struct dyti_wave_item {
    uint32_t src_rank, dst_rank;
    uint64_t src_lo, src_hi, dst_lo, dst_hi;
    uint64_t staged_bytes; /* what it takes when it is staged */
};

enum dyti_wave_what { DYTI_WAVE_DIRECT, DYTI_WAVE_STAGE, DYTI_WAVE_UNSTAGE };

struct dyti_wave_action {
    uint32_t item;
    uint32_t what;           /* enum dyti_wave_what */
    uint64_t staging_offset; /* STAGE, UNSTAGE: in dst_rank's staging memory */
};

struct dyti_waves {
    struct dyti_wave_action *action; /* [action_count], by wave; owned */
    size_t action_count;
    size_t *wave_first; /* [wave_count + 1], owned */
    size_t wave_count;
    uint64_t peak_bytes;   /* most staging memory of any rank */
    uint64_t staged_bytes; /* of all STAGE actions */
};

/**
 * @param cap_bytes  staging memory of each rank
 * @return DYT_ERR_UNSUPPORTED  the cap cannot be met; nothing is built, and the
 *                              text has the smallest that can
 * @return DYT_ERR_NOMEM
 */
enum dyt_status dyti_waves_build(const struct dyti_wave_item *item,
                                 size_t item_count, uint32_t world_size,
                                 uint64_t cap_bytes,
                                 struct dyti_waves *out_waves);
/* The same, where a cap that cannot be met is an answer and no failure. */
enum dyt_status dyti_waves_try(const struct dyti_wave_item *item,
                               size_t item_count, uint32_t world_size,
                               uint64_t cap_bytes, bool *out_fits,
                               struct dyti_waves *out_waves);
void dyti_waves_fini(struct dyti_waves *waves);

/* The smallest cap, a multiple of DYTI_WAVE_ALIGN, that dyti_waves_build()
 * meets with these items. */
enum dyt_status dyti_waves_smallest(const struct dyti_wave_item *item,
                                    size_t item_count, uint32_t world_size,
                                    uint64_t *out_cap_bytes);

#endif /* DYTI_SCHED_WAVES_H */
