/* 20 steps of clipping, decay and AdamW against PyTorch (tests/data/trainer),
 * on one rank and cut over three; and whether the loss's gradient is what its
 * finite differences say. */
#include "trainer_world.h"

#include "trainer/rank.h"

#include <jansson.h>

static const struct dyti_arch arch = {
    .family = DYTI_LLAMA,
    .vocab = 9,
    .hidden = 8,
    .layers = 2,
    .q_heads = 2,
    .kv_heads = 1,
    .head_dim = 4,
    .ffn = 10,
    .max_positions = 64,
    .rms_eps = 1e-5,
    .init_std = 0.02,
    .tied = true,
    .rope = {.kind = DYTI_ROPE_DEFAULT, .theta = 1e4}};

/* ---- PyTorch ------------------------------------------------------------- */

/* The formulas of make_adamw.py; elements past `count` stay 0. */
static float start_of(uint64_t i)
{
    return (float)((int64_t)((i * 37 + 11) % 257) - 128) / 256;
}

static float grad_of(uint64_t step, uint64_t i)
{
    float scale = step % 3 == 2 ? 0x1p-13f : 0x1p-8f;

    return (float)((int64_t)((i * 7919 + step * 104729) % 2003) - 1001) * scale;
}

/* Element numbers run through all tensors. */
static void fill(const struct dyti_model *model, float **full, uint64_t count,
                 int64_t step)
{
    uint64_t at = 0;

    for (uint32_t t = 0; t < model->tensor_count; t++) {
        for (uint64_t i = 0; i < dyti_tensor_elements(&model->tensor[t]);
             i++, at++) {
            full[t][i] = at >= count ? 0
                         : step < 0  ? start_of(at)
                                     : grad_of((uint64_t)step, at);
        }
    }
    assert_true(at >= count);
}

static void compare(const struct tw_world *w, enum dyti_kind kind,
                    const json_t *row, const char *key)
{
    const json_t *want = json_object_get(row, key);
    float **full = tw_whole(w, kind);
    size_t at = 0;

    for (uint32_t t = 0; t < w->desc.model->tensor_count; t++) {
        uint64_t count = dyti_tensor_elements(&w->desc.model->tensor[t]);

        for (uint64_t i = 0; i < count && at < json_array_size(want);
             i++, at++) {
            double x = json_number_value(json_array_get(want, at));

            if (!(fabs((double)full[t][i] - x) <= 1e-7 + 2e-6 * fabs(x))) {
                fail_msg("%s %zu is %.9g, torch has %.9g", key, at,
                         (double)full[t][i], x);
            }
        }
    }
    assert_int_equal(at, json_array_size(want));
    nn_full_free(w->desc.model, full);
}

struct update {
    struct tw_world *w;
    float **grad; /* whole */
    double lr, norm;
};

static void rank_update(struct dyt_rank *me)
{
    struct update *u = me->arg;
    struct tw_rank *r = &u->w->rank[me->rank];
    double norm = 0;

    nn_view_each(u->w->desc.model, r->view, DYTI_GRAD, r->region[DYTI_GRAD],
                 u->grad, nn_put);
    rank_ok(me, dyti_optimizer_update(r->trainer, u->lr, &norm));
    rank_ok(me, dyti_zero_gather(r->trainer));
    if (me->rank == 0) {
        u->norm = norm;
    }
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void run_torch(const struct dyti_model *model, const json_t *test,
                      struct tw_desc *desc)
{
    uint64_t count = (uint64_t)number(test, "count");
    const json_t *steps = json_object_get(test, "step");
    float **full = nn_full_new(model);
    struct update u = {.grad = nn_full_new(model)};
    struct tw_world w;

    dyti_trainer_config_default(&desc->config);
    desc->model = model;
    desc->config.beta1 = 0.9f;
    desc->config.beta2 = 0.95f;
    desc->config.weight_decay = (float)number(test, "weight_decay");
    desc->config.max_grad_norm = (float)number(test, "max_grad_norm");
    desc->config.batch_sequences = 4;
    desc->positions = 8;
    fill(model, full, count, -1);
    tw_init(&w, desc, full, NULL);
    u.w = &w;
    /* Elements of gradients that no tensor owns must be 0, as a step leaves
     * them. */
    for (uint32_t i = 0; i < w.size; i++) {
        memset(w.rank[i].region[DYTI_GRAD], 0,
               w.rank[i].view->region_bytes[DYTI_GRAD]);
    }
    for (size_t s = 0; s < json_array_size(steps); s++) {
        const json_t *row = json_array_get(steps, s);

        fill(model, u.grad, count, (int64_t)s);
        u.lr = number(row, "lr");
        dyt_ranks_run(DYT_RANKS_THREADS, w.size, rank_update, &u);
        assert_true(fabs(u.norm / number(row, "norm") - 1) < 1e-6);
        if (json_object_get(row, "param") != NULL) {
            compare(&w, DYTI_PARAM, row, "param");
            compare(&w, DYTI_EXP_AVG, row, "exp_avg");
            compare(&w, DYTI_EXP_AVG_SQ, row, "exp_avg_sq");
        }
    }
    tw_fini(&w);
    nn_full_free(model, full);
    nn_full_free(model, u.grad);
}

static void twenty_steps_are_those_of_torch(void **state)
{
    static const struct tw_desc row[] = {
        {.tp = 1, .pp = 1, .dp = 1, .kernels = &dyti_kernels_reference},
        {.tp = 1, .pp = 1, .dp = 1, .kernels = &dyti_kernels_host},
        {.tp = 1, .pp = 1, .dp = 3, .zero = 1, .kernels = &dyti_kernels_host},
        {.tp = 2, .pp = 2, .dp = 1, .kernels = &dyti_kernels_host},
        {.tp = 1,
         .pp = 1,
         .dp = 2,
         .master_in_param = true,
         .kernels = &dyti_kernels_host},
    };
    json_error_t error;
    json_t *test = json_load_file("tests/data/trainer/adamw.json", 0, &error);
    struct dyti_model *model;

    (void)state;
    if (test == NULL) {
        fail_msg("adamw.json: %s", error.text);
    }
    assert_int_equal(json_array_size(json_object_get(test, "step")), 20);
    assert_ok(dyti_model_build(&arch, &model));
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct tw_desc desc = row[i];

        run_torch(model, test, &desc);
    }
    dyti_model_destroy(model);
    json_decref(test);
}

