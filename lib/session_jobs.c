/* The hands that work in a member's links, and what the manager says of them.
 */
#include "lib/session_internal.h"

#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- hands --------------------------------------------------------------- */

static void *work(void *arg)
{
    struct dyti_session_link *k = arg;

    k->text[0] = '\0';
    if (k->open.member_count > 0) {
        k->report.status = dyti_session_link_open(k->session, k);
        snprintf(k->text, sizeof(k->text), "%s", dyti_error_message());
    } else {
        k->report.status = dyti_session_link_run(k->session, k);
    }
    atomic_store(&k->ended, true);
    dyti_session_wake(k->session);
    return NULL;
}

static enum dyt_status start_hand(struct dyti_session_link *k)
{
    enum dyt_status st;

    atomic_store(&k->ended, false);
    st = dyti_thread_start(work, k, "a link's thread", &k->hand);
    k->works = st == DYT_OK;
    return st;
}

static enum dyt_status report(struct dyt_session *s,
                              const struct dyti_msg_report *r, const char *text,
                              const char *indirect)
{
    struct dyti_envelope e =
        dyti_hub_client_stamp(s->client, DYTI_MSG_REPORT, 0);
    struct dyti_msg_report m = *r;
    struct dyti_buffer buffer;
    enum dyt_status st;

    m.text = strdup(r->status == DYT_OK ? "" : text);
    m.indirect = strdup(indirect);
    st = m.text == NULL || m.indirect == NULL
             ? DYTI_FAIL(DYT_ERR_NOMEM, "a message")
             : dyti_wire_report_encode(&e, &m, &buffer);
    st = dyti_session_send(s, st, &buffer);
    free(m.text);
    free(m.indirect);
    return st;
}

bool dyti_session_receives(const struct dyt_session *s)
{
    for (size_t i = 0; i < s->link_count; i++) {
        const struct dyti_session_link *k = s->link[i];

        if (k != NULL && k->works && k->rank >= k->source_count) {
            return true;
        }
    }
    return false;
}

enum dyt_status dyti_session_collect(struct dyt_session *s)
{
    bool any = false;
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < s->link_count && st == DYT_OK; i++) {
        struct dyti_session_link *k = s->link[i];
        bool opened;

        if (k == NULL || !k->works) {
            continue;
        }
        st = dyti_session_hosts_tell(s, k);
        if (st != DYT_OK || !atomic_load(&k->ended)) {
            continue;
        }
        opened = k->open.member_count > 0;
        dyti_session_join_hand(k);
        any = true;
        if (!opened && k->rank >= k->source_count) {
            s->last = k->link;
        }
        st = report(s, &k->report, k->text, k->indirect);
        dyti_session_withdraw_written(s);
        if (opened && k->report.status != DYT_OK) {
            dyti_session_link_fini(s, k);
        }
    }
    if (any) { /* a call may have waited for it */
        dyti_session_wake(s);
    }
    return st;
}

/* ---- what the manager says ----------------------------------------------- */

/* `m` is taken over. */
static enum dyt_status begin_open(struct dyt_session *s,
                                  struct dyti_session_link *k,
                                  struct dyti_msg_link *m)
{
    enum dyt_status st = DYT_OK;

    dyti_session_link_fini(s, k);
    if (s->catalogue == NULL || m->rank >= m->member_count ||
        m->source_count >= m->member_count ||
        m->part_count < m->member_count * m->set_count) {
        st = DYTI_FAIL(DYT_ERR_FORMAT, "a link of %u members, %u parts",
                       m->member_count, m->part_count);
    }
    k->used = true;
    k->rank = m->rank;
    k->source_count = m->source_count;
    k->report = (struct dyti_msg_report){.link = m->link};
    st = st != DYT_OK ? st : dyti_session_hosts_begin(s, k, m);
    if (st != DYT_OK) {
        dyti_msg_link_fini(m);
        return st;
    }
    k->open = *m;
    st = start_hand(k);
    if (st != DYT_OK) {
        dyti_msg_link_fini(&k->open);
    }
    return st;
}

enum dyt_status dyti_session_on_link(struct dyt_session *s,
                                     const struct dyti_hub_frame *f)
{
    struct dyti_msg_report r = {0};
    struct dyti_session_link *k = NULL;
    struct dyti_msg_link m;
    enum dyt_status st =
        dyti_wire_link_decode(f->buffer.bytes, f->buffer.size_bytes, &m);

    if (st != DYT_OK) {
        return st;
    }
    r.link = m.link;
    st = dyti_session_link_at(s, m.link, &k);
    if (st != DYT_OK) {
        dyti_msg_link_fini(&m);
    } else {
        st = begin_open(s, k, &m);
    }
    if (st == DYT_OK) {
        return DYT_OK; /* the hand answers */
    }
    r.status = st;
    return report(s, &r, dyti_error_message(), "");
}

static void close_link(struct dyt_session *s, struct dyti_session_link *k)
{
    dyti_session_link_fini(s, k);
    dyti_snapshot_close(k->snapshot);
    k->snapshot = NULL;
    k->used = false;
}

enum dyt_status dyti_session_on_order(struct dyt_session *s,
                                      const struct dyti_hub_frame *f)
{
    struct dyti_msg_report r = {0};
    struct dyti_session_link *k;
    struct dyti_msg_order o;
    enum dyt_status st =
        dyti_wire_order_decode(f->buffer.bytes, f->buffer.size_bytes, &o);

    if (st != DYT_OK) {
        return st;
    }
    k = o.link < s->link_count ? s->link[o.link] : NULL;
    if (o.what == DYTI_ORDER_CLOSE) {
        if (k != NULL) {
            close_link(s, k);
        }
        return DYT_OK;
    }
    if (o.what == DYTI_ORDER_ABORT) {
        if (k != NULL && k->works) {
            dyti_session_call_off(s, k, o.rank, (enum dyt_status)o.status);
        }
        return DYT_OK;
    }
    r.link = o.link;
    r.epoch = o.epoch;
    if (k == NULL || k->works || k->link == NULL) {
        r.status = DYTI_FAIL(DYT_ERR_STATE, "link %u is not open", o.link);
    } else {
        k->order = o;
        k->report = r;
        r.status = start_hand(k);
    }
    return r.status == DYT_OK ? DYT_OK
                              : report(s, &r, dyti_error_message(), "");
}
