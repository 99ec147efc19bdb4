/* Calls that block: they end at their deadline or when somebody asks, take no
 * signal of the program's, and may be made again. */
#include "session_world.h"

#include <dirent.h>
#include <time.h>

#define MS 1000000ll

/* ---- interrupts ---------------------------------------------------------- */

/* Interrupts a session until told to stop: one that comes before the call
 * begins is not for it. */
struct pest {
    dyt_session *session;
    uint32_t stop;
    pthread_t thread;
};

static void *interrupt_it(void *arg)
{
    struct pest *p = arg;
    struct timespec tick = {0, 10 * MS};

    while (__atomic_load_n(&p->stop, __ATOMIC_ACQUIRE) == 0) {
        dyt_session_interrupt(p->session);
        nanosleep(&tick, NULL);
    }
    return NULL;
}

static void pest_start(struct pest *p, dyt_session *session)
{
    *p = (struct pest){.session = session};
    assert_int_equal(0, pthread_create(&p->thread, NULL, interrupt_it, p));
}

static void pest_stop(struct pest *p)
{
    __atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
    pthread_join(p->thread, NULL);
}

static void *publish_it(void *arg)
{
    (void)member_publish(arg);
    return NULL;
}

static void *offer_it(void *arg)
{
    struct member *m = arg;
    dyt_ticket *ticket = NULL;

    m->status = offer_version(m, 1, false, &ticket);
    dyt_ticket_destroy(ticket);
    return NULL;
}

