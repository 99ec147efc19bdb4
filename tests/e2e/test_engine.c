/* Generation by an engine behind dynatrain/engine.h: the ranks offer each
 * version, the engine takes it and generates, the trainer learns from that. */
#include "dyt_job.h"
#include "dyt_test.h"

static struct dyt_run run_with_engine(const struct dyt_job *job,
                                      const char *path, const char *options,
                                      const char *more)
{
    char *plugin = dyt_words("phase.rollout.plugin.path=%s", path);
    char *given = dyt_words("phase.rollout.plugin.options=%s", options);
    char *address =
        dyt_words("phase.rollout.plugin.address=unix:%s/s/s.sock", job->dir);
    struct dyt_run run = dyt_job_run(job, "phase.rollout.engine=plugin", plugin,
                                     given, address, more, NULL);

    free(plugin);
    free(given);
    free(address);
    return run;
}

/* Nobody said where the session is to listen. */
static void the_session_listens_in_the_run_s_folder(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    char *plugin = dyt_words("phase.rollout.plugin.path=%s", DYT_ENGINE);
    struct dyt_run run = dyt_job_run(
        &job, "phase.rollout.engine=plugin", plugin,
        "phase.rollout.plugin.options=[\"threads=1\"]", "steps=1", NULL);

    (void)state;
    assert_exit(0, run);
    assert_true(dyt_exists("%s/job/session", job.runs));
    assert_false(dyt_exists("%s/job/session/job.sock", job.runs));
    dyt_run_fini(&run);
    dyt_nothing_left();
    free(plugin);
}

static double metric(const json_t *line, const char *key)
{
    return json_number_value(json_object_get(line, key));
}

static void the_ranks_learn_from_what_an_engine_samples(void **state)
{
    static const char *const commit[] = {"staged", "in_place"};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(commit); i++) {
        struct dyt_job job = dyt_job_new("tiny");
        char *options = dyt_words("[\"threads=1\",\"commit=%s\"]", commit[i]);
        struct dyt_run run =
            run_with_engine(&job, DYT_ENGINE, options, "switch.verify=full");
        json_t *lines;

        assert_exit(0, run);
        lines = dyt_job_lines(&job, "job", "metrics.jsonl");
        assert_int_equal(3, json_array_size(lines));
        for (size_t s = 0; s < 3; s++) {
            const json_t *line = json_array_get(lines, s);

            /* other weights than the trainer's would show here */
            assert_true(metric(line, "mismatch/logprob_abs_max") < 1e-3);
            assert_true(metric(line, "completions/mean_length") > 0.0);
            assert_int_equal(s + 1, (int)metric(line, "version"));
        }
        json_decref(lines);
        dyt_run_fini(&run);
        dyt_nothing_left();
        assert_false(dyt_exists("%s/s/s.sock", job.dir));
        free(options);
    }
}

static void what_is_wrong_with_an_engine_is_said(void **state)
{
    static const struct {
        const char *path, *options, *more, *says;
        int code;
    } wrong[] = {
        {"/nowhere/engine.so", "[]", NULL, "/nowhere/engine.so", 2},
        {"libm.so.6", "[]", NULL, "is no engine", 2},
        {DYT_ENGINE, "[\"speed=fast\"]", NULL, "option speed is unknown", 2},
        {DYT_ENGINE, "[\"threads\"]", NULL, "no key=value", 2},
        {DYT_ENGINE, "[\"positions=4\"]", NULL, "4", 1},
        {DYT_ENGINE, "[]", "switch.mode=double", "switch.mode", 2},
        {DYT_ENGINE, "[]", "phase.rollout.sampling.stop=[\"a\"]",
         "stop_token_ids", 2},
        {DYT_ENGINE, "[]", "phase.rollout.engine=builtin", "has no effect", 2},
        {"", "[]", NULL, "plugin.path", 2},
    };
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(wrong); i++) {
        struct dyt_run run = run_with_engine(&job, wrong[i].path,
                                             wrong[i].options, wrong[i].more);

        if (run.code == 0 || strstr(run.out, wrong[i].says) == NULL ||
            (wrong[i].code == 2 && run.code != 2)) {
            fail_msg("row %zu: exit code %d, want %d and \"%s\":\n%s", i,
                     run.code, wrong[i].code, wrong[i].says, run.out);
        }
        dyt_one_line("dynatrain run:", &run);
        dyt_run_fini(&run);
        dyt_nothing_left();
    }
}

/* It takes the manager with it; the ranks end, and leave nothing. */
static void an_engine_that_crashes_leaves_no_ranks(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run = run_with_engine(&job, DYT_ENGINE_CRASH, "[]", NULL);

    (void)state;
    assert_int_equal(SIGABRT, run.signal);
    dyt_run_fini(&run);
    dyt_nothing_left();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_ranks_learn_from_what_an_engine_samples),
    cmocka_unit_test(the_session_listens_in_the_run_s_folder),
    cmocka_unit_test(what_is_wrong_with_an_engine_is_said),
    cmocka_unit_test(an_engine_that_crashes_leaves_no_ranks),
};
DYT_TEST_MAIN(tests)
