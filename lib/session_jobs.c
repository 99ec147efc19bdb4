/* Links of a member, and the hands that work in them. */
#include "lib/session_internal.h"

#include "base/array.h"
#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum dyt_status dyti_session_link_at(struct dyt_session *s, uint32_t number,
                                     struct dyti_session_link **out)
{
    size_t old = s->link_count;
    enum dyt_status st;

    pthread_mutex_lock(&s->lock); /* callers look through them */
    st = DYTI_GROW(s->link, s->link_cap, (size_t)number + 1);
    if (st == DYT_OK && number >= old) {
        memset(&s->link[old], 0, (number + 1u - old) * sizeof(s->link[0]));
        s->link_count = (size_t)number + 1;
    }
    pthread_mutex_unlock(&s->lock);
    if (st == DYT_OK && s->link[number] == NULL) {
        struct dyti_session_link *k = calloc(1, sizeof(*k));

        if (k == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "a link");
        }
        k->session = s;
        k->control_fd = -1;
        s->link[number] = k;
    }
    if (st == DYT_OK) {
        *out = s->link[number];
    }
    return st;
}

/* ---- the end of a link --------------------------------------------------- */

/* The hand comes back: what it does is over, or was called off. */
static void join_hand(struct dyti_session_link *k)
{
    if (!k->works) {
        return;
    }
    (void)pthread_join(k->hand, NULL);
    k->works = false;
    if (k->open.member_count > 0) {
        dyti_msg_link_fini(&k->open);
    }
}

static void call_hand_back(struct dyti_session_link *k)
{
    if (k->works) {
        dyti_session_call_off(k->session, k, k->rank, DYT_ERR_CANCELLED);
    }
    join_hand(k);
}

static void link_fini(struct dyt_session *s, struct dyti_session_link *k)
{
    call_hand_back(k);
    if (s->last == k->link) {
        s->last = NULL;
    }
    dyti_link_close(k->link);
    dyti_session_hosts_end(k);
    for (uint32_t i = 0; i < k->member_count; i++) {
        if (k->memory != NULL) {
            dyti_memory_view_fini(&k->memory[i]);
        }
        if (k->second != NULL) {
            dyti_memory_view_fini(&k->second[i]);
        }
    }
    free(k->memory);
    free(k->second);
    k->link = NULL;
    k->memory = k->second = NULL;
    k->member_count = 0;
}

void dyti_session_links_close(struct dyt_session *s)
{
    struct dyti_session_link **link;
    struct dyti_snapshot *whole;
    size_t count;

    pthread_mutex_lock(&s->lock); /* callers look through them */
    whole = s->whole;
    s->whole = NULL;
    link = s->link;
    count = s->link_count;
    s->link = NULL;
    s->link_count = s->link_cap = 0;
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < count; i++) {
        if (link[i] != NULL) {
            link_fini(s, link[i]);
            dyti_snapshot_close(link[i]->snapshot);
            free(link[i]);
        }
    }
    free(link);
    dyti_snapshot_close(whole);
}

/* ---- open ---------------------------------------------------------------- */

/* The others as they told; this member as it knows itself. */
static enum dyt_status fill_memory(struct dyt_session *s,
                                   const struct dyti_msg_link *m,
                                   struct dyti_session_link *k)
{
    uint32_t n = m->member_count;
    bool two = m->set_count == 2;
    enum dyt_status st = DYT_OK;

    k->member_count = n;
    k->memory = calloc(n, sizeof(*k->memory));
    k->second = two ? calloc(n, sizeof(*k->second)) : NULL;
    if (k->memory == NULL || (two && k->second == NULL)) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a link of %u members", n);
    }
    for (uint32_t i = 0; i < n && st == DYT_OK; i++) {
        st = dyti_part_to_memory(s->catalogue, &m->part[i], &k->memory[i]);
        if (st == DYT_OK && two && i >= m->source_count) {
            st = dyti_part_to_memory(s->catalogue, &m->part[n + i],
                                     &k->second[i]);
        }
    }
    return st;
}

/* What only the owner knows of its rows, for hashes. */
static void lend_rows(const struct dyti_memory_view *own,
                      struct dyti_memory_view *copy)
{
    uint32_t shards = own->view.shard_count;

