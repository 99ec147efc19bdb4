/* The writer against a reader that somebody else wrote. */
#include "base/json_out.h"

#include "dyt_test.h"

#include <float.h>
#include <jansson.h>
#include <math.h>

static long calls_left = -1; /* < 0: never fail */

void *__real_realloc(void *ptr, size_t size_bytes);
void *__wrap_realloc(void *ptr, size_t size_bytes);

void *__wrap_realloc(void *ptr, size_t size_bytes)
{
    if (calls_left == 0) {
        return NULL;
    }
    calls_left -= calls_left > 0;
    return __real_realloc(ptr, size_bytes);
}

static void write_sample(struct dyti_json *j)
{
    dyti_json_begin_object(j, NULL);
    dyti_json_u64(j, "big", UINT64_MAX);
    dyti_json_i64(j, "low", INT64_MIN);
    dyti_json_begin_array(j, "list");
    dyti_json_f64(j, NULL, 0.1);
    dyti_json_bool(j, NULL, true);
    dyti_json_null(j, NULL);
    dyti_json_end(j);
    dyti_json_begin_object(j, "none");
    dyti_json_end(j);
    dyti_json_raw(j, "raw", "[1, 2]");
    dyti_json_text(j, "nothing", NULL);
    dyti_json_end(j);
}

static void layout_on_one_line_and_indented(void **state)
{
    static const struct {
        uint32_t indent;
        const char *want;
    } row[] = {
        {0, "{\"big\": 18446744073709551615, \"low\": -9223372036854775808, "
            "\"list\": [0.1, true, null], \"none\": {}, \"raw\": [1, 2], "
            "\"nothing\": null}\n"},
        {2, "{\n  \"big\": 18446744073709551615,\n"
            "  \"low\": -9223372036854775808,\n  \"list\": [\n    0.1,\n"
            "    true,\n    null\n  ],\n  \"none\": {},\n  \"raw\": [1, 2],\n"
            "  \"nothing\": null\n}\n"},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_json j;
        const char *text = NULL;
        size_t bytes = 0;

        dyti_json_init(&j, row[i].indent);
        write_sample(&j);
        assert_ok(dyti_json_finish(&j, &text, &bytes));
        assert_string_equal(row[i].want, text);
        assert_int_equal(strlen(text), bytes);
        dyti_json_release(&j);
    }
}

static void cleared_writer_starts_anew(void **state)
{
    struct dyti_json j;
    const char *text = NULL;
    size_t bytes = 0;

    (void)state;
    dyti_json_init(&j, 0);
    dyti_json_begin_object(&j, NULL);
    dyti_json_u64(&j, NULL, 1); /* a mistake sticks … */
    assert_status(DYT_ERR_STATE, dyti_json_finish(&j, &text, &bytes));
    dyti_json_clear(&j); /* … until here */
    dyti_json_i64(&j, NULL, -5);
    assert_ok(dyti_json_finish(&j, &text, &bytes));
    assert_string_equal("-5\n", text);
    dyti_json_release(&j);
}

static void misuse_is_named(void **state)
{
    static const struct {
        const char *calls; /* { [ } = close, k = member, v = element */
        const char *want;
    } row[] = {
        {"", "no value"},
        {"{", "still open"},
        {"}", "nothing is open"},
        {"{v", "without a key"},
        {"[k", "key outside"},
        {"k", "key outside"},
        {"vv", "second value"},
        {"{}v", "second value"},
        {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "too deep"},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_json j;
        const char *text = NULL;
        size_t bytes = 77;

        dyti_json_init(&j, 0);
        for (const char *c = row[i].calls; *c != '\0'; c++) {
            switch (*c) {
            case '{':
                dyti_json_begin_object(&j, NULL);
                break;
            case '[':
                dyti_json_begin_array(&j, NULL);
                break;
            case '}':
                dyti_json_end(&j);
                break;
            default:
                dyti_json_bool(&j, *c == 'k' ? "k" : NULL, false);
            }
        }
        assert_status(DYT_ERR_STATE, dyti_json_finish(&j, &text, &bytes));
        assert_error_has(row[i].want);
        assert_null(text);
        assert_int_equal(77, bytes);
        dyti_json_release(&j);
    }
}

/* Write one string, read it by jansson. */
static void string_round_trip(const char *value, size_t value_bytes,
                              const char *want, size_t want_bytes)
{
    struct dyti_json j;
    const char *text = NULL;
    size_t bytes = 0;
    json_t *read;

    dyti_json_init(&j, 0);
    dyti_json_begin_array(&j, NULL);
    dyti_json_bytes(&j, NULL, value, value_bytes);
    dyti_json_end(&j);
    assert_ok(dyti_json_finish(&j, &text, &bytes));
    read = json_loadb(text, bytes, JSON_ALLOW_NUL, NULL);
    assert_non_null(read);
    assert_int_equal(want_bytes, json_string_length(json_array_get(read, 0)));
    assert_memory_equal(want, json_string_value(json_array_get(read, 0)),
                        want_bytes);
    json_decref(read);
    dyti_json_release(&j);
}

#define FFFD "\xef\xbf\xbd"

