#include "base/thread.h"

#include <signal.h>
#include <string.h>

enum dyt_status dyti_thread_start(void *(*body)(void *), void *arg,
                                  const char *what, pthread_t *out_thread)
{
    sigset_t all, before;
    pthread_t thread;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&thread, NULL, body, arg); /* it inherits them */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s: %s", what, strerror(failed));
    }
    *out_thread = thread;
    return DYT_OK;
}
