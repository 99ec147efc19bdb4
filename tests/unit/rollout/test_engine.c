/* What is refused, and that the result does not depend on how crowded the
 * engine is, on threads or on repetition. */
#include "rollout_cases.h"

/* ---- refusals ------------------------------------------------------------ */

static void refused(struct ro_world *w, const struct dyti_rollout_request *q,
                    enum dyt_status want, const char *a, const char *b)
{
    assert_int_equal(ro_try(w, q), want);
    for (uint32_t i = 0; i < w->size; i++) {
        if (strstr(w->rank[i].error, a) == NULL ||
            strstr(w->rank[i].error, b) == NULL) {
            fail_msg("no \"%s\" and \"%s\" in: %s", a, b, w->rank[i].error);
        }
        assert_null(w->rank[i].out.sample);
    }
}

static void nothing_is_generated_from_uncommitted_weights(void **state)
{
    struct ro_case f;
    struct ro_world w;
    struct dyti_batch batch;

    (void)state;
    ro_case_init(&f);
    f.desc.tp = 2;
    ro_world_init(&w, &f.desc, NULL);
    refused(&w, &f.q, DYT_ERR_STATE, "no committed weights", "switch");
    ro_world_set(&w, f.full, 41);
    batch = ro_generate(&w, &f.q);
    assert_int_equal(batch.sample[7].span[0].version, 41);
    dyti_batch_fini(&batch);
    for (uint32_t i = 0; i < w.size; i++) {
        dyti_rollout_invalidate(w.rank[i].engine);
    }
    refused(&w, &f.q, DYT_ERR_STATE, "no committed weights", "switch");
    dyti_rollout_set_version(w.rank[0].engine, 42);
    dyti_rollout_set_version(w.rank[1].engine, 42);
    batch = ro_generate(&w, &f.q);
    assert_int_equal(batch.sample[0].span[0].version, 42);
    dyti_batch_fini(&batch);
    ro_world_fini(&w);
    ro_case_fini(&f);
}

static void bad_requests_are_refused_by_name(void **state)
{
    static char *strings[] = {"x"};
    struct ro_case f;
    struct ro_world w;

    (void)state;
    ro_case_init(&f);
    f.desc.tp = 2;
    ro_world_init(&w, &f.desc, f.full);
    f.prompt[2].id_count = 0;
    refused(&w, &f.q, DYT_ERR_INVALID, "prompt 114", "is empty");
    f.prompt[2].id_count = 4;
    f.prompt[2].ids[3] = RO_VOCAB;
    refused(&w, &f.q, DYT_ERR_INVALID, "prompt 114", "id 32 at position 3");
    f.prompt[2].ids[3] = -1;
    refused(&w, &f.q, DYT_ERR_INVALID, "prompt 114", "id -1");
    f.prompt[2].ids[3] = 0;
    f.s.max_response_tokens = 40;
    refused(&w, &f.q, DYT_ERR_INVALID, "prompt 121 has 9 tokens", "48");
    f.s.max_response_tokens = 0;
    refused(&w, &f.q, DYT_ERR_INVALID, "max_response_tokens 0", "");
    f.s.max_response_tokens = 4;
    f.s.temperature = -1.0;
    refused(&w, &f.q, DYT_ERR_INVALID, "temperature -1", "");
    f.s.temperature = NAN;
    refused(&w, &f.q, DYT_ERR_INVALID, "temperature", "nan");
    f.s.temperature = 1.0;
    f.s.top_p = 0.0;
    refused(&w, &f.q, DYT_ERR_INVALID, "top_p 0", "");
    f.s.top_p = 1.0;
    f.s.min_p = 1.0;
    refused(&w, &f.q, DYT_ERR_INVALID, "min_p 1", "");
    f.s.min_p = 0.0;
    f.s.stop = strings;
    f.s.stop_count = 1;
    refused(&w, &f.q, DYT_ERR_INVALID, "stop strings need a tokenizer", "");
    f.s.stop_count = 0;
    f.q.samples_per_prompt = 0;
    refused(&w, &f.q, DYT_ERR_INVALID, "0 samples", "5 prompts");
    f.q.samples_per_prompt = UINT32_MAX;
    refused(&w, &f.q, DYT_ERR_INVALID, "4294967295 samples", "");
    f.q.samples_per_prompt = 1;
    f.q.prompt_count = 0;
    assert_int_equal(ro_try(&w, &f.q), DYT_OK);
    assert_int_equal(w.rank[0].out.sample_count, 0);
    free(w.rank[0].out.sample);
    free(w.rank[1].out.sample);
    ro_world_fini(&w);
    ro_case_fini(&f);
}

