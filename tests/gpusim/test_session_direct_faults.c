/* Updates from device to device, and a device that breaks, is full, or of which
 * some call fails: each mode leaves what it promises, and whoever can goes by
 * mirrors instead. */
#include "session_scene.h"

static struct scene on_one_device(const struct mode *mode, uint32_t verify)
{
    struct scene s = with_members(1, 1);

    put_on_device(&s.trainer[0], 0);
    put_on_device(&s.receiver[0], 0);
    set_mode(&s, mode, verify);
    return s;
}

/* ---- breaks -------------------------------------------------------------- */

/* What a receiver may say when its device is lost. */
static void check_left(const struct mode *mode, struct member *r, bool ok)
{
    uint64_t valid = 0;
    enum dyt_status st = dyt_session_valid(r->session, &valid);

    if (ok) {
        assert_int_equal(DYT_OK, st);
        assert_int_equal(2, valid);
    } else if (st == DYT_OK) { /* before the vote */
        assert_int_equal(1, valid);
    } else {
        /* in place: from the first byte; staged: in the last copy */
        assert_int_equal(DYT_ERR_STATE, st);
        assert_true(mode->commit != DYT_COMMIT_DOUBLE);
    }
}

static bool breaks_at(const struct mode *mode, uint64_t nth)
{
    struct scene s = on_one_device(mode, DYT_VERIFY_FULL);
    struct member *t = s.trainer[0].m, *r = s.receiver[0].m;
    bool broke;

    t->join.timeout_ns = r->join.timeout_ns = 10 * SECOND;
    all_enter(&s);
    pass_version(&s, 1);
    assert_true(is_way(&s, "direct\""));
    write_all(&s, 2);
    t->version = r->version = 2;
    assert_ok(offer_as_is(t));
    assert_cuda(cudaDeviceSynchronize());
    gpusim_fail_work(nth, (int)cudaErrorLaunchFailure);
    (void)receive(r);
    broke = gpusim_has_failed();
    check_left(mode, r, r->status == DYT_OK);
    if (broke && r->status != DYT_OK) { /* or nobody waited for that work */
        assert_true(r->status == DYT_ERR_DEVICE || r->status == DYT_ERR_PEER);
    }
    (void)dyt_ticket_cancel(t->ticket);
    dyt_ticket_destroy(t->ticket);
    t->ticket = NULL;
    if (broke) {
        lose_device(&s);
    } else {
        gpusim_fail_work(0, 0);
        all_end(&s);
    }
    return broke;
}

static void a_device_that_breaks_leaves_what_the_mode_says(void **state)
{
    (void)state;
    if (!gpusim_simulates()) {
        skip();
    }
    for (size_t n = 0; n < DYT_TEST_COUNT(modes); n++) {
        uint64_t nth = 1;

        while (breaks_at(&modes[n], nth)) {
            gpusim_reset();
            nth++;
        }
        print_message("%s: %u pieces of work\n", modes[n].name,
                      (unsigned)nth - 1);
        assert_true(nth > 1);
        gpusim_reset();
    }
}

/* ---- is full ------------------------------------------------------------- */

/* Room for lists there is, for handles and scratch more and more. */
static void a_full_device_goes_by_mirrors(void **state)
{
    uint32_t direct = 0, mirrors = 0;

    (void)state;
    if (!gpusim_simulates()) {
        skip();
    }
    for (uint64_t step = 1; step < 24 && direct == 0; step++) {
        struct gpusim_machine machine;
        struct scene s;

        gpusim_reset();
        s = on_one_device(&modes[0], DYT_VERIFY_FULL);
        all_enter(&s);
        gpusim_get_machine(&machine);
        machine.memory_bytes = gpusim_held_bytes() + (step << 19);
        gpusim_set_machine(&machine);
        pass_version(&s, 1);
        pass_version(&s, 2);
        direct += is_way(&s, "direct\"");
        mirrors += is_way(&s, "by mirrors: member ");
        all_end(&s);
    }
    assert_true(mirrors > 0 && direct == 1);
}

/* ---- calls that fail ----------------------------------------------------- */

/* From the first receive on. */
static bool fails_at(const struct mode *mode, uint64_t nth, uint32_t *mirrors)
{
    struct scene s = on_one_device(mode, DYT_VERIFY_FULL);
    struct member *t = s.trainer[0].m, *r = s.receiver[0].m;
    bool failed, ok;

    t->join.timeout_ns = r->join.timeout_ns = 10 * SECOND;
    all_enter(&s);
    write_all(&s, 1);
    assert_cuda(cudaDeviceSynchronize());
    t->version = r->version = 1;
    assert_ok(offer_as_is(t));
    gpusim_fail_call(NULL, nth, 0);
    r->deadline_ns = 10 * SECOND;
    ok = receive(r) == DYT_OK;
    failed = gpusim_has_failed();
    gpusim_fail_call(NULL, 0, 0);
    if (ok) { /* or it went another way */
        assert_true(holds_there(&s.receiver[0], 1));
        *mirrors += is_way(&s, "by mirrors: member ");
        end_ticket(t, DYT_OK);
    } else {
        assert_true(failed);
        (void)dyt_ticket_cancel(t->ticket);
        dyt_ticket_destroy(t->ticket);
        t->ticket = NULL;
    }
    pass_version(&s, 2); /* and it is over */
    all_end(&s);
    return failed;
}

static void every_failing_call_is_heard(void **state)
{
    uint64_t step = dyt_test_rounds(1, 2) == 2 ? 1 : 29;

    (void)state;
    if (!gpusim_simulates()) {
        skip();
    }
    for (size_t n = 0; n < DYT_TEST_COUNT(modes); n++) {
        uint32_t mirrors = 0;
        uint64_t nth = 1 + n;

        while (fails_at(&modes[n], nth, &mirrors)) {
            nth += step;
        }
        print_message("%s: %u calls, %u times by mirrors\n", modes[n].name,
                      (unsigned)nth, mirrors);
        assert_true(nth > 1 + n && mirrors > 0);
    }
}

static const struct CMUnitTest tests[] = {
    sim_test(a_device_that_breaks_leaves_what_the_mode_says),
    sim_test(a_full_device_goes_by_mirrors),
    sim_test(every_failing_call_is_heard),
};
DYT_TEST_MAIN(tests)
