/* Sessions over several hosts, all members in this process under other host
 * names: weights go by messages, one copy enters a host, and what fails fails
 * at once. */
#include "control/hub.h"
#include "lib/session_internal.h"
#include "session_keys.h"
#include "session_world.h"

#include <signal.h>
#include <sys/resource.h>

#define BYTES   (2u * ROWS * COLS * sizeof(float))
#define TRAINER UINT32_MAX /* instead of a replica's number */

/* Rank `rank` of `size` on a host, not joined yet. */
static void describe_on(struct member *m, const char *folder, const char *host,
                        uint32_t replica, uint32_t rank, uint32_t size)
{
    bool trainer = replica == TRAINER;

    describe(m, folder, trainer ? DYT_ROLE_TRAINER : DYT_ROLE_RECEIVER,
             trainer ? 0 : replica, rank, size);
    m->join.host = host;
    m->join.timeout_ns = 10 * SECOND;
}

static enum dyt_status offer_and_wait(struct member *m)
{
    enum dyt_status st = offer(m);

    return st != DYT_OK ? st : end_offer(m);
}

static enum dyt_status act(struct member *m)
{
    return m->join.role == DYT_ROLE_TRAINER ? offer_and_wait(m) : receive(m);
}

/* All at once; those that receive know more of what went wrong. */
static void all_do(struct member *m, uint32_t count, member_fn what)
{
    struct member *all[MEMBERS];

    assert_true(count <= MEMBERS);
    for (uint32_t i = 0; i < count; i++) {
        all[count - 1 - i] = &m[i];
    }
    all_ok(all, count, what);
}

static void enter_all(struct member *m, uint32_t count)
{
    all_do(m, count, enter);
}

/* Everybody gets `version`. */
static void update(struct member *m, uint32_t count, uint64_t version)
{
    for (uint32_t i = 0; i < count; i++) {
        m[i].version = version;
    }
    all_do(m, count, act);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(m[i].join.role == DYT_ROLE_TRAINER ||
                    holds(&m[i], version));
    }
}

static void leave_all(struct member *m, uint32_t count)
{
    for (uint32_t i = count; i-- > 0;) {
        leave(&m[i]);
    }
}

/* ---- cases --------------------------------------------------------------- */

static void every_mode_crosses(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        const char *folder = dyt_test_dir();
        struct member m[5];

        assert_int_equal(0, chmod(folder, 0700));
        for (uint32_t r = 0; r < 2; r++) { /* tp 2 to tp 3 */
            describe_on(&m[r], folder, "a", TRAINER, r, 2);
        }
        for (uint32_t r = 0; r < 3; r++) {
            describe_on(&m[2 + r], folder, "b", 0, r, 3);
            m[2 + r].join.commit = session_modes[i].commit;
            m[2 + r].join.memory = session_modes[i].memory;
        }
        enter_all(m, 5);
        for (uint64_t v = 1; v <= 3; v++) {
            update(m, 5, v);
        }
        leave_all(m, 5);
    }
}

/* A trainer on two hosts, a replica on each: what lies there already goes by
 * messages too. */
static void a_trainer_on_two_hosts(void **state)
{
    const char *folder = dyt_test_dir();
    struct member m[4];

    (void)state;
    assert_int_equal(0, chmod(folder, 0700));
    describe_on(&m[0], folder, "a", TRAINER, 0, 2);
    describe_on(&m[1], folder, "b", TRAINER, 1, 2);
    describe_on(&m[2], folder, "a", 0, 0, 1);
    describe_on(&m[3], folder, "b", 1, 0, 1);
    enter_all(m, 4);
    update(m, 4, 1);
    update(m, 4, 2);
    leave_all(m, 4);
}

/* Three replicas on each of two hosts: what was taken from the trainer is one
 * copy for each, the rest comes from siblings. */
