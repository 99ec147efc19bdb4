/* Offers: from the first rank that names a version to the ticket's end. */
#include "phase/fleet_internal.h"

#include <stdio.h>

static struct dyti_fleet_member *rank_of(struct dyti_fleet *fleet, uint32_t r)
{
    uint32_t id = fleet->group[0].member[r];

    return id != NONE ? &fleet->member[id] : NULL;
}

/* Ends the offers that ranks wait for, but not those that have a ticket. */
static void refuse_proposal(struct dyti_fleet *fleet, enum dyt_status status,
                            const char *text)
{
    for (uint32_t r = 0; r < fleet->group[0].size; r++) {
        struct dyti_fleet_member *m = rank_of(fleet, r);

        if (m != NULL && m->offering) {
            m->offering = false;
            dyti_fleet_answer(fleet, DYTI_ACT_OFFERED,
                              fleet->group[0].member[r], m->want, status, text);
        }
    }
}

static uint32_t offering(const struct dyti_fleet *fleet)
{
    const struct dyti_fleet_group *g = &fleet->group[0];
    uint32_t n = 0;

    for (uint32_t r = 0; g->used && r < g->size; r++) {
        n += g->member[r] != NONE && fleet->member[g->member[r]].offering;
    }
    return n;
}

enum dyt_status dyti_fleet_take_offer(struct dyti_fleet *fleet,
                                      const struct dyti_fleet_event *e)
{
    struct dyti_fleet_member *m = &fleet->member[e->member];
    const struct dyti_fleet_offer *o = &fleet->offer;
    const struct dyti_fleet_member *other = NULL;

    if (m->group != 0 || m->state != DYTI_MEMBER_READY) {
        return DYTI_FAIL(DYT_ERR_STATE, "an offer before publish was done");
    }
    if (m->offering || o->taking || m->pinned) {
        return DYTI_FAIL(
            DYT_ERR_STATE,
            "version %llu is still offered: wait for its ticket, "
            "or cancel it",
            (unsigned long long)(m->offering ? m->want : o->version));
    }
    if (fleet->any_version && e->version <= fleet->last_version) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "version %llu after version %llu: versions rise",
                         (unsigned long long)e->version,
                         (unsigned long long)fleet->last_version);
    }
    for (uint32_t r = 0; r < fleet->group[0].size; r++) {
        const struct dyti_fleet_member *p = rank_of(fleet, r);

        other = p != NULL && p->offering && p->want != e->version ? p : other;
    }
    if (other != NULL) {
        char text[128];

        snprintf(text, sizeof(text),
                 "ranks of the trainer offer versions %llu and %llu: all must "
                 "name the same",
                 (unsigned long long)other->want,
                 (unsigned long long)e->version);
        refuse_proposal(fleet, DYT_ERR_INVALID, text);
        return DYTI_FAIL(DYT_ERR_INVALID, "%s", text);
    }
    m->offering = true;
    m->taking = e->takes || e->snapshot;
    m->want = e->version;
    if (offering(fleet) == 1) {
        fleet->offer.asked = 0;
    }
    fleet->offer.asked += e->snapshot;
    return DYT_OK;
}

/* All ranks have named it, and nobody reads what an earlier snapshot holds. */
static void make(struct dyti_fleet *fleet)
{
    struct dyti_fleet_group *g = &fleet->group[0];
    struct dyti_fleet_offer *o = &fleet->offer;
    bool snapshot = o->asked == g->size;
    uint32_t takers = 0;

    *o = (struct dyti_fleet_offer){.version = rank_of(fleet, 0)->want,
                                   .snapshot = snapshot,
                                   .serial = ++fleet->offers};
    fleet->last_version = o->version;
    fleet->any_version = true;
    for (uint32_t r = 0; r < g->size; r++) {
        struct dyti_fleet_member *m = rank_of(fleet, r);

        takers += m->taking;
        m->offering = false;
        m->pinned = true;
        dyti_fleet_answer(fleet, DYTI_ACT_OFFERED, g->member[r], o->version,
                          DYT_OK, NULL);
    }
    o->taking = takers > 0;
    o->open = takers == 0;
    for (size_t i = 1; i < fleet->group_count; i++) {
        fleet->group[i].wanted = dyti_group_is_up(&fleet->group[i]);
        fleet->group[i].alone = false;
    }
}

