/* Versions of a session: each is whole or not there, they rise, nobody serves
 * one that it does not hold, and a trainer may write its rows as soon as it is
 * told so, not before. */
#include "session_members.h"

#define TENSORS 3

/* Rank `rank` of `size` cuts three tensors along their rows. */
static struct member *cut_member(const char *folder, uint32_t role,
                                 uint32_t replica, uint32_t rank, uint32_t size)
{
    struct member *m = member_new(folder, role, replica, rank, size);

    for (int t = 0; t < TENSORS; t++) {
        char name[NAME_BYTES];

        snprintf(name, sizeof(name), "layers.%d.weight", t);
        member_cut(m, name, DYT_F32, 2, SHAPE(24, 10), 0, 24 / size * rank,
                   24 / size * (rank + 1));
    }
    return m;
}

struct pair {
    struct member *t[1], *r[4];
    uint32_t ranks;
};

/* A trainer, and one replica of some ranks. */
static struct pair make_pair(const struct session_mode *mode, uint32_t ranks)
{
    const char *folder = session_folder();
    struct pair p = {.ranks = ranks};

    p.t[0] = cut_member(folder, DYT_ROLE_TRAINER, 0, 0, 1);
    for (uint32_t i = 0; i < ranks; i++) {
        p.r[i] = cut_member(folder, DYT_ROLE_RECEIVER, 0, i, ranks);
        p.r[i]->join.commit = mode->commit;
        p.r[i]->join.memory = mode->memory;
    }
    return p;
}

static void enter_pair(struct pair *p)
{
    all_ok(p->t, 1, enter);
    all_ok(p->r, p->ranks, enter);
}

static void end_pair(struct pair *p)
{
    all_leave(p->t, 1, p->r, p->ranks);
}

static uint64_t hash_of(struct member *m)
{
    uint64_t sum = 0;

    for (uint64_t r = 0; r < m->rows; r++) {
        uint64_t hash = 0;

        assert_ok(dyt_session_row_hash(m->session, r, &hash));
        sum += hash;
    }
    return sum;
}

/* ---- content ------------------------------------------------------------- */

/* A, B, A: the last is the first again, whatever the version is called. */
static void the_same_weights_again_are_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        struct pair p = make_pair(&session_modes[i], 1);
        uint64_t hash[3];

        enter_pair(&p);
        for (uint64_t v = 1; v <= 3; v++) {
            struct dyt_offer_params o = {.struct_size = sizeof(o),
                                         .version = v};

            write_version(p.t[0], v == 2 ? 8 : 7); /* the content */
            assert_ok(dyt_session_offer(p.t[0]->session, &o, &p.t[0]->ticket));
            all_ask(p.r, 1, v, -1);
            all_ok(p.r, 1, receive);
            assert_true(holds(p.r[0], v == 2 ? 8 : 7));
            all_ok(p.t, 1, end_offer);
            hash[v - 1] = hash_of(p.r[0]);
        }
        assert_true(hash[0] != hash[1]);
        assert_int_equal(hash[0], hash[2]);
        end_pair(&p);
    }
}

/* ---- before the first ---------------------------------------------------- */

static void nothing_is_served_before_the_first_commit(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        struct pair p = make_pair(&session_modes[i], 2);
        uint64_t version = 99, hash;

        enter_pair(&p);
        for (uint32_t r = 0; r < 2; r++) {
            assert_status(DYT_ERR_STATE,
                          dyt_session_valid(p.r[r]->session, &version));
            assert_error_has("no version was committed yet");
            assert_status(DYT_ERR_STATE,
                          dyt_session_row_hash(p.r[r]->session, 0, &hash));
        }
        assert_int_equal(99, version); /* untouched */
        /* offered is not received */
        all_offer(p.t, 1, 1);
        assert_status(DYT_ERR_STATE,
                      dyt_session_valid(p.r[0]->session, &version));
        all_receive(p.r, 2, 1);
        assert_ok(dyt_session_valid(p.r[0]->session, &version));
        assert_int_equal(1, version);
        all_ok(p.t, 1, end_offer);
        end_pair(&p);
    }
}

/* ---- order --------------------------------------------------------------- */

static void versions_rise(void **state)
{
    struct pair p = make_pair(&session_modes[0], 1);
    uint64_t version;

    (void)state;
    enter_pair(&p);
    pass_on(p.t, 1, p.r, 1, 7);
    for (uint64_t v = 6; v <= 7; v++) {
        p.t[0]->version = v;
        assert_status(DYT_ERR_STATE, offer(p.t[0]));
        assert_non_null(strstr(p.t[0]->text, "versions rise"));
    }
    assert_ok(dyt_session_valid(p.r[0]->session, &version));
    assert_int_equal(7, version);
    assert_true(holds(p.r[0], 7));
    /* what is asked for is not what is there: nothing older is taken instead */
    all_offer(p.t, 1, 8);
    all_ask(p.r, 1, 9, 50000000);
    assert_status(DYT_ERR_TIMEOUT, receive(p.r[0]));
    assert_true(holds(p.r[0], 7));
    all_receive(p.r, 1, 8);
    all_ok(p.t, 1, end_offer);
    end_pair(&p);
}

