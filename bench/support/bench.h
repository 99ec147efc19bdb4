/* What benchmark programs share: their options, their one record per figure.
 *
 *   int main(int argc, char **argv)
 *   {
 *       struct bench bench;
 *
 *       if (!bench_open(&bench, "switch", argc, argv)) {
 *           return bench.exit_code;
 *       }
 *       bench_record(&bench, "smollm2", ours, "memcpy", theirs, 0.8, "GB/s");
 *       return bench_close(&bench);
 *   }
 */
#ifndef DYT_BENCH_H
#define DYT_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct bench {
    const char *name;
    const char *opponents; /* folder of --opponents, or NULL */
    const char *model;     /* --model: a Hugging Face directory, or NULL */
    const char *only;      /* --case: a prefix of what is measured, or NULL */
    const char *against;   /* --against: names of opponents, or NULL: all */
    uint32_t steps;        /* --steps: of a run; 0: as the program likes */
    uint32_t rounds;       /* --rounds: of turns; 0: as the program likes */
    bool quick;            /* --quick: does it run at all? */
    FILE *json;            /* --json, or NULL */
    uint32_t records;
    int exit_code;
};

/* Read the options.  false: nothing is left to do (--help, a wrong option);
 * return bench->exit_code. */
bool bench_open(struct bench *bench, const char *name, int argc, char **argv);

/* --steps, or `usual` without it; at most `most`. */
uint32_t bench_steps(const struct bench *bench, uint32_t usual, uint32_t most);

/* --rounds, or `usual` without it. */
uint32_t bench_rounds(const struct bench *bench, uint32_t usual);

/* Does --case let this one through?  PREFIX, or a whole name and a $. */
bool bench_wants(const struct bench *bench, const char *case_name);

/* One figure beside that of an opponent measured in the same run; printed, and
 * written as one JSON line with the keys bench, case, ours, opponent, theirs,
 * ratio, goal and unit.
 *   opponent   NULL: everybody whose figure of this case lies in the folder
 *              --opponents, a line each; nobody there: ours stands alone, and
 *              opponent, theirs and ratio are null
 *   goal       the ratio to reach; 0 = none
 *   unit       "s", "ms", "us", "ns", "MB": less is better; else more is
 * ratio > 1 means ours is better. */
void bench_record(struct bench *bench, const char *case_name, double ours,
                  const char *opponent, double theirs, double goal,
                  const char *unit);

/* Closes the file.  0, or 1 where no record was made or a write failed. */
int bench_close(struct bench *bench);

/* ---- measuring ---------------------------------------------------------- */

double bench_seconds(void); /* monotonic */
/* Of a core, taken by this thread: of what one thread computes, whatever else
 * runs on the machine. */
double bench_core_seconds(void);

/* Sorts `value` and returns the middle one (of two, their mean). */
double bench_median(double *value, uint32_t count);

#endif /* DYT_BENCH_H */
