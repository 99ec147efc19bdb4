/* Who is inside a session's calls: a session that is left waits for them, and a
 * child that was forked is told that it has none. */
#include "lib/session_internal.h"

#include <unistd.h>

enum dyt_status dyti_session_enter(struct dyt_session *s, const char *function)
{
    enum dyt_status st = DYT_OK;

    if (s == NULL) {
        return dyti_null_argument(function);
    }
    if (s->pid != (uint32_t)getpid()) {
        /* its lock may be held by a thread that is not here */
        return DYTI_FAIL(DYT_ERR_STATE,
                         "%s: the session is process %u's, of which this one "
                         "was forked: join with a session of its own",
                         function, s->pid);
    }
    pthread_mutex_lock(&s->lock);
    if (s->leaving) {
        st =
            DYTI_FAIL(DYT_ERR_STATE, "%s: the session is being left", function);
    } else {
        s->inside++;
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

void dyti_session_exit(struct dyt_session *s)
{
    bool leaves;

    pthread_mutex_lock(&s->lock);
    s->inside--;
    leaves = s->inside == 0 && s->leaves_later;
    s->leaves_later = s->leaves_later && !leaves;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (leaves) {
        dyti_session_end(s);
    }
}

void dyti_session_hook_begins(struct dyt_session *s, enum dyti_hooked which)
{
    s->hooked[which] = true;
    s->hook_thread[which] = pthread_self();
}

void dyti_session_hook_ended(struct dyt_session *s, enum dyti_hooked which)
{
    s->hooked[which] = false;
}

/* A hook that leaves: its own call would be waited for. */
static bool is_in_hook(const struct dyt_session *s)
{
    for (int i = 0; i < DYTI_HOOKED_COUNT; i++) {
        if (s->hooked[i] && pthread_equal(s->hook_thread[i], pthread_self())) {
            return true;
        }
    }
    return false;
}

void dyt_session_leave(dyt_session *s)
{
    bool again, later;

    if (s == NULL || s->pid != (uint32_t)getpid()) {
        return; /* of a forked child: its threads are its parent's */
    }
    pthread_mutex_lock(&s->lock);
    again = s->leaving;
    later = is_in_hook(s);
    s->leaving = true;
    s->leaves_later = s->leaves_later || (later && !again);
    pthread_mutex_unlock(&s->lock);
    if (!again && !later) {
        dyti_session_end(s);
    }
}

void dyti_session_await_callers(struct dyt_session *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->inside > 0) {
        pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
}
