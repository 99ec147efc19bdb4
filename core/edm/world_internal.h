/* What the files of this room share: the world itself. */
#ifndef DYTI_EDM_WORLD_INTERNAL_H
#define DYTI_EDM_WORLD_INTERNAL_H

#include "edm/groups.h"
#include "edm/teams.h"

/* A switch that was prepared once. */
struct dyti_prepared {
    enum dyti_arena_slot from, to;
    struct dyti_world_switch_options options;
    struct dyti_switch *self;
};

/* State that sleeps, in pinned host memory. */
struct dyti_world_backup {
    void *at; /* NULL: none yet */
    uint64_t bytes;
    uint64_t mask;    /* regions that lie there, one behind the other */
    uint64_t regions; /* of these, those that are still to come back */
};

struct dyti_world {
    struct dyti_world_params params;
    struct dyti_arena_map *map; /* [world_size], owned */
    bool maps_own_memory; /* false: control and segments are the caller's */
    struct dyti_segment_mem control_mem;
    struct dyti_segment_mem *segment; /* [world_size], owned array */
    void **base;                      /* [world_size] of the segments, owned */
    enum dyti_page_kind *pages;       /* [world_size] of the segments, owned */
    struct dyti_control_page *control;
    struct dyti_group_table table;
    void **group; /* [table.entry_count] own handles, NULL = not a member */
    void *mover, *message; /* message: NULL where there is none */
    struct dyti_group all; /* what the message mover borrows */
    void *message_group;   /* all ranks, of devices; NULL: there is none */
    uint64_t message_at;   /* byte of its region in the control segment */
    /* Ranks on several hosts: what it has of its own, and a group of hosts that
     * carries what would lie in memory that all share; owned. */
    void *message_shared;
    struct dyti_group carrier;
    struct dyti_team_table teams;  /* of the message group: all there are … */
    struct dyti_switch_team *team; /* … and [team_count] this rank's; owned */
    uint32_t team_count;
    /* [world_size] ranks with equal numbers map each other's memory: that of
     * the first of them; owned. */
    uint32_t *reach;
    bool has_devices; /* some rank's segment is memory of a device */
    uint32_t *domain; /* [world_size] scratch of prepare(), owned */
    struct dyti_switch_cache *cache;
    struct dyti_prepared *prepared;
    size_t prepared_count, prepared_cap;
    struct dyti_world_backup backup;
};

/* ---- world_device.c -------------------------------------------------------
 */

enum dyti_page_kind dyti_world_pages(const struct dyti_world_params *params,
                                     uint32_t rank);
bool dyti_world_is_spread(const struct dyti_world_params *params); /* hosts */
bool dyti_world_is_device(const struct dyti_world *world, uint32_t rank);
/* The table that serves that rank's segment. */
const struct dyti_memory_ops *dyti_world_memory_of(
    const struct dyti_world *world, uint32_t rank);
/* Memory of that rank is mapped here: it is on the same host, and of the same
 * sort. */
bool dyti_world_maps(const struct dyti_world *world, uint32_t rank);
/* Who may map whom, by what all ranks know … */
enum dyt_status dyti_world_reach_init(struct dyti_world *world);
/* … and who does, when all have tried.  Collective. */
enum dyt_status dyti_world_reach_agree(struct dyti_world *world);
/* dyti_world_refresh(), as switches call it. */
enum dyt_status dyti_world_met(void *world);

/* ---- world_group.c --------------------------------------------------------
 */

/* The group that carries messages, in world->all, and its teams. */
enum dyt_status dyti_world_open_messages(struct dyti_world *world);
void dyti_world_close_messages(struct dyti_world *world);
/* Whole parts of this rank's segment have memory behind them, or are about to
 * lose it: the message group hears of it. */
void dyti_world_attach(struct dyti_world *world, bool is_there, uint64_t offset,
                       uint64_t bytes);

/* ---- backup.c -------------------------------------------------------------
 */

/* Copies regions of this rank to host memory.  DYT_ERR_NOMEM: more than the
 * world was given, or than there is.  Nothing is kept then. */
enum dyt_status dyti_backup_save(struct dyti_world *world, uint64_t regions);
/* Those of them that are kept, back to where they were. */
enum dyt_status dyti_backup_load(struct dyti_world *world, uint64_t regions);
void dyti_backup_close(struct dyti_world *world);

/* ---- world_switch.c -------------------------------------------------------
 */

/* A switch of these inputs; options with defaults filled in.  Hosts and fan-out
 * of the inputs are set here. */
enum dyt_status dyti_world_build_switch(
    struct dyti_world *world, struct dyti_switch_cache *cache,
    struct dyti_plan_inputs *inputs,
    const struct dyti_world_switch_options *wish, enum dyti_arena_slot from,
    struct dyti_switch **out_switch);

#endif /* DYTI_EDM_WORLD_INTERNAL_H */
