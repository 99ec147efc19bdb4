/* The static world of one rank: who its peers are, where their memory is
 * mapped, which groups it belongs to.  Built once when a job starts, used by
 * every phase, closed in order.
 *
 * The manager makes one control segment and one segment per rank (memory ops:
 * create; and resize for the control segment, to dyti_world_control_bytes()).
 * Each rank then opens its world: it sizes its own segment, meets the others,
 * and maps theirs.  What lies where is a pure function of the layouts:
 *
 *   control segment   [control page][group region]…   a region per distinct
 *                     list of members, in order of first use
 *   rank's segment    as layout/arena.h says
 *
 * Threads: one world by one thread at a time; the groups likewise.
 */
#ifndef DYTI_EDM_WORLD_H
#define DYTI_EDM_WORLD_H

#include "exec/switch.h"
#include "layout/arena.h"
#include "ops/clock.h"
#include "ops/group.h"
#include "ops/memory.h"
#include "ops/mover.h"
#include "ops/wait.h"

/* Groups of one layout that a rank belongs to; members in rising order of the
 * coordinate that is free. */
enum dyti_dimension {
    DYTI_DIM_TP,    /* same pp, dp */
    DYTI_DIM_DP,    /* same tp, pp; replicas of context parallelism too */
    DYTI_DIM_PP,    /* same tp, dp */
    DYTI_DIM_MODEL, /* same dp: one replica, members in layout order */
    DYTI_DIM_EMBED, /* same tp, dp: first and last pipeline stage */
    DYTI_DIM_ALL,   /* all members of the layout, in layout order */
    DYTI_DIM_COUNT
};

struct dyti_world_params {
    uint32_t struct_size;
    uint32_t rank, world_size;

    /* By arena slot; NULL where the job has none.  Borrowed until close, as is
     * the model behind them. */
    const struct dyti_layout *layout[DYTI_ARENA_SLOT_COUNT];
    const struct dyti_arena_map *map; /* [world_size]; copied */

    /* Segments by handle (borrowed until close) … */
    int control_handle;
    enum dyti_page_kind control_pages;
    const int *segment_handle;                /* [world_size] */
    const enum dyti_page_kind *segment_pages; /* [world_size]; copied */
    bool own_is_sized; /* the own segment has its size already */
    /* … or mapped already, for ranks that are threads of one process: then the
     * handles are not looked at, and the memory stays the caller's. */
    const struct dyti_segment_mem *control_mem; /* NULL: by handle */
    const struct dyti_segment_mem *segment_mem; /* [world_size] */

    const struct dyti_memory_ops *memory; /* of hosts */
    /* Of the device whose memory this rank's segment is, by its pages; NULL
     * where it is of the host.  The device is in use by the calling thread, now
     * and at every later call, and is that of the kernels. */
    const struct dyti_memory_ops *device_memory;
    const struct dyti_group_ops *group;
    const struct dyti_mover_ops *mover;   /* of mapped memory */
    const struct dyti_mover_ops *message; /* of messages; NULL: none */
    /* What carries messages where all ranks have memory of devices; NULL:
     * `group` does.  Its region lies behind those of the control segment, which
     * so is dyti_world_message_bytes() larger.  Between hosts a group of the
     * sort of `group` carries for it what its members would share. */
    const struct dyti_group_ops *message_group;
    /* [world_size] host of each rank: memory of other hosts is not mapped, and
     * links to them go by messages.  So do links between ranks of which one has
     * memory of a device, or whose devices do not map each other's.
     * Numbered from 0, below world_size.  NULL: one host. */
    const uint32_t *host;
    const struct dyti_cluster *cluster; /* NULL: all links are alike */
    const struct dyti_wait_ops *wait;
    const struct dyti_clock_ops *clock; /* NULL: no timings */
    void *clock_self;
    struct dyti_kernels kernels; /* borrowed until close */

    int64_t timeout_ns;  /* of one wait; <= 0: none */
    bool oversubscribed; /* more ranks than cores */
    /* Host memory in which this rank may keep optimizer state that sleeps
     * ([residency] optimizer = "host"), if it has memory of a device; 0: none.
     */
    uint64_t backup_bytes;
};

struct dyti_world; /* opaque */

/* Size of the control segment.  Pure: manager and ranks get the same. */
enum dyt_status dyti_world_control_bytes(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    uint32_t world_size, const struct dyti_group_ops *group,
    uint64_t *out_bytes);

/* What a group of messages adds to it. */
uint64_t dyti_world_message_bytes(const struct dyti_group_ops *message_group,
                                  const struct dyti_group_ops *group,
                                  uint32_t world_size);

