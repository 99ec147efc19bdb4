/* Ids and texts against what the reference library makes of many texts with
 * small tokenizers (tests/data/tokenizer).  What is refused:
 * test_tokenizer_refused.c. */
#include "dyt_test.h"

#include "format/file.h"
#include "format/json_file.h"
#include "format/tokenizer.h"

#include <pthread.h>

#define DATA "tests/data/tokenizer"

/* ---- vectors ------------------------------------------------------------ */

static struct {
    char name[32];
    struct dyti_tokenizer tokenizer;
} opened[16];
static size_t opened_count;

static struct dyti_tokenizer *by_name(const char *name)
{
    char path[128], *text = NULL;
    size_t bytes = 0;

    for (size_t i = 0; i < opened_count; i++) {
        if (strcmp(opened[i].name, name) == 0) {
            return &opened[i].tokenizer;
        }
    }
    assert_true(opened_count < DYT_TEST_COUNT(opened));
    snprintf(path, sizeof(path), DATA "/%s.json", name);
    assert_ok(dyti_file_read(path, 1 << 20, &text, &bytes));
    assert_ok(dyti_tokenizer_parse(path, text, bytes,
                                   &opened[opened_count].tokenizer));
    free(text);
    snprintf(opened[opened_count].name, sizeof(opened[0].name), "%s", name);
    return &opened[opened_count++].tokenizer;
}

static void print_ids(const char *what, const int32_t *id, size_t count)
{
    print_error("%s:", what);
    for (size_t i = 0; i < count; i++) {
        print_error(" %d", id[i]);
    }
    print_error("\n");
}

static void check_ids(const json_t *row, const json_t *want, bool add_special)
{
    const char *name = json_string_value(json_object_get(row, "t"));
    const json_t *text = json_object_get(row, "x");
    struct dyti_tokenizer *t = by_name(name);
    int32_t *id = NULL, wanted[512] = {0};
    size_t count = 0, want_count = json_array_size(want);

    assert_true(want_count <= 512);
    for (size_t i = 0; i < want_count; i++) {
        wanted[i] = (int32_t)json_integer_value(json_array_get(want, i));
    }
    assert_ok(t->ops->encode(t->self, json_string_value(text),
                             json_string_length(text), add_special, &id,
                             &count));
    if (count != want_count || memcmp(id, wanted, count * sizeof(*id)) != 0) {
        print_ids("want", wanted, want_count);
        print_ids("have", id, count);
        fail_msg("%s: %s", name, json_string_value(text));
    }
    free(id);
}

static void check_text(const json_t *row, const char *key, bool skip_special)
{
    const char *name = json_string_value(json_object_get(row, "t"));
    const json_t *want = json_object_get(row, key);
    const json_t *ids = json_object_get(row, "i");
    struct dyti_tokenizer *t = by_name(name);
    int32_t id[512] = {0};
    size_t bytes = 0;
    char *text = NULL;

    if (want == NULL) {
        return;
    }
    for (size_t i = 0; i < json_array_size(ids); i++) {
        id[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    }
    assert_ok(t->ops->decode(t->self, id, json_array_size(ids), skip_special,
                             &text, &bytes));
    assert_int_equal(json_string_length(want), bytes);
    assert_string_equal(json_string_value(want), text);
    free(text);
}

static void agrees_with_the_reference(void **state)
{
    json_t *json = NULL, *rows;

    (void)state;
    assert_ok(dyti_json_load(DATA "/vectors.json", &json));
    rows = json_object_get(json, "vectors");
    assert_true(json_array_size(rows) > 1500);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const json_t *special = json_object_get(row, "s");

        check_ids(row, json_object_get(row, "i"), false);
        check_ids(row, special != NULL ? special : json_object_get(row, "i"),
                  true);
        check_text(row, "d", false);
        check_text(row, "k", true);
    }
    json_decref(json);
}

/* ---- properties --------------------------------------------------------- */

static unsigned seed = 7u;

static size_t random_text(char *to)
{
    static const char *const part[] = {
        "a",  "e",   "the",      " ", "  ", "\n",           "'s",
        "9",  "12",  "\xc3\xa9", ".", "T",  "\xe3\x81\x8b", "\xf0\x9f\x98\x80",
        "\t", "x+1", "\xd0\xbf", "-"};
    size_t used = 0, parts = (size_t)(rand_r(&seed) % 60);

    for (size_t i = 0; i < parts; i++) {
        const char *p = part[(size_t)rand_r(&seed) % DYT_TEST_COUNT(part)];

        memcpy(to + used, p, strlen(p));
        used += strlen(p);
    }
    to[used] = '\0';
    return used;
}

