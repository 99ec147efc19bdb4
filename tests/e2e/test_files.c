/* Models that are broken or hostile, disks that are full, and what dead runs
 * leave in a folder. */
#include "dyt_job.h"
#include "dyt_test.h"

#include <sys/mount.h>
#include <sys/stat.h>

/* ---- models ---------------------------------------------------------------
 */

/* Rewrite a file of the model by `edit`, run, expect one line and code 2. */
struct breakage {
    const char *file;
    const char *from, *to; /* text replaced once; NULL: see cut */
    long cut;              /* bytes that stay; -1: the file is removed */
    const char *says;
};

static void replace_bytes(char **bytes, size_t *size, const char *from,
                          const char *to)
{
    size_t from_bytes = strlen(from), to_bytes = strlen(to);
    char *at = memmem(*bytes, *size, from, from_bytes);
    char *made = malloc(*size + to_bytes);
    size_t before;

    assert_non_null(at);
    assert_non_null(made);
    before = (size_t)(at - *bytes);
    memcpy(made, *bytes, before);
    memcpy(made + before, to, to_bytes);
    memcpy(made + before + to_bytes, at + from_bytes,
           *size - before - from_bytes);
    *size = *size - from_bytes + to_bytes;
    free(*bytes);
    *bytes = made;
}

static void broken_models_are_one_line(void **state)
{
    static const struct breakage row[] = {
        {"model.safetensors", NULL, NULL, -1, "safetensors"},
        {"model.safetensors", NULL, NULL, 0, "safetensors"},
        {"model.safetensors", NULL, NULL, 7, "safetensors"},
        {"model.safetensors", NULL, NULL, 1000, "safetensors"},
        {"model.safetensors", NULL, NULL, 300000, "safetensors"},
        {"model.safetensors", "[0,11008]", "[0,99999999999]", 0, ""},
        {"model.safetensors", "[0,11008]", "[8,11016]", 0, ""},
        {"model.safetensors", "\"F32\"", "\"F99\"", 0, "F99"},
        {"model.safetensors", "[43,64]", "[44,64]", 0, ""},
        {"model.safetensors", "[43,64]", "[-1,64]", 0, ""},
        {"model.safetensors", "model.norm.weight", "model.nrom.weight", 0,
         "model.norm.weight"},
        {"model.safetensors", "{\"__metadata__\"", "[\"__metadata__\"", 0, ""},
        {"config.json", NULL, NULL, -1, "config.json"},
        {"config.json", NULL, NULL, 20, "config.json"},
        {"config.json", "\"hidden_size\": 64", "\"hidden_size\": 65", 0, ""},
        {"config.json", "\"hidden_size\": 64",
         "\"hidden_size\": 99999999999999999999", 0, "config.json"},
        {"config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": -2",
         0, "num_hidden_layers"},
        {"config.json", "\"model_type\": \"llama\"",
         "\"model_type\": \"mamba\"", 0, "mamba"},
        {"config.json", "\"vocab_size\": 43", "\"vocab_size\": 44", 0, ""},
        {"tokenizer.json", NULL, NULL, -1, "tokenizer.json"},
        {"tokenizer.json", NULL, NULL, 100, "tokenizer.json"},
    };
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        char *path = dyt_words("%s/%s", job.model, row[i].file);
        size_t size, whole;
        char *good = dyt_test_read(path, &whole);
        char *bad = malloc(whole + 1);
        struct dyt_run run;

        assert_non_null(bad);
        memcpy(bad, good, whole);
        size = whole;
        if (row[i].from != NULL) {
            replace_bytes(&bad, &size, row[i].from, row[i].to);
        } else {
            size = row[i].cut < 0 ? 0 : (size_t)row[i].cut;
        }
        dyt_test_write(path, bad, size);
        if (row[i].cut < 0) {
            unlink(path);
        }
        run = dyt_job_run(&job, NULL);
        if (run.code != 2 || strstr(run.out, row[i].says) == NULL) {
            fail_msg("%s, row %zu: exit code %d (signal %d), want 2 and "
                     "\"%s\":\n%s",
                     row[i].file, i, run.code, run.signal, row[i].says,
                     run.out);
        }
        dyt_one_line("dynatrain run:", &run);
        dyt_run_fini(&run);
        dyt_nothing_left();
        dyt_test_write(path, good, whole);
        free(good);
        free(bad);
        free(path);
    }
}

/* ---- checkpoints ----------------------------------------------------------
 */

static void resume_to(const struct dyt_job *job, int steps)
{
    char *set = dyt_words("steps=%d", steps);
    struct dyt_run run = dyt_job_run(job, set, "--resume", NULL);

    assert_exit(0, run);
    dyt_run_fini(&run);
    dyt_nothing_left();
    assert_true(dyt_exists("%s/job/checkpoints/step-%08d/complete.json",
                           job->runs, steps));
    free(set);
}

