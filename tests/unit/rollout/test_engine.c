/* When sequences end, what is refused, and that the result does not depend on
 * how crowded the engine is, on threads or on repetition. */
#include "rollout_world.h"

#define VOCAB   32
#define PROMPTS 5u
#define MAX_NEW 12u

static const uint32_t length[PROMPTS] = {2, 7, 4, 9, 1};

struct fixture {
    struct dyti_arch arch;
    struct dyti_model *model;
    float **full;
    struct dyti_prompt *prompt;
    struct dyti_sampling s;
    struct dyti_rollout_request q;
    struct ro_desc desc;
};

static void fixture_init(struct fixture *f)
{
    *f = (struct fixture){.arch = nn_cases[0].arch};
    f->arch.vocab = VOCAB;
    assert_ok(dyti_model_build(&f->arch, &f->model));
    f->full = nn_full_random(f->model, 29);
    for (uint32_t t = 0; t < f->model->tensor_count; t++) {
        if (f->model->tensor[t].slot == DYTI_SLOT_FINAL_NORM) {
            for (int64_t i = 0; i < f->arch.hidden; i++) {
                f->full[t][i] *= 0.4f; /* all tokens have a chance */
            }
        }
    }
    f->prompt = ro_prompts(length, PROMPTS, VOCAB);
    f->s = (struct dyti_sampling){
        .temperature = 1.0, .top_p = 1.0, .max_response_tokens = MAX_NEW};
    f->q = (struct dyti_rollout_request){.prompt = f->prompt,
                                         .prompt_count = PROMPTS,
                                         .samples_per_prompt = 20,
                                         .sampling = &f->s,
                                         .seed = 6};
    f->desc.model = f->model;
}

static void fixture_fini(struct fixture *f)
{
    ro_prompts_free(f->prompt, PROMPTS);
    nn_full_free(f->model, f->full);
    dyti_model_destroy(f->model);
}

static struct dyti_batch run(struct fixture *f)
{
    return ro_once(&f->desc, f->full, &f->q);
}

/* ---- text ---------------------------------------------------------------- */

/* Token i is the letter 'a' + i % 26 once, twice for odd i. */
static enum dyt_status letters(void *self, int32_t id, const char **out,
                               size_t *out_bytes)
{
    static const char twice[] =
        "aabbccddeeffgghhiijjkkllmmnnooppqqrrssttuuvvwwxxyyzz";

    (void)self;
    if (id == VOCAB - 1) {
        return DYTI_FAIL(DYT_ERR_INVALID, "a token without text");
    }
    *out = twice + 2 * (id % 26);
    *out_bytes = 1 + (size_t)(id % 2);
    return DYT_OK;
}

static const struct dyti_tokenizer_ops letter_ops = {.struct_size =
                                                         sizeof(letter_ops),
                                                     .name = "letters",
                                                     .token_bytes = letters};
static const struct dyti_tokenizer letter_tokenizer = {&letter_ops, NULL};

static void text_of(const struct dyti_sample *s, uint32_t count, char *out)
{
    size_t n = 0;

    for (uint32_t i = 0; i < count; i++) {
        const char *bytes;
        size_t size;

        if (s->ids[i] != VOCAB - 1) {
            assert_ok(letters(NULL, s->ids[i], &bytes, &size));
            memcpy(out + n, bytes, size);
            n += size;
        }
    }
    out[n] = '\0';
}

/* ---- ends ---------------------------------------------------------------- */

/* An endless run cut at the first token that `ends` says is the last is the
 * run that stops by itself: log-probabilities too, bit by bit. */
typedef bool (*ends_fn)(const struct fixture *f, const struct dyti_sample *s,
                        uint32_t count);