static void every_blocking_call_can_be_interrupted(void **state)
{
    const char *folder = dyt_test_dir();
    struct member t, r, half;
    struct pest pest;
    dyt_ticket *ticket;

    (void)state;
    pair(&t, &r, folder, DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    /* a receive of what is not there */
    pest_start(&pest, r.session);
    assert_status(DYT_ERR_CANCELLED, receive_version(&r, 0));
    pest_stop(&pest);
    /* a ticket that nobody takes */
    write_version(&t, 1);
    assert_ok(offer_version(&t, 1, false, &ticket));
    pest_start(&pest, t.session);
    assert_status(DYT_ERR_CANCELLED, dyt_ticket_wait(ticket, -1));
    assert_error_has("interrupted");
    pest_stop(&pest);
    assert_status(DYT_PENDING, dyt_ticket_done(ticket)); /* it goes on */
    assert_ok(receive_version(&r, 1));
    assert_ok(dyt_ticket_wait(ticket, -1));
    dyt_ticket_destroy(ticket);
    /* the publish of half a replica */
    describe(&half, folder, DYT_ROLE_RECEIVER, 1, 0, 2);
    assert_ok(dyt_session_join(&half.join, &half.session));
    pest_start(&pest, half.session);
    assert_status(DYT_ERR_CANCELLED, member_publish(&half));
    pest_stop(&pest);
    assert_error_has("1 of 2 members of replica rollout/1 have joined");
    leave(&half);
    dyt_session_interrupt(r.session); /* nobody waits: it is not for the next */
    dyt_session_interrupt(NULL);
    send_version(&t, &r, 2);
    leave(&r);
    leave(&t);
}

/* One rank of two offers, and takes that back; then both do. */
static void an_offer_of_half_a_trainer_can_be_interrupted(void **state)
{
    const char *folder = dyt_test_dir();
    struct member t[2];
    struct pest pest;
    dyt_ticket *ticket = NULL;
    pthread_t thread;

    (void)state;
    assert_int_equal(0, chmod(folder, 0700));
    for (uint32_t i = 0; i < 2; i++) {
        describe(&t[i], folder, DYT_ROLE_TRAINER, 0, i, 2);
        assert_ok(dyt_session_join(&t[i].join, &t[i].session));
    }
    /* nor a publish that the other rank does not make */
    pest_start(&pest, t[1].session);
    assert_status(DYT_ERR_CANCELLED, member_publish(&t[1]));
    pest_stop(&pest);
    assert_error_has("tensors are not known");
    assert_int_equal(0, pthread_create(&thread, NULL, publish_it, &t[1]));
    assert_ok(member_publish(&t[0]));
    pthread_join(thread, NULL);
    assert_int_equal(DYT_OK, t[1].status);
    pest_start(&pest, t[0].session);
    assert_status(DYT_ERR_CANCELLED, offer_version(&t[0], 1, false, &ticket));
    pest_stop(&pest);
    assert_error_has("rank 0 of the trainer");
    assert_error_has("took the offer back");
    assert_null(ticket);
    assert_ok(dyt_session_will_write(t[0].session));
    assert_int_equal(0, pthread_create(&thread, NULL, offer_it, &t[1]));
    assert_ok(offer_version(&t[0], 1, false, &ticket));
    pthread_join(thread, NULL);
    assert_int_equal(DYT_OK, t[1].status);
    dyt_ticket_destroy(ticket);
    leave(&t[1]);
    leave(&t[0]);
}

/* ---- deadlines; and again ------------------------------------------------ */

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

/* A publish that took too long, or did not fit, is made again on the same
 * session. */
static void a_publish_may_be_repeated(void **state)
{
    const char *folder = dyt_test_dir();
    struct member t, r[2];
    int64_t start;
    pthread_t thread;
    dyt_ticket *ticket;

    (void)state;
    assert_int_equal(0, chmod(folder, 0700));
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    assert_ok(enter(&t));
    for (uint32_t i = 0; i < 2; i++) {
        describe(&r[i], folder, DYT_ROLE_RECEIVER, 0, i, 2);
    }
    r[0].join.timeout_ns = 3 * SECOND; /* in which what can be done is done */
    assert_ok(dyt_session_join(&r[0].join, &r[0].session));
    for (int i = 0; i < 2; i++) {
        start = now_ns();
        assert_status(DYT_ERR_TIMEOUT, member_publish(&r[0]));
        assert_in_range(now_ns() - start, 2990 * MS, 15 * SECOND);
        assert_error_has("not all have published in time: 1 of 2 members of "
                         "replica rollout/0 have joined");
    }
    /* one that does not fit, then one that does: its own answer each time */
    assert_ok(dyt_session_join(&r[1].join, &r[1].session));
    r[0].piece[0].tensor = "a.wieght";
    assert_status(DYT_ERR_LAYOUT, member_publish(&r[0]));
    assert_error_has("a.wieght");
    r[0].piece[0].tensor = names[0];
    assert_int_equal(0, pthread_create(&thread, NULL, publish_it, &r[1]));
    while (member_publish(&r[0]) == DYT_ERR_TIMEOUT) {
    }
    pthread_join(thread, NULL);
    assert_int_equal(DYT_OK, r[1].status);
    assert_status(DYT_ERR_STATE, member_publish(&r[0]));
    assert_error_has("has published already");
    /* and versions come */
    write_version(&t, 1);
    assert_ok(offer_version(&t, 1, false, &ticket));
    dyt_ticket_destroy(ticket);
    leave(&r[0]);
    leave(&r[1]);
    leave(&t);
}

/* A trainer that waited too long for its other half. */
static void a_trainers_publish_may_be_repeated(void **state)
{
    const char *folder = dyt_test_dir();
    struct member t[2];
    pthread_t thread;

    (void)state;
    assert_int_equal(0, chmod(folder, 0700));
    for (uint32_t i = 0; i < 2; i++) {
        describe(&t[i], folder, DYT_ROLE_TRAINER, 0, i, 2);
        t[i].join.timeout_ns = i == 0 ? 2 * SECOND : 20 * SECOND;
        assert_ok(dyt_session_join(&t[i].join, &t[i].session));
    }
    assert_status(DYT_ERR_TIMEOUT, member_publish(&t[0]));
    assert_error_has("the trainer's tensors are not known; 2 of 2 members of "
                     "the trainer have joined; rank 1 of the trainer");
    assert_error_has("has not published");
    assert_int_equal(0, pthread_create(&thread, NULL, publish_it, &t[1]));
    while (member_publish(&t[0]) == DYT_ERR_TIMEOUT) {
    }
    pthread_join(thread, NULL);
    assert_int_equal(DYT_OK, t[1].status);
    leave(&t[1]);
    leave(&t[0]);
}

static void deadlines_are_kept(void **state)
{
    const char *folder = dyt_test_dir();
    struct member t, r, nobody;
    int64_t start;
    dyt_ticket *ticket;

    (void)state;
    pair(&t, &r, folder, DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    start = now_ns();
    assert_status(DYT_ERR_TIMEOUT,
                  dyt_session_receive(r.session, 0, 100 * MS, NULL));
    assert_in_range(now_ns() - start, 99 * MS, 15 * SECOND);
    write_version(&t, 1);
    assert_ok(offer_version(&t, 1, false, &ticket));
    start = now_ns();
    assert_status(DYT_PENDING, dyt_ticket_wait(ticket, 100 * MS));
    assert_in_range(now_ns() - start, 99 * MS, 15 * SECOND);
    dyt_ticket_destroy(ticket);
    leave(&r);
    leave(&t);
    /* nobody listens */
    describe(&nobody, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    nobody.join.timeout_ns = 100 * MS;
    start = now_ns();
    assert_status(DYT_ERR_TIMEOUT,
                  dyt_session_join(&nobody.join, &nobody.session));
    assert_in_range(now_ns() - start, 99 * MS, 15 * SECOND);
    assert_error_has("nobody answers at unix:");
    assert_null(nobody.session);
    leave(&nobody);
}

/* ---- signals ------------------------------------------------------------- */

static pthread_t taken_by[64];
static uint32_t taken;

static void on_signal(int number)
{
    uint32_t at = __atomic_fetch_add(&taken, 1, __ATOMIC_ACQ_REL);

    (void)number;
    if (at < 64) {
        taken_by[at] = pthread_self();
    }
}

struct sender {
    uint32_t stop;
    pthread_t thread;
};

static void *send_signals(void *arg)
{
    struct sender *s = arg;
    struct timespec tick = {0, 2 * MS};
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    while (__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE) == 0) {
        kill(getpid(), SIGUSR1);
        nanosleep(&tick, NULL);
    }
    return NULL;
}

/* Handlers run in the program's threads alone, and a call that blocks goes on
 * after one. */
static void signals_are_the_programs(void **state)
{
    struct sigaction action = {.sa_handler = on_signal}, before;
    struct sender s = {0};
    struct member t, r;

    (void)state;
    assert_int_equal(0, sigaction(SIGUSR1, &action, &before));
    assert_int_equal(0, pthread_create(&s.thread, NULL, send_signals, &s));
    pair(&t, &r, dyt_test_dir(), DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    for (uint64_t v = 1; v <= 5; v++) {
        send_version(&t, &r, v);
    }
    do { /* however seldom the other thread gets to run here */
        assert_status(DYT_ERR_TIMEOUT,
                      dyt_session_receive(r.session, 9, 100 * MS, NULL));
    } while (__atomic_load_n(&taken, __ATOMIC_ACQUIRE) <= 10);
    leave(&r);
    leave(&t);
    __atomic_store_n(&s.stop, 1, __ATOMIC_RELEASE);
    pthread_join(s.thread, NULL);
    assert_int_equal(0, sigaction(SIGUSR1, &before, NULL));
    for (uint32_t i = 0; i < taken && i < 64; i++) {
        assert_true(pthread_equal(taken_by[i], pthread_self()));
    }
}

/* With all signals blocked in the caller, one that waits for them ends it. */
static void *wait_for_signal(void *arg)
{
    struct timespec tick = {0, 10 * MS};
    struct pest *p = arg;
    sigset_t one;
    int number = 0;

    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    assert_int_equal(0, sigwait(&one, &number));
    while (__atomic_load_n(&p->stop, __ATOMIC_ACQUIRE) == 0) {
        dyt_session_interrupt(p->session);
        nanosleep(&tick, NULL);
    }
    return NULL;
}

static void a_masked_call_ends_by_who_waits_for_signals(void **state)
{
    sigset_t all, before;
    struct member t, r;
    struct pest p = {0};

    (void)state;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pair(&t, &r, dyt_test_dir(), DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    p.session = r.session;
    assert_int_equal(0, pthread_create(&p.thread, NULL, wait_for_signal, &p));
    kill(getpid(), SIGUSR2);
    assert_status(DYT_ERR_CANCELLED, receive_version(&r, 0));
    pest_stop(&p);
    leave(&r);
    leave(&t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* "SigBlk: ffff…" of a thread; 0: it is gone. */
static uint64_t blocked_in(const char *thread)
{
    char path[300], line[256];
    uint64_t mask = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/self/task/%.200s/status", thread);
    file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "SigBlk:", 7) == 0) {
            mask = strtoull(line + 7, NULL, 16);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return mask;
}

/* But for those that nobody can block, the C library's own two, and what a
 * thread does to itself. */
static bool blocks_all(uint64_t mask)
{
    uint64_t cannot =
        1ull << (SIGKILL - 1) | 1ull << (SIGSTOP - 1) | 1ull << 31 | 1ull << 32;
    uint64_t own = 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1) |
                   1ull << (SIGFPE - 1) | 1ull << (SIGILL - 1) |
                   1ull << (SIGTRAP - 1) | 1ull << (SIGSYS - 1);

    return (mask | cannot | own) == UINT64_MAX;
}

static void our_threads_block_all_signals(void **state)
{
    struct member t, r;
    struct dirent *entry;
    uint32_t threads = 0;
    DIR *dir;

    (void)state;
    if (DYT_TEST_SANITIZED) {
        skip(); /* it has threads of its own */
    }
    pair(&t, &r, dyt_test_dir(), DYT_COMMIT_STAGED, DYT_MEMORY_OWN);
    send_version(&t, &r, 1);
    dir = opendir("/proc/self/task");
    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        uint64_t mask = blocked_in(entry->d_name);

        if (entry->d_name[0] == '.' ||
            strtol(entry->d_name, NULL, 10) == getpid()) {
            continue;
        }
        threads++;
        if (mask != 0 && !blocks_all(mask)) {
            fail_msg("a thread blocks %llx only", (unsigned long long)mask);
        }
    }
    closedir(dir);
    assert_true(threads >= 3); /* two services, the manager, ZeroMQ's */
    leave(&r);
    leave(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_blocking_call_can_be_interrupted),
    cmocka_unit_test(an_offer_of_half_a_trainer_can_be_interrupted),
    cmocka_unit_test(a_publish_may_be_repeated),
    cmocka_unit_test(a_trainers_publish_may_be_repeated),
    cmocka_unit_test(deadlines_are_kept),
    cmocka_unit_test(signals_are_the_programs),
    cmocka_unit_test(a_masked_call_ends_by_who_waits_for_signals),
    cmocka_unit_test(our_threads_block_all_signals),
};
DYT_TEST_MAIN(tests)
