/* One switch as the manager leads it: pause, order, decide, hear from all. */
#include "cli/backends.h"
#include "cli/manager.h"

#include <stdatomic.h>

/* How long the manager sleeps on the votes before it looks for deaths. */
#define GLANCE_NS 5000000

static enum dyt_status pause_all(struct dyti_manager *m)
{
    struct dyti_envelope e = dyti_manager_stamp(m, DYTI_MSG_PAUSE);
    struct dyti_buffer buffer;
    enum dyt_status st =
        dyti_manager_tell(m, dyti_wire_empty(&e, &buffer), &buffer);

    return st != DYT_OK ? st
                        : dyti_manager_collect(m, DYTI_MSG_PAUSED,
                                               m->job->sw.deadline, NULL, NULL);
}

static enum dyt_status order_all(struct dyti_manager *m,
                                 enum dyti_target target)
{
    struct dyti_msg_switch order = {m->phase.epoch, target};
    struct dyti_envelope e = dyti_manager_stamp(m, DYTI_MSG_SWITCH);
    struct dyti_buffer buffer;

    return dyti_manager_tell(m, dyti_wire_switch_encode(&e, &order, &buffer),
                             &buffer);
}

/* Sleep on the votes; commit when all are in, abort when one is lost. */
static enum dyt_status decide(struct dyti_manager *m)
{
    const struct dyti_wait_ops *wait = dyti_backends_host()->wait;
    int64_t until = dyti_now_ns() + dyti_seconds_ns(m->job->sw.deadline);
    enum dyt_status st;

    for (;;) {
        uint32_t bell = atomic_load(&m->page->vote_bell);

        st = dyti_switch_commit(m->page, wait, m->phase.epoch);
        if (st != DYT_PENDING) {
            break;
        }
        wait->wait(&m->page->vote_bell, bell, GLANCE_NS);
        if (dyti_switch_commit(m->page, wait, m->phase.epoch) == DYT_PENDING) {
            st = dyti_manager_glance(m, 0);
            if (st == DYT_OK && dyti_now_ns() > until) {
                st = DYTI_FAIL(DYT_ERR_TIMEOUT,
                               "rank %u was not ready within %g s of switch "
                               "%llu",
                               dyti_manager_find_hung(m, NULL),
                               m->job->sw.deadline,
                               (unsigned long long)m->phase.epoch);
            }
            if (st != DYT_OK) {
                dyti_switch_abort(m->page, wait, m->phase.epoch);
                return st;
            }
        }
    }
    if (st == DYT_ERR_PEER) { /* a rank voted against it: it says why */
        enum dyt_status why = DYT_OK;

        for (int i = 0; i < 50 && why == DYT_OK; i++) {
            why = dyti_manager_glance(m, 20);
        }
        st = why != DYT_OK ? why : st;
    }
    return st;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static enum dyt_status on_done(void *arg, uint32_t rank,
                               const struct dyti_frame *frame)
{
    struct dyti_manager *m = arg;
    struct dyti_switch_record *r = &m->last_switch;
    struct dyti_msg_switch_done d;
    enum dyt_status st = dyti_wire_switch_done_decode(
        frame->buffer.bytes, frame->buffer.size_bytes, &d);

    if (st != DYT_OK) {
        return st;
    }
    if (!d.committed || d.epoch != m->phase.epoch) {
        return DYTI_FAIL(
            DYT_ERR_STATE, "rank %u answers switch %llu, %llu is running", rank,
            (unsigned long long)d.epoch, (unsigned long long)m->phase.epoch);
    }
    r->prepare_ns = larger(r->prepare_ns, d.prepare_ns);
    r->transfer_ns = larger(r->transfer_ns, d.transfer_ns);
    r->verify_ns = larger(r->verify_ns, d.verify_ns);
    r->commit_ns = larger(r->commit_ns, d.commit_ns);
    r->post_ns = larger(r->post_ns, d.post_ns);
    r->kept_bytes += d.kept_bytes;
    r->moved_bytes += d.moved_bytes;
    r->read_bytes += d.read_bytes;
    r->written_bytes += d.written_bytes;
    return DYT_OK;
}

static enum dyt_status run(struct dyti_manager *m, enum dyti_target target,
                           int64_t start)
{
    enum dyt_status st = pause_all(m);

    m->last_switch.pause_ns = dyti_now_ns() - start;
    st = st != DYT_OK ? st : dyti_faults_at(&m->faults, "begin");
    st = st != DYT_OK
             ? st
             : dyti_switch_begin(m->page, m->phase.epoch, m->phase.version);
    st = st != DYT_OK ? st : order_all(m, target);
    if (st == DYT_OK) {
        dyti_faults_await_votes(&m->faults, m->page, m->job->ranks,
                                m->phase.epoch, dyti_backends_host()->wait);
        st = dyti_faults_at(&m->faults, "votes");
    }
    st = st != DYT_OK ? st : decide(m);
    st = st != DYT_OK ? st : dyti_faults_at(&m->faults, "commit");
    return st != DYT_OK ? st
                        : dyti_manager_collect(m, DYTI_MSG_SWITCH_DONE,
                                               m->job->sw.deadline, on_done, m);
}

static uint64_t count_messages(const struct dyti_manager *m)
{
    struct dyti_control_counts c;

    dyti_control_server_counts(m->server, &c);
    return c.received + c.sent;
}

/* The one decision that all ranks see. */
static bool committed(const struct dyti_manager *m)
{
    uint64_t decision = atomic_load(&m->page->decision);

    return decision == (m->phase.epoch << 8 | DYTI_DECISION_COMMIT);
}

/* In place, and during the local copy of a staged switch, there is nothing to
 * go back to. */
static bool is_whole(const struct dyti_manager *m, bool rollout)
{
    uint32_t slot = rollout ? DYTI_ARENA_ROLLOUT : DYTI_ARENA_TRAIN;
    uint32_t size = atomic_load(&m->page->world_size);
    uint64_t lost = 0;

    for (uint32_t r = 0; r < size; r++) {
        lost |= atomic_load(&m->page->rank[r].lost);
    }
    return (lost >> slot * 8u & 0xffu) == 0;
}

enum dyt_status dyti_manager_switch(struct dyti_manager *m,
                                    enum dyti_target target)
{
    int64_t start = dyti_now_ns();
    uint64_t messages;
    enum dyt_status st = dyti_phase_take(&m->phase, DYTI_EVENT_SWITCH, 0);

