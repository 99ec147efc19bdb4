/* What the fleet wants, as messages. */
#include "lib/manager_internal.h"

#include "base/array.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- the catalogue ------------------------------------------------------- */

static enum dyt_status build_catalogue(struct dyti_session_manager *m)
{
    const struct dyti_fleet_group *g = &m->fleet.group[0];
    struct dyt_view *view = calloc(g->size + 1u, sizeof(*view));
    struct dyti_model *catalogue = NULL;
    enum dyt_status st =
        view == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "%u views", g->size) : DYT_OK;

    for (uint32_t r = 0; r < g->size && st == DYT_OK; r++) {
        const struct dyti_msg_rows *rows = &m->member[g->member[r]].rows;

        view[r] = (struct dyt_view){.struct_size = sizeof(view[r]),
                                    .row_struct_size = sizeof(*rows->row),
                                    .row = rows->row,
                                    .row_count = rows->row_count};
    }
    st = st != DYT_OK ? st : dyti_catalogue_build(view, g->size, &catalogue);
    free(view);
    if (st == DYT_OK) {
        dyti_model_destroy(m->catalogue);
        m->catalogue = catalogue;
    }
    return st;
}

static enum dyt_status act_catalogue(struct dyti_session_manager *m)
{
    struct dyti_fleet_event e = {.kind = DYTI_FLEET_BUILT};
    char text[DYTI_FLEET_TEXT_BYTES * 4];

    e.status = build_catalogue(m);
    if (e.status != DYT_OK) {
        snprintf(text, sizeof(text), "%s", dyti_error_message());
        e.text = text;
    }
    return dyti_fleet_take(&m->fleet, &e, dyti_manager_now());
}

static enum dyt_status share(struct dyti_session_manager *m, uint32_t member)
{
    struct dyti_envelope e = dyti_manager_envelope(m, DYTI_MSG_CATALOGUE);
    struct dyti_msg_catalogue catalogue;
    struct dyti_buffer buffer;
    enum dyt_status st = dyti_catalogue_to_message(m->catalogue, &catalogue);

    if (st != DYT_OK) {
        return st;
    }
    st = dyti_manager_send(m, member,
                           dyti_wire_catalogue_encode(&e, &catalogue, &buffer),
                           &buffer);
    dyti_msg_catalogue_fini(&catalogue);
    return st;
}

/* Who cannot be sent it does not wait for it: its publish has failed. */
static enum dyt_status act_share(struct dyti_session_manager *m,
                                 uint32_t member)
{
    struct dyti_fleet_event e = {.kind = DYTI_FLEET_FITTED, .member = member};
    char text[DYTI_FLEET_TEXT_BYTES];

    e.status = share(m, member);
    if (e.status == DYT_OK || e.status == DYT_ERR_NOMEM) {
        return e.status;
    }
    snprintf(text, sizeof(text), "the trainer's tensors cannot be told: %s",
             dyti_error_message());
    e.text = text;
    return dyti_fleet_take(&m->fleet, &e, dyti_manager_now());
}

/* ---- does a group fit? --------------------------------------------------- */

/* Memory of a group's members, set 0, in order of rank; free with
 * memory_free(). */
static void memory_free(struct dyti_memory_view *memory, uint32_t count)
{
    for (uint32_t i = 0; memory != NULL && i < count; i++) {
        dyti_memory_view_fini(&memory[i]);
    }
    free(memory);
}

static enum dyt_status group_memory(struct dyti_session_manager *m,
                                    const uint32_t *member, uint32_t count,
                                    struct dyti_memory_view **out)
{
    struct dyti_memory_view *memory = calloc(count + 1u, sizeof(*memory));
    enum dyt_status st =
        memory == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "%u members", count) : DYT_OK;

    for (uint32_t i = 0; i < count && st == DYT_OK; i++) {
        st = dyti_part_to_memory(m->catalogue, &m->member[member[i]].part[0],
                                 &memory[i]);
    }
    if (st != DYT_OK) {
        memory_free(memory, count);
        return st;
    }
    *out = memory;
    return DYT_OK;
}

