/* What a job would do, without doing it: pure functions only, nothing is
 * allocated for weights, no process is started. */
#ifndef DYTI_CLI_DRY_RUN_H
#define DYTI_CLI_DRY_RUN_H

#include "cli/plan_price.h"

#include <stdio.h>

/* The resolved configuration, layouts, arenas with bytes, both switches. */
enum dyt_status dyti_dry_run(const struct dyti_loaded_job *loaded, FILE *out);

struct dyti_plan_show {
    bool transfers; /* every box */
    bool steps;     /* every step of every rank's schedule */
    /* What links are taken to be; NULL: of `prices`, or equal ones. */
    const struct dyti_cluster *cluster;
    bool pairs;                           /* JSON, of prices: every rank pair */
    const struct dyti_job_prices *prices; /* NULL: without */
};

/* The switches of a job: bytes kept and moved per rank pair, peak memory, and
 * what they take where there are prices. */
enum dyt_status dyti_show_plans(const struct dyti_loaded_job *loaded,
                                const struct dyti_plan_show *show, FILE *out);
/* The same as one JSON document. */
enum dyt_status dyti_show_plans_json(const struct dyti_loaded_job *loaded,
                                     const struct dyti_plan_show *show,
                                     FILE *out);

#endif /* DYTI_CLI_DRY_RUN_H */
