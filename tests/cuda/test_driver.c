/* Each state of the cuda device, over drivers that have exactly that fault
 * (fake_driver.c): what it is called, what it says, what is given back. */
#include "device/cuda/driver.h"

#include "dyt_test.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* What the module wants: drivers of its own CUDA, the first of which is… */
#if CUDA_VERSION >= 13000
#define CUDA   "13"
#define BEFORE "12"
#define FIRST  "580"
#else
#define CUDA   "12"
#define BEFORE "11"
#define FIRST  "525"
#endif

/* DYT_FAKES: a folder with one folder for each driver. */
static const struct {
    const char *driver;
    enum dyti_device_state state;
    const char *says[3];
} rows[] = {
    {"ready", DYTI_DEVICE_READY, {"2 of 2 devices", "CUDA " CUDA ".4"}},
    {"many", DYTI_DEVICE_READY, {"32 of 40 devices"}},
    {"no_gpu", DYTI_DEVICE_NO_DEVICE, {"no GPU", "nvidia-smi", "--gpus all"}},
    {"empty", DYTI_DEVICE_NO_DEVICE, {"no GPU", "nvidia-smi", "--gpus all"}},
    {"old_gpu", DYTI_DEVICE_NO_DEVICE, {"and newer;", "sm_61"}},
    {"volta",
     DYT_OLDEST_ARCH > 70 ? DYTI_DEVICE_NO_DEVICE : DYTI_DEVICE_READY,
     {DYT_OLDEST_ARCH > 70 ? "the first is Fake 0, sm_70" : "2 of 2"}},
    {"switches", DYTI_DEVICE_FAILED, {"nvidia-fabricmanager"}},
    {"old", DYTI_DEVICE_DRIVER_TOO_OLD, {"CUDA 11.8", CUDA ".0", FIRST}},
    {"before",
     DYTI_DEVICE_DRIVER_TOO_OLD,
     {"CUDA " BEFORE ".4", CUDA ".0 is needed", FIRST " or newer"}},
    {"old_calls",
     DYTI_DEVICE_DRIVER_TOO_OLD,
     {"cuDevicePrimaryCtxRelease_v2", FIRST}},
    {"compat", DYTI_DEVICE_DRIVER_TOO_OLD, {"newer driver"}},
    {"memory",
     DYTI_DEVICE_NO_MEMORY,
     {"device 1 (GPU-abababab-abab-abab-abab-ababababab01)", "nvidia-smi",
      "CUDA_VISIBLE_DEVICES"}},
    {"init_full", DYTI_DEVICE_NO_MEMORY, {"starting the driver", "nvidia-smi"}},
    {"stub", DYTI_DEVICE_NO_DRIVER, {"stub", "LD_LIBRARY_PATH", FIRST}},
    {"mismatch", DYTI_DEVICE_FAILED, {"different versions", "reboot"}},
    {"unknown", DYTI_DEVICE_FAILED, {"(999)", "dmesg"}},
    {"absent",
     DYTI_DEVICE_NO_DRIVER,
     {"libcuda.so.1", FIRST " or newer", "--gpus all"}},
};

static void probe(const char *driver, struct dyti_device_report *r)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s/" DYTI_CUDA_DRIVER, DYT_FAKES, driver);
    dyti_cuda_probe(path, r);
}

static void each_fault_has_its_state_and_remedy(void **state)
{
    size_t bad = 0;

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(rows); i++) {
        struct dyti_device_report r;

        memset(&r, 0xff, sizeof(r));
        probe(rows[i].driver, &r);
        if (r.state != rows[i].state) {
            print_error("%s: %s, want %s\n", rows[i].driver,
                        dyti_device_state_name(r.state),
                        dyti_device_state_name(rows[i].state));
            bad++;
        }
        for (size_t k = 0; k < 3 && rows[i].says[k] != NULL; k++) {
            if (strstr(r.text, rows[i].says[k]) == NULL) {
                print_error("%s: \"%s\" does not say \"%s\"\n", rows[i].driver,
                            r.text, rows[i].says[k]);
                bad++;
            }
        }
    }
    assert_int_equal(0, bad);
}

static void devices_are_told_by_uuid(void **state)
{
    struct dyti_device_report r;

    (void)state;
    probe("ready", &r);
    assert_int_equal(CUDA_VERSION / 1000 * 1000 + 40, r.driver);
    assert_int_equal(2, r.count);
    for (uint32_t i = 0; i < 2; i++) {
        char uuid[48], name[16];

        snprintf(uuid, sizeof(uuid),
                 "GPU-abababab-abab-abab-abab-ababababab%02x", i);
        snprintf(name, sizeof(name), "Fake %u", i);
        assert_string_equal(uuid, r.row[i].uuid);
        assert_string_equal(name, r.row[i].name);
        assert_int_equal(90, r.row[i].arch);
        assert_true(r.row[i].memory_bytes == (i + 1ull) << 30);
        assert_true(r.row[i].maps_memory);
        assert_int_equal(i == 0, r.row[i].exports_fd);
        assert_int_equal(i == 0 ? 2 : 0, r.row[i].reaches);
    }
}

/* Also where a later device fails. */
static void nothing_is_held(void **state)
{
    static const char *const driver[] = {"ready", "memory", "many"};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(driver); i++) {
        struct dyti_device_report r;
        char path[4096];
        void *library, *at;
        int (*contexts)(void);

        probe(driver[i], &r);
        snprintf(path, sizeof(path), "%s/%s/" DYTI_CUDA_DRIVER, DYT_FAKES,
                 driver[i]);
        library = dlopen(path, RTLD_NOW);
        assert_non_null(library);
        at = dlsym(library, "fake_contexts");
        assert_non_null(at);
        memcpy(&contexts, &at, sizeof(at));
        assert_int_equal(0, contexts());
        dlclose(library);
    }
}

static void what_may_be_seen_is_said(void **state)
{
    struct dyti_device_report r;

    (void)state;
    setenv("CUDA_VISIBLE_DEVICES", "GPU-gone", 1);
    probe("empty", &r);
    unsetenv("CUDA_VISIBLE_DEVICES");
    assert_non_null(strstr(r.text, "CUDA_VISIBLE_DEVICES=GPU-gone"));
    probe("empty", &r);
    assert_null(strstr(r.text, "CUDA_VISIBLE_DEVICES"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_fault_has_its_state_and_remedy),
    cmocka_unit_test(devices_are_told_by_uuid),
    cmocka_unit_test(nothing_is_held),
    cmocka_unit_test(what_may_be_seen_is_said),
};
DYT_TEST_MAIN(tests)
