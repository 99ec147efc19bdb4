/* Figures of opponents that were measured before: what their programs in
 * bench/opponents print, one JSON record a line, in the *.jsonl of a folder. */
#ifndef DYT_BENCH_FIGURES_H
#define DYT_BENCH_FIGURES_H

#include <stdint.h>

typedef void (*bench_figure_fn)(void *arg, const char *opponent, double value);

/* Calls `take` for each figure of this bench, case and unit, in the order of
 * the files' names.  A case that nobody has counts as a variant of what stands
 * before its last slash: fp32/8/tp4 is compared with fp32/8.
 *   folder  NULL: no opponents
 * Returns how many there were. */
uint32_t bench_figures(const char *folder, const char *bench,
                       const char *case_name, const char *unit,
                       bench_figure_fn take, void *arg);

#endif /* DYT_BENCH_FIGURES_H */