static void free_rows(struct dyti_fleet *fleet)
{
    for (uint32_t r = 0; r < fleet->group[0].size; r++) {
        struct dyti_fleet_member *m = rank_of(fleet, r);

        if (m != NULL) {
            m->pinned = m->taking = false;
        }
    }
}

/* Every ticket of this offer hears how it ended. */
static void end_offer(struct dyti_fleet *fleet, enum dyt_status status,
                      const char *text)
{
    for (uint32_t r = 0; r < fleet->group[0].size; r++) {
        uint32_t id = fleet->group[0].member[r];

        if (id != NONE) {
            dyti_fleet_answer(fleet, DYTI_ACT_DONE, id, fleet->offer.version,
                              status, text);
        }
    }
    free_rows(fleet);
}

/* Rows are free when the links that read them are over, not before. */
static void end_later(struct dyti_fleet_offer *o, enum dyt_status status,
                      const char *text)
{
    o->cancelled = true;
    o->open = o->taking = o->telling = false;
    o->end_status = status;
    snprintf(o->end_text, sizeof(o->end_text), "%s", text != NULL ? text : "");
}

void dyti_fleet_take_taken(struct dyti_fleet *fleet,
                           const struct dyti_fleet_event *e)
{
    struct dyti_fleet_member *m = &fleet->member[e->member];
    struct dyti_fleet_offer *o = &fleet->offer;
    bool all = true;

    if (!o->taking || m->group != 0 || !m->taking || e->version != o->version) {
        return;
    }
    m->taking = false;
    if (e->renewed) { /* nobody reads yet: they are opened anew */
        dyti_fleet_close_links(fleet, 0);
    }
    if (e->status != DYT_OK) {
        o->taking = false;
        end_offer(fleet, e->status, e->text);
        *o = (struct dyti_fleet_offer){.version = o->version,
                                       .serial = o->serial};
        return;
    }
    for (uint32_t r = 0; r < fleet->group[0].size; r++) {
        all = all && rank_of(fleet, r) != NULL && !rank_of(fleet, r)->taking;
    }
    if (all) {
        o->taking = false;
        o->open = true;
        if (o->snapshot) {
            free_rows(fleet);
        }
    }
}

void dyti_fleet_take_cancel(struct dyti_fleet *fleet,
                            const struct dyti_fleet_event *e)
{
    struct dyti_fleet_member *m = &fleet->member[e->member];
    struct dyti_fleet_offer *o = &fleet->offer;
    char who[256], text[DYTI_FLEET_TEXT_BYTES];

    if (m->group != 0) {
        return;
    }
    dyti_fleet_member_text(fleet, e->member, who, sizeof(who));
    snprintf(text, sizeof(text), "%s took the offer back", who);
    if (m->offering && m->want == e->version) {
        if (e->status == DYT_ERR_TIMEOUT) {
            snprintf(text, sizeof(text),
                     "%s waited until its deadline: %u of %u ranks of the "
                     "trainer offer version %llu, all of them must",
                     who, offering(fleet), fleet->group[0].size,
                     (unsigned long long)e->version);
        }
        refuse_proposal(fleet,
                        e->status == DYT_ERR_TIMEOUT ? DYT_ERR_TIMEOUT
                                                     : DYT_ERR_CANCELLED,
                        text);
        return;
    }
    if (e->version != o->version || (o->met && !o->telling) ||
        (!o->open && !o->taking && !o->telling)) {
        return;
    }
    if (!o->telling) {
        end_later(o, DYT_ERR_CANCELLED, "the offer was taken back");
    }
    for (uint32_t l = 0; l < fleet->link_count; l++) {
        if (fleet->link[l].source == 0 && fleet->link[l].reads) {
            dyti_fleet_abort(fleet, l, m->place.rank, DYT_ERR_CANCELLED, text);
        }
    }
}

void dyti_fleet_offer_lost(struct dyti_fleet *fleet, enum dyt_status status,
                           const char *text)
{
    struct dyti_fleet_offer *o = &fleet->offer;
    bool told = (o->met && !o->telling) ||
                (!o->open && !o->taking && !o->telling && !o->cancelled);

    refuse_proposal(fleet, status, text);
    if (told) {
        free_rows(fleet);
        *o = (struct dyti_fleet_offer){.version = o->version,
                                       .serial = o->serial};
    } else if (!o->cancelled) {
        end_later(o, status, text);
    }
}

