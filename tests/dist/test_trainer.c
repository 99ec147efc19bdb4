/* A step of training is the same step in any layout: loss, gradient norm and
 * log-probabilities against one rank, equal bits in all copies after every
 * update, and mistakes that must be noticed. */
#include "trainer_world.h"

#define STEPS 3

struct setting {
    uint32_t tp, pp, dp, zero, micro_tokens;
    enum dyti_recompute recompute;
    bool master_in_param;
    uint32_t pp_layers[3];
    uint32_t ranks[8];
};

#define SETTING(t, p, d, z, m, ...)                                            \
    {                                                                          \
        .tp = (t), .pp = (p), .dp = (d), .zero = (z), .micro_tokens = (m),     \
        __VA_ARGS__                                                            \
    }

static const struct dyti_arch arch_tied = {
    .family = DYTI_LLAMA,
    .vocab = 37,
    .hidden = 24,
    .layers = 3,
    .q_heads = 9,
    .kv_heads = 3,
    .head_dim = 4,
    .ffn = 20,
    .max_positions = 64,
    .rms_eps = 1e-5,
    .init_std = 0.02,
    .tied = true,
    .rope = {.kind = DYTI_ROPE_DEFAULT, .theta = 1e4}};
static const struct dyti_arch arch_qwen3 = {
    .family = DYTI_QWEN3,
    .vocab = 37,
    .hidden = 24,
    .layers = 3,
    .q_heads = 6,
    .kv_heads = 2,
    .head_dim = 4,
    .ffn = 20,
    .max_positions = 64,
    .rms_eps = 1e-5,
    .init_std = 0.02,
    .qk_norm = true,
    .rope = {.kind = DYTI_ROPE_DEFAULT, .theta = 1e6}};
static const struct dyti_arch arch_qwen2 = {
    .family = DYTI_QWEN2,
    .vocab = 37,
    .hidden = 24,
    .layers = 3,
    .q_heads = 6,
    .kv_heads = 3,
    .head_dim = 4,
    .ffn = 20,
    .max_positions = 64,
    .rms_eps = 1e-5,
    .init_std = 0.02,
    .tied = true,
    .qkv_bias = true,
    .rope = {.kind = DYTI_ROPE_DEFAULT, .theta = 1e6}};

static struct dyti_trainer_config config_base(void)
{
    struct dyti_trainer_config c;

    dyti_trainer_config_default(&c);
    c.lr = 1e-3f;
    c.weight_decay = 0.1f;
    c.max_grad_norm = 0.5f;
    c.temperature = 0.8f;
    c.entropy_coef = 0.02f;
    c.batch_sequences = 24;
    c.micro_batch_tokens = 1000;
    c.max_response_tokens = 8;
    return c;
}

/* What a run gives. */
struct outcome {
    struct dyti_train_metrics m[STEPS];
    float **param, **exp_avg;
    float *logprob; /* of the last step, by token */
    uint32_t live_max[8];
};

struct job {
    const struct dyti_model *model;
    float **full, **reference;
    struct dyti_trainer_config config;
    const struct dyti_kernel_ops *kernels;
    enum dyti_dtype dtype;
    int mutant;
    struct dyti_batch batch[STEPS];
    uint32_t steps;
};

static void job_init(struct job *j, const struct dyti_arch *arch)
{
    struct dyti_model *model;

    *j = (struct job){.config = config_base(),
                      .kernels = &dyti_kernels_reference,
                      .steps = STEPS};
    assert_ok(dyti_model_build(arch, &model));
    j->model = model;
    j->full = nn_full_random(model, 5);
    j->reference = nn_full_random(model, 6);
    for (uint32_t s = 0; s < STEPS; s++) {
        tw_batch_init(&j->batch[s], &(struct tw_batch_desc){.seed = 70 + s,
                                                            .prompts = 6,
                                                            .samples = 4,
                                                            .prompt_most = 5,
                                                            .answer_most = 8,
                                                            .vocab = 37});
    }
}

static void job_fini(struct job *j)
{
    nn_full_free(j->model, j->full);
    nn_full_free(j->model, j->reference);
    for (uint32_t s = 0; s < STEPS; s++) {
        dyti_batch_fini(&j->batch[s]);
    }
    dyti_model_destroy((struct dyti_model *)(uintptr_t)j->model);
}

static void keep_tokens(const struct tw_world *w, const struct dyti_batch *b,
                        struct outcome *out)
{
    size_t at = 0;

