/* Prompts, samples and batches: copies are whole, order is total, what is
 * there twice is named. */
#include "dyt_test.h"

#include "data/data.h"
#include "data/message.h"

static void names_of_ends(void **state)
{
    (void)state;
    assert_string_equal(dyti_finish_name(DYTI_FINISH_STOP), "stop");
    assert_string_equal(dyti_finish_name(DYTI_FINISH_LENGTH), "length");
    assert_string_equal(dyti_finish_name(DYTI_FINISH_ABORT), "abort");
    assert_string_equal(dyti_finish_name((enum dyti_finish)3), "?");
    assert_string_equal(dyti_finish_name((enum dyti_finish) - 1), "?");
}

static void names_of_messages(void **state)
{
    (void)state;
    for (int a = 1; a < DYTI_MSG_COUNT; a++) {
        assert_string_not_equal(dyti_message_name((enum dyti_message)a),
                                "unknown");
        for (int b = 1; b < a; b++) {
            assert_string_not_equal(dyti_message_name((enum dyti_message)a),
                                    dyti_message_name((enum dyti_message)b));
        }
    }
    assert_string_equal(dyti_message_name((enum dyti_message)0), "unknown");
    assert_string_equal(dyti_message_name(DYTI_MSG_COUNT), "unknown");
}

static void a_copy_is_whole_and_apart(void **state)
{
    int32_t ids[] = {4, 5, 6};
    struct dyti_prompt p = {.id = 7, .row = 8, .ids = ids, .id_count = 3};
    struct dyti_prompt none = {.id = 3}, copy;

    (void)state;
    assert_ok(dyti_prompt_copy(&p, &copy));
    ids[0] = 99;
    assert_int_equal(copy.id, 7);
    assert_int_equal(copy.row, 8);
    assert_int_equal(copy.id_count, 3);
    assert_int_equal(copy.ids[0], 4);
    dyti_prompt_fini(&copy);
    assert_null(copy.ids);
    dyti_prompt_fini(&copy); /* once more does no harm */
    assert_ok(dyti_prompt_copy(&none, &copy));
    assert_null(copy.ids);
    dyti_prompt_fini(&copy);
}

static void samples_have_room_for_their_tokens(void **state)
{
    struct dyti_sample r = {0};

    (void)state;
    assert_ok(dyti_sample_reserve(&r, 0));
    assert_non_null(r.ids);
    assert_int_equal(r.count, 0);
    dyti_sample_fini(&r);
    assert_ok(dyti_sample_reserve(&r, 5));
    for (int i = 0; i < 5; i++) {
        r.ids[i] = i;
        r.raw[i] = r.processed[i] = 0.0f;
    }
    dyti_sample_fini(&r);
    assert_null(r.ids);
    dyti_sample_fini(&r); /* once more does no harm */
}

/* A slow search in place of the fast one, orders drawn at random. */
static void prompts_are_found_by_id(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 40; n++) {
        struct dyti_batch b = {.prompt = calloc(n + 1, sizeof(*b.prompt)),
                               .prompt_count = n};

        for (uint32_t i = 0; i < n; i++) {
            b.prompt[i].id = 2 * ((i * 17 + 5) % 41); /* 41: each once */
            b.prompt[i].row = b.prompt[i].id + 1;
        }
        assert_ok(dyti_batch_order(&b));
        for (uint32_t i = 1; i < n; i++) {
            assert_true(b.prompt[i - 1].id < b.prompt[i].id);
        }
        for (uint64_t id = 0; id < 84; id++) {
            const struct dyti_prompt *want = NULL;

            for (uint32_t i = 0; i < n; i++) {
                want = b.prompt[i].id == id ? &b.prompt[i] : want;
            }
            assert_ptr_equal(dyti_batch_prompt(&b, id), want);
            assert_true(want == NULL || want->row == id + 1);
        }
        dyti_batch_fini(&b);
        assert_null(b.prompt);
    }
}

static void samples_go_by_prompt_and_index(void **state)
{
    enum { N = 60 };
    struct dyti_batch b = {.sample = calloc(N, sizeof(*b.sample)),
                           .sample_count = N};

    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        uint32_t k = (i * 37 + 11) % N;

        b.sample[i] =
            (struct dyti_sample){.prompt = k / 6 == 9 ? UINT64_MAX : k / 6,
                                 .index = k % 6 == 5 ? UINT32_MAX : k % 6,
                                 .reward = (float)k};
    }
    assert_ok(dyti_batch_order(&b));
    for (uint32_t i = 0; i < N; i++) {
        assert_true(b.sample[i].reward == (float)i);
    }
    dyti_batch_fini(&b);
}

static void doubles_are_named(void **state)
{
    struct dyti_prompt prompt[] = {{.id = 5}, {.id = 77}, {.id = 5}};
    struct dyti_sample sample[] = {
        {.prompt = 6, .index = 3}, {.prompt = 6}, {.prompt = 6, .index = 3}};
    struct dyti_batch b = {.prompt = prompt, .prompt_count = 3};

    (void)state;
    assert_status(DYT_ERR_INVALID, dyti_batch_order(&b));
    assert_error_has("prompt 5 is there twice");
    b = (struct dyti_batch){.sample = sample, .sample_count = 3};
    assert_status(DYT_ERR_INVALID, dyti_batch_order(&b));
    assert_error_has("sample 3 of prompt 6 is there twice");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(names_of_ends),
    cmocka_unit_test(names_of_messages),
    cmocka_unit_test(a_copy_is_whole_and_apart),
    cmocka_unit_test(samples_have_room_for_their_tokens),
    cmocka_unit_test(prompts_are_found_by_id),
    cmocka_unit_test(samples_go_by_prompt_and_index),
    cmocka_unit_test(doubles_are_named),
};
DYT_TEST_MAIN(tests)
