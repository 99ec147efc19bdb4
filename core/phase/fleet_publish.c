/* The way to a published group, and what is released of it. */
#include "phase/fleet_internal.h"

#include <stdio.h>

/* ---- publish ------------------------------------------------------------- */

static bool all_at_least(const struct dyti_fleet *fleet,
                         const struct dyti_fleet_group *g,
                         enum dyti_member_state state)
{
    for (uint32_t r = 0; r < g->size; r++) {
        if (g->member[r] == NONE || fleet->member[g->member[r]].state < state) {
            return false;
        }
    }
    return g->used;
}

/* Rows come before the wish to publish them, and who has not wished it yet
 * would not hear what is wrong with them. */
static bool all_publish(const struct dyti_fleet *fleet,
                        const struct dyti_fleet_group *g)
{
    for (uint32_t r = 0; r < g->size; r++) {
        if (g->member[r] == NONE || !fleet->member[g->member[r]].publishing) {
            return false;
        }
    }
    return g->used;
}

static bool anybody_fits(const struct dyti_fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->member_count; i++) {
        if (fleet->member[i].state != DYTI_MEMBER_FREE &&
            (fleet->member[i].publishing ||
             fleet->member[i].state >= DYTI_MEMBER_FITTED)) {
            return true;
        }
    }
    return false;
}

/* Unless somebody has fitted in: the next rows may be another model's, or the
 * right ones after a mistake. */
void dyti_fleet_forget_catalogue(struct dyti_fleet *fleet)
{
    fleet->catalogue = fleet->catalogue && anybody_fits(fleet);
}

/* Nobody of the group is published: they may try again. */
void dyti_fleet_refuse_group(struct dyti_fleet *fleet, uint32_t group,
                             enum dyt_status status, const char *text)
{
    struct dyti_fleet_group *g = &fleet->group[group];

    dyti_fleet_blame(g, status, text);
    for (uint32_t r = 0; r < g->size; r++) {
        struct dyti_fleet_member *m =
            g->member[r] != NONE ? &fleet->member[g->member[r]] : NULL;

        if (m != NULL && m->publishing) {
            m->publishing = false;
            m->state = DYTI_MEMBER_JOINED;
            dyti_fleet_answer(fleet, DYTI_ACT_PUBLISHED, g->member[r], 0,
                              status, text);
        }
    }
    if (group == 0) {
        dyti_fleet_forget_catalogue(fleet);
    }
}

/* Ask for the catalogue once all rows are in, for checks once all memory is. */
void dyti_fleet_pump_publish(struct dyti_fleet *fleet)
{
    if (!fleet->catalogue && !fleet->building &&
        all_at_least(fleet, &fleet->group[0], DYTI_MEMBER_LISTED) &&
        all_publish(fleet, &fleet->group[0])) {
        fleet->building = dyti_fleet_act(fleet, DYTI_ACT_CATALOGUE) != NULL;
    }
    for (uint32_t i = 0; fleet->catalogue && i < fleet->group_count; i++) {
        struct dyti_fleet_group *g = &fleet->group[i];

        if (g->used && g->state == DYTI_GROUP_JOINING && !g->checking &&
            all_at_least(fleet, g, DYTI_MEMBER_FITTED)) {
            struct dyti_fleet_action *a = dyti_fleet_act(fleet, DYTI_ACT_CHECK);

            g->checking = a != NULL;
            if (a != NULL) {
                a->group = i;
            }
        }
    }
}

static void share(struct dyti_fleet *fleet, uint32_t member)
{
    struct dyti_fleet_action *a = dyti_fleet_act(fleet, DYTI_ACT_SHARE);

    if (a != NULL) {
        a->member = member;
    }
}

void dyti_fleet_take_built(struct dyti_fleet *fleet,
                           const struct dyti_fleet_event *e)
{
    if (!fleet->building) {
        return;
    }
    fleet->building = false;
    if (e->status != DYT_OK) {
        dyti_fleet_refuse_group(fleet, 0, e->status, e->text);
        return;
    }
    fleet->catalogue = true;
    for (uint32_t i = 0; i < fleet->member_count; i++) {
        if (fleet->member[i].publishing) {
            share(fleet, i);
        }
    }
}

enum dyt_status dyti_fleet_take_publish(struct dyti_fleet *fleet,
                                        const struct dyti_fleet_event *e)
{
    struct dyti_fleet_member *m = &fleet->member[e->member];

    if (m->publishing || m->state == DYTI_MEMBER_READY) {
        return DYTI_FAIL(DYT_ERR_STATE, "published already");
    }
    m->publishing = true;
    if (fleet->catalogue) {
        share(fleet, e->member);
    }
    return DYT_OK;
}

/* Who has joined and is waited for, "; … has not published": of the trainer,
 * while its tensors are not known, else of its own group.  "" if nobody is. */
static void say_who_is_silent(const struct dyti_fleet *fleet, uint32_t member,
                              char *text, size_t size)
{
    uint32_t group = fleet->catalogue ? fleet->member[member].group : 0;
    const struct dyti_fleet_group *g = &fleet->group[group];
    char who[256];

    text[0] = '\0';
    for (uint32_t r = 0; g->used && r < g->size && text[0] == '\0'; r++) {
        uint32_t other = g->member[r];

        if (other != NONE && other != member &&
            !fleet->member[other].publishing &&
            fleet->member[other].state < DYTI_MEMBER_FITTED) {
            dyti_fleet_member_text(fleet, other, who, sizeof(who));
            snprintf(text, size, "; %s has not published", who);
        }
    }
}

