/* Offers and tickets: a trainer's side. */
#include "lib/session_device.h"

#include "lib/handles.h"
#include "lib/link_internal.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Under the lock. */
static void cancel_offer(struct dyt_session *s, enum dyt_status why)
{
    struct dyti_msg_request r = {.what = DYTI_REQUEST_CANCEL,
                                 .status = why,
                                 .version =
                                     s->call[DYTI_CALL_OFFER].request.version};

    dyti_session_tell(s, &r);
}

static enum dyt_status check_offer(struct dyt_session *s,
                                   const struct dyt_offer_params *p)
{
    enum dyt_status st = dyti_struct_check(
        "dyt_offer_params", p->struct_size,
        offsetof(struct dyt_offer_params, event) + sizeof(p->event));

    if (st != DYT_OK) {
        return st;
    }
    if (s->params.role != DYT_ROLE_TRAINER || !s->published) {
        return DYTI_FAIL(DYT_ERR_STATE, "an offer is a trainer's, after it has "
                                        "published");
    }
    if ((s->released & DYT_TAG_WEIGHTS) != 0) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "the weights are released: restore them first");
    }
    st = dyti_session_check_event(s, p->event);
    if (st != DYT_OK) {
        return st;
    }
    if (s->ticket != NULL) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "version %llu is still offered: wait for its ticket, "
                         "or cancel it",
                         (unsigned long long)s->ticket->version);
    }
    return DYT_OK;
}

/* Under the lock. */
static void forget(struct dyt_session *s, struct dyt_ticket *t)
{
    struct dyt_ticket **at = &s->tickets;

    while (*at != NULL && *at != t) {
        at = &(*at)->next;
    }
    if (*at == t) {
        *at = t->next;
    }
    if (s->ticket == t) {
        s->ticket = NULL;
    }
}

/* ---- what is written while it is offered ----------------------------------
 */

/* By the caller, whose rows are at rest: hashes of what is offered.  A snapshot
 * needs none. */
static enum dyt_status seal_rows(struct dyt_session *s, uint64_t version)
{
    uint32_t threads = dyti_hands_cores() / s->params.size;
    bool full = s->params.verify == DYT_VERIFY_FULL;
    enum dyt_status st = DYT_OK;

    if (s->params.verify == DYT_VERIFY_OFF) {
        return DYT_OK;
    }
    if (s->seal == NULL) { /* rows of devices: by the service */
        st = dyti_seal_open(s->catalogue, &s->memory,
                            s->mirror != NULL ? dyti_mirror_has(s->mirror)
                                              : NULL,
                            full, threads, &s->seal);
    }
    st = st != DYT_OK ? st : dyti_seal_take(s->seal, version);
    pthread_mutex_lock(&s->lock);
    s->has_sealed = st == DYT_OK;
    s->sealed = version;
    s->written[0] = '\0';
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* Under the lock. */
static bool is_sealed(const struct dyt_session *s)
{
    return s->has_sealed && s->ticket != NULL &&
           s->ticket->version == s->sealed && dyti_session_is_pinned(s);
}

enum dyt_status dyti_session_check_seal(struct dyt_session *s, uint32_t kinds)
{
    enum dyt_status st = DYT_OK;
    bool sealed;

    pthread_mutex_lock(&s->lock);
    sealed = is_sealed(s);
    pthread_mutex_unlock(&s->lock);
    if (sealed) {
        st = dyti_seal_check(s->seal, kinds);
    }
    if (sealed && st == DYT_OK && s->mirror != NULL) {
        st = dyti_mirror_check_seal(s->mirror,
                                    s->params.verify == DYT_VERIFY_FULL,
                                    s->catalogue, kinds);
    }
    if (st == DYT_ERR_VERIFY) {
        DYTI_NOTE("version %llu is offered: wait for its ticket before the "
                  "rows are written, or offer a snapshot",
                  (unsigned long long)s->sealed);
        pthread_mutex_lock(&s->lock);
        if (is_sealed(s) && s->written[0] == '\0') {
            snprintf(s->written, sizeof(s->written), "%s",
                     dyti_error_message());
            s->written_due = true;
        }
        pthread_mutex_unlock(&s->lock);
    }
    return st;
}

void dyti_session_withdraw_written(struct dyt_session *s)
{
    struct dyti_msg_request r = {.what = DYTI_REQUEST_CANCEL};

    pthread_mutex_lock(&s->lock);
    if (s->written_due) {
        s->written_due = false;
        r.version = s->sealed;
        dyti_session_tell(s, &r);
    }
    pthread_mutex_unlock(&s->lock);
}

static enum dyt_status offer(struct dyt_session *s,
                             const struct dyt_offer_params *params,
                             dyt_ticket **out_ticket)
{
    struct dyti_msg_request r = {.what = DYTI_REQUEST_OFFER};
    struct dyt_ticket *t;
    enum dyt_status st;

    if (params == NULL || out_ticket == NULL) {
        return dyti_null_argument("dyt_session_offer");
    }
    t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a ticket");
    }
    pthread_mutex_lock(&s->lock);
    st = check_offer(s, params);
    if (st == DYT_OK) {
        t->session = s;
        t->version = params->version;
        t->next = s->tickets;
        s->tickets = t;
        s->ticket = t; /* its end may be heard before the offer returns */
        r.version = params->version;
        r.snapshot = params->snapshot != 0;
        r.takes =
            r.snapshot || s->mirror != NULL || dyti_session_has_snapshots(s);
        s->event = params->event;
    }
    pthread_mutex_unlock(&s->lock);
    st = st != DYT_OK ? st : dyti_session_check_alive(s, false);
    if (st == DYT_OK && !r.snapshot) {
        st = seal_rows(s, params->version);
    }
    st = st != DYT_OK ? st
                      : dyti_session_call(s, DYTI_CALL_OFFER, &r, -1,
                                          cancel_offer, NULL);
    if (st != DYT_OK) {
        pthread_mutex_lock(&s->lock);
        forget(s, t);
        pthread_mutex_unlock(&s->lock);
        free(t);
        return st;
    }
    *out_ticket = t;
    return DYT_OK;
}

