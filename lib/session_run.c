/* One run of a link: the server pauses, bytes move, what the rows hold is
 * noted. */
#include "lib/session_device.h"

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

/* Does this link touch the rows themselves?  What is read from a snapshot may
 * be anything by now. */
static bool uses_rows(struct dyt_session *s, const struct dyti_session_link *k)
{
    bool pinned;

    if (k->snapshot != NULL || s->params.role != DYT_ROLE_TRAINER) {
        return k->snapshot == NULL;
    }
    pthread_mutex_lock(&s->lock);
    pinned = dyti_session_is_pinned(s);
    pthread_mutex_unlock(&s->lock);
    return pinned;
}

static bool is_receiver(const struct dyti_session_link *k)
{
    return k->rank >= k->source_count;
}

/* Before anything is touched, and again before the vote: rows that went away
 * are an error of this member before anybody commits. */
static enum dyt_status look_at_rows(struct dyt_session *s,
                                    const struct dyti_session_link *k)
{
    return uses_rows(s, k) ? dyti_session_check_alive(s, is_receiver(k))
                           : DYT_OK;
}

/* By the hand, when all have moved their bytes: what it finds of its rows, or
 * of a device that breaks meanwhile, ends the update before anybody commits. */
static enum dyt_status before_the_vote(void *arg)
{
    struct dyti_session_link *k = arg;
    struct dyt_session *s = k->session;
    enum dyt_status st = look_at_rows(s, k);

    if (st == DYT_OK && is_receiver(k)) {
        return s->mirror != NULL ? dyti_session_ready_mirror(s) : DYT_OK;
    }
    return st == DYT_OK && s->params.role == DYT_ROLE_TRAINER &&
                   k->snapshot == NULL
               ? dyti_session_check_seal(s, dyti_link_source_kinds(k->link))
               : st;
}

/* The others do not wait for a member that cannot take part. */
static void call_off(struct dyti_session_link *k, enum dyt_status st)
{
    snprintf(k->text, sizeof(k->text), "%s", dyti_error_message());
    (void)dyti_link_abort_at(k->control, k->control_members, k->rank, st);
    dyti_error_adopt(st, k->text);
}

/* Committed: what is not the link's to write. */
static enum dyt_status finish_rows(struct dyt_session *s,
                                   struct dyti_session_link *k)
{
    enum dyt_status st = dyti_session_commit_there(s, k);

    return st != DYT_OK
               ? st
               : dyti_session_clear_padding(s, dyti_link_live_set(k->link));
}

enum dyt_status dyti_session_link_run(struct dyt_session *s,
                                      struct dyti_session_link *k)
{
    const struct dyti_msg_order *o = &k->order;
    struct dyti_msg_report *m = &k->report;
    bool receiver = is_receiver(k);
    struct dyti_switch_report r = {0};
    struct dyt_switch_report said;
    int64_t start = dyti_session_now();
    bool half = false; /* committed, and not all of the rows are written */
    enum dyt_status st = receiver ? pause_server(s) : DYT_OK;

    st = st != DYT_OK ? st : look_at_rows(s, k);
    if (st == DYT_OK) {
        st = receiver ? dyti_session_ready_receiver(s, k)
                      : dyti_session_ready_source(s, k);
    }
    if (st != DYT_OK) {
        call_off(k, st);
    }
    if (receiver) {
        set_writing(s, true);
    }
    dyti_link_set_check(k->link, before_the_vote, k);
    st = st != DYT_OK ? st : dyti_link_run(k->link, o->epoch, o->version, &r);
    if (st == DYT_OK && receiver && r.decision == DYTI_DECISION_COMMIT) {
        st = finish_rows(s, k);
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
        note_run(s, k, o, &said, m->broken);
        set_writing(s, false);
    }
    return st;
}