static void check_cut(struct fixture *f, const struct dyti_batch *endless,
                      ends_fn ends, uint32_t least_stops)
{
    struct dyti_batch batch = run(f);
    uint32_t stops = 0;

    for (uint32_t i = 0; i < batch.sample_count; i++) {
        const struct dyti_sample *s = &batch.sample[i];
        const struct dyti_sample *all = &endless->sample[i];
        uint32_t n = 1;

        while (n < MAX_NEW && !ends(f, all, n)) {
            n++;
        }
        assert_int_equal(s->count, n);
        assert_int_equal(s->finish, ends(f, all, n) ? DYTI_FINISH_STOP
                                                    : DYTI_FINISH_LENGTH);
        assert_memory_equal(s->ids, all->ids, n * sizeof(*s->ids));
        assert_memory_equal(s->raw, all->raw, n * sizeof(*s->raw));
        assert_int_equal(s->span_count, 1);
        assert_int_equal(s->span[0].version, 1);
        assert_int_equal(s->span[0].first, 0);
        assert_int_equal(s->span[0].count, n);
        stops += s->finish == DYTI_FINISH_STOP;
    }
    assert_in_range(stops, least_stops, batch.sample_count - 1);
    dyti_batch_fini(&batch);
}

static bool eos_ends(const struct fixture *f, const struct dyti_sample *s,
                     uint32_t count)
{
    for (uint32_t i = 0; i < f->q.eos_count; i++) {
        if (s->ids[count - 1] == f->q.eos[i]) {
            return true;
        }
    }
    return false;
}

static bool id_ends(const struct fixture *f, const struct dyti_sample *s,
                    uint32_t count)
{
    for (uint32_t i = 0; i < f->s.stop_token_id_count; i++) {
        if (s->ids[count - 1] == (int32_t)f->s.stop_token_id[i]) {
            return true;
        }
    }
    return false;
}

static bool string_ends(const struct fixture *f, const struct dyti_sample *s,
                        uint32_t count)
{
    char text[2 * MAX_NEW + 1];

    text_of(s, count, text);
    for (uint32_t i = 0; i < f->s.stop_count; i++) {
        if (strstr(text, f->s.stop[i]) != NULL) {
            return true;
        }
    }
    return false;
}

static void sequences_end_where_they_should(void **state)
{
    int32_t eos[] = {4, 17, -1, 4000};
    uint32_t stop_id[] = {9, 4000000000u};
    struct dyti_batch endless;
    struct fixture f;

    (void)state;
    fixture_init(&f);
    endless = run(&f);
    f.q.eos = eos;
    f.q.eos_count = 4;
    check_cut(&f, &endless, eos_ends, 10);
    f.s.ignore_eos = true;
    f.s.stop_token_id = stop_id;
    f.s.stop_token_id_count = 2;
    check_cut(&f, &endless, id_ends, 10);
    /* A crowded engine ends them at the same tokens. */
    f.desc.max_sequences = 3;
    f.desc.max_rows = 4;
    check_cut(&f, &endless, id_ends, 10);
    dyti_batch_fini(&endless);
    fixture_fini(&f);
}

static void strings_end_across_tokens(void **state)
{
    /* Inside a token, at its end, over two and over three tokens. */
    static char *strings[][2] = {{"b", "zzzzzzzz"},
                                 {"dd", "ll"},
                                 {"ab", "fh"},
                                 {"dda", "gi"},
                                 {"c", "cc"}};
    struct dyti_batch endless;
    struct fixture f;

    (void)state;
    fixture_init(&f);
    endless = run(&f);
    f.desc.tokenizer = &letter_tokenizer;
    for (size_t i = 0; i < DYT_TEST_COUNT(strings); i++) {
        f.s.stop = strings[i];
        f.s.stop_count = 2;
        check_cut(&f, &endless, string_ends, 1);
    }
    dyti_batch_fini(&endless);
    fixture_fini(&f);
}

