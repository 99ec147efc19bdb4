/* Loading and saving need what the layout holds on the rank, plus a little:
 * measured as the process's peak of resident memory. */
#include "dyt_test.h"
#include "format_layout.h"

#include "format/checkpoint.h"
#include "format/hf_config.h"
#include "format/weights.h"

#include <sys/wait.h>

/* 21 million parameters: 80 MiB. */
static const struct dyti_arch arch = {
    DYTI_LLAMA, 8192,  512,   4,
    8,          8,     64,    2048,
    64,         1e-6,  0.02,  {DYTI_ROPE_DEFAULT, 10000, 1, 0, 0, 0},
    true,       false, false, DYTI_F32,
    {0},        {0},   false};

static uint64_t status_bytes(const char *key)
{
    char *text = dyt_test_read("/proc/self/status", NULL);
    char *line = strstr(text, key);
    uint64_t kib = 0;

    if (line != NULL) {
        kib = strtoull(line + strlen(key), NULL, 10);
    }
    free(text);
    return kib * 1024;
}

/* From here on the peak counts anew; false: this kernel cannot. */
static bool reset_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");

    return file != NULL && fputs("5", file) >= 0 && fclose(file) == 0;
}

/* A model.safetensors of the right shapes, whose bytes are zeros. */
static void make_model(const char *dir, const struct dyti_model *model)
{
    struct dyti_safetensors_plan plan;
    char path[512];
    int fd = -1;

    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    assert_ok(dyti_hf_config_write(dir, &arch, NULL));
    assert_ok(dyti_weights_plan(model, DYTI_F32, &plan));
    assert_ok(dyti_safetensors_create(path, &plan, &fd));
    close(fd);
    dyti_safetensors_plan_fini(&plan);
}

/* Runs `act` in a child: 0 within limit_bytes of growth. */
static int measured(enum dyt_status (*act)(void *), void *arg,
                    uint64_t limit_bytes)
{
    int status = 0;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        uint64_t before, after;

        reset_peak();
        before = status_bytes("VmRSS:");
        if (act(arg) != DYT_OK) {
            fprintf(stderr, "%s\n", dyti_error_text());
            _exit(1);
        }
        after = status_bytes("VmHWM:");
        if (after > before + limit_bytes) {
            fprintf(stderr, "grew by %llu KiB, at most %llu\n",
                    (unsigned long long)(after - before) / 1024,
                    (unsigned long long)limit_bytes / 1024);
            _exit(2);
        }
        _exit(0);
    }
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static bool measurable(void)
{
    return !dyt_test_instrumented() && reset_peak() &&
           status_bytes("VmHWM:") > 0;
}

struct job {
    const char *dir;
    const struct dyti_model *model;
    const struct dyti_layout *layout;
    const struct dyti_checkpoint_spec *spec;
    void *base[DYTI_KIND_COUNT];
    uint32_t rank;
};

static enum dyt_status load(void *arg)
{
    struct job *job = arg;
    const struct dyti_view *view = dyti_layout_view(job->layout, job->rank);
    void *base = malloc(view->region_bytes[DYTI_PARAM]);

    if (base == NULL) {
        return DYT_ERR_NOMEM;
    }
    return dyti_weights_load(job->dir, job->model, view, DYTI_PARAM, base);
}

static enum dyt_status write_parts(void *arg)
{
    struct job *job = arg;

    return dyti_checkpoint_write(job->dir, job->spec, job->layout, job->rank,
                                 (const void *const *)job->base);
}

static void loading_stays_within_what_is_held(void **state)
{
    static const struct {
        uint32_t tp, pp;
    } row[] = {{4, 1}, {1, 4}, {2, 2}, {8, 1}};
    const char *dir = dyt_test_dir();
    struct dyti_model *model = NULL;
    uint64_t tenth;

    (void)state;
    if (!measurable()) {
        skip();
    }
    assert_ok(dyti_model_build(&arch, &model));
    make_model(dir, model);
    tenth = dyti_model_elements(model) * 4 / 10;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_layout *layout =
            layout_of(model, row[i].tp, row[i].pp, 1, 0, DYTI_F32);
        struct job job = {.dir = dir, .model = model, .layout = layout};
        const struct dyti_view *view = dyti_layout_view(layout, 1);
        int result;

        job.rank = 1;
        result = measured(load, &job, view->region_bytes[DYTI_PARAM] + tenth);
        assert_int_equal(0, result);
        dyti_layout_destroy(layout);
    }
    dyti_model_destroy(model);
}

static void saving_stays_within_a_tenth(void **state)
{
    char path[DYTI_PATH_BYTES], root[512];
    const char *dir = dyt_test_dir();
    struct dyti_model *model = NULL;
    struct dyti_layout *layout;
    struct dyti_checkpoint_spec spec;
    struct job job = {.rank = 1};
    int result;

    (void)state;
    if (!measurable()) {
        skip();
    }
    assert_ok(dyti_model_build(&arch, &model));
    make_model(dir, model);
    layout = layout_of(model, 1, 2, 2, 1, DYTI_F32);
    spec = (struct dyti_checkpoint_spec){
        .model = model, .dtype = DYTI_BF16, .optimizer = true};
    snprintf(root, sizeof(root), "%s/c", dir);
    assert_ok(dyti_checkpoint_prepare(root, 1, dir, &spec, path));
    job.dir = path;
    job.layout = layout;
    job.spec = &spec;
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        size_t bytes = dyti_layout_view(layout, 1)->region_bytes[k];

        job.base[k] = malloc(bytes + 1);
        assert_non_null(job.base[k]);
        memset(job.base[k], 0x3c, bytes); /* resident before it is measured */
    }
    result = measured(write_parts, &job, dyti_model_elements(model) * 4 / 10);
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        free(job.base[k]);
    }
    dyti_layout_destroy(layout);
    dyti_model_destroy(model);
    assert_int_equal(0, result);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(loading_stays_within_what_is_held),
    cmocka_unit_test(saving_stays_within_a_tenth),
};
DYT_TEST_MAIN(tests)
