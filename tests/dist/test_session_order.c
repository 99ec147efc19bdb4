/* The order of things: hooks around an update, memory that goes and comes back,
 * offers and versions.  Whatever comes in another order is refused by name, and
 * nothing is lost by that. */
#include "session_world.h"

/* ---- hooks --------------------------------------------------------------- */

struct server {
    struct member *m;
    pthread_t thread; /* that receives */
    char calls[32];   /* P, R, l (release), s (restore), in order */
    uint64_t seen[8]; /* the version that the rows hold at each call */
    uint64_t valid[8];
    size_t count;
    enum dyt_status pause, resume, release, restore; /* what they answer */
    bool elsewhere; /* one was called in another thread */
};

static void note(struct server *v, char call)
{
    v->elsewhere = v->elsewhere || !pthread_equal(v->thread, pthread_self());
    if (v->count < 8) {
        uint64_t version = 0;

        v->seen[v->count] = version_of(v->m);
        v->valid[v->count] =
            dyt_session_valid(v->m->session, &version) == DYT_OK ? version : 0;
        v->calls[v->count++] = call;
        v->calls[v->count] = '\0';
    }
}

static enum dyt_status on_pause(void *arg)
{
    struct server *v = arg;

    note(v, 'P');
    return v->pause;
}

static enum dyt_status on_resume(void *arg)
{
    struct server *v = arg;

    note(v, 'R');
    return v->resume;
}

static enum dyt_status on_release(void *arg, uint32_t tags)
{
    struct server *v = arg;

    (void)tags;
    v->calls[v->count++] = 'l';
    v->calls[v->count] = '\0';
    return v->release;
}

static enum dyt_status on_restore(void *arg, uint32_t tags)
{
    struct server *v = arg;

    (void)tags;
    v->calls[v->count++] = 's';
    v->calls[v->count] = '\0';
    return v->restore;
}

static void hook(struct server *v, struct member *m)
{
    struct dyt_session_hooks hooks = {.struct_size = sizeof(hooks),
                                      .arg = v,
                                      .pause = on_pause,
                                      .resume = on_resume,
                                      .release = on_release,
                                      .restore = on_restore};

    *v = (struct server){.m = m, .thread = pthread_self()};
    assert_ok(dyt_session_set_hooks(m->session, &hooks));
}

static void begin_again(struct server *v)
{
    v->count = 0;
    v->calls[0] = '\0';
}

/* Paused while the old is whole, resumed when the new is, both by who called.
 */
static void an_update_is_between_pause_and_resume(void **state)
{
    static const uint32_t mode[][2] = {{DYT_COMMIT_STAGED, DYT_MEMORY_OWN},
                                       {DYT_COMMIT_IN_PLACE, DYT_MEMORY_OWN},
                                       {DYT_COMMIT_DOUBLE, DYT_MEMORY_MAPPED}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(mode); i++) {
        struct server v;
        struct member t, r;

        pair(&t, &r, dyt_test_dir(), mode[i][0], mode[i][1]);
        hook(&v, &r);
        send_version(&t, &r, 1);
        assert_string_equal("PR", v.calls);
        assert_int_equal(1, v.seen[1]);
        assert_int_equal(1, v.valid[1]);
        begin_again(&v);
        send_version(&t, &r, 2);
        assert_string_equal("PR", v.calls);
        assert_int_equal(1, v.seen[0]);
        assert_int_equal(1, v.valid[0]);
        assert_int_equal(2, v.seen[1]);
        assert_int_equal(2, v.valid[1]);
        assert_false(v.elsewhere);
        /* nothing to do: nobody is paused */
        begin_again(&v);
        assert_ok(receive_version(&r, 1));
        assert_string_equal("", v.calls);
        leave(&r);
        leave(&t);
    }
}