static uint32_t kinds_of(const struct dyti_memory_view *memory, uint32_t count)
{
    uint32_t kinds = 0;

    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
            kinds |= memory[i].view.region_bytes[k] > 0 ? 1u << k : 0;
        }
    }
    return kinds;
}

static enum dyt_status check_group(struct dyti_session_manager *m,
                                   const struct dyti_fleet_group *g,
                                   bool *out_shared)
{
    struct dyti_memory_view *memory = NULL;
    const struct dyti_view **view = calloc(g->size + 1u, sizeof(*view));
    enum dyt_status st = view == NULL
                             ? DYTI_FAIL(DYT_ERR_NOMEM, "%u views", g->size)
                             : group_memory(m, g->member, g->size, &memory);

    *out_shared = true;
    for (uint32_t r = 0; r < g->size && st == DYT_OK; r++) {
        view[r] = &memory[r].view;
        *out_shared = *out_shared && dyti_memory_view_is_shared(&memory[r]);
    }
    if (st == DYT_OK) {
        uint32_t kinds = kinds_of(memory, g->size);

        st = dyti_replica_check(
            m->catalogue, kinds != 0 ? kinds : 1u << DYTI_PARAM, view, g->size);
    }
    memory_free(memory, st == DYT_OK || memory != NULL ? g->size : 0);
    free(view);
    return st;
}

static enum dyt_status act_check(struct dyti_session_manager *m, uint32_t group)
{
    struct dyti_fleet_event e = {.kind = DYTI_FLEET_CHECKED, .group = group};
    char text[DYTI_FLEET_TEXT_BYTES * 4];

    e.status = check_group(m, &m->fleet.group[group], &e.shared);
    if (e.status != DYT_OK) {
        snprintf(text, sizeof(text), "%s", dyti_error_message());
        e.text = text;
    }
    return dyti_fleet_take(&m->fleet, &e, dyti_manager_now());
}

/* ---- links --------------------------------------------------------------- */

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

/* The sources make memory that these receivers can map. */
static enum dyt_status act_snap(struct dyti_session_manager *m, uint32_t link)
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
             : group_memory(m, l->member + l->source_count, receivers, &memory);
    if (st == DYT_OK) {
        st = dyti_snapshot_dtypes(m->catalogue, memory, receivers,
                                  kinds_of(memory, receivers), readers.dtype);
        memory_free(memory, receivers);
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
    uint64_t bytes = dyti_link_control_bytes(l->member_count);

    if (l->control_fd >= 0) {
        close(l->control_fd);
    }
    l->control_fd = memfd_create("dynatrain-link", MFD_CLOEXEC);
    if (l->control_fd < 0 || ftruncate(l->control_fd, (off_t)bytes) != 0) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "the control segment of a link: %s",
                         strerror(errno));
    }
    return DYT_OK;
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

static enum dyt_status act_open(struct dyti_session_manager *m, uint32_t link)
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
    for (uint32_t i = 0; i < l->member_count && st == DYT_OK; i++) {
        struct dyti_envelope e = dyti_manager_envelope(m, DYTI_MSG_LINK);
        struct dyti_buffer buffer;

        msg.rank = i;
        st = dyti_manager_send(
            m, l->member[i], dyti_wire_link_encode(&e, &msg, &buffer), &buffer);
    }
    free(msg.part); /* what is in it is borrowed */
    free(msg.island);
    return st;
}

static enum dyt_status order(struct dyti_session_manager *m,
                             const struct dyti_fleet_action *a, uint32_t what)
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

