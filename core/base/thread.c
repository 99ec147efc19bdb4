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
