/* Samples that share a prompt's rows train as if each had its own copy: the
 * same log-probabilities, the same gradients of every tensor. */
#include "nn_cases.h"

#define SEQUENCES 6
#define ROWS      18
#define COPIES    40 /* rows with every prefix written out */
/* Roots 0 and 4; 2 has no rows of its own. */
static const int32_t first[SEQUENCES + 1] = {0, 5, 8, 8, 12, 14, ROWS};
static const int32_t prefix[SEQUENCES] = {-1, 0, 0, 0, -1, 4};

#define TOLERANCE 2e-5

struct rows {
    int32_t ids[COPIES], position[COPIES], target[COPIES];
    int32_t first[SEQUENCES + 1];
    float dlogprob[COPIES], dentropy[COPIES];
    float logprob[COPIES], entropy[COPIES];
    int32_t of[ROWS]; /* where a shared row is among these */
    struct dyti_nn_micro micro;
};

static void shared_rows(struct rows *out, int64_t vocab)
{
    for (int32_t s = 0; s < SEQUENCES; s++) {
        int32_t p = prefix[s];
        int32_t before = p < 0 ? 0 : first[p + 1] - first[p];

        for (int32_t r = first[s]; r < first[s + 1]; r++) {
            uint64_t at = (uint64_t)r;

            out->of[r] = r;
            out->position[r] = before + r - first[s];
            out->ids[r] =
                (int32_t)(dyti_rng_u64(31, 0, at, 0) % (uint64_t)vocab);
            out->target[r] =
                (int32_t)(dyti_rng_u64(31, 1, at, 0) % (uint64_t)vocab);
            out->dlogprob[r] = 0.3f * nn_noise(32, 0, at);
            out->dentropy[r] = 0.2f * nn_noise(32, 1, at);
        }
    }
    out->micro =
        (struct dyti_nn_micro){.packed = {SEQUENCES, ROWS, first, prefix},
                               .ids = out->ids,
                               .position = out->position};
}

static void add_row(struct rows *out, int64_t at, const struct rows *from,
                    int32_t row, bool own)
{
    out->ids[at] = from->ids[row];
    out->position[at] = from->position[row];
    out->target[at] = from->target[row];
    out->dlogprob[at] = own ? from->dlogprob[row] : 0.0f;
    out->dentropy[at] = own ? from->dentropy[row] : 0.0f;
    if (own) {
        out->of[row] = (int32_t)at;
    }
}

static void written_out(struct rows *out, const struct rows *from)
{
    int64_t at = 0;

    for (int32_t s = 0; s < SEQUENCES; s++) {
        int32_t p = prefix[s];

        out->first[s] = (int32_t)at;
        for (int32_t r = p < 0 ? 0 : first[p]; p >= 0 && r < first[p + 1];
             r++) {
            add_row(out, at++, from, r, false);
        }
        for (int32_t r = first[s]; r < first[s + 1]; r++) {
            add_row(out, at++, from, r, true);
        }
    }
    out->first[SEQUENCES] = (int32_t)at;
    assert_true(at <= COPIES);
    out->micro =
        (struct dyti_nn_micro){.packed = {SEQUENCES, at, out->first, NULL},
                               .ids = out->ids,
                               .position = out->position};
}

static float **train(const struct dyti_model *model, float **full,
                     struct rows *rows, uint32_t tp,
                     enum dyti_recompute recompute)
{
    struct nn_step step = {.micro = &rows->micro,
                           .target = rows->target,
                           .scale = 1.0f,
                           .dlogprob = rows->dlogprob,
                           .dentropy = rows->dentropy,
                           .recompute = recompute,
                           .head_rows = 7,
                           .logprob = rows->logprob,
                           .entropy = rows->entropy};
    struct nn_world w;
    float **grad;

    nn_world_init(&w,
                  &(struct nn_world_desc){.model = model,
                                          .tp = tp,
                                          .pp = 1,
                                          .kernels = &dyti_kernels_host,
                                          .positions = 16},
                  full);
    nn_world_step(&w, &step);
    grad = nn_world_grads(&w);
    nn_world_fini(&w);
    return grad;
}

static void near(const char *what, float got, float want, double size)
{
    if (!(fabs((double)got - (double)want) <= TOLERANCE * (1.0 + size))) {
        fail_msg("%s is %.8g, with rows of its own %.8g", what, (double)got,
                 (double)want);
    }
}

static void check_case(const struct dyti_arch *arch, uint32_t tp,
                       enum dyti_recompute recompute)
{
    struct rows shared = {0}, own = {0};
    struct dyti_model *model;
    float **full, **got, **want;

    assert_ok(dyti_model_build(arch, &model));
    full = nn_full_random(model, 60);
    shared_rows(&shared, arch->vocab);
    written_out(&own, &shared);
    got = train(model, full, &shared, tp, recompute);
    want = train(model, full, &own, 1, DYTI_RECOMPUTE_NONE);
    for (int32_t r = 0; r < ROWS; r++) {
        near("log-probability", shared.logprob[r], own.logprob[own.of[r]], 1);
        near("entropy", shared.entropy[r], own.entropy[own.of[r]], 1);
    }
    for (uint32_t t = 0; t < model->tensor_count; t++) {
        uint64_t count = dyti_tensor_elements(&model->tensor[t]);
        double most = 0.0;

        for (uint64_t i = 0; i < count; i++) {
            most = fmax(most, fabs((double)want[t][i]));
        }
        for (uint64_t i = 0; i < count; i++) {
            near(model->tensor[t].name, got[t][i], want[t][i], most);
        }
    }
    nn_full_free(model, got);
    nn_full_free(model, want);
    nn_full_free(model, full);
    dyti_model_destroy(model);
}

static void a_shared_prompt_is_a_prompt_of_ones_own(void **state)
{
    (void)state;
    for (size_t c = 0; c < NN_CASE_COUNT; c++) {
        print_message("  %s\n", nn_cases[c].name);
        check_case(&nn_cases[c].arch, 1, DYTI_RECOMPUTE_NONE);
        check_case(&nn_cases[c].arch, 4, DYTI_RECOMPUTE_LAYER);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_shared_prompt_is_a_prompt_of_ones_own),
};
DYT_TEST_MAIN(tests)
