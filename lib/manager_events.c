/* What members say, as events of the fleet. */
#include "lib/manager_internal.h"

#include "base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- join ---------------------------------------------------------------- */

static struct dyti_fleet_place place_of(const struct dyti_msg_join *j)
{
    struct dyti_fleet_place p = {
        .role = j->role == DYTI_FLEET_TRAINER ? DYTI_FLEET_TRAINER
                                              : DYTI_FLEET_RECEIVER,
        .replica = j->replica,
        .rank = j->rank,
        .size = j->size,
        .tp_rank = j->tp_rank,
        .tp_size = j->tp_size,
        .pp_rank = j->pp_rank,
        .pp_size = j->pp_size,
        .dp_rank = j->dp_rank,
        .dp_size = j->dp_size,
        .ep_rank = j->ep_rank,
        .ep_size = j->ep_size,
        .host = j->host,
        .pid = j->pid,
        .commit = j->commit,
        .policy = j->policy,
        .quorum = j->quorum,
        .max_version_skew = j->max_version_skew,
        .timeout_ns = j->timeout_ns > DYTI_SESSION_LONGEST_NS
                          ? DYTI_SESSION_LONGEST_NS
                          : j->timeout_ns};

    snprintf(p.pool, sizeof(p.pool), "%s",
             p.role == DYTI_FLEET_TRAINER ? "" : j->pool);
    snprintf(p.host_name, sizeof(p.host_name), "%s", j->host_name);
    return p;
}

/* Weights between hosts need the module on both. */
static enum dyt_status check_hosts(const struct dyti_session_manager *m,
                                   const struct dyti_msg_join *j)
{
    for (uint32_t i = 0; i < m->member_count; i++) {
        const struct dyti_fleet_place *p = &m->fleet.member[i].place;
        const struct dyti_managed *d = &m->member[i];
        bool newcomer = j->no_crossing[0] != '\0';

        if (!d->used || p->host == j->host ||
            (!newcomer && d->no_crossing[0] == '\0')) {
            continue;
        }
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s (pid %u) and %s (pid %u) are on different hosts, "
                         "or in containers of which neither sees the other, "
                         "and %s cannot send weights between hosts: %s; or run "
                         "trainer and servers on one host",
                         j->host_name, j->pid, p->host_name, p->pid,
                         newcomer ? j->host_name : p->host_name,
                         newcomer ? j->no_crossing : d->no_crossing);
    }
    return DYT_OK;
}

static bool has_members(const struct dyti_session_manager *m)
{
    for (size_t i = 0; i < m->member_count; i++) {
        if (m->member[i].used) {
            return true;
        }
    }
    return false;
}

static enum dyt_status check_job(struct dyti_session_manager *m,
                                 const struct dyti_msg_join *j)
{
    if (m->params.job == NULL && !has_members(m)) {
        /* the first gives it its name, until the last has left */
        snprintf(m->job, sizeof(m->job), "%s", j->job);
    }
    if (strcmp(m->job, j->job) != 0) {
        return DYTI_FAIL(DYT_ERR_BUSY,
                         "job %s is served at this address, and %s asks for "
                         "job %s: give each job an address of its own",
                         m->job, j->host_name, j->job);
    }
    return check_hosts(m, j);
}

static enum dyt_status keep_member(struct dyti_session_manager *m,
                                   uint32_t member, uint32_t peer,
                                   struct dyti_msg_join *j)
{
    size_t old = m->member_count;
    struct dyti_managed *d;
    enum dyt_status st =
        DYTI_GROW(m->member, m->member_cap, (size_t)member + 1);

    if (st != DYT_OK) {
        return st;
    }
    m->member_count = member >= old ? (size_t)member + 1 : old;
    for (size_t i = old; i < m->member_count; i++) {
        m->member[i] = (struct dyti_managed){.pidfd = -1};
    }
    d = &m->member[member];
    *d = (struct dyti_managed){.used = true,
                               .on_host = j->host == m->host,
                               .mapped = j->mapped != 0,
                               .no_crossing = j->no_crossing,
                               .peer = peer,
                               .verify = j->verify,
                               .pidfd = -1};
    j->no_crossing = NULL; /* moved */
    if (d->on_host) {
        d->pidfd = (int)syscall(SYS_pidfd_open, j->pid, 0);
    }
    return DYT_OK;
}

static enum dyt_status refuse(struct dyti_session_manager *m, uint32_t peer,
                              enum dyt_status why)
{
    struct dyti_envelope e = dyti_manager_envelope(m, DYTI_MSG_ERROR);
    struct dyti_msg_error error = {.status = why, .rank = -1};
    struct dyti_buffer buffer;
    enum dyt_status st;

