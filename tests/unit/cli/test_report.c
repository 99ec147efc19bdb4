/* The numbers and the curve of a run's report. */
#include "cli/manager.h"
#include "cli/text_plot.h"
#include "dyt_test.h"

#include <math.h>

static void series_are_what_they_say(void **state)
{
    static const double value[] = {3, 1, 4, 1, 5};
    struct dyti_series s = {0};

    (void)state;
    assert_true(isnan(dyti_series_median(&s)));
    assert_true(isnan(dyti_series_max(&s)));
    assert_true(isnan(dyti_series_mean(&s, 0, 0)));
    for (size_t i = 0; i < DYT_TEST_COUNT(value); i++) {
        assert_ok(dyti_series_add(&s, value[i]));
    }
    assert_true(dyti_series_median(&s) == 3);
    assert_true(dyti_series_max(&s) == 5);
    assert_true(dyti_series_mean(&s, 1, 3) == 2.5);
    assert_ok(dyti_series_add(&s, -2));
    assert_true(dyti_series_median(&s) == 2);
    assert_true(s.value[0] == 3); /* the order of arrival stays */
    free(s.value);
}

static char *plot(const double *value, size_t count)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    dyti_text_plot(out, "t", value, count);
    fclose(out);
    return text;
}

static size_t count_of(const char *text, char c)
{
    size_t n = 0;

    for (; *text != '\0'; text++) {
        n += *text == c;
    }
    return n;
}

static void a_curve_fits_its_frame(void **state)
{
    double value[500];
    char *text;

    (void)state;
    for (size_t i = 0; i < 500; i++) {
        value[i] = (double)i / 499.0;
    }
    text = plot(value, 500);
    assert_int_equal(12, count_of(text, '\n')); /* title, ten rows, the axis */
    for (const char *line = text; *line != '\0';
         line += strcspn(line, "\n") + 1) {
        assert_true(strcspn(line, "\n") <= 80);
    }
    assert_non_null(strstr(text, " 500\n"));
    /* A straight line up fills half. */
    assert_in_range(count_of(text, '#'), 250, 350);
    free(text);
    value[0] = -1.0;
    value[1] = NAN;
    value[2] = 1.0;
    text = plot(value, 3);
    assert_non_null(strstr(text, "-1.00 +---"));
    free(text);
    text = plot(value, 0);
    assert_int_equal(12, count_of(text, '\n'));
    free(text);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(series_are_what_they_say),
    cmocka_unit_test(a_curve_fits_its_frame),
};
DYT_TEST_MAIN(tests)
