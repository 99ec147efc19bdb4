/* Checkpoints: saved in one layout and loaded in others, what is whole and what
 * is found, and that any failure or death leaves the one before usable. */
#include "checkpoint_run.h"

#include "format/checkpoint.h"
#include "format/hf_config.h"
#include "format/model_init.h"
#include "format/weights.h"

#include "base/num.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- failing system calls ----------------------------------------------- */

static long calls_left = -1; /* < 0: all succeed */
static bool die_instead;     /* leave as kill -9 would */

static bool fails(void)
{
    if (calls_left < 0 || calls_left-- > 0) {
        return false;
    }
    if (die_instead) {
        _exit(9);
    }
    calls_left = -1; /* one failure; tidying up works again */
    errno = EIO;
    return true;
}

ssize_t __real_pwrite(int fd, const void *from, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *from, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *from, size_t bytes, off_t at)
{
    return fails() ? -1 : __real_pwrite(fd, from, bytes, at);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    return fails() ? -1 : __real_fsync(fd);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    return fails() ? -1 : __real_rename(from, to);
}

int __real_posix_fallocate(int fd, off_t at, off_t bytes);
int __wrap_posix_fallocate(int fd, off_t at, off_t bytes);
int __wrap_posix_fallocate(int fd, off_t at, off_t bytes)
{
    return fails() ? ENOSPC : __real_posix_fallocate(fd, at, bytes);
}

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode)
{
    return fails() ? -1 : __real_mkdir(path, mode);
}

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
    return fails() ? -1 : __real_unlink(path);
}

/* ---- saving and loading ------------------------------------------------- */

static void any_layout_resumes_in_any_other(void **state)
{
    static const struct {
        uint32_t tp, pp, dp, zero;
        enum dyti_dtype dtype;
    } row[] = {
        {1, 1, 1, 0, DYTI_F32},  {1, 2, 2, 1, DYTI_F32},
        {1, 2, 2, 1, DYTI_BF16}, {3, 1, 2, 0, DYTI_BF16},
        {2, 2, 3, 1, DYTI_BF16}, {3, 2, 1, 1, DYTI_F32},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        char path[DYTI_PATH_BYTES];
        struct dyti_arch arch;
        struct run run;
        bool found = false;

        run_start(&run, row[i].dtype, row[i].tp, row[i].pp, row[i].dp,
                  row[i].zero);
        assert_ok(save(&run, 5, 0.5, 1, 0));
        assert_ok(dyti_checkpoint_latest(run.root, path, &found));
        assert_true(found);
        for (size_t j = 0; j < DYT_TEST_COUNT(row); j++) {
            struct dyti_layout *to =
                layout_of(run.model, row[j].tp, row[j].pp, row[j].dp,
                          row[j].zero, row[i].dtype);

            check_loaded(&run, path, to, 5);
            dyti_layout_destroy(to);
        }
        assert_ok(dyti_hf_config_read(path, &arch));
        assert_int_equal(row[i].dtype, arch.dtype);
        run_stop(&run);
    }
}

static void the_state_comes_back(void **state)
{
    struct dyti_checkpoint_state s;
    char path[DYTI_PATH_BYTES];
    struct run run;
    bool found = false;

    (void)state;
    run_start(&run, DYTI_BF16, 1, 1, 1, 0);
    assert_ok(save(&run, 20, NAN, 1, 0));
    assert_ok(dyti_checkpoint_latest(run.root, path, &found));
    assert_ok(dyti_checkpoint_read_state(path, &s));
    assert_true(s.step == 20 && s.version == 21 && s.updates == 22);
    assert_true(s.seed == UINT64_MAX - 20);
    assert_true(s.data_epoch == 2 && s.data_position == 77);
    assert_true(isnan(s.score));
    assert_string_equal("avx2", s.isa);
    assert_string_equal("tp 1 pp 2 dp 2 zero 1", s.layout);
    assert_string_equal("name = 1", s.job);
    assert_int_equal(2, s.reward_count);
    assert_true(s.reward[0] == 0.1 && s.reward[1] == 1.0);
    dyti_checkpoint_state_fini(&s);
    assert_null(s.job);
    run_stop(&run);
}

