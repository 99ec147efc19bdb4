/* One run of a link: the server pauses, bytes move, what the rows hold is
 * noted. */
#include "lib/session_internal.h"

#include <stdio.h>

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
    s->report.scratch_bytes =
        dyti_link_scratch_bytes(k->link) + dyti_session_mirror_bytes(s);
    if (r->committed && !broken) {
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

/* By the hand of a trainer's rank, when all have read. */
static enum dyt_status check_rows(void *arg)
{
    struct dyti_session_link *k = arg;

    return dyti_session_check_seal(k->session, dyti_link_source_kinds(k->link));
}

/* By the hand of a receiver, whose rows are on a device: one that breaks
 * meanwhile says so before anybody commits. */
static enum dyt_status check_device(void *arg)
{
    struct dyti_session_link *k = arg;

    return dyti_session_ready_mirror(k->session);
}

enum dyt_status dyti_session_link_run(struct dyt_session *s,
                                      struct dyti_session_link *k)
{
    const struct dyti_msg_order *o = &k->order;
    struct dyti_msg_report *m = &k->report;
    bool receiver = k->rank >= k->source_count;
    struct dyti_switch_report r = {0};
    struct dyt_switch_report said;
    int64_t start = dyti_session_now();
    bool half = false; /* committed, and the device's rows are not written */
    enum dyt_status st = receiver ? pause_server(s) : DYT_OK;

    st = st == DYT_OK && receiver ? dyti_session_check_alive(s) : st;
    if (st == DYT_OK) {
        st = receiver ? dyti_session_ready_receiver(s, k)
                      : dyti_session_ready_source(s, k);
    }
    if (st != DYT_OK) { /* the others do not wait for it */
        snprintf(k->text, sizeof(k->text), "%s", dyti_error_message());
        (void)dyti_link_abort_at(k->control, k->control_members, k->rank, st);
        dyti_error_adopt(st, k->text);
    }
    if (receiver) {
        set_writing(s, true);
        if (s->mirror != NULL) {
            dyti_link_set_check(k->link, check_device, k);
        }
    } else if (s->params.role == DYT_ROLE_TRAINER && k->snapshot == NULL) {
        dyti_link_set_check(k->link, check_rows, k);
    }
    st = st != DYT_OK ? st : dyti_link_run(k->link, o->epoch, o->version, &r);
    if (st == DYT_OK && receiver && r.decision == DYTI_DECISION_COMMIT) {
        st = dyti_session_commit_there(s, k);
        half = st != DYT_OK;
    }
    snprintf(k->text, sizeof(k->text), "%s", dyti_error_message());
    said = report_of(&r, o, dyti_session_now() - start);
    m->committed = said.committed != 0;
    m->direct = dyti_link_is_direct(k->link);
    if (receiver && said.committed != 0 && said.moved_bytes == 0) {
        /* the sources wrote it: what its rows hold */
        for (uint32_t kind = 0; kind < DYTI_KIND_COUNT; kind++) {
            said.moved_bytes += s->memory.view.region_bytes[kind];
        }
        said.written_bytes = said.moved_bytes;
    }
    m->moved_bytes = said.moved_bytes;
    if (receiver) {
        m->broken = half || dyti_link_valid(k->link) != DYT_OK;
        m->live_set = dyti_link_live_set(k->link);
        if (said.committed != 0) {
            dyti_session_clear_padding(s, m->live_set);
        }
        note_run(s, k, o, &said, m->broken);
        set_writing(s, false);
    }
    return st;
}
