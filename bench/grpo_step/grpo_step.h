/* What the pieces of this benchmark share: the step that is measured, the
 * worlds that run it, and what one run of a program told. */
#ifndef DYT_BENCH_GRPO_STEP_H
#define DYT_BENCH_GRPO_STEP_H

#include <stdbool.h>
#include <stdint.h>

#define FIGURES 32u /* steps of one run that are kept */

/* One GRPO step: `prompts` x `samples` completions of `tokens` tokens each. */
struct work {
    uint32_t prompts, samples, tokens;
    bool letters; /* prompts of four letters, which the tiny model can read */
    double kl;
};

/* Who runs it, and in which layouts. */
struct world {
    const char *name;
    uint32_t ranks;
    uint32_t rollout_tp;
    uint32_t train_pp, train_dp, zero;
};

/* Of one run: seconds of each step that counts, and the most memory of a
 * process. */
struct series {
    double seconds[FIGURES];
    uint32_t count;
    double peak_mb;
    double rollout, train, to_train, to_rollout; /* of the last step */
};

/* `steps` steps of `dynatrain run`, of which the first one does not count.
 * false: it failed, and stderr says why. */
bool ours_run(const char *dynatrain, const char *model, const struct work *work,
              const struct world *world, uint32_t steps, struct series *out);

#endif /* DYT_BENCH_GRPO_STEP_H */
