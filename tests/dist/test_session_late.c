/* Answers that come after their call was given up, and times that are longer
 * than any clock: a later call is answered for itself, and what was given up is
 * not done behind its back. */
#include "lib/session_internal.h"
#include "session_manager.h"
#include "session_world.h"

#define MS 1000000ll

/* ---- a manager that can be held -------------------------------------------
 */

struct held_manager {
    struct manager_thread manager;
    pthread_mutex_t door; /* whoever has it holds the manager */
    atomic_bool at_door;  /* it has something to say about pool "held" */
};

static void say_at_door(void *arg, const char *line)
{
    struct held_manager *h = arg;

    if (strstr(line, "replica held/") != NULL) {
        atomic_store(&h->at_door, true);
        pthread_mutex_lock(&h->door);
        pthread_mutex_unlock(&h->door);
    }
}

static void held_start(struct held_manager *h, const char *address)
{
    struct dyti_manager_params p = {
        .address = address, .say = say_at_door, .say_arg = h};

    memset(h, 0, sizeof(*h));
    pthread_mutex_init(&h->door, NULL);
    manager_start(&h->manager, &p);
}

static void held_stop(struct held_manager *h)
{
    manager_stop(&h->manager);
    pthread_mutex_destroy(&h->door);
}

static enum dyt_status join_only(struct member *m)
{
    return keep_status(m, dyt_session_join(&m->join, &m->session));
}

static void until(bool (*is_so)(void *arg), void *arg)
{
    static const struct timespec tick = {.tv_nsec = MS};

    while (!is_so(arg)) {
        (void)nanosleep(&tick, NULL);
    }
}

static bool is_at_door(void *held)
{
    return atomic_load(&((struct held_manager *)held)->at_door);
}

/* The manager was asked, and has not answered. */
static bool is_asked(void *session)
{
    struct dyt_session *s = session;
    bool asked;

    pthread_mutex_lock(&s->lock);
    asked = s->call[DYTI_CALL_RECEIVE].running &&
            !s->call[DYTI_CALL_RECEIVE].posted;
    pthread_mutex_unlock(&s->lock);
    return asked;
}

/* ---- cases -----------------------------------------------------------------
 */

/* A manager that hangs for longer than a receive waits: when it goes on, its
 * answer to that one is not the answer to the next. */
