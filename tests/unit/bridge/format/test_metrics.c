/* What a run writes: lines, cutting at a resume, the summary, a full disk. */
#include "dyt_test.h"
#include "format/metrics.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

static void assert_file(const char *dir, const char *name, const char *want)
{
    char path[300], *text;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    text = dyt_test_read(path, NULL);
    assert_string_equal(want, text);
    free(text);
}

static void write_step(struct dyti_metrics *metrics, uint64_t step)
{
    assert_ok(dyti_metrics_begin(metrics, step));
    assert_ok(dyti_metrics_put(metrics, "reward/mean", 0.5));
    assert_ok(dyti_metrics_put(metrics, "kl", NAN));
    assert_ok(dyti_metrics_put(metrics, "reward/my_own", 1.0));
    assert_ok(dyti_metrics_end(metrics));
}

#define LINE(step)                                                             \
    "{\"step\":" #step ",\"reward/mean\":0.5,\"kl\":null,"                     \
    "\"reward/my_own\":1.0}\n"

static void one_line_a_step(void **state)
{
    char dir[300];
    struct dyti_metrics *metrics = NULL;

    (void)state;
    snprintf(dir, sizeof(dir), "%s/run", dyt_test_dir());
    assert_ok(dyti_metrics_open(dir, 0, &metrics));
    write_step(metrics, 1);
    assert_file(dir, "metrics.jsonl", LINE(1)); /* there at once */
    write_step(metrics, 2);
    assert_status(DYT_ERR_STATE, dyti_metrics_put(metrics, "kl", 1.0));
    assert_status(DYT_ERR_STATE, dyti_metrics_end(metrics));
    assert_ok(dyti_metrics_begin(metrics, 3));
    assert_status(DYT_ERR_INVALID, dyti_metrics_put(metrics, "klx", 1.0));
    assert_status(DYT_ERR_INVALID, dyti_metrics_put(metrics, "reward/", 1.0));
    dyti_metrics_close(metrics);
    dyti_metrics_close(NULL);
    assert_file(dir, "metrics.jsonl", LINE(1) LINE(2));
    /* a new run starts anew */
    assert_ok(dyti_metrics_open(dir, 0, &metrics));
    dyti_metrics_close(metrics);
    assert_file(dir, "metrics.jsonl", "");
}

static void a_resume_cuts_what_comes_again(void **state)
{
    const char *dir = dyt_test_dir();
    char path[300];
    struct dyti_metrics *metrics = NULL;

    (void)state;
    snprintf(path, sizeof(path), "%s/metrics.jsonl", dir);
    dyt_test_write(path, LINE(1) LINE(2) LINE(3) "{\"step\":4,\"re",
                   strlen(LINE(1)) * 3 + 13);
    assert_ok(dyti_metrics_open(dir, 2, &metrics));
    write_step(metrics, 3);
    dyti_metrics_close(metrics);
    assert_file(dir, "metrics.jsonl", LINE(1) LINE(2) LINE(3));
    dyt_test_write(path, LINE(1) "{\"step\":2", strlen(LINE(1)) + 9);
    assert_ok(dyti_metrics_open(dir, 7, &metrics)); /* a line cut by a kill */
    dyti_metrics_close(metrics);
    assert_file(dir, "metrics.jsonl", LINE(1));
}

static void completions(void **state)
{
    const char *dir = dyt_test_dir();
    int32_t ids[] = {5, 6};
    struct dyti_version_span span[] = {{7, 0, 2}};
    struct dyti_sample sample = {.prompt = 3,
                                 .index = 1,
                                 .finish = DYTI_FINISH_LENGTH,
                                 .ids = ids,
                                 .count = 2,
                                 .span = span,
                                 .span_count = 1,
                                 .reward = 0.25f,
                                 .advantage = -0.5f};
    struct dyti_completion line = {
        .step = 9, .prompt = "p\"", .text = "a\nb", .sample = &sample};
    struct dyti_metrics *metrics = NULL;

    (void)state;
    assert_ok(dyti_metrics_open(dir, 0, &metrics));
    assert_ok(dyti_metrics_completion(metrics, &line));
    line.text = "\xff";
    assert_status(DYT_ERR_INVALID, dyti_metrics_completion(metrics, &line));
    dyti_metrics_close(metrics);
    assert_file(dir, "completions.jsonl",
                "{\"step\":9,\"eval\":false,\"group\":3,\"sample\":1,"
                "\"prompt\":\"p\\\"\",\"text\":\"a\\nb\",\"ids\":[5,6],"
                "\"reward\":0.25,\"dropped\":false,\"advantage\":-0.5,"
                "\"finish_reason\":\"length\",\"versions\":[{\"version\":7,"
                "\"first\":0,\"count\":2}]}\n");
}

