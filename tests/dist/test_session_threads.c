/* Calls from several threads, from hooks, and from a child of fork: refused or
 * waited for, never a hang, never a session that is gone under who is inside.
 */
#include "lib/session_internal.h"
#include "session_world.h"

#include <sys/wait.h>

#define MS 1000000ll

/* ---- threads ------------------------------------------------------------- */

static enum dyt_status wait_ticket(struct member *m)
{
    return keep_status(m, dyt_ticket_wait(m->ticket, -1));
}

/* Until a call is inside its session. */
static void await_inside(struct member *m)
{
    struct timespec tick = {0, MS};
    uint32_t inside = 0;

    while (inside == 0) {
        pthread_mutex_lock(&m->session->lock);
        inside = m->session->inside;
        pthread_mutex_unlock(&m->session->lock);
        nanosleep(&tick, NULL);
    }
}

struct server {
    struct member *m;
    uint32_t pauses, resumes;
    enum dyt_status second; /* what another thread's receive says meanwhile */
};

static void *receive_too(void *arg)
{
    struct server *v = arg;

    v->second = dyt_session_receive(v->m->session, 1, -1, NULL);
    return NULL;
}

static enum dyt_status count_pause(void *arg)
{
    struct server *v = arg;
    pthread_t thread;

    v->pauses++;
    if (pthread_create(&thread, NULL, receive_too, v) != 0) {
        return DYT_ERR_NOMEM;
    }
    pthread_join(thread, NULL);
    return v->resumes == 0 ? DYT_OK : DYT_ERR_STATE;
}

static enum dyt_status count_resume(void *arg)
{
    ((struct server *)arg)->resumes++;
    return DYT_OK;
}

/* The other thread's is refused at once, and does not resume what it has not
 * paused. */
