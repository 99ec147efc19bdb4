/* Healing from replicas: what ranks have lost of a layout (exec/control.h:
 * INVALID) is filled from ranks that hold the same and are whole, in the memory
 * where it lies.  A switch of the layout to itself, with the same transaction:
 * verified, and whole or not at all.
 *
 * Where no rank holds a part any more, the next switch from a layout that is
 * whole fills it, or the newest checkpoint. */
#ifndef DYTI_EDM_HEAL_H
#define DYTI_EDM_HEAL_H

#include "edm/world.h"

struct dyti_heal_report {
    uint32_t rank_count; /* that had lost something; 0: nothing was done */
    uint32_t kinds;      /* bits of the kinds that were lost */
    struct dyti_switch_report transfer; /* of this rank */
};

/**
 * Fill what any rank has lost of the layout in `slot`.  Collective over all
 * ranks, between two switches; all give the same order.  Version, live address
 * set and all that is whole stay as they are.
 *
 * @param options  side, mover, strategy, staging; NULL: all defaults
 * @param order    its version is not looked at: the visible one stays
 * @return DYT_OK           all is whole, or was before
 * @return DYT_ERR_INVALID  a slot without a layout
 * @return DYT_ERR_LAYOUT   no rank holds a part any more: the text names it;
 *                          nothing was done, by any rank
 * @return DYT_ERR_STATE    a rank sleeps
 * @return other            as dyti_switch_run(): what was lost still is
 */
enum dyt_status dyti_world_heal(struct dyti_world *world,
                                enum dyti_arena_slot slot,
                                const struct dyti_world_switch_options *options,
                                const struct dyti_switch_order *order,
                                struct dyti_heal_report *out_report);

#endif /* DYTI_EDM_HEAL_H */
