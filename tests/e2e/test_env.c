/* What a run shows of itself when the environment asks: DYNATRAIN_DUMP and
 * DYNATRAIN_TRACE. */
#include "dyt_job.h"
#include "dyt_test.h"

static void dump_and_trace_are_written(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    char *dump = dyt_words("%s/dump", job.dir);
    char *trace = dyt_words("%s/trace.json", job.dir);
    char *plan, *events, *comma, *path = dyt_words("%s/plan.txt", dump);
    uint32_t ranks = 0, transfers = 0;
    struct dyt_run run;
    json_t *list, *event;
    size_t i;

    (void)state;
    setenv("DYNATRAIN_DUMP", dump, 1);
    setenv("DYNATRAIN_TRACE", trace, 1);
    run = dyt_job_run(&job, "steps=2", NULL);
    unsetenv("DYNATRAIN_DUMP");
    unsetenv("DYNATRAIN_TRACE");
    assert_exit(0, run);
    dyt_run_fini(&run);
    dyt_nothing_left();

    assert_true(dyt_exists("%s/job.txt", dump));
    plan = dyt_test_read(path, NULL);
    assert_non_null(strstr(plan, "switch train -> rollout"));
    assert_non_null(strstr(plan, "switch rollout -> train"));

    events = dyt_test_read(trace, NULL);
    comma = strrchr(events, ',');
    assert_non_null(comma);
    *comma = ']'; /* the closing bracket is the reader's */
    comma[1] = '\0';
    list = json_loads(events, 0, NULL);
    assert_true(json_is_array(list));
    json_array_foreach(list, i, event)
    {
        const char *name = json_string_value(json_object_get(event, "name"));

        ranks |= 1u << json_integer_value(json_object_get(event, "pid"));
        transfers += strcmp(name, "transfer") == 0;
    }
    assert_int_equal(0xf, ranks); /* each of the four was heard */
    assert_true(transfers >= 4 * 3);
    json_decref(list);
    free(events);
    free(plan);
    free(path);
    free(dump);
    free(trace);
}

static void what_cannot_be_written_stops_before_the_run(void **state)
{
    static const char *const names[] = {"DYNATRAIN_DUMP", "DYNATRAIN_TRACE"};
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(names); i++) {
        struct dyt_run run;

        setenv(names[i], "/proc/no/such/place", 1);
        run = dyt_job_run(&job, "steps=1", NULL);
        unsetenv(names[i]);
        assert_exit(1, run);
        assert_says("/proc/no/such/place", run);
        dyt_run_fini(&run);
        dyt_nothing_left();
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(dump_and_trace_are_written),
    cmocka_unit_test(what_cannot_be_written_stops_before_the_run),
};
DYT_TEST_MAIN(tests)