    error.text = strdup(dyti_error_message());
    st = error.text == NULL ? DYT_ERR_NOMEM
                            : dyti_wire_error_encode(&e, &error, &buffer);
    st = st != DYT_OK ? st : dyti_hub_send(m->hub, peer, &buffer);
    free(error.text);
    return st == DYT_ERR_NOMEM ? st : DYT_OK;
}

static enum dyt_status on_join(struct dyti_session_manager *m,
                               struct dyti_hub_frame *f)
{
    struct dyti_msg_joined joined = {
        .host = m->host, .pid = m->pid, .pid_start = m->pid_start};
    struct dyti_envelope e;
    struct dyti_msg_join j;
    struct dyti_buffer buffer;
    char who[256];
    enum dyt_status st =
        dyti_wire_join_decode(f->buffer.bytes, f->buffer.size_bytes, &j);

    if (st != DYT_OK) {
        return refuse(m, f->peer, st);
    }
    st = check_job(m, &j);
    if (st == DYT_OK) {
        struct dyti_fleet_place place = place_of(&j);

        st = dyti_fleet_join(&m->fleet, &place, dyti_manager_now(),
                             &joined.member);
    }
    st = st != DYT_OK ? st : keep_member(m, joined.member, f->peer, &j);
    dyti_msg_join_fini(&j);
    if (st != DYT_OK) {
        return refuse(m, f->peer, st);
    }
    dyti_fleet_member_text(&m->fleet, joined.member, who, sizeof(who));
    dyti_manager_say(m, "%s joined job %s", who, m->job);
    e = dyti_manager_envelope(m, DYTI_MSG_JOINED);
    return dyti_manager_send(m, joined.member,
                             dyti_wire_joined_encode(&e, &joined, &buffer),
                             &buffer);
}

/* ---- what a member says later -------------------------------------------- */

static uint32_t member_of(const struct dyti_session_manager *m, uint32_t peer)
{
    for (size_t i = 0; i < m->member_count; i++) {
        if (m->member[i].used && m->member[i].peer == peer) {
            return (uint32_t)i;
        }
    }
    return DYTI_FLEET_NONE;
}

static enum dyt_status on_rows(struct dyti_session_manager *m, uint32_t member,
                               struct dyti_hub_frame *f)
{
    struct dyti_fleet_event e = {.kind = DYTI_FLEET_LISTED, .member = member};
    struct dyti_msg_rows rows;
    enum dyt_status st =
        dyti_wire_rows_decode(f->buffer.bytes, f->buffer.size_bytes, &rows);

    if (st != DYT_OK) {
        return st;
    }
    dyti_msg_rows_fini(&m->member[member].rows);
    m->member[member].rows = rows;
    return dyti_manager_take(m, &e);
}

static enum dyt_status keep_snapshot(struct dyti_session_manager *m,
                                     uint32_t member,
                                     struct dyti_msg_memory *memory)
{
    struct dyti_managed_link *k =
        memory->link < m->link_count ? &m->link[memory->link] : NULL;

    for (uint32_t i = 0; k != NULL && k->used && i < k->source_count; i++) {
        if (k->member[i] == member && memory->part_count == 1) {
            dyti_msg_part_fini(&k->snapshot[i]);
            k->snapshot[i] = memory->part[0];
            memory->part_count = 0; /* moved */
        }
    }
    return DYT_OK;
}

static void keep_parts(struct dyti_managed *d, struct dyti_msg_memory *memory)
{
    dyti_msg_part_fini(&d->part[0]);
    dyti_msg_part_fini(&d->part[1]);
    d->part_count = memory->part_count;
    d->live_set = 0;
    for (uint32_t i = 0; i < memory->part_count && i < 2; i++) {
        d->part[i] = memory->part[i];
    }
    memory->part_count = 0; /* moved */
    dyti_msg_part_fini(&d->direct[0]);
    dyti_msg_part_fini(&d->direct[1]);
    d->direct_count = memory->direct_count == d->part_count ? d->part_count : 0;
    for (uint32_t i = 0; i < d->direct_count; i++) {
        d->direct[i] = memory->direct[i];
    }
    memory->direct_count -= d->direct_count; /* moved */
    free(d->indirect);
    d->indirect = memory->indirect;
    memory->indirect = NULL;
}

