/* What an error says, and to whom: cause and place, notes, threads
 * (base/error.h). */
#include "base/errno_text.h"
#include "base/error.h"

#include "dyt_test.h"

#include <errno.h>
#include <pthread.h>

static void every_status_has_name_text_and_class(void **state)
{
    static const struct {
        enum dyt_status status;
        const char *name;
        enum dyt_status_class cls;
    } row[] = {
#define ROW(name, value, cls, text) {name, #name, DYT_CLASS_##cls},
        DYT_STATUS_MAP(ROW)
#undef ROW
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        assert_string_equal(row[i].name, dyt_status_name(row[i].status));
        assert_int_equal(row[i].cls, dyt_status_class(row[i].status));
        assert_true(strlen(dyt_status_text(row[i].status)) > 3);
        for (size_t k = 0; k < i; k++) {
            assert_int_not_equal(row[i].status, row[k].status);
        }
    }
}

static void unknown_status_is_named_so(void **state)
{
    enum dyt_status odd = (enum dyt_status) - 999;

    (void)state;
    assert_string_equal("DYT_UNKNOWN", dyt_status_name(odd));
    assert_string_equal("unknown status", dyt_status_text(odd));
    assert_int_equal(DYT_CLASS_RUN, dyt_status_class(odd));
}

static void fail_returns_the_status_and_writes_cause_and_place(void **state)
{
    enum dyt_status st;

    (void)state;
    st = DYTI_FAIL(DYT_ERR_LAYOUT, "tensor %d has no holder", 7);
    assert_int_equal(DYT_ERR_LAYOUT, st);
    assert_string_equal("tensor 7 has no holder", dyti_error_message());
    assert_non_null(
        strstr(dyti_error_text(), "tensor 7 has no holder (DYT_ERR_LAYOUT) ["));
    assert_non_null(strstr(dyti_error_text(), "test_error.c:"));
    assert_string_equal(dyti_error_text(), dyt_error_text());
}

static void notes_go_outward_and_a_new_failure_starts_anew(void **state)
{
    (void)state;
    (void)DYTI_FAIL(DYT_ERR_IO, "disk full");
    DYTI_NOTE("writing %s", "a");
    DYTI_NOTE("saving");
    assert_string_equal("disk full; while writing a; while saving",
                        dyti_error_message());
    (void)DYTI_FAIL(DYT_ERR_IO, "no such file");
    assert_string_equal("no such file", dyti_error_message());
}

static void own_text_may_be_an_argument(void **state)
{
    (void)state;
    (void)DYTI_FAIL(DYT_ERR_IO, "inner");
    (void)DYTI_FAIL(DYT_ERR_PEER, "rank 3 said: %s", dyti_error_message());
    assert_string_equal("rank 3 said: inner", dyti_error_message());
    DYTI_NOTE("after %s", dyti_error_message());
    assert_string_equal("rank 3 said: inner; while after rank 3 said: inner",
                        dyti_error_message());
}

static void adopted_text_replaces_and_may_be_our_own(void **state)
{
    (void)state;
    assert_int_equal(DYT_ERR_PEER, dyti_error_adopt(DYT_ERR_PEER, "from 2"));
    assert_string_equal("from 2", dyti_error_text());
    (void)dyti_error_adopt(DYT_ERR_PEER, dyti_error_text());
    assert_string_equal("from 2", dyti_error_message());
}

static char heard[2][2048];

static void hear(const char *text, const char *message)
{
    snprintf(heard[0], sizeof(heard[0]), "%s", text);
    snprintf(heard[1], sizeof(heard[1]), "%s", message);
}

/* As between a module and who opened it, each with its copy of base/. */
static void what_is_said_goes_on_to_another_copy(void **state)
{
    (void)state;
    dyti_error_forward(hear);
    (void)DYTI_FAIL(DYT_ERR_DEVICE, "it broke");
    DYTI_NOTE("copying");
    assert_string_equal(dyti_error_text(), heard[0]);
    assert_string_equal("it broke; while copying", heard[1]);
    (void)dyti_error_adopt(DYT_ERR_PEER, "from 2");
    assert_string_equal("from 2", heard[1]);
    dyti_error_forward(NULL);
    (void)DYTI_FAIL(DYT_ERR_IO, "not told");
    assert_string_equal("from 2", heard[1]);
    dyti_error_take("a (X) [y:1]", "a");
    assert_string_equal("a (X) [y:1]", dyti_error_text());
    dyti_error_take(dyti_error_text(), dyti_error_message());
    assert_string_equal("a", dyti_error_message());
}

static void long_text_is_cut_and_never_overflows(void **state)
{
    char big[5000];

    (void)state;
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    (void)DYTI_FAIL(DYT_ERR_INVALID, "%s", big);
    assert_int_equal(2047, strlen(dyti_error_message()));
    for (int i = 0; i < 10; i++) {
        DYTI_NOTE("%s", big);
    }
    assert_int_equal(2047, strlen(dyti_error_text()));
}

static void *fail_elsewhere(void *arg)
{
    (void)arg;
    (void)DYTI_FAIL(DYT_ERR_IO, "elsewhere");
    return NULL;
}

static void text_belongs_to_its_thread(void **state)
{
    pthread_t thread;

    (void)state;
    (void)DYTI_FAIL(DYT_ERR_IO, "here");
    assert_int_equal(0, pthread_create(&thread, NULL, fail_elsewhere, NULL));
    pthread_join(thread, NULL);
    assert_string_equal("here", dyti_error_message());
}

static void limits_of_the_process_name_the_remedy(void **state)
{
    (void)state;
    assert_non_null(strstr(dyti_errno_text(EFBIG), "File too large"));
    assert_non_null(strstr(dyti_errno_text(EFBIG), "ulimit -f"));
    assert_non_null(strstr(dyti_errno_text(EMFILE), "Too many open files"));
    assert_non_null(strstr(dyti_errno_text(EMFILE), "ulimit -n"));
    assert_string_equal(strerror(ENOSPC), dyti_errno_text(ENOSPC));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(limits_of_the_process_name_the_remedy),
    cmocka_unit_test(every_status_has_name_text_and_class),
    cmocka_unit_test(unknown_status_is_named_so),
    cmocka_unit_test(fail_returns_the_status_and_writes_cause_and_place),
    cmocka_unit_test(notes_go_outward_and_a_new_failure_starts_anew),
    cmocka_unit_test(own_text_may_be_an_argument),
    cmocka_unit_test(adopted_text_replaces_and_may_be_our_own),
    cmocka_unit_test(what_is_said_goes_on_to_another_copy),
    cmocka_unit_test(long_text_is_cut_and_never_overflows),
    cmocka_unit_test(text_belongs_to_its_thread),
};
DYT_TEST_MAIN(tests)
