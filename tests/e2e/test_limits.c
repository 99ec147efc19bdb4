/* Limits that a shell sets, and streams that are closed: one clear line, the
 * right exit code, and nothing left. */
#include "dyt_job.h"
#include "dyt_test.h"

#include <sys/resource.h>
#include <sys/stat.h>

/* dynatrain WORDS as a line of the shell, behind `before` and with `after`. */
static struct dyt_run shell(const char *before, const char *words,
                            const char *after)
{
    char *line = dyt_words("%s exec %s %s %s", before, DYT_BIN, words, after);
    char *argv[] = {(char *)(uintptr_t) "/bin/sh", (char *)(uintptr_t) "-c",
                    line, NULL};
    struct dyt_process p = dyt_start_argv(argv);
    struct dyt_run run = dyt_finish(&p);

    free(line);
    return run;
}

/* ---- output ---------------------------------------------------------------
 */

static void lost_output_is_an_error_of_every_command(void **state)
{
    static const char *const words[] = {
        "--help",          "help",          "-V",
        "help run",        "run --help",    "run --options",
        "plan --help",     "layout --help", "convert --help",
        "generate --help", "model --help",  "tokenize --help",
        "serve --help",    "status --help", "keys --help",
        "doctor",          "env",           "env --markdown"};
    static const char *const of_job[] = {"run --dry-run", "plan"};
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(words) + 2; i++) {
        size_t k = i - DYT_TEST_COUNT(words);
        char *all = i < DYT_TEST_COUNT(words)
                        ? strdup(words[i])
                        : dyt_words("%s %s", of_job[k], job.file);
        struct dyt_run run = shell("", all, "> /dev/full");

        assert_exit(1, run);
        dyt_one_line("dynatrain", &run);
        assert_says("No space left on device", run);
        dyt_run_fini(&run);
        run = shell("", all, ">&-");
        assert_exit(1, run);
        dyt_one_line("dynatrain", &run);
        assert_says("Bad file descriptor", run);
        dyt_run_fini(&run);
        free(all);
    }
}

/* A run's results are its files: it goes on, and says where they are. */
static void a_run_goes_on_without_its_streams(void **state)
{
    static const char *const after[] = {"> /dev/full", ">&-", "<&-", "<&- >&-",
                                        "<&- >&- 2>&-"};
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(after); i++) {
        char *words =
            dyt_words("run %s --set name=n%zu --set steps=2", job.file, i);
        struct dyt_run run = shell("", words, after[i]);
        char name[8];
        json_t *lines;

        snprintf(name, sizeof(name), "n%zu", i);
        assert_exit(0, run);
        if (strchr(after[i], '>') != NULL && i < 4) {
            dyt_one_line("dynatrain run:", &run);
            assert_says("what it made is in ", run);
        }
        dyt_run_fini(&run);
        dyt_nothing_left();
        lines = dyt_job_lines(&job, name, "metrics.jsonl");
        assert_int_equal(2, json_array_size(lines));
        json_decref(lines);
        assert_true(
            dyt_exists("%s/%s/checkpoints/step-00000002", job.runs, name));
        free(words);
    }
}

/* ---- limits ---------------------------------------------------------------
 */

/* From the first number that works on all work; below it each is refused by a
 * line, before anything is trained. */
static void too_few_open_files_are_refused(void **state)
{
    struct dyt_job job;
    char *words;
    unsigned worked = 0, named = 0;

    (void)state;
    if (dyt_test_instrumented()) {
        skip(); /* a sanitizer opens files of its own */
    }
    job = dyt_job_new("tiny");
    words =
        dyt_words("run %s --set steps=2 --set checkpoint.every=1", job.file);
    for (unsigned limit = 5; worked < 3; limit++) {
        char *before = dyt_words("ulimit -n %u;", limit);
        struct dyt_run run = shell(before, words, "");

        assert_true(limit < 64);
        if (run.code == 0) {
            worked++;
        } else {
            assert_int_equal(0, worked);
            if (run.signal != 0 || (run.code != 1 && run.code != 2)) {
                fail_msg("ulimit -n %u: exit code %d (signal %d):\n%s", limit,
                         run.code, run.signal, run.out);
            }
            dyt_one_line("dynatrain run:", &run);
            assert_true(strstr(run.out, "open files") != NULL);
            named += strstr(run.out, "a run of 4 ranks needs") != NULL;
        }
        dyt_run_fini(&run);
        dyt_nothing_left();
        free(before);
    }
    assert_true(named >= 20);
    free(words);
}

