/* Broken schedules are found, each by name. */
#include "dyt_test.h"

#include "sched/sched.h"

static void broken_schedules_are_refused(void **state)
{
    struct dyti_step step[3] = {
        {.kind = DYTI_STEP_COPY, .next_first = 0, .next_count = 1},
        {.kind = DYTI_STEP_COPY, .next_first = 1, .next_count = 1},
        {.kind = DYTI_STEP_FENCE, .wait_count = 2, .next_first = 2}};
    uint32_t next[3] = {2, 2, 0};
    struct dyti_schedule s = {
        .step = step, .step_count = 3, .next = next, .next_total = 2};

    (void)state;
    assert_ok(dyti_schedule_check(&s));

    step[2].wait_count = 1;
    assert_status(DYT_ERR_INVALID, dyti_schedule_check(&s));
    assert_error_has("step 2 waits for 1 steps, 2 name it");
    step[2].wait_count = 2;

    step[0].span_count = 1;
    assert_status(DYT_ERR_INVALID, dyti_schedule_check(&s));
    assert_error_has("step 0 refers to");
    step[0].span_count = 0;

    next[1] = 7;
    assert_status(DYT_ERR_INVALID, dyti_schedule_check(&s));
    assert_error_has("step 1 is followed by step 7 of 3");

    next[0] = 1; /* 0 -> 1 -> 0 */
    next[1] = 0;
    step[0].wait_count = step[1].wait_count = 1;
    step[2].wait_count = 0;
    assert_status(DYT_ERR_INVALID, dyti_schedule_check(&s));
    assert_error_has("waits in a circle");
    next[0] = next[1] = 2;
    step[0].wait_count = step[1].wait_count = 0;
    step[2].wait_count = 2;

    step[0].next_count = 0; /* nothing waits for it */
    step[2].wait_count = 1;
    assert_status(DYT_ERR_INVALID, dyti_schedule_check(&s));
    assert_error_has("step 0 has no follower");
    step[0].next_count = 1;
    step[2].wait_count = 2;

    step[2].kind = DYTI_STEP_COPY;
    assert_status(DYT_ERR_INVALID, dyti_schedule_check(&s));
    assert_error_has("0 fences");
    s.step_count = 0;
    assert_status(DYT_ERR_INVALID, dyti_schedule_check(&s));
}

static void steps_have_names(void **state)
{
    (void)state;
    assert_string_equal("copy", dyti_step_kind_name(DYTI_STEP_COPY));
    assert_string_equal("fence", dyti_step_kind_name(DYTI_STEP_FENCE));
    assert_string_equal("?", dyti_step_kind_name(DYTI_STEP_KIND_COUNT));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(broken_schedules_are_refused),
    cmocka_unit_test(steps_have_names),
};
DYT_TEST_MAIN(tests)
