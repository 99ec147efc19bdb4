/* Rows of a session that lie where they do not: pointers that are wrong from
 * the start, memory that goes away, devices that break, calls that fail. */
#include "session_scene.h"

/* ---- what is refused ----------------------------------------------------- */

static void enter_wrongly(struct scene *s, enum dyt_status want)
{
    struct member *r = s->receiver[0].m;

    assert_ok(enter(s->trainer[0].m));
    if (enter(r) != want) {
        fail_msg("%s: %s", dyt_status_name(r->status), r->text);
    }
}

static void wrong_pointers_are_listed_at_once(void **state)
{
    void *freed = NULL, *little = NULL;
    struct party *r;
    struct scene s;

    (void)state;
    if (!gpusim_simulates()) { /* which takes less than a page for a page */
        skip();
    }
    freed = dyt_sim_alloc(1000);
    little = dyt_sim_alloc(100);
    s = with_members(1, 1);
    r = &s.receiver[0];
    put_on_device(r, 0);
    assert_cuda(cudaFree(freed));
    r->m->row[0].data = r->m->own[0];
    r->m->row[1].data = freed;
    r->m->row[2].data = little;
    r->m->row[3].device.uuid[15] ^= 1;
    enter_wrongly(&s, DYT_ERR_INVALID);
    /* a device that is not there, before anything else can be asked */
    assert_non_null(strstr(r->m->text, "nobody has this UUID"));
    end_party(&s.receiver[0]);
    end_party(&s.trainer[0]);

    s = with_members(1, 1);
    r = &s.receiver[0];
    put_on_device(r, 0);
    r->m->row[0].data = r->m->own[0];
    r->m->row[1].data = freed;
    r->m->row[2].data = little;
    snprintf(r->m->tensor[3], NAME_BYTES, "ditched"); /* and a wrong name */
    enter_wrongly(&s, DYT_ERR_LAYOUT);
    assert_non_null(strstr(r->m->text, "row dense"));
    assert_non_null(strstr(r->m->text, "row narrow"));
    assert_non_null(strstr(r->m->text, "ends after 100"));
    assert_non_null(strstr(r->m->text, "ditched"));
    assert_cuda(cudaFree(little));
    all_end(&s);
}

static void memory_of_another_device_is_refused(void **state)
{
    struct scene s;
    void *other;

    (void)state;
    if (!gpusim_simulates()) {
        skip();
    }
    gpusim_have_devices(2);
    s = with_members(1, 1);
    put_on_device(&s.receiver[0], 0);
    assert_cuda(cudaSetDevice(1));
    other = dyt_sim_alloc(1);
    s.receiver[0].m->row[4].device = device_of(other, NULL);
    assert_cuda(cudaFree(other));
    assert_cuda(cudaSetDevice(0));
    enter_wrongly(&s, DYT_ERR_INVALID);
    assert_non_null(
        strstr(s.receiver[0].m->text, "row columns lies on device"));
    all_end(&s);
}

static void what_cannot_be_is_refused_by_name(void **state)
{
    struct scene s = with_members(1, 1);
    struct member *r = s.receiver[0].m;

    (void)state;
    put_on_device(&s.receiver[0], 0);
    r->row[0].flags = DYT_ROW_STAGED;
    enter_wrongly(&s, DYT_ERR_UNSUPPORTED);
    assert_non_null(strstr(r->text, "row dense lies on a CUDA device"));
    all_end(&s);

    s = with_members(1, 1);
    r = s.receiver[0].m;
    put_on_device(&s.receiver[0], 0);
    r->row[0].data = (char *)s.receiver[0].there[5] + 16;
    enter_wrongly(&s, DYT_ERR_LAYOUT);
    assert_non_null(strstr(r->text, "share byte"));
    all_end(&s);
}

static void a_missing_module_is_said(void **state)
{
    const char *modules = getenv("DYNATRAIN_MODULES");
    char keep[4096];
    struct scene s = with_members(1, 1);

    (void)state;
    snprintf(keep, sizeof(keep), "%s", modules);
    put_on_device(&s.receiver[0], 0);
    setenv("DYNATRAIN_MODULES", s.folder, 1);
    enter_wrongly(&s, DYT_ERR_UNSUPPORTED);
    assert_non_null(strstr(s.receiver[0].m->text, "DYNATRAIN_MODULES"));
    setenv("DYNATRAIN_MODULES", keep, 1);
    all_end(&s);
}

/* ---- what goes away ------------------------------------------------------ */

static void memory_that_was_freed_is_not_read(void **state)
{
    struct scene s = of_way(&ways[5], 2, 1);
    struct party *t = &s.trainer[0];
    struct member *m[2] = {t->m, s.trainer[1].m};

    (void)state;
    pass_version(&s, 1);
    assert_cuda(cudaFree(t->there[0]));
    t->there[0] = NULL;
    all_ask(m, 2, 2, -1);
    all_call(m, 2, offer_as_is);
    assert_int_equal(DYT_ERR_INVALID, m[0]->status);
    assert_non_null(strstr(m[0]->text, "row dense"));
    if (m[1]->status == DYT_OK) { /* it hears it from its ticket */
        assert_int_equal(DYT_ERR_INVALID, end_offer(m[1]));
    }
    assert_true(holds_there(&s.receiver[0], 1));
    all_end(&s);
}

