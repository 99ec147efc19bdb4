#include "bench.h"
#include "figures.h"

#include "base/json_out.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct argp_option options[] = {
    {"json", 'j', "FILE", 0, "add one JSON record a line to FILE", 0},
    {"opponents", 'o', "DIR", 0,
     "opponents: figures measured before (*.jsonl), or their programs", 0},
    {"model", 'm', "DIR", 0, "a Hugging Face directory", 0},
    {"steps", 's', "N", 0, "steps of a run, where there are steps", 0},
    {"rounds", 'r', "N", 0, "turns of each program that count", 0},
    {"case", 'c', "PREFIX", 0,
     "only cases whose name begins with it; NAME$: that one", 0},
    {"against", 'a', "NAME,...", 0, "only these opponents", 0},
    {"quick", 'q', NULL, 0, "as short as possible: does it run at all?", 0},
    {0},
};

static void take_number(struct bench *bench, const char *option,
                        const char *arg, uint32_t *out)
{
    char *end = NULL;
    unsigned long number = strtoul(arg, &end, 10);

    if (end == arg || *end != '\0' || number < 1 || number > 1000) {
        fprintf(stderr, "%s: %s is a number from 1 to 1000, not %s\n",
                bench->name, option, arg);
        bench->exit_code = 2;
        return;
    }
    *out = (uint32_t)number;
}

static error_t take_option(int key, char *arg, struct argp_state *state)
{
    struct bench *bench = state->input;

    switch (key) {
    case 'j':
        bench->json = fopen(arg, "ae");
        if (bench->json == NULL) {
            fprintf(stderr, "%s: cannot write %s: %s\n", bench->name, arg,
                    strerror(errno));
            bench->exit_code = 2;
        }
        return 0;
    case 'o':
        bench->opponents = arg;
        return 0;
    case 'm':
        bench->model = arg;
        return 0;
    case 's':
        take_number(bench, "--steps", arg, &bench->steps);
        return 0;
    case 'r':
        take_number(bench, "--rounds", arg, &bench->rounds);
        return 0;
    case 'c':
        bench->only = arg;
        return 0;
    case 'a':
        bench->against = arg;
        return 0;
    case 'q':
        bench->quick = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

bool bench_open(struct bench *bench, const char *name, int argc, char **argv)
{
    static const struct argp argp = {.options = options, .parser = take_option};

    *bench = (struct bench){.name = name};
    if (argp_parse(&argp, argc, argv, 0, NULL, bench) != 0) {
        bench->exit_code = 2;
    }
    return bench->exit_code == 0;
}

uint32_t bench_steps(const struct bench *bench, uint32_t usual, uint32_t most)
{
    uint32_t steps = bench->steps > 0 ? bench->steps : usual;

    return steps < most ? steps : most;
}

uint32_t bench_rounds(const struct bench *bench, uint32_t usual)
{
    return bench->rounds > 0 ? bench->rounds : usual;
}

bool bench_wants(const struct bench *bench, const char *case_name)
{
    const char *only = bench->only;
    size_t bytes = only != NULL ? strlen(only) : 0;

    if (bytes > 0 && only[bytes - 1] == '$') {
        return strlen(case_name) == bytes - 1 &&
               memcmp(case_name, only, bytes - 1) == 0;
    }
    return bytes == 0 || strncmp(case_name, only, bytes) == 0;
}

static bool less_is_better(const char *unit)
{
    static const char *const less[] = {"s", "ms", "us", "ns", "MB"};

    for (size_t i = 0; i < sizeof(less) / sizeof(less[0]); i++) {
        if (strcmp(unit, less[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void write_json(struct bench *bench, const char *case_name, double ours,
                       const char *opponent, double theirs, double ratio,
                       double goal, const char *unit)
{
    struct dyti_json json;
    const char *text = NULL;
    size_t bytes = 0;

    dyti_json_init(&json, 0);
    dyti_json_begin_object(&json, NULL);
    dyti_json_text(&json, "bench", bench->name);
    dyti_json_text(&json, "case", case_name);
    dyti_json_f64(&json, "ours", ours);
    dyti_json_text(&json, "opponent", opponent);
    if (opponent != NULL) {
        dyti_json_f64(&json, "theirs", theirs);
        dyti_json_f64(&json, "ratio", ratio);
    } else {
        dyti_json_null(&json, "theirs");
        dyti_json_null(&json, "ratio");
    }
    if (goal > 0) {
        dyti_json_f64(&json, "goal", goal);
    } else {
        dyti_json_null(&json, "goal");
    }
    dyti_json_text(&json, "unit", unit);
    dyti_json_end(&json);
    if (dyti_json_finish(&json, &text, &bytes) != DYT_OK ||
        fwrite(text, 1, bytes, bench->json) != bytes) {
        bench->exit_code = 1;
    }
    dyti_json_release(&json);
}

static void record_one(struct bench *bench, const char *case_name, double ours,
                       const char *opponent, double theirs, double goal,
                       const char *unit)
{
    double ratio = less_is_better(unit) ? theirs / ours : ours / theirs;

    printf("%-10s %-34s %10.4g %s", bench->name, case_name, ours, unit);
    if (opponent != NULL) {
        printf("   %s %.4g   ratio %.3f", opponent, theirs, ratio);
        if (goal > 0) {
            printf(" (aim %.2f: %s)", goal, ratio >= goal ? "met" : "missed");
        }
    } else if (goal > 0) {
        printf("   (aim %.2f, nobody to compare with)", goal);
    }
    printf("\n");
    fflush(stdout);
    if (bench->json != NULL) {
        write_json(bench, case_name, ours, opponent, theirs, ratio, goal, unit);
    }
    bench->records++;
}

struct record {
    struct bench *bench;
    const char *case_name;
    double ours, goal;
    const char *unit;
};

static void beside(void *arg, const char *opponent, double theirs)
{
    const struct record *r = arg;

    record_one(r->bench, r->case_name, r->ours, opponent, theirs, r->goal,
               r->unit);
}

void bench_record(struct bench *bench, const char *case_name, double ours,
                  const char *opponent, double theirs, double goal,
                  const char *unit)
{
    struct record r = {bench, case_name, ours, goal, unit};

    if (opponent != NULL || bench_figures(bench->opponents, bench->name,
                                          case_name, unit, beside, &r) == 0) {
        record_one(bench, case_name, ours, opponent, theirs, goal, unit);
    }
}

int bench_close(struct bench *bench)
{
    if (bench->json != NULL && fclose(bench->json) != 0) {
        bench->exit_code = 1;
    }
    if (bench->records == 0 && bench->exit_code == 0) {
        fprintf(stderr, "%s: nothing was measured%s%s\n", bench->name,
                bench->only != NULL ? ": no case is --case " : "",
                bench->only != NULL ? bench->only : "");
        bench->exit_code = 1;
    }
    return bench->exit_code;
}

static double clock_seconds(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bench_seconds(void)
{
    return clock_seconds(CLOCK_MONOTONIC);
}

double bench_core_seconds(void)
{
    return clock_seconds(CLOCK_THREAD_CPUTIME_ID);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(double *value, uint32_t count)
{
    qsort(value, count, sizeof(*value), by_value);
    return count % 2 ? value[count / 2]
                     : (value[count / 2 - 1] + value[count / 2]) / 2;
}
