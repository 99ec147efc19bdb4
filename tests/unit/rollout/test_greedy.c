/* Greedy generation is a plain loop over the training forward pass and argmax,
 * whatever the passes, blocks and groups are. */
#include "rollout_world.h"

static const uint32_t length[] = {1, 3, 4, 5, 8, 13, 21};
#define PROMPTS   7u
#define MAX_NEW   9u
#define TOLERANCE 1e-4

struct loop {
    struct dyti_model *model;
    float **full;
    struct dyti_prompt *prompt;
    int32_t want[PROMPTS][MAX_NEW];
};

static int32_t argmax(const float *row, int64_t vocab)
{
    int64_t best = 0;

    for (int64_t i = 1; i < vocab; i++) {
        best = row[i] > row[best] ? i : best;
    }
    return (int32_t)best;
}

/* One token at a time over everything so far. */
static void run_loop(struct loop *l, uint32_t p)
{
    int64_t vocab = l->model->arch.vocab;
    int32_t *ids = ro_whole(&l->prompt[p], NULL, 0);
    uint32_t n = l->prompt[p].id_count;

    ids = realloc(ids, (n + MAX_NEW) * sizeof(*ids));
    for (uint32_t i = 0; i < MAX_NEW; i++) {
        float *logits =
            ro_oracle_logits(l->model, l->full, DYTI_F32, ids, n + i);

        ids[n + i] = argmax(logits + (n + i - 1) * (size_t)vocab, vocab);
        l->want[p][i] = ids[n + i];
        free(logits);
    }
    free(ids);
}

static void loop_init(struct loop *l, const struct dyti_arch *arch)
{
    assert_ok(dyti_model_build(arch, &l->model));
    l->full = nn_full_random(l->model, 3);
    l->prompt = ro_prompts(length, PROMPTS, arch->vocab);
    for (uint32_t p = 0; p < PROMPTS; p++) {
        run_loop(l, p);
    }
}

static void loop_fini(struct loop *l)
{
    ro_prompts_free(l->prompt, PROMPTS);
    nn_full_free(l->model, l->full);
    dyti_model_destroy(l->model);
}

/* Every sample has the loop's tokens, and the oracle's log-probabilities. */
static void check(const struct loop *l, const struct ro_desc *desc,
                  uint32_t samples, const char *what)
{
    struct dyti_sampling sampling = {
        .max_response_tokens = MAX_NEW, .top_p = 1.0, .ignore_eos = true};
    struct dyti_rollout_request request = {.prompt = l->prompt,
                                           .prompt_count = PROMPTS,
                                           .samples_per_prompt = samples,
                                           .sampling = &sampling};
    struct ro_desc mine = *desc;
    struct dyti_batch batch;

    mine.model = l->model;
    batch = ro_once(&mine, l->full, &request);
    for (uint32_t i = 0; i < batch.sample_count; i++) {
        const struct dyti_sample *s = &batch.sample[i];
        uint32_t p = i / samples;

        assert_int_equal(s->prompt, l->prompt[p].id);
        assert_int_equal(s->index, i % samples);
        assert_int_equal(s->count, MAX_NEW);
        assert_int_equal(s->finish, DYTI_FINISH_LENGTH);
        if (memcmp(s->ids, l->want[p], sizeof(l->want[p])) != 0) {
            fail_msg("%s: prompt %u sample %u is another text", what, p,
                     s->index);
        }
        if (s->index == 0) {
            double gap = ro_logprob_gap(l->model, l->full, desc->dtype,
                                        &l->prompt[p], s, 0.0);

            if (!(gap < TOLERANCE)) {
                fail_msg("%s: prompt %u gap %g", what, p, gap);
            }
        }
    }
    dyti_batch_fini(&batch);
}

static void greedy_is_a_plain_loop_for_every_family(void **state)
{
    (void)state;
    for (size_t i = 0; i < NN_CASE_COUNT; i++) {
        struct loop l;

        loop_init(&l, &nn_cases[i].arch);
        check(&l, &(struct ro_desc){0}, 1, nn_cases[i].name);
        loop_fini(&l);
    }
}

/* A block of K and V of this model's layers, f32. */
static uint64_t block_bytes(const struct loop *l, uint32_t block)
{
    const struct dyti_arch *a = &l->model->arch;

    return 2 * (uint64_t)(a->layers * a->kv_heads * a->head_dim) * block * 4;
}

static void greedy_does_not_feel_blocks_passes_groups(void **state)
{
    struct loop l;

    (void)state;
    loop_init(&l, &nn_cases[0].arch);
    for (uint32_t block = 1; block <= 32; block = block * 2 + block / 5) {
        check(&l, &(struct ro_desc){.block = block}, 3, "blocks");
    }
    check(&l, &(struct ro_desc){.max_sequences = 1, .max_rows = 1}, 2,
          "one row at a time");
    check(&l, &(struct ro_desc){.max_sequences = 5, .max_rows = 6}, 4,
          "chunked prefill, groups that never fit whole");
    check(&l, &(struct ro_desc){.max_sequences = 2, .max_rows = 40}, 5,
          "groups larger than the sequences that run");
    /* The longest, 21 + 9 - 1 positions, takes 8 blocks of 4. */
    for (uint64_t blocks = 8; blocks < 20; blocks++) {
        check(&l,
              &(struct ro_desc){.max_rows = 64,
                                .kv_bytes = blocks * block_bytes(&l, 4)},
              4, "few blocks");
    }
    /* Layers whose bytes are no multiple of a cache line. */
    check(&l,
          &(struct ro_desc){
              .block = 29, .max_rows = 64, .kv_bytes = 3 * block_bytes(&l, 29)},
          4, "three large blocks");
    check(&l, &(struct ro_desc){.kernels = &dyti_kernels_host}, 2,
          "host kernels");
    check(&l,
          &(struct ro_desc){.kernels = &dyti_kernels_host,
                            .threads = 3,
                            .max_sequences = 6,
                            .max_rows = 7},
          4, "host kernels, three threads, few rows");
    loop_fini(&l);
}

static void layouts_of_one_text(void **state)
{
    static const uint32_t degree[][3] = {
        {2, 1, 1}, {3, 1, 1}, {4, 1, 1}, {6, 1, 1}, {1, 2, 1}, {1, 3, 1},
        {2, 2, 1}, {1, 1, 2}, {4, 2, 1}, {2, 1, 3}, {3, 2, 2}};
    struct loop l;

    (void)state;
    loop_init(&l, &nn_cases[0].arch);
    for (size_t i = 0; i < DYT_TEST_COUNT(degree); i++) {
        struct ro_desc desc = {0};
        char what[64];

        desc.tp = degree[i][0];
        desc.pp = degree[i][1];
        desc.dp = degree[i][2];
        snprintf(what, sizeof(what), "tp %u pp %u dp %u", desc.tp, desc.pp,
                 desc.dp);
        check(&l, &desc, 2, what);
        /* Ranks hold 1 or 2 KV heads, or 1 or 2 layers, and must still admit
         * the same. */
        desc.kv_bytes = 8 * block_bytes(&l, 4);
        desc.max_rows = 64;
        check(&l, &desc, 3, what);
    }
    loop_fini(&l);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(greedy_is_a_plain_loop_for_every_family),
    cmocka_unit_test(greedy_does_not_feel_blocks_passes_groups),
    cmocka_unit_test(layouts_of_one_text),
};
DYT_TEST_MAIN(tests)
