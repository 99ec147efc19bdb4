/* The states of the cuda device as people meet them: in `doctor`, and where a
 * job asks for it.  Drivers are doubles with one fault each. */
#include "dyt_job.h"
#include "dyt_run.h"

#include <jansson.h>

static const struct {
    const char *driver, *state, *says;
} rows[] = {
    {"ready", "ready", "2 of 2 devices"},
    {"absent", "no driver", "install NVIDIA's driver"},
    {"no_gpu", "no device", "nvidia-smi -L"},
    {"old", "driver too old", "CUDA 11.8"},
    {"memory", "out of memory at start", "nvidia-smi"},
    {"unknown", "failed at start", "dmesg"},
};

static void with_driver(const char *name)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s", DYT_FAKES, name);
    setenv("LD_LIBRARY_PATH", path, 1);
}

static void with_none(void)
{
    unsetenv("LD_LIBRARY_PATH");
}

static void the_doctor_names_the_state(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) { /* the others: as JSON */
        char want[64];
        struct dyt_run run;

        with_driver(rows[i].driver);
        run = dyt_run("doctor", NULL);
        with_none();
        snprintf(want, sizeof(want), "\n%-14s %s\n", "cuda", rows[i].state);
        assert_exit(0, run);
        assert_says(want, run);
        assert_says(rows[i].says, run);
        dyt_run_fini(&run);
    }
}

static json_t *doctor_json(void)
{
    struct dyt_run run = dyt_run("doctor", "--json", NULL);
    json_t *all;

    assert_exit(0, run);
    all = json_loads(run.out, 0, NULL);
    assert_non_null(all);
    dyt_run_fini(&run);
    return all;
}

static void and_as_json(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(rows); i++) {
        const json_t *cuda;
        json_t *all;

        with_driver(rows[i].driver);
        all = doctor_json();
        with_none();
        cuda = json_object_get(all, "cuda");
        assert_string_equal(rows[i].state,
                            json_string_value(json_object_get(cuda, "value")));
        assert_non_null(strstr(
            json_string_value(json_object_get(cuda, "means")), rows[i].says));
        assert_string_equal("host",
                            json_string_value(json_object_get(
                                json_object_get(all, "devices"), "value")));
        if (i == 0) {
            const json_t *two = json_object_get(cuda, "devices");

            assert_int_equal(2, json_array_size(two));
            /* Memory is tried, which this driver's double has no calls for. */
            assert_true(json_is_false(
                json_object_get(json_array_get(two, 0), "vmm_segments")));
            assert_non_null(strstr(json_string_value(json_object_get(
                                       json_array_get(two, 0), "segments")),
                                   "it has no cu"));
            assert_string_equal("GPU-abababab-abab-abab-abab-ababababab01",
                                json_string_value(json_object_get(
                                    json_array_get(two, 1), "uuid")));
            assert_string_equal(
                "GPU-abababab-abab-abab-abab-ababababab01",
                json_string_value(json_array_get(
                    json_object_get(json_array_get(two, 0), "reaches"), 0)));
            assert_int_equal(0, json_array_size(json_object_get(
                                    json_array_get(two, 1), "reaches")));
        }
        json_decref(all);
    }
}

/* What carries data between GPUs has states of its own. */
static void and_what_is_with_nccl(void **state)
{
    static const char *const want[][3] = {
        {"whole", "ready", "NCCL 2.28.9"},
        {"old", "too old", "2.18 is needed"},
        {"next", "another version", "NCCL 3.0.0"},
        {"missing", "call missing", "ncclCommSplit"},
        {"absent", "no library", "libnccl2"}};

    (void)state;
    if (!DYT_HAS_NCCL) {
        skip();
    }
    for (size_t i = 0; i < DYT_TEST_COUNT(want); i++) {
        char path[4096];
        const json_t *nccl;
        json_t *all;

        snprintf(path, sizeof(path), "%s/%s:%s/ready", DYT_NCCLS, want[i][0],
                 DYT_FAKES);
        setenv("LD_LIBRARY_PATH", path, 1);
        all = doctor_json();
        with_none();
        nccl = json_object_get(all, "nccl");
        assert_string_equal(want[i][1],
                            json_string_value(json_object_get(nccl, "value")));
        assert_non_null(strstr(
            json_string_value(json_object_get(nccl, "means")), want[i][2]));
        json_decref(all);
    }
}

/* A job that asks for it: one line, the state's name, nothing left. */
static void a_job_is_refused_by_name(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(rows); i++) {
        struct dyt_run run;

        with_driver(rows[i].driver);
        run = dyt_job_run(&job, "devices.kind=cuda", NULL);
        with_none();
        assert_exit(2, run);
        assert_says("devices.kind = \"cuda\"", run);
        assert_says(i == 0 ? "no model kernels" : rows[i].state, run);
        assert_says(rows[i].says, run);
        dyt_one_line("dynatrain run:", &run);
        dyt_nothing_left();
        dyt_run_fini(&run);
    }
}

/* No module beside the program, as where it was not built. */
static void without_the_module_it_is_not_built(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run;
    json_t *all;

    (void)state;
    setenv("DYNATRAIN_MODULES", DYT_FAKES, 1); /* none is there */
    all = doctor_json();
    run = dyt_job_run(&job, "devices.kind=cuda", NULL);
    unsetenv("DYNATRAIN_MODULES");
    assert_string_equal("not built",
                        json_string_value(json_object_get(
                            json_object_get(all, "cuda"), "value")));
    assert_exit(2, run);
    assert_says("not built", run);
    assert_says("-DDYT_CUDA=on", run);
    dyt_run_fini(&run);
    json_decref(all);
}

/* The loader tells what it opens: the driver and the module only where somebody
 * asks for them, so that all else starts as fast as without. */
static void nobody_else_opens_it(void **state)
{
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run, dry, doctor;

    (void)state;
    with_driver("ready");
    setenv("LD_DEBUG", "files", 1);
    run = dyt_job_run(&job, "steps=1", NULL);
    dry = dyt_run("run", job.file, "--dry-run", NULL);
    doctor = dyt_run("doctor", NULL);
    unsetenv("LD_DEBUG");
    with_none();
    assert_exit(0, run);
    assert_exit(0, dry);
    assert_null(strstr(run.out, "libdynatrain-cuda.so"));
    assert_null(strstr(run.out, "libcuda.so"));
    assert_null(strstr(dry.out, "libdynatrain-cuda.so"));
    assert_says("libdynatrain-cuda.so", doctor); /* it does tell */
    assert_says("libcuda.so.1", doctor);
    dyt_run_fini(&run);
    dyt_run_fini(&dry);
    dyt_run_fini(&doctor);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_doctor_names_the_state),
    cmocka_unit_test(and_as_json),
    cmocka_unit_test(and_what_is_with_nccl),
    cmocka_unit_test(a_job_is_refused_by_name),
    cmocka_unit_test(without_the_module_it_is_not_built),
    cmocka_unit_test(nobody_else_opens_it),
};
DYT_TEST_MAIN(tests)
