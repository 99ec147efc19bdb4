/* The groups of a world, as lists of members: which there are, and where their
 * regions lie in the control segment.  Pure, so that every rank and the manager
 * find the same. */
#ifndef DYTI_EDM_GROUPS_H
#define DYTI_EDM_GROUPS_H

#include "edm/world.h"

struct dyti_group_entry {
    uint32_t *member; /* [size] world ranks, owned */
    uint32_t size;
    uint64_t offset, bytes; /* of its region in the control segment */
    char name[32];          /* of its first use: "world", "train dp" */
};

struct dyti_group_table {
    struct dyti_group_entry *entry; /* [entry_count]; 0 is the world */
    size_t entry_count, entry_cap;
    uint64_t total_bytes; /* of the control segment */
    /* For one rank: its group of each layout and dimension, -1 = none. */
    int32_t own[DYTI_ARENA_SLOT_COUNT][DYTI_DIM_COUNT];
};

/* All groups, and `rank`'s own among them. */
enum dyt_status dyti_group_table_init(
    struct dyti_group_table *table,
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    uint32_t world_size, uint32_t rank, const struct dyti_group_ops *ops);
void dyti_group_table_fini(struct dyti_group_table *table);

/* Position of a world rank among the members, -1 = none. */
int64_t dyti_group_member(const struct dyti_group_entry *entry, uint32_t rank);

const char *dyti_slot_name(enum dyti_arena_slot slot); /* "rollout", … */

#endif /* DYTI_EDM_GROUPS_H */
