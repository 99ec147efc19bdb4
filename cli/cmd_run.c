/* dynatrain run JOB.toml */
#include "base/env.h"
#include "base/trace.h"
#include "cli/assemble.h"
#include "cli/check_rows.h"
#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/dump.h"
#include "cli/exit.h"
#include "cli/job_args.h"
#include "cli/load_job.h"
#include "cli/manager.h"

#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>

struct arguments {
    struct dyti_job_args job;
    bool resume, dry_run;
};

static const struct argp_option options[] = {
    DYTI_JOB_ARGS_SET,
    {"resume", 'r', NULL, 0,
     "Go on from the newest whole checkpoint of this job (also into another "
     "layout)",
     0},
    {"dry-run", 'n', NULL, 0,
     "Print the resolved job, the layouts, which memory holds what in each "
     "phase and what a switch costs; allocate nothing",
     0},
    {"options", 'o', NULL, 0, "List every option of a job file", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;

    switch (key) {
    case 'r':
        a->resume = true;
        return 0;
    case 'n':
        a->dry_run = true;
        return 0;
    case 'o':
        dyti_job_write_help(stdout);
        exit(DYTI_EXIT_OK);
    default:
        return dyti_job_args_parse(key, arg, state, &a->job);
    }
}

static const struct argp argp = {
    options,
    parse,
    "JOB.toml",
    "Runs the RLHF loop of a job file: rollout, score, switch, train, switch, "
    "repeat.\v"
    "Examples:\n"
    "  dynatrain run configs/quickstart/job.toml\n"
    "  dynatrain run job.toml --set seed=2 --set phase.train.layout.zero=0\n"
    "  dynatrain run job.toml --dry-run\n"
    "  dynatrain run job.toml --resume\n\n"
    "Writes metrics.jsonl, completions.jsonl, summary.json and checkpoints "
    "under runs/NAME/; what an earlier run left there goes to "
    "runs/NAME/earlier-N/, unless it is resumed.  Ctrl-C finishes the step, "
    "saves and says how to go on; a second one stops at once.\n"
    "Options of a job file are explained in docs/config.md.",
    NULL,
    NULL,
    NULL};

/* The run itself, with what the environment asks to see of it. */
static int run(struct dyti_loaded_job *loaded, const struct arguments *a)
{
    char *sets = dyti_job_args_sets(&a->job);
    enum dyt_status st =
        sets != NULL ? DYT_OK : DYTI_FAIL(DYT_ERR_NOMEM, "the command line");
    int code;

    st =
        st != DYT_OK ? st : dyti_dump_job(loaded, dyti_env_text(DYTI_ENV_DUMP));
    st = st != DYT_OK ? st
                      : dyti_trace_start(dyti_env_text(DYTI_ENV_TRACE), true);
    if (st != DYT_OK) {
        free(sets);
        return dyti_exit_fail("run", st);
    }
    code = dyti_manager_run(&loaded->job, &loaded->assembly, loaded->model_dir,
                            sets, a->resume);
    dyti_trace_stop();
    free(sets);
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        fprintf(stderr,
                "dynatrain run: not all that it printed could be written; what "
                "it made is in %s/%s\n",
                loaded->job.runs, loaded->job.name);
        __fpurge(stdout);
        clearerr(stdout);
    }
    return code;
}

int dyti_cmd_run(int argc, char **argv)
{
    struct arguments a = {0};
    struct dyti_loaded_job loaded;
    enum dyt_status st;
    int code;

    argp_err_exit_status = DYTI_EXIT_CALLER;
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    st = dyti_loaded_job_open(a.job.job, a.job.set, a.job.set_count, &loaded);
    if (st != DYT_OK) {
        return dyti_exit_fail("run", st);
    }
    st = dyti_exit_given(dyti_arch_check_runs(&loaded.assembly.model->arch));
    if (st != DYT_OK) {
        dyti_loaded_job_close(&loaded);
        return dyti_exit_fail("run", st);
    }
    if (a.dry_run) {
        st = dyti_exit_given(dyti_check_data(&loaded.job));
        st = st != DYT_OK ? st : dyti_dry_run(&loaded, stdout);
        code = st == DYT_OK ? DYTI_EXIT_OK : dyti_exit_fail("run", st);
    } else {
        code = run(&loaded, &a);
    }
    dyti_loaded_job_close(&loaded);
    return code;
}
