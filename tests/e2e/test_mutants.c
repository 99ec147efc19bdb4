/* Deliberate mistakes of one rank in a whole run: each must end it, or show in
 * its numbers. */
#include "dyt_job.h"
#include "dyt_test.h"

/* At a switch, everything is compared. */
static void full_verify_sees_every_bad_switch(void **state)
{
    static const char *const fault[] = {"rank=1,how=skip",
                                        "rank=0,how=skip,step=1,to=train",
                                        "rank=2,how=stale,step=1",
                                        "rank=0,how=stale,step=2,to=rollout",
                                        "rank=3,how=swap_kv,step=1",
                                        "rank=1,how=late",
                                        "rank=1,how=late,step=1,to=rollout"};
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(fault); i++) {
        struct dyt_run run;

        dyt_set_fault(fault[i]);
        run = dyt_job_run(&job, "switch.verify=full", NULL);
        dyt_set_fault(NULL);
        if (run.code != 1) {
            fail_msg("%s: exit code %d:\n%s", fault[i], run.code, run.out);
        }
        dyt_one_line("dynatrain run:", &run);
        assert_says("tensor", run);
        assert_says("not committed", run);
        dyt_run_fini(&run);
        dyt_nothing_left();
    }
}

/* And where nothing is compared, the two sides of a batch do not agree, or what
 * was abandoned gives no number at all.  (Rollout weights that are whole but
 * wrong go back to the trainer, who agrees with them: only verify sees those.)
 */
static void the_gap_sees_what_verify_was_told_not_to(void **state)
{
    static const struct {
        const char *fault, *says;
    } row[] = {
        {"rank=1,how=skip,step=1,to=rollout", "not finite"},
        {"rank=0,how=stale,step=1,to=rollout", "nan"},
        {"rank=3,how=swap_kv,step=1,to=train", "algorithm.max_logprob_gap"},
        {"rank=0,how=skip,step=2,to=train", "nan"},
        {"rank=all,how=stale_kv", "algorithm.max_logprob_gap"},
    };
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyt_run run;

        dyt_set_fault(row[i].fault);
        run = dyt_job_run(&job, "switch.verify=off", "steps=6",
                          "phase.train.optimizer.lr=0.02", NULL);
        dyt_set_fault(NULL);
        if (run.code == 0) {
            fail_msg("%s: nothing was noticed:\n%s", row[i].fault, run.out);
        }
        dyt_one_line("dynatrain run:", &run);
        assert_says(row[i].says, run);
        dyt_run_fini(&run);
        dyt_nothing_left();
    }
}

static double first_norm(struct dyt_job *job, const char *name,
                         const char *fault, const char *set)
{
    char *named = dyt_words("name=%s", name);
    struct dyt_run run;
    json_t *lines;
    double norm;

    dyt_set_fault(fault);
    run = dyt_job_run(job, named, "steps=1",
                      "phase.train.batch.micro_batch_tokens=16", set, NULL);
    dyt_set_fault(NULL);
    assert_exit(0, run);
    lines = dyt_job_lines(job, name, "metrics.jsonl");
    norm = dyt_number(json_array_get(lines, 0), "grad_norm");
    json_decref(lines);
    dyt_run_fini(&run);
    free(named);
    return norm;
}

/* Both sides hold the same weights here; only the sum is wrong, and another
 * layout has the right one. */
static void a_wrong_sum_is_not_that_of_another_layout(void **state)
{
    static const char *const fault[] = {"how=drop_micro", "how=double_replica",
                                        "how=double_shared"};
    struct dyt_job job = dyt_job_new("tiny");
    double want = first_norm(&job, "good", NULL, NULL);
    double other = first_norm(&job, "other", NULL, "phase.train.layout.zero=0");

    (void)state;
    assert_true(fabs(want - other) <= 1e-4 * want);
    for (size_t i = 0; i < DYT_TEST_COUNT(fault); i++) {
        double got = first_norm(&job, "bad", fault[i], NULL);

        if (fabs(want - got) <= 1e-3 * want) {
            fail_msg("%s: the gradient's norm is %.9g, as without", fault[i],
                     got);
        }
    }
}

/* A spelling mistake must not become a test without a fault. */
static void an_unknown_fault_is_refused(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run;

    (void)state;
    dyt_set_fault("rank=1,at=nowhere,how=kill");
    run = dyt_job_run(&job, NULL);
    dyt_set_fault(NULL);
    assert_exit(2, run);
    assert_says("at=nowhere", run);
    dyt_run_fini(&run);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(full_verify_sees_every_bad_switch),
    cmocka_unit_test(the_gap_sees_what_verify_was_told_not_to),
    cmocka_unit_test(a_wrong_sum_is_not_that_of_another_layout),
    cmocka_unit_test(an_unknown_fault_is_refused),
};
DYT_TEST_MAIN(tests)
