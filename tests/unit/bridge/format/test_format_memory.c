/* Each allocation of ours made to fail in turn: DYT_ERR_NOMEM, outputs
 * untouched, nothing leaked (the address sanitizer's word), and success once
 * there is memory again. */
#include "dyt_test.h"

#include "format/chat_template.h"
#include "format/file.h"
#include "format/model_init.h"
#include "format/safetensors.h"
#include "format/tokenizer.h"

static long calls_left = -1; /* < 0: never fail */

static bool fails(void)
{
    if (calls_left == 0) {
        return true;
    }
    calls_left -= calls_left > 0;
    return false;
}

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : __real_malloc(bytes);
}

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __real_calloc(count, bytes);
}

void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes)
{
    return fails() ? NULL : __real_realloc(old, bytes);
}

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

/* Runs `act` with its 1st, 2nd, … allocation failing until it succeeds (every
 * seventh under valgrind). */
static long torture(enum dyt_status (*act)(void *), void *arg)
{
    long fail_at = 0;
    enum dyt_status st;

    do {
        calls_left = fail_at;
        fail_at += dyt_test_stride(7);
        st = act(arg);
        calls_left = -1;
        if (st != DYT_OK && st != DYT_ERR_NOMEM) {
            fail_msg("allocation %ld: %s", fail_at, dyti_error_text());
        }
        assert_true(fail_at < 5000);
    } while (st != DYT_OK);
    return fail_at;
}

static enum dyt_status tokenizer_round(void *arg)
{
    static const char text[] =
        "The cat <mask> e\xcc\x81"
        "cole <r> and a word, 12 thethethethethethe"
        "thethethethethethethethethethethethethethethethethethethethethe";
    struct dyti_tokenizer t = {NULL, NULL};
    const char *dir = arg;
    int32_t *id = NULL;
    size_t count = 0, bytes = 0;
    char *back = NULL;
    enum dyt_status st = dyti_tokenizer_open(dir, &t);

    if (st == DYT_OK) {
        st = t.ops->encode(t.self, text, sizeof(text) - 1, true, &id, &count);
    }
    if (st == DYT_OK) {
        st = t.ops->decode(t.self, id, count, false, &back, &bytes);
    }
    assert_true(st == DYT_OK || back == NULL);
    free(id);
    free(back);
    dyti_tokenizer_close(&t);
    return st;
}

static void copy_as(const char *from, const char *dir, const char *name)
{
    char path[512], *text;
    size_t bytes = 0;

    text = dyt_test_read(from, &bytes);
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    dyt_test_write(path, text, bytes);
    free(text);
}

static void tokenizers(void **state)
{
    char dir[256];

    (void)state;
    snprintf(dir, sizeof(dir), "%s", dyt_test_dir());
    copy_as("tests/data/tokenizer/flags.json", dir, "tokenizer.json");
    assert_true(torture(tokenizer_round, dir) > 100);
}

static enum dyt_status chat_round(void *arg)
{
    static const struct dyti_chat_message message[] = {{"user", "Hi"},
                                                       {"assistant", "Ho"}};
    struct dyti_chat_template *chat = NULL;
    char *text = NULL;
    enum dyt_status st = dyti_chat_template_open(arg, "llama-3.1", &chat);

    if (st == DYT_OK) {
        st = dyti_chat_template_render(chat, message, 2, true, &text);
    }
    assert_true((st == DYT_OK) == (text != NULL));
    free(text);
    dyti_chat_template_close(chat);
    return st;
}

static void chat_templates(void **state)
{
    char dir[256];

    (void)state;
    snprintf(dir, sizeof(dir), "%s", dyt_test_dir());
    assert_true(torture(chat_round, dir) > 3);
}

static enum dyt_status init_round(void *arg)
{
    const struct dyti_model_preset *preset = NULL;
    struct dyti_safetensors *set = NULL;
    enum dyt_status st = dyti_model_preset_find("tiny", &preset);

    if (st == DYT_OK) {
        st = dyti_model_init(arg, preset, 1, true);
    }
    if (st == DYT_OK) {
        st = dyti_safetensors_open(arg, &set);
    }
    dyti_safetensors_close(set);
    return st;
}

static void models_and_weights(void **state)
{
    char dir[256];

    (void)state;
    snprintf(dir, sizeof(dir), "%s", dyt_test_dir());
    assert_true(torture(init_round, dir) > 50);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(tokenizers),
    cmocka_unit_test(chat_templates),
    cmocka_unit_test(models_and_weights),
};
DYT_TEST_MAIN(tests)
