/* Who is there, who goes, and which event goes where.  Joins: fleet_join.c. */
#include "phase/fleet.h"

#include "base/array.h"
#include "phase/fleet_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum dyt_status dyti_fleet_init(struct dyti_fleet *fleet)
{
    enum dyt_status st;

    memset(fleet, 0, sizeof(*fleet));
    st = DYTI_GROW(fleet->group, fleet->group_cap, 1);
    if (st != DYT_OK) {
        return st;
    }
    fleet->group_count = 1;
    fleet->group[0] =
        (struct dyti_fleet_group){.role = DYTI_FLEET_TRAINER, .busy = NONE};
    return DYT_OK;
}

void dyti_fleet_fini(struct dyti_fleet *fleet)
{
    for (size_t i = 0; i < fleet->group_count; i++) {
        free(fleet->group[i].member);
    }
    for (size_t i = 0; i < fleet->link_count; i++) {
        free(fleet->link[i].member);
        free(fleet->link[i].answered);
    }
    free(fleet->member);
    free(fleet->group);
    free(fleet->link);
    free(fleet->action);
    memset(fleet, 0, sizeof(*fleet));
}

struct dyti_fleet_action *dyti_fleet_act(struct dyti_fleet *fleet,
                                         enum dyti_fleet_action_kind kind)
{
    struct dyti_fleet_action *a;

    if (DYTI_GROW(fleet->action, fleet->action_cap, fleet->action_count + 1) !=
        DYT_OK) {
        fleet->out_of_memory = true;
        return NULL;
    }
    a = &fleet->action[fleet->action_count++];
    *a = (struct dyti_fleet_action){.kind = kind,
                                    .member = NONE,
                                    .group = NONE,
                                    .link = NONE,
                                    .status = DYT_OK};
    return a;
}

void dyti_fleet_answer(struct dyti_fleet *fleet,
                       enum dyti_fleet_action_kind kind, uint32_t member,
                       uint64_t version, enum dyt_status status,
                       const char *text)
{
    struct dyti_fleet_action *a = dyti_fleet_act(fleet, kind);

    if (a != NULL) {
        a->member = member;
        a->version = version;
        a->status = status;
        snprintf(a->text, sizeof(a->text), "%s",
                 text != NULL && status != DYT_OK ? text : "");
    }
}

/* ---- the end of a member ------------------------------------------------- */

static void answer_others(struct dyti_fleet *fleet, uint32_t group,
                          enum dyt_status status, const char *text)
{
    dyti_fleet_refuse_group(fleet, group, status, text);
    if (group == 0) {
        dyti_fleet_offer_lost(fleet, status, text);
    } else {
        dyti_fleet_received(fleet, group, status, text);
    }
}

static void take_gone(struct dyti_fleet *fleet,
                      const struct dyti_fleet_event *e)
{
    struct dyti_fleet_member *m = &fleet->member[e->member];
    struct dyti_fleet_group *g = &fleet->group[m->group];
    uint32_t group = m->group;
    bool died = e->status != DYT_OK;
    char who[256], text[DYTI_FLEET_TEXT_BYTES];

    dyti_fleet_member_text(fleet, e->member, who, sizeof(who));
    snprintf(text, sizeof(text), "%s %s", who,
             died ? (e->text != NULL ? e->text : "died") : "left the job");
    /* nobody answers the dead */
    m->publishing = m->offering = m->taking = m->receiving = false;
    m->releasing = m->restoring = m->pinned = false;
    dyti_fleet_links_lose(fleet, e->member, died ? e->status : DYT_ERR_PEER,
                          text);
    g->member[m->place.rank] = NONE;
    *m = (struct dyti_fleet_member){.group = NONE};
    g->checking = false;
    g->current = false;
    g->version = 0;
    dyti_fleet_close_links(fleet, group);
    if (group != 0 && g->busy != NONE &&
        fleet->link[g->busy].receiver == group) {
        fleet->link[g->busy].told = true;
    }
    answer_others(fleet, group, DYT_ERR_PEER, text);
    if (group != 0) {
        snprintf(fleet->offer.last_lost, sizeof(fleet->offer.last_lost),
                 "%.255s", text);
    }
    /* The others must be told that it fits once more; they do not ask. */
    for (uint32_t r = 0; r < g->size; r++) {
        if (g->member[r] != NONE &&
            fleet->member[g->member[r]].state == DYTI_MEMBER_READY) {
            fleet->member[g->member[r]].state = DYTI_MEMBER_FITTED;
        }
    }
    dyti_fleet_move(g, died ? DYTI_GE_LOSE : DYTI_GE_JOIN);
    if (died) {
        dyti_fleet_blame(g, DYT_ERR_PEER, text);
    }
    if (group == 0 && dyti_fleet_is_deserted(g)) {
        fleet->building = false;
        dyti_fleet_forget_catalogue(fleet);
    }
    if (!died && group != 0 && dyti_fleet_is_deserted(g) &&
        dyti_group_is_idle(g)) {
        g->used = false;
    }
}

/* A member that is silent while nothing keeps it busy, or that answers no
 * order in time. */
static void hang(struct dyti_fleet *fleet, uint32_t member, const char *how)
{
    struct dyti_fleet_event e = {.kind = DYTI_FLEET_GONE,
                                 .member = member,
                                 .status = DYT_ERR_PEER,
                                 .text = how};

    dyti_fleet_answer(fleet, DYTI_ACT_DROP, member, 0, DYT_ERR_TIMEOUT, how);
    take_gone(fleet, &e);
}

