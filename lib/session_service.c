/* The session's thread: it alone speaks with the manager. */
#include "lib/session_internal.h"

#include "base/thread.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define BEATS      4          /* signs of life within the session's timeout */
#define PARTING_NS 2000000000 /* most that leaving waits for a manager */
#define WORDS_MS   500        /* most that a dead manager's are on their way */

enum dyt_status dyti_session_send(struct dyt_session *s, enum dyt_status st,
                                  struct dyti_buffer *buffer)
{
    return st != DYT_OK ? st : dyti_hub_client_send(s->client, buffer);
}

/* ---- what callers posted ------------------------------------------------- */

static enum dyt_status send_request(struct dyt_session *s,
                                    const struct dyti_msg_request *request)
{
    struct dyti_envelope e =
        dyti_hub_client_stamp(s->client, DYTI_MSG_REQUEST, 0);
    struct dyti_msg_request r = *request;
    struct dyti_buffer buffer;
    char none[] = "";

    r.text = none;
    return dyti_session_send(s, dyti_wire_request_encode(&e, &r, &buffer),
                             &buffer);
}

/* A trainer's rows by name go before its request to publish. */
static enum dyt_status send_rows(struct dyt_session *s)
{
    struct dyti_envelope e = dyti_hub_client_stamp(s->client, DYTI_MSG_ROWS, 0);
    struct dyti_msg_rows rows;
    struct dyti_buffer buffer;
    enum dyt_status st;

    pthread_mutex_lock(&s->lock);
    if (s->view == NULL) { /* given up meanwhile: the names are gone */
        pthread_mutex_unlock(&s->lock);
        return DYT_OK;
    }
    rows = (struct dyti_msg_rows){.row = s->row,
                                  .row_count = (uint32_t)s->row_count};
    st = dyti_wire_rows_encode(&e, &rows, &buffer);
    pthread_mutex_unlock(&s->lock);
    return dyti_session_send(s, st, &buffer);
}

/* Links come and go (a sibling's is closed at once); the rows stay. */
static enum dyt_status hash_row(struct dyt_session *s, uint32_t row,
                                uint64_t *out_hash)
{
    bool any, second;

    pthread_mutex_lock(&s->lock);
    any = s->params.role == DYT_ROLE_TRAINER || s->valid || s->broken;
    second = s->live_set != 0 && s->second.shard_row != NULL;
    pthread_mutex_unlock(&s->lock);
    if (any && s->mirror != NULL && s->memory.row_as != NULL &&
        dyti_mirror_has(s->mirror)[s->memory.row_as[row]]) {
        return dyti_mirror_row_hash(
            second && s->second_mirror != NULL ? s->second_mirror : s->mirror,
            s->memory.row_as[row], out_hash);
    }
    if (s->last != NULL) {
        return dyti_link_row_hash(s->last, row, out_hash);
    }
    return any ? dyti_memory_row_hash(s->catalogue,
                                      second ? &s->second : &s->memory, row,
                                      out_hash)
               : DYTI_FAIL(DYT_ERR_STATE, "no version was received yet");
}

static enum dyt_status start_call(struct dyt_session *s,
                                  enum dyti_call_kind kind,
                                  const struct dyti_call *c)
{
    enum dyt_status st = DYT_OK;

    if (kind == DYTI_CALL_HASH) {
        uint64_t hash = 0;

        st = hash_row(s, (uint32_t)c->request.version, &hash);
        pthread_mutex_lock(&s->lock);
        s->call[kind].hash = hash;
        pthread_mutex_unlock(&s->lock);
        dyti_session_answer(s, kind, st, 0, dyti_error_message());
        return DYT_OK;
    }
    if (kind == DYTI_CALL_PUBLISH && s->params.role == DYT_ROLE_TRAINER) {
        st = send_rows(s);
    }
    return st != DYT_OK ? st : send_request(s, &c->request);
}

/* Takes what was posted first; false: nothing is left that can be sent now.
 * In order: what gives a call up must not end the next one of its kind. */