/* Who lost the answer asks again, and nothing moves. */
static void asking_again_tells_what_is_held(void **state)
{
    struct pair p = make_pair(&session_modes[0], 2);
    uint64_t epoch;

    (void)state;
    enter_pair(&p);
    pass_on(p.t, 1, p.r, 2, 3);
    epoch = p.r[0]->report.epoch;
    for (int i = 0; i < 3; i++) {
        all_ask(p.r, 2, i == 0 ? 3 : i == 1 ? 2 : 0, -1);
        all_ok(p.r, 2, receive);
        for (uint32_t r = 0; r < 2; r++) {
            assert_int_equal(3, p.r[r]->report.version);
            assert_int_equal(0, p.r[r]->report.moved_bytes);
            assert_true(holds(p.r[r], 3));
        }
    }
    pass_on(p.t, 1, p.r, 2, 4);
    assert_int_equal(epoch + 1, p.r[0]->report.epoch);
    end_pair(&p);
}

/* ---- one of several fails ------------------------------------------------ */

static enum dyt_status refuse_pause(void *arg)
{
    return *(bool *)arg ? DYT_ERR_DEVICE : DYT_OK;
}

static enum dyt_status no_matter(void *arg)
{
    (void)arg;
    return DYT_OK;
}

/* One of four ranks cannot: none advances, all say so, and the next works. */
static void a_rank_that_fails_holds_all_of_its_replica(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        struct pair p = make_pair(&session_modes[i], 4);
        bool fails = false;

        p.r[2]->hooked = true;
        p.r[2]->hooks = (struct dyt_session_hooks){
            .arg = &fails, .pause = refuse_pause, .resume = no_matter};
        enter_pair(&p);
        pass_on(p.t, 1, p.r, 4, 1);
        all_offer(p.t, 1, 2);
        fails = true;
        all_ask(p.r, 4, 2, -1);
        all_call(p.r, 4, receive);
        for (uint32_t r = 0; r < 4; r++) {
            uint64_t version = 0;

            assert_true(p.r[r]->status != DYT_OK);
            assert_int_equal(p.r[0]->status, p.r[r]->status);
            assert_non_null(strstr(p.r[r]->text, "pause hook"));
            assert_ok(dyt_session_valid(p.r[r]->session, &version));
            assert_int_equal(1, version);
            assert_true(holds(p.r[r], 1));
        }
        fails = false;
        all_receive(p.r, 4, 2);
        all_ok(p.t, 1, end_offer);
        end_pair(&p);
    }
}

/* ---- when the rows are free ---------------------------------------------- */

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool waits, open;
};

static enum dyt_status wait_at_gate(void *arg)
{
    struct gate *g = arg;

    pthread_mutex_lock(&g->lock);
    g->waits = true;
    pthread_cond_broadcast(&g->changed);
    while (!g->open) {
        pthread_cond_wait(&g->changed, &g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    return DYT_OK;
}

/* The sender writes over its rows as soon as it may: what the slowest of the
 * ranks has is still the version. */
static void rows_are_free_when_the_slowest_rank_has_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        struct pair p = make_pair(&session_modes[i], 2);
        struct member_call call[2];
        struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER,
                            .changed = PTHREAD_COND_INITIALIZER};

        p.r[1]->hooked = true;
        p.r[1]->hooks = (struct dyt_session_hooks){
            .arg = &gate, .pause = wait_at_gate, .resume = no_matter};
        enter_pair(&p);
        all_offer(p.t, 1, 1);
        all_ask(p.r, 2, 1, -1);
        for (uint32_t r = 0; r < 2; r++) {
            call_start(&call[r], p.r[r], receive);
        }
        pthread_mutex_lock(&gate.lock);
        while (!gate.waits) {
            pthread_cond_wait(&gate.changed, &gate.lock);
        }
        pthread_mutex_unlock(&gate.lock);
        /* one rank has not begun */
        assert_status(DYT_PENDING, dyt_ticket_done(p.t[0]->ticket));
        assert_status(DYT_ERR_STATE, dyt_session_will_write(p.t[0]->session));
        pthread_mutex_lock(&gate.lock);
        gate.open = true;
        pthread_cond_broadcast(&gate.changed);
        pthread_mutex_unlock(&gate.lock);
        assert_ok(dyt_ticket_wait(p.t[0]->ticket, -1));
        write_version(p.t[0], 9);
        for (uint32_t r = 0; r < 2; r++) {
            assert_ok(call_end(&call[r]));
            assert_true(holds(p.r[r], 1));
        }
        dyt_ticket_destroy(p.t[0]->ticket);
        end_pair(&p);
    }
}

