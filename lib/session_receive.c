/* Receives, and what a server asks of its rows and their memory. */
#include "lib/session_internal.h"

#include "lib/handles.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALL_TAGS                                                               \
    (DYT_TAG_WEIGHTS | DYT_TAG_KV_CACHE | DYT_TAG_OPTIMIZER | DYT_TAG_GRAD)

static enum dyt_status null_argument(const char *function)
{
    return DYTI_FAIL(DYT_ERR_INVALID, "%s: a NULL argument", function);
}

/* ---- map ----------------------------------------------------------------- */

enum dyt_status dyt_session_map(dyt_session *s, struct dyt_row *row,
                                uint64_t row_count)
{
    enum dyt_status st = DYT_OK;

    if (s == NULL || row == NULL) {
        return null_argument("dyt_session_map");
    }
    for (uint64_t i = 0; i < row_count && st == DYT_OK; i++) {
        st = dyti_struct_check("dyt_row", row[i].struct_size,
                               (uint32_t)sizeof(*row));
    }
    pthread_mutex_lock(&s->lock);
    if (st == DYT_OK && s->params.memory != DYT_MEMORY_MAPPED) {
        st = DYTI_FAIL(DYT_ERR_STATE, "the member joined with memory OWN");
    }
    if (st == DYT_OK && (s->published || s->mapped != NULL)) {
        st = DYTI_FAIL(DYT_ERR_STATE, "rows are mapped once, before publish");
    }
    st = st != DYT_OK
             ? st
             : dyti_mapped_open(row, row_count,
                                s->params.commit == DYT_COMMIT_DOUBLE ? 2 : 1,
                                &s->mapped);
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* Under the lock. */
static enum dyt_status check_row(const struct dyt_session *s, uint64_t row)
{
    return s->published && row < s->row_count
               ? DYT_OK
               : DYTI_FAIL(
                     DYT_ERR_INVALID, "row %llu of %llu published ones",
                     (unsigned long long)row,
                     (unsigned long long)(s->published ? s->row_count : 0));
}

enum dyt_status dyt_session_row_data(dyt_session *s, uint64_t row,
                                     void **out_data)
{
    enum dyt_status st;

    if (s == NULL || out_data == NULL) {
        return null_argument("dyt_session_row_data");
    }
    pthread_mutex_lock(&s->lock);
    st = check_row(s, row);
    if (st == DYT_OK) {
        *out_data = s->mapped != NULL
                        ? dyti_mapped_row(s->mapped, row, s->live_set)
                        : s->row[row].data;
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

enum dyt_status dyt_session_staged(dyt_session *s, uint64_t row,
                                   void **out_data)
{
    enum dyt_status st;

    if (s == NULL || out_data == NULL) {
        return null_argument("dyt_session_staged");
    }
    pthread_mutex_lock(&s->lock);
    st = check_row(s, row);
    if (st == DYT_OK && s->staged[row] == NULL) {
        st = DYTI_FAIL(DYT_ERR_INVALID,
                       "row %llu has memory of its own: nothing was lent",
                       (unsigned long long)row);
    }
    if (st == DYT_OK) {
        *out_data = s->staged[row];
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* ---- receive ------------------------------------------------------------- */

/* Under the lock. */
static void withdraw(struct dyt_session *s, enum dyt_status why)
{
    struct dyti_msg_request r = {.what = DYTI_REQUEST_WITHDRAW, .status = why};

    dyti_session_tell(s, &r);
}

/* Under the lock: the server may go on, whatever came of it. */
static enum dyt_status resume_server(struct dyt_session *s)
{
    bool paused = s->hook.paused;
    enum dyt_status st = DYT_OK;

    s->hook = (struct dyti_session_hook_state){0};
    if (paused && s->hooks.resume != NULL) {
        pthread_mutex_unlock(&s->lock);
        st = s->hooks.resume(s->hooks.arg);
        pthread_mutex_lock(&s->lock);
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

enum dyt_status dyt_session_receive(dyt_session *s, uint64_t version,
                                    int64_t deadline_ns,
                                    struct dyt_switch_report *out_report)
{
    struct dyti_msg_request r = {.what = DYTI_REQUEST_RECEIVE,
                                 .version = version};
    int64_t start = dyti_session_now();
    uint64_t epoch = 0;
    char text[DYTI_SESSION_TEXT_BYTES];
    enum dyt_status st = DYT_OK, resumed;

    if (s == NULL) {
        return null_argument("dyt_session_receive");
    }
    if (out_report != NULL) {
        st = dyti_struct_check("dyt_switch_report", out_report->struct_size,
                               (uint32_t)sizeof(uint32_t) * 2u);
        if (st != DYT_OK) {
            return st;
        }
    }
    pthread_mutex_lock(&s->lock);
    epoch = s->report.epoch;
    if (s->params.role != DYT_ROLE_RECEIVER || !s->published) {
        st = DYTI_FAIL(DYT_ERR_STATE, "a receive is a receiver's, after it has "
                                      "published");
    } else if ((s->released & DYT_TAG_WEIGHTS) != 0) {
        st = DYTI_FAIL(DYT_ERR_STATE,
                       "the weights are released: restore them first");
    }
    s->hook = (struct dyti_session_hook_state){0};
    pthread_mutex_unlock(&s->lock);
    st = st != DYT_OK ? st
                      : dyti_session_call(s, DYTI_CALL_RECEIVE, &r, deadline_ns,
                                          withdraw, NULL);
    snprintf(text, sizeof(text), "%s", dyti_error_message());
    pthread_mutex_lock(&s->lock);
    resumed = resume_server(s);
    if (out_report != NULL) {
        copy_report(s, st, epoch, start, out_report);
    }
    pthread_mutex_unlock(&s->lock);
    if (st != DYT_OK) {
        return dyti_error_adopt(st, text);
    }
    return resumed;
}

enum dyt_status dyt_session_valid(dyt_session *s, uint64_t *out_version)
{
    enum dyt_status st = DYT_OK;

    if (s == NULL || out_version == NULL) {
        return null_argument("dyt_session_valid");
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

enum dyt_status dyt_session_changed(dyt_session *s, uint64_t *out_row,
                                    size_t capacity, size_t *out_count)
{
    size_t n = 0;

    if (s == NULL || out_count == NULL || (capacity > 0 && out_row == NULL)) {
        return null_argument("dyt_session_changed");
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

enum dyt_status dyt_session_row_hash(dyt_session *s, uint64_t row,
                                     uint64_t *out_hash)
{
    struct dyti_msg_request none = {0};
    struct dyti_call answer;
    enum dyt_status st;

    if (s == NULL || out_hash == NULL) {
        return null_argument("dyt_session_row_hash");
    }
    pthread_mutex_lock(&s->lock);
    st = check_row(s, row);
    none.version = row;
    pthread_mutex_unlock(&s->lock);
    st = st != DYT_OK
             ? st
             : dyti_session_call(s, DYTI_CALL_HASH, &none, -1, NULL, &answer);
    if (st == DYT_OK) {
        *out_hash = answer.hash;
    }
    return st;
}

/* ---- hooks and memory ---------------------------------------------------- */

enum dyt_status dyt_session_set_hooks(dyt_session *s,
                                      const struct dyt_session_hooks *hooks)
{
    enum dyt_status st;

    if (s == NULL || hooks == NULL) {
        return null_argument("dyt_session_set_hooks");
    }
    st = dyti_struct_check("dyt_session_hooks", hooks->struct_size,
                           offsetof(struct dyt_session_hooks, restore) +
                               sizeof(hooks->restore));
    if (st != DYT_OK) {
        return st;
    }
    pthread_mutex_lock(&s->lock);
    memcpy(&s->hooks, hooks, sizeof(s->hooks));
    pthread_mutex_unlock(&s->lock);
    return DYT_OK;
}

static enum dyt_status check_tags(uint32_t tags)
{
    return tags != 0 && (tags & ~ALL_TAGS) == 0
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_INVALID,
                           "tags %#x: bits of weights 1, kv_cache 2, optimizer "
                           "4, grad 8",
                           tags);
}

/* The replica must not be in a link while its weights go or come. */
static enum dyt_status tell_manager(struct dyt_session *s, uint32_t what)
{
    struct dyti_msg_request r = {.what = what};

    return s->params.role == DYT_ROLE_RECEIVER && s->published
               ? dyti_session_call(s, DYTI_CALL_RELEASE, &r, -1, NULL, NULL)
               : DYT_OK;
}

enum dyt_status dyt_session_release(dyt_session *s, uint32_t tags)
{
    enum dyt_status st =
        s == NULL ? null_argument("dyt_session_release") : check_tags(tags);

    if (st != DYT_OK) {
        return st;
    }
    if ((tags & s->released) != 0) {
        return DYTI_FAIL(DYT_ERR_STATE, "tags %#x are released already",
                         tags & s->released);
    }
    if ((tags & DYT_TAG_WEIGHTS) != 0) {
        st = tell_manager(s, DYTI_REQUEST_RELEASE);
    }
    if (st == DYT_OK && (tags & DYT_TAG_WEIGHTS) != 0 && s->mapped != NULL) {
        st = dyti_mapped_release(s->mapped);
    }
    if (st == DYT_OK && s->hooks.release != NULL) {
        st = s->hooks.release(s->hooks.arg, tags);
    }
    if (st == DYT_OK) {
        pthread_mutex_lock(&s->lock);
        s->released |= tags;
        s->valid = (tags & DYT_TAG_WEIGHTS) != 0 ? false : s->valid;
        s->received_since_restore = false;
        pthread_mutex_unlock(&s->lock);
    }
    return st;
}

/* restore weights → receive → commit → restore kv_cache → resume */
static enum dyt_status check_restore(const struct dyt_session *s, uint32_t tags)
{
    if ((tags & ~s->released) != 0) {
        return DYTI_FAIL(DYT_ERR_STATE, "tags %#x are not released",
                         tags & ~s->released);
    }
    if ((tags & DYT_TAG_KV_CACHE) != 0 &&
        ((tags & DYT_TAG_WEIGHTS) != 0 ||
         (s->released & DYT_TAG_WEIGHTS) != 0 || !s->valid)) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "kv_cache comes back after the weights were restored "
                         "and a version was received");
    }
    return DYT_OK;
}

enum dyt_status dyt_session_restore(dyt_session *s, uint32_t tags)
{
    enum dyt_status st =
        s == NULL ? null_argument("dyt_session_restore") : check_tags(tags);

    st = st != DYT_OK ? st : check_restore(s, tags);
    if (st != DYT_OK) {
        return st;
    }
    if ((tags & DYT_TAG_WEIGHTS) != 0 && s->mapped != NULL) {
        st = dyti_mapped_restore(s->mapped);
    }
    if (st == DYT_OK && s->hooks.restore != NULL) {
        st = s->hooks.restore(s->hooks.arg, tags);
    }
    if (st == DYT_OK && (tags & DYT_TAG_WEIGHTS) != 0) {
        st = tell_manager(s, DYTI_REQUEST_RESTORE);
    }
    if (st == DYT_OK) {
        pthread_mutex_lock(&s->lock);
        s->released &= ~tags;
        pthread_mutex_unlock(&s->lock);
    }
    return st;
}