/* What a killed save left is no checkpoint, and goes with the next save; one
 * that lost its mark is none either. */
static void half_checkpoints_are_passed_over(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run = dyt_job_run(&job, "checkpoint.every=1", NULL);
    char *path;

    (void)state;
    assert_exit(0, run);
    dyt_run_fini(&run);
    path = dyt_words("%s/job/checkpoints/tmp-step-00000099", job.runs);
    assert_int_equal(0, mkdir(path, 0777));
    free(path);
    path = dyt_words("%s/job/checkpoints/step-00000098", job.runs);
    assert_int_equal(0, mkdir(path, 0777));
    free(path);
    path =
        dyt_words("%s/job/checkpoints/step-00000003/complete.json", job.runs);
    assert_int_equal(0, unlink(path));
    free(path);
    /* Of steps 2 and 3 that were kept, 2 is the newest whole one. */
    run = dyt_job_run(&job, "steps=4", "--resume", NULL);
    assert_exit(0, run);
    assert_says("step-00000002", run);
    dyt_run_fini(&run);
    assert_false(dyt_exists("%s/job/checkpoints/tmp-step-00000099", job.runs));
    resume_to(&job, 5);
}

/* A newest one that is cut is passed over, too; where it was the only one,
 * there is nothing to resume from. */
static void a_cut_checkpoint_is_passed_over(void **state)
{
    static const char *const file[] = {"state.json", "model.safetensors",
                                       "exp_avg.safetensors"};
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(file); i++) {
        char *name = dyt_words("name=%zu", i);
        char *path = dyt_words("%s/%zu/checkpoints/step-00000003/%s", job.runs,
                               i, file[i]);
        const char *every =
            i == 0 ? "checkpoint.every=0" : "checkpoint.every=1";
        struct dyt_run run = dyt_job_run(&job, name, every, NULL);

        assert_exit(0, run);
        dyt_run_fini(&run);
        assert_int_equal(0, truncate(path, 50));
        run = dyt_job_run(&job, name, "steps=4", "--resume", NULL);
        if (i == 0) {
            assert_exit(2, run);
            dyt_one_line("dynatrain run:", &run);
            assert_says("no whole checkpoint", run);
        } else {
            assert_exit(0, run);
            assert_says("step-00000002", run);
            assert_says("passed over, not whole: ", run);
            assert_says("step-00000003", run);
        }
        dyt_run_fini(&run);
        dyt_nothing_left();
        free(path);
        free(name);
    }
}

/* A file system of 3 MiB: two checkpoints of 1.2 MB fit, not three. */
static void a_full_disk_leaves_the_last_checkpoint(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run;
    char *name = NULL;

    (void)state;
    assert_int_equal(0, mkdir(job.runs, 0777));
    if (mount("tmpfs", job.runs, "tmpfs", 0, "size=3m") != 0) {
        print_message("no small file system may be mounted here\n");
        skip();
    }
    run = dyt_job_run(&job, "steps=5", "checkpoint.every=1",
                      "checkpoint.keep_last=9", NULL);
    if (run.code != 1 || strstr(run.out, "No space left") == NULL) {
        umount(job.runs);
        fail_msg("exit code %d:\n%s", run.code, run.out);
    }
    dyt_one_line("dynatrain run:", &run);
    assert_says("earlier checkpoints are untouched", run);
    dyt_run_fini(&run);
    dyt_nothing_left();
    name = dyt_words("%s/job/checkpoints", job.runs);
    assert_int_equal(2, dyt_entries(name)); /* and no half one */
    free(name);
    assert_int_equal(0,
                     mount("tmpfs", job.runs, "tmpfs", MS_REMOUNT, "size=30m"));
    resume_to(&job, 5);
    assert_int_equal(0, umount(job.runs));
}

/* Not even the metrics fit. */
static void a_disk_that_is_full_at_once(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run;

    (void)state;
    assert_int_equal(0, mkdir(job.runs, 0777));
    if (mount("tmpfs", job.runs, "tmpfs", 0, "size=16k") != 0) {
        print_message("no small file system may be mounted here\n");
        skip();
    }
    run = dyt_job_run(&job, NULL);
    umount(job.runs);
    assert_exit(1, run);
    dyt_one_line("dynatrain run:", &run);
    assert_says("No space left", run);
    dyt_run_fini(&run);
    dyt_nothing_left();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(broken_models_are_one_line),
    cmocka_unit_test(half_checkpoints_are_passed_over),
    cmocka_unit_test(a_cut_checkpoint_is_passed_over),
    cmocka_unit_test(a_full_disk_leaves_the_last_checkpoint),
    cmocka_unit_test(a_disk_that_is_full_at_once),
};
DYT_TEST_MAIN(tests)
