/* Checkpoints whose files are as long as they were, with another bit in one: no
 * run goes on from them. */
#include "dyt_job.h"
#include "dyt_test.h"

#include <sys/stat.h>

/* A bit in the middle: the file keeps its length, and mostly its form. */
static void flip(const char *path)
{
    struct stat info;
    unsigned char byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(0, fstat(fd, &info));
    assert_int_equal(1, pread(fd, &byte, 1, info.st_size / 2));
    byte ^= 1;
    assert_int_equal(1, pwrite(fd, &byte, 1, info.st_size / 2));
    close(fd);
}

static void run_to_its_end(const struct dyt_job *job, const char *const *sets)
{
    struct dyt_run run = dyt_job_run_list(job, sets);

    assert_exit(0, run);
    dyt_run_fini(&run);
    dyt_nothing_left();
}

/* Names of the files of a folder. */
static size_t files_of(const char *path, char (*name)[256], size_t most)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    size_t count = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            assert_true(count < most);
            snprintf(name[count++], 256, "%s", entry->d_name);
        }
    }
    closedir(dir);
    return count;
}

/* bf16: the run reads master and moments; the weights are for others, and are
 * compared all the same. */
static const char *const only_the_last[] = {
    "checkpoint.every=0", "phase.train.layout.dtype=bf16",
    "phase.rollout.layout.dtype=bf16", NULL};

static void a_flipped_bit_is_refused_by_name(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    char *step = dyt_words("%s/job/checkpoints/step-00000003", job.runs);
    char name[32][256];
    size_t count;

    (void)state;
    run_to_its_end(&job, only_the_last);
    count = files_of(step, name, 32);
    assert_true(count >= 8);
    for (size_t i = 0; i < count; i++) {
        char *path = dyt_words("%s/%s", step, name[i]);
        struct dyt_run run;

        flip(path);
        run = dyt_job_run(&job, "steps=4", only_the_last[1], only_the_last[2],
                          "--resume", NULL);
        assert_exit(2, run);
        dyt_one_line("dynatrain run:", &run);
        assert_says("holds no whole checkpoint to resume from", run);
        assert_says(path, run);
        dyt_run_fini(&run);
        dyt_nothing_left();
        run = dyt_run("model", "info", step, NULL);
        assert_exit(2, run);
        dyt_run_fini(&run);
        flip(path);
        free(path);
    }
    {
        struct dyt_run run = dyt_run("model", "info", step, NULL);

        assert_exit(0, run);
        dyt_run_fini(&run);
        run = dyt_job_run(&job, "steps=4", only_the_last[1], only_the_last[2],
                          "--resume", NULL);
        assert_exit(0, run);
        dyt_run_fini(&run);
    }
    free(step);
}

static void an_older_one_is_taken(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    char *file = dyt_words(
        "%s/job/checkpoints/step-00000003/exp_avg.safetensors", job.runs);
    struct dyt_run run = dyt_job_run(&job, "checkpoint.every=1", NULL);

    (void)state;
    assert_exit(0, run);
    dyt_run_fini(&run);
    flip(file);
    run = dyt_job_run(&job, "steps=3", "--resume", NULL);
    assert_exit(0, run);
    assert_says("passed over, not whole: ", run);
    assert_says("exp_avg.safetensors: bytes 0 to ", run);
    assert_says("step-00000002", run);
    dyt_run_fini(&run);
    dyt_nothing_left();
    /* Step 3 was made again, and is sound. */
    run = dyt_job_run(&job, "steps=4", "--resume", NULL);
    assert_exit(0, run);
    assert_says("step-00000003", run);
    dyt_run_fini(&run);
    free(file);
}

static void one_without_hashes_is_taken_and_said(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    char *marker =
        dyt_words("%s/job/checkpoints/step-00000003/complete.json", job.runs);
    struct dyt_run run = dyt_job_run(&job, NULL);
    json_t *json;

    (void)state;
    assert_exit(0, run);
    dyt_run_fini(&run);
    json = json_load_file(marker, 0, NULL);
    assert_non_null(json);
    assert_int_equal(0, json_object_del(json, "self"));
    assert_int_equal(0, json_object_del(json, "blocks"));
    assert_int_equal(0, json_object_del(json, "block_bytes"));
    assert_int_equal(0, json_dump_file(json, marker, 0));
    json_decref(json);
    run = dyt_job_run(&job, "steps=4", "--resume", NULL);
    assert_exit(0, run);
    assert_says("step-00000003 was written without content hashes", run);
    dyt_run_fini(&run);
    dyt_nothing_left();
    free(marker);
}

/* The weights that a run hands out at its end are those that it wrote. */
static void a_damaged_checkpoint_is_not_converted(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    char *step = dyt_words("%s/job/checkpoints/step-00000003", job.runs);
    char *file = dyt_words("%s/model.safetensors", step);
    char *to = dyt_words("%s/converted", job.dir);
    struct dyt_run run = dyt_job_run(&job, NULL);

    (void)state;
    assert_exit(0, run);
    dyt_run_fini(&run);
    flip(file);
    run = dyt_run("convert", step, to, NULL);
    assert_exit(2, run);
    assert_says("model.safetensors: bytes 0 to ", run);
    assert_says("an older checkpoint", run);
    dyt_run_fini(&run);
    assert_false(dyt_exists("%s", to));
    free(to);
    free(file);
    free(step);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_flipped_bit_is_refused_by_name),
    cmocka_unit_test(an_older_one_is_taken),
    cmocka_unit_test(one_without_hashes_is_taken_and_said),
    cmocka_unit_test(a_damaged_checkpoint_is_not_converted),
};
DYT_TEST_MAIN(tests)
