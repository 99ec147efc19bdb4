/* Ctrl-C: once, the step is finished and saved; twice, at once. */
#include "dyt_job.h"
#include "dyt_test.h"

static void once_saves_and_says_how_to_go_on(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_process p =
        dyt_job_start(&job, "steps=1000000", "data.prompt={letters}>", NULL);
    struct dyt_run run;
    json_t *summary;
    char *more, *resume;
    int steps;

    (void)state;
    assert_true(dyt_read_until(&p, "reward"));
    kill(p.pid, SIGINT);
    run = dyt_finish(&p);
    assert_exit(130, run);
    dyt_nothing_left();
    assert_says("stopping after this step", run);
    /* The whole command: another --set could name another run. */
    resume = dyt_words("go on with: dynatrain run %s --resume", job.file);
    assert_says(resume, run);
    assert_says(" --set steps=1000000", run);
    assert_says(" --set 'data.prompt={letters}>'", run);
    summary = dyt_job_summary(&job, "job");
    steps = (int)dyt_number(summary, "steps");
    assert_true(steps >= 1);
    assert_string_equal("interrupted",
                        json_string_value(json_object_get(summary, "end")));
    assert_true(dyt_exists("%s/job/checkpoints/step-%08d/complete.json",
                           job.runs, steps));
    dyt_run_fini(&run);

    more = dyt_words("steps=%d", steps + 2);
    run = dyt_job_run(&job, more, "--resume", NULL);
    assert_exit(0, run);
    dyt_run_fini(&run);
    {
        json_t *lines = dyt_job_lines(&job, "job", "metrics.jsonl");

        assert_int_equal(steps + 2, json_array_size(lines));
        json_decref(lines);
    }
    json_decref(summary);
    free(resume);
    free(more);
    dyt_nothing_left();
}

/* SIGTERM is what a batch system sends, SIGHUP a terminal that is closed: the
 * same. */
static void a_polite_kill_is_the_same(void **state)
{
    static const int signals[] = {SIGTERM, SIGHUP};
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(signals); i++) {
        struct dyt_process p = dyt_job_start(&job, "steps=1000000", NULL);
        struct dyt_run run;

        assert_true(dyt_read_until(&p, "reward"));
        kill(p.pid, signals[i]);
        run = dyt_finish(&p);
        assert_exit(130, run);
        assert_says("--resume", run);
        dyt_run_fini(&run);
        dyt_nothing_left();
    }
}

/* What nohup asks for. */
static void a_hangup_that_is_ignored_stays_so(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_process p;
    struct dyt_run run;

    (void)state;
    signal(SIGHUP, SIG_IGN);
    p = dyt_job_start(&job, "steps=40", NULL);
    signal(SIGHUP, SIG_DFL);
    assert_true(dyt_read_until(&p, "reward"));
    kill(p.pid, SIGHUP);
    run = dyt_finish(&p);
    assert_exit(0, run);
    dyt_run_fini(&run);
    dyt_nothing_left();
}

#ifdef DYT_TEST_HOOKS
/* A second one works whatever the run is busy with: a step that a hanging rank
 * keeps from ending, saving what the first one asked for, or nothing that ever
 * looks; the first is acknowledged at once. */
static void a_second_one_works_at_any_time(void **state)
{
    static const char forever[] = "steps=1000000";
    static const struct {
        const char *fault, *set, *until; /* it says before the first */
        int first, second;
    } row[] = {
        {"rank=2,at=train,step=2,how=hang", NULL, "hangs here", SIGINT, SIGINT},
        {"rank=1,at=checkpoint,how=hang", forever, "reward", SIGINT, SIGINT},
        {"rank=2,at=checkpointed,how=hang", forever, "reward", SIGINT, SIGTERM},
        {"rank=manager,at=save,how=hang", forever, "reward", SIGINT, SIGINT},
        {"rank=manager,at=saved,how=hang", forever, "reward", SIGINT, SIGTERM},
        {"rank=manager,at=begin,step=2,how=hang", NULL, "hangs here", SIGTERM,
         SIGTERM}};
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run;

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyt_process p;

        dyt_set_fault(row[i].fault);
        p = dyt_job_start(&job, row[i].set, NULL);
        dyt_set_fault(NULL);
        assert_true(dyt_read_until(&p, row[i].until));
        kill(p.pid, row[i].first);
        assert_true(dyt_read_until(&p, "once more: at once"));
        kill(p.pid, row[i].second);
        run = dyt_finish(&p);
        assert_exit(130, run);
        dyt_one_line("dynatrain run:", &run);
        assert_says("stopped on request", run);
        dyt_run_fini(&run);
        dyt_nothing_left();
    }
    /* What was locked and half done is no obstacle. */
    run = dyt_job_run(&job, NULL);
    assert_exit(0, run);
    dyt_run_fini(&run);
    dyt_nothing_left();
}

/* Whoever finds a run dead in the morning reads what is left of it. */
static void a_failed_run_says_what_was_saved(void **state)
{
    static const struct {
        const char *every, *says;
    } row[] = {
        {"checkpoint.every=0", "no step was saved: checkpoint.every = 0"},
        {"checkpoint.every=2", "step 4 is the last that was saved; go on with: "
                               "dynatrain run "},
    };
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyt_run run;

        dyt_set_fault("rank=2,at=train,step=6,how=kill");
        run = dyt_job_run(&job, "steps=9", row[i].every, NULL);
        dyt_set_fault(NULL);
        assert_exit(4, run);
        assert_says(row[i].says, run);
        dyt_run_fini(&run);
        dyt_nothing_left();
    }
}

static void once_while_starting_is_enough(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_process p;
    struct dyt_run run;

    (void)state;
    dyt_set_fault("rank=1,at=built,how=hang");
    p = dyt_job_start(&job, NULL);
    dyt_set_fault(NULL);
    assert_true(dyt_read_until(&p, "  train "));
    kill(p.pid, SIGINT);
    run = dyt_finish(&p);
    assert_exit(130, run);
    dyt_run_fini(&run);
    dyt_nothing_left();
}

/* A signal while a reward command thinks is not lost. */
static void twice_while_a_command_hangs(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_process p;
    struct dyt_run run;

    (void)state;
    dyt_job_edit(&job, "kind = \"regex\"\npattern = \"[a-m]\"\n",
                 "kind = \"command\"\n"
                 "command = [\"sh\", \"-c\", \"read x; echo asked >&2; "
                 "sleep 1000\"]\n"
                 "deadline = 1000.0\n");
    p = dyt_job_start(&job, NULL);
    assert_true(dyt_read_until(&p, "asked"));
    kill(p.pid, SIGINT);
    assert_true(dyt_read_until(&p, "once more: at once"));
    kill(p.pid, SIGINT);
    run = dyt_finish(&p);
    assert_exit(130, run);
    dyt_run_fini(&run);
    dyt_nothing_left();
}
#endif

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(once_saves_and_says_how_to_go_on),
    cmocka_unit_test(a_polite_kill_is_the_same),
    cmocka_unit_test(a_hangup_that_is_ignored_stays_so),
#ifdef DYT_TEST_HOOKS
    cmocka_unit_test(a_second_one_works_at_any_time),
    cmocka_unit_test(a_failed_run_says_what_was_saved),
    cmocka_unit_test(once_while_starting_is_enough),
    cmocka_unit_test(twice_while_a_command_hangs),
#endif
};
DYT_TEST_MAIN(tests)
