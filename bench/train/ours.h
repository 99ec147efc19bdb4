/* Our side of bench/train: a world of ranks that trains, a step a turn. */
#ifndef DYT_BENCH_TRAIN_OURS_H
#define DYT_BENCH_TRAIN_OURS_H

#include "crew.h"

#include "layout/layout.h"

struct world {
    const char *name;
    const struct dyti_arch *arch;
    const char *model; /* folder of its weights; NULL: random ones */
    uint32_t tp, pp, dp, zero, threads;
    enum dyti_dtype dtype;
    uint32_t prompts, samples, prompt_tokens, answer_tokens;
    uint32_t micro_tokens;
    float entropy; /* weight of the entropy bonus */
};

struct ours {
    struct world world;
    struct crew *crew;
    struct dyti_model *model;
    struct dyti_layout *layout;
    struct ours_shared *shared;
    unsigned char *groups; /* memory of all groups, one after another */
    uint64_t group_bytes;
};

/* false: said on stderr. */
bool ours_open(const struct world *world, struct ours *out);

/* A turn of struct player: seconds of one step; `arg` is a struct ours. */
uint32_t ours_turn(void *arg, double *out_values, uint32_t most);

/* Where the last step's time went, as a line. */
void ours_print(const struct ours *ours, double seconds);

void ours_close(struct ours *ours);

#endif /* DYT_BENCH_TRAIN_OURS_H */
