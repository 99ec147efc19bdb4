/* What the pieces of this benchmark share: the step that is measured, the
 * worlds that run it, and what one run of a program told. */
#ifndef DYT_BENCH_GRPO_STEP_H
#define DYT_BENCH_GRPO_STEP_H

#include <stdbool.h>
#include <stdint.h>

#define FIGURES 32u /* steps of one series that are kept */

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

/* Seconds of a step, one figure a step, and the most memory of a process. */
struct series {
    double seconds[FIGURES];
    uint32_t count;
    double peak_mb;
    double rollout, train, to_train, to_rollout; /* of the last step */
};

struct paths {
    char *dynatrain; /* the binary */
    char *script;    /* the opponent's program; NULL: not there */
    char *python;    /* of its environment; NULL: one of the two is missing */
    char *model;     /* a Hugging Face directory */
};

/* `steps` steps of `dynatrain run`; those after the first are added.  false:
 * it failed, and stderr says why. */
bool ours_run(const struct paths *paths, const struct work *work,
              const struct world *world, uint32_t steps, struct series *out);

/* TRL's trainer, one step that warms up and one that is added. */
bool trl_run(const struct paths *paths, const struct work *work,
             struct series *out);

/* ---- programs and folders (program.c) ----------------------------------- */

/* An empty folder for one run, owned by the caller; NULL: said on stderr. */
char *folder_create(void);

/* Deletes it and all that is in it. */
void folder_remove(char *folder);

/* A format's text, owned by the caller; never NULL: ends where memory does. */
char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Runs argv[0] to its end, with its stdout in `out_path` and its stderr in
 * `error_path`.  false: it could not start, or did not end with 0; the last
 * line of its stderr is said. */
bool program_run(char *const argv[], const char *out_path,
                 const char *error_path);

#endif /* DYT_BENCH_GRPO_STEP_H */
