/* Sessions through the public calls, all members in this process: what a
 * trainer and servers may do, what is refused, what is left afterwards. */
#include "session_world.h"

#include <dirent.h>

static size_t count_in(const char *folder)
{
    DIR *dir = opendir(folder);
    size_t n = 0;

    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n;
}

/* ---- cases --------------------------------------------------------------- */

static void every_mode_brings_versions(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        struct member t, r;
        uint64_t version = 0, hash[2] = {0, 0}, row[2];
        size_t changed = 0;

        pair(&t, &r, dyt_test_dir(), session_modes[i].commit,
             session_modes[i].memory);
        assert_status(DYT_ERR_STATE, dyt_session_valid(r.session, &version));
        for (uint64_t v = 1; v <= 3; v++) {
            send_version(&t, &r, v);
            assert_ok(dyt_session_valid(r.session, &version));
            assert_int_equal(v, version);
            assert_ok(dyt_session_row_hash(r.session, 0, &hash[v & 1]));
            assert_true(hash[0] != hash[1]);
            assert_ok(dyt_session_changed(r.session, row, 2, &changed));
            assert_int_equal(2, changed);
        }
        leave(&r);
        leave(&t);
    }
}

/* Its two tensors, and between them a row that holds nothing of the job. */
static void describe_with_spare(struct member *r, const char *folder)
{
    member_init(r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    WHOLE(r, names[0], DYT_F32, ROWS, COLS);
    r->row[ROW(r, "spare", DYT_F32, 4)].flags |= DYT_ROW_OPTIONAL;
    WHOLE(r, names[1], DYT_F32, ROWS, COLS);
}

static void pass(struct member *t, struct member *r, uint64_t version,
                 struct dyt_switch_report *report, uint64_t hash[2])
{
    dyt_ticket *ticket;

    assert_ok(offer_version(t, version, false, &ticket));
    assert_ok(dyt_session_receive(r->session, version, -1, report));
    assert_ok(dyt_ticket_wait(ticket, -1));
    dyt_ticket_destroy(ticket);
    assert_ok(dyt_session_row_hash(r->session, 0, &hash[0]));
    assert_ok(dyt_session_row_hash(r->session, 2, &hash[1]));
}

/* Written is not different: the second tensor stays as it was, and a row of no
 * piece is never written. */
static void rows_that_are_written_and_rows_that_differ(void **state)
{
    const char *folder = dyt_test_dir();
    uint64_t before[2], after[2], row[3] = {9, 9, 9};
    struct dyt_switch_report report = {.struct_size = sizeof(report)};
    struct member t, r;
    size_t count = 9;

    (void)state;
    assert_int_equal(0, chmod(folder, 0700));
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    describe_with_spare(&r, folder);
    assert_ok(enter(&t));
    assert_ok(enter(&r));
    assert_ok(dyt_session_changed(r.session, row, 3, &count));
    assert_int_equal(0, count);
    write_version(&t, 1);
    pass(&t, &r, 1, &report, before);
    assert_true(holds(&r, 1)); /* and the spare row is as it was */
    ((float *)t.own[0])[7] += 1.0f;
    pass(&t, &r, 2, &report, after);
    assert_true(before[0] != after[0]);
    assert_true(before[1] == after[1]);
    assert_int_equal(2, report.rows_changed);
    assert_ok(dyt_session_changed(r.session, row, 1, &count));
    assert_int_equal(2, count);
    assert_int_equal(9, row[1]);
    assert_ok(dyt_session_changed(r.session, row, 3, &count));
    assert_int_equal(2, count);
    assert_int_equal(0, row[0]);
    assert_int_equal(2, row[1]);
    assert_int_equal(9, row[2]);
    leave(&r);
    leave(&t);
}

static void staged_rows_are_lent(void **state)
{
    const char *folder = dyt_test_dir();
    struct member t, r;
    dyt_ticket *ticket;

    (void)state;
    assert_int_equal(0, chmod(folder, 0700));
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    for (int i = 0; i < 2; i++) {
        r.row[i].data = NULL;
        r.row[i].flags |= DYT_ROW_STAGED;
    }
    assert_ok(enter(&t));
    assert_ok(enter(&r));
    write_version(&t, 4);
    assert_ok(offer_version(&t, 4, false, &ticket));
    assert_ok(receive_version(&r, 0));
    dyt_ticket_destroy(ticket);
    assert_int_equal(4, version_of(&r));
    leave(&r);
    leave(&t);
}

static void tickets_have_rules(void **state)
{
    struct member t, r;
    dyt_ticket *ticket, *second;

    (void)state;
    pair(&t, &r, dyt_test_dir(), DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    write_version(&t, 1);
    assert_ok(dyt_session_will_write(t.session));
    assert_ok(offer_version(&t, 1, false, &ticket));
    assert_status(DYT_PENDING, dyt_ticket_done(ticket));
    assert_status(DYT_PENDING, dyt_ticket_wait(ticket, 0));
    assert_status(DYT_ERR_STATE, dyt_session_will_write(t.session));
    assert_error_has("version 1 is offered");
    assert_status(DYT_ERR_STATE, offer_version(&t, 2, false, &second));
    assert_ok(dyt_ticket_cancel(ticket));
    assert_status(DYT_ERR_CANCELLED, dyt_ticket_done(ticket));
    assert_ok(dyt_session_will_write(t.session));
    dyt_ticket_destroy(ticket);
    assert_status(DYT_ERR_STATE, offer_version(&t, 1, false, &ticket));
    /* a snapshot: written over, and the offered bytes come */
    write_version(&t, 2);
    assert_ok(offer_version(&t, 2, true, &ticket));
    assert_ok(dyt_session_will_write(t.session));
    write_version(&t, 9);
    assert_ok(receive_version(&r, 2));
    assert_int_equal(2, version_of(&r));
    assert_ok(dyt_ticket_wait(ticket, -1));
    dyt_ticket_destroy(ticket);
    dyt_ticket_destroy(NULL);
    /* one that outlives its session still answers */
    assert_ok(offer_version(&t, 3, false, &ticket));
    leave(&t);
    assert_status(DYT_ERR_STATE, dyt_ticket_done(ticket));
    assert_status(DYT_ERR_STATE, dyt_ticket_wait(ticket, -1));
    assert_ok(dyt_ticket_cancel(ticket));
    dyt_ticket_destroy(ticket);
    leave(&r);
}

static void a_late_replica_takes_it_from_a_sibling(void **state)
{
    const char *folder = dyt_test_dir();
    struct member t, r, late;
    uint64_t a = 0, b = 1;
    struct dyt_switch_report report = {.struct_size = sizeof(report)};

    (void)state;
    pair(&t, &r, folder, DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    send_version(&t, &r, 6);
    describe(&late, folder, DYT_ROLE_RECEIVER, 1, 0, 1);
    assert_ok(enter(&late));
    assert_ok(dyt_session_receive(late.session, 0, -1, &report));
    assert_int_equal(6, report.version);
    assert_int_equal(1, report.source);
    assert_int_equal(6, version_of(&late));
    assert_ok(dyt_session_row_hash(r.session, 1, &a));
    assert_ok(dyt_session_row_hash(late.session, 1, &b));
    assert_int_equal(a, b);
    leave(&late);
    leave(&r);
    leave(&t);
}

static void wrong_ones_are_refused(void **state)
{
    const char *folder = dyt_test_dir();
    struct member t, r, wrong;
    char *json;

    (void)state;
    pair(&t, &r, folder, DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    describe(&wrong, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    assert_status(DYT_ERR_BUSY, enter(&wrong));
    assert_error_has("a job has one trainer");
    leave(&wrong);
    describe(&wrong, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    assert_status(DYT_ERR_BUSY, enter(&wrong));
    leave(&wrong);
    describe(&wrong, folder, DYT_ROLE_RECEIVER, 5, 0, 1);
    wrong.join.job = "another";
    assert_status(DYT_ERR_BUSY, enter(&wrong));
    assert_error_has("job job is served at this address");
    leave(&wrong);
    describe(&wrong, folder, DYT_ROLE_RECEIVER, 5, 0, 1);
    wrong.piece[0].tensor = "a.wieght";
    assert_status(DYT_ERR_LAYOUT, enter(&wrong));
    assert_error_has("a.wieght");
    assert_error_has("a.weight");
    leave(&wrong);
    assert_ok(dyt_job_status(t.address, NULL, NULL, 0, &json));
    assert_non_null(strstr(json, "\"dynatrain-session-1\""));
    assert_non_null(strstr(json, "\"rollout\""));
    free(json);
    send_version(&t, &r, 1); /* and disturbed nobody */
    leave(&r);
    leave(&t);
}

static uint32_t enough;

static void *interrupt_soon(void *arg)
{
    struct member *m = arg;
    struct timespec tick = {0, 20000000};

    /* again, for a call that began after the first */
    while (__atomic_load_n(&enough, __ATOMIC_ACQUIRE) == 0) {
        dyt_session_interrupt(m->session);
        nanosleep(&tick, NULL);
    }
    return NULL;
}

static void waits_end(void **state)
{
    struct member t, r;
    pthread_t thread;
    struct dyt_switch_report report = {.struct_size = sizeof(report)};

    (void)state;
    pair(&t, &r, dyt_test_dir(), DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    assert_status(DYT_ERR_TIMEOUT,
                  dyt_session_receive(r.session, 0, 1000000, &report));
    assert_int_equal(0, pthread_create(&thread, NULL, interrupt_soon, &r));
    assert_status(DYT_ERR_CANCELLED, receive_version(&r, 0));
    __atomic_store_n(&enough, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    send_version(&t, &r, 1); /* and goes on */
    leave(&r);
    leave(&t);
}

static void released_weights_take_nothing(void **state)
{
    struct member t, r;
    uint64_t version;

    (void)state;
    pair(&t, &r, dyt_test_dir(), DYT_COMMIT_IN_PLACE, DYT_MEMORY_MAPPED);
    send_version(&t, &r, 1);
    assert_ok(
        dyt_session_release(r.session, DYT_TAG_WEIGHTS | DYT_TAG_KV_CACHE));
    assert_status(DYT_ERR_STATE, receive_version(&r, 0));
    assert_status(DYT_ERR_STATE, dyt_session_valid(r.session, &version));
    assert_status(DYT_ERR_STATE,
                  dyt_session_restore(r.session, DYT_TAG_KV_CACHE));
    assert_ok(dyt_session_restore(r.session, DYT_TAG_WEIGHTS));
    assert_status(DYT_ERR_STATE,
                  dyt_session_restore(r.session, DYT_TAG_KV_CACHE));
    send_version(&t, &r, 2);
    assert_ok(dyt_session_restore(r.session, DYT_TAG_KV_CACHE));
    leave(&r);
    leave(&t);
}

static void nothing_is_left(void **state)
{
    const char *folder = dyt_test_dir();
    uint32_t fds, threads;
    struct member t, r;

    (void)state;
    pair(&t, &r, dyt_test_dir(), DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    leave(&r);
    leave(&t);
    fds = dyt_open_files();
    threads = dyt_threads();
    pair(&t, &r, folder, DYT_COMMIT_DOUBLE, DYT_MEMORY_MAPPED);
    send_version(&t, &r, 1);
    leave(&r);
    leave(&t);
    assert_int_equal(fds, dyt_open_files());
    assert_int_equal(threads, dyt_threads());
    assert_int_equal(2, count_in(folder)); /* . and .. */
}

/* ---- a trainer of two, two replicas of two --------------------------------
 */

struct shared {
    const char *folder;
    pthread_barrier_t published; /* a replica that is late may miss offers */
    uint32_t left;
};

static void versions(struct dyt_rank *me, struct member *m, bool trainer,
                     enum dyt_status entered)
{
    rank_ok(me, entered);
    for (uint64_t v = 1; v <= 4; v++) {
        if (trainer) {
            dyt_ticket *ticket;

            write_version(m, v);
            rank_ok(me, offer_version(m, v, false, &ticket));
            rank_ok(me, dyt_ticket_wait(ticket, -1));
            dyt_ticket_destroy(ticket);
        } else {
            rank_ok(me, receive_version(m, v));
            rank_true(me, version_of(m) == v);
        }
    }
}

static void body(struct dyt_rank *me)
{
    struct shared *all = me->arg;
    bool trainer = me->rank < 2;
    struct timespec tick = {0, 1000000};
    struct member m;
    enum dyt_status entered;

    describe(&m, all->folder, trainer ? DYT_ROLE_TRAINER : DYT_ROLE_RECEIVER,
             trainer ? 0 : me->rank / 2 - 1, me->rank % 2, 2);
    entered = enter(&m);
    pthread_barrier_wait(&all->published);
    versions(me, &m, trainer, entered);
    /* the manager's host goes last */
    while (me->rank == 0 &&
           __atomic_load_n(&all->left, __ATOMIC_ACQUIRE) < me->size - 1) {
        nanosleep(&tick, NULL);
    }
    leave(&m);
    __atomic_add_fetch(&all->left, 1, __ATOMIC_RELEASE);
}

static void ranks_on_both_sides(void **state)
{
    struct shared all = {.folder = dyt_test_dir()};

    (void)state;
    assert_int_equal(0, chmod(all.folder, 0700));
    pthread_barrier_init(&all.published, NULL, 6);
    dyt_ranks_run(DYT_RANKS_THREADS, 6, body, &all);
    pthread_barrier_destroy(&all.published);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_mode_brings_versions),
    cmocka_unit_test(rows_that_are_written_and_rows_that_differ),
    cmocka_unit_test(staged_rows_are_lent),
    cmocka_unit_test(tickets_have_rules),
    cmocka_unit_test(a_late_replica_takes_it_from_a_sibling),
    cmocka_unit_test(wrong_ones_are_refused),
    cmocka_unit_test(waits_end),
    cmocka_unit_test(released_weights_take_nothing),
    cmocka_unit_test(nothing_is_left),
    cmocka_unit_test(ranks_on_both_sides),
};
DYT_TEST_MAIN(tests)
