/* The part of a command line that names a job: JOB.toml and --set. */
#ifndef DYTI_CLI_JOB_ARGS_H
#define DYTI_CLI_JOB_ARGS_H

#include <argp.h>
#include <stddef.h>

#define DYTI_SETS_MAX 256u

struct dyti_job_args {
    const char *job;
    const char *set[DYTI_SETS_MAX];
    size_t set_count;
};

/* The row of an argp table. */
#define DYTI_JOB_ARGS_SET DYTI_JOB_ARGS_SET_IN(0)
#define DYTI_JOB_ARGS_SET_IN(group)                                            \
    {                                                                          \
        "set", 's', "KEY=VALUE", 0,                                            \
            "Set an option of the job, as if it stood in the file; "           \
            "phase.NAME.key "                                                  \
            "addresses a phase.  May be given often",                          \
            (group)                                                            \
    }

/* What an argp parser answers for keys that it does not know itself. */
error_t dyti_job_args_parse(int key, char *arg, struct argp_state *state,
                            struct dyti_job_args *args);

/* The --set again, as a shell takes them, each with a space before it.  The
 * caller's to free; NULL: no memory. */
char *dyti_job_args_sets(const struct dyti_job_args *args);

#endif /* DYTI_CLI_JOB_ARGS_H */
