/* Each allocation of a training rank made to fail in turn, from its setting up
 * to the end of a step: DYT_ERR_NOMEM, no output, and (under the address
 * sanitizer) nothing lost. */
#include "failing_alloc.h"
#include "trainer_world.h"

static const struct dyti_arch arch = {
    .family = DYTI_QWEN3,
    .vocab = 19,
    .hidden = 8,
    .layers = 2,
    .q_heads = 2,
    .kv_heads = 1,
    .head_dim = 4,
    .ffn = 6,
    .max_positions = 64,
    .rms_eps = 1e-5,
    .init_std = 0.02,
    .tied = true,
    .qk_norm = true,
    .rope = {.kind = DYTI_ROPE_DEFAULT, .theta = 1e4}};

/* From params to a finished step; what was not made stays NULL. */
static enum dyt_status whole_step(const struct dyti_trainer_params *params,
                                  const struct dyti_batch *batch,
                                  struct dyti_trainer **trainer,
                                  struct dyti_train_metrics *metrics)
{
    enum dyt_status st = dyti_trainer_create(params, trainer);

    return st != DYT_OK ? st : dyti_trainer_step(*trainer, batch, 0, metrics);
}

static void fail_each(const struct dyti_trainer_params *params,
                      const struct dyti_batch *batch)
{
    enum dyt_status st = DYT_ERR_NOMEM;
    long at = 0;

    for (; st != DYT_OK; at++) {
        struct dyti_train_metrics metrics = {.version = 77};
        struct dyti_trainer *trainer = NULL;

        assert_true(at < 500);
        dyt_alloc_countdown = at;
        st = whole_step(params, batch, &trainer, &metrics);
        dyt_alloc_countdown = -1;
        if (st != DYT_OK) {
            assert_int_equal(st, DYT_ERR_NOMEM);
            assert_int_equal(metrics.version, 77);
        } else {
            assert_int_equal(metrics.version, 2);
        }
        dyti_trainer_destroy(trainer);
    }
    assert_true(at > 15); /* it did reach the allocations of a step */
}

static void every_allocation_may_fail(void **state)
{
    struct tw_desc desc = {.tp = 1,
                           .pp = 1,
                           .dp = 1,
                           .kernels = &dyti_kernels_reference,
                           .positions = 10};
    struct dyti_trainer_params params;
    struct dyti_model *model;
    struct dyti_batch batch;
    struct tw_world w;
    float **full;

    (void)state;
    assert_ok(dyti_model_build(&arch, &model));
    desc.model = model;
    dyti_trainer_config_default(&desc.config);
    desc.config.batch_sequences = 8;
    desc.config.mini_batch = 4;
    desc.config.micro_batch_tokens = 12;
    desc.config.kl.coef = 0.1f;
    desc.config.kl.in = DYTI_KL_IN_REWARD;
    full = nn_full_random(model, 3);
    tw_init(&w, &desc, full, NULL);
    tw_batch_init(&batch, &(struct tw_batch_desc){.seed = 4,
                                                  .prompts = 2,
                                                  .samples = 4,
                                                  .prompt_most = 3,
                                                  .answer_most = 6,
                                                  .vocab = 19});
    tw_fill_params(&w, &w.rank[0], 0, &params);
    fail_each(&params, &batch);
    dyti_batch_fini(&batch);
    tw_fini(&w);
    nn_full_free(model, full);
    dyti_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_allocation_may_fail),
};
DYT_TEST_MAIN(tests)
