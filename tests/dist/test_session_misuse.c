/* What callers do wrong: calls out of order, from a child, from a hook, while
 * another thread leaves, of rows that contradict each other.  Each is told what
 * and why; nothing hangs, and the job goes on. */
#include "lib/session_internal.h"
#include "session_world.h"

#include <sys/mman.h>
#include <sys/wait.h>

#define MS 1000000ll

/* ---- rows that contradict each other ------------------------------------- */

/* Rank `rank` of a trainer that says `rows` is the extent of b.weight's axis 0
 * (which is ROWS). */
static void describe_sized(struct member *m, const char *folder, uint32_t rank,
                           uint32_t size, int64_t rows)
{
    describe(m, folder, DYT_ROLE_TRAINER, 0, rank, size);
    m->row[1].global_shape[0] = rows;
}

/* Every rank of the trainer hears it at once, and may publish again. */
static void a_trainer_that_contradicts_itself_hears_so(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 2; size++) {
        const char *folder = session_folder();
        struct member m[2], r, *t[2] = {&m[0], &m[1]}, *to[1] = {&r};

        for (uint32_t i = 0; i < size; i++) {
            describe_sized(&m[i], folder, i, size, i + 1 == size ? 7 : ROWS);
        }
        all_call(t, size, enter);
        all_are(t, size, DYT_ERR_LAYOUT);
        for (uint32_t i = 0; i < size; i++) {
            assert_non_null(strstr(m[i].text, "b.weight"));
            m[i].row[1].global_shape[0] = ROWS;
        }
        all_ok(t, size, member_publish);
        describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
        all_ok(to, 1, enter);
        pass_on(t, size, to, 1, 1);
        all_leave(t, size, to, 1);
    }
}

/* A trainer offers what it has. */
static void memory_is_lent_to_receivers_only(void **state)
{
    const char *folder = session_folder();
    struct member t;

    (void)state;
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    t.row[1].flags |= DYT_ROW_STAGED;
    assert_status(DYT_ERR_INVALID, enter(&t));
    assert_error_has("row b.weight");
    assert_error_has("give data or fd");
    t.row[1].flags = 0;
    assert_ok(member_publish(&t));
    leave(&t);
}

/* ---- parameters ---------------------------------------------------------- */

