/* An opponent's program that stays loaded and takes its turns beside ours.
 *
 * Its script (bench/opponents, option --turns) runs in its own environment and
 * speaks in lines: it prints {"ready": …} once it has loaded; then a case in,
 * one call of it, {"value": …, "peak_rss_mb": …} out.  Other lines of its
 * stdout are passed over; a closed stdin ends it. */
#ifndef DYT_BENCH_RIVAL_H
#define DYT_BENCH_RIVAL_H

#include "contest.h"

struct bench;

struct rival_kind {
    const char *name;   /* "llama.cpp" */
    const char *script; /* in the folder --opponents */
    const char *venv;   /* of the cache's venv/bench-… */
};

struct rival {
    const char *name;
    const char *case_name; /* of its next turn; borrowed */
    double peak_mb;        /* largest resident set so far */
    struct rival_process *process;
};

/* Starts it and waits until it has loaded.  `more` are further arguments, NULL
 * at the end.  false: it is left out, and a line says why (not where --against
 * leaves it out, or without --opponents). */
bool rival_start(const struct bench *bench, const struct rival_kind *kind,
                 const char *const *more, struct rival *out);

/* A turn of struct player; `arg` is a struct rival. */
uint32_t rival_turn(void *arg, double *out_values, uint32_t most);

/* Ends it; nothing when it was never started. */
void rival_stop(struct rival *rival);

#endif /* DYT_BENCH_RIVAL_H */