static void one_copy_enters_a_host(void **state)
{
    const char *folder = dyt_test_dir();
    struct member m[7];

    (void)state;
    assert_int_equal(0, chmod(folder, 0700));
    describe_on(&m[0], folder, "a", TRAINER, 0, 1);
    for (uint32_t r = 0; r < 6; r++) {
        describe_on(&m[1 + r], folder, r < 3 ? "b" : "c", r, 0, 1);
    }
    enter_all(m, 7);
    for (uint64_t v = 1; v <= 3; v++) {
        uint64_t entered[2] = {0, 0}, moved = 0;

        update(m, 7, v);
        for (uint32_t r = 0; r < 6; r++) {
            moved += m[1 + r].report.moved_bytes;
            entered[r / 3] +=
                m[1 + r].report.source == 0 ? m[1 + r].report.moved_bytes : 0;
        }
        assert_int_equal(BYTES, entered[0]);
        assert_int_equal(BYTES, entered[1]);
        assert_int_equal(6 * BYTES, moved);
    }
    leave_all(m, 7);
}

/* ---- bytes on the wire --------------------------------------------------- */

#define WIDE 2048

/* What this member has sent to others over its links. */
static uint64_t sent_by(struct member *m)
{
    struct dyt_session *s = m->session;
    uint64_t sent = 0;

    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->link_count; i++) {
        struct dyti_group_traffic traffic;

        if (s->link[i] != NULL && s->link[i]->link != NULL) {
            dyti_link_traffic(s->link[i]->link, &traffic);
            sent += traffic.sent_bytes;
        }
    }
    pthread_mutex_unlock(&s->lock);
    return sent;
}

/* One tensor cut by rows, and one that every rank has whole. */
static void cut_and_whole(struct member *m)
{
    int64_t rank = m->join.rank, size = m->join.size;

    member_cut(m, "cut.weight", DYT_F32, 2, SHAPE(ROWS, WIDE), 0,
               ROWS / size * rank, ROWS / size * (rank + 1));
    WHOLE(m, "norm.weight", DYT_F32, ROWS, WIDE);
}

/* Three ranks of a replica hold the same tensor: it crosses once, as the one
 * that is cut does, whoever has it. */
static void what_ranks_share_crosses_once(void **state)
{
    const uint64_t bytes = 2u * ROWS * WIDE * sizeof(float);

    (void)state;
    for (size_t i = 0; i < 2 * DYT_TEST_COUNT(session_modes); i++) {
        const struct session_mode *mode = &session_modes[i / 2];
        uint32_t trainers = 1 + i % 2;
        const char *folder = session_folder();
        uint64_t before, sent = 0;
        struct member m[5];

        for (uint32_t r = 0; r < trainers; r++) {
            member_init(&m[r], folder, DYT_ROLE_TRAINER, 0, r, trainers);
            m[r].join.host = r == 0 ? "a" : "c";
        }
        for (uint32_t r = trainers; r < trainers + 3; r++) {
            member_init(&m[r], folder, DYT_ROLE_RECEIVER, 0, r - trainers, 3);
            m[r].join.host = "b";
            m[r].join.commit = mode->commit;
            m[r].join.memory = mode->memory;
        }
        for (uint32_t r = 0; r < trainers + 3; r++) {
            cut_and_whole(&m[r]);
        }
        enter_all(m, trainers + 3);
        update(m, trainers + 3, 1);
        before = sent_by(&m[0]) + (trainers > 1 ? sent_by(&m[1]) : 0);
        update(m, trainers + 3, 2);
        sent = sent_by(&m[0]) + (trainers > 1 ? sent_by(&m[1]) : 0) - before;
        if (sent < bytes || sent > bytes + bytes / 50) { /* and few words */
            fail_msg("%s: %" PRIu64 " bytes crossed, %" PRIu64 " are needed",
                     mode->name, sent, bytes);
        }
        leave_all(m, trainers + 3);
    }
}

/* Rank 1 of the trainer goes on without a word while a replica on another host
 * is about to read: all hear so, and nothing is taken. */