    if (st != DYT_OK) {
        return st;
    }
    m->last_switch = (struct dyti_switch_record){0};
    messages = count_messages(m);
    st = run(m, target, start);
    if (st == DYT_OK && target == DYTI_TARGET_ROLLOUT && m->engine != NULL) {
        st = dyti_manager_engine_update(m);
    }
    m->last_switch.messages = count_messages(m) - messages;
    if (st != DYT_OK) {
        bool done = committed(m);
        bool rollout = (target == DYTI_TARGET_ROLLOUT) == done;

        DYTI_NOTE("switching (epoch %llu, version %llu): %s, the %s layout is "
                  "%s",
                  (unsigned long long)m->phase.epoch,
                  (unsigned long long)m->phase.version,
                  done ? "committed" : "not committed",
                  rollout ? "rollout" : "training",
                  is_whole(m, rollout)
                      ? "whole"
                      : "INVALID: resume from the newest checkpoint");
        dyti_phase_take(&m->phase, done ? DYTI_EVENT_COMMIT : DYTI_EVENT_ABORT,
                        0);
        return st;
    }
    m->last_switch.total_ns = dyti_now_ns() - start;
    m->seconds_switch += (double)m->last_switch.total_ns * 1e-9;
    *(target == DYTI_TARGET_ROLLOUT ? &m->to_rollout : &m->to_train) =
        m->last_switch;
    st = dyti_series_add(&m->switch_seconds,
                         (double)m->last_switch.total_ns * 1e-9);
    return st != DYT_OK ? st : dyti_phase_take(&m->phase, DYTI_EVENT_COMMIT, 0);
}
