/* Every layout is the same computation: three steps in each, the trainer's
 * log-probabilities against the rollout's, and the first step's gradient
 * against that of one rank alone. */
#include "dyt_job.h"
#include "dyt_test.h"

/* One row: a name, then what is set; at most ten. */
struct row {
    const char *name;
    const char *set[10];
};

#define ONE_RANK                                                               \
    "ranks=1", "phase.rollout.layout.tp=1", "phase.train.layout.pp=1",         \
        "phase.train.layout.dp=1", "phase.train.layout.zero=0"
#define WORLD(ranks, tp, pp, dp, t_tp, t_pp, t_dp, zero)                       \
    "ranks=" #ranks, "phase.rollout.layout.tp=" #tp,                           \
        "phase.rollout.layout.pp=" #pp, "phase.rollout.layout.dp=" #dp,        \
        "phase.train.layout.tp=" #t_tp, "phase.train.layout.pp=" #t_pp,        \
        "phase.train.layout.dp=" #t_dp, "phase.train.layout.zero=" #zero

/* What the first step's numbers are, to compare others with. */
struct first {
    double loss, grad_norm, entropy;
};

static struct first run_row(const struct dyt_job *job, const struct row *row,
                            const char *const *more, double gap)
{
    const char *sets[DYT_JOB_SETS + 1];
    char *name = dyt_words("name=%s", row->name);
    struct first first;
    struct dyt_run run;
    json_t *lines, *summary;
    size_t n = 0;

    sets[n++] = name;
    for (size_t i = 0; i < DYT_TEST_COUNT(row->set) && row->set[i] != NULL;
         i++) {
        sets[n++] = row->set[i];
    }
    for (size_t i = 0; more != NULL && more[i] != NULL; i++) {
        sets[n++] = more[i];
    }
    sets[n] = NULL;
    run = dyt_job_run_list(job, sets);
    if (run.code != 0) {
        fail_msg("%s: exit code %d:\n%s", row->name, run.code, run.out);
    }
    dyt_nothing_left();
    summary = dyt_job_summary(job, row->name);
    if (dyt_number(summary, "logprob_gap_max") > gap) {
        fail_msg("%s: the gap is %g", row->name,
                 dyt_number(summary, "logprob_gap_max"));
    }
    lines = dyt_job_lines(job, row->name, "metrics.jsonl");
    assert_int_equal(3, json_array_size(lines));
    first.loss = dyt_number(json_array_get(lines, 0), "loss");
    first.grad_norm = dyt_number(json_array_get(lines, 0), "grad_norm");
    first.entropy = dyt_number(json_array_get(lines, 0), "entropy");
    json_decref(lines);
    json_decref(summary);
    dyt_run_fini(&run);
    free(name);
    return first;
}

static void near(const char *name, const char *what, double want, double got,
                 double relative)
{
    if (!(fabs(want - got) <= relative * fabs(want) + 1e-7)) {
        fail_msg("%s: %s is %.9g, on one rank %.9g", name, what, got, want);
    }
}

static void all_alike(const struct dyt_job *job, const struct row *row,
                      size_t count, const char *const *more)
{
    static const struct row alone = {"alone", {ONE_RANK}};
    struct first want = run_row(job, &alone, more, 1e-3);

    for (size_t i = 0; i < count; i++) {
        struct first got = run_row(job, &row[i], more, 1e-3);

        near(row[i].name, "the gradient's norm", want.grad_norm, got.grad_norm,
             1e-4);
        near(row[i].name, "the entropy", want.entropy, got.entropy, 1e-5);
    }
    assert_true(want.grad_norm > 1e-3);
}

static void colocated_layouts_are_alike(void **state)
{
    static const struct row rows[] = {
        {"tp2-to-pp2", {WORLD(2, 2, 1, 1, 1, 2, 1, 0)}},
        {"tp4-to-pp2dp2", {WORLD(4, 4, 1, 1, 1, 2, 2, 1)}},
        {"pp2-to-tp2", {WORLD(2, 1, 2, 1, 2, 1, 1, 0)}},
        {"dp2-to-dp2-zero1", {WORLD(2, 1, 1, 2, 1, 1, 2, 1)}},
        {"dp4-to-tp2pp2", {WORLD(4, 1, 1, 4, 2, 2, 1, 0)}},
        {"tp2pp2-to-tp2dp2-zero1", {WORLD(4, 2, 2, 1, 2, 1, 2, 1)}},
        {"tp2dp2-to-dp4-zero1", {WORLD(4, 2, 1, 2, 1, 1, 4, 1)}},
        {"tp4-to-dp4-zero0", {WORLD(4, 4, 1, 1, 1, 1, 4, 0)}},
    };
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    all_alike(&job, rows, DYT_TEST_COUNT(rows), NULL);
}