static enum dyt_status act_abort(struct dyti_session_manager *m,
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

/* ---- answers ------------------------------------------------------------- */

static enum dyt_status answer(struct dyti_session_manager *m,
                              const struct dyti_fleet_action *a,
                              enum dyti_answer what)
{
    struct dyti_envelope e = dyti_manager_envelope(m, DYTI_MSG_ANSWER);
    struct dyti_msg_answer msg = {
        .what = what, .version = a->version, .status = a->status};
    struct dyti_buffer buffer;
    enum dyt_status st;

    if (a->member >= m->member_count || !m->member[a->member].used) {
        return DYT_OK; /* it died meanwhile */
    }
    if (a->status != DYT_OK && a->status != DYT_PENDING) {
        char who[256];

        dyti_fleet_member_text(&m->fleet, a->member, who, sizeof(who));
        dyti_manager_say(m, "%s: %s", who, a->text);
    } else if (what == DYTI_ANSWER_RECEIVED || what == DYTI_ANSWER_OFFERED) {
        char who[256];

        dyti_fleet_member_text(&m->fleet, a->member, who, sizeof(who));
        dyti_manager_say(m, "%s %s version %llu", who,
                         what == DYTI_ANSWER_OFFERED ? "offers" : "holds",
                         (unsigned long long)a->version);
    }
    msg.text = strdup(a->text);
    st = msg.text == NULL
             ? DYTI_FAIL(DYT_ERR_NOMEM, "an answer")
             : dyti_manager_send(m, a->member,
                                 dyti_wire_answer_encode(&e, &msg, &buffer),
                                 &buffer);
    free(msg.text);
    return st;
}

/* It hung: told if it still hears, and forgotten. */
static enum dyt_status act_drop(struct dyti_session_manager *m, uint32_t member)
{
    struct dyti_envelope e = dyti_manager_envelope(m, DYTI_MSG_BYE);
    struct dyti_managed *d = &m->member[member];
    struct dyti_buffer buffer;
    enum dyt_status st =
        dyti_manager_send(m, member, dyti_wire_empty(&e, &buffer), &buffer);

    if (member < m->member_count && d->used) {
        dyti_hub_forget(m->hub, d->peer);
        dyti_managed_fini(d);
    }
    return st;
}

static enum dyt_status act(struct dyti_session_manager *m,
                           const struct dyti_fleet_action *a)
{
    switch (a->kind) {
    case DYTI_ACT_CATALOGUE:
        return act_catalogue(m);
    case DYTI_ACT_SHARE:
        return act_share(m, a->member);
    case DYTI_ACT_CHECK:
        return act_check(m, a->group);
    case DYTI_ACT_PUBLISHED:
        return answer(m, a, DYTI_ANSWER_PUBLISHED);
    case DYTI_ACT_SNAP:
        return act_snap(m, a->link);
    case DYTI_ACT_OPEN:
        return act_open(m, a->link);
    case DYTI_ACT_RUN:
        return order(m, a, DYTI_ORDER_RUN);
    case DYTI_ACT_CLOSE:
        return order(m, a, DYTI_ORDER_CLOSE);
    case DYTI_ACT_ABORT:
        return act_abort(m, a);
    case DYTI_ACT_OFFERED:
        return answer(m, a, DYTI_ANSWER_OFFERED);
    case DYTI_ACT_DONE:
        return answer(m, a, DYTI_ANSWER_DONE);
    case DYTI_ACT_RECEIVED:
        return answer(m, a, DYTI_ANSWER_RECEIVED);
    case DYTI_ACT_RELEASED:
        return answer(m, a, DYTI_ANSWER_RELEASED);
    default:
        return act_drop(m, a->member);
    }
}

/* A link that the manager cannot bring about: all who would answer for it have
 * failed, and so whoever waits hears why at once. */
static enum dyt_status fail_link(struct dyti_session_manager *m, uint32_t link,
                                 enum dyt_status why)
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

/* Actions may make events, and those actions: until there are none. */
enum dyt_status dyti_manager_act(struct dyti_session_manager *m)
{
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < m->fleet.action_count && st == DYT_OK; i++) {
        struct dyti_fleet_action a = m->fleet.action[i]; /* the list may move */

        st = act(m, &a);
        if (st != DYT_OK &&
            (a.kind == DYTI_ACT_SNAP || a.kind == DYTI_ACT_OPEN)) {
            st = fail_link(m, a.link, st);
        }
        st = st == DYT_ERR_NOMEM ? st : DYT_OK;
    }
    m->fleet.action_count = 0;
    return st;
}