static void a_sequence_that_cannot_fit_is_refused_with_numbers(void **state)
{
    struct ro_case f;
    struct ro_world w;
    struct dyti_batch batch;
    uint64_t block;

    (void)state;
    ro_case_init(&f);
    block = 2 * (uint64_t)(f.arch.layers * f.arch.kv_heads * f.arch.head_dim) *
            4 * 4;
    /* The longest: 9 + 12 - 1 = 20 positions, 5 blocks of 4. */
    f.desc.kv_bytes = 5 * block;
    f.q.samples_per_prompt = 3;
    batch = ro_case_run(&f);
    dyti_batch_fini(&batch);
    f.desc.kv_bytes = 5 * block - 1;
    ro_world_init(&w, &f.desc, f.full);
    refused(&w, &f.q, DYT_ERR_NOMEM, "prompt 107: 7 prompt + 12 response",
            "need 5 cache blocks of 4 positions and there are 4");
    f.s.max_response_tokens = 8; /* and the engine still works */
    batch = ro_generate(&w, &f.q);
    dyti_batch_fini(&batch);
    ro_world_fini(&w);
    ro_case_fini(&f);
}

static void bad_engines_are_refused(void **state)
{
    struct ro_case f;
    struct ro_world w;
    struct dyti_rollout_params p;
    struct dyti_rollout *r = NULL;
    uint64_t bytes = 7;

    (void)state;
    ro_case_init(&f);
    ro_world_init(&w, &f.desc, NULL);
    p = ro_params(&w, 0);
    p.kv_bytes = 100;
    assert_status(DYT_ERR_CONFIG, dyti_rollout_workspace_bytes(&p, &bytes));
    assert_error_has("kv.memory of 100 bytes holds no block");
    p = ro_params(&w, 0);
    p.max_rows = p.max_sequences - 1;
    assert_status(DYT_ERR_INVALID, dyti_rollout_workspace_bytes(&p, &bytes));
    p.max_rows = p.max_sequences;
    p.block = 0;
    assert_status(DYT_ERR_INVALID, dyti_rollout_workspace_bytes(&p, &bytes));
    assert_int_equal(bytes, 7);
    p = ro_params(&w, 0);
    assert_status(
        DYT_ERR_INVALID,
        dyti_rollout_create(&p, w.rank[0].work, w.rank[0].work_bytes / 2, &r));
    assert_error_has("workspace of");
    assert_null(r);
    dyti_rollout_destroy(NULL);
    ro_world_fini(&w);
    ro_case_fini(&f);
}

/* Weights that overflow: one clear error on every rank, no token made up. */
static void logits_that_are_not_finite_are_an_error(void **state)
{
    struct ro_case f;
    struct ro_world w;

    (void)state;
    ro_case_init(&f);
    f.desc.tp = 3;
    ro_world_init(&w, &f.desc, NULL);
    for (uint32_t t = 0; t < f.model->tensor_count; t++) {
        if (f.model->tensor[t].slot == DYTI_SLOT_FINAL_NORM) {
            f.full[t][3] = NAN;
        }
    }
    ro_world_set(&w, f.full, 1);
    refused(&w, &f.q, DYT_ERR_DEVICE, "prompt 100 sample 0", "not finite");
    f.s.temperature = 0.0;
    refused(&w, &f.q, DYT_ERR_DEVICE, "prompt 100 sample 0", "not finite");
    f.s.temperature = 1.0;
    f.s.top_k = 4;
    refused(&w, &f.q, DYT_ERR_DEVICE, "prompt 100 sample 0", "not finite");
    ro_world_fini(&w);
    ro_case_fini(&f);
}