static enum dyt_status write_undeclared(void *arg)
{
    write_version(arg, 9);
    return DYT_OK;
}

static void an_undeclared_write_is_found_between_hosts(void **state)
{
    const char *folder = session_folder();
    struct member m[4], *all[4];

    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        describe_on(&m[r], folder, "a", TRAINER, r, 2);
        describe_on(&m[2 + r], folder, "b", 0, r, 2);
    }
    m[2].hooked = true;
    m[2].hooks.arg = &m[1];
    for (uint32_t i = 0; i < 4; i++) {
        all[i] = &m[i];
    }
    enter_all(m, 4);
    update(m, 4, 1);
    m[2].hooks.pause = write_undeclared;
    assert_ok(dyt_session_set_hooks(m[2].session, &m[2].hooks));
    all_ask(all, 4, 2, -1);
    all_call(all, 4, act);
    all_are(&all[1], 3, DYT_ERR_VERIFY);
    assert_int_equal(DYT_ERR_CANCELLED, m[0].status); /* the other rank's */
    for (uint32_t i = 1; i < 4; i++) {
        assert_non_null(strstr(m[i].text, "was written"));
        assert_true(i == 1 || holds(&m[i], 1));
    }
    m[2].hooks.pause = NULL;
    assert_ok(dyt_session_set_hooks(m[2].session, &m[2].hooks));
    update(m, 4, 3);
    leave_all(m, 4);
}

/* The manager can make no control segment: whoever waits hears it, long before
 * a deadline would come; and the next time it works. */
static void a_link_that_cannot_open_fails_at_once(void **state)
{
    const char *folder = dyt_test_dir();
    struct rlimit before, none;
    struct timespec t[2];
    struct member m[2];

    (void)state;
    assert_int_equal(0, chmod(folder, 0700));
    describe_on(&m[0], folder, NULL, TRAINER, 0, 1);
    describe_on(&m[1], folder, NULL, 0, 0, 1);
    m[0].join.timeout_ns = m[1].join.timeout_ns = 60 * SECOND;
    enter_all(m, 2);
    m[0].version = m[1].version = 1;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(0, getrlimit(RLIMIT_FSIZE, &before));
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &none));
    clock_gettime(CLOCK_MONOTONIC, &t[0]);
    {
        struct member_call offers;

        call_start(&offers, &m[0], offer_and_wait);
        (void)receive(&m[1]);
        assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &before));
        clock_gettime(CLOCK_MONOTONIC, &t[1]);
        assert_int_equal(DYT_ERR_NOMEM, m[1].status);
        assert_non_null(strstr(m[1].text, "control segment"));
        assert_true(t[1].tv_sec - t[0].tv_sec < 30); /* of 60 */
        assert_ok(receive(&m[1]));
        assert_int_equal(DYT_OK, call_end(&offers));
    }
    leave_all(m, 2);
}

static void without_the_module_it_is_refused_by_name(void **state)
{
    const char *folder = dyt_test_dir();
    struct member m[2];

    (void)state;
    assert_int_equal(0, chmod(folder, 0700));
    assert_int_equal(0, setenv("DYNATRAIN_MODULES", folder, 1));
    describe_on(&m[0], folder, "a", TRAINER, 0, 1);
    describe_on(&m[1], folder, "b", 0, 0, 1);
    assert_ok(enter(&m[0]));
    assert_status(DYT_ERR_UNSUPPORTED, enter(&m[1]));
    assert_non_null(strstr(m[1].text, "libdynatrain-gloo.so"));
    assert_non_null(strstr(m[1].text, "on one host"));
    assert_int_equal(0, unsetenv("DYNATRAIN_MODULES"));
    leave_all(m, 2);
}

/* A module of another version, at whoever comes, or who is there already: found
 * when the second host comes, before anything is published. */
