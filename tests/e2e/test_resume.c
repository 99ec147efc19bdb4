/* Killed and resumed: the same run, bit for bit, where layout and instruction
 * set are the same; up to rounding in another layout. */
#include "dyt_job.h"
#include "dyt_test.h"

/* Six steps at once, and three, a kill, and three more. */
static const char *const sets[] = {"steps=6", "checkpoint.every=3",
                                   "phase.train.lr_schedule.name=linear", NULL};

static void run_whole(const struct dyt_job *job, const char *name,
                      const char *const *more)
{
    const char *all[DYT_JOB_SETS + 1];
    char *named = dyt_words("name=%s", name);
    struct dyt_run run;
    size_t n = 0;

    all[n++] = named;
    for (size_t i = 0; sets[i] != NULL; i++) {
        all[n++] = sets[i];
    }
    for (size_t i = 0; more != NULL && more[i] != NULL; i++) {
        all[n++] = more[i];
    }
    all[n] = NULL;
    run = dyt_job_run_list(job, all);
    assert_exit(0, run);
    dyt_run_fini(&run);
    dyt_nothing_left();
    free(named);
}

/* Ends by kill -9 while step 5 is on its way. */
static void run_killed(const struct dyt_job *job, const char *name)
{
    char *named = dyt_words("name=%s", name);
    struct dyt_run run;

    dyt_set_fault("rank=manager,at=begin,step=5,how=kill");
    run = dyt_job_run(job, named, sets[0], sets[1], sets[2], NULL);
    dyt_set_fault(NULL);
    assert_int_equal(SIGKILL, run.signal);
    dyt_run_fini(&run);
    dyt_nothing_left();
    assert_true(dyt_exists("%s/%s/checkpoints/step-00000003/complete.json",
                           job->runs, name));
    free(named);
}

static json_t *lines_after(const struct dyt_job *job, const char *name,
                           const char *file, double step)
{
    json_t *all = dyt_job_lines(job, name, file), *kept = json_array(), *line;
    size_t i;

    json_array_foreach(all, i, line)
    {
        if (dyt_number(line, "step") > step) {
            json_array_append(kept, line);
        }
    }
    json_decref(all);
    return kept;
}

static void numbers_are(const struct dyt_job *job, const char *a, const char *b,
                        double relative)
{
    static const char *const keys[] = {"loss",    "grad_norm", "reward/mean",
                                       "entropy", "lr",        "version"};
    json_t *la = lines_after(job, a, "metrics.jsonl", 3);
    json_t *lb = lines_after(job, b, "metrics.jsonl", 3);

    assert_int_equal(3, json_array_size(la));
    assert_int_equal(3, json_array_size(lb));
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < DYT_TEST_COUNT(keys); k++) {
            double x = dyt_number(json_array_get(la, i), keys[k]);
            double y = dyt_number(json_array_get(lb, i), keys[k]);

            if (!(fabs(x - y) <= relative * fabs(x) + relative * 1e-2)) {
                fail_msg("step %zu: %s is %.9g, was %.9g", i + 4, keys[k], y,
                         x);
            }
        }
    }
    json_decref(la);
    json_decref(lb);
}

static void metrics_are_whole(const struct dyt_job *job, const char *name)
{
    json_t *lines = dyt_job_lines(job, name, "metrics.jsonl"), *line;
    size_t i;

    assert_int_equal(6, json_array_size(lines));
    json_array_foreach(lines, i, line)
    {
        assert_int_equal(i + 1, (int)dyt_number(line, "step"));
    }
    json_decref(lines);
}

static void resumed_is_bit_for_bit(void **state)
{
    static const char *const resume[] = {"--resume", NULL};
    struct dyt_job job = dyt_job_new("tiny");
    json_t *a, *b;

    (void)state;
    run_whole(&job, "straight", NULL);
    run_killed(&job, "killed");
    run_whole(&job, "killed", resume);
    metrics_are_whole(&job, "killed");
    numbers_are(&job, "straight", "killed", 0.0);
    a = lines_after(&job, "straight", "completions.jsonl", 0);
    b = lines_after(&job, "killed", "completions.jsonl", 0);
    assert_int_equal(6 * 16, json_array_size(a));
    if (!json_equal(a, b)) {
        fail_msg("the completions differ");
    }
    json_decref(a);
    json_decref(b);
}

