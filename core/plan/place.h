/* Which rank plays which coordinate of the target layout, where nobody pinned
 * it: relabelled so that the most bytes stay where they are.
 * in: two layouts   out: desc.ranks of the target, built again with it
 *
 * Two linear assignments, so that what belongs together on a host stays
 * together: target hosts (blocks of members that the desc puts on one host) to
 * hosts of equal size by the bytes that cross no NIC, then members to ranks
 * inside each host by the bytes that stay on their rank.  Hosts that are
 * equally good are told apart by how evenly their NICs are loaded (least
 * squares), then by what can stay on a rank; up to 1024 ranks.
 */
#ifndef DYTI_PLAN_PLACE_H
#define DYTI_PLAN_PLACE_H

#include "plan/traffic.h"

struct dyti_placement {
    uint32_t *rank_of; /* [world_size]: the rank that plays what rank r of the
                          target layout, as described, would hold; owned */
    uint32_t *ranks;   /* [member_count]: desc.ranks for the target; owned */
    uint32_t world_size, member_count;
    /* Written bytes, before and after: kept on their rank, and over NICs with
     * one copy for each host. */
    uint64_t total_bytes, keep_before, keep_after, nic_before, nic_after;
    /* Seconds of the busiest link with fan-out; 0 where the world has more than
     * 1024 ranks: not looked at. */
    double load_before_s, load_after_s;
    bool changed; /* false: as described is as good */
};

/**
 * Place the destination of `inputs`.  Pure; equal inputs, equal answer.  Never
 * worse than as described: fewer bytes over NICs, or as many and more kept; and
 * no busier link.  Otherwise the answer is as described.
 * @return what dyti_traffic_build returns
 */
enum dyt_status dyti_place(const struct dyti_plan_inputs *inputs,
                           const struct dyti_traffic_options *options,
                           struct dyti_placement *out_placement);
enum dyt_status dyti_place_from(const struct dyti_plan_inputs *inputs,
                                const struct dyti_traffic_options *options,
                                const struct dyti_patterns *const *patterns,
                                uint32_t pattern_count,
                                struct dyti_placement *out_placement);
void dyti_placement_fini(struct dyti_placement *placement);

#endif /* DYTI_PLAN_PLACE_H */
