/* Chat templates against what Jinja makes of the real ones
 * (tests/data/chat_template), and how a model's own is found. */
#include "dyt_test.h"

#include "format/chat_template.h"
#include "format/json_file.h"

#define DATA "tests/data/chat_template/vectors.json"
#define OWN                                                                    \
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + " \
    "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ "          \
    "'<|im_start|>assistant\\n' }}{% endif %}"

static void put_file(const char *dir, const char *name, const char *text)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    dyt_test_write(path, text, strlen(text));
}

/* ---- vectors ------------------------------------------------------------ */

static size_t messages_of(const json_t *list, struct dyti_chat_message *to)
{
    size_t count = json_array_size(list);

    assert_true(count > 0 && count <= 16);
    for (size_t i = 0; i < count; i++) {
        const json_t *m = json_array_get(list, i);

        to[i].role = json_string_value(json_object_get(m, "role"));
        to[i].content = json_string_value(json_object_get(m, "content"));
    }
    return count;
}

/* "@DATE@" in the wanted text stands for today. */
static bool same_text(const char *want, const char *have)
{
    const char *mark = strstr(want, "@DATE@");
    size_t before = mark != NULL ? (size_t)(mark - want) : strlen(want);
    size_t have_bytes = strlen(have), rest;

    if (mark == NULL) {
        return strcmp(want, have) == 0;
    }
    rest = strlen(mark + 6);
    return have_bytes == before + rest + 11 &&
           strncmp(want, have, before) == 0 &&
           strcmp(mark + 6, have + have_bytes - rest) == 0 &&
           have[before + 2] == ' ' && have[before + 6] == ' ';
}

static void agrees_with_jinja(void **state)
{
    const char *dir = dyt_test_dir();
    json_t *json = NULL, *rows;

    (void)state;
    put_file(dir, "tokenizer_config.json",
             "{\"bos_token\":{\"content\":\"<BOS>\"},\"eos_token\":\"<EOS>\"}");
    assert_ok(dyti_json_load(DATA, &json));
    rows = json_object_get(json, "vectors");
    assert_true(json_array_size(rows) > 350);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *want = json_string_value(json_object_get(row, "text"));
        const char *name = json_string_value(json_object_get(row, "name"));
        struct dyti_chat_message message[16];
        size_t count = messages_of(json_object_get(row, "messages"), message);
        struct dyti_chat_template *chat = NULL;
        char *have = NULL;
        enum dyt_status st;

        assert_ok(dyti_chat_template_open(dir, name, &chat));
        assert_string_equal(name, dyti_chat_template_name(chat));
        st = dyti_chat_template_render(
            chat, message, count, json_is_true(json_object_get(row, "prompt")),
            &have);
        if (want == NULL) {
            assert_int_equal(DYT_ERR_INVALID, st);
            assert_null(have);
        } else {
            assert_ok(st);
            if (!same_text(want, have)) {
                fail_msg("%s, row %zu: have\n%s\nwant\n%s", name, i, have,
                         want);
            }
        }
        free(have);
        dyti_chat_template_close(chat);
    }
    json_decref(json);
}

static void every_builtin_is_tested(void **state)
{
    json_t *json = NULL, *rows;

    (void)state;
    assert_ok(dyti_json_load(DATA, &json));
    rows = json_object_get(json, "vectors");
    for (size_t k = 0; dyti_chat_template_builtin(k) != NULL; k++) {
        const char *name = dyti_chat_template_builtin(k);
        bool seen = strcmp(name, "qwen3-no-think") == 0;

        for (size_t i = 0; i < json_array_size(rows) && !seen; i++) {
            seen = strcmp(name, json_string_value(json_object_get(
                                    json_array_get(rows, i), "name"))) == 0;
        }
        if (!seen) {
            fail_msg("%s has no vectors", name);
        }
    }
    json_decref(json);
}

/* ---- finding a model's own ---------------------------------------------- */

static const char *auto_name(const char *dir)
{
    struct dyti_chat_template *chat = NULL;
    const char *name;

    assert_ok(dyti_chat_template_open(dir, "auto", &chat));
    name = dyti_chat_template_name(chat);
    dyti_chat_template_close(chat);
    return name;
}

