/* Pages of docs/ that are printed from tables of the product: this fails where
 * a page and its table differ, and `--write` makes them equal. */
#include "base/env.h"
#include "dyt_test.h"
#include "format/job.h"
#include "format/metrics.h"

struct page {
    const char *path;
    void (*print)(FILE *out);
};

/* ---- docs/errors.md ----------------------------------------------------- */

struct status_row {
    enum dyt_status status;
    int value;
};

static const struct status_row statuses[] = {
#define ROW(name, value, cls, text) {name, value},
    DYT_STATUS_MAP(ROW)
#undef ROW
};

/* What the caller may still do, and what a script sees: the table of
 * cli/exit.h. */
static const struct {
    const char *name, *meaning;
} classes[] = {
    [DYT_CLASS_OK] = {"ok", "nothing went wrong"},
    [DYT_CLASS_RETRY] = {"retry", "the same call may work later"},
    [DYT_CLASS_CALLER] = {"caller", "what was given is wrong: fix it first"},
    [DYT_CLASS_RUN] = {"run", "this run is lost, the process is fine"},
    [DYT_CLASS_RANK] = {"rank", "this rank must leave the job"},
};

static void print_errors(FILE *out)
{
    fprintf(out,
            "# Errors\n\n"
            "Made from `DYT_STATUS_MAP` in `core/include/dynatrain/status.h`; "
            "a test keeps this page equal to it.\n\n"
            "Every call answers one of these. The text beside it "
            "(`dyt_error_text()`) begins with the cause, as the place that "
            "noticed it wrote it: the thing, where it is, and what to do; "
            "then, outward, what was going on: "
            "`<cause> (DYT_ERR_X) [file:line]; while <inner>; while "
            "<outer>`.\n\n"
            "| status | value | class | means |\n|---|---|---|---|\n");
    for (size_t i = 0; i < DYT_TEST_COUNT(statuses); i++) {
        enum dyt_status status = statuses[i].status;

        fprintf(out, "| `%s` | %d | %s | %s |\n", dyt_status_name(status),
                statuses[i].value, classes[dyt_status_class(status)].name,
                dyt_status_text(status));
    }
    fprintf(out, "\n| class | what the caller may still do |\n|---|---|\n");
    for (size_t i = 0; i < DYT_TEST_COUNT(classes); i++) {
        fprintf(out, "| %s | %s |\n", classes[i].name, classes[i].meaning);
    }
    fprintf(out,
            "\n## Exit codes of the command\n\n"
            "| code | when |\n|---|---|\n"
            "| 0 | done |\n"
            "| 1 | the run failed; the same command may work later |\n"
            "| 2 | the command line, a configuration or a file is wrong |\n"
            "| 3 | a rank's device failed |\n"
            "| 4 | a rank died or hung |\n"
            "| 130 | stopped on request (Ctrl-C); the text says how to go on "
            "|\n");
}

/* ---- docs/env.md -------------------------------------------------------- */

static void print_env(FILE *out)
{
    fprintf(out,
            "# Settings from the environment\n\n"
            "Made from the table in `core/base/env.h`; a test keeps this page "
            "equal to it, and `dynatrain env` prints it with the values that "
            "are set. What a run does is not set here but in its job file "
            "(`config.md`).\n\n");
    dyti_env_print_markdown(out);
}

static const struct page pages[] = {
    {"docs/errors.md", print_errors},
    {"docs/env.md", print_env},
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
