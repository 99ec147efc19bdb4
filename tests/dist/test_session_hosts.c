/* Sessions over several hosts, all members in this process under other host
 * names: weights go by messages, one copy enters a host, and what fails fails
 * at once. */
#include "control/hub.h"
#include "dyt_ranks.h"

#include <arpa/inet.h>
#include <dynatrain/session.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define ROWS   96
#define COLS   64
#define SECOND 1000000000ll
#define BYTES  (2u * ROWS * COLS * sizeof(float))

static const char *const names[2] = {"a.weight", "b.weight"};

struct member {
    dyt_session *session;
    struct dyt_session_params join;
    struct dyt_row row[2];
    struct dyt_piece piece[2];
    float *own[2];
    int64_t lo, hi;
    char address[160];
    /* of the last receive */
    uint64_t version;
    enum dyt_status status;
    char text[512];
    struct dyt_switch_report report;
};

static float value_of(uint64_t version, uint64_t tensor, int64_t row,
                      int64_t col)
{
    return (float)(version * 20000 + tensor * 8000 +
                   (uint64_t)(row * COLS + col));
}

static void write_version(struct member *m, uint64_t version)
{
    for (uint64_t t = 0; t < 2; t++) {
        for (int64_t i = 0; i < (m->hi - m->lo) * COLS; i++) {
            m->own[t][i] = value_of(version, t, m->lo + i / COLS, i % COLS);
        }
    }
}

static bool is_version(struct member *m, uint64_t version)
{
    for (uint64_t t = 0; t < 2; t++) {
        void *data = NULL;
        const float *f;

        assert_ok(dyt_session_row_data(m->session, t, &data));
        f = data;
        for (int64_t i = 0; i < (m->hi - m->lo) * COLS; i++) {
            if (f[i] != value_of(version, t, m->lo + i / COLS, i % COLS)) {
                return false;
            }
        }
    }
    return true;
}

/* Rank `rank` of `size` on a host, not joined yet. */
static void describe(struct member *m, const char *folder, const char *host,
                     uint32_t replica, uint32_t rank, uint32_t size)
{
    memset(m, 0, sizeof(*m));
    snprintf(m->address, sizeof(m->address), "unix:%s/s.sock", folder);
    m->join = (struct dyt_session_params){
        .struct_size = sizeof(m->join),
        .role = replica == UINT32_MAX ? DYT_ROLE_TRAINER : DYT_ROLE_RECEIVER,
        .address = m->address,
        .job = "job",
        .replica = replica == UINT32_MAX ? 0 : replica,
        .rank = rank,
        .size = size,
        .tp_rank = rank,
        .tp_size = size,
        .verify = DYT_VERIFY_FULL,
        .timeout_ns = 10 * SECOND,
        .host = host};
    m->lo = ROWS / size * rank;
    m->hi = ROWS / size * (rank + 1);
    for (int t = 0; t < 2; t++) {
        m->own[t] = calloc((size_t)(m->hi - m->lo) * COLS, sizeof(float));
        m->piece[t] = (struct dyt_piece){.struct_size = sizeof(m->piece[t]),
                                         .tensor = names[t],
                                         .box = {2, {m->lo, 0}, {m->hi, COLS}}};
        m->row[t] = (struct dyt_row){.struct_size = sizeof(m->row[t]),
                                     .kind = DYT_PARAM,
                                     .dtype = DYT_F32,
                                     .name = names[t],
                                     .ndim = 2,
                                     .shape = {m->hi - m->lo, COLS},
                                     .global_shape = {ROWS, COLS},
                                     .data = m->own[t],
                                     .fd = -1,
                                     .piece = &m->piece[t],
                                     .piece_count = 1,
                                     .piece_struct_size = sizeof(m->piece[t])};
    }
}

static enum dyt_status enter(struct member *m)
{
    struct dyt_view view;
    enum dyt_status st = dyt_session_join(&m->join, &m->session);

    if (st == DYT_OK && m->join.memory == DYT_MEMORY_MAPPED) {
        st = dyt_session_map(m->session, m->row, 2);
    }
    view = (struct dyt_view){.struct_size = sizeof(view),
                             .row_struct_size = sizeof(m->row[0]),
                             .row = m->row,
                             .row_count = 2};
    st = st != DYT_OK ? st : dyt_session_publish(m->session, &view, NULL);
    m->status = st;
    snprintf(m->text, sizeof(m->text), "%s", dyt_error_text());
    return st;
}

static void leave(struct member *m)
{
    dyt_session_leave(m->session);
    free(m->own[0]);
    free(m->own[1]);
    memset(m, 0, sizeof(*m));
}

