/* All of a stream as text. */
#ifndef DYTI_CLI_READ_ALL_H
#define DYTI_CLI_READ_ALL_H

#include "base/error.h"

#include <stddef.h>
#include <stdio.h>

#define DYTI_READ_ALL_MAX (64u << 20) /* bytes; more is refused */

/* *out_text is malloc'ed and NUL-terminated; `what` names it in messages. */
enum dyt_status dyti_read_all(FILE *from, const char *what, char **out_text,
                              size_t *out_bytes);

#endif /* DYTI_CLI_READ_ALL_H */