    out->logprob = calloc(24 * 8, sizeof(float));
    for (uint32_t i = 0; i < b->sample_count; i++) {
        const float *v = tw_values(w, i, DYTI_LOGPROB_OLD);

        if (v != NULL) {
            memcpy(out->logprob + at, v, b->sample[i].count * sizeof(float));
        }
        at += b->sample[i].count;
    }
}

static void run(const struct job *j, const struct setting *how,
                struct outcome *out)
{
    struct tw_desc desc = {.model = j->model,
                           .tp = how->tp,
                           .pp = how->pp,
                           .dp = how->dp,
                           .zero = how->zero,
                           .master_in_param = how->master_in_param,
                           .dtype = j->dtype,
                           .kernels = j->kernels,
                           .config = j->config,
                           .positions = 13,
                           .mutant = j->mutant};
    struct tw_world w;

    desc.config.recompute = how->recompute;
    desc.ranks = how->ranks[0] != how->ranks[1] ? how->ranks : NULL;
    desc.pp_layers = how->pp_layers[0] ? how->pp_layers : NULL;
    if (how->micro_tokens) {
        desc.config.micro_batch_tokens = how->micro_tokens;
    }
    *out = (struct outcome){0};
    tw_init(&w, &desc, j->full, j->reference);
    for (uint32_t s = 0; s < j->steps; s++) {
        tw_step(&w, &j->batch[s], &out->m[s]);
        tw_check_copies(&w);
    }
    for (uint32_t i = 0; i < w.size; i++) {
        const struct tw_rank *r = &w.rank[i];

        out->live_max[r->view->part.pp_rank] = r->metrics.live_max;
        assert_true(r->metrics.live_max <= how->pp - r->view->part.pp_rank);
    }
    keep_tokens(&w, &j->batch[j->steps - 1], out);
    out->param = tw_whole(&w, DYTI_PARAM);
    out->exp_avg = tw_whole(&w, DYTI_EXP_AVG);
    tw_fini(&w);
}

static void outcome_free(const struct job *j, struct outcome *out)
{
    nn_full_free(j->model, out->param);
    nn_full_free(j->model, out->exp_avg);
    free(out->logprob);
}

static bool near(double a, double b, double rel)
{
    return fabs(a - b) <= rel * (1e-3 + fmax(fabs(a), fabs(b)));
}

/* "" or what differs. */
static const char *differs(const struct job *j, const struct outcome *a,
                           const struct outcome *b, double rel)
{
    static char text[160];

    for (uint32_t s = 0; s < j->steps; s++) {
        if (!near(a->m[s].loss, b->m[s].loss, rel)) {
            snprintf(text, sizeof(text), "step %u: loss %.9g and %.9g", s,
                     a->m[s].loss, b->m[s].loss);
            return text;
        }
        if (!near(a->m[s].grad_norm, b->m[s].grad_norm, rel)) {
            snprintf(text, sizeof(text), "step %u: norm %.9g and %.9g", s,
                     a->m[s].grad_norm, b->m[s].grad_norm);
            return text;
        }
    }
    for (size_t i = 0; i < 24 * 8; i++) {
        if (!(fabs((double)a->logprob[i] - (double)b->logprob[i]) <=
              20 * rel)) {
            snprintf(text, sizeof(text), "token %zu: %.9g and %.9g", i,
                     (double)a->logprob[i], (double)b->logprob[i]);
            return text;
        }
    }
    return "";
}

static void same(const struct job *j, const struct setting *a_how,
                 const struct setting *b_how, double rel)
{
    struct outcome a, b;

    run(j, a_how, &a);
    run(j, b_how, &b);
    if (differs(j, &a, &b, rel)[0] != '\0') {
        fail_msg("tp %u pp %u dp %u zero %u micro %u: %s", b_how->tp, b_how->pp,
                 b_how->dp, b_how->zero, b_how->micro_tokens,
                 differs(j, &a, &b, rel));
    }
    outcome_free(j, &a);
    outcome_free(j, &b);
}

static const struct setting alone =
    SETTING(1, 1, 1, 0, 0, .master_in_param = true);