static void strings_read_back(void **state)
{
    static const struct {
        const char *value, *want;
    } row[] = {
        {"", ""},
        {"plain", "plain"},
        {"quote \" back \\ slash /", "quote \" back \\ slash /"},
        {"\b\f\n\r\t\x01\x1f\x7f", "\b\f\n\r\t\x01\x1f\x7f"},
        {"é 日本 😀", "é 日本 😀"},
        {"\xff", FFFD},
        {"a\x80z", "a" FFFD "z"},
        {"\xc0\x80", FFFD FFFD},                   /* overlong NUL */
        {"\xe0\x80\x80", FFFD FFFD FFFD},          /* overlong */
        {"\xed\xa0\x80", FFFD FFFD FFFD},          /* surrogate */
        {"\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD}, /* beyond U+10FFFF */
        {"\xe6\x97", FFFD FFFD},                   /* cut off */
        {"\xf0\x9f\x98", FFFD FFFD FFFD},
        {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        string_round_trip(row[i].value, strlen(row[i].value), row[i].want,
                          strlen(row[i].want));
    }
    string_round_trip("a\0b", 3, "a\0b", 3);
}

static void any_bytes_make_valid_json(void **state)
{
    unsigned seed = 20240601u;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        char noise[24];
        size_t count = (size_t)rand_r(&seed) % sizeof(noise);
        struct dyti_json j;
        const char *text = NULL;
        size_t bytes = 0;
        json_t *read;

        for (size_t i = 0; i < count; i++) {
            noise[i] = (char)(rand_r(&seed) % 3 ? 0x80 + rand_r(&seed) % 128
                                                : rand_r(&seed) % 128);
        }
        dyti_json_init(&j, 0);
        dyti_json_begin_array(&j, NULL);
        dyti_json_bytes(&j, NULL, noise, count);
        dyti_json_end(&j);
        assert_ok(dyti_json_finish(&j, &text, &bytes));
        read = json_loadb(text, bytes, JSON_ALLOW_NUL, NULL);
        assert_non_null(read);
        json_decref(read);
        dyti_json_release(&j);
    }
}

static double read_back(double value)
{
    struct dyti_json j;
    const char *text = NULL;
    size_t bytes = 0;
    double got;

    dyti_json_init(&j, 0);
    dyti_json_f64(&j, NULL, value);
    assert_ok(dyti_json_finish(&j, &text, &bytes));
    got = strtod(text, NULL);
    dyti_json_release(&j);
    return got;
}

static void numbers_read_back_bit_for_bit(void **state)
{
    static const double fixed[] = {0.0,     -0.0,      1.0 / 3, DBL_MAX,
                                   DBL_MIN, 0x1p-1074, 1e22,    -123.456};
    unsigned seed = 20240601u;

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(fixed); i++) {
        double got = read_back(fixed[i]);

        assert_memory_equal(&fixed[i], &got, sizeof(got));
    }
    for (int i = 0; i < 20000; i++) {
        double got, value = ldexp((double)rand_r(&seed) - 1e9 + 1.0 / 7,
                                  rand_r(&seed) % 600 - 300);

        got = read_back(value);
        assert_memory_equal(&value, &got, sizeof(got));
    }
}

static void what_json_has_not_is_null(void **state)
{
    struct dyti_json j;
    const char *text = NULL;
    size_t bytes = 0;

    (void)state;
    dyti_json_init(&j, 0);
    dyti_json_begin_array(&j, NULL);
    dyti_json_f64(&j, NULL, NAN);
    dyti_json_f64(&j, NULL, -INFINITY);
    dyti_json_end(&j);
    assert_ok(dyti_json_finish(&j, &text, &bytes));
    assert_string_equal("[null, null]\n", text);
    dyti_json_release(&j);
}

/* What is drained and what is left make the same text as all at once. */
static void drained_text_goes_on(void **state)
{
    char *drained = NULL;
    const char *text = NULL;
    size_t size = 0, bytes = 0;
    FILE *out = open_memstream(&drained, &size);
    struct dyti_json j;

    (void)state;
    assert_non_null(out);
    dyti_json_init(&j, 0);
    dyti_json_begin_array(&j, NULL);
    for (uint64_t i = 0; i < 3; i++) {
        dyti_json_u64(&j, NULL, i);
        assert_int_equal(DYT_OK, dyti_json_drain(&j, out));
        assert_int_equal(0, j.bytes);
    }
    dyti_json_end(&j);
    assert_int_equal(DYT_OK, dyti_json_finish(&j, &text, &bytes));
    assert_string_equal("]\n", text);
    assert_int_equal(0, fclose(out));
    assert_string_equal("[0, 1, 2", drained);
    free(drained);
    dyti_json_release(&j);

    out = fopen("/dev/full", "w");
    assert_non_null(out);
    (void)setvbuf(out, NULL, _IONBF, 0);
    dyti_json_init(&j, 0);
    dyti_json_u64(&j, NULL, 7);
    assert_int_equal(DYT_ERR_IO, dyti_json_drain(&j, out));
    assert_int_equal(DYT_ERR_IO, dyti_json_finish(&j, &text, &bytes));
    (void)fclose(out);
    dyti_json_release(&j);
}

static void every_allocation_may_fail(void **state)
{
    long fail_at = 0;
    enum dyt_status st;

    (void)state;
    do {
        struct dyti_json j;
        const char *text = NULL;
        size_t bytes = 0;

        dyti_json_init(&j, 2);
        calls_left = fail_at++;
        write_sample(&j);
        st = dyti_json_finish(&j, &text, &bytes);
        calls_left = -1;
        if (st != DYT_OK) {
            assert_int_equal(DYT_ERR_NOMEM, st);
            assert_null(text);
        }
        dyti_json_release(&j);
    } while (st != DYT_OK);
    assert_true(fail_at > 3);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(layout_on_one_line_and_indented),
    cmocka_unit_test(cleared_writer_starts_anew),
    cmocka_unit_test(misuse_is_named),
    cmocka_unit_test(strings_read_back),
    cmocka_unit_test(any_bytes_make_valid_json),
    cmocka_unit_test(numbers_read_back_bit_for_bit),
    cmocka_unit_test(what_json_has_not_is_null),
    cmocka_unit_test(drained_text_goes_on),
    cmocka_unit_test(every_allocation_may_fail),
};
DYT_TEST_MAIN(tests)
