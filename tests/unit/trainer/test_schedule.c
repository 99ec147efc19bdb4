/* Learning rates by update, and what the settings refuse. */
#include "dyt_test.h"
#include "trainer/schedule.h"

#include <math.h>

static struct dyti_trainer_config base(enum dyti_lr_name schedule)
{
    struct dyti_trainer_config c;

    dyti_trainer_config_default(&c);
    c.lr = 1.0f;
    c.schedule = schedule;
    c.warmup_updates = 4;
    c.total_updates = 12;
    c.min_lr = 0.5f;
    return c;
}

static void lr_examples(void **state)
{
    static const struct {
        enum dyti_lr_name schedule;
        uint64_t update;
        double want;
    } row[] = {
        {DYTI_LR_CONSTANT, 0, 0.25},
        {DYTI_LR_CONSTANT, 3, 1.0},
        {DYTI_LR_CONSTANT, 99, 1.0},
        {DYTI_LR_LINEAR, 1, 0.5},
        {DYTI_LR_LINEAR, 4, 1.0},
        {DYTI_LR_LINEAR, 8, 0.75},
        {DYTI_LR_LINEAR, 11, 0.5625},
        {DYTI_LR_LINEAR, 12, 0.5},
        {DYTI_LR_LINEAR, 99, 0.5},
        {DYTI_LR_COSINE, 2, 0.75},
        {DYTI_LR_COSINE, 4, 1.0},
        {DYTI_LR_COSINE, 8, 0.75},
        {DYTI_LR_COSINE, 6, 0.9267766952966369},
        {DYTI_LR_COSINE, 12, 0.5},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_trainer_config c = base(row[i].schedule);
        double got = dyti_schedule_lr(&c, row[i].update);

        if (!(fabs(got - row[i].want) < 1e-12)) {
            fail_msg("row %zu: %.17g, want %.17g", i, got, row[i].want);
        }
    }
}

static void no_warm_up_starts_at_lr(void **state)
{
    struct dyti_trainer_config c = base(DYTI_LR_LINEAR);

    (void)state;
    c.warmup_updates = 0;
    assert_true(dyti_schedule_lr(&c, 0) == 1.0);
}

/* A trial run of a few steps ends inside the warm-up. */
static void a_run_may_end_in_its_warm_up(void **state)
{
    struct dyti_trainer_config c = base(DYTI_LR_LINEAR);

    (void)state;
    c.total_updates = 3;
    assert_ok(dyti_trainer_config_check(&c));
    assert_true(dyti_schedule_lr(&c, 2) == 0.75);
    assert_true(dyti_schedule_lr(&c, 4) == 0.5);
}

static void bad_dual(struct dyti_trainer_config *c)
{
    c->dual_clip = 1.1f;
}
static void bad_norm(struct dyti_trainer_config *c)
{
    c->loss_agg = DYTI_AGG_SEQ_MEAN_TOKEN_SUM_NORM;
}
static void bad_is_range(struct dyti_trainer_config *c)
{
    c->rollout_is_min = 2;
}
static void bad_lr(struct dyti_trainer_config *c)
{
    c->lr = NAN;
}
static void bad_epochs(struct dyti_trainer_config *c)
{
    c->epochs = 0;
}
static void bad_beta(struct dyti_trainer_config *c)
{
    c->beta2 = 1;
}

static void wrong_settings_are_named(void **state)
{
    static const struct {
        void (*apply)(struct dyti_trainer_config *c);
        const char *says;
    } row[] = {
        {bad_dual, "loss.clip_dual is 1.1"},
        {bad_norm, "max_response_tokens"},
        {bad_is_range, "algorithm.rollout_is_max is 2"},
        {bad_lr, "optimizer.lr is nan"},
        {bad_epochs, "batch.epochs is 0"},
        {bad_beta, "optimizer.betas[1] is 1"},
    };
    struct dyti_trainer_config good = base(DYTI_LR_LINEAR);

    (void)state;
    assert_ok(dyti_trainer_config_check(&good));
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_trainer_config c = good;

        row[i].apply(&c);
        assert_status(DYT_ERR_CONFIG, dyti_trainer_config_check(&c));
        assert_error_has(row[i].says);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(lr_examples),
    cmocka_unit_test(no_warm_up_starts_at_lr),
    cmocka_unit_test(a_run_may_end_in_its_warm_up),
    cmocka_unit_test(wrong_settings_are_named),
};
DYT_TEST_MAIN(tests)