static const struct setting layouts[] = {
    SETTING(1, 1, 1, 0, 20),
    SETTING(1, 1, 1, 1, 0),
    SETTING(1, 1, 2, 0, 40),
    SETTING(1, 1, 2, 0, 0, .master_in_param = true),
    SETTING(1, 1, 3, 1, 30),
    SETTING(2, 1, 1, 0, 0),
    SETTING(4, 1, 1, 1, 0, .recompute = DYTI_RECOMPUTE_LAYER),
    SETTING(6, 1, 1, 0, 50),
    SETTING(1, 2, 1, 0, 30),
    SETTING(1, 3, 1, 1, 20),
    SETTING(1, 2, 2, 1, 25, .pp_layers = {1, 2}),
    SETTING(1, 2, 2, 0, 1),
    SETTING(2, 2, 2, 1, 40, .ranks = {7, 2, 5, 0, 3, 6, 1, 4}),
    SETTING(4, 2, 1, 1, 30, .recompute = DYTI_RECOMPUTE_LAYER),
    SETTING(4, 1, 2, 1, 0, .ranks = {3, 1, 4, 0, 6, 2, 5, 7}),
};

/* ---- tests --------------------------------------------------------------- */

static void check_layouts(const struct dyti_arch *arch, double rel)
{
    struct job j;

    job_init(&j, arch);
    j.config.kl.coef = 0.05f;
    for (size_t i = 0; i < DYT_TEST_COUNT(layouts); i++) {
        if (layouts[i].tp <= arch->q_heads) {
            same(&j, &alone, &layouts[i], rel);
        }
    }
    job_fini(&j);
}

static void any_layout_takes_the_same_step(void **state)
{
    (void)state;
    check_layouts(&arch_tied, 2e-4);
}

static void so_with_head_norms(void **state)
{
    (void)state;
    check_layouts(&arch_qwen3, 2e-4);
}

static void so_with_biases(void **state)
{
    (void)state;
    check_layouts(&arch_qwen2, 2e-4);
}

struct tweak {
    const char *what;
    void (*apply)(struct dyti_trainer_config *c);
};

static void seq_ratio(struct dyti_trainer_config *c)
{
    c->ratio_level = DYTI_RATIO_SEQUENCE;
    c->loss_agg = DYTI_AGG_SEQ_MEAN_TOKEN_MEAN;
    c->old_logprobs = DYTI_OLD_ROLLOUT;
}

static void minis(struct dyti_trainer_config *c)
{
    c->mini_batch = 8;
    c->epochs = 2;
    c->rollout_is = DYTI_IS_TOKEN;
}

static void is_sequence(struct dyti_trainer_config *c)
{
    c->rollout_is = DYTI_IS_SEQUENCE;
    c->rollout_is_mode = DYTI_IS_MASK;
    c->rollout_is_max = 1e6f;
    c->loss_agg = DYTI_AGG_SEQ_MEAN_TOKEN_SUM_NORM;
    c->overlong = DYTI_OVERLONG_MASK;
}

static void kl_reward(struct dyti_trainer_config *c)
{
    c->kl.coef = 0.1f;
    c->kl.estimator = DYTI_KL_K1;
    c->kl.in = DYTI_KL_IN_REWARD;
    c->algorithm = DYTI_ALGO_RLOO;
    c->advantage_scale = DYTI_SCALE_NONE;
    c->loss_agg = DYTI_AGG_SEQ_MEAN_TOKEN_SUM;
}

static void small_chunks(struct dyti_trainer_config *c)
{
    c->head_chunk_bytes = 5 * 37 * sizeof(float); /* < the longest answer */
    c->rollout_is = DYTI_IS_SEQUENCE;
}

static const struct tweak tweaks[] = {
    {"ratio of sequences", seq_ratio},
    {"mini-batches and epochs", minis},
    {"weights of sequences, overlong masked", is_sequence},
    {"KL in the reward", kl_reward},
    {"chunks shorter than a sequence", small_chunks},
};

static void so_with_every_loss(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(tweaks); i++) {
        struct job j;

        job_init(&j, &arch_tied);
        tweaks[i].apply(&j.config);
        print_message("  %s\n", tweaks[i].what);
        same(&j, &alone, &(struct setting)SETTING(2, 2, 2, 1, 30), 3e-4);
        job_fini(&j);
    }
}

static double relative(double a, double b)
{
    return fabs(a - b) / fmax(fabs(a), fabs(b));
}

/* Before any update the weights are the same bits: 1e-6. */
static void micro_batches_and_dp_are_invisible(void **state)
{
    static const struct setting how[] = {
        SETTING(1, 1, 1, 0, 13),   SETTING(1, 1, 1, 0, 40),
        SETTING(1, 1, 2, 0, 1000), SETTING(1, 1, 2, 1, 20),
        SETTING(1, 1, 3, 1, 30),   SETTING(1, 1, 4, 0, 1),
    };
    struct outcome want, got;
    struct job j;

    (void)state;
    job_init(&j, &arch_tied);
    j.steps = 1;
    run(&j, &alone, &want);
    for (size_t i = 0; i < DYT_TEST_COUNT(how); i++) {
        run(&j, &how[i], &got);
        assert_true(relative(got.m[0].loss, want.m[0].loss) < 1e-6);
        assert_true(relative(got.m[0].grad_norm, want.m[0].grad_norm) < 1e-6);
        assert_int_equal(got.m[0].tokens, want.m[0].tokens);
        outcome_free(&j, &got);
    }
    outcome_free(&j, &want);
    job_fini(&j);
}