static void pools_apart_and_overlapping_are_alike(void **state)
{
    static const struct row rows[] = {
        {"apart",
         {WORLD(3, 1, 1, 1, 1, 2, 1, 0), "pools.rollout=[0]",
          "pools.train=[1,2]"}},
        {"overlapping",
         {WORLD(3, 2, 1, 1, 1, 1, 2, 1), "pools.rollout=[0,1]",
          "pools.train=[1,2]"}},
        {"inside",
         {WORLD(4, 4, 1, 1, 1, 2, 1, 0), "pools.rollout=[0,1,2,3]",
          "pools.train=[2,1]"}},
    };
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    all_alike(&job, rows, DYT_TEST_COUNT(rows), NULL);
}

static void a_moving_optimizer_is_alike(void **state)
{
    static const char *const more[] = {
        "phase.rollout.residency.optimizer=\"move\"", "switch.verify=full",
        NULL};
    static const struct row rows[] = {
        {"tp4-to-pp2dp2", {WORLD(4, 4, 1, 1, 1, 2, 2, 1)}},
        {"dp2-to-tp2", {WORLD(2, 1, 1, 2, 2, 1, 1, 0)}},
    };
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    all_alike(&job, rows, DYT_TEST_COUNT(rows), more);
}

static void nine_heads_divide_by_nothing(void **state)
{
    static const struct row rows[] = {
        {"tp2", {WORLD(2, 2, 1, 1, 2, 1, 1, 0)}},
        {"tp3", {WORLD(3, 3, 1, 1, 1, 3, 1, 0)}},
        {"tp4", {WORLD(4, 4, 1, 1, 4, 1, 1, 1)}},
        {"tp6", {WORLD(6, 6, 1, 1, 3, 2, 1, 0)}},
    };
    struct dyt_job job = dyt_job_new("test-gqa");

    (void)state;
    all_alike(&job, rows, DYT_TEST_COUNT(rows), NULL);
}

static void other_families_are_alike(void **state)
{
    static const char *const preset[] = {"test-qwen2", "test-qwen3",
                                         "test-llama3"};
    static const struct row rows[] = {
        {"tp2-to-pp2", {WORLD(2, 2, 1, 1, 1, 2, 1, 0)}},
        {"tp3-to-tp1dp3", {WORLD(3, 3, 1, 1, 1, 1, 3, 1)}},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(preset); i++) {
        struct dyt_job job = dyt_job_new(preset[i]);

        all_alike(&job, rows, DYT_TEST_COUNT(rows), NULL);
    }
}

static void settings_of_the_algorithm_are_alike(void **state)
{
    static const char *const reference[] = {"algorithm.kl.coef=0.1",
                                            "algorithm.kl.in=loss", NULL};
    static const char *const penalty[] = {"algorithm.kl.coef=0.1",
                                          "algorithm.kl.in=reward",
                                          "algorithm.kl.estimator=k1", NULL};
    static const char *const rloo[] = {"algorithm.name=rloo", NULL};
    static const char *const epochs[] = {
        "phase.train.batch.epochs=2", "phase.train.batch.mini_batch=4", NULL};
    static const char *const resample[] = {"algorithm.zero_std_groups=resample",
                                           "algorithm.max_resample_batches=2",
                                           NULL};
    static const char *const recompute[] = {
        "phase.train.activation.recompute=layer",
        "phase.train.batch.micro_batch_tokens=16", NULL};
    static const char *const *const all[] = {reference, penalty,  rloo,
                                             epochs,    resample, recompute};
    static const struct row rows[] = {
        {"tp4-to-pp2dp2", {WORLD(4, 4, 1, 1, 1, 2, 2, 1)}},
    };
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(all); i++) {
        all_alike(&job, rows, DYT_TEST_COUNT(rows), all[i]);
    }
}

/* bf16 rounds to 8 bits: what that does to a log-probability is bounded, and
 * the limit of f32 does not apply. */
static void bf16_is_near(void **state)
{
    static const char *const more[] = {"phase.rollout.layout.dtype=bf16",
                                       "phase.train.layout.dtype=bf16", NULL};
    static const struct row row = {"bf16", {WORLD(4, 4, 1, 1, 1, 2, 2, 1)}};
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    run_row(&job, &row, more, 0.1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(colocated_layouts_are_alike),
    cmocka_unit_test(pools_apart_and_overlapping_are_alike),
    cmocka_unit_test(a_moving_optimizer_is_alike),
    cmocka_unit_test(nine_heads_divide_by_nothing),
    cmocka_unit_test(other_families_are_alike),
    cmocka_unit_test(settings_of_the_algorithm_are_alike),
    cmocka_unit_test(bf16_is_near),
};
DYT_TEST_MAIN(tests)
