/* Sizes and names of dtypes and of kinds of state (base/dtype.h). */
#include "base/dtype.h"

#include "dyt_test.h"

static void every_dtype_has_a_size_and_a_name_of_its_own(void **state)
{
    static const struct {
        enum dyti_dtype dtype;
        const char *name;
        uint32_t bytes;
    } row[] = {
        {DYTI_F32, "f32", 4}, {DYTI_BF16, "bf16", 2}, {DYTI_F16, "f16", 2},
        {DYTI_I32, "i32", 4}, {DYTI_I64, "i64", 8},
    };

    (void)state;
    assert_int_equal(DYTI_DTYPE_COUNT, DYT_TEST_COUNT(row));
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        assert_string_equal(row[i].name, dyti_dtype_name(row[i].dtype));
        assert_int_equal(row[i].bytes, dyti_dtype_bytes(row[i].dtype));
    }
    assert_string_equal("?", dyti_dtype_name(DYTI_DTYPE_COUNT));
    assert_int_equal(0, dyti_dtype_bytes(DYTI_DTYPE_COUNT));
}

static void kinds_are_called_as_in_the_configuration(void **state)
{
    static const char *const want[DYTI_KIND_COUNT] = {
        "param", "grad", "master", "exp_avg", "exp_avg_sq", "extra"};

    (void)state;
    for (int i = 0; i < DYTI_KIND_COUNT; i++) {
        assert_string_equal(want[i], dyti_kind_name((enum dyti_kind)i));
    }
    assert_string_equal("?", dyti_kind_name(DYTI_KIND_COUNT));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_dtype_has_a_size_and_a_name_of_its_own),
    cmocka_unit_test(kinds_are_called_as_in_the_configuration),
};
DYT_TEST_MAIN(tests)
