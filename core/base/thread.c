#include "base/thread.h"

#include <string.h>

void dyti_signals_block(sigset_t *out_before)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t all;

    sigfillset(&all);
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        sigdelset(&all, own[i]);
    }
    pthread_sigmask(SIG_SETMASK, &all, out_before);
}

void dyti_signals_restore(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

enum dyt_status dyti_thread_start(void *(*body)(void *), void *arg,
                                  const char *what, pthread_t *out_thread)
{
    sigset_t before;
    pthread_t thread;
    int failed;

    dyti_signals_block(&before);
    failed = pthread_create(&thread, NULL, body, arg);
    dyti_signals_restore(&before);
    if (failed != 0) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s: %s", what, strerror(failed));
    }
    *out_thread = thread;
    return DYT_OK;
}

/* All are there at once: none ends before the gate is open. */
static void *wait_at(void *gate)
{
    (void)pthread_mutex_lock(gate);
    (void)pthread_mutex_unlock(gate);
    return NULL;
}

enum dyt_status dyti_threads_room(uint32_t count, const char *what)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread[DYTI_THREADS_ROOM_MOST];
    uint32_t started = 0;
    int failed = 0;

    dyti_require(count <= DYTI_THREADS_ROOM_MOST);
    (void)pthread_mutex_lock(&gate);
    while (failed == 0 && started < count) {
        sigset_t before;

        dyti_signals_block(&before);
        failed = pthread_create(&thread[started], NULL, wait_at, &gate);
        dyti_signals_restore(&before);
        started += failed == 0;
    }
    (void)pthread_mutex_unlock(&gate);
    for (uint32_t i = 0; i < started; i++) {
        (void)pthread_join(thread[i], NULL);
    }
    (void)pthread_mutex_destroy(&gate);
    return failed == 0
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_NOMEM,
                           "%s needs %u more threads, and this process gets "
                           "%u: %s (ulimit -u and -v, or the pids of a "
                           "container)",
                           what, count, started, strerror(failed));
}