static void a_run_repeated_has_the_same_bits(void **state)
{
    static const struct setting how = SETTING(2, 2, 2, 1, 30);
    struct outcome a, b;
    struct job j;

    (void)state;
    job_init(&j, &arch_tied);
    j.kernels = &dyti_kernels_host;
    run(&j, &how, &a);
    run(&j, &how, &b);
    for (uint32_t t = 0; t < j.model->tensor_count; t++) {
        uint64_t bytes = 4 * dyti_tensor_elements(&j.model->tensor[t]);

        assert_memory_equal(a.param[t], b.param[t], bytes);
        assert_memory_equal(a.exp_avg[t], b.exp_avg[t], bytes);
    }
    assert_memory_equal(a.logprob, b.logprob, 24 * 8 * sizeof(float));
    outcome_free(&j, &a);
    outcome_free(&j, &b);
    job_fini(&j);
}

/* Copies stay equal on the fast kernels too, whatever their vectors do at the
 * ends of arrays; and with bf16 weights param is the rounded master. */
static void copies_are_equal_on_fast_kernels(void **state)
{
    static const struct setting how[] = {
        SETTING(4, 1, 2, 1, 30), SETTING(6, 1, 1, 0, 0),
        SETTING(2, 2, 2, 1, 30), SETTING(4, 2, 1, 0, 0)};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(how); i++) {
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct outcome out;
            struct job j;

            job_init(&j, &arch_tied);
            j.kernels = &dyti_kernels_host;
            j.dtype = bf16 ? DYTI_BF16 : DYTI_F32;
            run(&j, &how[i], &out);
            outcome_free(&j, &out);
            job_fini(&j);
        }
    }
}

static void a_full_pipeline_keeps_pp_minus_stage(void **state)
{
    static const struct setting how = SETTING(1, 3, 1, 0, 20);
    struct outcome out;
    struct job j;

    (void)state;
    job_init(&j, &arch_tied);
    j.steps = 1;
    run(&j, &how, &out);
    for (uint32_t stage = 0; stage < 3; stage++) {
        assert_int_equal(out.live_max[stage], 3 - stage);
    }
    outcome_free(&j, &out);
    job_fini(&j);
}

#ifdef DYT_TEST_HOOKS
static void mutants_are_noticed(void **state)
{
    static const struct {
        int mutant;
        struct setting how;
    } row[] = {
        {DYTI_MUTANT_DROP_MICRO, SETTING(1, 1, 2, 1, 20)},
        {DYTI_MUTANT_DROP_MICRO, SETTING(1, 2, 1, 0, 20)},
        {DYTI_MUTANT_DOUBLE_SHARED, SETTING(4, 1, 1, 0, 0)},
        {DYTI_MUTANT_DOUBLE_SHARED, SETTING(1, 2, 1, 0, 0)},
        {DYTI_MUTANT_DOUBLE_REPLICA, SETTING(1, 1, 2, 1, 0)},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct outcome good, bad;
        struct job j;

        job_init(&j, &arch_tied);
        run(&j, &alone, &good);
        j.mutant = row[i].mutant;
        run(&j, &row[i].how, &bad);
        if (differs(&j, &good, &bad, 2e-4)[0] == '\0') {
            fail_msg("mutant %zu was not noticed", i);
        }
        outcome_free(&j, &good);
        outcome_free(&j, &bad);
        job_fini(&j);
    }
}
#endif

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_layout_takes_the_same_step),
    cmocka_unit_test(so_with_head_norms),
    cmocka_unit_test(so_with_biases),
    cmocka_unit_test(so_with_every_loss),
    cmocka_unit_test(micro_batches_and_dp_are_invisible),
    cmocka_unit_test(a_run_repeated_has_the_same_bits),
    cmocka_unit_test(copies_are_equal_on_fast_kernels),
    cmocka_unit_test(a_full_pipeline_keeps_pp_minus_stage),
#ifdef DYT_TEST_HOOKS
    cmocka_unit_test(mutants_are_noticed),
#endif
};
DYT_TEST_MAIN(tests)
