/* What must hold in every state of a fleet, as code: tests call it after each
 * event. */
#include "phase/fleet_internal.h"

static bool is_active(const struct dyti_fleet_link *k)
{
    return k->state == DYTI_LINK_SNAPPING || k->state == DYTI_LINK_OPENING ||
           k->state == DYTI_LINK_RUNNING;
}

static const char *check_link(const struct dyti_fleet *fleet, uint32_t at)
{
    const struct dyti_fleet_link *k = &fleet->link[at];
    uint32_t open = 0;

    if (!is_active(k)) {
        return k->awaited != 0 ? "an idle link awaits answers" : NULL;
    }
    for (uint32_t i = 0; i < k->member_count; i++) {
        open += !k->answered[i];
        if (!k->answered[i] &&
            (k->member[i] == NONE ||
             fleet->member[k->member[i]].state == DYTI_MEMBER_FREE)) {
            return "a link awaits an answer of somebody who is gone";
        }
    }
    if (open != k->awaited || open == 0) {
        return "a link that awaits nobody goes on";
    }
    if (k->source == 0 && k->reads && !fleet->offer.snapshot) {
        for (uint32_t i = 0; i < k->source_count; i++) {
            if (k->member[i] != NONE && !fleet->member[k->member[i]].pinned) {
                return "memory that a link reads is said to be free";
            }
        }
    }
    return NULL;
}

static const char *check_group(const struct dyti_fleet *fleet, uint32_t at)
{
    const struct dyti_fleet_group *g = &fleet->group[at];
    bool whole = true;
    uint32_t readers = 0;

    for (uint32_t r = 0; g->used && r < g->size; r++) {
        const struct dyti_fleet_member *m =
            g->member[r] != NONE ? &fleet->member[g->member[r]] : NULL;

        whole = whole && m != NULL;
        if (m != NULL && (m->group != at || m->place.rank != r)) {
            return "a member is not where its group says";
        }
        if (m != NULL && m->receiving && g->state == DYTI_GROUP_DEAD) {
            return "somebody waits for a version in a dead replica";
        }
        if (m != NULL && m->released && g->state == DYTI_GROUP_SERVING) {
            return "a replica serves released memory";
        }
    }
    if (!g->used) {
        return NULL;
    }
    if (!whole && dyti_group_is_up(g)) {
        return "a group lacks a member and is up";
    }
    if (g->state == DYTI_GROUP_RECEIVING &&
        (g->busy == NONE || fleet->link[g->busy].receiver != at)) {
        return "a replica receives from nobody";
    }
    if (g->busy != NONE && (!is_active(&fleet->link[g->busy]) ||
                            fleet->link[g->busy].receiver != at)) {
        return "a group is busy with nothing";
    }
    if (g->busy != NONE && g->readers > 0) {
        return "a group is read while it takes a version";
    }
    for (uint32_t l = 0; l < fleet->link_count; l++) {
        const struct dyti_fleet_link *k = &fleet->link[l];

        readers += is_active(k) && k->source == at && k->reads;
    }
    if (readers != g->readers) {
        return "a group has other readers than its links say";
    }
    if (g->state == DYTI_GROUP_SERVING && g->role == DYTI_FLEET_RECEIVER &&
        g->current && g->version > fleet->last_version) {
        return "a replica serves a version that nobody offered";
    }
    return NULL;
}

const char *dyti_fleet_broken(const struct dyti_fleet *fleet)
{
    const char *wrong = NULL;

    for (uint32_t l = 0; wrong == NULL && l < fleet->link_count; l++) {
        wrong = check_link(fleet, l);
    }
    for (uint32_t i = 0; wrong == NULL && i < fleet->group_count; i++) {
        wrong = check_group(fleet, i);
    }
    return wrong;
}
