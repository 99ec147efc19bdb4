/* Draws follow the softmax that the model gives, are the same however they
 * are computed, and come with the log-probabilities of a training pass. */
#include "rollout_world.h"

#define VOCAB     24
#define GROUPS    3u
#define SAMPLES   700u
#define TOLERANCE 1e-4

struct fixture {
    struct dyti_arch arch;
    struct dyti_model *model;
    float **full;
    struct dyti_prompt *prompt;
    float *logits; /* [GROUPS][VOCAB] after each prompt */
};

static void fixture_init(struct fixture *f)
{
    static const uint32_t length[GROUPS] = {3, 6, 1};

    f->arch = nn_cases[0].arch;
    f->arch.vocab = VOCAB;
    assert_ok(dyti_model_build(&f->arch, &f->model));
    f->full = nn_full_random(f->model, 17);
    f->prompt = ro_prompts(length, GROUPS, VOCAB);
    f->logits = calloc((size_t)GROUPS * VOCAB, sizeof(float));
    for (uint32_t p = 0; p < GROUPS; p++) {
        float *all = ro_oracle_logits(f->model, f->full, DYTI_F32,
                                      f->prompt[p].ids, length[p]);

        memcpy(f->logits + p * VOCAB, all + (length[p] - 1) * VOCAB,
               VOCAB * sizeof(float));
        free(all);
    }
}

static void fixture_fini(struct fixture *f)
{
    free(f->logits);
    ro_prompts_free(f->prompt, GROUPS);
    nn_full_free(f->model, f->full);
    dyti_model_destroy(f->model);
}

/* ---- a slow obvious truncation: probabilities of each token -------------- */

/* Tokens whose probability is larger, or equal with a smaller id. */
static int rank_of(const double *p, int i)
{
    int before = 0;

    for (int k = 0; k < VOCAB; k++) {
        before += p[k] > p[i] || (p[k] == p[i] && k < i);
    }
    return before;
}

static void renormalise(double *p)
{
    double sum = 0.0;

    for (int i = 0; i < VOCAB; i++) {
        sum += p[i];
    }
    for (int i = 0; i < VOCAB; i++) {
        p[i] /= sum;
    }
}

static void softmax(const float *logits, double temperature, double *p)
{
    double max = -INFINITY;

    for (int i = 0; i < VOCAB; i++) {
        max = fmax(max, (double)logits[i]);
    }
    for (int i = 0; i < VOCAB; i++) {
        p[i] = exp(((double)logits[i] - max) / temperature);
    }
    renormalise(p);
}

/* Probability of all tokens that come before token i. */
static double mass_before(const double *p, int i)
{
    double sum = 0.0;

    for (int k = 0; k < VOCAB; k++) {
        sum += rank_of(p, k) < rank_of(p, i) ? p[k] : 0.0;
    }
    return sum;
}

static void truncate_slowly(const struct dyti_sampling *s, double *p)
{
    double kept[VOCAB], best = 0.0;

    memcpy(kept, p, sizeof(kept));
    for (int i = 0; i < VOCAB && s->top_k > 0; i++) {
        kept[i] = rank_of(p, i) < (int)s->top_k ? p[i] : 0.0;
    }
    renormalise(kept);
    memcpy(p, kept, sizeof(kept));
    for (int i = 0; i < VOCAB && s->top_p < 1.0; i++) {
        kept[i] = mass_before(p, i) < s->top_p ? p[i] : 0.0;
    }
    renormalise(kept);
    memcpy(p, kept, sizeof(kept));
    for (int i = 0; i < VOCAB; i++) {
        best = fmax(best, p[i]);
    }
    for (int i = 0; i < VOCAB; i++) {
        p[i] = p[i] >= s->min_p * best ? p[i] : 0.0;
    }
    renormalise(p);
}

/* ---- many draws ---------------------------------------------------------- */

/* With fixed seeds this is no chance: a quantile of 1 - 1e-4 for the number of
 * tokens, by Wilson and Hilferty. */
static double chi_square_limit(int free_terms)
{
    double n = fmax(1, free_terms), a = 2.0 / (9.0 * n);
    double x = 1.0 - a + 3.72 * sqrt(a);

    return n * x * x * x;
}

