/* Receives, and what the rows hold after them. */
#include "lib/session_device.h"

#include "lib/handles.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- receive ------------------------------------------------------------- */

/* Under the lock. */
static void withdraw(struct dyt_session *s, enum dyt_status why)
{
    struct dyti_msg_request r = {.what = DYTI_REQUEST_WITHDRAW, .status = why};

    dyti_session_tell(s, &r);
}

enum dyt_status dyti_session_resume(struct dyt_session *s)
{
    bool paused = s->hook.paused;
    enum dyt_status st = DYT_OK;

    if ((s->released & DYT_TAG_KV_CACHE) != 0) {
        s->hook = (struct dyti_session_hook_state){.paused = paused};
        return DYT_OK; /* it stays paused until that is back */
    }
    s->hook = (struct dyti_session_hook_state){0};
    if (paused && s->hooks.resume != NULL) {
        dyti_session_hook_begins(s, DYTI_HOOKED_RECEIVE);
        pthread_mutex_unlock(&s->lock);
        st = s->hooks.resume(s->hooks.arg);
        pthread_mutex_lock(&s->lock);
        dyti_session_hook_ended(s, DYTI_HOOKED_RECEIVE);
        if (st != DYT_OK) {
            st = DYTI_FAIL(st, "the server's resume hook failed");
        }
    }
    return st;
}

static void copy_report(const struct dyt_session *s, enum dyt_status st,
                        uint64_t epoch_before, int64_t start,
                        struct dyt_switch_report *out)
{
    struct dyt_switch_report r = s->report;
    uint32_t size = out->struct_size;
    int64_t total = dyti_session_now() - start;

    if (r.epoch == epoch_before) { /* nothing ran */
        r = (struct dyt_switch_report){0};
        r.committed = st == DYT_OK;
    }
    r.version = s->valid ? s->version : 0;
    r.wait_ns = total > r.total_ns ? total - r.total_ns : 0;
    r.total_ns = total;
    for (uint64_t i = 0; st == DYT_OK && i < s->row_count; i++) {
        r.rows_changed += s->has_pieces[i];
    }
    r.struct_size = size;
    memcpy(out, &r, size < sizeof(r) ? size : sizeof(r));
}

/* Under the lock. */
static enum dyt_status check_receive(struct dyt_session *s, void *event)
{
    enum dyt_status st;

    if (s->params.role != DYT_ROLE_RECEIVER || !s->published) {
        return DYTI_FAIL(DYT_ERR_STATE, "a receive is a receiver's, after it "
                                        "has published");
    }
    if ((s->released & DYT_TAG_WEIGHTS) != 0) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "the weights are released: restore them first");
    }
    st = dyti_session_check_event(s, event);
    if (st == DYT_OK && !s->call[DYTI_CALL_RECEIVE].running) {
        s->event = event;
    }
    return st;
}

/* Under the lock.  The manager died behind the commit of the run that this call
 * had asked for: its answer is lost, and says nothing that is not known here,
 * as all of the replica commit or nobody. */
static bool is_committed(const struct dyt_session *s, uint64_t version,
                         uint64_t epoch_before)
{
    return s->dead == DYT_ERR_PEER && s->report.epoch != epoch_before &&
           s->report.committed && s->valid && s->version >= version;
}

static enum dyt_status take_version(dyt_session *s, uint64_t version,
                                    int64_t deadline_ns, void *event,
                                    struct dyt_switch_report *out_report)
{
    struct dyti_msg_request r = {.what = DYTI_REQUEST_RECEIVE,
                                 .version = version};
    int64_t start = dyti_session_now();
    uint64_t epoch = 0;
    char text[DYTI_SESSION_TEXT_BYTES];
    enum dyt_status st = DYT_OK, resumed = DYT_OK;
    bool mine; /* the pause, if there is one: not another thread's */

    if (out_report != NULL) {
        st = dyti_struct_check("dyt_switch_report", out_report->struct_size,
                               (uint32_t)sizeof(uint32_t) * 2u);
        if (st != DYT_OK) {
            return st;
        }
    }
    pthread_mutex_lock(&s->lock);
    epoch = s->report.epoch;
    st = check_receive(s, event);
    pthread_mutex_unlock(&s->lock);
    mine = st == DYT_OK;
    st = st != DYT_OK ? st
                      : dyti_session_call(s, DYTI_CALL_RECEIVE, &r, deadline_ns,
                                          withdraw, NULL);
    mine = mine && st != DYT_ERR_BUSY;
    snprintf(text, sizeof(text), "%s", dyti_error_message());
    pthread_mutex_lock(&s->lock);
    if (mine && st == DYT_ERR_PEER && is_committed(s, version, epoch)) {
        st = DYT_OK;
    }
    if (mine) {
        resumed = dyti_session_resume(s);
    }
    if (out_report != NULL) {
        copy_report(s, st, epoch, start, out_report);
    }
    pthread_mutex_unlock(&s->lock);
    if (st != DYT_OK) {
        return dyti_error_adopt(st, text);
    }
    return resumed;
}

