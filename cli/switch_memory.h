/* What the switches of a job take beside the memory that stays, and whether
 * switch.memory_cap allows it.  Pure: known before anything is allocated.
 *
 *   S         what the ended phase held and the next one drops or takes in
 *             another shape: bytes of its regions on this rank
 *   D         regions of the next phase that the switch fills
 *   resident  all else: what is parked, what no switch moves, KV and
 *             activations
 *   need      what a switch takes beyond resident + max(S, D), which no mode
 *             can do without: min(S, D) where both are apart, besides a second
 *             rollout layout in mode double, scratch for the larger layout in
 *             mode staged; in place, staging alone */
#ifndef DYTI_CLI_SWITCH_MEMORY_H
#define DYTI_CLI_SWITCH_MEMORY_H

#include "cli/assemble.h"

struct dyti_switch_memory {
    uint64_t source_bytes, destination_bytes; /* S, D */
    uint64_t resident_bytes, staging_bytes;
    uint64_t need_bytes;
};

struct dyti_switch_memory dyti_switch_memory_of(
    const struct dyti_assembly *assembly, enum dyti_arena_slot from,
    enum dyti_arena_slot to, uint32_t rank);

/* The smallest cap that all ranks can meet in both directions. */
uint64_t dyti_switch_memory_least(const struct dyti_assembly *assembly);

/* DYT_ERR_CONFIG: a switch needs more than `cap_bytes` on a rank, or in place
 * more than the maps have; the text has both numbers and the smallest cap that
 * would do.  0: no cap. */
enum dyt_status dyti_switch_memory_check(const struct dyti_assembly *assembly,
                                         uint64_t cap_bytes);

#endif /* DYTI_CLI_SWITCH_MEMORY_H */