static void weights_only_has_no_moments(void **state)
{
    char path[DYTI_PATH_BYTES];
    const struct dyti_view *view;
    void *base[DYTI_KIND_COUNT] = {NULL};
    struct run run;
    bool found = false;

    (void)state;
    run_start(&run, DYTI_BF16, 1, 1, 1, 0);
    run.spec.optimizer = false;
    assert_ok(save(&run, 1, 0, 1, 0));
    assert_ok(dyti_checkpoint_latest(run.root, path, &found));
    view = dyti_layout_view(run.layout, 0);
    base[DYTI_PARAM] = calloc(1, view->region_bytes[DYTI_PARAM]);
    assert_ok(dyti_checkpoint_load(path, run.model, view, base));
    base[DYTI_EXP_AVG] = calloc(1, view->region_bytes[DYTI_EXP_AVG]);
    assert_status(DYT_ERR_STATE,
                  dyti_checkpoint_load(path, run.model, view, base));
    assert_error_has("exp_avg (weights only)");
    free(base[DYTI_EXP_AVG]);
    base[DYTI_EXP_AVG] = NULL;
    base[DYTI_MASTER] = calloc(1, view->region_bytes[DYTI_MASTER]);
    assert_status(DYT_ERR_STATE, /* bf16 never becomes a master */
                  dyti_checkpoint_load(path, run.model, view, base));
    free(base[DYTI_MASTER]);
    free(base[DYTI_PARAM]);
    run_stop(&run);
}

static void exports_are_hugging_face_directories(void **state)
{
    char path[DYTI_PATH_BYTES], to[512], file[1024];
    struct dyti_safetensors *set = NULL;
    struct dyti_arch arch;
    struct run run;
    bool found = false;

    (void)state;
    run_start(&run, DYTI_BF16, 1, 2, 2, 1);
    assert_ok(save(&run, 3, 0, 1, 0));
    assert_ok(dyti_checkpoint_latest(run.root, path, &found));
    snprintf(to, sizeof(to), "%s/out", dyt_test_dir());
    assert_ok(dyti_checkpoint_export(path, to));
    assert_status(DYT_ERR_STATE, dyti_checkpoint_export(path, to));
    assert_ok(dyti_hf_config_read(to, &arch));
    assert_ok(dyti_safetensors_open(to, &set));
    assert_ok(dyti_weights_check(set, run.model));
    assert_string_equal("BF16", dyti_safetensors_at(set, 0)->type);
    dyti_safetensors_close(set);
    snprintf(file, sizeof(file), "%s/tokenizer.json", to);
    assert_true(dyti_file_exists(file));
    snprintf(file, sizeof(file), "%s/exp_avg.safetensors", to);
    assert_false(dyti_file_exists(file));
    run_stop(&run);
}

/* ---- what is found ------------------------------------------------------ */

static bool has_step(const struct run *run, uint64_t step)
{
    char path[512];
    struct stat info;

    snprintf(path, sizeof(path), "%s/step-%08llu", run->root,
             (unsigned long long)step);
    return stat(path, &info) == 0;
}

static void pruning_keeps_the_newest_and_the_best(void **state)
{
    static const double score[] = {0.1, 0.9, 0.3, NAN, 0.8, 0.2, 0.25};
    struct run run;

    (void)state;
    run_start(&run, DYTI_F32, 1, 1, 1, 0);
    for (uint64_t step = 0; step < DYT_TEST_COUNT(score); step++) {
        assert_ok(save(&run, step, score[step], 2, 2));
    }
    for (uint64_t step = 0; step < DYT_TEST_COUNT(score); step++) {
        bool want = step == 1 || step >= 4; /* 0.9, 0.8, the last two */

        assert_int_equal(want, has_step(&run, step));
    }
    /* A run that went back to an earlier step keeps what it has just saved. */
    assert_ok(save(&run, 2, 0.0, 1, 0));
    assert_true(has_step(&run, 2));
    run_stop(&run);
}

