/* Sizes and offsets that may never change, and what the library shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* CMocka wants the four above first. */
#include <cmocka.h>

#include <dynatrain/box.h>
#include <dynatrain/status.h>
#include <dynatrain/version.h>

#include <dlfcn.h>
#include <stdio.h>

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
        cmocka_unit_test(internals_cannot_be_reached),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
