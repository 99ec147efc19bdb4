/* TOML trees: types, places, and one line for each mistake. */
#include "dyt_test.h"
#include "format/toml.h"

static enum dyt_status parse(const char *text, struct dyti_toml *root)
{
    return dyti_toml_parse(text, strlen(text), "t.toml", root);
}

static void values_and_places(void **state)
{
    static const char text[] = "a = 1\n"
                               "[b]\n"
                               "  c = \"x\\ny\"\n"
                               "d.e = [1.5, true]\n"
                               "f = {g = 1979-05-27}\n";
    struct dyti_toml root = {0};
    const struct dyti_toml *b, *c, *list;

    (void)state;
    assert_ok(parse(text, &root));
    assert_int_equal(DYTI_TOML_TABLE, root.type);
    assert_int_equal(2, root.child_count);
    assert_int_equal(1, dyti_toml_find(&root, "a")->integer);
    b = dyti_toml_find(&root, "b");
    assert_int_equal(3, b->child_count);
    c = dyti_toml_find(b, "c");
    assert_string_equal("x\ny", c->text);
    assert_int_equal(3, c->text_bytes);
    assert_int_equal(3, c->key_line);
    assert_int_equal(3, c->key_column);
    assert_int_equal(3, c->line);
    assert_int_equal(7, c->column);
    list = dyti_toml_find(dyti_toml_find(b, "d"), "e");
    assert_int_equal(DYTI_TOML_ARRAY, list->type);
    assert_true(list->child[0].real == 1.5);
    assert_true(list->child[1].flag);
    assert_int_equal(4, list->child[1].line);
    assert_int_equal(DYTI_TOML_DATE,
                     dyti_toml_find(dyti_toml_find(b, "f"), "g")->type);
    assert_null(dyti_toml_find(&root, "z"));
    assert_null(dyti_toml_find(c, "z"));
    dyti_toml_fini(&root);
    dyti_toml_fini(&root);
}

static void children_are_in_file_order(void **state)
{
    struct dyti_toml root = {0};

    (void)state;
    assert_ok(parse("z = 1\nm = 2\na = 3\n[t]\n[b]\n", &root));
    assert_string_equal("z", root.child[0].key);
    assert_string_equal("m", root.child[1].key);
    assert_string_equal("a", root.child[2].key);
    assert_string_equal("t", root.child[3].key);
    assert_string_equal("b", root.child[4].key);
    dyti_toml_fini(&root);
}

static void mistakes_have_a_place(void **state)
{
    static const struct {
        const char *text, *place;
    } bad[] = {
        {"a = \n", "t.toml:1:"},
        {"a = 1\na = 2\n", "t.toml:2:"},
        {"[=\n", "t.toml:1:2"},
        {"a = 1\n[.b]\n", "t.toml:2:2"},
        {"[x]\nb = [1, 2\n", "t.toml:"},
        {"s = \"no end\n", "t.toml:1:"},
        {"a = 1 2\n", "t.toml:1:"},
        {"a = \"\\u0000\"\n", "t.toml:1:5: a string holds a NUL"},
        {"\"a\\u0000b\" = 1\n", "t.toml:1:1: a key holds a NUL"},
        {"a = \"\xff\"\n", "t.toml:1:"},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(bad); i++) {
        struct dyti_toml root = {0};

        assert_status(DYT_ERR_CONFIG, parse(bad[i].text, &root));
        assert_error_has(bad[i].place);
        assert_null(strchr(dyti_error_text(), '\n'));
        assert_null(root.child); /* untouched */
    }
}

static void deep_nesting_is_refused(void **state)
{
    static char text[20000];
    struct dyti_toml root = {0};

    (void)state;
    memset(text, '[', sizeof(text) - 1);
    memcpy(text, "a=", 2);
    assert_status(DYT_ERR_CONFIG, parse(text, &root));
}

/* Which the parser makes as many tables of, and cannot free. */
static void a_key_of_endless_parts_is_refused(void **state)
{
    static const struct {
        const char *before, *place;
    } way[] = {{"x = 1\n[", "t.toml:2:65: a key of more than 32 parts"},
               {"x = 1.5\n", "t.toml:2:64: a key of more than 32 parts"},
               {"x = {", "t.toml:1:69: a key of more than 32 parts"},
               {"[x] # \"\n[[", "t.toml:2:66: a key of more than 32 parts"},
               {"s = '''\n'''\n", "t.toml:3:64: a key of more than"}};
    const size_t parts = 200000;
    char *text = malloc(2 * parts + 64);

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < DYT_TEST_COUNT(way); i++) {
        size_t at = strlen(way[i].before);
        struct dyti_toml root = {0};

        memcpy(text, way[i].before, at);
        for (size_t p = 0; p < parts; p++) {
            memcpy(text + at + 2 * p, "a.", 2);
        }
        memcpy(text + at + 2 * parts, "a] = 1\n", 8);
        assert_status(DYT_ERR_CONFIG, parse(text, &root));
        assert_error_has(way[i].place);
    }
    free(text);
}

/* Dots are no parts in strings, in comments, or of numbers. */
static void dots_are_not_parts_everywhere(void **state)
{
    static const char dots[] = "........................................";
    char text[1000];
    struct dyti_toml root = {0};
    size_t at;

    (void)state;
    at = (size_t)snprintf(
        text, sizeof(text),
        "# %s\n\"%s\" = '%s'\nm = \"\"\"\\\"\n%s\"\"\"\nn = '''\n%s'''\nl = [",
        dots, dots, dots, dots, dots);
    for (int i = 0; i < 40; i++) {
        at += (size_t)snprintf(text + at, sizeof(text) - at, "1.5,\n");
    }
    snprintf(text + at, sizeof(text) - at, "]\n");
    assert_ok(parse(text, &root));
    assert_int_equal(4, root.child_count); /* "…", m, n, l */
    dyti_toml_fini(&root);
}

static void files(void **state)
{
    char path[300];
    struct dyti_toml root = {0};

    (void)state;
    snprintf(path, sizeof(path), "%s/a.toml", dyt_test_dir());
    assert_status(DYT_ERR_IO, dyti_toml_load(path, &root));
    assert_error_has(path);
    dyt_test_write(path, "a = 1\nb\n", 8);
    assert_status(DYT_ERR_CONFIG, dyti_toml_load(path, &root));
    assert_error_has("a.toml:2:");
    dyt_test_write(path, "a = 1\n", 6);
    assert_ok(dyti_toml_load(path, &root));
    assert_int_equal(1, root.child_count);
    dyti_toml_fini(&root);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(values_and_places),
    cmocka_unit_test(children_are_in_file_order),
    cmocka_unit_test(mistakes_have_a_place),
    cmocka_unit_test(deep_nesting_is_refused),
    cmocka_unit_test(a_key_of_endless_parts_is_refused),
    cmocka_unit_test(dots_are_not_parts_everywhere),
    cmocka_unit_test(files),
};
DYT_TEST_MAIN(tests)
