/* A job file, its model's config.json, and what follows from both: where `run`
 * and `plan` start. */
#ifndef DYTI_CLI_LOAD_JOB_H
#define DYTI_CLI_LOAD_JOB_H

#include "cli/assemble.h"

struct dyti_loaded_job {
    struct dyti_job job;
    char *model_dir;
    struct dyti_assembly assembly; /* borrows job */
};

/* `out` must not move afterwards: the assembly points into it. */
enum dyt_status dyti_loaded_job_open(const char *path, const char *const *set,
                                     size_t set_count,
                                     struct dyti_loaded_job *out);
void dyti_loaded_job_close(struct dyti_loaded_job *loaded);

/* The directory of a model named on the command line or in a job. */
enum dyt_status dyti_find_model(const char *model, char **out_dir);

#endif /* DYTI_CLI_LOAD_JOB_H */