static void the_summary_has_what_scripts_rely_on(void **state)
{
    static const char *const key[] = {"steps",
                                      "seconds",
                                      "reward_first",
                                      "reward_last",
                                      "exact_match",
                                      "switch_count",
                                      "switch_seconds_median",
                                      "switch_seconds_worst",
                                      "switch_bytes",
                                      "switch_ratio",
                                      "refit_seconds_median",
                                      "logprob_gap_max"};
    const char *dir = dyt_test_dir();
    struct dyti_summary summary = {.name = "t",
                                   .end = "steps",
                                   .steps = 10,
                                   .seconds = 1.5,
                                   .exact_match = NAN,
                                   .switch_count = 20};
    char path[300];
    json_t *json;

    (void)state;
    assert_ok(dyti_summary_write(dir, &summary));
    snprintf(path, sizeof(path), "%s/summary.json", dir);
    json = json_load_file(path, 0, NULL);
    assert_non_null(json);
    for (size_t i = 0; i < DYT_TEST_COUNT(key); i++) {
        assert_non_null(json_object_get(json, key[i]));
    }
    assert_int_equal(10, json_integer_value(json_object_get(json, "steps")));
    assert_true(json_is_null(json_object_get(json, "exact_match")));
    json_decref(json);
    assert_status(DYT_ERR_IO, dyti_summary_write("/nonexistent", &summary));
}

/* No room for a line: as on a full disk, but of this process only. */
static void no_room_is_an_error(void **state)
{
    const char *dir = dyt_test_dir();
    struct dyti_metrics *metrics = NULL;
    struct dyti_summary summary = {.name = "t", .end = "error"};
    struct rlimit before, none;
    enum dyt_status line, whole;

    (void)state;
    assert_ok(dyti_metrics_open(dir, 0, &metrics));
    assert_ok(dyti_summary_write(dir, &summary));
    write_step(metrics, 1);
    assert_ok(dyti_metrics_begin(metrics, 2));
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(0, getrlimit(RLIMIT_FSIZE, &before));
    none = before;
    none.rlim_cur = 8;
    assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &none));
    line = dyti_metrics_end(metrics);
    summary.steps = 5;
    whole = dyti_summary_write(dir, &summary);
    assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &before));
    assert_int_equal(DYT_ERR_IO, line);
    assert_int_equal(DYT_ERR_IO, whole);
    dyti_metrics_close(metrics);
    assert_file(dir, "metrics.jsonl", LINE(1));
}

static void a_full_disk_is_an_error(void **state)
{
    const char *dir = dyt_test_dir();
    struct dyti_metrics *metrics = NULL;
    char path[300];

    (void)state;
    snprintf(path, sizeof(path), "%s/metrics.jsonl", dir);
    if (access("/dev/full", W_OK) != 0 || symlink("/dev/full", path) != 0) {
        skip();
    }
    /* a device cannot be cut either: refused when opened */
    assert_status(DYT_ERR_IO, dyti_metrics_open(dir, 0, &metrics));
    assert_error_has("metrics.jsonl");
    assert_null(metrics);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_line_a_step),
    cmocka_unit_test(a_resume_cuts_what_comes_again),
    cmocka_unit_test(completions),
    cmocka_unit_test(the_summary_has_what_scripts_rely_on),
    cmocka_unit_test(no_room_is_an_error),
    cmocka_unit_test(a_full_disk_is_an_error),
};
DYT_TEST_MAIN(tests)
