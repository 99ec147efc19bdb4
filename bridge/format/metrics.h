/* What a run writes about itself, in runs/<name>/:
 *   metrics.jsonl      one JSON object a line, one line a step
 *   completions.jsonl  one sample a line, every so many steps
 *   summary.json       the whole run, written at its end
 * Every key is in one table, which docs/metrics.md is printed from; a key
 * outside the table is refused.
 * Threads: one. */
#ifndef DYTI_FORMAT_METRICS_H
#define DYTI_FORMAT_METRICS_H

#include "data/data.h"

#include <stdio.h>

struct dyti_metrics;

/**
 * Open the two .jsonl files of a run's folder (made if it is not there).
 * @param resume_step  lines of later steps are cut off, as the run will write
 *                     them again; 0: start both files anew
 * @return DYT_ERR_IO
 */
enum dyt_status dyti_metrics_open(const char *folder, uint64_t resume_step,
                                  struct dyti_metrics **out_metrics);
void dyti_metrics_close(struct dyti_metrics *metrics);

/* A line: begin, put…, end.  `step` counts from 1; a number that is not finite
 * is written as null.  end writes the line in one piece and flushes. */
enum dyt_status dyti_metrics_begin(struct dyti_metrics *metrics, uint64_t step);
/* DYT_ERR_INVALID: the key is not documented. */
enum dyt_status dyti_metrics_put(struct dyti_metrics *metrics, const char *key,
                                 double value);
enum dyt_status dyti_metrics_end(struct dyti_metrics *metrics);

/* A line of completions.jsonl. */
struct dyti_completion {
    uint64_t step;
    bool eval; /* from an evaluation, not from training */
    const char *prompt, *text;
    const struct dyti_sample *sample; /* ids, reward, advantage, spans, … */
};
enum dyt_status dyti_metrics_completion(struct dyti_metrics *metrics,
                                        const struct dyti_completion *line);

/* Written as null where it is NAN (not measured). */
struct dyti_summary {
    const char *name;
    uint64_t steps; /* done */
    double seconds;
    double reward_first, reward_last; /* mean of the first / last 5 steps */
    double exact_match;               /* of the last evaluation */
    uint64_t switch_count;
    double switch_seconds_median, switch_seconds_worst;
    double switch_bytes; /* (read + written) / 2 of one switch */
    double switch_ratio; /* bandwidth over memcpy */
    double refit_seconds_median;
    double logprob_gap_max;
    const char *end; /* "steps", "reward", "seconds", "interrupted", "error" */
};
/* summary.json of a folder: whole or not at all. */
enum dyt_status dyti_summary_write(const char *folder,
                                   const struct dyti_summary *summary);

/* docs/metrics.md. */
void dyti_metrics_write_docs(FILE *out);

#endif /* DYTI_FORMAT_METRICS_H */