static void another_layout_is_near(void **state)
{
    static const char *const tp2dp2[] = {"--resume", "phase.train.layout.tp=2",
                                         "phase.train.layout.pp=1",
                                         "phase.train.layout.zero=0", NULL};
    static const char *const one[] = {"--resume",
                                      "ranks=1",
                                      "phase.rollout.layout.tp=1",
                                      "phase.train.layout.pp=1",
                                      "phase.train.layout.dp=1",
                                      "phase.train.layout.zero=0",
                                      NULL};
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    run_whole(&job, "straight", NULL);
    run_killed(&job, "a");
    run_whole(&job, "a", tp2dp2);
    numbers_are(&job, "straight", "a", 1e-3);
    run_killed(&job, "b");
    run_whole(&job, "b", one);
    numbers_are(&job, "straight", "b", 1e-3);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run = dyt_job_run(&job, "--resume", NULL);

    (void)state;
    assert_exit(2, run);
    assert_says("no whole checkpoint to resume from", run);
    dyt_run_fini(&run);
    run_killed(&job, "job");
    run = dyt_job_run(&job, sets[0], "seed=7", "--resume", NULL);
    assert_exit(2, run);
    assert_says("has seed 1, the job 7", run);
    dyt_run_fini(&run);
    {
        char *path = dyt_words("%s/train.jsonl", job.dir);

        dyt_test_write(path, "{\"letters\": \"abcd\"}\n", 20);
        free(path);
    }
    run = dyt_job_run(&job, sets[0], "--resume", NULL);
    assert_exit(2, run);
    assert_says("other data", run);
    dyt_run_fini(&run);
    dyt_nothing_left();
}

static size_t lines_of(const struct dyt_job *job, const char *name)
{
    json_t *lines = dyt_job_lines(job, name, "metrics.jsonl");
    size_t count = json_array_size(lines);

    json_decref(lines);
    return count;
}

/* Whoever forgets --resume loses nothing, and the run that begins takes no
 * checkpoint of another one for its own. */
static void a_new_run_keeps_an_earlier_one(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run = dyt_job_run(&job, "steps=4", NULL);

    (void)state;
    assert_exit(0, run);
    dyt_run_fini(&run);
    run = dyt_job_run(&job, "steps=2", NULL);
    assert_exit(0, run);
    assert_says("earlier  ", run);
    assert_says("/job/earlier-1: the run that was here before", run);
    dyt_run_fini(&run);
    assert_int_equal(4, lines_of(&job, "job/earlier-1"));
    assert_int_equal(2, lines_of(&job, "job"));
    assert_true(
        dyt_exists("%s/job/earlier-1/checkpoints/step-00000004", job.runs));
    assert_false(dyt_exists("%s/job/checkpoints/step-00000004", job.runs));
    run = dyt_job_run(&job, "steps=3", "--resume", NULL);
    assert_exit(0, run);
    assert_says("step-00000002", run);
    dyt_run_fini(&run);
    assert_int_equal(3, lines_of(&job, "job"));
    assert_false(dyt_exists("%s/job/earlier-2", job.runs));
    run = dyt_job_run(&job, "steps=1", NULL);
    assert_exit(0, run);
    dyt_run_fini(&run);
    assert_int_equal(3, lines_of(&job, "job/earlier-2"));
    dyt_nothing_left();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(resumed_is_bit_for_bit),
    cmocka_unit_test(another_layout_is_near),
    cmocka_unit_test(what_does_not_fit_is_refused),
    cmocka_unit_test(a_new_run_keeps_an_earlier_one),
};
DYT_TEST_MAIN(tests)
