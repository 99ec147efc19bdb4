/* A model cut in any way is the same model: logits, loss and gradients of TP
 * and PP mixtures against one rank, with ranks as threads. */
#include "nn_cases.h"

/* Sums are taken in another order, in f32. */
#define LOGIT_TOLERANCE 3e-5f
#define GRAD_TOLERANCE  3e-5 /* of the tensor's largest, plus as much */

struct outcome {
    float *logits, logprob[NN_ROWS], entropy[NN_ROWS];
    float **grad;
};

struct setting {
    uint32_t tp, pp, pp_layers[3];
    enum dyti_recompute recompute;
    const struct dyti_kernel_ops *kernels;
    enum dyti_dtype dtype;
};

static void run_setting(const struct dyti_model *model, float **full,
                        const struct setting *how, struct outcome *out)
{
    struct nn_world w;
    struct nn_batch b;
    struct nn_step step = {.micro = &b.micro,
                           .target = b.target,
                           .scale = 0.8f,
                           .dlogprob = b.dlogprob,
                           .dentropy = b.dentropy,
                           .recompute = how->recompute,
                           .head_rows = 5,
                           .logprob = out->logprob,
                           .entropy = out->entropy};

    nn_batch_init(&b, model->arch.vocab);
    out->logits = calloc(NN_ROWS, (size_t)model->arch.vocab * sizeof(float));
    step.logits = out->logits;
    nn_world_init(&w,
                  &(struct nn_world_desc){
                      .model = model,
                      .tp = how->tp,
                      .pp = how->pp,
                      .pp_layers = how->pp_layers[0] ? how->pp_layers : NULL,
                      .kernels = how->kernels,
                      .dtype = how->dtype,
                      .positions = 16},
                  full);
    nn_world_step(&w, &step);
    out->grad = nn_world_grads(&w);
    nn_world_fini(&w);
}

static void outcome_free(const struct dyti_model *model, struct outcome *out)
{
    free(out->logits);
    nn_full_free(model, out->grad);
}

static void same_values(const char *what, const float *got, const float *want,
                        uint64_t count, double tolerance)
{
    for (uint64_t i = 0; i < count; i++) {
        if (!(fabs((double)got[i] - (double)want[i]) <= tolerance)) {
            fail_msg("%s[%" PRIu64 "] is %.8g, one rank gives %.8g", what, i,
                     (double)got[i], (double)want[i]);
        }
    }
}

static void same_outcome(const struct dyti_model *model,
                         const struct outcome *got, const struct outcome *want,
                         double slack)
{
    same_values("logit", got->logits, want->logits,
                (uint64_t)(NN_ROWS * model->arch.vocab),
                slack * (double)LOGIT_TOLERANCE);
    same_values("logprob", got->logprob, want->logprob, NN_ROWS,
                slack * (double)LOGIT_TOLERANCE);
    same_values("entropy", got->entropy, want->entropy, NN_ROWS,
                slack * (double)LOGIT_TOLERANCE);
    for (uint32_t t = 0; t < model->tensor_count; t++) {
        uint64_t count = dyti_tensor_elements(&model->tensor[t]);
        double most = 0.0;

        for (uint64_t i = 0; i < count; i++) {
            most = fmax(most, fabs((double)want->grad[t][i]));
        }
        same_values(model->tensor[t].name, got->grad[t], want->grad[t], count,
                    slack * GRAD_TOLERANCE * (1.0 + most));
    }
}

static const struct setting settings[] = {
    {.tp = 2, .pp = 1},
    {.tp = 3, .pp = 1, .recompute = DYTI_RECOMPUTE_LAYER},
    {.tp = 4, .pp = 1},
    {.tp = 6, .pp = 1},
    {.tp = 1, .pp = 2},
    {.tp = 1, .pp = 2, .pp_layers = {1, 2}, .recompute = DYTI_RECOMPUTE_LAYER},
    {.tp = 1, .pp = 3},
    {.tp = 2, .pp = 2},
    {.tp = 3, .pp = 3},
    {.tp = 4, .pp = 2, .recompute = DYTI_RECOMPUTE_LAYER},
    {.tp = 5, .pp = 1},
};

static void check_arch(const struct dyti_arch *arch, uint64_t seed)
{
    struct setting alone = {
        .tp = 1, .pp = 1, .kernels = &dyti_kernels_reference};
    struct dyti_model *model;
    struct outcome want, got;
    float **full;

    assert_ok(dyti_model_build(arch, &model));
    full = nn_full_random(model, seed);
    run_setting(model, full, &alone, &want);
    for (size_t i = 0; i < DYT_TEST_COUNT(settings); i++) {
        struct setting how = settings[i];

        how.kernels = &dyti_kernels_reference;
        run_setting(model, full, &how, &got);
        same_outcome(model, &got, &want, 1.0);
        outcome_free(model, &got);
    }
    outcome_free(model, &want);
    nn_full_free(model, full);
    dyti_model_destroy(model);
}