static void memory_that_was_freed_is_not_written(void **state)
{
    struct scene s;
    uint64_t version = 0;

    (void)state;
    for (size_t w = 3; w < 5; w++) {
        struct member *t, *r;

        s = of_way(&ways[w], 1, 2);
        t = s.trainer[0].m;
        r = s.receiver[1].m;
        pass_version(&s, 1);
        assert_cuda(cudaFree(s.receiver[1].there[0]));
        s.receiver[1].there[0] = NULL;
        write_all(&s, 2);
        t->version = 2;
        assert_ok(offer_as_is(t));
        all_ask((struct member *[]){s.receiver[0].m, r}, 2, 2, -1);
        all_call((struct member *[]){s.receiver[0].m, r}, 2, receive);
        assert_int_equal(DYT_ERR_INVALID, r->status);
        assert_int_equal(DYT_ERR_INVALID, s.receiver[0].m->status);
        assert_non_null(strstr(s.receiver[0].m->text, "row dense"));
        assert_true(holds_there(&s.receiver[0], 1)); /* not committed */
        assert_ok(dyt_session_valid(s.receiver[0].m->session, &version));
        assert_ok(dyt_ticket_cancel(t->ticket));
        dyt_ticket_destroy(t->ticket);
        all_end(&s);
    }
}

static void a_device_that_breaks_offers_nothing(void **state)
{
    struct scene s;
    uint64_t version = 0;

    (void)state;
    if (!gpusim_simulates()) {
        skip();
    }
    s = of_way(&ways[0], 1, 1);
    pass_version(&s, 1);
    assert_cuda(cudaDeviceSynchronize());
    gpusim_fail_work(1, (int)cudaErrorLaunchFailure);
    s.trainer[0].m->version = 2;
    assert_status(DYT_ERR_DEVICE, offer_as_is(s.trainer[0].m));
    assert_true(gpusim_has_failed());
    assert_non_null(strstr(s.trainer[0].m->text, "cudaErrorLaunchFailure"));
    assert_ok(dyt_session_valid(s.receiver[0].m->session, &version));
    assert_int_equal(1, version);
    assert_true(holds_there(&s.receiver[0], 1)); /* it is the host's */
    lose_device(&s);
}

static void a_device_that_breaks_leaves_what_is_said(void **state)
{
    uint64_t version = 0;

    (void)state;
    if (!gpusim_simulates()) {
        skip();
    }
    for (size_t w = 3; w < 5; w++) {
        struct scene s = of_way(&ways[w], 1, 1);
        struct member *t = s.trainer[0].m, *r = s.receiver[0].m;

        pass_version(&s, 1);
        write_all(&s, 2);
        t->version = 2;
        assert_ok(offer_as_is(t));
        /* the copy that follows the commit */
        gpusim_fail_work(1, (int)cudaErrorLaunchFailure);
        r->version = 2;
        assert_int_equal(DYT_ERR_DEVICE, receive(r));
        assert_true(gpusim_has_failed());
        assert_non_null(strstr(r->text, "cudaErrorLaunchFailure"));
        assert_status(DYT_ERR_STATE, dyt_session_valid(r->session, &version));
        /* broken already: nobody commits, and the trainer goes on */
        t->status = dyt_ticket_cancel(t->ticket);
        dyt_ticket_destroy(t->ticket);
        t->ticket = NULL;
        t->version = 3;
        assert_ok(offer(t));
        r->version = 3;
        assert_int_equal(DYT_ERR_DEVICE, receive(r));
        assert_ok(dyt_ticket_cancel(t->ticket));
        dyt_ticket_destroy(t->ticket);
        lose_device(&s);
    }
}

/* Each call that may fail, from the publish to the end of a receive. */
static void every_failing_call_is_heard(void **state)
{
    uint64_t step = dyt_test_rounds(1, 2) == 2 ? 1 : 5;
    bool done = false;

    (void)state;
    if (!gpusim_simulates()) {
        skip();
    }
    for (uint64_t nth = 1; !done; nth += step) {
        struct scene s = with_members(1, 1);
        struct member *t = s.trainer[0].m, *r = s.receiver[0].m;
        bool failed = false;

        put_on_device(&s.trainer[0], 0);
        put_on_device(&s.receiver[0], 0);
        t->join.timeout_ns = r->join.timeout_ns = 10 * SECOND;
        write_all(&s, 1);
        assert_cuda(cudaDeviceSynchronize());
        gpusim_fail_call(NULL, nth, 0);
        failed = enter(t) != DYT_OK || enter(r) != DYT_OK;
        t->version = r->version = 1;
        if (!failed) {
            failed = offer_as_is(t) != DYT_OK;
        }
        if (!failed) {
            r->deadline_ns = 10 * SECOND;
            failed = receive(r) != DYT_OK;
            assert_true(failed || dyt_ticket_wait(t->ticket, -1) == DYT_OK);
            (void)dyt_ticket_cancel(t->ticket);
            dyt_ticket_destroy(t->ticket);
        }
        done = !gpusim_has_failed();
        gpusim_fail_call(NULL, 0, 0);
        /* or it went another way: an unpinned mirror */
        assert_true(!done || !failed);
        assert_true(failed || holds_there(&s.receiver[0], 1));
        all_end(&s);
    }
}

static const struct CMUnitTest tests[] = {
    sim_test(wrong_pointers_are_listed_at_once),
    sim_test(memory_of_another_device_is_refused),
    sim_test(what_cannot_be_is_refused_by_name),
    sim_test(a_missing_module_is_said),
    sim_test(memory_that_was_freed_is_not_read),
    sim_test(memory_that_was_freed_is_not_written),
    sim_test(a_device_that_breaks_offers_nothing),
    sim_test(a_device_that_breaks_leaves_what_is_said),
    sim_test(every_failing_call_is_heard),
};
DYT_TEST_MAIN(tests)
