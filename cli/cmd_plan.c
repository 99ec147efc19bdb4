/* dynatrain plan JOB.toml: what a switch costs, before it is paid for. */
#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/exit.h"
#include "cli/job_args.h"

struct arguments {
    struct dyti_job_args job;
    bool json;
    struct dyti_plan_show show;
};

static const struct argp_option options[] = {
    DYTI_JOB_ARGS_SET,
    {"json", 'j', NULL, 0, "One JSON document", 0},
    {"transfers", 't', NULL, 0, "Every box that goes from rank to rank", 0},
    {"steps", 'p', NULL, 0, "Every step of every rank's schedule", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;

    switch (key) {
    case 'j':
        a->json = true;
        return 0;
    case 't':
        a->show.transfers = true;
        return 0;
    case 'p':
        a->show.steps = true;
        return 0;
    default:
        return dyti_job_args_parse(key, arg, state, &a->job);
    }
}

static const struct argp argp = {
    options,
    parse,
    "JOB.toml",
    "Prints what the switches of a job move, keep and need, per rank pair, "
    "without running it.\v"
    "Examples:\n"
    "  dynatrain plan configs/smollm2/job.toml\n"
    "  dynatrain plan job.toml --set phase.train.layout.zero=0 --json\n",
    NULL,
    NULL,
    NULL};

int dyti_cmd_plan(int argc, char **argv)
{
    struct arguments a = {0};
    struct dyti_loaded_job loaded;
    enum dyt_status st;

    argp_err_exit_status = DYTI_EXIT_CALLER;
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    st = dyti_loaded_job_open(a.job.job, a.job.set, a.job.set_count, &loaded);
    if (st != DYT_OK) {
        return dyti_exit_fail("plan", st);
    }
    st = a.json ? dyti_show_plans_json(&loaded, &a.show, stdout)
                : dyti_show_plans(&loaded, &a.show, stdout);
    dyti_loaded_job_close(&loaded);
    return st == DYT_OK ? DYTI_EXIT_OK : dyti_exit_fail("plan", st);
}
