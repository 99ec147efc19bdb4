/* Our side of bench/rollout: a world of ranks that generates, a call a turn. */
#ifndef DYT_BENCH_ROLLOUT_OURS_H
#define DYT_BENCH_ROLLOUT_OURS_H

#include "crew.h"

#include "layout/layout.h"

struct world {
    const char *name;
    const struct dyti_arch *arch;
    const char *model; /* folder of its weights; NULL: random ones */
    uint32_t tp, threads;
    enum dyti_dtype dtype;
    uint32_t prompts, samples, prompt_tokens, new_tokens;
};

struct ours {
    struct world world;
    struct crew *crew;
    struct dyti_model *model;
    struct dyti_layout *layout;
    struct ours_shared *shared;
    void *group; /* the TP group's memory */
    uint64_t group_bytes;
};

/* false: said on stderr. */
bool ours_open(const struct world *world, struct ours *out);

/* A turn of struct player: seconds of one call; `arg` is a struct ours. */
uint32_t ours_turn(void *arg, double *out_values, uint32_t most);

/* Passes and rows of the last call, as a line. */
void ours_print(const struct ours *ours, double seconds);

void ours_close(struct ours *ours);

#endif /* DYT_BENCH_ROLLOUT_OURS_H */