/**
 * Open the world of one rank.  Collective over all ranks; blocks.
 * A rank that fails sets the abort word, so that the others do not wait.
 * @return DYT_ERR_INVALID  a rank is not in the world, a table is missing
 * @return DYT_ERR_UNSUPPORTED  backups in host memory of what is there already
 * @return DYT_ERR_NOMEM    the text says which segment, and how much there is
 * @return DYT_ERR_PEER, DYT_ERR_TIMEOUT  another rank did not come
 */
enum dyt_status dyti_world_open(const struct dyti_world_params *params,
                                struct dyti_world **out_world);
/* Not collective: groups, prepared switches, mappings, in this order. */
void dyti_world_close(struct dyti_world *world);

struct dyti_control_page *dyti_world_control(const struct dyti_world *world);

/* A group that this rank belongs to; costs nothing.  size 0: the rank is not in
 * that layout or group; size 1: alone (ops still work).  Groups with equal
 * member lists are one and the same. */
struct dyti_group dyti_world_group(const struct dyti_world *world,
                                   enum dyti_arena_slot slot,
                                   enum dyti_dimension dimension);
/* All ranks of the world, by rank. */
struct dyti_group dyti_world_all(const struct dyti_world *world);

/* Address of a region here, in one's own or a peer's segment; NULL if that rank
 * holds none, or is on another host.  Never changes, but in mode double, where
 * a commit makes the other of two fixed addresses of the rollout layout the
 * live one. */
void *dyti_world_region(const struct dyti_world *world, uint32_t rank,
                        enum dyti_arena_slot slot, enum dyti_kind kind);
/* The same in one address set, live or not; NULL where it has no such set. */
void *dyti_world_region_in(const struct dyti_world *world, uint32_t rank,
                           enum dyti_arena_slot slot, enum dyti_kind kind,
                           uint32_t set);
/* This rank's work memory (KV cache, activations); NULL if there is none. */
void *dyti_world_work(const struct dyti_world *world, uint64_t *out_bytes);

/* ---- switching ---------------------------------------------------------- */

/* Which links go by messages. */
enum dyti_world_mover {
    DYTI_WORLD_AUTO,   /* those between ranks that do not map their memory */
    DYTI_WORLD_DIRECT, /* none; refused where memory is not mapped */
    DYTI_WORLD_MESSAGE /* all */
};

struct dyti_world_switch_options {
    uint32_t kinds; /* bits 1 << kind that travel; 0: all but the gradient */
    enum dyti_side side; /* who executes: pull (default) or push */
    uint64_t cap_bytes;  /* most that a rank's segment may take; 0: no cap */
    enum dyti_world_mover mover;
    const struct dyti_strategy_ops *strategy; /* NULL: optimal */
    uint64_t staging_bytes, message_bytes;    /* as sched/sched.h; 0: default */
    /* Between hosts each rank fetches its own copy.  Default: one copy enters a
     * host, its ranks then read it from each other. */
    bool no_fan_out;
};

/**
 * Plan, schedule, resolve and keep the switch between two slots.  The second
 * call with equal arguments finds it, and plans nothing.  Not collective, moves
 * nothing; a job calls it while it starts, and again before each switch.
 *
 * @param options      NULL: all defaults
 * @param out_switch   owned by the world
 * @param out_plan_ns  time that this call took; may be NULL
 * @return DYT_ERR_INVALID  a slot without a layout
 * @return what plan, schedule and dyti_switch_create() return
 */
enum dyt_status dyti_world_prepare(
    struct dyti_world *world, enum dyti_arena_slot from,
    enum dyti_arena_slot to, const struct dyti_world_switch_options *options,
    struct dyti_switch **out_switch, int64_t *out_plan_ns);

/* ---- memory ---------------------------------------------------------------
 */

/* Peers' memory is mapped here as they have released and restored it, if it is
 * a device's; they keep the device's memory until then.  Switches do so when
 * the ranks have met.  Not collective. */
enum dyt_status dyti_world_refresh(struct dyti_world *world);

/* One owner of memory on this rank. */
struct dyti_world_owner {
    char name[32];          /* "rollout param", "work", "control" */
    uint64_t bytes;         /* of addresses */
    uint64_t touched_bytes; /* with memory behind them, now */
};

/* Fills at most `cap`; *out_count is how many there are. */
enum dyt_status dyti_world_memory(const struct dyti_world *world,
                                  struct dyti_world_owner *owner, size_t cap,
                                  size_t *out_count);

#endif /* DYTI_EDM_WORLD_H */
