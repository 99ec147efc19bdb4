/* What a test orders through the environment. */
#include "cli/fault.h"
#include "dyt_test.h"

static enum dyt_status read_fault(struct dyti_faults *f, const char *text,
                                  int32_t self)
{
    enum dyt_status st;

    setenv("DYNATRAIN_FAULT", text, 1);
    st = dyti_faults_read(f, self);
    unsetenv("DYNATRAIN_FAULT");
    return st;
}

static void who_is_meant(void **state)
{
    struct dyti_faults f;

    (void)state;
    assert_ok(read_fault(&f, "rank=2,at=train,step=3,how=fail", 2));
    assert_true(f.armed);
    assert_ok(read_fault(&f, "rank=2,at=train,step=3,how=fail", 1));
    assert_false(f.armed);
    assert_ok(read_fault(&f, "at=train,how=fail", 1));
    assert_true(f.armed);
    assert_ok(read_fault(&f, "at=train,how=fail", DYTI_FAULT_MANAGER));
    assert_false(f.armed);
    assert_ok(
        read_fault(&f, "rank=manager,at=begin,how=fail", DYTI_FAULT_MANAGER));
    assert_true(f.armed);
    assert_ok(dyti_faults_read(&f, 0));
    assert_false(f.armed);
}

static void when_it_comes(void **state)
{
    struct dyti_faults f;
    struct dyti_switch_order order = {0};

    (void)state;
    assert_ok(read_fault(&f, "at=train,step=3,how=fail", 0));
    dyti_faults_step(&f, 2);
    assert_ok(dyti_faults_at(&f, "train"));
    dyti_faults_step(&f, 3);
    assert_ok(dyti_faults_at(&f, "trained"));
    assert_status(DYT_ERR_DEVICE, dyti_faults_at(&f, "train"));
    assert_ok(read_fault(&f, "to=train,how=stale,tensor=4", 0));
    dyti_faults_switch(&f, DYTI_TARGET_ROLLOUT, &order);
    assert_int_equal(DYTI_FAULT_NONE, order.fault);
    dyti_faults_switch(&f, DYTI_TARGET_TRAIN, &order);
    assert_int_equal(DYTI_FAULT_STALE, order.fault);
    assert_int_equal(4, order.fault_tensor);
}

static void what_is_misspelt_is_refused(void **state)
{
    static const char *const wrong[] = {
        "rank=x,how=kill", "at=nowhere,how=kill", "how=explode", "rank=1",
        "howe=kill",       "step=one,how=kill",   "how=",        "kill"};
    struct dyti_faults f;

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(wrong); i++) {
        assert_status(DYT_ERR_CONFIG, read_fault(&f, wrong[i], 0));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(who_is_meant),
    cmocka_unit_test(when_it_comes),
    cmocka_unit_test(what_is_misspelt_is_refused),
};
DYT_TEST_MAIN(tests)