/* Below the minimum nothing ends, and what is drawn otherwise is the same. */
static void minimum_length_holds(void **state)
{
    static char *strings[] = {"b"};
    int32_t eos[] = {4, 17};
    uint32_t stop_id[] = {9};
    struct fixture f;
    struct dyti_batch batch;
    uint32_t at_minimum = 0;

    (void)state;
    fixture_init(&f);
    f.q.eos = eos;
    f.q.eos_count = 2;
    f.s.stop_token_id = stop_id;
    f.s.stop_token_id_count = 1;
    f.s.stop = strings;
    f.s.stop_count = 1;
    f.s.min_response_tokens = 5;
    f.desc.tokenizer = &letter_tokenizer;
    for (int greedy = 0; greedy < 2; greedy++) {
        f.s.temperature = greedy ? 0.0 : 1.0;
        batch = run(&f);
        for (uint32_t i = 0; i < batch.sample_count; i++) {
            const struct dyti_sample *s = &batch.sample[i];

            assert_in_range(s->count, 6, MAX_NEW);
            at_minimum += s->count == 6;
            for (uint32_t k = 0; k < 5; k++) {
                assert_true(s->ids[k] != 4 && s->ids[k] != 17 &&
                            s->ids[k] != 9);
            }
            assert_true(ro_logprob_gap(f.model, f.full, DYTI_F32,
                                       &f.prompt[i / 20], s,
                                       f.s.temperature) < 1e-4);
        }
        dyti_batch_fini(&batch);
    }
    assert_in_range(at_minimum, 1, 200);
    fixture_fini(&f);
}

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
    struct fixture f;
    struct ro_world w;
    struct dyti_batch batch;

    (void)state;
    fixture_init(&f);
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
    fixture_fini(&f);
}

static void bad_requests_are_refused_by_name(void **state)
{
    static char *strings[] = {"x"};
    struct fixture f;
    struct ro_world w;
    int32_t *ids;

    (void)state;
    fixture_init(&f);
    f.desc.tp = 2;
    ro_world_init(&w, &f.desc, f.full);
    f.prompt[2].id_count = 0;
    refused(&w, &f.q, DYT_ERR_INVALID, "prompt 114", "0 tokens");
    f.prompt[2].id_count = 4;
    f.prompt[2].ids[3] = VOCAB;
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
    ids = f.prompt[0].ids;
    assert_non_null(ids);
    ro_world_fini(&w);
    fixture_fini(&f);
}

static void a_sequence_that_cannot_fit_is_refused_with_numbers(void **state)
{
    struct fixture f;
    struct ro_world w;
    struct dyti_batch batch;
    uint64_t block;

    (void)state;
    fixture_init(&f);
    block = 2 * (uint64_t)(f.arch.layers * f.arch.kv_heads * f.arch.head_dim) *
            4 * 4;
    /* The longest: 9 + 12 - 1 = 20 positions, 5 blocks of 4. */
    f.desc.kv_bytes = 5 * block;
    f.q.samples_per_prompt = 3;
    batch = run(&f);
    dyti_batch_fini(&batch);
    f.desc.kv_bytes = 5 * block - 1;
    ro_world_init(&w, &f.desc, f.full);
    refused(&w, &f.q, DYT_ERR_NOMEM, "prompt 107: 7 prompt + 12 response",
            "need 5 cache blocks of 4 positions and there are 4");
    f.s.max_response_tokens = 8; /* and the engine still works */
    batch = ro_generate(&w, &f.q);
    dyti_batch_fini(&batch);
    ro_world_fini(&w);
    fixture_fini(&f);
}

static void bad_engines_are_refused(void **state)
{
    struct fixture f;
    struct ro_world w;
    struct dyti_rollout_params p;
    struct dyti_rollout *r = NULL;
    uint64_t bytes = 7;

    (void)state;
    fixture_init(&f);
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
    fixture_fini(&f);
}

/* Weights that overflow: one clear error on every rank, no token made up. */
static void logits_that_are_not_finite_are_an_error(void **state)
{
    struct fixture f;
    struct ro_world w;

    (void)state;
    fixture_init(&f);
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
    fixture_fini(&f);
}

/* ---- sameness ------------------------------------------------------------ */

