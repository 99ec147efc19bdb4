/* Links, as the fleet wants them: what their members are told. */
#include "lib/manager_internal.h"

#include "base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum dyt_status managed_link(struct dyti_session_manager *m,
                                    uint32_t link,
                                    struct dyti_managed_link **out)
{
    const struct dyti_fleet_link *k = &m->fleet.link[link];
    size_t old = m->link_count;
    struct dyti_managed_link *l;
    enum dyt_status st = DYTI_GROW(m->link, m->link_cap, (size_t)link + 1);

    if (st != DYT_OK) {
        return st;
    }
    m->link_count = link >= old ? (size_t)link + 1 : old;
    for (size_t i = old; i < m->link_count; i++) {
        m->link[i] = (struct dyti_managed_link){.control_fd = -1};
    }
    l = &m->link[link];
    if (!l->used) {
        l->member = calloc(k->member_count, sizeof(*l->member));
        l->snapshot = calloc(k->source_count, sizeof(*l->snapshot));
        if (l->member == NULL || l->snapshot == NULL) {
            dyti_managed_link_fini(l);
            return DYTI_FAIL(DYT_ERR_NOMEM, "a link");
        }
        memcpy(l->member, k->member, k->member_count * sizeof(*l->member));
        l->member_count = k->member_count;
        l->source_count = k->source_count;
        l->used = true;
    }
    *out = l;
    return DYT_OK;
}

enum dyt_status dyti_manager_snap(struct dyti_session_manager *m, uint32_t link)
{
    struct dyti_msg_readers readers = {.link = link};
    struct dyti_memory_view *memory = NULL;
    struct dyti_managed_link *l;
    uint32_t receivers;
    enum dyt_status st = managed_link(m, link, &l);

    if (st != DYT_OK) {
        return st;
    }
    receivers = l->member_count - l->source_count;
    readers.dtype_count = DYTI_KIND_COUNT * m->catalogue->tensor_count;
    readers.dtype = calloc(readers.dtype_count + 1u, 1);
    st = readers.dtype == NULL
             ? DYTI_FAIL(DYT_ERR_NOMEM, "dtypes of a snapshot")
             : dyti_manager_memory(m, l->member + l->source_count, receivers,
                                   &memory);
    if (st == DYT_OK) {
        st = dyti_snapshot_dtypes(m->catalogue, memory, receivers,
                                  dyti_manager_kinds(memory, receivers),
                                  readers.dtype);
        dyti_manager_memory_free(memory, receivers);
    }
    for (uint32_t i = 0; i < l->source_count && st == DYT_OK; i++) {
        struct dyti_envelope e = dyti_manager_envelope(m, DYTI_MSG_READERS);
        struct dyti_buffer buffer;

        st = dyti_manager_send(m, l->member[i],
                               dyti_wire_readers_encode(&e, &readers, &buffer),
                               &buffer);
    }
    free(readers.dtype);
    return st;
}

static enum dyt_status make_control(struct dyti_managed_link *l)
{
    if (l->control_fd >= 0) {
        close(l->control_fd);
        l->control_fd = -1;
    }
    return dyti_link_control_make(l->member_count, &l->control_fd);
}

static const struct dyti_msg_part *part_of(const struct dyti_session_manager *m,
                                           const struct dyti_managed_link *l,
                                           uint32_t at)
{
    const struct dyti_managed *d = &m->member[l->member[at]];

    if (at < l->source_count && l->snapshot[at].shard != NULL) {
        return &l->snapshot[at];
    }
    /* a sibling is read in the set that it serves */
    return at < l->source_count && d->part_count > 1 ? &d->part[d->live_set]
                                                     : &d->part[0];
}

/* Parts of all members, borrowed; second sets behind them for DOUBLE. */
static enum dyt_status fill_parts(const struct dyti_session_manager *m,
                                  const struct dyti_managed_link *l,
                                  struct dyti_msg_link *msg)
{
    uint32_t sets = msg->commit == DYT_COMMIT_DOUBLE ? 2 : 1;

    msg->set_count = sets;
    msg->part_count = sets * l->member_count;
    msg->part = calloc(msg->part_count + 1u, sizeof(*msg->part));
    if (msg->part == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u memory views", msg->part_count);
    }
    for (uint32_t i = 0; i < l->member_count; i++) {
        const struct dyti_managed *d = &m->member[l->member[i]];

        msg->part[i] = *part_of(m, l, i);
        if (sets == 2 && i >= l->source_count && d->part_count > 1) {
            msg->part[l->member_count + i] = d->part[1];
        }
    }
    return DYT_OK;
}

static uint32_t link_kinds(const struct dyti_session_manager *m,
                           const struct dyti_managed_link *l)
{
    uint32_t kinds = 0;

    for (uint32_t i = l->source_count; i < l->member_count; i++) {
        const struct dyti_msg_part *p = &m->member[l->member[i]].part[0];

        for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
            kinds |= p->region_bytes[k] > 0 ? 1u << k : 0;
        }
    }
    return kinds;
}