/* ---- finite differences -------------------------------------------------- */

static void token_loss(struct dyti_trainer_config *c)
{
    c->entropy_coef = 0.1f;
    c->kl.coef = 0.2f;
}

static void sequence_loss(struct dyti_trainer_config *c)
{
    c->ratio_level = DYTI_RATIO_SEQUENCE;
    c->loss_agg = DYTI_AGG_SEQ_MEAN_TOKEN_MEAN;
    c->kl.coef = 0.2f;
    c->kl.estimator = DYTI_KL_K2;
}

static void norm_loss(struct dyti_trainer_config *c)
{
    c->loss_agg = DYTI_AGG_SEQ_MEAN_TOKEN_SUM_NORM;
    c->kl.coef = 0.3f;
    c->kl.estimator = DYTI_KL_K1;
    c->advantage_scale = DYTI_SCALE_BATCH;
    c->temperature = 0.7f;
}

/* The loss at weights that are moved by `far` along `way` (NULL: not moved);
 * with grad, its gradient as whole tensors. */
static double loss_at(const struct dyti_model *model, float **full,
                      float **reference, float **way, double far,
                      const struct dyti_trainer_config *config,
                      const struct dyti_batch *batch, float ***out_grad)
{
    struct tw_desc desc = {.model = model,
                           .tp = 1,
                           .pp = 1,
                           .dp = 1,
                           .kernels = &dyti_kernels_reference,
                           .config = *config,
                           .positions = 10};
    float **moved = nn_full_new(model);
    struct dyti_train_metrics m;
    struct tw_world w;

    for (uint32_t t = 0; t < model->tensor_count; t++) {
        for (uint64_t i = 0; i < dyti_tensor_elements(&model->tensor[t]); i++) {
            moved[t][i] = (float)((double)full[t][i] +
                                  (way == NULL ? 0 : far * (double)way[t][i]));
        }
    }
    tw_init(&w, &desc, moved, reference);
    tw_step(&w, batch, &m);
    if (out_grad != NULL) {
        *out_grad = tw_whole(&w, DYTI_GRAD);
    }
    tw_fini(&w);
    nn_full_free(model, moved);
    return m.loss;
}

static double length_of(const struct dyti_model *model, float **full)
{
    double sum = 0;

    for (uint32_t t = 0; t < model->tensor_count; t++) {
        for (uint64_t i = 0; i < dyti_tensor_elements(&model->tensor[t]); i++) {
            sum += (double)full[t][i] * (double)full[t][i];
        }
    }
    return sqrt(sum);
}

/* Uphill the loss grows by the gradient's length. */
static void a_gradient_points_uphill(void **state)
{
    static void (*const apply[])(struct dyti_trainer_config *
                                 c) = {token_loss, sequence_loss, norm_loss};
    struct dyti_model *model;
    struct dyti_batch batch;
    float **full, **reference;

    (void)state;
    assert_ok(dyti_model_build(&arch, &model));
    full = nn_full_random(model, 21);
    reference = nn_full_random(model, 22);
    tw_batch_init(&batch, &(struct tw_batch_desc){.seed = 23,
                                                  .prompts = 3,
                                                  .samples = 4,
                                                  .prompt_most = 4,
                                                  .answer_most = 6,
                                                  .vocab = 9});
    for (size_t i = 0; i < DYT_TEST_COUNT(apply); i++) {
        struct dyti_trainer_config c;
        double up, down, length, step = 2e-3;
        float **grad;

        dyti_trainer_config_default(&c);
        c.lr = 0;
        c.batch_sequences = 12;
        c.max_response_tokens = 6;
        c.clip_low = 1; /* no kinks on the way */
        c.clip_high = 1e6f;
        c.old_logprobs = DYTI_OLD_ROLLOUT;
        apply[i](&c);
        (void)loss_at(model, full, reference, NULL, 0, &c, &batch, &grad);
        length = length_of(model, grad);
        up = loss_at(model, full, reference, grad, step / length, &c, &batch,
                     NULL);
        down = loss_at(model, full, reference, grad, -step / length, &c, &batch,
                       NULL);
        if (!(fabs((up - down) / (2 * step) / length - 1) < 2e-3)) {
            fail_msg("loss %zu: the slope is %.6g, the gradient says %.6g", i,
                     (up - down) / (2 * step), length);
        }
        nn_full_free(model, grad);
    }
    dyti_batch_fini(&batch);
    nn_full_free(model, full);
    nn_full_free(model, reference);
    dyti_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(twenty_steps_are_those_of_torch),
    cmocka_unit_test(a_gradient_points_uphill),
};
DYT_TEST_MAIN(tests)