static void own_templates_are_recognised(void **state)
{
    const char *dir = dyt_test_dir();
    json_t *config = json_pack("{s:s}", "chat_template", OWN);
    json_t *list = json_pack("{s:[{s:s,s:s},{s:s,s:s}]}", "chat_template",
                             "name", "tool_use", "template", "x", "name",
                             "default", "template", OWN);
    struct dyti_chat_template *chat = NULL;
    char *text = json_dumps(config, 0), *listed = json_dumps(list, 0);

    (void)state;
    assert_string_equal("none", auto_name(dir));
    put_file(dir, "tokenizer_config.json", "{}");
    assert_string_equal("none", auto_name(dir));
    put_file(dir, "tokenizer_config.json", text);
    assert_string_equal("chatml", auto_name(dir));
    put_file(dir, "tokenizer_config.json", listed);
    assert_string_equal("chatml", auto_name(dir));
    put_file(dir, "tokenizer_config.json", "{\"chat_template\":\"other\"}");
    assert_status(DYT_ERR_UNSUPPORTED,
                  dyti_chat_template_open(dir, "auto", &chat));
    assert_error_has("5 bytes");
    assert_error_has("smollm2, ");
    assert_error_has("llama-3");
    assert_null(chat);
    /* The file beside it goes first; one newline at its end is nothing. */
    put_file(dir, "chat_template.jinja", OWN "\n");
    assert_string_equal("chatml", auto_name(dir));
    put_file(dir, "chat_template.jinja", OWN "\n\n");
    assert_status(DYT_ERR_UNSUPPORTED,
                  dyti_chat_template_open(dir, "auto", &chat));
    put_file(dir, "chat_template.jinja", "");
    put_file(dir, "tokenizer_config.json", "{\"chat_template\":[]}");
    assert_status(DYT_ERR_UNSUPPORTED,
                  dyti_chat_template_open(dir, "auto", &chat));
    json_decref(config);
    json_decref(list);
    free(text);
    free(listed);
}

static void wrong_choices_are_answered(void **state)
{
    static const struct dyti_chat_message user = {"user", "x"},
                                          tool = {"tool", "x"};
    const char *dir = dyt_test_dir();
    struct dyti_chat_template *chat = NULL;
    char *text = NULL;

    (void)state;
    assert_status(DYT_ERR_INVALID,
                  dyti_chat_template_open(dir, "vicuna", &chat));
    assert_error_has("\"vicuna\"; there are auto, none, chatml");
    put_file(dir, "tokenizer_config.json", "{\"bos_token\":3}");
    assert_status(DYT_ERR_FORMAT,
                  dyti_chat_template_open(dir, "llama-3", &chat));
    assert_error_has("bos_token");
    put_file(dir, "tokenizer_config.json",
             "{\"chat_template\":[{\"name\":\"x\",\"template\":\"y\"}]}");
    assert_status(DYT_ERR_FORMAT, dyti_chat_template_open(dir, "auto", &chat));
    assert_error_has("named default");

    assert_ok(dyti_chat_template_open(dir, "none", &chat));
    assert_string_equal("none", dyti_chat_template_name(chat));
    assert_status(DYT_ERR_STATE,
                  dyti_chat_template_render(chat, &user, 1, true, &text));
    dyti_chat_template_close(chat);
    assert_ok(dyti_chat_template_open(dir, "chatml", &chat));
    assert_status(DYT_ERR_INVALID,
                  dyti_chat_template_render(chat, &tool, 1, true, &text));
    assert_error_has("\"tool\"");
    assert_status(DYT_ERR_INVALID,
                  dyti_chat_template_render(chat, &user, 0, true, &text));
    assert_null(text);
    dyti_chat_template_close(chat);
    dyti_chat_template_close(NULL);
}

static void no_think_closes_the_thought(void **state)
{
    static const struct dyti_chat_message user = {"user", "x"};
    struct dyti_chat_template *chat = NULL;
    char *text = NULL;

    (void)state;
    assert_ok(dyti_chat_template_open(dyt_test_dir(), "qwen3-no-think", &chat));
    assert_ok(dyti_chat_template_render(chat, &user, 1, true, &text));
    assert_string_equal("<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"
                        "<think>\n\n</think>\n\n",
                        text);
    free(text);
    dyti_chat_template_close(chat);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(agrees_with_jinja),
    cmocka_unit_test(every_builtin_is_tested),
    cmocka_unit_test(own_templates_are_recognised),
    cmocka_unit_test(wrong_choices_are_answered),
    cmocka_unit_test(no_think_closes_the_thought),
};
DYT_TEST_MAIN(tests)
