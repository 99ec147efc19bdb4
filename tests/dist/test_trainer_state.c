/* What a training step leaves behind when it is stopped, fed too little, or
 * carried into another process. */
#include "arch_cases.h"
#include "trainer_world.h"

static const struct dyti_arch arch = DYT_ARCH_TINY_4_2;

struct fixture {
    struct dyti_model *model;
    float **full;
    struct tw_desc desc;
    struct tw_world w;
    struct dyti_batch batch;
    struct dyti_train_metrics m;
};

static void set_up(struct fixture *f, uint32_t pp, uint32_t dp,
                   uint32_t prompts, uint32_t samples)
{
    memset(f, 0, sizeof(*f));
    assert_ok(dyti_model_build(&arch, &f->model));
    f->full = nn_full_random(f->model, 5);
    f->desc = (struct tw_desc){.model = f->model,
                               .tp = 1,
                               .pp = pp,
                               .dp = dp,
                               .zero = 1,
                               .kernels = &dyti_kernels_host,
                               .positions = 12};
    dyti_trainer_config_default(&f->desc.config);
    f->desc.config.lr = 1e-2f;
    f->desc.config.batch_sequences = 24;
    f->desc.config.micro_batch_tokens = 30;
    f->desc.config.schedule = DYTI_LR_LINEAR;
    f->desc.config.warmup_updates = 2;
    f->desc.config.total_updates = 8;
    tw_batch_init(&f->batch, &(struct tw_batch_desc){.seed = 31,
                                                     .prompts = prompts,
                                                     .samples = samples,
                                                     .prompt_most = 4,
                                                     .answer_most = 6,
                                                     .vocab = 37});
}

static void tear_down(struct fixture *f)
{
    tw_fini(&f->w);
    dyti_batch_fini(&f->batch);
    nn_full_free(f->model, f->full);
    dyti_model_destroy(f->model);
}

static void same_whole(const struct dyti_model *model, float **a, float **b)
{
    for (uint32_t t = 0; t < model->tensor_count; t++) {
        assert_memory_equal(a[t], b[t],
                            4 * dyti_tensor_elements(&model->tensor[t]));
    }
}

static void a_step_that_is_not_finite_changes_nothing(void **state)
{
    struct fixture f;
    float **before, **after;

    (void)state;
    set_up(&f, 2, 2, 4, 4);
    tw_init(&f.w, &f.desc, f.full, NULL);
    tw_step(&f.w, &f.batch, &f.m);
    before = tw_whole(&f.w, DYTI_MASTER);
    f.batch.sample[3].reward = NAN;
    f.w.want = DYT_ERR_VERIFY;
    tw_step(&f.w, &f.batch, &f.m);
    for (uint32_t i = 0; i < f.w.size; i++) {
        struct dyti_trainer_state s;

        dyti_trainer_state_get(f.w.rank[i].trainer, &s);
        assert_int_equal(s.version, 1);
        assert_int_equal(s.step, 1);
    }
    tw_check_copies(&f.w);
    after = tw_whole(&f.w, DYTI_MASTER);
    same_whole(f.model, before, after);

    /* And the next good one goes on. */
    f.batch.sample[3].reward = 1;
    f.w.want = DYT_OK;
    tw_step(&f.w, &f.batch, &f.m);
    assert_int_equal(f.m.version, 2);
    nn_full_free(f.model, before);
    nn_full_free(f.model, after);
    tear_down(&f);
}

static void nothing_left_to_train_on_is_no_update(void **state)
{
    struct fixture f;
    float **after;

    (void)state;
    set_up(&f, 2, 2, 3, 4);
    f.desc.config.zero_std_groups = DYTI_ZERO_DROP;
    tw_init(&f.w, &f.desc, f.full, NULL);
    for (uint32_t i = 0; i < f.batch.sample_count; i++) {
        f.batch.sample[i].reward = 0.5f;
    }
    tw_step(&f.w, &f.batch, &f.m);
    assert_int_equal(f.m.updates, 0);
    assert_int_equal(f.m.version, 0);
    assert_int_equal(f.m.dropped, 12);
    assert_true(f.m.frac_reward_zero_std == 1);
    assert_true(f.m.reward_mean == 0.5);
    after = tw_whole(&f.w, DYTI_PARAM);
    same_whole(f.model, f.full, after);
    nn_full_free(f.model, after);
    tear_down(&f);
}