static bool take_posted(struct dyt_session *s, int *out_kind,
                        struct dyti_call *out_call)
{
    uint64_t first = UINT64_MAX;
    int kind = DYTI_CALL_COUNT; /* told */
    bool any;

    pthread_mutex_lock(&s->lock);
    if (s->told_count > 0) {
        first = s->told[0].order;
    }
    for (int k = 0; k < DYTI_CALL_COUNT; k++) {
        const struct dyti_call *c = &s->call[k];
        bool waits = k == DYTI_CALL_HASH && dyti_session_receives(s);

        if (c->running && c->posted && c->order < first && !waits) {
            first = c->order; /* `waits`: until the rows are at rest */
            kind = k;
        }
    }
    any = first != UINT64_MAX;
    if (any && kind < DYTI_CALL_COUNT) {
        s->call[kind].posted = false;
        *out_call = s->call[kind];
    } else if (any) {
        out_call->request = s->told[0].request;
        s->told_count--;
        memmove(&s->told[0], &s->told[1], s->told_count * sizeof(s->told[0]));
    }
    pthread_mutex_unlock(&s->lock);
    *out_kind = kind;
    return any;
}

static enum dyt_status start_posted(struct dyt_session *s)
{
    enum dyt_status st = DYT_OK;
    struct dyti_call c = {0};
    uint64_t count;
    int kind;

    (void)!read(s->wake_fd, &count, sizeof(count));
    while (st == DYT_OK && take_posted(s, &kind, &c)) {
        enum dyt_status started =
            kind < DYTI_CALL_COUNT
                ? start_call(s, (enum dyti_call_kind)kind, &c)
                : send_request(s, &c.request);

        if (kind == DYTI_CALL_COUNT) {
            st = started;
        } else if (started != DYT_OK) {
            dyti_session_answer(s, (enum dyti_call_kind)kind, started, 0,
                                dyti_error_message());
        }
    }
    return st;
}

/* ---- what the manager says ----------------------------------------------- */