static void a_server_that_does_not_pause_keeps_the_old(void **state)
{
    struct server v;
    struct member t, r;
    uint64_t version = 0;
    dyt_ticket *ticket;

    (void)state;
    pair(&t, &r, dyt_test_dir(), DYT_COMMIT_IN_PLACE, DYT_MEMORY_OWN);
    hook(&v, &r);
    send_version(&t, &r, 1);
    begin_again(&v);
    v.pause = DYT_ERR_IO;
    write_version(&t, 2);
    assert_ok(offer_version(&t, 2, false, &ticket));
    assert_status(DYT_ERR_STATE, receive_version(&r, 2));
    assert_error_has("pause hook failed");
    assert_string_equal("P", v.calls); /* what did not pause is not resumed */
    assert_int_equal(1, version_of(&r));
    assert_ok(dyt_session_valid(r.session, &version));
    assert_int_equal(1, version);
    v.pause = DYT_OK; /* and it may try again */
    assert_ok(receive_version(&r, 2));
    assert_int_equal(2, version_of(&r));
    assert_ok(dyt_ticket_wait(ticket, -1));
    dyt_ticket_destroy(ticket);
    leave(&r);
    leave(&t);
}

static void a_server_that_does_not_resume_holds_the_new(void **state)
{
    struct server v;
    struct member t, r;
    uint64_t version = 0;
    dyt_ticket *ticket;

    (void)state;
    pair(&t, &r, dyt_test_dir(), DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    hook(&v, &r);
    v.resume = DYT_ERR_DEVICE;
    write_version(&t, 1);
    assert_ok(offer_version(&t, 1, false, &ticket));
    assert_status(DYT_ERR_DEVICE, receive_version(&r, 1));
    assert_error_has("resume hook failed");
    assert_string_equal("PR", v.calls);
    assert_ok(dyt_session_valid(r.session, &version));
    assert_int_equal(1, version);
    assert_int_equal(1, version_of(&r));
    assert_ok(dyt_ticket_wait(ticket, -1));
    dyt_ticket_destroy(ticket);
    v.resume = DYT_OK;
    send_version(&t, &r, 2);
    leave(&r);
    leave(&t);
}

/* One rank of a replica does not pause: all its ranks hear so, at once. */
struct both {
    const char *folder;
    pthread_barrier_t published;
    pthread_barrier_t tried;
};

static void member_body(struct dyt_rank *me)
{
    struct both *all = me->arg;
    bool trainer = me->rank == 0;
    int64_t start = 0, took;
    struct timespec now;
    dyt_ticket *ticket = NULL;
    struct server v;
    struct member m;
    enum dyt_status st;

    describe(&m, all->folder, trainer ? DYT_ROLE_TRAINER : DYT_ROLE_RECEIVER, 0,
             trainer ? 0 : me->rank - 1, trainer ? 1 : 2);
    m.join.timeout_ns = 60 * SECOND;
    st = enter(&m);
    pthread_barrier_wait(&all->published);
    if (trainer && st == DYT_OK) {
        write_version(&m, 1);
        st = offer_version(&m, 1, false, &ticket);
    } else if (st == DYT_OK) {
        struct dyt_session_hooks hooks = {.struct_size = sizeof(hooks),
                                          .arg = &v,
                                          .pause = on_pause,
                                          .resume = on_resume};

        v = (struct server){.m = &m, .thread = pthread_self()};
        v.pause = me->rank == 1 ? DYT_ERR_IO : DYT_OK;
        (void)dyt_session_set_hooks(m.session, &hooks);
        clock_gettime(CLOCK_MONOTONIC, &now);
        start = now.tv_sec;
        st = receive_version(&m, 1);
        clock_gettime(CLOCK_MONOTONIC, &now);
        took = now.tv_sec - start;
        if (st != DYT_ERR_STATE || took > 30 ||
            strstr(dyti_error_text(), "pause hook failed") == NULL) {
            rank_wrong(me, "%s after %lld s: %s", dyt_status_name(st),
                       (long long)took, dyti_error_text());
        }
        st = DYT_OK;
    }
    if (st != DYT_OK) {
        rank_wrong(me, "%s", dyti_error_text());
    }
    pthread_barrier_wait(&all->tried);
    dyt_ticket_destroy(ticket);
    if (!trainer) {
        leave(&m);
    }
    pthread_barrier_wait(&all->published);
    if (trainer) {
        leave(&m);
    }
}

static void one_rank_that_does_not_pause_is_heard_by_all(void **state)
{
    struct both all = {.folder = dyt_test_dir()};

    (void)state;
    assert_int_equal(0, chmod(all.folder, 0700));
    pthread_barrier_init(&all.published, NULL, 3);
    pthread_barrier_init(&all.tried, NULL, 3);
    dyt_ranks_run(DYT_RANKS_THREADS, 3, member_body, &all);
    pthread_barrier_destroy(&all.published);
    pthread_barrier_destroy(&all.tried);
}

/* ---- memory: weights, receive, commit, kv_cache, resume -------------------
 */

static void memory_comes_back_in_one_order(void **state)
{
    static const uint32_t mode[][2] = {{DYT_COMMIT_STAGED, DYT_MEMORY_OWN},
                                       {DYT_COMMIT_IN_PLACE, DYT_MEMORY_MAPPED},
                                       {DYT_COMMIT_DOUBLE, DYT_MEMORY_MAPPED}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(mode); i++) {
        struct server v;
        struct member t, r;
        uint64_t version;
        dyt_ticket *ticket;
        dyt_session *s;

        pair(&t, &r, dyt_test_dir(), mode[i][0], mode[i][1]);
        s = r.session;
        hook(&v, &r);
        send_version(&t, &r, 1);
        begin_again(&v);
        assert_ok(dyt_session_release(s, DYT_TAG_KV_CACHE));
        assert_ok(dyt_session_release(s, DYT_TAG_WEIGHTS));
        assert_string_equal("ll", v.calls);
        /* 1: not before the weights are there */
        assert_status(DYT_ERR_STATE, receive_version(&r, 0));
        assert_error_has("the weights are released: restore them first");
        assert_status(DYT_ERR_STATE, dyt_session_valid(s, &version));
        assert_error_has("released");
        assert_status(DYT_ERR_STATE, dyt_session_restore(s, DYT_TAG_KV_CACHE));
        assert_error_has("kv_cache before the weights");
        assert_status(
            DYT_ERR_STATE,
            dyt_session_restore(s, DYT_TAG_KV_CACHE | DYT_TAG_WEIGHTS));
        assert_error_has("kv_cache before the weights");
        assert_ok(dyt_session_restore(s, DYT_TAG_WEIGHTS));
        /* 2: not before a version was committed */
        assert_status(DYT_ERR_STATE, dyt_session_valid(s, &version));
        assert_error_has("no version was committed yet");
        assert_status(DYT_ERR_STATE, dyt_session_restore(s, DYT_TAG_KV_CACHE));
        assert_error_has("kv_cache before a version was committed");
        assert_string_equal("lls", v.calls);
        /* 3: the server is not resumed before its kv_cache is back */
        write_version(&t, 2);
        assert_ok(offer_version(&t, 2, false, &ticket));
        assert_ok(receive_version(&r, 2));
        assert_ok(dyt_ticket_wait(ticket, -1));
        dyt_ticket_destroy(ticket);
        assert_int_equal(2, version_of(&r));
        assert_string_equal("llsP", v.calls);
        send_version(&t, &r, 3); /* one that is paused still: not again */
        assert_string_equal("llsP", v.calls);
        assert_ok(dyt_session_restore(s, DYT_TAG_KV_CACHE));
        assert_string_equal("llsPsR", v.calls);
        /* and all is as before */
        begin_again(&v);
        send_version(&t, &r, 4);
        assert_string_equal("PR", v.calls);
        leave(&r);
        leave(&t);
    }
}

static void tags_are_checked_by_name(void **state)
{
    struct server v;
    struct member t, r;
    dyt_session *s;

    (void)state;
    pair(&t, &r, dyt_test_dir(), DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    s = r.session;
    hook(&v, &r);
    assert_status(DYT_ERR_INVALID, dyt_session_release(s, 0));
    assert_status(DYT_ERR_INVALID, dyt_session_release(s, 16));
    assert_status(DYT_ERR_INVALID, dyt_session_restore(s, 0));
    assert_status(DYT_ERR_INVALID, dyt_session_release(NULL, 1));
    assert_status(DYT_ERR_INVALID, dyt_session_restore(NULL, 1));
    assert_status(DYT_ERR_STATE,
                  dyt_session_restore(s, DYT_TAG_OPTIMIZER | DYT_TAG_GRAD));
    assert_error_has("not released: optimizer and grad");
    assert_ok(dyt_session_release(s, DYT_TAG_OPTIMIZER | DYT_TAG_GRAD));
    assert_status(DYT_ERR_STATE,
                  dyt_session_release(s, DYT_TAG_GRAD | DYT_TAG_KV_CACHE));
    assert_error_has("released already: grad");
    assert_ok(dyt_session_restore(s, DYT_TAG_GRAD));
    assert_ok(dyt_session_restore(s, DYT_TAG_OPTIMIZER));
    assert_string_equal("lss", v.calls);
    send_version(&t, &r, 1);
    leave(&r);
    leave(&t);
}

/* A hook that fails: what it was about is as it was, and may be tried again. */
static void failing_memory_hooks_change_nothing(void **state)
{
    struct server v;
    struct member t, r;
    uint64_t version;
    dyt_session *s;

    (void)state;
    pair(&t, &r, dyt_test_dir(), DYT_COMMIT_IN_PLACE, DYT_MEMORY_MAPPED);
    s = r.session;
    hook(&v, &r);
    send_version(&t, &r, 1);
    v.release = DYT_ERR_DEVICE;
    assert_status(DYT_ERR_DEVICE, dyt_session_release(s, DYT_TAG_KV_CACHE));
    assert_error_has("release hook failed for kv_cache");
    assert_ok(dyt_session_valid(s, &version));
    assert_status(DYT_ERR_DEVICE, dyt_session_release(s, DYT_TAG_WEIGHTS));
    assert_error_has("release hook failed for weights");
    /* who knows what is left of them */
    assert_status(DYT_ERR_STATE, dyt_session_valid(s, &version));
    send_version(&t, &r, 2);
    v.release = DYT_OK;
    assert_ok(dyt_session_release(s, DYT_TAG_WEIGHTS));
    v.restore = DYT_ERR_NOMEM;
    assert_status(DYT_ERR_NOMEM, dyt_session_restore(s, DYT_TAG_WEIGHTS));
    assert_error_has("restore hook failed for weights");
    assert_status(DYT_ERR_STATE, receive_version(&r, 0));
    v.restore = DYT_OK;
    assert_ok(dyt_session_restore(s, DYT_TAG_WEIGHTS));
    send_version(&t, &r, 3);
    leave(&r);
    leave(&t);
}

static void a_trainer_keeps_what_it_offers(void **state)
{
    struct member t, r;
    dyt_ticket *ticket;

    (void)state;
    pair(&t, &r, dyt_test_dir(), DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    write_version(&t, 1);
    assert_ok(offer_version(&t, 1, false, &ticket));
    assert_status(DYT_ERR_STATE,
                  dyt_session_release(t.session, DYT_TAG_WEIGHTS));
    assert_error_has("version 1 is offered");
    assert_ok(dyt_session_release(t.session, DYT_TAG_GRAD));
    assert_ok(receive_version(&r, 1));
    assert_ok(dyt_ticket_wait(ticket, -1));
    dyt_ticket_destroy(ticket);
    assert_ok(dyt_session_release(t.session, DYT_TAG_WEIGHTS));
    assert_status(DYT_ERR_STATE, offer_version(&t, 2, false, &ticket));
    assert_error_has("the weights are released");
    assert_ok(dyt_session_restore(t.session, DYT_TAG_WEIGHTS));
    send_version(&t, &r, 2);
    leave(&r);
    leave(&t);
}

/* ---- offers and versions ------------------------------------------------- */

static void versions_only_rise(void **state)
{
    struct member t, r;
    uint64_t version = 0;
    dyt_ticket *ticket;

    (void)state;
    pair(&t, &r, dyt_test_dir(), DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    write_version(&t, 0);
    assert_ok(
        offer_version(&t, 0, false, &ticket)); /* before the first update */
    assert_ok(receive_version(&r, 0));
    assert_ok(dyt_ticket_wait(ticket, -1));
    dyt_ticket_destroy(ticket);
    assert_ok(dyt_session_valid(r.session, &version));
    assert_int_equal(0, version);
    send_version(&t, &r, 7); /* gaps are fine */
    for (uint64_t v = 5; v <= 7; v++) {
        assert_status(DYT_ERR_STATE, offer_version(&t, v, false, &ticket));
        assert_error_has("after version 7: versions rise");
    }
    assert_ok(dyt_session_will_write(t.session)); /* nothing is pinned */
    assert_ok(receive_version(&r, 6));            /* it has that, and more */
    assert_ok(dyt_session_valid(r.session, &version));
    assert_int_equal(7, version);
    assert_status(DYT_ERR_TIMEOUT,
                  dyt_session_receive(r.session, 8, 20000000, NULL));
    assert_int_equal(7, version_of(&r));
    send_version(&t, &r, 8);
    leave(&r);
    leave(&t);
}

/* A version below what is asked for does not do. */
static void an_older_offer_is_not_taken(void **state)
{
    struct member t, r;
    dyt_ticket *ticket;

    (void)state;
    pair(&t, &r, dyt_test_dir(), DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    write_version(&t, 3);
    assert_ok(offer_version(&t, 3, false, &ticket));
    assert_status(DYT_ERR_TIMEOUT,
                  dyt_session_receive(r.session, 4, 20000000, NULL));
    assert_status(DYT_PENDING, dyt_ticket_done(ticket));
    assert_ok(dyt_ticket_cancel(ticket));
    dyt_ticket_destroy(ticket);
    leave(&r);
    leave(&t);
}

static void an_offer_waits_for_its_ticket(void **state)
{
    struct member t, r;
    dyt_ticket *ticket, *next = NULL;

    (void)state;
    pair(&t, &r, dyt_test_dir(), DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    write_version(&t, 1);
    assert_ok(offer_version(&t, 1, false, &ticket));
    for (uint64_t v = 1; v <= 3; v++) {
        assert_status(DYT_ERR_STATE, offer_version(&t, v, v == 3, &next));
        assert_error_has("version 1 is still offered");
        assert_null(next);
    }
    assert_status(DYT_ERR_STATE, dyt_session_will_write(t.session));
    assert_error_has("wait for its ticket, or cancel it");
    assert_ok(receive_version(&r, 1)); /* it is as it was */
    assert_int_equal(1, version_of(&r));
    assert_ok(dyt_ticket_wait(ticket, -1));
    dyt_ticket_destroy(ticket);
    send_version(&t, &r, 2);
    leave(&r);
    leave(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_update_is_between_pause_and_resume),
    cmocka_unit_test(a_server_that_does_not_pause_keeps_the_old),
    cmocka_unit_test(a_server_that_does_not_resume_holds_the_new),
    cmocka_unit_test(one_rank_that_does_not_pause_is_heard_by_all),
    cmocka_unit_test(memory_comes_back_in_one_order),
    cmocka_unit_test(tags_are_checked_by_name),
    cmocka_unit_test(failing_memory_hooks_change_nothing),
    cmocka_unit_test(a_trainer_keeps_what_it_offers),
    cmocka_unit_test(versions_only_rise),
    cmocka_unit_test(an_older_offer_is_not_taken),
    cmocka_unit_test(an_offer_waits_for_its_ticket),
};
DYT_TEST_MAIN(tests)