enum dyt_status dyt_session_receive(dyt_session *s, uint64_t version,
                                    int64_t deadline_ns,
                                    struct dyt_switch_report *out_report)
{
    enum dyt_status st = dyti_session_enter(s, "dyt_session_receive");

    if (st == DYT_OK) {
        st = take_version(s, version, deadline_ns, NULL, out_report);
        dyti_session_exit(s);
    }
    return st;
}

enum dyt_status dyt_session_receive_with(
    dyt_session *s, const struct dyt_receive_params *params,
    struct dyt_switch_report *out_report)
{
    enum dyt_status st = dyti_session_enter(s, "dyt_session_receive_with");

    if (st != DYT_OK) {
        return st;
    }
    st = params == NULL
             ? dyti_null_argument("dyt_session_receive_with")
             : dyti_struct_check("dyt_receive_params", params->struct_size,
                                 offsetof(struct dyt_receive_params, event) +
                                     sizeof(params->event));
    if (st == DYT_OK) {
        st = take_version(s, params->version, params->deadline_ns,
                          params->event, out_report);
    }
    dyti_session_exit(s);
    return st;
}

static enum dyt_status valid_version(struct dyt_session *s,
                                     uint64_t *out_version)
{
    enum dyt_status st = DYT_OK;

    if (out_version == NULL) {
        return dyti_null_argument("dyt_session_valid");
    }
    pthread_mutex_lock(&s->lock);
    if ((s->released & DYT_TAG_WEIGHTS) != 0) {
        st = DYTI_FAIL(DYT_ERR_STATE, "the weights are released: restore "
                                      "them, then receive a version");
    } else if (s->broken) {
        st = DYTI_FAIL(DYT_ERR_STATE,
                       "an update in place broke off (switch %llu): the rows "
                       "are INVALID until a receive succeeds",
                       (unsigned long long)s->broken_epoch);
    } else if (!s->valid) {
        st = DYTI_FAIL(DYT_ERR_STATE,
                       "no version was committed yet: receive one");
    } else {
        *out_version = s->version;
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

enum dyt_status dyt_session_valid(dyt_session *s, uint64_t *out_version)
{
    enum dyt_status st = dyti_session_enter(s, "dyt_session_valid");

    if (st == DYT_OK) {
        st = valid_version(s, out_version);
        dyti_session_exit(s);
    }
    return st;
}

static enum dyt_status changed_rows(struct dyt_session *s, uint64_t *out_row,
                                    size_t capacity, size_t *out_count)
{
    size_t n = 0;

    if (out_count == NULL || (capacity > 0 && out_row == NULL)) {
        return dyti_null_argument("dyt_session_changed");
    }
    pthread_mutex_lock(&s->lock);
    for (uint64_t i = 0; s->valid && i < s->row_count; i++) {
        if (s->has_pieces[i]) {
            if (n < capacity) {
                out_row[n] = i;
            }
            n++;
        }
    }
    pthread_mutex_unlock(&s->lock);
    *out_count = n;
    return DYT_OK;
}

enum dyt_status dyt_session_changed(dyt_session *s, uint64_t *out_row,
                                    size_t capacity, size_t *out_count)
{
    enum dyt_status st = dyti_session_enter(s, "dyt_session_changed");

    if (st == DYT_OK) {
        st = changed_rows(s, out_row, capacity, out_count);
        dyti_session_exit(s);
    }
    return st;
}

static enum dyt_status row_hash(struct dyt_session *s, uint64_t row,
                                uint64_t *out_hash)
{
    struct dyti_msg_request none = {0};
    struct dyti_call answer;
    enum dyt_status st;

    if (out_hash == NULL) {
        return dyti_null_argument("dyt_session_row_hash");
    }
    pthread_mutex_lock(&s->lock);
    st = dyti_session_check_row(s, row);
    none.version = row;
    pthread_mutex_unlock(&s->lock);
    st = st != DYT_OK ? st : dyti_session_check_alive(s, false);
    st = st != DYT_OK
             ? st
             : dyti_session_call(s, DYTI_CALL_HASH, &none, -1, NULL, &answer);
    if (st == DYT_OK) {
        *out_hash = answer.hash;
    }
    return st;
}

enum dyt_status dyt_session_row_hash(dyt_session *s, uint64_t row,
                                     uint64_t *out_hash)
{
    enum dyt_status st = dyti_session_enter(s, "dyt_session_row_hash");

    if (st == DYT_OK) {
        st = row_hash(s, row, out_hash);
        dyti_session_exit(s);
    }
    return st;
}