static void *enter_thread(void *arg)
{
    (void)enter(arg);
    return NULL;
}

static void *receive_thread(void *arg)
{
    struct member *m = arg;

    m->report = (struct dyt_switch_report){.struct_size = sizeof(m->report)};
    m->status = dyt_session_receive(m->session, m->version, -1, &m->report);
    snprintf(m->text, sizeof(m->text), "%s", dyt_error_text());
    return NULL;
}

static void *offer_thread(void *arg)
{
    struct member *m = arg;
    struct dyt_offer_params p = {.struct_size = sizeof(p),
                                 .version = m->version};
    dyt_ticket *ticket = NULL;

    m->status = dyt_session_offer(m->session, &p, &ticket);
    if (m->status == DYT_OK) {
        m->status = dyt_ticket_wait(ticket, -1);
    }
    snprintf(m->text, sizeof(m->text), "%s", dyt_error_text());
    dyt_ticket_destroy(ticket);
    return NULL;
}

static void all_do(struct member *m, size_t count, void *(*what)(void *))
{
    pthread_t thread[16];

    assert_true(count <= DYT_TEST_COUNT(thread));
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(0, pthread_create(&thread[i], NULL, what, &m[i]));
    }
    for (size_t i = 0; i < count; i++) {
        pthread_join(thread[i], NULL);
    }
}

static void *act(void *arg)
{
    struct member *m = arg;

    return m->join.role == DYT_ROLE_TRAINER ? offer_thread(m)
                                            : receive_thread(m);
}

static void enter_all(struct member *m, size_t count)
{
    all_do(m, count, enter_thread);
    for (size_t i = 0; i < count; i++) {
        if (m[i].status != DYT_OK) {
            fail_msg("member %zu: %s", i, m[i].text);
        }
    }
}

/* Everybody gets `version`, the first `trainers` members offer it. */
static void update(struct member *m, size_t trainers, size_t count,
                   uint64_t version)
{
    for (size_t i = 0; i < count; i++) {
        m[i].version = version;
        if (i < trainers) {
            write_version(&m[i], version);
        }
    }
    all_do(m, count, act);
    for (size_t i = count; i-- > 0;) { /* those that receive know more */
        if (m[i].status != DYT_OK) {
            fail_msg("version %" PRIu64 ", member %zu: %s", version, i,
                     m[i].text);
        }
        if (i >= trainers) {
            assert_true(is_version(&m[i], version));
        }
    }
}

static void leave_all(struct member *m, size_t count)
{
    for (size_t i = count; i-- > 0;) {
        leave(&m[i]);
    }
}

/* ---- cases --------------------------------------------------------------- */

