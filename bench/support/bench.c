#include "bench.h"

#include "base/json_out.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct argp_option options[] = {
    {"json", 'j', "FILE", 0, "add one JSON record a line to FILE", 0},
    {"opponents", 'o', "DIR", 0, "figures or programs of opponents", 0},
    {"model", 'm', "DIR", 0, "a Hugging Face directory", 0},
    {"quick", 'q', NULL, 0, "as short as possible: does it run at all?", 0},
    {0},
};

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
    case 'q':
        bench->quick = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

bool bench_open(struct bench *bench, const char *name, int argc, char **argv)
{
    static const struct argp argp = {.options = options,
                                     .parser = take_option};

    *bench = (struct bench){.name = name};
    if (argp_parse(&argp, argc, argv, 0, NULL, bench) != 0) {
        bench->exit_code = 2;
    }
    return bench->exit_code == 0;
}

static bool less_is_better(const char *unit)
{
    static const char *const times[] = {"s", "ms", "us", "ns"};

    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        if (strcmp(unit, times[i]) == 0) {
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

void bench_record(struct bench *bench, const char *case_name, double ours,
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
    }
    printf("\n");
    fflush(stdout);
    if (bench->json != NULL) {
        write_json(bench, case_name, ours, opponent, theirs, ratio, goal,
                   unit);
    }
    bench->records++;
}

int bench_close(struct bench *bench)
{
    if (bench->json != NULL && fclose(bench->json) != 0) {
        bench->exit_code = 1;
    }
    if (bench->records == 0 && bench->exit_code == 0) {
        bench->exit_code = 1;
    }
    return bench->exit_code;
}

double bench_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
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