/* ---- sameness ------------------------------------------------------------ */

static void check_same(struct ro_case *f, const struct dyti_batch *want,
                       const char *what)
{
    struct dyti_batch batch = ro_case_run(f);

    print_message("%s\n", what);
    ro_same_samples(&batch, want);
    dyti_batch_fini(&batch);
}

/* Bit by bit with the reference kernels: each row of theirs is computed by
 * itself.  Random numbers and the draw are functions of the row alone. */
static void pressure_changes_nothing(void **state)
{
    int32_t eos[] = {4};
    static const struct dyti_sampling kinds[] = {
        {.temperature = 1.0, .top_p = 1.0},
        {.temperature = 0.8, .top_p = 0.9, .top_k = 12},
        {.temperature = 1.0, .top_p = 1.0, .min_response_tokens = 3}};
    struct dyti_batch want;
    struct ro_case f;
    uint64_t block;

    (void)state;
    ro_case_init(&f);
    block = 2 * (uint64_t)(f.arch.layers * f.arch.kv_heads * f.arch.head_dim) *
            4 * 4;
    f.q.eos = eos;
    f.q.eos_count = 1;
    for (size_t k = 0; k < DYT_TEST_COUNT(kinds); k++) {
        f.s = kinds[k];
        f.s.max_response_tokens = RO_MAX_NEW;
        f.desc = (struct ro_desc){.model = f.model, .max_sequences = 100};
        want = ro_case_run(&f);
        check_same(&f, &want, "again");
        f.desc.max_sequences = 7;
        check_same(&f, &want, "seven sequences");
        f.desc.max_rows = 8;
        check_same(&f, &want, "seven sequences, eight rows");
        f.desc.max_sequences = 100;
        f.desc.max_rows = 100;
        f.desc.kv_bytes = 5 * block;
        check_same(&f, &want, "five blocks");
        f.desc.kv_bytes = 23 * block;
        check_same(&f, &want, "twenty-three blocks");
        f.desc = (struct ro_desc){.model = f.model, .block = 16};
        check_same(&f, &want, "larger blocks");
        dyti_batch_fini(&want);
    }
    ro_case_fini(&f);
}

/* The fast kernels: threads, repetition and a used cache change no bit. */
static void threads_and_repetition_change_nothing(void **state)
{
    struct dyti_batch want, batch;
    struct ro_case f;
    struct ro_world w;

    (void)state;
    ro_case_init(&f);
    f.desc.kernels = &dyti_kernels_host;
    want = ro_case_run(&f);
    for (uint32_t threads = 2; threads <= 4; threads++) {
        f.desc.threads = threads;
        check_same(&f, &want, "threads");
    }
    ro_world_init(&w, &f.desc, f.full);
    for (int i = 0; i < 3; i++) {
        batch = ro_generate(&w, &f.q);
        ro_same_samples(&batch, &want);
        dyti_batch_fini(&batch);
        /* Others use the workspace between calls. */
        memset(w.rank[0].work, 0xff, w.rank[0].work_bytes);
    }
    ro_world_fini(&w);
    dyti_batch_fini(&want);
    ro_case_fini(&f);
}

