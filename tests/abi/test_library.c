/* Sizes and offsets that may never change, and what the library shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* CMocka wants the four above first. */
#include <cmocka.h>

#include <dynatrain/schedule.h>
#include <dynatrain/session.h>
#include <dynatrain/version.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void structs_are_laid_out_as_released(void **state)
{
    (void)state;
    assert_int_equal(8, DYT_MAX_DIMS);
    assert_int_equal(136, sizeof(struct dyt_box));
    assert_int_equal(0, offsetof(struct dyt_box, ndim));
    assert_int_equal(8, offsetof(struct dyt_box, lo));
    assert_int_equal(72, offsetof(struct dyt_box, hi));
    assert_int_equal(4, sizeof(enum dyt_status));
}

static void statuses_keep_their_numbers(void **state)
{
    static const struct {
        int value;
        const char *name;
    } row[] = {
        {0, "DYT_OK"},           {1, "DYT_PENDING"},
        {-1, "DYT_ERR_INVALID"}, {-2, "DYT_ERR_OVERFLOW"},
        {-3, "DYT_ERR_LAYOUT"},  {-4, "DYT_ERR_NOMEM"},
        {-5, "DYT_ERR_PEER"},    {-6, "DYT_ERR_ABI"},
        {-7, "DYT_ERR_DEVICE"},  {-8, "DYT_ERR_FORMAT"},
        {-9, "DYT_ERR_CONFIG"},  {-10, "DYT_ERR_UNSUPPORTED"},
        {-11, "DYT_ERR_IO"},     {-12, "DYT_ERR_STATE"},
        {-13, "DYT_ERR_BUSY"},   {-14, "DYT_ERR_TIMEOUT"},
        {-15, "DYT_ERR_VERIFY"}, {-16, "DYT_ERR_CANCELLED"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        assert_string_equal(row[i].name, dyt_status_name(row[i].value));
    }
    assert_string_equal("DYT_UNKNOWN", dyt_status_name(-17));
}

static void version_agrees_in_numbers_and_text(void **state)
{
    char text[32];

    (void)state;
    assert_int_equal(DYT_VERSION, dyt_version());
    snprintf(text, sizeof(text), "%u.%u.%u", dyt_version() >> 16,
             dyt_version() >> 8 & 255, dyt_version() & 255);
    assert_string_equal(text, dyt_version_text());
    assert_string_equal(DYT_PROJECT, dyt_version_text());
}

#define REFUSES_NULL(call)                                                     \
    do {                                                                       \
        assert_int_equal(DYT_ERR_INVALID, (call));                             \
        assert_non_null(strstr(dyt_error_text(), ": a NULL argument"));        \
    } while (0)

/* A handle that was not made, or a place for the answer that was not given. */
static void a_null_argument_is_no_crash(void **state)
{
    const struct dyt_tensor tensor = {
        .struct_size = sizeof(tensor), .name = "a", .ndim = 1, .shape = {4}};
    struct dyt_tensor said = {.struct_size = sizeof(said)};
    struct dyt_shard shard = {.struct_size = sizeof(shard)};
    struct dyt_plan_figures moved = {.struct_size = sizeof(moved)};
    struct dyt_schedule_figures rounds = {.struct_size = sizeof(rounds)};
    dyt_model *model = NULL;
    dyt_layout *layout = NULL;
    dyt_plan *plan = NULL;
    dyt_schedule *schedule = NULL;
    char *text = NULL;
    uint64_t n = 0;
    uint32_t at = 0;

    (void)state;
    assert_int_equal(DYT_OK, dyt_model_create(&tensor, 1, &model));
    REFUSES_NULL(dyt_model_create(&tensor, 1, NULL));
    REFUSES_NULL(dyt_model_create(NULL, 1, &model));
    REFUSES_NULL(dyt_model_from_config(NULL, 1, &model));
    REFUSES_NULL(dyt_model_from_config(NULL, 0, NULL));
    REFUSES_NULL(dyt_model_tensor(NULL, 0, &said));
    REFUSES_NULL(dyt_model_tensor(model, 0, NULL));
    REFUSES_NULL(dyt_model_find(NULL, "a", &at));
    REFUSES_NULL(dyt_model_find(model, NULL, &at));
    REFUSES_NULL(dyt_model_find(model, "a", NULL));
    assert_int_equal(0, dyt_model_tensor_count(NULL));
    assert_int_equal(0, dyt_model_elements(NULL));
    REFUSES_NULL(dyt_layout_build(NULL, "native:tp=1", 0, &layout));
    REFUSES_NULL(dyt_layout_build(model, NULL, 0, &layout));
    REFUSES_NULL(dyt_layout_build(model, "native:tp=1", 0, NULL));
    REFUSES_NULL(dyt_layout_from_views(model, NULL, 1, &layout));
    REFUSES_NULL(dyt_layout_shard_count(NULL, 0, &n));
    REFUSES_NULL(dyt_layout_shard(NULL, 0, 0, &shard));
    REFUSES_NULL(dyt_layout_json(NULL, &text));
    assert_int_equal(0, dyt_layout_world_size(NULL));
    assert_int_equal(0, dyt_layout_fingerprint(NULL));
    REFUSES_NULL(dyt_plan_build(NULL, NULL, NULL, &plan));
    REFUSES_NULL(dyt_plan_totals(NULL, &moved));
    REFUSES_NULL(dyt_plan_traffic(NULL, &n, 1));
    REFUSES_NULL(dyt_plan_text(NULL, &text));
    REFUSES_NULL(dyt_schedule_build(NULL, NULL, &schedule));
    REFUSES_NULL(dyt_schedule_totals(NULL, &rounds));
    REFUSES_NULL(dyt_schedule_text(NULL, &text));
    REFUSES_NULL(dyt_session_join(NULL, NULL));
    REFUSES_NULL(dyt_session_publish(NULL, NULL, NULL));
    REFUSES_NULL(dyt_session_receive(NULL, 0, 0, NULL));
    REFUSES_NULL(dyt_job_status(NULL, NULL, NULL, 0, &text));
    assert_null(layout);
    dyt_model_destroy(model);
}

static void internals_cannot_be_reached(void **state)
{
    static const char *const hidden[] = {"dyti_error_set", "dyti_log_write",
                                         "dyti_pool_create"};
    void *library = dlopen(DYT_LIBRARY, RTLD_NOW | RTLD_LOCAL);

    (void)state;
    assert_non_null(library);
    assert_non_null(dlsym(library, "dyt_error_text"));
    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++) {
        assert_null(dlsym(library, hidden[i]));
    }
    dlclose(library);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(structs_are_laid_out_as_released),
        cmocka_unit_test(statuses_keep_their_numbers),
        cmocka_unit_test(version_agrees_in_numbers_and_text),
        cmocka_unit_test(a_null_argument_is_no_crash),
        cmocka_unit_test(internals_cannot_be_reached),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
