/* Every status has an exit code that scripts may rely on. */
#include "cli/exit.h"
#include "dyt_test.h"

static void every_status_has_its_class(void **state)
{
    static const struct {
        enum dyt_status status;
        int code;
    } row[] = {
        {DYT_OK, 0},          {DYT_ERR_INVALID, 2},
        {DYT_ERR_LAYOUT, 2},  {DYT_ERR_FORMAT, 2},
        {DYT_ERR_CONFIG, 2},  {DYT_ERR_UNSUPPORTED, 2},
        {DYT_ERR_NOMEM, 1},   {DYT_ERR_IO, 1},
        {DYT_ERR_VERIFY, 1},  {DYT_ERR_BUSY, 1},
        {DYT_ERR_DEVICE, 3},  {DYT_ERR_PEER, 4},
        {DYT_ERR_TIMEOUT, 4}, {DYT_ERR_CANCELLED, 130},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        assert_int_equal(row[i].code, dyti_exit_code(row[i].status));
    }
}

/* What a person named and cannot be read is a wrong name; the rest stays. */
static void what_is_given_wrong_is_the_callers(void **state)
{
    (void)state;
    assert_status(DYT_ERR_CONFIG,
                  dyti_exit_given(
                      DYTI_FAIL(DYT_ERR_IO, "%s is not there", "the file x")));
    assert_error_has("the file x is not there");
    assert_status(DYT_ERR_NOMEM,
                  dyti_exit_given(DYTI_FAIL(DYT_ERR_NOMEM, "a list")));
    assert_ok(dyti_exit_given(DYT_OK));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_status_has_its_class),
    cmocka_unit_test(what_is_given_wrong_is_the_callers),
};
DYT_TEST_MAIN(tests)
