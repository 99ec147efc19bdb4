/* A curve as text, for terminals and logs. */
#ifndef DYTI_CLI_TEXT_PLOT_H
#define DYTI_CLI_TEXT_PLOT_H

#include <stddef.h>
#include <stdio.h>

/* `count` values in at most 60 columns (each the mean of its share) and 10
 * rows, with the axis from 0 (or the minimum, if lower) to the maximum. */
void dyti_text_plot(FILE *out, const char *title, const double *value,
                    size_t count);

#endif /* DYTI_CLI_TEXT_PLOT_H */