/* Who is on one host, and whose segment the manager makes. */
static enum dyt_status fill_islands(const struct dyti_session_manager *m,
                                    const struct dyti_managed_link *l,
                                    struct dyti_msg_link *msg)
{
    msg->manager_island = UINT32_MAX;
    msg->island_count = l->member_count;
    msg->island = calloc(l->member_count + 1u, sizeof(*msg->island));
    if (msg->island == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a link of %u members",
                         l->member_count);
    }
    for (uint32_t i = 0; i < l->member_count; i++) {
        uint64_t host = m->fleet.member[l->member[i]].place.host;
        uint32_t first = 0;

        while (m->fleet.member[l->member[first]].place.host != host) {
            first++;
        }
        msg->island[i] = first;
        msg->manager_island = host == m->host ? first : msg->manager_island;
    }
    return DYT_OK;
}

enum dyt_status dyti_manager_open_link(struct dyti_session_manager *m,
                                       uint32_t link)
{
    struct dyti_msg_link msg = {.link = link};
    struct dyti_managed_link *l;
    enum dyt_status st = managed_link(m, link, &l);

    st = st != DYT_OK ? st : fill_islands(m, l, &msg);
    if (st == DYT_OK && msg.manager_island != UINT32_MAX) {
        st = make_control(l);
    }
    if (st != DYT_OK) {
        free(msg.island);
        return st;
    }
    {
        uint32_t first = l->member[l->source_count];
        const struct dyti_fleet_member *r = &m->fleet.member[first];

        msg.commit = r->place.commit;
        msg.verify = m->member[first].verify;
        msg.timeout_ns = r->place.timeout_ns;
        msg.live_set = m->member[first].live_set;
    }
    msg.source_count = l->source_count;
    msg.member_count = l->member_count;
    msg.kinds = link_kinds(m, l);
    msg.pid = m->pid;
    msg.control_fd = l->control_fd;
    msg.apart = m->fleet.link[link].apart;
    st = fill_parts(m, l, &msg);
    st = st != DYT_OK ? st : dyti_manager_fill_direct(m, l, &msg);
    for (uint32_t i = 0; i < l->member_count && st == DYT_OK; i++) {
        struct dyti_envelope e = dyti_manager_envelope(m, DYTI_MSG_LINK);
        struct dyti_buffer buffer;

        msg.rank = i;
        st = dyti_manager_send(
            m, l->member[i], dyti_wire_link_encode(&e, &msg, &buffer), &buffer);
    }
    free(msg.part); /* what is in it is borrowed */
    dyti_manager_free_direct(&msg);
    free(msg.island);
    return st;
}

enum dyt_status dyti_manager_order(struct dyti_session_manager *m,
                                   const struct dyti_fleet_action *a,
                                   uint32_t what)
{
    struct dyti_managed_link *l =
        a->link < m->link_count ? &m->link[a->link] : NULL;
    struct dyti_msg_order msg = {.what = what,
                                 .link = a->link,
                                 .epoch = a->epoch,
                                 .version = a->version};
    enum dyt_status st = DYT_OK;

    if (l == NULL || !l->used) {
        return DYT_OK;
    }
    msg.from_sibling =
        what == DYTI_ORDER_RUN && m->fleet.link[a->link].source != 0;
    for (uint32_t i = 0; i < l->member_count && st == DYT_OK; i++) {
        struct dyti_envelope e = dyti_manager_envelope(m, DYTI_MSG_ORDER);
        struct dyti_buffer buffer;

        st = dyti_manager_send(m, l->member[i],
                               dyti_wire_order_encode(&e, &msg, &buffer),
                               &buffer);
    }
    if (what == DYTI_ORDER_CLOSE) {
        dyti_managed_link_fini(l);
    }
    return st;
}

enum dyt_status dyti_manager_abort(struct dyti_session_manager *m,
                                   const struct dyti_fleet_action *a)
{
    const struct dyti_managed_link *l =
        a->link < m->link_count ? &m->link[a->link] : NULL;

    enum dyt_status st = DYT_OK;

    if (l == NULL || !l->used) {
        return DYT_OK;
    }
    if (l->control_fd >= 0) {
        (void)dyti_link_abort(l->control_fd, l->member_count, a->rank,
                              a->status);
    }
    for (uint32_t i = 0; i < l->member_count && st == DYT_OK; i++) {
        struct dyti_msg_order msg = {.what = DYTI_ORDER_ABORT,
                                     .link = a->link,
                                     .epoch = a->epoch,
                                     .rank = a->rank,
                                     .status = a->status};
        struct dyti_envelope e = dyti_manager_envelope(m, DYTI_MSG_ORDER);
        struct dyti_buffer buffer;

        if (!m->member[l->member[i]].on_host) { /* it maps another segment */
            st = dyti_manager_send(m, l->member[i],
                                   dyti_wire_order_encode(&e, &msg, &buffer),
                                   &buffer);
        }
    }
    return st;
}

enum dyt_status dyti_manager_fail_link(struct dyti_session_manager *m,
                                       uint32_t link, enum dyt_status why)
{
    struct dyti_fleet_event e = {
        .kind = DYTI_FLEET_READY, .link = link, .status = why};
    char text[DYTI_FLEET_TEXT_BYTES];
    enum dyt_status st = DYT_OK;

    snprintf(text, sizeof(text), "the job's manager: %s", dyti_error_message());
    e.text = text;
    for (uint32_t i = 0; st == DYT_OK && link < m->fleet.link_count &&
                         i < m->fleet.link[link].member_count;
         i++) {
        e.member = m->fleet.link[link].member[i];
        if (e.member != DYTI_FLEET_NONE && !m->fleet.link[link].answered[i]) {
            st = dyti_fleet_take(&m->fleet, &e, dyti_manager_now());
        }
    }
    return st;
}
