/* NCCL's library: what is said of one that is missing, too old, of another
 * version or not whole.  Doubles, with one fault each; and the real one, where
 * this machine has it: all that is called is in it. */
#include "dyt_test.h"

#include "comm/nccl/calls.h"

static const struct {
    const char *library, *state, *says;
    uint32_t version;
} rows[] = {
    {"whole", "ready", "NCCL 2.28.9", 22809},
    {"plain", "ready", "not registered", 21803},
    {"old", "too old", "NCCL 2.17.1, and 2.18 is needed", 21701},
    {"ancient", "too old", "NCCL 2.7.8", 2708},
    {"next", "another version", "NCCL 3.0.0", 30000},
    {"missing", "call missing", "ncclCommSplit", 22809},
    {"no_words", "call missing", "does not say its version", 0},
    {"absent", "no library", "libnccl2", 0},
};

static void each_state_has_its_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(rows); i++) {
        struct dyti_nccl_calls calls;
        struct dyti_group_report r;
        char path[4096];
        bool whole;

        snprintf(path, sizeof(path), "%s/%s/libnccl.so.2", DYT_FAKES,
                 rows[i].library);
        whole = dyti_nccl_open(path, &calls, &r);
        assert_int_equal(strcmp(rows[i].state, "ready") == 0, whole);
        assert_string_equal(rows[i].state, r.state);
        assert_int_equal(rows[i].version, r.version);
        if (strstr(r.text, rows[i].says) == NULL) {
            fail_msg("%s: %s", rows[i].library, r.text);
        }
        assert_true(whole || strstr(r.text, "LD_LIBRARY_PATH") != NULL);
        assert_true(!whole || calls.ncclCommSplit != NULL);
        assert_true(!whole || (calls.ncclCommRegister != NULL) ==
                                  (strcmp(rows[i].library, "whole") == 0));
    }
}

static void the_real_one_is_whole(void **state)
{
    struct dyti_nccl_calls calls;
    struct dyti_group_report r;

    (void)state;
    if (DYT_REAL_NCCL[0] == '\0' || access(DYT_REAL_NCCL, R_OK) != 0) {
        skip();
    }
    if (!dyti_nccl_open(DYT_REAL_NCCL, &calls, &r)) {
        fail_msg("%s: %s", r.state, r.text);
    }
    assert_true(r.version >= DYTI_NCCL_MIN);
    assert_non_null(calls.ncclGetErrorString(ncclInProgress));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_state_has_its_words),
    cmocka_unit_test(the_real_one_is_whole),
};
DYT_TEST_MAIN(tests)