static void any_cut_is_the_same_model(void **state)
{
    (void)state;
    for (size_t c = 0; c < NN_CASE_COUNT; c++) {
        print_message("  %s\n", nn_cases[c].name);
        check_arch(&nn_cases[c].arch, 30 + c);
    }
}

/* 9 query heads over 3 KV heads do not divide by 2, 4 or 6: ranks share KV
 * heads that others read too. */
static void heads_that_do_not_divide(void **state)
{
    (void)state;
    struct dyti_arch arch = nn_cases[0].arch;

    arch.q_heads = 9;
    arch.kv_heads = 3;
    check_arch(&arch, 40);
    arch.qk_norm = true;
    arch.qkv_bias = true;
    arch.tied = false;
    check_arch(&arch, 41);
}

static void fast_kernels_give_the_reference(void **state)
{
    (void)state;
    for (size_t c = 0; c < NN_CASE_COUNT; c++) {
        struct setting alone = {
            .tp = 1, .pp = 1, .kernels = &dyti_kernels_reference};
        struct setting host = {.tp = 2, .pp = 2, .kernels = &dyti_kernels_host};
        struct dyti_model *model;
        struct outcome want, got;
        float **full;

        assert_ok(dyti_model_build(&nn_cases[c].arch, &model));
        full = nn_full_random(model, 50 + c);
        run_setting(model, full, &alone, &want);
        run_setting(model, full, &host, &got);
        same_outcome(model, &got, &want, 3.0);
        outcome_free(model, &got);
        outcome_free(model, &want);
        nn_full_free(model, full);
        dyti_model_destroy(model);
    }
}

/* Weights that bf16 holds exactly: the type of the weights changes nothing
 * but how they are read. */
static void bf16_weights_are_the_same_weights(void **state)
{
    (void)state;
    for (size_t c = 0; c < NN_CASE_COUNT; c++) {
        struct setting wide = {
            .tp = 1, .pp = 1, .kernels = &dyti_kernels_reference};
        struct setting narrow = {.tp = 3,
                                 .pp = 1,
                                 .dtype = DYTI_BF16,
                                 .kernels = &dyti_kernels_reference};
        struct dyti_model *model;
        struct outcome want, got;
        float **full;

        assert_ok(dyti_model_build(&nn_cases[c].arch, &model));
        full = nn_full_random(model, 70 + c);
        for (uint32_t t = 0; t < model->tensor_count; t++) {
            for (uint64_t i = 0; i < dyti_tensor_elements(&model->tensor[t]);
                 i++) {
                full[t][i] = dyti_bf16_to_f32(dyti_f32_to_bf16(full[t][i]));
            }
        }
        run_setting(model, full, &wide, &want);
        run_setting(model, full, &narrow, &got);
        same_outcome(model, &got, &want, 1.0);
        outcome_free(model, &got);
        outcome_free(model, &want);
        nn_full_free(model, full);
        dyti_model_destroy(model);
    }
}

/* Equal work gives equal bits, so a switch there and back can be checked. */
static void repetition_gives_the_same_bits(void **state)
{
    (void)state;
    struct setting how = {.tp = 4, .pp = 2, .kernels = &dyti_kernels_host};
    struct dyti_model *model;
    struct outcome first, second;
    float **full;

    assert_ok(dyti_model_build(&nn_cases[3].arch, &model));
    full = nn_full_random(model, 90);
    run_setting(model, full, &how, &first);
    run_setting(model, full, &how, &second);
    assert_memory_equal(first.logits, second.logits,
                        sizeof(float) * NN_ROWS * 37);
    assert_memory_equal(first.logprob, second.logprob, sizeof(first.logprob));
    for (uint32_t t = 0; t < model->tensor_count; t++) {
        assert_memory_equal(first.grad[t], second.grad[t],
                            4 * dyti_tensor_elements(&model->tensor[t]));
    }
    outcome_free(model, &first);
    outcome_free(model, &second);
    nn_full_free(model, full);
    dyti_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_cut_is_the_same_model),
    cmocka_unit_test(heads_that_do_not_divide),
    cmocka_unit_test(fast_kernels_give_the_reference),
    cmocka_unit_test(bf16_weights_are_the_same_weights),
    cmocka_unit_test(repetition_gives_the_same_bits),
};
DYT_TEST_MAIN(tests)
