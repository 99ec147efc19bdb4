/* How a caller waits for what the session's thread does. */
#include "lib/session_internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GRACE_NS 5000000000ll /* for an answer after giving up */

int64_t dyti_session_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

enum dyt_status dyti_session_wait(
    struct dyt_session *s, int64_t until, bool ends_at_interrupt,
    bool (*is_over)(struct dyt_session *s, void *arg), void *arg)
{
    struct timespec t = {.tv_sec = (time_t)(until / 1000000000),
                         .tv_nsec = until % 1000000000};
    uint64_t interrupts = s->interrupts;

    while (!is_over(s, arg)) {
        if (ends_at_interrupt && s->interrupts != interrupts) {
            return DYT_ERR_CANCELLED;
        }
        if (dyti_session_now() >= until) {
            return DYT_ERR_TIMEOUT;
        }
        (void)pthread_cond_timedwait(&s->changed, &s->lock, &t);
    }
    return DYT_OK;
}

void dyti_session_wake(struct dyt_session *s)
{
    (void)!write(s->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
}

bool dyti_session_is_late(struct dyt_session *s, enum dyti_call_kind kind)
{
    bool late;

    pthread_mutex_lock(&s->lock);
    late = s->owed[kind] > 0;
    pthread_mutex_unlock(&s->lock);
    return late;
}

void dyti_session_answer(struct dyt_session *s, enum dyti_call_kind kind,
                         enum dyt_status status, uint64_t version,
                         const char *text)
{
    struct dyti_call *c = &s->call[kind];

    pthread_mutex_lock(&s->lock);
    if (s->owed[kind] > 0) {
        s->owed[kind]--;
    } else if (c->running && !c->answered) {
        c->answered = true;
        c->status = status;
        c->version = version;
        snprintf(c->text, sizeof(c->text), "%s", text != NULL ? text : "");
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
}

int64_t dyti_session_until(const struct dyt_session *s, int64_t deadline_ns)
{
    int64_t now = dyti_session_now();
    int64_t span = deadline_ns < 0 ? s->timeout_ns : deadline_ns;

    return span > INT64_MAX - now ? INT64_MAX : now + span;
}

/* Under the lock.  The service asks, this thread pauses the server. */
static void serve_hook(struct dyt_session *s)
{
    enum dyt_status st;

    if (!s->hook.wanted) {
        return;
    }
    s->hook.wanted = false;
    dyti_session_hook_begins(s, DYTI_HOOKED_RECEIVE);
    pthread_mutex_unlock(&s->lock);
    st = s->hooks.pause(s->hooks.arg);
    pthread_mutex_lock(&s->lock);
    dyti_session_hook_ended(s, DYTI_HOOKED_RECEIVE);
    s->hook.paused = st == DYT_OK;
    s->hook.failed = st != DYT_OK;
    pthread_cond_broadcast(&s->changed);
}

static enum dyt_status begin(struct dyt_session *s, enum dyti_call_kind kind,
                             const struct dyti_msg_request *request)
{
    struct dyti_call *c = &s->call[kind];

    if (s->dead != DYT_OK) {
        return dyti_error_adopt(s->dead, s->dead_text);
    }
    if (c->running) {
        return DYTI_FAIL(DYT_ERR_BUSY,
                         "another thread is in the same call of this session: "
                         "one at a time");
    }
    *c = (struct dyti_call){.running = true,
                            .posted = true,
                            .order = s->posts++,
                            .request = *request};
    dyti_session_wake(s);
    return DYT_OK;
}

/* The caller's part while it waits: it pauses the server where that is asked.
 * True: there is an answer, or will be none. */
static bool is_answered(struct dyt_session *s, void *call)
{
    const struct dyti_call *c = call;

    if (!c->answered && s->dead == DYT_OK) {
        serve_hook(s);
    }
    return c->answered || s->dead != DYT_OK;
}

/* Under the lock, until it is answered. */
static enum dyt_status await(struct dyt_session *s, enum dyti_call_kind kind,
                             int64_t until,
                             void (*give_up)(struct dyt_session *s,
                                             enum dyt_status why))
{
    struct dyti_call *c = &s->call[kind];
    enum dyt_status why = dyti_session_wait(s, until, true, is_answered, c);
    enum dyt_status st = why;

    if (why != DYT_OK && give_up != NULL) {
        give_up(s, why);
        do { /* rows that a hand still writes are nobody's yet */
            st = dyti_session_wait(s, dyti_session_now() + GRACE_NS, false,
                                   is_answered, c);
        } while (st != DYT_OK && kind == DYTI_CALL_RECEIVE && s->writing);
    }
    if (c->answered) {
        return DYT_OK;
    }
    if (s->dead != DYT_OK) {
        return dyti_error_adopt(s->dead, s->dead_text);
    }
    return why == DYT_ERR_CANCELLED
               ? DYTI_FAIL(why, "interrupted")
               : DYTI_FAIL(DYT_ERR_TIMEOUT,
                           "no answer from the job's manager in time");
}

enum dyt_status dyti_session_call(
    struct dyt_session *s, enum dyti_call_kind kind,
    const struct dyti_msg_request *request, int64_t deadline_ns,
    void (*give_up)(struct dyt_session *s, enum dyt_status why),
    struct dyti_call *out_call)
{
    int64_t until = dyti_session_until(s, deadline_ns);
    struct dyti_call *c = &s->call[kind];
    enum dyt_status st;

    pthread_mutex_lock(&s->lock);
    st = begin(s, kind, request);
    if (st == DYT_OK) {
        st = await(s, kind, until, give_up);
        if (st == DYT_OK) {
            st = c->status == DYT_OK ? DYT_OK
                                     : dyti_error_adopt(c->status, c->text);
        }
        if (out_call != NULL) {
            *out_call = *c;
        }
        s->owed[kind] += !c->answered && !c->posted;
        c->running = c->posted = false;
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

void dyti_session_tell(struct dyt_session *s,
                       const struct dyti_msg_request *request)
{
    if (s->told_count < DYTI_SESSION_TOLD) {
        s->told[s->told_count].order = s->posts++;
        s->told[s->told_count++].request = *request;
    }
    dyti_session_wake(s);
}