static int64_t silence_deadline(const struct dyti_fleet *fleet,
                                const struct dyti_fleet_member *m)
{
    if (m->state == DYTI_MEMBER_FREE ||
        !dyti_group_is_idle(&fleet->group[m->group])) {
        return INT64_MAX;
    }
    return m->heard_ns + m->place.timeout_ns;
}

static void take_tick(struct dyti_fleet *fleet, int64_t now_ns)
{
    for (uint32_t l = 0; l < fleet->link_count; l++) {
        for (uint32_t i = 0; i < fleet->link[l].member_count; i++) {
            struct dyti_fleet_link *k = &fleet->link[l];

            if (k->awaited > 0 && now_ns >= k->deadline_ns && !k->answered[i]) {
                hang(fleet, k->member[i], "did not answer in time: it hangs");
            }
        }
    }
    for (uint32_t i = 0; i < fleet->member_count; i++) {
        if (now_ns >= silence_deadline(fleet, &fleet->member[i])) {
            hang(fleet, i, "was silent until its deadline: it hangs");
        }
    }
}

int64_t dyti_fleet_next_ns(const struct dyti_fleet *fleet)
{
    int64_t next =
        fleet->offer.left_alone ? fleet->offer.alone_until_ns : INT64_MAX;

    for (uint32_t l = 0; l < fleet->link_count; l++) {
        const struct dyti_fleet_link *k = &fleet->link[l];

        if (k->awaited > 0 && k->deadline_ns < next) {
            next = k->deadline_ns;
        }
    }
    for (uint32_t i = 0; i < fleet->member_count; i++) {
        int64_t at = silence_deadline(fleet, &fleet->member[i]);

        next = at < next ? at : next;
    }
    return next;
}

/* ---- events -------------------------------------------------------------- */

static bool needs_member(enum dyti_fleet_event_kind kind)
{
    return kind != DYTI_FLEET_BUILT && kind != DYTI_FLEET_CHECKED &&
           kind != DYTI_FLEET_TICK;
}

static enum dyt_status dispatch(struct dyti_fleet *fleet,
                                const struct dyti_fleet_event *e,
                                int64_t now_ns)
{
    struct dyti_fleet_member *m =
        needs_member(e->kind) ? &fleet->member[e->member] : NULL;

    switch (e->kind) {
    case DYTI_FLEET_LISTED:
        if (m->group == 0 && m->state == DYTI_MEMBER_JOINED) {
            m->state = DYTI_MEMBER_LISTED;
        }
        return DYT_OK;
    case DYTI_FLEET_BUILT:
        dyti_fleet_take_built(fleet, e);
        return DYT_OK;
    case DYTI_FLEET_PUBLISH:
        return dyti_fleet_take_publish(fleet, e);
    case DYTI_FLEET_FITTED:
        dyti_fleet_take_fitted(fleet, e);
        return DYT_OK;
    case DYTI_FLEET_CHECKED:
        dyti_fleet_take_checked(fleet, e);
        return DYT_OK;
    case DYTI_FLEET_OFFER:
        return dyti_fleet_take_offer(fleet, e);
    case DYTI_FLEET_TAKEN:
        dyti_fleet_take_taken(fleet, e);
        return DYT_OK;
    case DYTI_FLEET_CANCEL:
        dyti_fleet_take_cancel(fleet, e);
        return DYT_OK;
    case DYTI_FLEET_RECEIVE:
        return dyti_fleet_take_receive(fleet, e);
    case DYTI_FLEET_WITHDRAW:
        dyti_fleet_take_withdraw(fleet, e);
        return DYT_OK;
    case DYTI_FLEET_READY:
        dyti_fleet_take_ready(fleet, e, now_ns);
        return DYT_OK;
    case DYTI_FLEET_RAN:
        dyti_fleet_take_ran(fleet, e);
        return DYT_OK;
    case DYTI_FLEET_RELEASE:
    case DYTI_FLEET_RESTORE:
        return dyti_fleet_take_release(fleet, e);
    case DYTI_FLEET_GONE:
        take_gone(fleet, e);
        return DYT_OK;
    case DYTI_FLEET_TICK:
        take_tick(fleet, now_ns);
        return DYT_OK;
    default:
        return DYT_OK;
    }
}

enum dyt_status dyti_fleet_take(struct dyti_fleet *fleet,
                                const struct dyti_fleet_event *e,
                                int64_t now_ns)
{
    enum dyt_status st;

    if (needs_member(e->kind)) {
        if (e->member >= fleet->member_count ||
            fleet->member[e->member].state == DYTI_MEMBER_FREE) {
            return DYT_OK; /* late: it is gone */
        }
        fleet->member[e->member].heard_ns = now_ns;
    }
    st = dispatch(fleet, e, now_ns);
    if (st != DYT_OK) {
        return st;
    }
    dyti_fleet_pump_publish(fleet);
    dyti_fleet_pump_offer(fleet, now_ns);
    dyti_fleet_pump_links(fleet, now_ns);
    dyti_fleet_pump_offer(fleet, now_ns);
    dyti_fleet_pump_release(fleet);
    return fleet->out_of_memory ? DYTI_FAIL(DYT_ERR_NOMEM, "the job's manager")
                                : DYT_OK;
}
