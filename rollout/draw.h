/* What draw.c and draw_whole.c share: one chunk of logits rows, cut by columns
 * between the TP ranks, and the draws from it. */
#ifndef DYTI_ROLLOUT_DRAW_H
#define DYTI_ROLLOUT_DRAW_H

#include "rollout/internal.h"

/* What a rank says of its columns of one row. */
struct dyti_row_stats {
    float max;      /* of logits */
    float sum_raw;  /* sum exp(logit - max) */
    float sum_temp; /* sum exp((logit - max) * scale) */
};

/* The same of the whole row, known to all. */
struct dyti_row_total {
    float max;
    double raw, temp;
};

/* What the rank that owns a draw says of it; token -1: not ours. */
struct dyti_verdict {
    int32_t token;
    float logit;
};

struct dyti_chunk {
    struct dyti_rollout *r;
    const struct dyti_rollout_request *request;
    const struct dyti_sampling *sampling;
    float scale; /* 1 / temperature; 1 for greedy */
    uint32_t row_first, rows;
    struct dyti_draw *draw; /* those of these rows */
    uint32_t draws;
    int64_t vocab_lo, cols;
    float *logits;                /* [rows, cols] */
    struct dyti_row_stats *stats; /* [tp][rows] */
    struct dyti_row_total *total; /* [rows] */
    struct dyti_verdict *verdict; /* [tp][draws] */
};

/* The draw's random number, in [0, 1). */
double dyti_draw_unit(const struct dyti_chunk *c, const struct dyti_draw *d);

/* Must this draw look at a whole row?  A function of the draw alone, never of
 * what else is in the pass. */
bool dyti_draw_is_whole(const struct dyti_chunk *c, const struct dyti_draw *d);

/* Verdicts of this rank on all such draws of the chunk; collective. */
enum dyt_status dyti_draw_whole(struct dyti_chunk *c,
                                struct dyti_verdict *mine);

#endif /* DYTI_ROLLOUT_DRAW_H */