/* Has the policy what it asks for? */
static bool is_met(const struct dyti_fleet *fleet)
{
    uint32_t have = 0, missing = 0;

    for (size_t i = 1; i < fleet->group_count; i++) {
        const struct dyti_fleet_group *g = &fleet->group[i];

        if (dyti_group_holds(g) && g->version >= fleet->offer.version) {
            have++;
        } else if (g->wanted && dyti_group_is_up(g)) {
            missing++;
        }
    }
    return fleet->policy == DYT_POLICY_QUORUM
               ? have >= (fleet->quorum > 0 ? fleet->quorum : 1)
               : have > 0 && missing == 0;
}

/* Is a replica there that could take it, now or later? */
static bool has_takers(const struct dyti_fleet *fleet)
{
    for (size_t i = 1; i < fleet->group_count; i++) {
        const struct dyti_fleet_group *g = &fleet->group[i];

        if (g->used && g->state != DYTI_GROUP_DEAD &&
            !dyti_fleet_is_deserted(g)) {
            return true;
        }
    }
    return false;
}

/* Twice the trainer's time: its members' waits end by themselves before. */
static int64_t alone_until(struct dyti_fleet *fleet, int64_t now_ns)
{
    int64_t most = 0;

    for (uint32_t r = 0; r < fleet->group[0].size; r++) {
        const struct dyti_fleet_member *m = rank_of(fleet, r);

        most = m != NULL && m->place.timeout_ns > most ? m->place.timeout_ns
                                                       : most;
    }
    return most > (INT64_MAX - now_ns) / 2 ? INT64_MAX : now_ns + 2 * most;
}

/* Who was there has died or left, and it is kept for whoever comes next: a
 * server that is started again finds the version that it was to have. */
static void look_for_takers(struct dyti_fleet *fleet, int64_t now_ns)
{
    struct dyti_fleet_offer *o = &fleet->offer;
    char text[DYTI_FLEET_TEXT_BYTES];

    if (!o->open || o->met || has_takers(fleet)) {
        o->had_takers = o->had_takers || (o->open && has_takers(fleet));
        o->left_alone = false;
        return;
    }
    if (!o->had_takers) {
        return; /* nobody has come yet */
    }
    if (!o->left_alone) {
        o->left_alone = true;
        o->alone_until_ns = alone_until(fleet, now_ns);
    }
    if (now_ns < o->alone_until_ns) {
        return;
    }
    o->left_alone = false;
    snprintf(text, sizeof(text),
             "%s, nobody has come in time, and no replica is left to take "
             "version %llu: offer again when one is there",
             o->last_lost, (unsigned long long)o->version);
    end_later(o, DYT_ERR_PEER, text);
}

void dyti_fleet_pump_offer(struct dyti_fleet *fleet, int64_t now_ns)
{
    struct dyti_fleet_group *g = &fleet->group[0];
    struct dyti_fleet_offer *o = &fleet->offer;

    if (!g->used) {
        return;
    }
    if (o->open && !o->met && is_met(fleet)) {
        o->met = o->telling = true;
        o->open = o->snapshot; /* a snapshot is there until the next offer */
    }
    look_for_takers(fleet, now_ns);
    if (o->telling && (o->snapshot || dyti_group_is_idle(g))) {
        o->telling = false;
        end_offer(fleet, DYT_OK, NULL);
    }
    if (!dyti_group_is_idle(g)) {
        return;
    }
    if (o->cancelled) {
        o->cancelled = false;
        end_offer(fleet, o->end_status, o->end_text);
    }
    if (g->state == DYTI_GROUP_EMPTY && g->size > 0 &&
        offering(fleet) == g->size) {
        if (o->asked != 0 && o->asked != g->size) {
            refuse_proposal(fleet, DYT_ERR_INVALID,
                            "some ranks of the trainer ask for a snapshot and "
                            "others do not");
            return;
        }
        if (!o->met && o->open) { /* a snapshot, which gives way */
            end_offer(fleet, DYT_ERR_CANCELLED,
                      "a newer version was offered before the policy was met");
        }
        make(fleet);
    }
}
