/* Data rows: prompts, fields, places of mistakes; orders are permutations. */
#include "dyt_test.h"
#include "format/data_jsonl.h"

static struct dyti_data *parse(const char *text)
{
    struct dyti_data *data = NULL;

    assert_ok(dyti_data_parse("t.jsonl", text, strlen(text), &data));
    return data;
}

static void assert_prompt(const struct dyti_data *data, uint64_t row,
                          const char *template_text, const char *want)
{
    char *text = NULL;

    assert_ok(dyti_data_prompt_text(data, row, template_text, &text));
    assert_string_equal(want, text);
    free(text);
}

static void rows_and_prompts(void **state)
{
    struct dyti_data *data =
        parse("{\"letters\": \"dbca\", \"n\": 3, \"prompt\": \"own\"}\n"
              "\n"
              "  {\"letters\": \"h\\u00e9\", \"deep\": {\"a\": [1, 2]}}\r\n"
              "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}");
    char *text = NULL;

    (void)state;
    assert_int_equal(3, dyti_data_rows(data));
    assert_prompt(data, 0, "{letters}>", "dbca>");
    assert_prompt(data, 0, "{{{n}}} {letters}", "{3} dbca");
    assert_prompt(data, 0, "", "own");
    assert_prompt(data, 0, NULL, "own");
    assert_prompt(data, 1, "{letters}{deep}", "h\xc3\xa9{\"a\":[1,2]}");
    assert_status(DYT_ERR_FORMAT,
                  dyti_data_prompt_text(data, 1, "{letterz}", &text));
    assert_error_has("t.jsonl:3: the row has no field \"letterz\": it has "
                     "letters, deep");
    assert_status(DYT_ERR_FORMAT, dyti_data_prompt_text(data, 1, "", &text));
    assert_error_has("no field \"prompt\"");
    assert_status(DYT_ERR_CONFIG, dyti_data_prompt_text(data, 1, "{x", &text));
    assert_status(DYT_ERR_STATE, dyti_data_prompt_text(data, 2, "", &text));
    assert_error_has("t.jsonl:4");
    assert_null(dyti_data_messages(data, 0));
    assert_string_equal("[{\"role\":\"user\",\"content\":\"hi\"}]",
                        dyti_data_messages(data, 2));
    assert_ok(dyti_data_field_text(data, 0, "n", &text));
    assert_string_equal("3", text);
    free(text);
    assert_string_equal(
        "{\"letters\": \"h\\u00e9\", \"deep\": {\"a\": [1, 2]}}",
        dyti_data_row_json(data, 1));
    dyti_data_close(data);
    dyti_data_close(NULL);
}

static void mistakes_have_a_line(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "t.jsonl: no rows"},
        {"\n\n", "t.jsonl: no rows"},
        {"{\"a\": 1}\n{\"a\": \n", "t.jsonl:2:"},
        {"{\"a\": 1}\n[1]\n", "t.jsonl:2: a row is one JSON object"},
        {"{\"a\": 1, \"a\": 2}\n", "t.jsonl:1:"},
        {"{\"a\": 1} x\n", "t.jsonl:1:"},
        {"{\"a\": \"\xff\"}\n", "t.jsonl:1:"},
        {"{\"messages\": []}\n", "t.jsonl:1: messages"},
        {"{\"messages\": [{\"role\": 1}]}\n", "entry 0 needs role and content"},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(bad); i++) {
        struct dyti_data *data = NULL;

        assert_status(DYT_ERR_FORMAT,
                      dyti_data_parse("t.jsonl", bad[i].text,
                                      strlen(bad[i].text), &data));
        assert_error_has(bad[i].says);
        assert_null(data);
    }
}

static void files_and_fingerprints(void **state)
{
    struct dyti_data *a = parse("{\"a\":1}\n{\"a\":2}\n"), *b, *c, *none = NULL;
    char path[300];

    (void)state;
    snprintf(path, sizeof(path), "%s/d.jsonl", dyt_test_dir());
    assert_status(DYT_ERR_IO, dyti_data_open(path, &none));
    dyt_test_write(path, "{\"a\":1}\n\n{\"a\":2}", 16);
    assert_ok(dyti_data_open(path, &b));
    c = parse("{\"a\":2}\n{\"a\":1}\n");
    assert_true(dyti_data_fingerprint(a) == dyti_data_fingerprint(b));
    assert_false(dyti_data_fingerprint(a) == dyti_data_fingerprint(c));
    dyti_data_close(a);
    dyti_data_close(b);
    dyti_data_close(c);
}

static void templates_are_checked(void **state)
{
    uint32_t column = 0;

    (void)state;
    assert_true(dyti_template_check("", &column));
    assert_true(dyti_template_check("{a} {{x}} {b}", &column));
    assert_false(dyti_template_check("ab{", &column));
    assert_int_equal(3, column);
    assert_false(dyti_template_check("a}b", &column));
    assert_int_equal(2, column);
    assert_false(dyti_template_check("{}", &column));
    assert_false(dyti_template_check("{a{b}}", &column));
}

static void orders_are_permutations(void **state)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 100, 257, 3277};
    static unsigned char seen[4096];

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(sizes); i++) {
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            uint64_t rows = sizes[i];

            memset(seen, 0, sizeof(seen));
            for (uint64_t p = 0; p < rows; p++) {
                uint64_t row = dyti_data_order(rows, 7, epoch, p, true);

                assert_true(row < rows);
                assert_int_equal(0, seen[row]);
                seen[row] = 1;
                assert_true(p == dyti_data_order(rows, 7, epoch, p, false));
            }
        }
    }
}

/* Positions of a row spread evenly over epochs: the mean place of row 0 in 400
 * orders of 100 rows lies near the middle. */
static void orders_differ_by_epoch_and_seed(void **state)
{
    uint64_t sum = 0, equal = 0;

    (void)state;
    for (uint64_t epoch = 0; epoch < 400; epoch++) {
        for (uint64_t p = 0; p < 100; p++) {
            if (dyti_data_order(100, 3, epoch, p, true) == 0) {
                sum += p;
            }
        }
        equal += dyti_data_order(100, 3, epoch, 5, true) ==
                 dyti_data_order(100, 4, epoch, 5, true);
    }
    assert_in_range(sum, 400 * 43, 400 * 56);
    assert_true(equal < 20);
}

static void cursors_cross_epochs(void **state)
{
    struct dyti_data_cursor one = {0, 0}, many = {0, 0};
    uint64_t a[25], b[25];

    (void)state;
    dyti_data_next(10, 5, true, &one, 25, a);
    for (size_t i = 0; i < 25; i++) {
        dyti_data_next(10, 5, true, &many, 1, &b[i]);
    }
    assert_memory_equal(a, b, sizeof(a));
    assert_int_equal(2, one.epoch);
    assert_int_equal(5, one.position);
    assert_int_equal(dyti_data_order(10, 5, 1, 3, true), a[13]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_and_prompts),
    cmocka_unit_test(mistakes_have_a_line),
    cmocka_unit_test(files_and_fingerprints),
    cmocka_unit_test(templates_are_checked),
    cmocka_unit_test(orders_are_permutations),
    cmocka_unit_test(orders_differ_by_epoch_and_seed),
    cmocka_unit_test(cursors_cross_epochs),
};
DYT_TEST_MAIN(tests)
