/* Patterns: groups, errors with their place, bounded work. */
#include "dyt_test.h"
#include "reward/reward.h"

static const struct dyti_reward_ops *ops = &dyti_reward_native;

static void assert_search(const char *pattern, bool ignore_case,
                          const char *text, const char *want)
{
    void *compiled = NULL;
    bool found = false;
    size_t lo = 0, hi = 0;

    assert_ok(ops->pattern_open(pattern, ignore_case, &compiled));
    assert_ok(
        ops->pattern_search(compiled, text, strlen(text), &found, &lo, &hi));
    assert_int_equal(want != NULL, found);
    if (want != NULL) {
        assert_int_equal(strlen(want), hi - lo);
        assert_memory_equal(want, text + lo, hi - lo);
    }
    ops->pattern_close(compiled);
}

static void searches(void **state)
{
    (void)state;
    assert_search("b+", false, "abbc", "bb");
    assert_search("x", false, "abbc", NULL);
    assert_search("<a>(.*?)</a>", false, "x<a>42</a><a>1</a>", "42");
    assert_search("(x)?b", false, "ab", "");
    assert_search("ABC", true, "xabcx", "abc");
    assert_search("ABC", false, "xabcx", NULL);
    assert_search("^.$", false, "\xc3\xa9", "\xc3\xa9"); /* one character */
    assert_search("a", false, "\xff\xfe a", "a");        /* not UTF-8 */
    assert_search("a", false, "", NULL);
}

static void mistakes(void **state)
{
    void *compiled = NULL;

    (void)state;
    assert_status(DYT_ERR_CONFIG, ops->pattern_open("a(b", false, &compiled));
    assert_error_has("\"a(b\" is wrong at character 4");
    assert_null(compiled);
    ops->pattern_close(NULL);
}

/* A pattern that would take 2^40 steps ends, and is no match. */
static void work_is_bounded(void **state)
{
    char text[64];

    (void)state;
    memset(text, 'a', 40);
    text[40] = 'c';
    text[41] = '\0';
    assert_search("^(a+)+b\\z", false, text, NULL);
    assert_search("^(?:a|aa)+$", false, text, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(searches),
    cmocka_unit_test(mistakes),
    cmocka_unit_test(work_is_bounded),
};
DYT_TEST_MAIN(tests)