static void finish_ticket(struct dyt_session *s,
                          const struct dyti_msg_answer *a)
{
    struct dyt_ticket *t;

    pthread_mutex_lock(&s->lock);
    t = s->ticket;
    if (t != NULL && t->version == a->version) {
        t->done = true;
        t->status = (enum dyt_status)a->status;
        snprintf(t->text, sizeof(t->text), "%s", a->text);
        if (a->status != DYT_OK && s->written[0] != '\0') {
            t->status = DYT_ERR_VERIFY; /* why it was taken back */
            memcpy(t->text, s->written, sizeof(s->written));
        }
        s->ticket = NULL;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
}

/* A ticket is there before its end can be heard. */
static void begin_ticket(struct dyt_session *s, uint64_t version)
{
    pthread_mutex_lock(&s->lock);
    if (s->ticket != NULL) {
        s->ticket->version = version;
    }
    s->offered = version;
    s->offered_any = true;
    pthread_mutex_unlock(&s->lock);
}

/* Whoever hears it may use the rows. */
static void answer_receive(struct dyt_session *s, enum dyt_status status,
                           uint64_t version, const char *text)
{
    s->held.due = dyti_session_receives(s);
    if (!s->held.due) {
        dyti_session_answer(s, DYTI_CALL_RECEIVE, status, version, text);
        return;
    }
    s->held.status = status;
    s->held.version = version;
    snprintf(s->held.text, sizeof(s->held.text), "%s", text);
}

static void answer_held(struct dyt_session *s)
{
    if (s->held.due && !dyti_session_receives(s)) {
        s->held.due = false;
        dyti_session_answer(s, DYTI_CALL_RECEIVE, s->held.status,
                            s->held.version, s->held.text);
    }
}

static enum dyt_status on_answer(struct dyt_session *s,
                                 const struct dyti_hub_frame *f)
{
    struct dyti_msg_answer a;
    enum dyt_status st =
        dyti_wire_answer_decode(f->buffer.bytes, f->buffer.size_bytes, &a);
    enum dyt_status answered;

    if (st != DYT_OK) {
        return st;
    }
    answered = (enum dyt_status)a.status;
    switch ((enum dyti_answer)a.what) {
    case DYTI_ANSWER_PUBLISHED:
        dyti_session_answer(s, DYTI_CALL_PUBLISH, answered, 0,
                            answered != DYT_OK && s->unfit[0] != '\0' ? s->unfit
                                                                      : a.text);
        break;
    case DYTI_ANSWER_OFFERED:
        if (answered == DYT_OK && !dyti_session_is_late(s, DYTI_CALL_OFFER)) {
            bool whole = s->call[DYTI_CALL_OFFER].request.snapshot;

            begin_ticket(s, a.version);
            st = dyti_session_take_snapshots(s, a.version, whole);
        }
        dyti_session_answer(s, DYTI_CALL_OFFER, st != DYT_OK ? st : answered,
                            a.version,
                            st != DYT_OK ? dyti_error_message() : a.text);
        st = DYT_OK;
        break;
    case DYTI_ANSWER_DONE:
        finish_ticket(s, &a);
        break;
    case DYTI_ANSWER_RECEIVED:
        answer_receive(s, answered, a.version, a.text);
        break;
    case DYTI_ANSWER_RELEASED:
        dyti_session_answer(s, DYTI_CALL_RELEASE, answered, 0, a.text);
        break;
    default:
        break;
    }
    dyti_msg_answer_fini(&a);
    return st;
}

static enum dyt_status on_frame(struct dyt_session *s,
                                const struct dyti_hub_frame *f)
{
    switch ((enum dyti_message)f->envelope.type) {
    case DYTI_MSG_CATALOGUE:
        return dyti_session_on_catalogue(s, f);
    case DYTI_MSG_READERS:
        return dyti_session_on_readers(s, f);
    case DYTI_MSG_LINK:
        return dyti_session_on_link(s, f);
    case DYTI_MSG_ORDER:
        return dyti_session_on_order(s, f);
    case DYTI_MSG_MEET:
        return dyti_session_on_meet(s, f);
    case DYTI_MSG_ANSWER:
        return on_answer(s, f);
    case DYTI_MSG_BYE:
        return DYTI_FAIL(DYT_ERR_TIMEOUT,
                         "the job's manager gave this member up: it was "
                         "silent for too long");
    default:
        return DYT_OK;
    }
}

/* ---- the thread ---------------------------------------------------------- */

static enum dyt_status beat(struct dyt_session *s)
{
    struct dyti_envelope e =
        dyti_hub_client_stamp(s->client, DYTI_MSG_HEARTBEAT, 0);
    struct dyti_msg_heartbeat m = {0, 0};
    struct dyti_buffer buffer;

    return dyti_session_send(s, dyti_wire_heartbeat_encode(&e, &m, &buffer),
                             &buffer);
}

/* Its end may be seen before its last words are, which ZeroMQ's thread still
 * reads.  The connection ends behind them, and is heard to; but not one that
 * lives on in a child of the manager. */
static enum dyt_status look_at_manager(struct dyt_session *s)
{
    struct pollfd p = {.fd = s->manager_fd, .events = POLLIN};
    int64_t now = dyti_session_now();

    if (s->manager_fd < 0) {
        return DYT_OK;
    }
    if (s->manager_ended_ns == 0 && poll(&p, 1, 0) > 0) {
        s->manager_ended_ns = now;
        (void)epoll_ctl(s->watch_fd, EPOLL_CTL_DEL, s->manager_fd, NULL);
    }
    return s->manager_ended_ns != 0 &&
                   now - s->manager_ended_ns >= WORDS_MS * 1000000ll
               ? DYTI_FAIL(DYT_ERR_PEER, "the job's manager at %s died",
                           s->params.address)
               : DYT_OK;
}

static bool ending(struct dyt_session *s)
{
    bool end;

    pthread_mutex_lock(&s->lock);
    end = s->ending;
    pthread_mutex_unlock(&s->lock);
    return end;
}

/* Everybody who waits, or will, hears why. */
static void die(struct dyt_session *s, enum dyt_status st)
{
    char text[DYTI_SESSION_TEXT_BYTES];

    snprintf(text, sizeof(text), "%s",
             st == DYT_OK ? "the session has ended" : dyti_error_message());
    dyti_session_links_close(s); /* rows are at rest when they hear it */
    pthread_mutex_lock(&s->lock);
    s->dead = st == DYT_OK ? DYT_ERR_STATE : st;
    memcpy(s->dead_text, text, sizeof(text));
    if (s->ticket != NULL) {
        s->ticket->done = true;
        s->ticket->status = s->dead;
        snprintf(s->ticket->text, sizeof(s->ticket->text), "%s", s->dead_text);
        s->ticket = NULL;
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static enum dyt_status serve(struct dyt_session *s)
{
    int64_t every_ms = s->timeout_ns / BEATS / 1000000;
    int64_t next = 0;
    enum dyt_status st = DYT_OK;

    every_ms = every_ms < 10 ? 10 : every_ms > 5000 ? 5000 : every_ms;
    while (st == DYT_OK && !ending(s)) {
        struct dyti_hub_frame frame = {0};
        int64_t left = (next - dyti_session_now()) / 1000000;
        bool woken = false;

        if (left <= 0) {
            st = beat(s);
            next = dyti_session_now() + every_ms * 1000000;
            left = every_ms;
        }
        if (s->manager_ended_ns != 0 && left > WORDS_MS) {
            left = WORDS_MS;
        }
        st = st != DYT_OK ? st
                          : dyti_hub_client_wait(s->client, s->watch_fd, left,
                                                 &frame, &woken);
        st = st == DYT_PENDING ? DYT_OK : st;
        if (st == DYT_OK && woken) {
            st = start_posted(s);
        }
        if (st == DYT_OK && (woken || s->manager_ended_ns != 0) &&
            frame.buffer.bytes == NULL) {
            st = look_at_manager(s);
        }
        /* behind that, which takes back what wakes this thread */
        st = st != DYT_OK ? st : dyti_session_collect(s);
        answer_held(s);
        if (st == DYT_OK && frame.buffer.bytes != NULL) {
            st = on_frame(s, &frame);
        }
        dyti_hub_frame_fini(&frame);
    }
    return st;
}

/* Leaving: when the manager has taken it, whoever joins at this place finds it
 * free.  One that is dead or busy is not waited for longer than that. */
static void part(struct dyt_session *s)
{
    struct dyti_envelope e = dyti_hub_client_stamp(s->client, DYTI_MSG_BYE, 0);
    int64_t until = dyti_session_now() + PARTING_NS;
    struct dyti_buffer buffer;
    enum dyt_status st =
        dyti_session_send(s, dyti_wire_empty(&e, &buffer), &buffer);
    bool taken = false;

    while ((st == DYT_OK || st == DYT_PENDING) && !taken) {
        struct dyti_hub_frame frame = {0};
        int64_t left = (until - dyti_session_now()) / 1000000;
        bool other = false;

        if (left <= 0) {
            return;
        }
        st = dyti_hub_client_wait(s->client, s->manager_fd, left, &frame,
                                  &other);
        taken = (other && frame.buffer.bytes == NULL) /* the manager is dead */
                || (frame.buffer.bytes != NULL &&
                    frame.envelope.type == DYTI_MSG_BYE);
        dyti_hub_frame_fini(&frame);
    }
}

static void *run(void *arg)
{
    struct dyt_session *s = arg;
    enum dyt_status st = serve(s);

    die(s, st);
    if (st == DYT_OK) {
        part(s);
    }
    return NULL;
}

enum dyt_status dyti_session_service_start(struct dyt_session *s)
{
    enum dyt_status st =
        dyti_thread_start(run, s, "the session's thread", &s->service_thread);

    s->service_runs = st == DYT_OK;
    return st;
}

void dyti_session_service_stop(struct dyt_session *s)
{
    if (!s->service_runs) {
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->ending = true;
    pthread_mutex_unlock(&s->lock);
    dyti_session_wake(s);
    pthread_join(s->service_thread, NULL);
    s->service_runs = false;
}
