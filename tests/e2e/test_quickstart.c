/* The quickstart, shortened: what it writes, and that the numbers are sane. */
#include "dyt_job.h"
#include "dyt_test.h"

static void start(struct dyt_job *job, struct dyt_run *run)
{
    *job = dyt_job_new("tiny");
    snprintf(job->file, sizeof(job->file), "configs/quickstart/job.toml");
    {
        char *model = dyt_words("model=%s", job->model);
        char *runs = dyt_words("runs=%s", job->runs);

        *run = dyt_job_run(job, model, runs, "steps=6", "eval.every=3",
                           "eval.limit=12", "algorithm.prompts_per_step=8",
                           "algorithm.samples_per_prompt=8",
                           "phase.train.batch.mini_batch=0",
                           "phase.train.lr_schedule.warmup_steps=2", NULL);
        free(model);
        free(runs);
    }
}

static void six_steps_leave_their_files(void **state)
{
    static const char *const summary_keys[] = {"steps",
                                               "seconds",
                                               "reward_first",
                                               "reward_last",
                                               "exact_match",
                                               "switch_count",
                                               "switch_seconds_median",
                                               "switch_seconds_worst",
                                               "switch_bytes",
                                               "refit_seconds_median",
                                               "logprob_gap_max"};
    static const char *const step_keys[] = {"loss",
                                            "grad_norm",
                                            "reward/mean",
                                            "entropy",
                                            "time/step",
                                            "time/refit",
                                            "time/rollout",
                                            "time/train",
                                            "mismatch/logprob_abs_max",
                                            "completions/mean_length",
                                            "tokens_per_second/rollout"};
    struct dyt_job job;
    struct dyt_run run;
    json_t *summary, *lines, *line, *shown;
    size_t i;

    (void)state;
    start(&job, &run);
    assert_exit(0, run);
    dyt_nothing_left();
    assert_says("rollout  TP 4 x PP 1 x DP 1", run);
    assert_says("train    TP 1 x PP 2 x DP 2, ZeRO-1", run);
    assert_says("mean reward by step", run);
    assert_says("at first", run);
    assert_says("latency-bound", run);

    summary = dyt_job_summary(&job, "sort4");
    for (i = 0; i < DYT_TEST_COUNT(summary_keys); i++) {
        assert_true(isfinite(dyt_number(summary, summary_keys[i])));
    }
    assert_int_equal(6, (int)dyt_number(summary, "steps"));
    assert_true(json_object_get(summary, "switch_ratio") != NULL);
    assert_string_equal("steps",
                        json_string_value(json_object_get(summary, "end")));
    assert_true(dyt_number(summary, "logprob_gap_max") <= 1e-3);
    /* To rollout and back six times, and once more for the last evaluation. */
    assert_int_equal(13, (int)dyt_number(summary, "switch_count"));

    lines = dyt_job_lines(&job, "sort4", "metrics.jsonl");
    assert_int_equal(6, json_array_size(lines));
    json_array_foreach(lines, i, line)
    {
        assert_int_equal(i + 1, (int)dyt_number(line, "step"));
        assert_int_equal(i + 1, (int)dyt_number(line, "version"));
        for (size_t k = 0; k < DYT_TEST_COUNT(step_keys); k++) {
            assert_true(isfinite(dyt_number(line, step_keys[k])));
        }
    }
    shown = dyt_job_lines(&job, "sort4", "completions.jsonl");
    assert_true(json_array_size(shown) > 0);
    assert_true(dyt_exists("%s/sort4/checkpoints/step-00000006/complete.json",
                           job.runs));
    json_decref(shown);
    json_decref(lines);
    json_decref(summary);
    dyt_run_fini(&run);
}

/* Every sample carries the version that made it, and ids match the text. */
static void completions_say_who_made_them(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run = dyt_job_run(&job, NULL);
    json_t *lines, *line;
    size_t i;

    (void)state;
    assert_exit(0, run);
    lines = dyt_job_lines(&job, "job", "completions.jsonl");
    assert_int_equal(3 * 16, json_array_size(lines));
    json_array_foreach(lines, i, line)
    {
        const json_t *spans = json_object_get(line, "versions");
        size_t ids = json_array_size(json_object_get(line, "ids"));
        double step = dyt_number(line, "step");

        assert_int_equal(1, json_array_size(spans));
        assert_int_equal((int)step - 1,
                         (int)dyt_number(json_array_get(spans, 0), "version"));
        assert_int_equal(ids,
                         (size_t)dyt_number(json_array_get(spans, 0), "count"));
        assert_true(ids >= 1 && ids <= 6);
    }
    json_decref(lines);
    dyt_run_fini(&run);
    dyt_nothing_left();
}

/* The same job twice: the same bits. */
static void a_run_repeated_is_the_same_run(void **state)
{
    static const char *const keys[] = {"loss", "grad_norm", "reward/mean",
                                       "entropy", "tokens"};
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run a = dyt_job_run(&job, "name=a", NULL);
    struct dyt_run b = dyt_job_run(&job, "name=b", NULL);
    json_t *la, *lb, *ca, *cb;

    (void)state;
    assert_exit(0, a);
    assert_exit(0, b);
    la = dyt_job_lines(&job, "a", "metrics.jsonl");
    lb = dyt_job_lines(&job, "b", "metrics.jsonl");
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < DYT_TEST_COUNT(keys); k++) {
            assert_true(dyt_number(json_array_get(la, i), keys[k]) ==
                        dyt_number(json_array_get(lb, i), keys[k]));
        }
    }
    ca = dyt_job_lines(&job, "a", "completions.jsonl");
    cb = dyt_job_lines(&job, "b", "completions.jsonl");
    assert_true(json_equal(ca, cb));
    json_decref(la);
    json_decref(lb);
    json_decref(ca);
    json_decref(cb);
    dyt_run_fini(&a);
    dyt_run_fini(&b);
    dyt_nothing_left();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(six_steps_leave_their_files),
    cmocka_unit_test(completions_say_who_made_them),
    cmocka_unit_test(a_run_repeated_is_the_same_run),
};
DYT_TEST_MAIN(tests)
