/* What the exit code of dynatrain means, for scripts:
 *   0    done
 *   1    the run failed; the same command may work later
 *   2    the command line, a configuration or a file is wrong: fix it first
 *   3    a rank's device failed
 *   4    a rank died or hung
 *   130  stopped on request (Ctrl-C); the text says how to go on */
#ifndef DYTI_CLI_EXIT_H
#define DYTI_CLI_EXIT_H

#include "base/error.h"

enum dyti_exit {
    DYTI_EXIT_OK = 0,
    DYTI_EXIT_RUN = 1,
    DYTI_EXIT_CALLER = 2,
    DYTI_EXIT_DEVICE = 3,
    DYTI_EXIT_PEER = 4,
    DYTI_EXIT_STOPPED = 130
};

int dyti_exit_code(enum dyt_status status);

/* The status of reading what a person named: what is not there, or may not be
 * read, is a wrong name, not a failed run.  Keeps the text. */
enum dyt_status dyti_exit_given(enum dyt_status status);

/* "dynatrain COMMAND: <message>" of this thread's last failure to stderr, and
 * its exit code. */
int dyti_exit_fail(const char *command, enum dyt_status status);

#endif /* DYTI_CLI_EXIT_H */