    if (own->shard_row == NULL || copy->view.shard_count != shards) {
        return;
    }
    copy->shard_row = calloc(shards + 1u, sizeof(*copy->shard_row));
    copy->row_as = calloc(own->row_count + 1u, sizeof(*copy->row_as));
    if (copy->shard_row == NULL || copy->row_as == NULL) {
        free(copy->shard_row);
        free(copy->row_as);
        copy->shard_row = copy->row_as = NULL;
        return;
    }
    memcpy(copy->shard_row, own->shard_row, shards * sizeof(*copy->shard_row));
    memcpy(copy->row_as, own->row_as, own->row_count * sizeof(*copy->row_as));
    copy->row_count = own->row_count;
}

/* By the hand. */
static enum dyt_status open_link(struct dyt_session *s,
                                 struct dyti_session_link *k)
{
    const struct dyti_msg_link *m = &k->open;
    struct dyti_link_params p = {.struct_size = sizeof(p),
                                 .rank = m->rank,
                                 .member_count = m->member_count,
                                 .source_count = m->source_count,
                                 .catalogue = s->catalogue,
                                 .commit = (enum dyt_commit_mode)m->commit,
                                 .verify = (enum dyt_verify)m->verify,
                                 .kinds = m->kinds,
                                 .cap_bytes = s->params.cap_bytes,
                                 .timeout_ns = m->timeout_ns,
                                 .live_set = m->live_set,
                                 .control_fd = -1};
    enum dyt_status st = fill_memory(s, m, k);

    st = st != DYT_OK ? st : dyti_session_hosts_await(s, k);
    if (st != DYT_OK) {
        return st;
    }
    p.control = k->control;
    p.apart = k->apart.module != NULL ? &k->apart : NULL;
    lend_rows(&s->memory, &k->memory[m->rank]);
    if (k->second != NULL && m->rank >= m->source_count) {
        lend_rows(&s->second, &k->second[m->rank]);
    }
    p.memory = k->memory;
    p.second = k->second;
    return dyti_link_open(&p, &k->link);
}

/* ---- runs ---------------------------------------------------------------- */

static bool is_paused_or_not(struct dyt_session *s, void *arg)
{
    (void)arg;
    return s->hook.paused || s->hook.failed || s->ending;
}

/* The caller of receive() pauses the server; this thread waits for it. */
static enum dyt_status pause_server(struct dyt_session *s)
{
    int64_t until = dyti_session_now() + s->timeout_ns;
    enum dyt_status st = DYT_OK;

    pthread_mutex_lock(&s->lock);
    if (s->hooks.pause == NULL || s->hook.paused) { /* it was never resumed */
        pthread_mutex_unlock(&s->lock);
        return DYT_OK;
    }
    s->hook = (struct dyti_session_hook_state){.wanted = true};
    pthread_cond_broadcast(&s->changed);
    if (dyti_session_wait(s, until, false, is_paused_or_not, NULL) != DYT_OK) {
        st = DYTI_FAIL(DYT_ERR_TIMEOUT, "the server did not pause in time");
    } else if (s->hook.failed) {
        st = DYTI_FAIL(DYT_ERR_STATE, "the server's pause hook failed");
    } else if (!s->hook.paused) {
        st = DYTI_FAIL(DYT_ERR_CANCELLED, "the session is being left");
    }
    s->hook.wanted = false;
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* What the rows hold after a run, for valid() and its kind. */
static void note_run(struct dyt_session *s, const struct dyti_session_link *k,
                     const struct dyti_msg_order *o,
                     const struct dyt_switch_report *r, bool broken)
{
    pthread_mutex_lock(&s->lock);
    s->report = *r;
    s->report.source = o->from_sibling;
    s->report.scratch_bytes = dyti_link_scratch_bytes(k->link);
    if (r->committed) {
        s->version = o->version;
        s->valid = true;
        s->broken = false;
        s->live_set = dyti_link_live_set(k->link);
    } else if (broken) {
        s->valid = false;
        s->broken = true;
        s->broken_epoch = o->epoch;
    }
    pthread_mutex_unlock(&s->lock);
}

static struct dyt_switch_report report_of(const struct dyti_switch_report *r,
                                          const struct dyti_msg_order *o,
                                          int64_t total_ns)
{
    return (struct dyt_switch_report){
        .struct_size = sizeof(struct dyt_switch_report),
        .committed = r->decision == DYTI_DECISION_COMMIT,
        .epoch = o->epoch,
        .version = o->version,
        .transfer_ns = r->transfer_ns,
        .verify_ns = r->verify_ns,
        .commit_ns = r->vote_ns + r->commit_ns,
        .total_ns = total_ns,
        .moved_bytes = r->moved_bytes,
        .written_bytes = r->written_bytes};
}

static void set_writing(struct dyt_session *s, bool writing)
{
    pthread_mutex_lock(&s->lock);
    s->writing = writing;
    pthread_mutex_unlock(&s->lock);
}

/* By the hand. */
static enum dyt_status run(struct dyt_session *s, struct dyti_session_link *k)
{
    const struct dyti_msg_order *o = &k->order;
    struct dyti_msg_report *m = &k->report;
    bool receiver = k->rank >= k->source_count;
    struct dyti_switch_report r = {0};
    struct dyt_switch_report said;
    int64_t start = dyti_session_now();
    enum dyt_status st = receiver ? pause_server(s) : DYT_OK;