/* Without a pause anywhere: done, written over, offered, again and again. */
static void rows_may_be_written_at_once_every_time(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        struct pair p = make_pair(&session_modes[i], 2);

        enter_pair(&p);
        for (uint64_t v = 1; v <= dyt_test_rounds(50, 1000); v++) {
            pass_on(p.t, 1, p.r, 2, v);
            write_version(p.t[0], v + 100);
            assert_true(holds(p.r[0], v) && holds(p.r[1], v));
        }
        end_pair(&p);
    }
}

/* A trainer leaves with its memory when it is told that nobody reads it. */
static void a_trainer_may_leave_when_its_ticket_is_done(void **state)
{
    const char *folder = session_folder();
    struct member *host = cut_member(folder, DYT_ROLE_TRAINER, 0, 0, 2);
    struct member *t[2] = {host, NULL}, *r[1];

    (void)state;
    r[0] = cut_member(folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    t[1] = cut_member(folder, DYT_ROLE_TRAINER, 0, 1, 2);
    all_ok(t, 2, enter);
    all_ok(r, 1, enter);
    pass_on(t, 2, r, 1, 1);
    leave(t[1]); /* its rows are freed */
    assert_true(holds(r[0], 1));
    t[1] = cut_member(folder, DYT_ROLE_TRAINER, 0, 1, 2);
    all_ok(t + 1, 1, enter);
    pass_on(t, 2, r, 1, 2);
    all_leave(t, 2, r, 1);
}

/* ---- caches -------------------------------------------------------------- */

/* A server that keeps what it made of its weights for each token, as a prefix
 * cache keeps keys and values; and what makes it forget. */
enum forgets { NEVER, BY_VERSION, AT_RESUME };

struct cache {
    struct member *m;
    enum forgets forgets;
    bool has[24];
    uint64_t version[24]; /* that it was made of */
    float value[24];
    uint32_t hits;
};

static enum dyt_status stop_answers(void *arg)
{
    (void)arg; /* nobody asks meanwhile */
    return DYT_OK;
}

static enum dyt_status drop_cache(void *arg)
{
    struct cache *c = arg;

    if (c->forgets == AT_RESUME) {
        memset(c->has, 0, sizeof(c->has));
    }
    return DYT_OK;
}

/* Answers a prompt of all tokens; are all of this version's weights? */
static bool answers_with(struct cache *c, uint64_t version)
{
    struct member *m = c->m;
    uint64_t serves = 0;
    void *data = NULL;
    bool right = true;

    assert_ok(dyt_session_valid(m->session, &serves));
    assert_int_equal(version, serves);
    assert_ok((m->row[0].flags & DYT_ROW_STAGED) != 0
                  ? dyt_session_staged(m->session, 0, &data)
                  : dyt_session_row_data(m->session, 0, &data));
    c->hits = 0;
    for (uint64_t t = 0; t < 24; t++) {
        bool hit =
            c->has[t] && (c->forgets != BY_VERSION || c->version[t] == serves);

        c->hits += hit;
        if (!hit) {
            c->has[t] = true;
            c->version[t] = serves;
            c->value[t] = get(&m->row[0], data, t * 10);
        }
        right = right &&
                c->value[t] == value_of(version, "layers.0.weight", t * 4096);
    }
    return right;
}

static void use_cache(const struct session_mode *mode, enum forgets forgets)
{
    struct pair p = make_pair(mode, 1);
    struct cache c = {.m = p.r[0], .forgets = forgets};

    p.r[0]->hooked = true;
    p.r[0]->hooks = (struct dyt_session_hooks){
        .pause = stop_answers, .resume = drop_cache, .arg = &c};
    enter_pair(&p);
    for (uint64_t v = 1; v <= 3; v++) {
        pass_on(p.t, 1, p.r, 1, v);
        /* one that never forgets says what it made of the old weights */
        assert_int_equal(forgets != NEVER || v == 1, answers_with(&c, v));
        assert_int_equal(forgets == NEVER && v > 1 ? 24 : 0, c.hits);
        (void)answers_with(&c, v);
        assert_int_equal(24, c.hits);
        /* no update: what it made is of what it serves */
        all_ask(p.r, 1, v + 1, 1000000);
        assert_int_equal(DYT_ERR_TIMEOUT, receive(p.r[0]));
        (void)answers_with(&c, v);
        assert_int_equal(24, c.hits);
    }
    all_offer(p.t, 1, 4); /* and through a sleep */
    assert_ok(dyt_session_release(p.r[0]->session, DYT_TAG_WEIGHTS));
    assert_ok(dyt_session_restore(p.r[0]->session, DYT_TAG_WEIGHTS));
    all_receive(p.r, 1, 4);
    all_ok(p.t, 1, end_offer);
    assert_int_equal(forgets != NEVER, answers_with(&c, 4));
    end_pair(&p);
}

static void caches_of_old_weights_are_not_used(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        use_cache(&session_modes[i], NEVER); /* the test would see it */
        use_cache(&session_modes[i], BY_VERSION);
        use_cache(&session_modes[i], AT_RESUME);
    }
}