static void check_counts(const struct dyti_batch *batch, uint32_t group,
                         const double *p)
{
    double count[VOCAB] = {0}, chi = 0.0, small = 0.0, small_want = 0.0;
    int terms = 0;

    for (uint32_t i = 0; i < SAMPLES; i++) {
        count[batch->sample[group * SAMPLES + i].ids[0]] += 1.0;
    }
    for (int i = 0; i < VOCAB; i++) {
        double want = p[i] * SAMPLES;

        if (p[i] == 0.0 && count[i] > 0.0) {
            fail_msg("group %u: token %d was cut off and drawn %g times", group,
                     i, count[i]);
        }
        if (want < 5.0) { /* too few for the statistic: together */
            small += count[i];
            small_want += want;
        } else {
            chi += (count[i] - want) * (count[i] - want) / want;
            terms++;
        }
    }
    if (small_want > 1.0) {
        chi += (small - small_want) * (small - small_want) / small_want;
        terms++;
    }
    if (!(chi < chi_square_limit(terms - 1))) {
        fail_msg("group %u: chi square %g over %d terms", group, chi, terms);
    }
}

static struct dyti_rollout_request request_of(const struct fixture *f,
                                              const struct dyti_sampling *s,
                                              uint32_t samples)
{
    return (struct dyti_rollout_request){.prompt = f->prompt,
                                         .prompt_count = GROUPS,
                                         .samples_per_prompt = samples,
                                         .sampling = s,
                                         .seed = 4};
}

static const struct dyti_sampling kinds[] = {
    {.temperature = 1.0, .top_p = 1.0},
    {.temperature = 0.6, .top_p = 1.0},
    {.temperature = 1.7, .top_p = 1.0},
    {.temperature = 1.0, .top_p = 1.0, .top_k = 5},
    {.temperature = 1.0, .top_p = 0.8},
    {.temperature = 1.3, .top_p = 1.0, .min_p = 0.2},
    {.temperature = 1.3, .top_p = 0.9, .min_p = 0.05, .top_k = 9},
    {.temperature = 1.0, .top_p = 1e-9},
    {.temperature = 1.0, .top_p = 1.0, .top_k = 1},
    {.temperature = 1.0, .top_p = 1.0, .top_k = 1000},
};

static void draws_follow_the_softmax(void **state)
{
    struct fixture f;
    struct ro_desc desc = {.max_sequences = 512, .max_rows = 600};

    (void)state;
    fixture_init(&f);
    desc.model = f.model;
    for (size_t k = 0; k < DYT_TEST_COUNT(kinds); k++) {
        for (uint32_t tp = 1; tp <= 3; tp += 2) {
            struct dyti_sampling s = kinds[k];
            struct dyti_rollout_request q = request_of(&f, &s, SAMPLES);
            struct dyti_batch batch;

            s.max_response_tokens = 1;
            desc.tp = tp;
            batch = ro_once(&desc, f.full, &q);
            for (uint32_t g = 0; g < GROUPS; g++) {
                double p[VOCAB];

                softmax(f.logits + g * VOCAB, s.temperature, p);
                truncate_slowly(&s, p);
                check_counts(&batch, g, p);
            }
            dyti_batch_fini(&batch);
        }
    }
    fixture_fini(&f);
}

/* The token of a unit random number by running sums over probabilities. */
static void truncated_draws_are_those_of_the_slow_way(void **state)
{
    enum { DRAWS = 4000 };
    struct dyti_rollout_request q = {0};
    uint64_t scratch[VOCAB];
    uint32_t differ = 0;

    (void)state;
    assert_true(dyti_draw_scratch_bytes(VOCAB) <= sizeof(scratch));
    for (uint32_t d = 0; d < DRAWS; d++) {
        struct dyti_sampling s = kinds[3 + d % 7];
        float logits[VOCAB];
        double p[VOCAB], sum = 0.0, unit;
        int want = 0, got;

        q.sampling = &s;
        for (uint64_t i = 0; i < VOCAB; i++) {
            logits[i] = 3.0f * nn_noise(9, d, i);
            if (d % 5 == 0) { /* ties */
                logits[i] = roundf(logits[i]);
            }
        }
        unit = dyti_rng_unit(dyti_rng_u64(8, d, 0, 0));
        softmax(logits, s.temperature, p);
        truncate_slowly(&s, p);
        while (want < VOCAB - 1 && sum + p[want] <= unit) {
            sum += p[want++];
        }
        got = dyti_draw_truncated(&q, logits, VOCAB, 0, unit, scratch);
        assert_in_range(got, 0, VOCAB - 1);
        assert_true(p[got] > 0.0);
        differ += got != want;
    }
    /* Float and double may part where a sum meets the random number. */
    assert_in_range(differ, 0, DRAWS / 1000);
}

