/* Wrong configurations: each gives exactly one line that names the thing, the
 * place and the remedy. */
#include "dyt_test.h"
#include "format/job.h"
#include "job_text.h"
#include "job_wrong_rows.h"

#include <ctype.h>

/* `text` with the first `take` replaced; the caller frees it. */
static char *replaced(const char *text, const char *take, const char *with)
{
    const char *at = take == NULL ? NULL : strstr(text, take);
    char *out = NULL;

    if (take == NULL) {
        return strdup(text);
    }
    if (at == NULL) {
        fail_msg("the good job has no \"%s\"", take);
    }
    assert_true(asprintf(&out, "%.*s%s%s", (int)(at - text), text, with,
                         at + strlen(take)) >= 0);
    return out;
}

static bool one_clear_line(const char *line)
{
    size_t bytes = strlen(line);

    return bytes > 10 && bytes < 500 && strchr(line, '\n') == NULL &&
           strstr(line, "(null)") == NULL;
}

static void try_one(const struct wrong *wrong)
{
    char *text = replaced(GOOD_JOB, wrong->take, wrong->with);
    struct dyti_job job = {0};
    enum dyt_status st;
    const char *line;

    st = dyti_job_parse_text(text, strlen(text), "job.toml", &wrong->set,
                             wrong->set != NULL, &job);
    if (st != wrong->status) {
        print_error("%s: %s\n", text, dyti_error_text());
    }
    assert_int_equal(wrong->status, st);
    line = dyti_error_message();
    for (size_t i = 0; st != DYT_OK && i < 3 && wrong->says[i]; i++) {
        if (strstr(line, wrong->says[i]) == NULL || !one_clear_line(line)) {
            fail_msg("\"%s\" does not say \"%s\"", line, wrong->says[i]);
        }
    }
    if (st != DYT_OK) {
        assert_null(job.name); /* untouched */
    }
    dyti_job_fini(&job);
    free(text);
}

static void every_wrong_job_has_its_line(void **state)
{
    (void)state;
    assert_true(DYT_TEST_COUNT(wrongs) >= 45);
    for (size_t i = 0; i < DYT_TEST_COUNT(wrongs); i++) {
        try_one(&wrongs[i]);
    }
}

/* A job cut anywhere, or with a byte changed, never does worse than an error:
 * what the sanitizers watch. */
static void broken_texts_are_harmless(void **state)
{
    static const char good[] = GOOD_JOB;
    static const char bytes[] = "\"[]{}=.\n\x01\xff"
                                "0a";
    char text[sizeof(good)];

    (void)state;
    for (size_t i = 0; i < sizeof(good) - 1; i++) {
        struct dyti_job job = {0};

        if (dyti_job_parse_text(good, i, "job.toml", NULL, 0, &job) == DYT_OK) {
            dyti_job_fini(&job);
        }
        memcpy(text, good, sizeof(good));
        text[i] = bytes[i % (sizeof(bytes) - 1)];
        if (dyti_job_parse_text(text, sizeof(good) - 1, "job.toml", NULL, 0,
                                &job) == DYT_OK) {
            dyti_job_fini(&job);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_wrong_job_has_its_line),
    cmocka_unit_test(broken_texts_are_harmless),
};
DYT_TEST_MAIN(tests)
