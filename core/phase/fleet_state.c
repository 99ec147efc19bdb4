/* The states of a group as one written table, and names. */
#include "phase/fleet_internal.h"

#include <stdio.h>

static const char *const states[DYTI_GROUP_STATE_COUNT] = {
    [DYTI_GROUP_JOINING] = "joining",     [DYTI_GROUP_EMPTY] = "empty",
    [DYTI_GROUP_RECEIVING] = "receiving", [DYTI_GROUP_SERVING] = "serving",
    [DYTI_GROUP_INVALID] = "invalid",     [DYTI_GROUP_RELEASED] = "released",
    [DYTI_GROUP_DEAD] = "dead",
};

static const char *const actions[] = {
    [DYTI_ACT_CATALOGUE] = "catalogue",
    [DYTI_ACT_SHARE] = "share",
    [DYTI_ACT_CHECK] = "check",
    [DYTI_ACT_PUBLISHED] = "published",
    [DYTI_ACT_SNAP] = "snap",
    [DYTI_ACT_OPEN] = "open",
    [DYTI_ACT_RUN] = "run",
    [DYTI_ACT_CLOSE] = "close",
    [DYTI_ACT_ABORT] = "abort",
    [DYTI_ACT_OFFERED] = "offered",
    [DYTI_ACT_DONE] = "done",
    [DYTI_ACT_RECEIVED] = "received",
    [DYTI_ACT_RELEASED] = "released",
    [DYTI_ACT_DROP] = "drop",
};

/* The whole of it, but for LOSE (from everywhere to DEAD), JOIN (from
 * everywhere to JOINING) and KEEP (back to `before`). */
static const struct {
    enum dyti_group_state from;
    enum dyti_group_event event;
    enum dyti_group_state to;
} allowed[] = {
    {DYTI_GROUP_JOINING, DYTI_GE_COMPLETE, DYTI_GROUP_EMPTY},
    {DYTI_GROUP_EMPTY, DYTI_GE_BEGIN, DYTI_GROUP_RECEIVING},
    {DYTI_GROUP_SERVING, DYTI_GE_BEGIN, DYTI_GROUP_RECEIVING},
    {DYTI_GROUP_INVALID, DYTI_GE_BEGIN, DYTI_GROUP_RECEIVING},
    {DYTI_GROUP_RECEIVING, DYTI_GE_COMMIT, DYTI_GROUP_SERVING},
    {DYTI_GROUP_RECEIVING, DYTI_GE_BREAK, DYTI_GROUP_INVALID},
    {DYTI_GROUP_EMPTY, DYTI_GE_RELEASE, DYTI_GROUP_RELEASED},
    {DYTI_GROUP_SERVING, DYTI_GE_RELEASE, DYTI_GROUP_RELEASED},
    {DYTI_GROUP_INVALID, DYTI_GE_RELEASE, DYTI_GROUP_RELEASED},
    {DYTI_GROUP_RELEASED, DYTI_GE_RESTORE, DYTI_GROUP_EMPTY},
};

const char *dyti_group_state_name(enum dyti_group_state state)
{
    return (uint32_t)state < DYTI_GROUP_STATE_COUNT ? states[state] : "?";
}

const char *dyti_fleet_action_name(enum dyti_fleet_action_kind kind)
{
    return (size_t)kind < sizeof(actions) / sizeof(actions[0]) ? actions[kind]
                                                               : "?";
}

bool dyti_fleet_move(struct dyti_fleet_group *g, enum dyti_group_event event)
{
    if (event == DYTI_GE_LOSE) {
        g->state = DYTI_GROUP_DEAD;
        return true;
    }
    if (event == DYTI_GE_JOIN) {
        g->state = DYTI_GROUP_JOINING;
        return true;
    }
    if (event == DYTI_GE_KEEP) {
        if (g->state == DYTI_GROUP_RECEIVING) {
            g->state = g->before;
            return true;
        }
        return false;
    }
    for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
        if (allowed[i].from == g->state && allowed[i].event == event) {
            g->before = g->state;
            g->state = allowed[i].to;
            return true;
        }
    }
    return false;
}

void dyti_fleet_group_text(const struct dyti_fleet *fleet, uint32_t group,
                           char *out, size_t n)
{
    const struct dyti_fleet_group *g = &fleet->group[group];

    if (g->role == DYTI_FLEET_TRAINER) {
        snprintf(out, n, "the trainer");
    } else {
        snprintf(out, n, "replica %s/%u", g->pool, g->number);
    }
}

void dyti_fleet_member_text(const struct dyti_fleet *fleet, uint32_t member,
                            char *out, size_t n)
{
    const struct dyti_fleet_member *m = &fleet->member[member];
    char group[128];

    if (m->state == DYTI_MEMBER_FREE) {
        snprintf(out, n, "a member that is gone");
        return;
    }
    dyti_fleet_group_text(fleet, m->group, group, sizeof(group));
    snprintf(out, n, "rank %u of %s (pid %u on %s)", m->place.rank, group,
             m->place.pid, m->place.host_name);
}

void dyti_fleet_blame(struct dyti_fleet_group *g, enum dyt_status status,
                      const char *text)
{
    g->why_status = status;
    snprintf(g->why, sizeof(g->why), "%s", text != NULL ? text : "");
}