static void a_late_answer_is_nobodys(void **state)
{
    const char *folder = session_folder();
    struct member t, r, third;
    struct member_call joins, receives;
    struct held_manager h;

    (void)state;
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    describe(&third, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    t.join.host_manager = 2;
    third.join.pool = "held";
    t.join.timeout_ns = r.join.timeout_ns = third.join.timeout_ns =
        120 * SECOND;
    held_start(&h, t.address);
    assert_ok(enter(&t));
    assert_ok(enter(&r));
    pthread_mutex_lock(&h.door);
    call_start(&joins, &third, join_only);
    until(is_at_door, &h);
    r.version = 1;
    r.deadline_ns = 10 * MS;
    assert_status(DYT_ERR_TIMEOUT, receive(&r));
    assert_error_has("no answer from the job's manager");
    r.deadline_ns = -1;
    call_start(&receives, &r, receive);
    until(is_asked, r.session);
    pthread_mutex_unlock(&h.door);
    assert_ok(call_end(&joins));
    t.version = 1;
    assert_ok(offer(&t));
    if (call_end(&receives) != DYT_OK) {
        fail_msg("the second receive says %s", r.text);
    }
    assert_ok(end_offer(&t));
    assert_int_equal(1, version_of(&r));
    leave(&third);
    leave(&r);
    leave(&t);
    held_stop(&h);
}

/* A server whose pause takes until it is let go. */
struct slow_pause {
    pthread_mutex_t door;
    atomic_bool at_door;
};

static enum dyt_status pause_slowly(void *arg)
{
    struct slow_pause *p = arg;

    atomic_store(&p->at_door, true);
    pthread_mutex_lock(&p->door);
    pthread_mutex_unlock(&p->door);
    return DYT_OK;
}

static bool is_pausing(void *pause)
{
    return atomic_load(&((struct slow_pause *)pause)->at_door);
}

static enum dyt_status release_weights(struct member *m)
{
    return keep_status(m, dyt_session_release(m->session, DYT_TAG_WEIGHTS));
}

static bool is_releasing(void *session)
{
    struct dyt_session *s = session;
    bool asked;

    pthread_mutex_lock(&s->lock);
    asked = s->call[DYTI_CALL_RELEASE].running &&
            !s->call[DYTI_CALL_RELEASE].posted;
    pthread_mutex_unlock(&s->lock);
    return asked;
}

/* Its weights are read by a sibling: a release waits, and is given up. */
static void a_release_that_is_given_up_is_not_done(void **state)
{
    const char *folder = session_folder();
    struct member t, r, late;
    struct member_call releases, receives;
    struct slow_pause pause = {.door = PTHREAD_MUTEX_INITIALIZER};

    (void)state;
    pair(&t, &r, folder, DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    send_version(&t, &r, 1);
    describe(&late, folder, DYT_ROLE_RECEIVER, 1, 0, 1);
    late.hooked = true;
    late.hooks.pause = pause_slowly;
    late.hooks.arg = &pause;
    assert_ok(enter(&late));
    pthread_mutex_lock(&pause.door);
    call_start(&receives, &late, receive);
    until(is_pausing, &pause);
    call_start(&releases, &r, release_weights);
    until(is_releasing, r.session);
    dyt_session_interrupt(r.session);
    assert_status(DYT_ERR_CANCELLED, call_end(&releases));
    pthread_mutex_unlock(&pause.door);
    assert_ok(call_end(&receives));
    assert_int_equal(1, version_of(&late));
    /* it is as it was */
    write_version(&t, 2);
    t.version = 2;
    assert_ok(offer_as_is(&t));
    assert_ok(receive_version(&r, 2));
    assert_ok(receive_version(&late, 2));
    assert_ok(end_offer(&t));
    assert_ok(release_weights(&r));
    assert_ok(dyt_session_restore(r.session, DYT_TAG_WEIGHTS));
    assert_ok(receive_version(&r, 0));
    leave(&late);
    leave(&r);
    leave(&t);
}

/* The manager's last word was the order of a run. */
static enum dyt_status pause_without_manager(void *arg)
{
    struct manager_thread *manager = arg;

    dyti_session_manager_stop(manager->manager);
    return pthread_join(manager->thread, NULL) == 0 ? DYT_OK : DYT_ERR_STATE;
}

static bool is_held(void *session)
{
    uint64_t version;

    return dyt_session_valid(session, &version) == DYT_OK;
}

/* It dies before it has answered: what was committed is what the call says. */
static void an_answer_that_is_lost_is_known_here(void **state)
{
    const char *folder = session_folder();
    struct member t, r[2];
    struct member_call receives[2];
    struct manager_thread manager;

    (void)state;
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    t.join.host_manager = 2;
    for (uint32_t i = 0; i < 2; i++) {
        describe(&r[i], folder, DYT_ROLE_RECEIVER, 0, i, 2);
        r[i].version = 1;
    }
    r[1].hooked = true;
    r[1].hooks.pause = pause_without_manager;
    r[1].hooks.arg = &manager;
    manager_start(&manager,
                  &(struct dyti_manager_params){.address = t.address});
    assert_ok(enter(&t));
    call_start(&receives[0], &r[0], enter);
    assert_ok(enter(&r[1]));
    assert_ok(call_end(&receives[0]));
    t.version = 1;
    assert_ok(offer(&t));
    for (uint32_t i = 0; i < 2; i++) {
        call_start(&receives[i], &r[i], receive);
    }
    for (uint32_t i = 0; i < 2; i++) {
        until(is_held, r[i].session);
    }
    dyti_session_manager_close(manager.manager);
    for (uint32_t i = 0; i < 2; i++) {
        if (call_end(&receives[i]) != DYT_OK) {
            fail_msg("rank %u says %s", i, r[i].text);
        }
        assert_int_equal(1, version_of(&r[i]));
    }
    /* and no more than that */
    r[0].version = 2;
    assert_status(DYT_ERR_PEER, receive(&r[0]));
    assert_status(DYT_ERR_PEER, end_offer(&t));
    for (uint32_t i = 0; i < 2; i++) {
        leave(&r[i]);
    }
    leave(&t);
}

static void the_longest_time_is_no_time_at_all(void **state)
{
    const char *folder = session_folder();
    struct member t, r;
    char *json = NULL;

    (void)state;
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    t.join.timeout_ns = r.join.timeout_ns = INT64_MAX;
    assert_ok(enter(&t));
    assert_ok(enter(&r));
    r.deadline_ns = INT64_MAX;
    send_version(&t, &r, 1);
    assert_ok(dyt_job_status(t.address, NULL, NULL, INT64_MAX, &json));
    assert_non_null(strstr(json, "\"serving\""));
    dyt_text_free(json);
    leave(&r);
    leave(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_late_answer_is_nobodys),
    cmocka_unit_test(a_release_that_is_given_up_is_not_done),
    cmocka_unit_test(an_answer_that_is_lost_is_known_here),
    cmocka_unit_test(the_longest_time_is_no_time_at_all),
};
DYT_TEST_MAIN(tests)
