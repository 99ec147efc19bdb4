/* Will every row of a job's data do?  Asked before the first step, so that a
 * run does not find out at the row, hours later. */
#ifndef DYTI_CLI_CHECK_ROWS_H
#define DYTI_CLI_CHECK_ROWS_H

#include "format/data_jsonl.h"
#include "format/job.h"

/**
 * Each row makes a prompt and has what the reward functions look for in it.
 * The vocabulary and the length of prompts are not looked at.
 * @return DYT_ERR_FORMAT  a row does not; the text names file and line
 * @return DYT_ERR_CONFIG  a row is a chat, and the job has no chat template
 */
enum dyt_status dyti_check_rows(const struct dyti_job *job,
                                const struct dyti_data *data);

/* Of both files of the job, opened for it. */
enum dyt_status dyti_check_data(const struct dyti_job *job);

#endif /* DYTI_CLI_CHECK_ROWS_H */