/* In blocks of 512 bytes.  The first is for what a run's memory is made of,
 * which the limit is for too. */
static void files_that_may_not_grow_are_named(void **state)
{
    static const unsigned limit[] = {1, 2000};
    struct dyt_job job = dyt_job_new("tiny");
    char *words = dyt_words("run %s", job.file);

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(limit); i++) {
        char *before = dyt_words("ulimit -f %u;", limit[i]);
        struct dyt_run run = shell(before, words, "");

        assert_exit(1, run);
        dyt_one_line("dynatrain run:", &run);
        assert_says("File too large", run);
        assert_says("ulimit -f", run);
        dyt_run_fini(&run);
        dyt_nothing_left();
        free(before);
    }
    free(words);
    {
        /* model.safetensors of 400,000 bytes */
        char *init = dyt_words("model init --preset tiny --out %s/m", job.dir);
        struct dyt_run run = shell("ulimit -f 100;", init, "");

        assert_exit(1, run);
        dyt_one_line("dynatrain model init:", &run);
        assert_says("model.safetensors", run);
        assert_says("ulimit -f", run);
        assert_false(dyt_exists("%s/m/model.safetensors", job.dir));
        dyt_run_fini(&run);
        free(init);
    }
}

/* Memory for threads, of 8 MiB each, that may not be had: for that which
 * listens to signals, for both or for one of ZeroMQ's.  127: not even the
 * program. */
static void threads_that_may_not_be_had_are_named(void **state)
{
    static const unsigned data[] = {4000, 12000, 20000};
    struct dyt_job job;
    char *words;

    (void)state;
    if (dyt_test_instrumented()) {
        skip(); /* a sanitizer has memory of its own */
    }
    job = dyt_job_new("tiny");
    words = dyt_words("run %s --set steps=1", job.file);
    for (size_t i = 0; i < DYT_TEST_COUNT(data); i++) {
        char *before = dyt_words("ulimit -s 8192; ulimit -d %u;", data[i]);
        struct dyt_run run = shell(before, words, "");

        if (run.code != 1 && run.code != 127) {
            fail_msg("ulimit -d %u: exit code %d (signal %d):\n%s", data[i],
                     run.code, run.signal, run.out);
        }
        if (run.code == 1) {
            dyt_one_line("dynatrain run:", &run);
            assert_says("thread", run);
        }
        dyt_run_fini(&run);
        dyt_nothing_left();
        free(before);
    }
    free(words);
}

/* ---- settings -------------------------------------------------------------
 */

static void areas_that_there_are_not_are_said(void **state)
{
    struct dyt_run run = shell("DYNATRAIN_LOG_AREA=edm,plan", "env", "");

    (void)state;
    assert_exit(0, run);
    dyt_one_line("dynatrain: warning: DYNATRAIN_LOG_AREA names \"plan\"", &run);
    assert_says(DYTI_LOG_AREAS, run);
    dyt_run_fini(&run);
    run = shell("DYNATRAIN_LOG_AREA=" DYTI_LOG_AREAS, "env", "2>&1 >/dev/null");
    assert_exit(0, run);
    assert_true(run.out == NULL || run.out_bytes == 0);
    dyt_run_fini(&run);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(lost_output_is_an_error_of_every_command),
    cmocka_unit_test(a_run_goes_on_without_its_streams),
    cmocka_unit_test(too_few_open_files_are_refused),
    cmocka_unit_test(files_that_may_not_grow_are_named),
    cmocka_unit_test(threads_that_may_not_be_had_are_named),
    cmocka_unit_test(areas_that_there_are_not_are_said),
};
DYT_TEST_MAIN(tests)
