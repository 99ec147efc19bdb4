/* What the fleet wants, as messages. */
#include "lib/manager_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    char text[DYTI_FLEET_ANSWER_BYTES];

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

void dyti_manager_memory_free(struct dyti_memory_view *memory, uint32_t count)
{
    for (uint32_t i = 0; memory != NULL && i < count; i++) {
        dyti_memory_view_fini(&memory[i]);
    }
    free(memory);
}

enum dyt_status dyti_manager_memory(struct dyti_session_manager *m,
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
        dyti_manager_memory_free(memory, count);
        return st;
    }
    *out = memory;
    return DYT_OK;
}

uint32_t dyti_manager_kinds(const struct dyti_memory_view *memory,
                            uint32_t count)
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
    enum dyt_status st =
        view == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "%u views", g->size)
                     : dyti_manager_memory(m, g->member, g->size, &memory);

    *out_shared = true;
    for (uint32_t r = 0; r < g->size && st == DYT_OK; r++) {
        view[r] = &memory[r].view;
        *out_shared = *out_shared && dyti_memory_view_is_shared(&memory[r]);
    }
    if (st == DYT_OK) {
        uint32_t kinds = dyti_manager_kinds(memory, g->size);

        st = dyti_replica_check(
            m->catalogue, kinds != 0 ? kinds : 1u << DYTI_PARAM,
            g->role == DYTI_FLEET_TRAINER ? "trainer" : "replica", view,
            g->size);
    }
    dyti_manager_memory_free(memory,
                             st == DYT_OK || memory != NULL ? g->size : 0);
    free(view);
    return st;
}

static enum dyt_status act_check(struct dyti_session_manager *m, uint32_t group)
{
    struct dyti_fleet_event e = {.kind = DYTI_FLEET_CHECKED, .group = group};
    char text[DYTI_FLEET_ANSWER_BYTES];

    e.status = check_group(m, &m->fleet.group[group], &e.shared);
    if (e.status != DYT_OK) {
        snprintf(text, sizeof(text), "%s", dyti_error_message());
        e.text = text;
    }
    return dyti_fleet_take(&m->fleet, &e, dyti_manager_now());
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
        return dyti_manager_snap(m, a->link);
    case DYTI_ACT_OPEN:
        return dyti_manager_open_link(m, a->link);
    case DYTI_ACT_RUN:
        return dyti_manager_order(m, a, DYTI_ORDER_RUN);
    case DYTI_ACT_CLOSE:
        return dyti_manager_order(m, a, DYTI_ORDER_CLOSE);
    case DYTI_ACT_ABORT:
        return dyti_manager_abort(m, a);
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

/* Actions may make events, and those actions: until there are none. */
enum dyt_status dyti_manager_act(struct dyti_session_manager *m)
{
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < m->fleet.action_count && st == DYT_OK; i++) {
        struct dyti_fleet_action a = m->fleet.action[i]; /* the list may move */

        st = act(m, &a);
        if (st != DYT_OK &&
            (a.kind == DYTI_ACT_SNAP || a.kind == DYTI_ACT_OPEN)) {
            st = dyti_manager_fail_link(m, a.link, st);
        }
        st = st == DYT_ERR_NOMEM ? st : DYT_OK;
    }
    m->fleet.action_count = 0;
    return st;
}