/* A prompt's tokens do not depend on which prompts come with it. */
static void a_prompt_is_alone_in_its_randomness(void **state)
{
    struct dyti_batch want, batch;
    struct ro_case f;

    (void)state;
    ro_case_init(&f);
    want = ro_case_run(&f);
    f.q.prompt = f.prompt + 3;
    f.q.prompt_count = 1;
    batch = ro_case_run(&f);
    for (uint32_t i = 0; i < batch.sample_count; i++) {
        assert_memory_equal(batch.sample[i].ids, want.sample[60 + i].ids,
                            RO_MAX_NEW * sizeof(int32_t));
    }
    assert_memory_not_equal(batch.sample[0].ids, batch.sample[1].ids,
                            RO_MAX_NEW * sizeof(int32_t));
    dyti_batch_fini(&batch);
    f.q.seed++;
    batch = ro_case_run(&f);
    assert_memory_not_equal(batch.sample[0].ids, want.sample[60].ids,
                            RO_MAX_NEW * sizeof(int32_t));
    dyti_batch_fini(&batch);
    dyti_batch_fini(&want);
    ro_case_fini(&f);
}

/* ---- what is counted ----------------------------------------------------- */

struct calls {
    uint32_t first, progress, last;
};

static void on_first(void *arg)
{
    struct calls *c = arg;

    assert_int_equal(c->progress, 0);
    c->first++;
}

static void on_progress(void *arg, uint32_t finished, uint32_t total)
{
    struct calls *c = arg;

    assert_in_range(finished, c->last, total);
    c->last = finished;
    c->progress++;
}

/* One prefill a group, however many samples; nobody sits idle while a sample
 * waits. */
static void work_is_shared_and_slots_stay_full(void **state)
{
    struct calls calls = {0};
    struct ro_case f;
    struct ro_world w;
    struct dyti_batch batch;
    const struct dyti_rollout_stats *s;

    (void)state;
    ro_case_init(&f);
    f.q.first_token = on_first;
    f.q.progress = on_progress;
    f.q.arg = &calls;
    f.desc.max_sequences = 100;
    ro_world_init(&w, &f.desc, f.full);
    s = &w.rank[0].stats;
    batch = ro_generate(&w, &f.q);
    dyti_batch_fini(&batch);
    assert_int_equal(s->prefill_rows, 2 + 7 + 4 + 9 + 1);
    assert_int_equal(s->decode_rows, 100 * (RO_MAX_NEW - 1));
    assert_int_equal(s->sampled, 100 * RO_MAX_NEW);
    assert_int_equal(s->passes, RO_MAX_NEW);
    assert_int_equal(s->most_sequences, 100);
    assert_int_equal(calls.first, 1);
    assert_int_equal(calls.progress, RO_MAX_NEW);
    assert_int_equal(calls.last, 100);
    ro_world_fini(&w);
    /* 100 samples through 8 slots: 13 rounds, the last one half empty; a row
     * more for each time a group goes on. */
    f.desc.max_sequences = 8;
    calls = (struct calls){0};
    ro_world_init(&w, &f.desc, f.full);
    batch = ro_generate(&w, &f.q);
    dyti_batch_fini(&batch);
    assert_int_equal(s->passes, 13 * RO_MAX_NEW);
    assert_int_equal(s->most_sequences, 8);
    assert_in_range(s->prefill_rows, 23, 23 + 12);
    ro_world_fini(&w);
    ro_case_fini(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_is_generated_from_uncommitted_weights),
    cmocka_unit_test(bad_requests_are_refused_by_name),
    cmocka_unit_test(a_sequence_that_cannot_fit_is_refused_with_numbers),
    cmocka_unit_test(bad_engines_are_refused),
    cmocka_unit_test(logits_that_are_not_finite_are_an_error),
    cmocka_unit_test(pressure_changes_nothing),
    cmocka_unit_test(threads_and_repetition_change_nothing),
    cmocka_unit_test(a_prompt_is_alone_in_its_randomness),
    cmocka_unit_test(work_is_shared_and_slots_stay_full),
};
DYT_TEST_MAIN(tests)