/* ---- asleep -------------------------------------------------------------- */

static void a_sleeping_replica_takes_and_serves_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        struct pair p = make_pair(&session_modes[i], 2);
        uint64_t version;

        enter_pair(&p);
        pass_on(p.t, 1, p.r, 2, 1);
        all_offer(p.t, 1, 2);
        /* one rank sleeps: no rank of the replica takes anything */
        assert_ok(dyt_session_release(p.r[0]->session, DYT_TAG_WEIGHTS));
        all_ask(p.r, 2, 2, -1); /* no deadline: both hear it at once */
        all_call(p.r, 2, receive);
        assert_int_equal(DYT_ERR_STATE, p.r[0]->status);
        assert_int_equal(DYT_ERR_STATE, p.r[1]->status);
        assert_non_null(strstr(p.r[1]->text, "rank 0 of replica"));
        assert_non_null(strstr(p.r[1]->text, "has released its weights"));
        assert_true(holds(p.r[1], 1));
        assert_status(DYT_ERR_STATE,
                      dyt_session_valid(p.r[0]->session, &version));
        assert_ok(dyt_session_release(p.r[1]->session, DYT_TAG_WEIGHTS));
        for (uint32_t r = 0; r < 2; r++) {
            assert_ok(dyt_session_restore(p.r[r]->session, DYT_TAG_WEIGHTS));
            /* awake, but what it holds is nothing */
            assert_status(DYT_ERR_STATE,
                          dyt_session_valid(p.r[r]->session, &version));
        }
        all_receive(p.r, 2, 2);
        all_ok(p.t, 1, end_offer);
        end_pair(&p);
    }
}

/* A rank that waits for a version hears that another went to sleep; one that
 * is only slower to sleep or to wake is waited for. */
static void a_rank_that_falls_asleep_ends_the_others_receive(void **state)
{
    struct pair p = make_pair(&session_modes[0], 2);
    struct member *waits = p.r[0];
    struct member_call call;

    (void)state;
    enter_pair(&p);
    pass_on(p.t, 1, p.r, 2, 1);
    all_ask(&waits, 1, 2, -1);
    call_start(&call, waits, receive);
    assert_ok(dyt_session_release(p.r[1]->session, DYT_TAG_WEIGHTS));
    assert_int_equal(DYT_ERR_STATE, call_end(&call));
    assert_non_null(strstr(waits->text, "rank 1 of replica"));
    assert_non_null(strstr(waits->text, "has released its weights"));
    assert_true(holds(waits, 1)); /* and it serves on */
    /* rank 0 sleeps and wakes while rank 1 still sleeps */
    assert_ok(dyt_session_release(waits->session, DYT_TAG_WEIGHTS));
    assert_ok(dyt_session_restore(waits->session, DYT_TAG_WEIGHTS));
    all_offer(p.t, 1, 2);
    all_ask(p.r, 2, 2, -1);
    call_start(&call, waits, receive);
    assert_ok(dyt_session_restore(p.r[1]->session, DYT_TAG_WEIGHTS));
    receive(p.r[1]);
    assert_int_equal(DYT_OK, call_end(&call));
    assert_int_equal(DYT_OK, p.r[1]->status);
    assert_true(holds(p.r[0], 2) && holds(p.r[1], 2));
    all_ok(p.t, 1, end_offer);
    end_pair(&p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_same_weights_again_are_the_same_bits),
    cmocka_unit_test(nothing_is_served_before_the_first_commit),
    cmocka_unit_test(versions_rise),
    cmocka_unit_test(asking_again_tells_what_is_held),
    cmocka_unit_test(a_rank_that_fails_holds_all_of_its_replica),
    cmocka_unit_test(rows_are_free_when_the_slowest_rank_has_them),
    cmocka_unit_test(rows_may_be_written_at_once_every_time),
    cmocka_unit_test(a_trainer_may_leave_when_its_ticket_is_done),
    cmocka_unit_test(caches_of_old_weights_are_not_used),
    cmocka_unit_test(a_sleeping_replica_takes_and_serves_nothing),
    cmocka_unit_test(a_rank_that_falls_asleep_ends_the_others_receive),
};
DYT_TEST_MAIN(tests)