static void a_module_of_another_version_is_refused_by_name(void **state)
{
    const char *folder = session_folder();

    (void)state;
    for (int newcomer = 0; newcomer < 2; newcomer++) {
        struct member m[2];

        describe_on(&m[0], folder, "a", TRAINER, 0, 1);
        describe_on(&m[1], folder, "b", 0, 0, 1);
        for (int i = 0; i < 2; i++) {
            if (i == newcomer) {
                assert_int_equal(0,
                                 setenv("DYNATRAIN_MODULES", OTHER_MODULES, 1));
            }
            if (i == 0) {
                assert_ok(enter(&m[0])); /* alone it needs none */
            } else {
                assert_status(DYT_ERR_UNSUPPORTED,
                              dyt_session_join(&m[1].join, &m[1].session));
            }
            assert_int_equal(0, unsetenv("DYNATRAIN_MODULES"));
        }
        assert_error_has(newcomer ? "b cannot send weights between hosts"
                                  : "a cannot send weights between hosts");
        assert_error_has("is of another version of dynatrain");
        assert_error_has(OTHER_MODULES "/libdynatrain-gloo.so");
        assert_null(m[1].session);
        leave_all(m, 2);
    }
}

/* ---- tcp ----------------------------------------------------------------- */

/* A manager's and a server's, and a stranger's. */
struct tcp_job {
    struct session_keys keys, strange;
    char address[64];
};

static void make_tcp_job(struct tcp_job *j)
{
    char folder[200];

    snprintf(folder, sizeof(folder), "%s/keys", dyt_test_dir());
    j->keys = session_keys(folder, "server");
    snprintf(folder, sizeof(folder), "%s/others", dyt_test_dir());
    j->strange = session_keys(folder, "server");
    assert_ok(dyti_keys_make(j->keys.folder, "manager"));
    assert_ok(dyti_keys_make(j->keys.folder, "server"));
    assert_ok(dyti_keys_make(j->strange.folder, "server"));
    session_free_address(j->address);
}

static void over_tcp(struct member *m, const struct tcp_job *j, const char *key)
{
    snprintf(m->address, sizeof(m->address), "%s", j->address);
    m->join.key = key;
    m->join.manager_key = j->keys.manager_public;
}

/* Control by tcp with keys, weights from host to host: the address at which a
 * member is reached is that from which it reaches the manager. */
static void keys_open_a_job_on_several_hosts(void **state)
{
    struct tcp_job j;
    struct member m[6];

    (void)state;
    make_tcp_job(&j);
    for (uint32_t r = 0; r < 2; r++) {
        describe_on(&m[r], "", r == 0 ? "a" : "c", TRAINER, r, 2);
        over_tcp(&m[r], &j, j.keys.manager);
        describe_on(&m[2 + r], "", "b", 0, r, 2);
        over_tcp(&m[2 + r], &j, j.keys.other);
    }
    describe_on(&m[4], "", "c", 1, 0, 1);
    over_tcp(&m[4], &j, j.keys.other);
    enter_all(m, 5);
    describe_on(&m[5], "", "d", 2, 0, 1);
    over_tcp(&m[5], &j, j.strange.other);
    assert_status(DYT_ERR_CONFIG, enter(&m[5]));
    assert_non_null(strstr(m[5].text, "refuses this key"));
    for (uint64_t v = 1; v <= 2; v++) {
        update(m, 5, v);
    }
    leave_all(m, 6);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_mode_crosses),
    cmocka_unit_test(a_trainer_on_two_hosts),
    cmocka_unit_test(one_copy_enters_a_host),
    cmocka_unit_test(what_ranks_share_crosses_once),
    cmocka_unit_test(an_undeclared_write_is_found_between_hosts),
    cmocka_unit_test(a_link_that_cannot_open_fails_at_once),
    cmocka_unit_test(keys_open_a_job_on_several_hosts),
    cmocka_unit_test(without_the_module_it_is_refused_by_name),
    cmocka_unit_test(a_module_of_another_version_is_refused_by_name),
};
DYT_TEST_MAIN(tests)