static void decoding_gives_the_text_back(void **state)
{
    static const char *const name[] = {"gpt2", "smollm2", "llama3", "qwen2"};

    (void)state;
    for (int round = 0; round < 2000; round++) {
        struct dyti_tokenizer *t = by_name(name[round % 4]);
        char text[512], *back = NULL;
        size_t bytes = random_text(text), count = 0, back_bytes = 0, used = 0;
        int32_t *id = NULL;

        assert_ok(t->ops->encode(t->self, text, bytes, false, &id, &count));
        assert_ok(
            t->ops->decode(t->self, id, count, false, &back, &back_bytes));
        assert_int_equal(bytes, back_bytes);
        assert_memory_equal(text, back, bytes);
        for (size_t i = 0; i < count; i++) { /* token by token too */
            const char *piece = NULL;
            size_t piece_bytes = 0;

            assert_ok(
                t->ops->token_bytes(t->self, id[i], &piece, &piece_bytes));
            assert_memory_equal(text + used, piece, piece_bytes);
            used += piece_bytes;
        }
        assert_int_equal(bytes, used);
        free(id);
        free(back);
    }
}

static void broken_utf8_becomes_replacement_characters(void **state)
{
    static const struct {
        const char *bytes, *want;
    } row[] = {
        {"\xc3", "\xef\xbf\xbd"},
        {"a\xe3\x81", "a\xef\xbf\xbd"},
        {"\xe3\x81z", "\xef\xbf\xbdz"},
        {"\xf0\x9f\x98", "\xef\xbf\xbd"},
        {"\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xe2\x82\xe2\x82\xac", "\xef\xbf\xbd\xe2\x82\xac"},
        {"\xff\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    };
    struct dyti_tokenizer *t = by_name("gpt2");
    int32_t byte_id[256];

    (void)state;
    memset(byte_id, 0xff, sizeof(byte_id));
    for (int32_t id = 0; id < t->ops->vocab_size(t->self); id++) {
        const char *piece = NULL;
        size_t bytes = 0;

        assert_ok(t->ops->token_bytes(t->self, id, &piece, &bytes));
        if (bytes == 1) {
            byte_id[(unsigned char)piece[0]] = id;
        }
    }
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        int32_t id[8];
        size_t count = strlen(row[i].bytes), bytes = 0;
        char *text = NULL;

        for (size_t k = 0; k < count; k++) {
            id[k] = byte_id[(unsigned char)row[i].bytes[k]];
            assert_true(id[k] >= 0);
        }
        assert_ok(t->ops->decode(t->self, id, count, false, &text, &bytes));
        assert_string_equal(row[i].want, text);
        free(text);
    }
}

static void odd_input_is_answered(void **state)
{
    struct dyti_tokenizer *t = by_name("gpt2");
    int32_t *id = NULL, unknown[2] = {-1, 5000};
    size_t count = 9, bytes = 9;
    char *text = NULL;

    (void)state;
    assert_status(DYT_ERR_INVALID,
                  t->ops->encode(t->self, "a\xff", 2, false, &id, &count));
    assert_error_has("UTF-8 at byte 1");
    assert_null(id);
    assert_status(DYT_ERR_INVALID,
                  t->ops->decode(t->self, unknown, 1, false, &text, &bytes));
    assert_ok(t->ops->decode(t->self, unknown + 1, 1, false, &text, &bytes));
    assert_int_equal(0, bytes);
    free(text);
    assert_ok(t->ops->encode(t->self, "a\0b", 3, false, &id, &count));
    assert_ok(t->ops->decode(t->self, id, count, false, &text, &bytes));
    assert_int_equal(3, bytes);
    assert_memory_equal("a\0b", text, 3);
    free(id);
    free(text);
    assert_int_equal(-1, t->ops->token_id(t->self, "no such token"));
    assert_int_equal(0, t->ops->token_id(t->self, "<|endoftext|>"));
}

static void a_long_word_takes_no_square_time(void **state)
{
    struct dyti_tokenizer *t = by_name("gpt2");
    size_t bytes = 400000, count = 0;
    char *text = malloc(bytes);
    int32_t *id = NULL;

    (void)state;
    for (size_t i = 0; i < bytes; i++) {
        text[i] = "thecatinadog"[i % 12];
    }
    assert_ok(t->ops->encode(t->self, text, bytes, false, &id, &count));
    assert_true(count > bytes / 12 && count < bytes);
    free(id);
    free(text);
}

/* Every thread encodes all texts with one tokenizer, whose words nobody has
 * seen yet. */
static void *encode_all(void *arg)
{
    struct dyti_tokenizer *t = arg;
    unsigned own = 99u;
    uint64_t sum = 0;

    for (int round = 0; round < 300; round++) {
        char text[64];
        int32_t *id = NULL;
        size_t bytes = 0, count = 0;

        for (int i = 0; i < 30; i++) {
            text[bytes++] = "the cat on dog's"[rand_r(&own) % 16];
        }
        if (t->ops->encode(t->self, text, bytes, false, &id, &count) !=
            DYT_OK) {
            return NULL;
        }
        for (size_t i = 0; i < count; i++) {
            sum = sum * 31 + (uint64_t)id[i];
        }
        free(id);
    }
    return (void *)(uintptr_t)(sum | 1);
}

static void threads_share_a_tokenizer(void **state)
{
    char *text = NULL;
    size_t bytes = 0;
    struct dyti_tokenizer t = {NULL, NULL};
    pthread_t thread[4];
    void *sum[4] = {NULL};

    (void)state;
    assert_ok(dyti_file_read(DATA "/gpt2.json", 1 << 20, &text, &bytes));
    assert_ok(dyti_tokenizer_parse("gpt2", text, bytes, &t));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(0, pthread_create(&thread[i], NULL, encode_all, &t));
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(0, pthread_join(thread[i], &sum[i]));
        assert_non_null(sum[i]);
        assert_ptr_equal(sum[0], sum[i]);
    }
    dyti_tokenizer_close(&t);
    free(text);
}