static void every_mode_crosses(void **state)
{
    static const uint32_t mode[][2] = {{DYT_COMMIT_STAGED, DYT_MEMORY_OWN},
                                       {DYT_COMMIT_IN_PLACE, DYT_MEMORY_OWN},
                                       {DYT_COMMIT_IN_PLACE, DYT_MEMORY_MAPPED},
                                       {DYT_COMMIT_DOUBLE, DYT_MEMORY_MAPPED}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(mode); i++) {
        const char *folder = dyt_test_dir();
        struct member m[5];

        assert_int_equal(0, chmod(folder, 0700));
        for (uint32_t r = 0; r < 2; r++) { /* tp 2 to tp 3 */
            describe(&m[r], folder, "a", UINT32_MAX, r, 2);
        }
        for (uint32_t r = 0; r < 3; r++) {
            describe(&m[2 + r], folder, "b", 0, r, 3);
            m[2 + r].join.commit = mode[i][0];
            m[2 + r].join.memory = mode[i][1];
        }
        enter_all(m, 5);
        for (uint64_t v = 1; v <= 3; v++) {
            update(m, 2, 5, v);
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
    describe(&m[0], folder, "a", UINT32_MAX, 0, 2);
    describe(&m[1], folder, "b", UINT32_MAX, 1, 2);
    describe(&m[2], folder, "a", 0, 0, 1);
    describe(&m[3], folder, "b", 1, 0, 1);
    enter_all(m, 4);
    update(m, 2, 4, 1);
    update(m, 2, 4, 2);
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
    describe(&m[0], folder, "a", UINT32_MAX, 0, 1);
    for (uint32_t r = 0; r < 6; r++) {
        describe(&m[1 + r], folder, r < 3 ? "b" : "c", r, 0, 1);
    }
    enter_all(m, 7);
    for (uint64_t v = 1; v <= 3; v++) {
        uint64_t entered[2] = {0, 0}, moved = 0;

        update(m, 1, 7, v);
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
    describe(&m[0], folder, NULL, UINT32_MAX, 0, 1);
    describe(&m[1], folder, NULL, 0, 0, 1);
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
        pthread_t offers;

        assert_int_equal(0, pthread_create(&offers, NULL, offer_thread, &m[0]));
        (void)receive_thread(&m[1]);
        assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &before));
        clock_gettime(CLOCK_MONOTONIC, &t[1]);
        assert_int_equal(DYT_ERR_NOMEM, m[1].status);
        assert_non_null(strstr(m[1].text, "control segment"));
        assert_true(t[1].tv_sec - t[0].tv_sec < 30); /* of 60 */
        (void)receive_thread(&m[1]);
        assert_int_equal(DYT_OK, m[1].status);
        pthread_join(offers, NULL);
        assert_int_equal(DYT_OK, m[0].status);
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
    describe(&m[0], folder, "a", UINT32_MAX, 0, 1);
    describe(&m[1], folder, "b", 0, 0, 1);
    assert_ok(enter(&m[0]));
    assert_status(DYT_ERR_UNSUPPORTED, enter(&m[1]));
    assert_non_null(strstr(m[1].text, "libdynatrain-gloo.so"));
    assert_non_null(strstr(m[1].text, "on one host"));
    assert_int_equal(0, unsetenv("DYNATRAIN_MODULES"));
    leave_all(m, 2);
}

/* ---- tcp ----------------------------------------------------------------- */

struct keys {
    char folder[2][200], manager[240], manager_public[240], server[240],
        stranger[240], address[64];
};

/* Those of the manager and of a server in one folder, and a stranger's. */
static void make_keys(struct keys *k)
{
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(in);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    for (int i = 0; i < 2; i++) {
        snprintf(k->folder[i], sizeof(k->folder[i]), "%s/%s", dyt_test_dir(),
                 i == 0 ? "keys" : "others");
    }
    assert_ok(dyti_keys_make(k->folder[0], "manager"));
    assert_ok(dyti_keys_make(k->folder[0], "server"));
    assert_ok(dyti_keys_make(k->folder[1], "server"));
    snprintf(k->manager, 240, "%s/manager.secret", k->folder[0]);
    snprintf(k->manager_public, 240, "%s/manager.public", k->folder[0]);
    snprintf(k->server, 240, "%s/server.secret", k->folder[0]);
    snprintf(k->stranger, 240, "%s/server.secret", k->folder[1]);
    assert_int_equal(0, bind(fd, (struct sockaddr *)&in, sizeof(in)));
    assert_int_equal(0, getsockname(fd, (struct sockaddr *)&in, &bytes));
    close(fd);
    snprintf(k->address, sizeof(k->address), "tcp:127.0.0.1:%u",
             ntohs(in.sin_port));
}

static void over_tcp(struct member *m, const struct keys *k, const char *key)
{
    snprintf(m->address, sizeof(m->address), "%s", k->address);
    m->join.key = key;
    m->join.manager_key = k->manager_public;
}

/* Control by tcp with keys, weights from host to host: the address at which a
 * member is reached is that from which it reaches the manager. */
static void keys_open_a_job_on_several_hosts(void **state)
{
    struct keys k;
    struct member m[6];

    (void)state;
    make_keys(&k);
    for (uint32_t r = 0; r < 2; r++) {
        describe(&m[r], "", r == 0 ? "a" : "c", UINT32_MAX, r, 2);
        over_tcp(&m[r], &k, k.manager);
        describe(&m[2 + r], "", "b", 0, r, 2);
        over_tcp(&m[2 + r], &k, k.server);
    }
    describe(&m[4], "", "c", 1, 0, 1);
    over_tcp(&m[4], &k, k.server);
    enter_all(m, 5);
    describe(&m[5], "", "d", 2, 0, 1);
    over_tcp(&m[5], &k, k.stranger);
    assert_status(DYT_ERR_CONFIG, enter(&m[5]));
    assert_non_null(strstr(m[5].text, "refuses this key"));
    for (uint64_t v = 1; v <= 2; v++) {
        update(m, 2, 5, v);
    }
    leave_all(m, 6);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_mode_crosses),
    cmocka_unit_test(a_trainer_on_two_hosts),
    cmocka_unit_test(one_copy_enters_a_host),
    cmocka_unit_test(a_link_that_cannot_open_fails_at_once),
    cmocka_unit_test(keys_open_a_job_on_several_hosts),
    cmocka_unit_test(without_the_module_it_is_refused_by_name),
};
DYT_TEST_MAIN(tests)
