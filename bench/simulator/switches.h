/* Real switches of small worlds on this machine, by messages, and what the
 * simulator is told of each: the same pieces, what stays, boxes. */
#ifndef DYT_BENCH_SWITCHES_H
#define DYT_BENCH_SWITCHES_H

#include "bench/switch/team.h"
#include "explain/simulate.h"

#define SWITCH_ROUNDS 9u

/* One switch of one team, back and forth being two. */
struct real_switch {
    const char *model;
    uint32_t team; /* index, for the caller */
    enum dyti_arena_slot from, to;
    uint32_t strategy; /* of dyti_strategy_at() */
    /* What is simulated; owned. */
    struct dyti_pieces pieces;
    uint64_t keep[TEAM_RANKS_MAX];
    struct dyti_rank_boxes boxes[TEAM_RANKS_MAX];
    /* What was measured. */
    double seconds[SWITCH_ROUNDS];
    uint32_t rounds;
};

/* Plan it as the workers do.  Prints the reason of a failure. */
bool real_switch_plan(const struct team *team, struct real_switch *s);
void real_switch_fini(struct real_switch *s);

/* Do it once; seconds from the order to the last worker's end. */
bool real_switch_run(struct team *team, struct real_switch *s, bool counts);

double real_switch_median(const struct real_switch *s);

#endif /* DYT_BENCH_SWITCHES_H */
