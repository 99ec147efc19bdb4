/* Requests that run while a version comes, in a small server over a session:
 * each token carries the version whose weights made it.  One stamp for all of a
 * request, at its start or at its end, would be wrong for some. */
#include "session_world.h"

#define TOKENS 128u
#define BEFORE 57u /* tokens that are made when the version comes */

enum in_flight { CONTINUE, WAIT, ABORT, IN_FLIGHT_COUNT };

struct server {
    struct member *m;
    enum in_flight in_flight;
    pthread_rwlock_t weights; /* one token is made, or they change */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool reached;   /* BEFORE tokens are made */
    bool may_go_on; /* the version is asked for (WAIT), or has come */
    bool aborted, ended;
    uint32_t tokens;
    float value[TOKENS];
    uint64_t version[TOKENS];
    pthread_t thread;
};

static void tell(struct server *v, bool *what)
{
    pthread_mutex_lock(&v->lock);
    *what = true;
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->lock);
}

static void await(struct server *v, const bool *what)
{
    pthread_mutex_lock(&v->lock);
    while (!*what) {
        pthread_cond_wait(&v->changed, &v->lock);
    }
    pthread_mutex_unlock(&v->lock);
}

/* ---- the server ---------------------------------------------------------- */

/* Token i is what element i of the weights is. */
static bool make_token(struct server *v)
{
    uint32_t i = v->tokens;
    void *data = NULL;
    bool ok;

    pthread_rwlock_rdlock(&v->weights);
    ok = !v->aborted &&
         dyt_session_valid(v->m->session, &v->version[i]) == DYT_OK &&
         dyt_session_row_data(v->m->session, 0, &data) == DYT_OK;
    if (ok) {
        v->value[i] = get(&v->m->row[0], data, i);
        v->tokens++;
    }
    pthread_rwlock_unlock(&v->weights);
    return ok;
}

static void *answer(void *arg)
{
    struct server *v = arg;

    while (v->tokens < TOKENS && make_token(v)) {
        if (v->tokens == BEFORE) {
            tell(v, &v->reached);
            await(v, &v->may_go_on);
        }
    }
    tell(v, &v->ended);
    return NULL;
}

static enum dyt_status on_pause(void *arg)
{
    struct server *v = arg;

    if (v->in_flight == WAIT) {
        tell(v, &v->may_go_on);
        await(v, &v->ended);
    }
    pthread_rwlock_wrlock(&v->weights);
    v->aborted = v->in_flight == ABORT;
    return DYT_OK;
}

static enum dyt_status on_resume(void *arg)
{
    struct server *v = arg;

    pthread_rwlock_unlock(&v->weights);
    return DYT_OK;
}

static void start_request(struct server *v)
{
    v->aborted = v->ended = v->reached = v->may_go_on = false;
    assert_int_equal(0, pthread_create(&v->thread, NULL, answer, v));
}

/* ---- cases --------------------------------------------------------------- */

/* Tokens [first, end) were made by this version, and say so. */
static void made_by(const struct server *v, uint32_t first, uint32_t end,
                    uint64_t version)
{
    for (uint32_t i = first; i < end; i++) {
        uint64_t index = (uint64_t)(i / COLS) * 4096 + i % COLS;

        if (v->version[i] != version ||
            v->value[i] != value_of(version, names[0], index)) {
            fail_msg("token %u says version %llu, want %llu", i,
                     (unsigned long long)v->version[i],
                     (unsigned long long)version);
        }
    }
}

static void update_within_a_request(const struct session_mode *mode,
                                    enum in_flight in_flight)
{
    struct member t, r;
    struct server v = {.m = &r,
                       .in_flight = in_flight,
                       .weights = PTHREAD_RWLOCK_INITIALIZER,
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .changed = PTHREAD_COND_INITIALIZER};
    struct dyt_session_hooks hooks = {.struct_size = sizeof(hooks),
                                      .arg = &v,
                                      .pause = on_pause,
                                      .resume = on_resume};

    pair(&t, &r, session_folder(), mode->commit, mode->memory);
    send_version(&t, &r, 7);
    assert_ok(dyt_session_set_hooks(r.session, &hooks));
    start_request(&v);
    await(&v, &v.reached);
    send_version(&t, &r, 8);
    tell(&v, &v.may_go_on);
    pthread_join(v.thread, NULL);
    if (in_flight == ABORT) { /* what there is goes on as another request */
        assert_int_equal(BEFORE, v.tokens);
        start_request(&v);
        pthread_join(v.thread, NULL);
    }
    assert_int_equal(TOKENS, v.tokens);
    made_by(&v, 0, in_flight == WAIT ? TOKENS : BEFORE, 7);
    made_by(&v, in_flight == WAIT ? TOKENS : BEFORE, TOKENS, 8);
    leave(&r);
    leave(&t);
}

static void each_token_is_of_the_version_that_made_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        for (int how = 0; how < IN_FLIGHT_COUNT; how++) {
            update_within_a_request(&session_modes[i], (enum in_flight)how);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_token_is_of_the_version_that_made_it),
};
DYT_TEST_MAIN(tests)
