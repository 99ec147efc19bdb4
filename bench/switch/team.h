/* Four worker processes with a world, and the one who orders them about: what a
 * job has, without the job. */
#ifndef DYT_BENCH_TEAM_H
#define DYT_BENCH_TEAM_H

#include "exec/switch.h"
#include "layout/layout.h"
#include "ops/memory.h"

#include <sys/types.h>

#define TEAM_RANKS 4u

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
};

struct team_board; /* shared with the workers */

struct team {
    struct dyti_model *model;
    struct dyti_layout *layout[DYTI_ARENA_SLOT_COUNT];
    enum dyti_page_kind pages;
    pid_t worker[TEAM_RANKS];
    uint32_t worker_count;
    int control, segment[TEAM_RANKS];
    struct team_board *board;
    uint64_t epoch;
};

/* Build the layouts (param in `dtype` in rollout, f32 in training) and start
 * the workers.  Prints the reason where it cannot. */
enum dyt_status team_open(struct team *team, const struct dyti_arch *arch,
                          enum dyti_dtype dtype, enum dyti_page_kind pages);
void team_close(struct team *team);

/* Give an order, wait for the last worker.  *out_seconds: from the order to
 * the last one's end.  *out_bytes (may be NULL): read plus written, of all. */
enum dyt_status team_run(struct team *team, const struct team_command *command,
                         double *out_seconds, uint64_t *out_bytes);

#endif /* DYT_BENCH_TEAM_H */