enum dyt_status dyt_session_offer(dyt_session *s,
                                  const struct dyt_offer_params *params,
                                  dyt_ticket **out_ticket)
{
    enum dyt_status st = dyti_session_enter(s, "dyt_session_offer");

    if (st == DYT_OK) {
        st = offer(s, params, out_ticket);
        dyti_session_exit(s);
    }
    return st;
}

/* Under the lock. */
static enum dyt_status ended(const struct dyt_ticket *t)
{
    return t->status == DYT_OK ? DYT_OK : dyti_error_adopt(t->status, t->text);
}

static bool is_done(struct dyt_session *s, void *ticket)
{
    const struct dyt_ticket *t = ticket;

    (void)s;
    return t->done;
}

static enum dyt_status wait_ticket(struct dyt_session *s, struct dyt_ticket *t,
                                   int64_t deadline_ns)
{
    int64_t until = dyti_session_until(s, deadline_ns);
    enum dyt_status st;

    pthread_mutex_lock(&s->lock);
    st = dyti_session_wait(s, until, true, is_done, t);
    if (st == DYT_OK) {
        st = ended(t);
    } else if (st == DYT_ERR_TIMEOUT) {
        st = DYT_PENDING;
    } else {
        st = DYTI_FAIL(st, "interrupted");
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

enum dyt_status dyt_ticket_wait(dyt_ticket *t, int64_t deadline_ns)
{
    struct dyt_session *s;
    enum dyt_status st;

    if (t == NULL) {
        return dyti_null_argument("dyt_ticket_wait");
    }
    s = t->session;
    if (s == NULL) {
        return ended(t);
    }
    st = dyti_session_enter(s, "dyt_ticket_wait");
    if (st == DYT_OK) {
        st = wait_ticket(s, t, deadline_ns);
        dyti_session_exit(s);
    }
    return st;
}

enum dyt_status dyt_ticket_done(dyt_ticket *t)
{
    struct dyt_session *s;
    enum dyt_status st;

    if (t == NULL) {
        return dyti_null_argument("dyt_ticket_done");
    }
    s = t->session;
    if (s == NULL) {
        return ended(t);
    }
    st = dyti_session_enter(s, "dyt_ticket_done");
    if (st != DYT_OK) {
        return st;
    }
    pthread_mutex_lock(&s->lock);
    st = t->done ? ended(t) : DYT_PENDING;
    pthread_mutex_unlock(&s->lock);
    dyti_session_exit(s);
    return st;
}

static enum dyt_status cancel_ticket(struct dyt_session *s,
                                     struct dyt_ticket *t)
{
    struct dyti_msg_request r = {.what = DYTI_REQUEST_CANCEL,
                                 .version = t->version};
    int64_t until = dyti_session_until(s, -1);
    enum dyt_status st;

    pthread_mutex_lock(&s->lock);
    if (!t->done) {
        dyti_session_tell(s, &r);
    }
    st = dyti_session_wait(s, until, true, is_done, t);
    if (st != DYT_OK) {
        st = DYTI_FAIL(st, "%sversion %llu is still being read",
                       st == DYT_ERR_CANCELLED ? "interrupted; " : "",
                       (unsigned long long)t->version);
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

enum dyt_status dyt_ticket_cancel(dyt_ticket *t)
{
    struct dyt_session *s;
    enum dyt_status st;

    if (t == NULL) {
        return dyti_null_argument("dyt_ticket_cancel");
    }
    s = t->session;
    if (s == NULL) {
        return DYT_OK;
    }
    st = dyti_session_enter(s, "dyt_ticket_cancel");
    if (st == DYT_OK) {
        st = cancel_ticket(s, t);
        dyti_session_exit(s);
    }
    return st;
}

void dyt_ticket_destroy(dyt_ticket *t)
{
    struct dyt_session *s = t != NULL ? t->session : NULL;

    if (s != NULL) {
        if (dyti_session_enter(s, "dyt_ticket_destroy") != DYT_OK) {
            return; /* a forked child's copy, or its session goes with it */
        }
        (void)cancel_ticket(s, t); /* nothing where it is done */
        pthread_mutex_lock(&s->lock);
        forget(s, t);
        pthread_mutex_unlock(&s->lock);
        dyti_session_exit(s);
    }
    free(t);
}

bool dyti_session_is_pinned(const struct dyt_session *s)
{
    /* what was copied to a snapshot may be written */
    return s->ticket != NULL &&
           !(s->has_whole && s->whole_version == s->ticket->version);
}

static enum dyt_status will_write(struct dyt_session *s)
{
    enum dyt_status st = DYT_OK;

    pthread_mutex_lock(&s->lock);
    if (dyti_session_is_pinned(s)) {
        st = DYTI_FAIL(DYT_ERR_STATE,
                       "version %llu is offered and may be read now: wait for "
                       "its ticket, or cancel it",
                       (unsigned long long)s->ticket->version);
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

enum dyt_status dyt_session_will_write(dyt_session *s)
{
    enum dyt_status st = dyti_session_enter(s, "dyt_session_will_write");

    if (st == DYT_OK) {
        st = will_write(s);
        dyti_session_exit(s);
    }
    return st;
}