static enum dyt_status on_memory(struct dyti_session_manager *m,
                                 uint32_t member, struct dyti_hub_frame *f)
{
    struct dyti_fleet_event e = {.kind = DYTI_FLEET_FITTED, .member = member};
    struct dyti_msg_memory memory;
    enum dyt_status st =
        dyti_wire_memory_decode(f->buffer.bytes, f->buffer.size_bytes, &memory);

    if (st != DYT_OK) {
        return st;
    }
    e.status = (enum dyt_status)memory.status;
    e.text = memory.text;
    if (memory.status == DYT_OK && memory.part_count > 2) {
        e.status = DYT_ERR_FORMAT;
        e.text = "more than two address sets";
    }
    if (memory.link != DYTI_NO_LINK) {
        e.kind = DYTI_FLEET_READY;
        e.link = memory.link;
        if (e.status == DYT_OK) {
            st = keep_snapshot(m, member, &memory);
        }
    } else if (e.status == DYT_OK) {
        keep_parts(&m->member[member], &memory);
    }
    st = st != DYT_OK ? st : dyti_manager_take(m, &e);
    dyti_msg_memory_fini(&memory);
    return st;
}

/* Who is read says nothing of its sets: it may be a sibling that has two. */
static bool is_receiver_of(const struct dyti_session_manager *m, uint32_t link,
                           uint32_t member)
{
    const struct dyti_managed_link *l =
        link < m->link_count ? &m->link[link] : NULL;

    for (uint32_t i = 0; l != NULL && l->used && i < l->member_count; i++) {
        if (l->member[i] == member) {
            return i >= l->source_count;
        }
    }
    return false;
}

static enum dyt_status on_report(struct dyti_session_manager *m,
                                 uint32_t member, struct dyti_hub_frame *f)
{
    struct dyti_msg_report r;
    struct dyti_fleet_event e = {.member = member};
    enum dyt_status st =
        dyti_wire_report_decode(f->buffer.bytes, f->buffer.size_bytes, &r);

    if (st != DYT_OK) {
        return st;
    }
    e.kind = r.epoch == 0 ? DYTI_FLEET_READY : DYTI_FLEET_RAN;
    e.link = r.link;
    e.epoch = r.epoch;
    e.status = (enum dyt_status)r.status;
    e.text = r.text;
    e.committed = r.committed;
    e.broken = r.broken;
    e.moved_bytes = r.moved_bytes;
    if (r.status == DYT_OK) {
        dyti_manager_note_way(&m->member[member], &r);
    }
    if (r.committed && is_receiver_of(m, r.link, member)) {
        m->member[member].live_set = r.live_set & 1u;
    }
    st = dyti_manager_take(m, &e);
    dyti_msg_report_fini(&r);
    return st;
}

/* Members of a link that cannot see each other yet. */
static enum dyt_status on_meet(struct dyti_session_manager *m, uint32_t member,
                               struct dyti_hub_frame *f)
{
    const struct dyti_managed_link *l;
    struct dyti_msg_meet meet;
    enum dyt_status st =
        dyti_wire_meet_decode(f->buffer.bytes, f->buffer.size_bytes, &meet);

    if (st != DYT_OK) {
        return st;
    }
    l = meet.link < m->link_count ? &m->link[meet.link] : NULL;
    if (l != NULL && l->used && meet.rank < l->member_count &&
        l->member[meet.rank] == member) {
        for (uint32_t i = 0; i < l->member_count && st == DYT_OK; i++) {
            struct dyti_envelope e = dyti_manager_envelope(m, DYTI_MSG_MEET);
            struct dyti_buffer buffer;

            if (i != meet.rank) {
                st = dyti_manager_send(
                    m, l->member[i], dyti_wire_meet_encode(&e, &meet, &buffer),
                    &buffer);
            }
        }
    }
    dyti_msg_meet_fini(&meet);
    return st;
}

/* Which answer tells that a request was refused. */
static enum dyti_answer answer_of(uint32_t what)
{
    switch ((enum dyti_request)what) {
    case DYTI_REQUEST_PUBLISH:
        return DYTI_ANSWER_PUBLISHED;
    case DYTI_REQUEST_OFFER:
        return DYTI_ANSWER_OFFERED;
    case DYTI_REQUEST_RECEIVE:
        return DYTI_ANSWER_RECEIVED;
    case DYTI_REQUEST_RELEASE:
    case DYTI_REQUEST_RESTORE:
        return DYTI_ANSWER_RELEASED;
    default:
        return DYTI_ANSWER_COUNT;
    }
}

static enum dyt_status answer_refusal(struct dyti_session_manager *m,
                                      uint32_t member, uint32_t what,
                                      uint64_t version, enum dyt_status why)
{
    struct dyti_envelope e = dyti_manager_envelope(m, DYTI_MSG_ANSWER);
    struct dyti_msg_answer a = {
        .what = answer_of(what), .version = version, .status = why};
    struct dyti_buffer buffer;
    enum dyt_status st;

    if (a.what == DYTI_ANSWER_COUNT) {
        return DYT_OK;
    }
    a.text = strdup(dyti_error_message());
    st = a.text == NULL
             ? DYT_ERR_NOMEM
             : dyti_manager_send(m, member,
                                 dyti_wire_answer_encode(&e, &a, &buffer),
                                 &buffer);
    free(a.text);
    return st;
}

