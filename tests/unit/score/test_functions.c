/* The reward functions on text, against tables. */
#include "dyt_test.h"
#include "score/score.h"

#include <math.h>

static void assert_near(double want, double got)
{
    if (!(fabs(want - got) <= 1e-12)) {
        fail_msg("%.17g is not %.17g", got, want);
    }
}

static void exact(void **state)
{
    (void)state;
    assert_near(1, dyti_score_exact("abc", "abc", false));
    assert_near(1, dyti_score_exact("  abc\n", "\tabc ", false));
    assert_near(0, dyti_score_exact("abc", "abd", false));
    assert_near(0, dyti_score_exact("abc", "abcd", false));
    assert_near(0, dyti_score_exact("aBc", "abc", false));
    assert_near(1, dyti_score_exact("aBc", "AbC", true));
    assert_near(1, dyti_score_exact(" ", "", false));
    assert_near(0, dyti_score_exact("", "a", false));
}

static void position_match(void **state)
{
    (void)state;
    assert_near(1, dyti_score_position_match("abcd", "abcd", false));
    assert_near(0.5, dyti_score_position_match("abdc", "abcd", false));
    assert_near(0.5, dyti_score_position_match("ab", "abcd", false));
    assert_near(0.5, dyti_score_position_match("abcdefgh", "abcd", false));
    assert_near(0, dyti_score_position_match("", "abcd", false));
    assert_near(0, dyti_score_position_match("abcd", "", false));
    assert_near(1, dyti_score_position_match("", "", false));
    assert_near(0, dyti_score_position_match("bcda", "abcd", false));
    assert_near(1, dyti_score_position_match("AB", "ab", true));
    /* characters, not bytes */
    assert_near(0.5,
                dyti_score_position_match("\xc3\xa9x", "\xc3\xa9y", false));
    assert_near(0.5, dyti_score_position_match("\xc3\xa9z", "ez", false));
    assert_near(0,
                dyti_score_position_match("\xe2\x82", "\xe2\x82\xac", false));
}

static void last_number(void **state)
{
    static const struct {
        const char *text;
        double want;
    } good[] = {
        {"17", 17},
        {"The answer is 17.", 17},
        {"9 + 8 = 17", 17},
        {"-3", -3},
        {"x = -3.5!", -3.5},
        {"3-4", 4},
        {"a-4", 4},
        {"(-4)", -4},
        {"\xe2\x88\x92"
         "4",
         -4},
        {"+4", 4},
        {"1,234,567", 1234567},
        {"1,2", 2},
        {"1,2345", 2345},
        {"12,345.5 m", 12345.5},
        {"2e3", 2000},
        {"2e-3", 0.002},
        {"2em", 2},
        {".5", 0.5},
        {"1.2.3", 3},
        {"0x10", 10},
        {"v2", 2},
        {"007", 7},
        {"$5.", 5},
    };
    double number = 0;

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(good); i++) {
        if (!dyti_score_last_number(good[i].text, &number)) {
            fail_msg("no number in \"%s\"", good[i].text);
        }
        assert_near(good[i].want, number);
    }
    assert_false(dyti_score_last_number("", &number));
    assert_false(dyti_score_last_number("none, e.g. -", &number));
}

static void long_digits_are_no_number(void **state)
{
    char text[2000];
    double number = 5;

    (void)state;
    memset(text, '7', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    /* read in pieces or not at all, but always to the end */
    (void)dyti_score_last_number(text, &number);
    assert_true(number >= 5);
    text[100] = '\0';
    assert_true(dyti_score_last_number(text, &number));
    assert_true(number > 7e99 && number < 8e99);
}

/* The formula of the DAPO paper, written down again. */
static double punishment(double length, double most, double cache)
{
    if (length <= most - cache) {
        return 0;
    }
    return length <= most ? -((most - cache) - length) / cache : 1;
}

static void overlong(void **state)
{
    (void)state;
    for (uint32_t tokens = 0; tokens <= 20; tokens++) {
        assert_near(2 * punishment(tokens, 16, 4),
                    dyti_score_overlong(tokens, 16, 4, 2.0));
        assert_near(0, dyti_score_overlong(tokens, 16, 0, 2.0));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(exact),       cmocka_unit_test(position_match),
    cmocka_unit_test(last_number), cmocka_unit_test(long_digits_are_no_number),
    cmocka_unit_test(overlong),
};
DYT_TEST_MAIN(tests)