static void check_same(struct fixture *f, const struct dyti_batch *want,
                       const char *what)
{
    struct dyti_batch batch = run(f);

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
    struct fixture f;
    uint64_t block;

    (void)state;
    fixture_init(&f);
    block = 2 * (uint64_t)(f.arch.layers * f.arch.kv_heads * f.arch.head_dim) *
            4 * 4;
    f.q.eos = eos;
    f.q.eos_count = 1;
    for (size_t k = 0; k < DYT_TEST_COUNT(kinds); k++) {
        f.s = kinds[k];
        f.s.max_response_tokens = MAX_NEW;
        f.desc = (struct ro_desc){.model = f.model, .max_sequences = 100};
        want = run(&f);
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
    fixture_fini(&f);
}

/* The fast kernels: threads, repetition and a used cache change no bit. */
static void threads_and_repetition_change_nothing(void **state)
{
    struct dyti_batch want, batch;
    struct fixture f;
    struct ro_world w;

    (void)state;
    fixture_init(&f);
    f.desc.kernels = &dyti_kernels_host;
    want = run(&f);
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
    fixture_fini(&f);
}

/* A prompt's tokens do not depend on which prompts come with it. */
static void a_prompt_is_alone_in_its_randomness(void **state)
{
    struct dyti_batch want, batch;
    struct fixture f;

    (void)state;
    fixture_init(&f);
    want = run(&f);
    f.q.prompt = f.prompt + 3;
    f.q.prompt_count = 1;
    batch = run(&f);
    for (uint32_t i = 0; i < batch.sample_count; i++) {
        assert_memory_equal(batch.sample[i].ids, want.sample[60 + i].ids,
                            MAX_NEW * sizeof(int32_t));
    }
    assert_memory_not_equal(batch.sample[0].ids, batch.sample[1].ids,
                            MAX_NEW * sizeof(int32_t));
    dyti_batch_fini(&batch);
    f.q.seed++;
    batch = run(&f);
    assert_memory_not_equal(batch.sample[0].ids, want.sample[60].ids,
                            MAX_NEW * sizeof(int32_t));
    dyti_batch_fini(&batch);
    dyti_batch_fini(&want);
    fixture_fini(&f);
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
    struct fixture f;
    struct ro_world w;
    struct dyti_batch batch;
    const struct dyti_rollout_stats *s;

    (void)state;
    fixture_init(&f);
    f.q.first_token = on_first;
    f.q.progress = on_progress;
    f.q.arg = &calls;
    f.desc.max_sequences = 100;
    ro_world_init(&w, &f.desc, f.full);
    s = &w.rank[0].stats;
    batch = ro_generate(&w, &f.q);
    dyti_batch_fini(&batch);
    assert_int_equal(s->prefill_rows, 2 + 7 + 4 + 9 + 1);
    assert_int_equal(s->decode_rows, 100 * (MAX_NEW - 1));
    assert_int_equal(s->sampled, 100 * MAX_NEW);
    assert_int_equal(s->passes, MAX_NEW);
    assert_int_equal(s->most_sequences, 100);
    assert_int_equal(calls.first, 1);
    assert_int_equal(calls.progress, MAX_NEW);
    assert_int_equal(calls.last, 100);
    ro_world_fini(&w);
    /* 100 samples through 8 slots: 13 rounds, the last one half empty; a row
     * more for each time a group goes on. */
    f.desc.max_sequences = 8;
    calls = (struct calls){0};
    ro_world_init(&w, &f.desc, f.full);
    batch = ro_generate(&w, &f.q);
    dyti_batch_fini(&batch);
    assert_int_equal(s->passes, 13 * MAX_NEW);
    assert_int_equal(s->most_sequences, 8);
    assert_in_range(s->prefill_rows, 23, 23 + 12);
    ro_world_fini(&w);
    fixture_fini(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sequences_end_where_they_should),
    cmocka_unit_test(strings_end_across_tokens),
    cmocka_unit_test(minimum_length_holds),
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
