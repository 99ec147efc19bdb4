/* A job's manager in a thread of this process, for tests that say where it is
 * and hear what it has to say. */
#ifndef SESSION_MANAGER_H
#define SESSION_MANAGER_H

#include "dyt_test.h"

#include "lib/manager.h"

#include <pthread.h>

struct manager_thread {
    struct dyti_session_manager *manager;
    pthread_t thread;
};

static inline void *manager_thread_run(void *manager)
{
    (void)dyti_session_manager_run(manager);
    return NULL;
}

static inline void manager_start(struct manager_thread *m,
                                 const struct dyti_manager_params *params)
{
    assert_ok(dyti_session_manager_open(params, &m->manager));
    assert_int_equal(
        0, pthread_create(&m->thread, NULL, manager_thread_run, m->manager));
}

static inline void manager_stop(struct manager_thread *m)
{
    dyti_session_manager_stop(m->manager);
    pthread_join(m->thread, NULL);
    dyti_session_manager_close(m->manager);
}

#endif /* SESSION_MANAGER_H */