static void nothing_left_is_no_token(void **state)
{
    int32_t eos[] = {0, 1, 2, 3};
    struct dyti_sampling s = {
        .temperature = 1.0, .top_p = 0.9, .min_response_tokens = 2};
    struct dyti_rollout_request q = {
        .sampling = &s, .eos = eos, .eos_count = 4};
    uint64_t scratch[4];

    (void)state;
    for (int greedy = 0; greedy < 2; greedy++) {
        float logits[4] = {1, 2, 3, 4};

        s.temperature = greedy ? 0.0 : 1.0;
        assert_int_equal(dyti_draw_truncated(&q, logits, 4, 1, 0.5, scratch),
                         -1);
    }
}

/* ---- log-probabilities --------------------------------------------------- */

static void check_gaps(const struct fixture *f, const struct ro_desc *desc,
                       const struct dyti_sampling *s, double tolerance)
{
    struct dyti_rollout_request q = request_of(f, s, 4);
    struct dyti_batch batch = ro_once(desc, f->full, &q);

    for (uint32_t i = 0; i < batch.sample_count; i++) {
        double gap =
            ro_logprob_gap(f->model, f->full, desc->dtype, &f->prompt[i / 4],
                           &batch.sample[i], s->temperature);

        if (!(gap < tolerance)) {
            fail_msg("sample %u is off by %g", i, gap);
        }
    }
    dyti_batch_fini(&batch);
}

static void logprobs_are_those_of_training(void **state)
{
    static const struct dyti_kernel_ops *const kernels[] = {
        &dyti_kernels_reference, &dyti_kernels_host};
    struct fixture f;

    (void)state;
    fixture_init(&f);
    for (size_t k = 0; k < 7; k++) {
        struct dyti_sampling s = kinds[k];

        s.max_response_tokens = 11;
        s.ignore_eos = true;
        for (uint32_t i = 0; i < 4; i++) {
            struct ro_desc desc = {.model = f.model,
                                   .kernels = kernels[i % 2],
                                   .tp = 1 + 2 * (i / 2),
                                   .pp = 1 + i / 2};

            check_gaps(&f, &desc, &s, TOLERANCE);
        }
    }
    fixture_fini(&f);
}

/* bf16 weights are read alike; a bf16 cache rounds K and V. */
static void narrow_types_stay_near(void **state)
{
    struct fixture f;
    struct dyti_sampling s = {
        .temperature = 1.0, .top_p = 1.0, .max_response_tokens = 8};

    (void)state;
    fixture_init(&f);
    check_gaps(&f, &(struct ro_desc){.model = f.model, .dtype = DYTI_BF16}, &s,
               TOLERANCE);
    check_gaps(&f,
               &(struct ro_desc){
                   .model = f.model, .dtype = DYTI_BF16, .kv_dtype = DYTI_BF16},
               &s, 0.1);
    fixture_fini(&f);
}

#ifdef DYT_TEST_HOOKS
/* A prompt's KV of the weights before shows in the log-probabilities. */
static void stale_kv_is_caught(void **state)
{
    struct fixture f;
    struct dyti_sampling s = {
        .temperature = 1.0, .top_p = 1.0, .max_response_tokens = 8};

    (void)state;
    fixture_init(&f);
    for (int stale = 0; stale < 2; stale++) {
        float **after = nn_full_random(f.model, 18);
        struct dyti_rollout_request q = request_of(&f, &s, 4);
        struct ro_desc desc = {.model = f.model, .stale_kv = stale != 0};
        struct dyti_batch batch;
        struct ro_world w;
        double gap = 0.0;

        ro_world_init(&w, &desc, f.full);
        batch = ro_generate(&w, &q);
        dyti_batch_fini(&batch);
        ro_world_set(&w, after, 2);
        batch = ro_generate(&w, &q);
        for (uint32_t i = 0; i < batch.sample_count; i++) {
            gap = fmax(gap,
                       ro_logprob_gap(f.model, after, DYTI_F32,
                                      &f.prompt[i / 4], &batch.sample[i], 1.0));
            assert_int_equal(batch.sample[i].span[0].version, 2);
        }
        dyti_batch_fini(&batch);
        ro_world_fini(&w);
        nn_full_free(f.model, after);
        assert_int_equal(gap > 1e-3, stale);
    }
    fixture_fini(&f);
}
#endif

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(draws_follow_the_softmax),
    cmocka_unit_test(truncated_draws_are_those_of_the_slow_way),
    cmocka_unit_test(nothing_left_is_no_token),
    cmocka_unit_test(logprobs_are_those_of_training),
    cmocka_unit_test(narrow_types_stay_near),
#ifdef DYT_TEST_HOOKS
    cmocka_unit_test(stale_kv_is_caught),
#endif
};
DYT_TEST_MAIN(tests)
