/* What a run is about to do, as text files: for DYNATRAIN_DUMP. */
#ifndef DYTI_CLI_DUMP_H
#define DYTI_CLI_DUMP_H

#include "cli/load_job.h"

/* Writes job.txt (the resolved job, layouts, memory of each phase) and plan.txt
 * (every transfer, every rank's schedule) into `folder`, which is made where it
 * is missing; NULL: nothing.
 * @return DYT_ERR_IO  a file cannot be written; and what the stages answer */
enum dyt_status dyti_dump_job(const struct dyti_loaded_job *loaded,
                              const char *folder);

#endif /* DYTI_CLI_DUMP_H */