    if (st != DYT_OK) { /* the others do not wait for it */
        snprintf(k->text, sizeof(k->text), "%s", dyti_error_message());
        (void)dyti_link_abort_at(k->control, k->control_members, k->rank, st);
        dyti_error_adopt(st, k->text);
    }
    if (receiver) {
        set_writing(s, true);
    }
    st = st != DYT_OK ? st : dyti_link_run(k->link, o->epoch, o->version, &r);
    snprintf(k->text, sizeof(k->text), "%s", dyti_error_message());
    said = report_of(&r, o, dyti_session_now() - start);
    m->committed = said.committed != 0;
    if (receiver && said.committed != 0 && said.moved_bytes == 0) {
        /* the sources wrote it: what its rows hold */
        for (uint32_t kind = 0; kind < DYTI_KIND_COUNT; kind++) {
            said.moved_bytes += s->memory.view.region_bytes[kind];
        }
        said.written_bytes = said.moved_bytes;
    }
    m->moved_bytes = said.moved_bytes;
    if (receiver) {
        m->broken = dyti_link_valid(k->link) != DYT_OK;
        m->live_set = dyti_link_live_set(k->link);
        note_run(s, k, o, &said, m->broken);
        set_writing(s, false);
    }
    return st;
}

/* ---- hands --------------------------------------------------------------- */

static void *work(void *arg)
{
    struct dyti_session_link *k = arg;

    k->text[0] = '\0';
    if (k->open.member_count > 0) {
        k->report.status = open_link(k->session, k);
        snprintf(k->text, sizeof(k->text), "%s", dyti_error_message());
    } else {
        k->report.status = run(k->session, k);
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
                              const struct dyti_msg_report *r, const char *text)
{
    struct dyti_envelope e =
        dyti_hub_client_stamp(s->client, DYTI_MSG_REPORT, 0);
    struct dyti_msg_report m = *r;
    struct dyti_buffer buffer;
    enum dyt_status st;

    m.text = strdup(r->status == DYT_OK ? "" : text);
    st = m.text == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "a message")
                        : dyti_wire_report_encode(&e, &m, &buffer);
    st = dyti_session_send(s, st, &buffer);
    free(m.text);
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
        join_hand(k);
        any = true;
        if (!opened && k->rank >= k->source_count) {
            s->last = k->link;
        }
        st = report(s, &k->report, k->text);
        if (opened && k->report.status != DYT_OK) {
            link_fini(s, k);
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

    link_fini(s, k);
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
    return report(s, &r, dyti_error_message());
}

static void close_link(struct dyt_session *s, struct dyti_session_link *k)
{
    link_fini(s, k);
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
    return r.status == DYT_OK ? DYT_OK : report(s, &r, dyti_error_message());
}
