/* A few worker processes with a world, and the one who orders them about: what
 * a job has, without the job. */
#ifndef DYT_BENCH_TEAM_H
#define DYT_BENCH_TEAM_H

#include "edm/world.h"
#include "layout/layout.h"
#include "ops/kernels.h"
#include "ops/memory.h"
#include "ops/mover.h"

#include <sys/types.h>

#define TEAM_RANKS_MAX 8u

enum team_order {
    TEAM_SWITCH, /* from -> to */
    TEAM_MEMCPY, /* each its share of `bytes`, from a peer's source region to
                    its own destination region */
    TEAM_QUIT
};

struct team_command {
    enum team_order order;
    enum dyti_arena_slot from, to;
    enum dyti_kind kind; /* MEMCPY: of the source */
    enum dyti_verify verify;
    uint64_t epoch, bytes;
    /* SWITCH by messages: */
    enum dyti_world_mover mover;
    uint32_t strategy; /* of dyti_strategy_at() */
};

/* What ranks have whose memory is a device's. */
struct team_device {
    const struct dyti_memory_ops *memory;
    const struct dyti_kernel_ops *kernels;
    const struct dyti_mover_ops *mover;
};

struct team_shape {
    uint32_t ranks; /* rollout: TP; training: DP, and PP 2 where it divides */
    enum dyti_dtype dtype; /* of param in rollout and training */
    enum dyti_page_kind pages;
    bool all_state; /* the optimizer's travels too */
    bool no_master; /* of it the moments only: a rollout has no master */
    const struct team_device *device; /* NULL: memory of the host */
};

struct team_board; /* shared with the workers */

struct team {
    struct dyti_model *model;
    struct dyti_layout *layout[DYTI_ARENA_SLOT_COUNT];
    struct team_shape shape;
    pid_t worker[TEAM_RANKS_MAX];
    uint32_t worker_count;
    int control, segment[TEAM_RANKS_MAX];
    struct team_board *board;
    uint64_t epoch;
};

/* Build the layouts and start the workers.  Prints the reason where it cannot.
 */
enum dyt_status team_open(struct team *team, const struct dyti_arch *arch,
                          const struct team_shape *shape);
void team_close(struct team *team);

/* Give an order, wait for the last worker.  *out_seconds: from the order to
 * the last one's end.  *out_bytes (may be NULL): read plus written, of all. */
enum dyt_status team_run(struct team *team, const struct team_command *command,
                         double *out_seconds, uint64_t *out_bytes);

/* From training to rollout and back. */
struct team_trip {
    double seconds[2];
    uint64_t bytes[2]; /* (read + written) / 2, of all */
};

/* By switches as `how` says: its verify, mover and strategy. */
enum dyt_status team_switch_trip(struct team *team,
                                 const struct team_command *how,
                                 struct team_trip *out_trip);
/* By a memcpy of as many bytes, between the same regions. */
enum dyt_status team_copy_trip(struct team *team, const uint64_t bytes[2],
                               struct team_trip *out_trip);

#endif /* DYT_BENCH_TEAM_H */
