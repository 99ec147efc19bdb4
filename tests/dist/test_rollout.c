/* Generation by several ranks: the layout changes no text, ranks agree, and a
 * rank that fails ends it for all. */
#include "rollout_world.h"

#define PROMPTS 6u
#define SAMPLES 10u
#define MAX_NEW 8u

static const uint32_t length[PROMPTS] = {5, 2, 9, 17, 1, 5};

/* The quickstart's shape, cut down. */
static const struct dyti_arch arch = {.family = DYTI_LLAMA,
                                      .vocab = 48,
                                      .hidden = 32,
                                      .layers = 3,
                                      .q_heads = 9,
                                      .kv_heads = 3,
                                      .head_dim = 8,
                                      .ffn = 52,
                                      .max_positions = 64,
                                      .rms_eps = 1e-5,
                                      .init_std = 0.08,
                                      .tied = true,
                                      .rope = {.theta = 1e4}};

struct fixture {
    struct dyti_model *model;
    float **full;
    struct dyti_prompt *prompt;
    struct dyti_sampling s;
    struct dyti_rollout_request q;
};

static void fixture_init(struct fixture *f)
{
    *f = (struct fixture){0};
    assert_ok(dyti_model_build(&arch, &f->model));
    f->full = nn_full_random(f->model, 31);
    f->prompt = ro_prompts(length, PROMPTS, arch.vocab);
    f->s = (struct dyti_sampling){
        .temperature = 1.0, .top_p = 1.0, .max_response_tokens = MAX_NEW};
    f->q = (struct dyti_rollout_request){.prompt = f->prompt,
                                         .prompt_count = PROMPTS,
                                         .samples_per_prompt = SAMPLES,
                                         .sampling = &f->s,
                                         .seed = 2};
}

static void fixture_fini(struct fixture *f)
{
    ro_prompts_free(f->prompt, PROMPTS);
    nn_full_free(f->model, f->full);
    dyti_model_destroy(f->model);
}

static bool same_text(const struct dyti_sample *a, const struct dyti_sample *b)
{
    return a->count == b->count &&
           memcmp(a->ids, b->ids, a->count * sizeof(*a->ids)) == 0;
}

/* Sums over ranks are rounded otherwise: where a random number falls between
 * two such sums a draw differs.  That is rare, and every sample's
 * log-probabilities are those of its own text. */
static void check_against(const struct fixture *f, const struct ro_desc *desc,
                          const struct dyti_batch *want, uint32_t may_differ)
{
    struct dyti_batch batch = ro_once(desc, f->full, &f->q);
    uint32_t differ = 0;

    assert_int_equal(batch.sample_count, want->sample_count);
    for (uint32_t i = 0; i < batch.sample_count; i++) {
        double gap = ro_logprob_gap(f->model, f->full, DYTI_F32,
                                    &f->prompt[i / f->q.samples_per_prompt],
                                    &batch.sample[i], f->s.temperature);

        differ += !same_text(&batch.sample[i], &want->sample[i]);
        if (!(gap < 1e-4)) {
            fail_msg("tp %u pp %u dp %u: sample %u is off by %g", desc->tp,
                     desc->pp, desc->dp, i, gap);
        }
    }
    if (differ > may_differ) {
        fail_msg("tp %u pp %u dp %u: %u texts differ", desc->tp, desc->pp,
                 desc->dp, differ);
    }
    dyti_batch_fini(&batch);
}

static void layouts_write_one_text(void **state)
{
    static const uint32_t degree[][3] = {
        {2, 1, 1}, {3, 1, 1}, {4, 1, 1}, {6, 1, 1}, {1, 2, 1}, {1, 3, 1},
        {1, 1, 2}, {2, 2, 1}, {2, 1, 2}, {3, 2, 1}, {2, 2, 2}};
    static const struct dyti_sampling kinds[] = {
        {.temperature = 0.0, .top_p = 1.0},
        {.temperature = 1.0, .top_p = 1.0},
        {.temperature = 0.9, .top_p = 0.9, .top_k = 20}};
    struct fixture f;

    (void)state;
    fixture_init(&f);
    for (size_t k = 0; k < DYT_TEST_COUNT(kinds); k++) {
        struct dyti_batch want;

        f.s = kinds[k];
        f.s.max_response_tokens = MAX_NEW;
        f.q.samples_per_prompt = k == 0 ? 1 : 4;
        want = ro_once(&(struct ro_desc){.model = f.model}, f.full, &f.q);
        for (size_t i = 0; i < DYT_TEST_COUNT(degree); i++) {
            struct ro_desc desc = {.model = f.model,
                                   .tp = degree[i][0],
                                   .pp = degree[i][1],
                                   .dp = degree[i][2],
                                   .kernels = i % 2 ? &dyti_kernels_host
                                                    : &dyti_kernels_reference};

            check_against(&f, &desc, &want, k == 0 ? 0 : 1);
        }
        dyti_batch_fini(&want);
    }
    fixture_fini(&f);
}

/* Within one layout: crowded or not, again or not, threads or not: the same
 * bits (reference kernels; the fast ones choose by the number of rows). */
static void pressure_changes_nothing_in_any_layout(void **state)
{
    static const uint32_t degree[][3] = {
        {4, 1, 1}, {1, 2, 1}, {2, 2, 1}, {2, 1, 2}};
    struct fixture f;

    (void)state;
    fixture_init(&f);
    for (size_t i = 0; i < DYT_TEST_COUNT(degree); i++) {
        struct ro_desc desc = {.model = f.model,
                               .tp = degree[i][0],
                               .pp = degree[i][1],
                               .dp = degree[i][2]};
        struct dyti_batch want = ro_once(&desc, f.full, &f.q), batch;

        desc.max_sequences = 7;
        desc.max_rows = 9;
        desc.kv_bytes = 20000; /* ranks with more heads hold fewer blocks */
        batch = ro_once(&desc, f.full, &f.q);
        ro_same_samples(&batch, &want);
        dyti_batch_fini(&batch);
        dyti_batch_fini(&want);
    }
    fixture_fini(&f);
}

/* ---- a rank that fails --------------------------------------------------- */

static void fail_at_half(void *arg, uint32_t finished, uint32_t total)
{
    struct ro_world *w = arg;

    (void)total;
    if (finished > PROMPTS * SAMPLES / 4) {
        atomic_store(&w->abort.value, dyti_abort_pack(1, DYT_ERR_DEVICE));
    }
}

static void a_failed_rank_ends_it_for_all(void **state)
{
    static const uint32_t degree[][2] = {{2, 1}, {1, 2}, {2, 2}};
    struct fixture f;

    (void)state;
    fixture_init(&f);
    for (size_t i = 0; i < DYT_TEST_COUNT(degree); i++) {
        struct ro_desc desc = {.model = f.model,
                               .tp = degree[i][0],
                               .pp = degree[i][1],
                               .max_sequences = 8};
        struct ro_world w;

        ro_world_init(&w, &desc, f.full);
        f.q.progress = fail_at_half;
        f.q.arg = &w;
        assert_int_equal(ro_try(&w, &f.q), DYT_ERR_PEER);
        for (uint32_t r = 0; r < w.size; r++) {
            assert_non_null(strstr(w.rank[r].error, "rank 1"));
            assert_null(w.rank[r].out.sample);
        }
        f.q.progress = NULL;
        ro_world_fini(&w);
    }
    fixture_fini(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(layouts_write_one_text),
    cmocka_unit_test(pressure_changes_nothing_in_any_layout),
    cmocka_unit_test(a_failed_rank_ends_it_for_all),
};
DYT_TEST_MAIN(tests)