void dyti_fleet_withdraw_publish(struct dyti_fleet *fleet, uint32_t member,
                                 enum dyt_status status)
{
    struct dyti_fleet_member *m = &fleet->member[member];
    const struct dyti_fleet_group *g = &fleet->group[m->group];
    char group[128], silent[320], text[DYTI_FLEET_ANSWER_BYTES];
    uint32_t missing = 0;

    for (uint32_t r = 0; r < g->size; r++) {
        missing += g->member[r] == NONE;
    }
    dyti_fleet_group_text(fleet, m->group, group, sizeof(group));
    say_who_is_silent(fleet, member, silent, sizeof(silent));
    snprintf(text, sizeof(text), "%s: %s%u of %u members of %s have joined%s",
             status == DYT_ERR_TIMEOUT ? "not all have published in time"
                                       : "the publish was given up",
             fleet->catalogue ? "" : "the trainer's tensors are not known; ",
             g->size - missing, g->size, group, silent);
    m->publishing = false;
    m->state = DYTI_MEMBER_JOINED;
    dyti_fleet_answer(fleet, DYTI_ACT_PUBLISHED, member, 0, status, text);
}

void dyti_fleet_take_fitted(struct dyti_fleet *fleet,
                            const struct dyti_fleet_event *e)
{
    struct dyti_fleet_member *m = &fleet->member[e->member];

    if (!m->publishing || !fleet->catalogue) {
        return;
    }
    if (e->status != DYT_OK) {
        char who[256], text[DYTI_FLEET_ANSWER_BYTES];
        uint32_t group = m->group;

        /* Its own answer is the full text, that of the others names it. */
        dyti_fleet_member_text(fleet, e->member, who, sizeof(who));
        snprintf(text, sizeof(text), "%s does not fit: %s", who,
                 e->text != NULL ? e->text : "");
        dyti_fleet_refuse_group(fleet, group, e->status, text);
        return;
    }
    m->state = DYTI_MEMBER_FITTED;
}

void dyti_fleet_take_checked(struct dyti_fleet *fleet,
                             const struct dyti_fleet_event *e)
{
    struct dyti_fleet_group *g;

    if (e->group >= fleet->group_count || !fleet->group[e->group].checking) {
        return;
    }
    g = &fleet->group[e->group];
    g->checking = false;
    if (e->status != DYT_OK) {
        dyti_fleet_refuse_group(fleet, e->group, e->status, e->text);
        return;
    }
    if (!all_at_least(fleet, g, DYTI_MEMBER_FITTED) ||
        !dyti_fleet_move(g, DYTI_GE_COMPLETE)) {
        return;
    }
    g->shared = e->shared;
    g->ready_at = fleet->offers;
    for (uint32_t r = 0; r < g->size; r++) {
        struct dyti_fleet_member *m = &fleet->member[g->member[r]];

        m->state = DYTI_MEMBER_READY;
        if (m->publishing) {
            m->publishing = false;
            dyti_fleet_answer(fleet, DYTI_ACT_PUBLISHED, g->member[r], 0,
                              DYT_OK, NULL);
        }
    }
}

/* ---- release, restore ---------------------------------------------------- */

enum dyt_status dyti_fleet_take_release(struct dyti_fleet *fleet,
                                        const struct dyti_fleet_event *e)
{
    struct dyti_fleet_member *m = &fleet->member[e->member];

    if (m->releasing || m->restoring) {
        return DYTI_FAIL(DYT_ERR_STATE, "a release or restore is running");
    }
    if (m->receiving) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "a receive is running: release after it");
    }
    m->releasing = e->kind == DYTI_FLEET_RELEASE;
    m->restoring = e->kind == DYTI_FLEET_RESTORE;
    return DYT_OK;
}

void dyti_fleet_withdraw_release(struct dyti_fleet *fleet, uint32_t member,
                                 enum dyt_status status)
{
    struct dyti_fleet_member *m = &fleet->member[member];
    char group[128], text[DYTI_FLEET_TEXT_BYTES];

    dyti_fleet_group_text(fleet, m->group, group, sizeof(group));
    snprintf(text, sizeof(text),
             "the weights of %s are being read or written: they stay as they "
             "are",
             group);
    m->releasing = m->restoring = false;
    dyti_fleet_answer(fleet, DYTI_ACT_RELEASED, member, 0, status, text);
}

/* Where the others read it nobody gives it back. */
void dyti_fleet_pump_release(struct dyti_fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->member_count; i++) {
        struct dyti_fleet_member *m = &fleet->member[i];
        struct dyti_fleet_group *g;
        uint32_t released = 0;

        if (m->state == DYTI_MEMBER_FREE || (!m->releasing && !m->restoring)) {
            continue;
        }
        g = &fleet->group[m->group];
        if (!dyti_group_is_idle(g)) {
            continue;
        }
        m->released = m->releasing;
        m->releases += m->releasing;
        m->releasing = m->restoring = false;
        for (uint32_t r = 0; r < g->size; r++) {
            released +=
                g->member[r] != NONE && fleet->member[g->member[r]].released;
        }
        if (g->role == DYTI_FLEET_RECEIVER &&
            (released > 0 ? dyti_fleet_move(g, DYTI_GE_RELEASE)
                          : dyti_fleet_move(g, DYTI_GE_RESTORE))) {
            g->current = false; /* what was there is not there any more */
            g->version = 0;
        }
        dyti_fleet_answer(fleet, DYTI_ACT_RELEASED, i, 0, DYT_OK, NULL);
        if (g->role == DYTI_FLEET_RECEIVER) {
            dyti_fleet_refuse_asleep(fleet, m->group);
        }
    }
}
