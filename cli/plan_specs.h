/* `dynatrain plan --from SPEC --to SPEC`: prices a switch that no job needs to
 * exist for. */
#ifndef DYTI_CLI_PLAN_SPECS_H
#define DYTI_CLI_PLAN_SPECS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdio.h>

struct dyti_plan_specs {
    const char *from, *to; /* SPEC, or a TOML file with [layout] */
    const char *model;     /* folder, config.json, or a name */
    const char *cluster;   /* TOML file or a name of configs/clusters;
                              NULL: hosts of 8 ranks, A800 links */
    const char *html;      /* NULL: no page */
    const char *kinds;     /* "param,master"; NULL: all but the gradient */
    bool json;
    bool pairs;  /* JSON: every rank pair */
    bool pinned; /* ranks of --to as described */
    bool exact;  /* each message of `per-tensor` is ordered by itself */
};

/* Prints to out. */
enum dyt_status dyti_plan_specs(const struct dyti_plan_specs *params,
                                FILE *out);

#endif /* DYTI_CLI_PLAN_SPECS_H */
