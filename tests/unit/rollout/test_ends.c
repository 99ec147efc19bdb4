/* When sequences end: EOS, stop ids, stop strings, the length, not before the
 * minimum. */
#include "rollout_cases.h"

/* ---- text ---------------------------------------------------------------- */

/* Token i is the letter 'a' + i % 26 once, twice for odd i. */
static enum dyt_status letters(void *self, int32_t id, const char **out,
                               size_t *out_bytes)
{
    static const char twice[] =
        "aabbccddeeffgghhiijjkkllmmnnooppqqrrssttuuvvwwxxyyzz";

    (void)self;
    if (id == RO_VOCAB - 1) {
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

        if (s->ids[i] != RO_VOCAB - 1) {
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
typedef bool (*ends_fn)(const struct ro_case *f, const struct dyti_sample *s,
                        uint32_t count);

static void check_cut(struct ro_case *f, const struct dyti_batch *endless,
                      ends_fn ends, uint32_t least_stops)
{
    struct dyti_batch batch = ro_case_run(f);
    uint32_t stops = 0;

    for (uint32_t i = 0; i < batch.sample_count; i++) {
        const struct dyti_sample *s = &batch.sample[i];
        const struct dyti_sample *all = &endless->sample[i];
        uint32_t n = 1;

        while (n < RO_MAX_NEW && !ends(f, all, n)) {
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

static bool eos_ends(const struct ro_case *f, const struct dyti_sample *s,
                     uint32_t count)
{
    for (uint32_t i = 0; i < f->q.eos_count; i++) {
        if (s->ids[count - 1] == f->q.eos[i]) {
            return true;
        }
    }
    return false;
}

static bool id_ends(const struct ro_case *f, const struct dyti_sample *s,
                    uint32_t count)
{
    for (uint32_t i = 0; i < f->s.stop_token_id_count; i++) {
        if (s->ids[count - 1] == (int32_t)f->s.stop_token_id[i]) {
            return true;
        }
    }
    return false;
}

static bool string_ends(const struct ro_case *f, const struct dyti_sample *s,
                        uint32_t count)
{
    char text[2 * RO_MAX_NEW + 1];

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
    struct ro_case f;

    (void)state;
    ro_case_init(&f);
    endless = ro_case_run(&f);
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
    ro_case_fini(&f);
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
    struct ro_case f;

    (void)state;
    ro_case_init(&f);
    endless = ro_case_run(&f);
    f.desc.tokenizer = &letter_tokenizer;
    for (size_t i = 0; i < DYT_TEST_COUNT(strings); i++) {
        f.s.stop = strings[i];
        f.s.stop_count = 2;
        check_cut(&f, &endless, string_ends, 1);
    }
    dyti_batch_fini(&endless);
    ro_case_fini(&f);
}

/* Below the minimum nothing ends, and what is drawn otherwise is the same. */
static void minimum_length_holds(void **state)
{
    static char *strings[] = {"b"};
    int32_t eos[] = {4, 17};
    uint32_t stop_id[] = {9};
    struct ro_case f;
    struct dyti_batch batch;
    uint32_t at_minimum = 0;

    (void)state;
    ro_case_init(&f);
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
        batch = ro_case_run(&f);
        for (uint32_t i = 0; i < batch.sample_count; i++) {
            const struct dyti_sample *s = &batch.sample[i];

            assert_in_range(s->count, 6, RO_MAX_NEW);
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
    ro_case_fini(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sequences_end_where_they_should),
    cmocka_unit_test(strings_end_across_tokens),
    cmocka_unit_test(minimum_length_holds),
};
DYT_TEST_MAIN(tests)