static void the_same_step_is_replaced(void **state)
{
    char path[DYTI_PATH_BYTES];
    struct run run;
    bool found = false;

    (void)state;
    run_start(&run, DYTI_F32, 1, 1, 1, 0);
    assert_ok(save(&run, 7, 0.1, 3, 0));
    assert_ok(save(&run, 7, 0.2, 3, 0));
    assert_ok(dyti_checkpoint_latest(run.root, path, &found));
    assert_true(found);
    check_loaded(&run, path, run.layout, 7);
    run_stop(&run);
}

static void damaged_ones_are_passed_over(void **state)
{
    char path[DYTI_PATH_BYTES], file[DYTI_PATH_BYTES + 64];
    struct run run;
    bool found = true;

    (void)state;
    run_start(&run, DYTI_F32, 1, 1, 1, 0);
    assert_ok(dyti_checkpoint_latest(run.root, path, &found));
    assert_false(found); /* no root yet */
    for (uint64_t step = 1; step <= 4; step++) {
        assert_ok(save(&run, step, 0, 10, 0));
    }
    snprintf(file, sizeof(file), "%s/step-00000004/complete.json", run.root);
    assert_int_equal(0, remove(file));
    snprintf(file, sizeof(file), "%s/step-00000003/exp_avg.safetensors",
             run.root);
    assert_int_equal(0, truncate(file, 100));
    snprintf(file, sizeof(file), "%s/step-00000003", run.root);
    assert_status(DYT_ERR_FORMAT, dyti_checkpoint_check(file));
    assert_error_has("100 bytes, the checkpoint says");
    snprintf(file, sizeof(file), "%s/step-00000002/tokenizer.json", run.root);
    assert_int_equal(0, remove(file));
    /* Names that are not ours, and left-overs, are nothing. */
    snprintf(file, sizeof(file), "%s/step-9", run.root);
    assert_int_equal(0, mkdir(file, 0777));
    snprintf(file, sizeof(file), "%s/tmp-step-00000099", run.root);
    assert_int_equal(0, mkdir(file, 0777));
    assert_ok(dyti_checkpoint_latest(run.root, path, &found));
    assert_true(found);
    assert_non_null(strstr(path, "step-00000001"));
    check_loaded(&run, path, run.layout, 1);
    /* The next save clears the left-over away. */
    assert_ok(save(&run, 5, 0, 10, 0));
    assert_int_not_equal(0, access(file, F_OK));
    run_stop(&run);
}

/* ---- failures ----------------------------------------------------------- */

static void check_usable(const struct run *run, uint64_t before, uint64_t after)
{
    struct dyti_checkpoint_state s = {0};
    char path[DYTI_PATH_BYTES];
    bool found = false;

    assert_ok(dyti_checkpoint_latest(run->root, path, &found));
    assert_true(found);
    assert_ok(dyti_checkpoint_read_state(path, &s));
    assert_true(s.step == before || s.step == after);
    check_loaded(run, path, run->layout, s.step);
    dyti_checkpoint_state_fini(&s);
}

static void every_failing_call_leaves_the_one_before(void **state)
{
    struct run run;
    long n = 0;
    enum dyt_status st;

    (void)state;
    dyt_test_allow_complaints(); /* of pruning that fails */
    run_start(&run, DYTI_BF16, 1, 2, 1, 0);
    assert_ok(save(&run, 1, 0, 1, 0));
    do {
        char temp[512];

        calls_left = n;
        n += dyt_test_stride(9);
        st = save(&run, 2, 0, 1, 0);
        if (calls_left >= 0) {
            calls_left = -1;
            break; /* fewer calls than that: none failed */
        }
        check_usable(&run, 1, 2);
        snprintf(temp, sizeof(temp), "%s/tmp-step-00000002", run.root);
        if (st != DYT_OK) {
            assert_int_equal(DYT_ERR_IO, st);
            assert_int_not_equal(0, access(temp, F_OK));
        }
        snprintf(temp, sizeof(temp), "%s/step-00000002", run.root);
        dyt_test_remove_tree(temp);
        assert_ok(save(&run, 1, 0, 1, 0));
    } while (n < 2000);
    assert_true(n > 100 && n < 2000);
    run_stop(&run);
}