/* Fewer sequences than dp ranks: some have no micro-batch at all. */
static void a_rank_without_work_keeps_up(void **state)
{
    struct fixture f;
    double norm;

    (void)state;
    set_up(&f, 1, 1, 1, 2);
    tw_init(&f.w, &f.desc, f.full, NULL);
    f.batch.sample[0].reward = 1;
    f.batch.sample[1].reward = 0;
    tw_step(&f.w, &f.batch, &f.m);
    norm = f.m.grad_norm;
    assert_true(norm > 0);
    tear_down(&f);

    set_up(&f, 2, 4, 1, 2);
    tw_init(&f.w, &f.desc, f.full, NULL);
    f.batch.sample[0].reward = 1;
    f.batch.sample[1].reward = 0;
    tw_step(&f.w, &f.batch, &f.m);
    assert_true(fabs(f.m.grad_norm / norm - 1) < 1e-5);
    assert_int_equal(f.m.sequences, 2);
    tw_check_copies(&f.w);
    tear_down(&f);
}

/* Everything is in the regions and in dyti_trainer_state. */
static void a_run_goes_on_in_another_process(void **state)
{
    struct fixture f;
    struct tw_world next;
    float **straight, **resumed;

    (void)state;
    set_up(&f, 2, 2, 6, 4);
    f.desc.config.mini_batch = 12;
    tw_init(&f.w, &f.desc, f.full, NULL);
    tw_init(&next, &f.desc, f.full, NULL);
    tw_step(&f.w, &f.batch, &f.m);
    assert_int_equal(f.m.updates, 2);
    for (uint32_t i = 0; i < f.w.size; i++) {
        struct dyti_trainer_state s;

        for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
            if (kind != DYTI_GRAD) {
                memcpy(next.rank[i].region[kind], f.w.rank[i].region[kind],
                       f.w.rank[i].view->region_bytes[kind]);
            }
        }
        dyti_trainer_state_get(f.w.rank[i].trainer, &s);
        dyti_trainer_state_set(next.rank[i].trainer, &s);
    }
    next.step = f.w.step;
    for (int s = 0; s < 2; s++) {
        tw_step(&f.w, &f.batch, &f.m);
        tw_step(&next, &f.batch, &f.m);
    }
    assert_int_equal(f.m.version, 6);
    straight = tw_whole(&f.w, DYTI_MASTER);
    resumed = tw_whole(&next, DYTI_MASTER);
    same_whole(f.model, straight, resumed);
    nn_full_free(f.model, straight);
    nn_full_free(f.model, resumed);
    tw_fini(&next);
    tear_down(&f);
}

/* The gap to the rollout is that of every sampled token, and 0 where the
 * rollout said exactly what the trainer says. */
static void the_gap_is_measured_before_the_update(void **state)
{
    struct fixture f;
    double sum = 0, most = 0, count = 0;

    (void)state;
    set_up(&f, 2, 2, 6, 4);
    tw_init(&f.w, &f.desc, f.full, NULL);
    tw_step(&f.w, &f.batch, &f.m);
    for (uint32_t i = 0; i < f.batch.sample_count; i++) {
        const float *old = tw_values(&f.w, i, DYTI_LOGPROB_OLD);
        const struct dyti_sample *s = &f.batch.sample[i];

        assert_non_null(old);
        for (uint32_t t = 0; t < s->count; t++) {
            double gap = fabs((double)s->processed[t] - (double)old[t]);

            sum += gap;
            most = fmax(most, gap);
            count += 1;
        }
    }
    assert_true(fabs(f.m.mismatch_abs_mean - sum / count) < 1e-9);
    assert_true(fabs(f.m.mismatch_abs_max - most) < 1e-6);
    tear_down(&f);

    set_up(&f, 1, 1, 6, 4);
    f.desc.config.lr = 0;
    tw_init(&f.w, &f.desc, f.full, NULL);
    tw_step(&f.w, &f.batch, &f.m);
    for (uint32_t i = 0; i < f.batch.sample_count; i++) {
        memcpy(f.batch.sample[i].processed,
               tw_values(&f.w, i, DYTI_LOGPROB_OLD),
               f.batch.sample[i].count * sizeof(float));
    }
    tw_step(&f.w, &f.batch, &f.m);
    assert_true(f.m.mismatch_abs_max == 0);
    tear_down(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_step_that_is_not_finite_changes_nothing),
    cmocka_unit_test(nothing_left_to_train_on_is_no_update),
    cmocka_unit_test(a_rank_without_work_keeps_up),
    cmocka_unit_test(a_run_goes_on_in_another_process),
    cmocka_unit_test(the_gap_is_measured_before_the_update),
};
DYT_TEST_MAIN(tests)