static enum dyt_status on_request(struct dyti_session_manager *m,
                                  uint32_t member, struct dyti_hub_frame *f)
{
    static const enum dyti_fleet_event_kind kind[DYTI_REQUEST_COUNT] = {
        [DYTI_REQUEST_PUBLISH] = DYTI_FLEET_PUBLISH,
        [DYTI_REQUEST_OFFER] = DYTI_FLEET_OFFER,
        [DYTI_REQUEST_TAKEN] = DYTI_FLEET_TAKEN,
        [DYTI_REQUEST_CANCEL] = DYTI_FLEET_CANCEL,
        [DYTI_REQUEST_RECEIVE] = DYTI_FLEET_RECEIVE,
        [DYTI_REQUEST_WITHDRAW] = DYTI_FLEET_WITHDRAW,
        [DYTI_REQUEST_RELEASE] = DYTI_FLEET_RELEASE,
        [DYTI_REQUEST_RESTORE] = DYTI_FLEET_RESTORE};
    struct dyti_fleet_event e = {.member = member};
    struct dyti_msg_request r;
    enum dyt_status st =
        dyti_wire_request_decode(f->buffer.bytes, f->buffer.size_bytes, &r);

    if (st != DYT_OK) {
        return st;
    }
    e.kind = kind[r.what];
    e.version = r.version;
    e.snapshot = r.snapshot;
    e.takes = r.takes;
    e.renewed = r.renewed;
    e.status = (enum dyt_status)r.status;
    e.text = r.text;
    st = dyti_manager_take(m, &e);
    if (st != DYT_OK && st != DYT_ERR_NOMEM) {
        st = answer_refusal(m, member, r.what, r.version, st);
    }
    dyti_msg_request_fini(&r);
    return st;
}

static enum dyt_status on_status(struct dyti_session_manager *m, uint32_t peer)
{
    struct dyti_envelope e = dyti_manager_envelope(m, DYTI_MSG_STATUS);
    struct dyti_msg_status status = {0};
    struct dyti_buffer buffer;
    enum dyt_status st =
        dyti_manager_status(m, DYTI_STATUS_MOST_BYTES, &status.json);

    st = st != DYT_OK ? st : dyti_wire_status_encode(&e, &status, &buffer);
    free(status.json);
    if (st != DYT_OK) {
        return refuse(m, peer, st);
    }
    st = dyti_hub_send(m->hub, peer, &buffer);
    return st == DYT_ERR_PEER ? DYT_OK : st;
}

static enum dyt_status dispatch(struct dyti_session_manager *m,
                                struct dyti_hub_frame *f)
{
    struct dyti_fleet_event alive = {.kind = DYTI_FLEET_ALIVE};
    uint32_t member = member_of(m, f->peer);

    if (member == DYTI_FLEET_NONE) {
        enum dyt_status st = f->envelope.type == DYTI_MSG_STATUS
                                 ? on_status(m, f->peer)
                             : f->envelope.type == DYTI_MSG_JOIN ? on_join(m, f)
                                                                 : DYT_OK;

        if (member_of(m, f->peer) == DYTI_FLEET_NONE) {
            dyti_hub_forget(m->hub, f->peer); /* or they would pile up */
        }
        return st;
    }
    switch ((enum dyti_message)f->envelope.type) {
    case DYTI_MSG_STATUS:
        return on_status(m, f->peer);
    case DYTI_MSG_ROWS:
        return on_rows(m, member, f);
    case DYTI_MSG_MEMORY:
        return on_memory(m, member, f);
    case DYTI_MSG_REPORT:
        return on_report(m, member, f);
    case DYTI_MSG_MEET:
        return on_meet(m, member, f);
    case DYTI_MSG_REQUEST:
        return on_request(m, member, f);
    case DYTI_MSG_HEARTBEAT:
        alive.member = member;
        return dyti_manager_take(m, &alive);
    case DYTI_MSG_BYE:
        return dyti_manager_gone(m, member, DYT_OK, NULL);
    default:
        return DYT_OK; /* harmless */
    }
}

enum dyt_status dyti_manager_frame(struct dyti_session_manager *m,
                                   struct dyti_hub_frame *f)
{
    enum dyt_status st = DYT_OK;

    if (f->protocol != DYTI_PROTOCOL) {
        st = refuse(m, f->peer,
                    DYTI_FAIL(DYT_ERR_ABI,
                              "it speaks protocol %u, the manager %u: use one "
                              "version of dynatrain everywhere",
                              f->protocol, DYTI_PROTOCOL));
    } else {
        st = dispatch(m, f);
    }
    dyti_hub_frame_fini(f);
    return st;
}