static void a_death_at_any_call_leaves_the_one_before(void **state)
{
    struct run run;
    long n = 0;
    int status = 9;

    (void)state;
    run_start(&run, DYTI_F32, 1, 2, 1, 0);
    assert_ok(save(&run, 1, 0, 1, 0));
    for (uint64_t step = 2; status != 0 && n < 2000; n += dyt_test_stride(9)) {
        char path[512];
        pid_t child = fork();

        assert_true(child >= 0);
        if (child == 0) {
            die_instead = true;
            calls_left = n;
            _exit(save(&run, step, 0, 1, 0) == DYT_OK ? 0 : 1);
        }
        assert_int_equal(child, waitpid(child, &status, 0));
        assert_true(WIFEXITED(status));
        status = WEXITSTATUS(status);
        assert_true(status == 9 || status == 0);
        check_usable(&run, step - 1, step);
        snprintf(path, sizeof(path), "%s/step-%08llu", run.root,
                 (unsigned long long)step);
        if (access(path, F_OK) == 0) {
            step++; /* it became visible: go on from there */
        }
    }
    assert_true(n > 60 && status == 0);
    run_stop(&run);
}

static void a_full_disk_is_one_clear_error(void **state)
{
    struct run run;
    int status = 0;
    pid_t child;

    (void)state;
    run_start(&run, DYTI_F32, 1, 1, 1, 0);
    assert_ok(save(&run, 1, 0, 1, 0));
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit most = {8192, 8192};
        enum dyt_status st;

        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &most);
        st = save(&run, 2, 0, 1, 0);
        _exit(st == DYT_ERR_IO &&
                      strstr(dyti_error_text(), "model.safetensors") != NULL
                  ? 0
                  : 1);
    }
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    check_usable(&run, 1, 1);
    assert_false(has_step(&run, 2));
    run_stop(&run);
}

static void wrong_calls_are_answered(void **state)
{
    struct dyti_checkpoint_state s = {.score = NAN};
    const void *none[DYTI_KIND_COUNT] = {NULL};
    char path[DYTI_PATH_BYTES], whole[DYTI_PATH_BYTES];
    struct run run;

    (void)state;
    run_start(&run, DYTI_F32, 1, 1, 1, 0);
    assert_status(DYT_ERR_INVALID,
                  dyti_checkpoint_finish("/x/step-1", &s, 1, 0, whole));
    assert_status(DYT_ERR_IO,
                  dyti_checkpoint_prepare("/nonexistent/x/y", 1, run.model_dir,
                                          &run.spec, path));
    assert_status(
        DYT_ERR_IO,
        dyti_checkpoint_prepare(run.root, 1, "/nonexistent", &run.spec, path));
    assert_ok(
        dyti_checkpoint_prepare(run.root, 1, run.model_dir, &run.spec, path));
    assert_status(DYT_ERR_INVALID,
                  dyti_checkpoint_write(path, &run.spec, run.layout, 0, none));
    assert_error_has("rank 0 gave no master");
    dyti_checkpoint_abort(path);
    dyti_checkpoint_abort(path);
    assert_status(DYT_ERR_IO,
                  dyti_checkpoint_write(path, &run.spec, run.layout, 0, none));
    run_stop(&run);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_layout_resumes_in_any_other),
    cmocka_unit_test(the_state_comes_back),
    cmocka_unit_test(weights_only_has_no_moments),
    cmocka_unit_test(exports_are_hugging_face_directories),
    cmocka_unit_test(pruning_keeps_the_newest_and_the_best),
    cmocka_unit_test(the_same_step_is_replaced),
    cmocka_unit_test(damaged_ones_are_passed_over),
    cmocka_unit_test(every_failing_call_leaves_the_one_before),
    cmocka_unit_test(a_death_at_any_call_leaves_the_one_before),
    cmocka_unit_test(a_full_disk_is_one_clear_error),
    cmocka_unit_test(wrong_calls_are_answered),
};
DYT_TEST_MAIN(tests)
