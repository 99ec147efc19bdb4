/* Threads of ours take no signal of the program's (base/thread.h). */
#include "base/thread.h"

#include "dyt_test.h"

#include <errno.h>
#include <signal.h>

static bool fail_create;
static int creations_left = -1; /* < 0: all are made */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*body)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*body)(void *), void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*body)(void *), void *arg)
{
    if (creations_left >= 0 && creations_left-- == 0) {
        creations_left = 0;
        return EAGAIN;
    }
    return fail_create ? EAGAIN
                       : __real_pthread_create(thread, attr, body, arg);
}

static void *own_mask(void *arg)
{
    pthread_sigmask(SIG_SETMASK, NULL, arg);
    return arg;
}

/* What a thread does to itself comes to it, and to the program's handler. */
static bool is_own(int number)
{
    return number == SIGSEGV || number == SIGBUS || number == SIGFPE ||
           number == SIGILL || number == SIGTRAP || number == SIGSYS;
}

static void signals_are_blocked_in_it_alone(void **state)
{
    sigset_t inside, before, after, one;
    pthread_t thread;
    void *out = NULL;

    (void)state;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_ok(dyti_thread_start(own_mask, &inside, "a thread", &thread));
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(0, pthread_join(thread, &out));
    assert_ptr_equal(&inside, out);
    for (int s = 1; s < 32; s++) {
        if (s != SIGKILL && s != SIGSTOP) {
            assert_int_equal(is_own(s) ? 0 : 1, sigismember(&inside, s));
        }
        assert_int_equal(sigismember(&before, s), sigismember(&after, s));
    }
    assert_int_equal(1, sigismember(&after, SIGUSR2));
    assert_int_equal(0, sigismember(&after, SIGUSR1));
}

static void one_that_does_not_start_is_named(void **state)
{
    sigset_t before, after;
    pthread_t thread = pthread_self();

    (void)state;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    fail_create = true;
    assert_status(DYT_ERR_NOMEM,
                  dyti_thread_start(own_mask, NULL, "the tailor", &thread));
    fail_create = false;
    assert_error_has("the tailor: ");
    assert_true(pthread_equal(thread, pthread_self()));
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int s = 1; s < 32; s++) {
        assert_int_equal(sigismember(&before, s), sigismember(&after, s));
    }
}

static void room_for_threads_is_looked_for(void **state)
{
    (void)state;
    for (uint32_t count = 0; count <= DYTI_THREADS_ROOM_MOST; count++) {
        assert_ok(dyti_threads_room(count, "a test"));
        for (uint32_t there = 0; there < count; there++) {
            char says[80];

            creations_left = (int)there;
            assert_status(DYT_ERR_NOMEM, dyti_threads_room(count, "a test"));
            creations_left = -1;
            snprintf(says, sizeof(says),
                     "a test needs %u more threads, and this process gets %u: ",
                     count, there);
            assert_error_has(says);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(room_for_threads_is_looked_for),
    cmocka_unit_test(signals_are_blocked_in_it_alone),
    cmocka_unit_test(one_that_does_not_start_is_named),
};
DYT_TEST_MAIN(tests)
