/* docs/config.md and docs/metrics.md are printed from tables of the product:
 * this fails where a page and its table differ, and `--write` makes them equal.
 */
#include "dyt_test.h"
#include "format/job.h"
#include "format/metrics.h"

struct page {
    const char *path;
    void (*print)(FILE *out);
};

static const struct page pages[] = {
    {"docs/config.md", dyti_job_write_docs},
    {"docs/metrics.md", dyti_metrics_write_docs},
};

static char *printed(const struct page *page)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    page->print(out);
    assert_int_equal(0, fclose(out));
    return text;
}

static void pages_equal_their_tables(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(pages); i++) {
        char *want = printed(&pages[i]);
        char *have = dyt_test_read(pages[i].path, NULL);

        if (strcmp(want, have) != 0) {
            fail_msg("%s is not what its table prints: run this test's "
                     "program with --write",
                     pages[i].path);
        }
        free(want);
        free(have);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(pages_equal_their_tables),
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < DYT_TEST_COUNT(pages); i++) {
        char *text;

        if (strcmp(argv[1], "--write") != 0) {
            return 2;
        }
        text = printed(&pages[i]);
        dyt_test_write(pages[i].path, text, strlen(text));
        free(text);
    }
    return dyt_test_verdict(
        cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL));
}
