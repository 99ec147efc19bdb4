/* A session's status (JSON of dyt_job_status) as a table for people. */
#ifndef DYTI_FORMAT_SESSION_STATUS_H
#define DYTI_FORMAT_SESSION_STATUS_H

#include "base/error.h"

#include <stdio.h>

/* DYT_ERR_FORMAT: it is no JSON. */
enum dyt_status dyti_session_status_print(const char *json, FILE *out);

#endif /* DYTI_FORMAT_SESSION_STATUS_H */
