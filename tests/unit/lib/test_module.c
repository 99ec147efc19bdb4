/* Modules: where they are found, and whose words are heard when they fail. */
#include "lib/module.h"

#include "dyt_test.h"

#include <stdlib.h>

static int use_test_modules(void **state)
{
    (void)state;
    return setenv("DYNATRAIN_MODULES", TEST_MODULES, 1);
}

static void words_of_a_module_are_the_callers(void **state)
{
    const struct dyti_module *module = NULL;

    (void)state;
    assert_true(dyti_module_exists("failing"));
    assert_ok(dyti_module_open("failing", &module));
    /* its copy of base/ is not ours */
    assert_ptr_not_equal(module->error_message(), dyti_error_message());
    assert_status(DYT_ERR_DEVICE, module->memory->use("GPU-7"));
    assert_string_equal("device GPU-7 is asleep; while waking it",
                        dyti_error_message());
    assert_error_has("DYT_ERR_DEVICE");
    assert_error_has("module_failing.c:");
    DYTI_NOTE("opening what rows on a device need");
    assert_error_has("while opening");
}

static void one_that_is_not_there_says_where_to_get_it(void **state)
{
    const struct dyti_module *module = NULL;

    (void)state;
    assert_false(dyti_module_exists("nothing"));
    assert_status(DYT_ERR_UNSUPPORTED, dyti_module_open("nothing", &module));
    assert_error_has("libdynatrain-nothing.so");
    assert_error_has("DYNATRAIN_MODULES");
    assert_null(module);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(words_of_a_module_are_the_callers, use_test_modules),
    cmocka_unit_test_setup(one_that_is_not_there_says_where_to_get_it,
                           use_test_modules),
};
DYT_TEST_MAIN(tests)
