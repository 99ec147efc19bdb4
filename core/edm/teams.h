/* Sets of ranks that get a team of the message group, and so its collectives:
 * those along one dimension of a layout, by tensor, pipeline, data, expert
 * parallelism and so on.  Pure, so that every rank finds the same.
 *
 * Never fewer than three: no collective of a schedule has fewer, and what goes
 * between two is a message.  Disjoint sets are made by one split of the group,
 * a round. */
#ifndef DYTI_EDM_TEAMS_H
#define DYTI_EDM_TEAMS_H

#include "edm/world.h"

#define DYTI_TEAM_LEAST 3u

struct dyti_team_set {
    uint32_t *member; /* [size] world ranks, rising; owned */
    uint32_t size, round;
};

struct dyti_team_table {
    struct dyti_team_set *set; /* [count], owned; no two alike, and none of them
                                  the world */
    size_t count, cap;
    uint32_t round_count;
};

enum dyt_status dyti_team_table_init(
    struct dyti_team_table *table,
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    uint32_t world_size);
void dyti_team_table_fini(struct dyti_team_table *table);

#endif /* DYTI_EDM_TEAMS_H */