/* ---- merging, against the obvious loop ---------------------------------- */

/* The same tokenizer's merges, tried pair by pair: the slow oracle. */
static bool is_merge(const json_t *merge, const char *a, const char *b)
{
    const char *text = json_string_value(merge);

    if (text == NULL) {
        return strcmp(json_string_value(json_array_get(merge, 0)), a) == 0 &&
               strcmp(json_string_value(json_array_get(merge, 1)), b) == 0;
    }
    return strncmp(text, a, strlen(a)) == 0 && text[strlen(a)] == ' ' &&
           strcmp(text + strlen(a) + 1, b) == 0;
}

static int rank_of(const json_t *merges, const char *a, const char *b)
{
    for (size_t i = 0; i < json_array_size(merges); i++) {
        if (is_merge(json_array_get(merges, i), a, b)) {
            return (int)i;
        }
    }
    return -1;
}

static size_t slow_merge(const json_t *merges, char part[][64], size_t count)
{
    for (;;) {
        size_t at = 0;
        int best = -1;
        char joined[64];

        for (size_t i = 0; i + 1 < count; i++) {
            int rank = rank_of(merges, part[i], part[i + 1]);

            if (rank >= 0 && (best < 0 || rank < best)) {
                best = rank;
                at = i;
            }
        }
        if (best < 0) {
            return count;
        }
        snprintf(joined, sizeof(joined), "%.31s%.31s", part[at], part[at + 1]);
        memcpy(part[at], joined, sizeof(joined));
        memmove(part[at + 1], part[at + 2], (count - at - 2) * 64);
        count--;
    }
}

static void merging_agrees_with_the_obvious_loop(void **state)
{
    struct dyti_tokenizer *t = by_name("gpt2");
    json_t *json = NULL;
    const json_t *merges;

    (void)state;
    assert_ok(dyti_json_load(DATA "/gpt2.json", &json));
    merges = json_object_get(json_object_get(json, "model"), "merges");
    for (int round = 0; round < 60; round++) {
        char word[64], part[64][64];
        size_t length = 1 + (size_t)rand_r(&seed) % 24, count, have = 0;
        int32_t *id = NULL;

        for (size_t i = 0; i < length; i++) {
            word[i] = "thecandogrisy"[rand_r(&seed) % 13];
            part[i][0] = word[i];
            part[i][1] = '\0';
        }
        count = slow_merge(merges, part, length);
        assert_ok(t->ops->encode(t->self, word, length, false, &id, &have));
        assert_int_equal(count, have);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(t->ops->token_id(t->self, part[i]), id[i]);
        }
        free(id);
    }
    json_decref(json);
}

static int close_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < opened_count; i++) {
        dyti_tokenizer_close(&opened[i].tokenizer);
    }
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(agrees_with_the_reference),
    cmocka_unit_test(decoding_gives_the_text_back),
    cmocka_unit_test(broken_utf8_becomes_replacement_characters),
    cmocka_unit_test(odd_input_is_answered),
    cmocka_unit_test(a_long_word_takes_no_square_time),
    cmocka_unit_test(threads_share_a_tokenizer),
    cmocka_unit_test_teardown(merging_agrees_with_the_obvious_loop, close_all),
};
DYT_TEST_MAIN(tests)
