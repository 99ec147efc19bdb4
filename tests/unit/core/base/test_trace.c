/* Traces: events of threads and processes, and files that cannot be written
 * (base/trace.h). */
#include "base/trace.h"

#include "dyt_test.h"

#include <jansson.h>
#include <pthread.h>
#include <sys/wait.h>

/* The events of a file: what a viewer reads once the array is closed. */
static json_t *events_of(const char *path)
{
    size_t bytes = 0;
    char *text = dyt_test_read(path, &bytes);
    char *comma = strrchr(text, ',');
    json_t *events;

    assert_non_null(comma);
    assert_string_equal(",\n", comma); /* the last line is whole */
    *comma = ']';
    comma[1] = '\0';
    events = json_loads(text, 0, NULL);
    assert_true(json_is_array(events));
    free(text);
    return events;
}

static void off_means_nothing_is_recorded(void **state)
{
    struct dyti_trace_region region = dyti_trace_begin("exec", "transfer");

    (void)state;
    assert_false(dyti_trace_on());
    assert_int_equal(0, region.start_ns);
    dyti_trace_end(&region, 1);
    dyti_trace_flush();
    dyti_trace_stop();
    assert_ok(dyti_trace_start(NULL, true));
    assert_false(dyti_trace_on());
}

static void region_is_an_event_with_its_length_and_bytes(void **state)
{
    char path[512];
    struct dyti_trace_region outer, inner;
    json_t *events, *first, *second;

    (void)state;
    snprintf(path, sizeof(path), "%s/trace.json", dyt_test_dir());
    dyti_log_identity(3, "train");
    assert_ok(dyti_trace_start(path, true));
    assert_status(DYT_ERR_STATE, dyti_trace_start(path, true));
    outer = dyti_trace_begin("exec", "switch");
    inner = dyti_trace_begin("exec", "transfer");
    dyti_trace_end(&inner, 4096);
    dyti_trace_end(&outer, 0);
    dyti_trace_stop();
    dyti_log_identity(-1, "-");

    events = events_of(path);
    assert_int_equal(2, json_array_size(events));
    first = json_array_get(events, 0);
    second = json_array_get(events, 1);
    assert_string_equal("transfer",
                        json_string_value(json_object_get(first, "name")));
    assert_string_equal("exec",
                        json_string_value(json_object_get(first, "cat")));
    assert_int_equal(3, json_integer_value(json_object_get(first, "pid")));
    assert_int_equal(4096, json_integer_value(json_object_get(
                               json_object_get(first, "args"), "bytes")));
    assert_true(json_number_value(json_object_get(second, "ts")) <=
                json_number_value(json_object_get(first, "ts")));
    assert_true(json_number_value(json_object_get(second, "dur")) >=
                json_number_value(json_object_get(first, "dur")));
    json_decref(events);
}

static void *trace_many(void *arg)
{
    for (int i = 0; i < *(int *)arg; i++) {
        struct dyti_trace_region region = dyti_trace_begin("nn", "layer");

        dyti_trace_end(&region, (uint64_t)i);
    }
    return NULL;
}

/* More than a buffer of events, by threads that end and by another process
 * that appends. */
static void nothing_is_lost_by_threads_and_processes(void **state)
{
    char path[512];
    pthread_t thread[3];
    int count = 700, status = 0;
    json_t *events;
    pid_t child;

    (void)state;
    snprintf(path, sizeof(path), "%s/trace.json", dyt_test_dir());
    assert_ok(dyti_trace_start(path, true));
    for (size_t i = 0; i < DYT_TEST_COUNT(thread); i++) {
        assert_int_equal(0,
                         pthread_create(&thread[i], NULL, trace_many, &count));
    }
    for (size_t i = 0; i < DYT_TEST_COUNT(thread); i++) {
        pthread_join(thread[i], NULL);
    }
    dyti_trace_stop();
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (dyti_trace_start(path, false) != DYT_OK) {
            _exit(1);
        }
        trace_many(&count);
        dyti_trace_stop();
        _exit(0);
    }
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_int_equal(0, status);
    events = events_of(path);
    assert_int_equal(4 * 700, json_array_size(events));
    json_decref(events);
}

static void unwritable_path_is_an_error(void **state)
{
    char path[512];

    (void)state;
    snprintf(path, sizeof(path), "%s/no/such/folder", dyt_test_dir());
    assert_status(DYT_ERR_IO, dyti_trace_start(path, true));
    assert_error_has(path);
    assert_false(dyti_trace_on());
}

static void a_full_disk_is_said_once(void **state)
{
    uint64_t before = dyti_log_complaints();

    (void)state;
    if (access("/dev/full", W_OK) != 0) {
        skip();
    }
    dyt_test_allow_complaints();
    assert_ok(dyti_trace_start("/dev/full", true));
    for (int i = 0; i < 1000; i++) {
        struct dyti_trace_region region = dyti_trace_begin("exec", "switch");

        dyti_trace_end(&region, 0);
    }
    dyti_trace_stop();
    assert_int_equal(before + 1, dyti_log_complaints());
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(off_means_nothing_is_recorded),
    cmocka_unit_test(region_is_an_event_with_its_length_and_bytes),
    cmocka_unit_test(nothing_is_lost_by_threads_and_processes),
    cmocka_unit_test(unwritable_path_is_an_error),
    cmocka_unit_test(a_full_disk_is_said_once),
};
DYT_TEST_MAIN(tests)