static void one_receive_at_a_time(void **state)
{
    struct member t, r;
    struct member_call call;
    struct server v = {.m = &r};
    struct dyt_session_hooks hooks = {.struct_size = sizeof(hooks),
                                      .arg = &v,
                                      .pause = count_pause,
                                      .resume = count_resume};

    (void)state;
    pair(&t, &r, session_folder(), DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    assert_ok(dyt_session_set_hooks(r.session, &hooks));
    r.version = 1;
    call_start(&call, &r, receive);
    await_inside(&r);
    write_version(&t, 1);
    t.version = 1;
    assert_ok(offer_as_is(&t));
    assert_ok(call_end(&call));
    assert_ok(end_offer(&t));
    assert_int_equal(DYT_ERR_BUSY, v.second);
    assert_int_equal(1, v.pauses);
    assert_int_equal(1, v.resumes);
    assert_int_equal(1, version_of(&r));
    leave(&r);
    leave(&t);
}

/* The thread that waits hears of it, and the session is there until it has. */
static void leaving_waits_for_who_is_inside(void **state)
{
    const char *folder = session_folder();

    (void)state;
    for (uint32_t i = 0; i < dyt_test_rounds(20, 200); i++) {
        struct member t, r;
        struct member_call call[2];

        pair(&t, &r, folder, DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
        write_version(&t, 1);
        t.version = 1;
        assert_ok(offer_as_is(&t));
        r.version = 2; /* nobody offers it */
        call_start(&call[0], &r, receive);
        call_start(&call[1], &t, wait_ticket);
        await_inside(&r);
        await_inside(&t);
        dyt_session_leave(i % 2 == 0 ? r.session : t.session);
        if (i % 2 == 0) {
            assert_int_equal(DYT_ERR_STATE, call_end(&call[0]));
            assert_non_null(strstr(r.text, "session"));
            r.session = NULL;
            assert_ok(dyt_ticket_cancel(t.ticket));
            assert_int_equal(DYT_ERR_CANCELLED, call_end(&call[1]));
        } else {
            assert_true(call_end(&call[1]) != DYT_OK);
            t.session = NULL;
            assert_true(call_end(&call[0]) != DYT_OK);
        }
        dyt_ticket_destroy(t.ticket);
        leave(&r);
        leave(&t);
    }
}

/* ---- hooks --------------------------------------------------------------- */

static enum dyt_status leave_in_hook(void *arg)
{
    struct member *m = arg;
    uint64_t version;

    dyt_session_leave(m->session);
    dyt_session_leave(m->session); /* it is there until its call returns */
    return dyt_session_valid(m->session, &version) == DYT_ERR_STATE
               ? DYT_OK
               : DYT_ERR_IO;
}

static enum dyt_status no_matter(void *arg)
{
    (void)arg;
    return DYT_OK;
}

static enum dyt_status leave_in_memory_hook(void *arg, uint32_t tags)
{
    (void)tags;
    return leave_in_hook(arg);
}

/* The session is left when the call that runs the hook returns. */
static void a_hook_may_leave(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct member t, r;
        struct dyt_session_hooks hooks = {
            .struct_size = sizeof(hooks),
            .arg = &r,
            .pause = i == 0 ? leave_in_hook : no_matter,
            .resume = i == 1 ? leave_in_hook : no_matter,
            .release = leave_in_memory_hook};
        dyt_ticket *ticket;

        pair(&t, &r, session_folder(), DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
        assert_ok(dyt_session_set_hooks(r.session, &hooks));
        write_version(&t, 1);
        assert_ok(offer_version(&t, 1, false, &ticket));
        if (i == 2) {
            assert_ok(dyt_session_release(r.session, DYT_TAG_WEIGHTS));
        } else {
            assert_ok(receive_version(&r, 1));
            assert_true(get(&r.row[0], r.own[0], 5) ==
                        value_of(1, names[0], 5));
        }
        r.session = NULL; /* it is gone */
        dyt_ticket_destroy(ticket);
        assert_ok(enter(&r)); /* its place is free */
        send_version(&t, &r, 2);
        leave(&r);
        leave(&t);
    }
}

/* ---- forks --------------------------------------------------------------- */

static int in_the_child(struct member *t, struct member *r, dyt_ticket *ticket)
{
    enum dyt_status st[8];
    dyt_ticket *none = NULL;
    uint64_t n;

    st[0] = dyt_session_receive(r->session, 1, -1, NULL);
    if (strstr(dyt_error_text(), "of which this one was forked") == NULL) {
        return 2;
    }
    st[1] = offer_version(t, 9, false, &none);
    st[2] = dyt_ticket_wait(ticket, -1);
    st[3] = dyt_ticket_done(ticket);
    st[4] = dyt_ticket_cancel(ticket);
    st[5] = dyt_session_valid(r->session, &n);
    st[6] = dyt_session_release(r->session, DYT_TAG_WEIGHTS);
    st[7] = dyt_session_will_write(t->session);
    dyt_session_interrupt(r->session);
    dyt_ticket_destroy(ticket);
    dyt_session_leave(r->session);
    dyt_session_leave(t->session);
    for (int i = 0; i < 8; i++) {
        if (st[i] != DYT_ERR_STATE) {
            return 3 + i;
        }
    }
    return 0;
}

/* Whatever lock was held when it was forked. */
static void a_child_has_no_session(void **state)
{
    struct member t, r;
    dyt_ticket *ticket;

    (void)state;
    pair(&t, &r, session_folder(), DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    write_version(&t, 1);
    assert_ok(offer_version(&t, 1, false, &ticket));
    for (int i = 0; i < 10; i++) {
        int status = 0;
        pid_t child = fork();

        if (child == 0) {
            _exit(in_the_child(&t, &r, ticket));
        }
        assert_int_equal(child, waitpid(child, &status, 0));
        assert_true(WIFEXITED(status));
        assert_int_equal(0, WEXITSTATUS(status));
    }
    assert_ok(receive_version(&r, 1)); /* and the parent's goes on */
    assert_ok(dyt_ticket_wait(ticket, -1));
    dyt_ticket_destroy(ticket);
    send_version(&t, &r, 2);
    leave(&r);
    leave(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_receive_at_a_time),
    cmocka_unit_test(leaving_waits_for_who_is_inside),
    cmocka_unit_test(a_hook_may_leave),
    cmocka_unit_test(a_child_has_no_session),
};
DYT_TEST_MAIN(tests)