static void an_attribute_has_a_name(void **state)
{
    const struct dyt_attribute attribute[2] = {{"head_dim", 64}, {NULL, 3}};
    const char *folder = session_folder();
    struct member m;

    (void)state;
    describe(&m, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    m.join.attribute = attribute;
    m.join.attribute_count = 2;
    assert_status(DYT_ERR_CONFIG, dyt_session_join(&m.join, &m.session));
    assert_error_has("attribute 1 of 2 has no name");
    assert_null(m.session);
    leave(&m);
}

static void *run_manager(void *arg)
{
    (void)dyti_session_manager_run(arg);
    return NULL;
}

/* A manager that serves whatever job comes: a name that was a mistake goes with
 * who made it. */
static void a_jobs_name_goes_with_its_last_member(void **state)
{
    const char *folder = session_folder();
    struct dyti_session_manager *manager = NULL;
    struct dyti_manager_params p = {0};
    struct member wrong, t, r;
    pthread_t thread;

    (void)state;
    describe(&wrong, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    t.join.host_manager = 2;
    wrong.join.job = "jbo";
    p.address = t.address;
    assert_ok(dyti_session_manager_open(&p, &manager));
    assert_int_equal(0, pthread_create(&thread, NULL, run_manager, manager));
    /* one that was not even let in */
    wrong.join.rank = 5;
    assert_status(DYT_ERR_CONFIG,
                  dyt_session_join(&wrong.join, &wrong.session));
    wrong.join.rank = 0;
    assert_ok(dyt_session_join(&wrong.join, &wrong.session));
    assert_status(DYT_ERR_BUSY, dyt_session_join(&t.join, &t.session));
    assert_error_has("job jbo is served at this address");
    leave(&wrong);
    assert_ok(enter(&t));
    assert_ok(enter(&r));
    send_version(&t, &r, 1);
    leave(&r);
    leave(&t);
    dyti_session_manager_stop(manager);
    pthread_join(thread, NULL);
    dyti_session_manager_close(manager);
}

/* ---- memory that changes ------------------------------------------------- */

static size_t page_up(size_t bytes)
{
    return (bytes + 4095u) / 4096u * 4096u;
}

/* The first row in pages of its own. */
static void in_pages(struct member *m)
{
    size_t bytes = page_up(row_elements(&m->row[0]) * sizeof(float));

    m->row[0].data = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(m->row[0].data != MAP_FAILED);
}

static void protect(struct member *m, int how)
{
    size_t bytes = page_up(row_elements(&m->row[0]) * sizeof(float));

    assert_int_equal(0, mprotect(m->row[0].data, bytes, how));
}

/* What was memory when it was published, and is not any more: all ranks of the
 * replica hear of the row, nothing is written, and it may come back. */
static void memory_that_went_away_is_an_error(void **state)
{
    static const int how[] = {PROT_NONE, PROT_READ};

    (void)state;
    for (size_t i = 0; i < 2 * DYT_TEST_COUNT(how); i++) {
        const char *folder = session_folder();
        struct member m[3], *t[1] = {&m[0]}, *r[2] = {&m[1], &m[2]};
        uint64_t hash = 0;

        describe(&m[0], folder, DYT_ROLE_TRAINER, 0, 0, 1);
        in_pages(&m[0]);
        for (uint32_t k = 0; k < 2; k++) {
            describe(r[k], folder, DYT_ROLE_RECEIVER, 0, k, 2);
            r[k]->join.commit = session_modes[i % 2].commit;
            in_pages(r[k]);
        }
        all_ok(t, 1, enter);
        all_ok(r, 2, enter);
        pass_on(t, 1, r, 2, 1);
        all_offer(t, 1, 2);
        protect(r[1], how[i / 2]);
        all_ask(r, 2, 2, -1);
        all_call(r, 2, receive);
        all_are(r, 2, DYT_ERR_INVALID);
        for (uint32_t k = 0; k < 2; k++) {
            assert_non_null(strstr(r[k]->text, "rank 1 of replica"));
            assert_non_null(strstr(r[k]->text, "row a.weight"));
        }
        assert_true(holds(r[0], 1));
        protect(r[1], PROT_READ | PROT_WRITE);
        assert_true(holds(r[1], 1));
        protect(t[0], PROT_NONE); /* while it is offered */
        all_ask(r, 2, 2, -1);
        all_call(r, 2, receive);
        all_are(r, 2, DYT_ERR_INVALID);
        assert_non_null(strstr(r[0]->text, "row a.weight"));
        assert_status(DYT_ERR_INVALID,
                      dyt_session_row_hash(t[0]->session, 0, &hash));
        assert_error_has("row a.weight");
        protect(t[0], PROT_READ | PROT_WRITE);
        all_receive(r, 2, 2);
        all_ok(t, 1, end_offer);
        write_version(t[0], 3);
        protect(t[0], PROT_NONE);
        all_ask(t, 1, 3, -1);
        all_call(t, 1, offer_as_is);
        all_are(t, 1, DYT_ERR_INVALID);
        assert_non_null(strstr(t[0]->text, "row a.weight"));
        protect(t[0], PROT_READ); /* enough for who offers */
        all_ok(t, 1, offer_as_is);
        all_receive(r, 2, 3);
        all_ok(t, 1, end_offer);
        for (uint32_t k = 3; k-- > 0;) {
            size_t bytes = row_elements(&m[k].row[0]) * sizeof(float);

            dyt_session_leave(m[k].session);
            m[k].session = NULL;
            munmap(m[k].row[0].data, page_up(bytes));
        }
        all_leave(t, 1, r, 2);
    }
}

/* A row that nobody may write is not one that is received into. */
static void a_receiver_writes_no_read_only_row(void **state)
{
    const char *folder = session_folder();
    struct member t, r;

    (void)state;
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    t.row[0].flags |= DYT_ROW_READ_ONLY; /* a source may be */
    assert_ok(enter(&t));
    in_pages(&r);
    protect(&r, PROT_READ);
    r.row[0].flags |= DYT_ROW_READ_ONLY;
    assert_status(DYT_ERR_INVALID, enter(&r));
    assert_error_has("DYT_ROW_READ_ONLY");
    assert_error_has("row a.weight");
    protect(&r, PROT_READ | PROT_WRITE);
    r.row[0].flags = 0;
    assert_ok(member_publish(&r));
    send_version(&t, &r, 1);
    munmap(r.row[0].data, page_up(row_elements(&r.row[0]) * sizeof(float)));
    leave(&r);
    leave(&t);
}

/* A receive that ends at its deadline says what it waited for. */
static void a_deadline_says_what_was_missing(void **state)
{
    const char *folder = session_folder();
    struct member m[3], *t[1] = {&m[0]}, *r[2] = {&m[1], &m[2]};

    (void)state;
    describe(&m[0], folder, DYT_ROLE_TRAINER, 0, 0, 1);
    for (uint32_t k = 0; k < 2; k++) {
        describe(r[k], folder, DYT_ROLE_RECEIVER, 0, k, 2);
    }
    all_ok(t, 1, enter);
    all_ok(r, 2, enter);
    all_ask(r, 2, 1, 100 * MS);
    all_call(r, 2, receive);
    all_are(r, 2, DYT_ERR_TIMEOUT);
    assert_non_null(strstr(r[0]->text, "no version from 1 on is offered "
                                       "(none was)"));
    pass_on(t, 1, r, 2, 1);
    all_ask(r, 2, 2, 100 * MS);
    all_call(r, 2, receive);
    all_are(r, 2, DYT_ERR_TIMEOUT);
    assert_non_null(strstr(r[1]->text, "the newest was version 1"));
    all_offer(t, 1, 2);
    assert_status(DYT_ERR_TIMEOUT, receive(r[0])); /* alone */
    assert_error_has("rank 1 of 2 of its replica does not receive");
    all_receive(r, 2, 2);
    all_ok(t, 1, end_offer);
    all_leave(t, 1, r, 2);
}

/* ---- order --------------------------------------------------------------- */

static void calls_before_publish_say_what_is_missing(void **state)
{
    const char *folder = session_folder();
    struct dyt_offer_params offer = {.struct_size = sizeof(offer),
                                     .version = 1};
    struct member t, r;
    dyt_ticket *ticket = NULL;
    uint64_t n = 9;
    void *data = NULL;
    size_t count = 9;

    (void)state;
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    assert_ok(dyt_session_join(&t.join, &t.session));
    assert_ok(dyt_session_join(&r.join, &r.session));
    assert_status(DYT_ERR_STATE, dyt_session_offer(t.session, &offer, &ticket));
    assert_error_has("after it has published");
    assert_ok(dyt_session_will_write(t.session)); /* nothing pins it */
    assert_status(DYT_ERR_STATE, dyt_session_receive(r.session, 1, -1, NULL));
    assert_status(DYT_ERR_STATE, dyt_session_valid(r.session, &n));
    assert_status(DYT_ERR_INVALID, dyt_session_row_hash(r.session, 0, &n));
    assert_error_has("row 0 of 0 published ones");
    assert_status(DYT_ERR_INVALID, dyt_session_row_data(r.session, 0, &data));
    assert_status(DYT_ERR_INVALID, dyt_session_staged(r.session, 0, &data));
    assert_status(DYT_ERR_STATE, dyt_session_map(r.session, r.row, r.rows));
    assert_error_has("memory OWN");
    assert_status(DYT_ERR_STATE,
                  dyt_session_restore(r.session, DYT_TAG_WEIGHTS));
    assert_error_has("not released: weights");
    assert_ok(dyt_session_changed(r.session, &n, 1, &count));
    assert_int_equal(0, count);
    assert_int_equal(9, n);
    assert_null(data);
    assert_null(ticket);
    leave(&r);
    leave(&t);
}

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
    cmocka_unit_test(a_trainer_that_contradicts_itself_hears_so),
    cmocka_unit_test(memory_is_lent_to_receivers_only),
    cmocka_unit_test(an_attribute_has_a_name),
    cmocka_unit_test(memory_that_went_away_is_an_error),
    cmocka_unit_test(a_receiver_writes_no_read_only_row),
    cmocka_unit_test(a_deadline_says_what_was_missing),
    cmocka_unit_test(a_jobs_name_goes_with_its_last_member),
    cmocka_unit_test(calls_before_publish_say_what_is_missing),
    cmocka_unit_test(one_receive_at_a_time),
    cmocka_unit_test(leaving_waits_for_who_is_inside),
    cmocka_unit_test(a_hook_may_leave),
    cmocka_unit_test(a_child_has_no_session),
};
DYT_TEST_MAIN(tests)
