/* The whole backward pass against finite differences of the whole forward
 * pass: every family, every tensor. */
#include "nn_cases.h"

/* Element-wise and along a random direction of the whole tensor: a central
 * difference in f32 is good to about this much. */
#define RELATIVE 4e-3
#define ABSOLUTE 4e-4
#define EPS      4e-3f

struct probe {
    struct nn_world world;
    struct nn_batch batch;
    float **full;
};

static double loss_of(struct probe *p)
{
    float logprob[NN_ROWS], entropy[NN_ROWS];
    struct nn_step step = {.micro = &p->batch.micro,
                           .target = p->batch.target,
                           .scale = 0.8f,
                           .head_rows = 7,
                           .keep_nothing = true,
                           .logprob = logprob,
                           .entropy = entropy};

    nn_world_set(&p->world, p->full);
    nn_world_step(&p->world, &step);
    return nn_loss(&p->batch, logprob, entropy);
}

static float **gradient_of(struct probe *p, enum dyti_recompute recompute)
{
    float logprob[NN_ROWS], entropy[NN_ROWS];
    struct nn_step step = {.micro = &p->batch.micro,
                           .target = p->batch.target,
                           .scale = 0.8f,
                           .dlogprob = p->batch.dlogprob,
                           .dentropy = p->batch.dentropy,
                           .recompute = recompute,
                           .head_rows = 7,
                           .logprob = logprob,
                           .entropy = entropy};

    nn_world_set(&p->world, p->full);
    nn_world_zero_grads(&p->world);
    nn_world_step(&p->world, &step);
    return nn_world_grads(&p->world);
}

static void close_enough(const struct probe *p, uint32_t t, const char *what,
                         double numeric, double analytic)
{
    if (fabs(numeric - analytic) > RELATIVE * fabs(analytic) + ABSOLUTE) {
        fail_msg("%s of %s: finite difference %.6f, gradient %.6f", what,
                 p->world.desc.model->tensor[t].name, numeric, analytic);
    }
}

/* Unit-length direction `d`: all elements move at once, so none is left out. */
static void check_direction(struct probe *p, uint32_t t, const float *grad)
{
    uint64_t count = dyti_tensor_elements(&p->world.desc.model->tensor[t]);
    float *kept = malloc(count * sizeof(*kept));
    double norm = 0.0, analytic = 0.0, loss[2];

    memcpy(kept, p->full[t], count * sizeof(*kept));
    for (uint64_t i = 0; i < count; i++) {
        double d = (double)nn_noise(21, t, i);

        norm += d * d;
        analytic += d * (double)grad[i];
    }
    norm = sqrt(norm);
    for (int side = 0; side < 2; side++) {
        double eps = (side == 0 ? 1.0 : -1.0) * (double)EPS / norm;

        for (uint64_t i = 0; i < count; i++) {
            p->full[t][i] = kept[i] + (float)(eps * (double)nn_noise(21, t, i));
        }
        loss[side] = loss_of(p);
    }
    memcpy(p->full[t], kept, count * sizeof(*kept));
    free(kept);
    close_enough(p, t, "direction", (loss[0] - loss[1]) / (2.0 * (double)EPS),
                 analytic / norm);
}

static void check_element(struct probe *p, uint32_t t, uint64_t i,
                          const float *grad)
{
    float kept = p->full[t][i], high = kept + EPS, low = kept - EPS;
    double up, down;

    p->full[t][i] = high;
    up = loss_of(p);
    p->full[t][i] = low;
    down = loss_of(p);
    p->full[t][i] = kept;
    close_enough(p, t, "element", (up - down) / (double)(high - low),
                 (double)grad[i]);
}

static void check_tensor(struct probe *p, uint32_t t, const float *grad)
{
    uint64_t count = dyti_tensor_elements(&p->world.desc.model->tensor[t]);
    double most = 0.0;
    uint64_t at = 0;

    for (uint64_t i = 0; i < count; i++) {
        if (fabs((double)grad[i]) > most) {
            most = fabs((double)grad[i]);
            at = i;
        }
    }
    assert_true(most > 0.0); /* nothing here is without influence */
    check_direction(p, t, grad);
    check_element(p, t, at, grad);
    check_element(p, t, dyti_rng_u64(22, t, 0, 0) % count, grad);
}

static void gradients_match_finite_differences(void **state)
{
    (void)state;
    for (size_t c = 0; c < NN_CASE_COUNT; c++) {
        struct dyti_model *model;
        struct probe p;
        float **grad;

        print_message("  %s\n", nn_cases[c].name);
        assert_ok(dyti_model_build(&nn_cases[c].arch, &model));
        nn_batch_init(&p.batch, model->arch.vocab);
        p.full = nn_full_random(model, 5);
        nn_world_init(
            &p.world,
            &(struct nn_world_desc){.model = model,
                                    .tp = 1,
                                    .pp = 1,
                                    .kernels = &dyti_kernels_reference,
                                    .positions = 64},
            p.full);
        grad = gradient_of(&p, DYTI_RECOMPUTE_NONE);
        for (uint32_t t = 0; t < model->tensor_count; t++) {
            check_tensor(&p, t, grad[t]);
        }
        nn_full_free(model, grad);
        nn_full_free(model, p.full);
        nn_world_fini(&p.world);
        dyti_model_destroy(model);
    }
}

static void recomputation_changes_no_bit(void **state)
{
    (void)state;
    for (size_t c = 0; c < NN_CASE_COUNT; c++) {
        struct dyti_model *model;
        struct probe p;
        float **kept, **again;

        assert_ok(dyti_model_build(&nn_cases[c].arch, &model));
        nn_batch_init(&p.batch, model->arch.vocab);
        p.full = nn_full_random(model, 6);
        nn_world_init(
            &p.world,
            &(struct nn_world_desc){.model = model,
                                    .tp = 1,
                                    .pp = 1,
                                    .kernels = &dyti_kernels_reference,
                                    .positions = 64},
            p.full);
        kept = gradient_of(&p, DYTI_RECOMPUTE_NONE);
        again = gradient_of(&p, DYTI_RECOMPUTE_LAYER);
        for (uint32_t t = 0; t < model->tensor_count; t++) {
            assert_memory_equal(kept[t], again[t],
                                4 * dyti_tensor_elements(&model->tensor[t]));
        }
        nn_full_free(model, kept);
        nn_full_free(model, again);
        nn_full_free(model, p.full);
        nn_world_fini(&p.world);
        dyti_model_destroy(model);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(gradients_match_finite_differences),
    cmocka_unit_test(recomputation_changes_no_bit),
};
DYT_TEST_MAIN(tests)
