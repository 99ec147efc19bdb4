/* Receives: who takes a version from whom, and when. */
#include "phase/fleet_internal.h"

#include <stdio.h>
#include <string.h>

/* A rank that released its weights after all that `member` has released: no
 * receive of the two can meet.  NONE: nobody; one that released as often as
 * `member` may only be slower to wake. */
static uint32_t gone_to_sleep(const struct dyti_fleet *fleet, uint32_t member)
{
    const struct dyti_fleet_member *m = &fleet->member[member];
    const struct dyti_fleet_group *g = &fleet->group[m->group];

    for (uint32_t r = 0; r < g->size; r++) {
        uint32_t id = g->member[r];

        if (id != NONE && fleet->member[id].released &&
            fleet->member[id].releases > m->releases) {
            return id;
        }
    }
    return NONE;
}

/* "rank 1 of replica rollout/0 (…) has released its weights: …" */
static void sleeper_text(const struct dyti_fleet *fleet, uint32_t sleeper,
                         char *out, size_t n)
{
    char who[256];

    dyti_fleet_member_text(fleet, sleeper, who, sizeof(who));
    snprintf(out, n,
             "%s has released its weights: release and restore them on every "
             "rank of a replica before it receives",
             who);
}

void dyti_fleet_refuse_asleep(struct dyti_fleet *fleet, uint32_t group)
{
    const struct dyti_fleet_group *g = &fleet->group[group];

    for (uint32_t r = 0; r < g->size; r++) {
        uint32_t id = g->member[r];
        uint32_t sleeper = id != NONE && fleet->member[id].receiving
                               ? gone_to_sleep(fleet, id)
                               : NONE;

        if (sleeper != NONE) {
            char text[DYTI_FLEET_TEXT_BYTES];

            sleeper_text(fleet, sleeper, text, sizeof(text));
            dyti_fleet_received(fleet, group, DYT_ERR_STATE, text);
            return;
        }
    }
}

enum dyt_status dyti_fleet_take_receive(struct dyti_fleet *fleet,
                                        const struct dyti_fleet_event *e)
{
    struct dyti_fleet_member *m = &fleet->member[e->member];
    const struct dyti_fleet_group *g = &fleet->group[m->group];
    uint32_t sleeper;

    if (g->role != DYTI_FLEET_RECEIVER || m->state < DYTI_MEMBER_FITTED) {
        return DYTI_FAIL(DYT_ERR_STATE, "a receive before publish was done");
    }
    if (m->receiving) {
        return DYTI_FAIL(DYT_ERR_STATE, "a receive is running");
    }
    if (m->released || m->releasing) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "the weights are released: restore them first");
    }
    if (g->state == DYTI_GROUP_DEAD) {
        return DYTI_FAIL(DYT_ERR_PEER, "%s", g->why);
    }
    sleeper = gone_to_sleep(fleet, e->member);
    if (sleeper != NONE) {
        char text[DYTI_FLEET_TEXT_BYTES];

        sleeper_text(fleet, sleeper, text, sizeof(text));
        return DYTI_FAIL(DYT_ERR_STATE, "%s", text);
    }
    m->receiving = true;
    m->want = e->version;
    return DYT_OK;
}

void dyti_fleet_received(struct dyti_fleet *fleet, uint32_t group,
                         enum dyt_status status, const char *text)
{
    struct dyti_fleet_group *g = &fleet->group[group];

    if (status != DYT_OK) {
        dyti_fleet_blame(g, status, text);
    }
    for (uint32_t r = 0; r < g->size; r++) {
        struct dyti_fleet_member *m =
            g->member[r] != NONE ? &fleet->member[g->member[r]] : NULL;

        if (m != NULL && status == DYT_OK) { /* all are at this one call */
            m->releases = 0;
        }
        if (m != NULL && m->receiving) {
            m->receiving = false;
            dyti_fleet_answer(fleet, DYTI_ACT_RECEIVED, g->member[r],
                              g->version, status, text);
        }
    }
}

/* The first rank of a replica that has not asked; NONE. */
static uint32_t first_silent(const struct dyti_fleet_group *g,
                             const struct dyti_fleet *fleet)
{
    for (uint32_t r = 0; r < g->size; r++) {
        if (g->member[r] == NONE || !fleet->member[g->member[r]].receiving) {
            return r;
        }
    }
    return NONE;
}

/* What a receive that runs in no link has waited for. */
static void why_it_waits(const struct dyti_fleet *fleet, uint32_t member,
                         char *out, size_t n)
{
    const struct dyti_fleet_member *m = &fleet->member[member];
    const struct dyti_fleet_group *g = &fleet->group[m->group];
    const struct dyti_fleet_offer *o = &fleet->offer;
    uint32_t silent = first_silent(g, fleet);
    char newest[64] = "none was";

    if (fleet->any_version) {
        snprintf(newest, sizeof(newest), "the newest was version %llu",
                 (unsigned long long)o->version);
    }
    if (g->why_status == DYT_PENDING) {
        snprintf(out, n, "%s", g->why);
    } else if (silent != NONE) {
        snprintf(out, n,
                 "rank %u of %u of its replica does not receive: all of them "
                 "must",
                 silent, g->size);
    } else if (!o->open || o->version < m->want) {
        snprintf(out, n,
                 "no version from %llu on is offered (%s): is the trainer's "
                 "offer open, and from all its ranks?",
                 (unsigned long long)m->want, newest);
    } else {
        snprintf(out, n, "version %llu is offered, and others take it first",
                 (unsigned long long)o->version);
    }
}

void dyti_fleet_take_withdraw(struct dyti_fleet *fleet,
                              const struct dyti_fleet_event *e)
{
    const struct dyti_fleet_member *m = &fleet->member[e->member];
    enum dyt_status st = e->status != DYT_OK ? e->status : DYT_ERR_CANCELLED;
    uint32_t group = m->group;
    const struct dyti_fleet_group *g = &fleet->group[group];
    bool runs = g->busy != NONE && fleet->link[g->busy].receiver == group;
    char who[256], why[DYTI_FLEET_TEXT_BYTES] = "an update runs";
    char text[DYTI_FLEET_TEXT_BYTES + 320];

    if (m->publishing) {
        dyti_fleet_withdraw_publish(fleet, e->member, st);
        return;
    }
    if (m->releasing || m->restoring) {
        dyti_fleet_withdraw_release(fleet, e->member, st);
        return;
    }
    if (!m->receiving || g->role != DYTI_FLEET_RECEIVER) {
        return; /* it was answered meanwhile */
    }
    dyti_fleet_member_text(fleet, e->member, who, sizeof(who));
    if (!runs) {
        why_it_waits(fleet, e->member, why, sizeof(why));
    }
    snprintf(text, sizeof(text), "%s %s: %s", who,
             st == DYT_ERR_TIMEOUT ? "waited until its deadline"
                                   : "gave up its receive",
             why);
    if (!runs) {
        dyti_fleet_received(fleet, group, st, text);
        return;
    }
    dyti_fleet_abort(fleet, g->busy,
                     fleet->link[g->busy].source_count + m->place.rank, st,
                     text);
}

/* The oldest version that another living replica serves. */
static uint64_t slowest(const struct dyti_fleet *fleet, uint32_t but)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 1; i < fleet->group_count; i++) {
        const struct dyti_fleet_group *g = &fleet->group[i];

        if (i != but && dyti_group_holds(g) && g->version < least) {
            least = g->version;
        }
    }
    return least;
}

/* Every member asks, and which version at least. */
static bool all_want(const struct dyti_fleet *fleet,
                     const struct dyti_fleet_group *g, uint64_t *out_want)
{
    *out_want = 0;
    for (uint32_t r = 0; r < g->size; r++) {
        const struct dyti_fleet_member *m =
            g->member[r] != NONE ? &fleet->member[g->member[r]] : NULL;

        if (m == NULL || !m->receiving) {
            return false;
        }
        *out_want = m->want > *out_want ? m->want : *out_want;
    }
    return true;
}

/* A replica of the same pool and host with the newest version from `least` on;
 * NONE. */
static uint32_t sibling(const struct dyti_fleet *fleet, uint32_t group,
                        uint64_t least)
{
    const struct dyti_fleet_group *g = &fleet->group[group];
    uint32_t best = NONE;

    for (uint32_t i = 1; !g->alone && i < fleet->group_count; i++) {
        const struct dyti_fleet_group *o = &fleet->group[i];

        if (i != group && dyti_group_holds(o) && o->version >= least &&
            o->host == g->host && strcmp(o->pool, g->pool) == 0 &&
            (best == NONE || o->version > fleet->group[best].version)) {
            best = i;
        }
    }
    return best;
}

/* Another replica of the same pool and host takes it from the trainer now. */
static bool is_brought(const struct dyti_fleet *fleet, uint32_t group)
{
    const struct dyti_fleet_group *g = &fleet->group[group];

    for (uint32_t i = 1; i < fleet->group_count; i++) {
        const struct dyti_fleet_group *o = &fleet->group[i];

        if (i != group && o->used && o->busy != NONE && o->host == g->host &&
            strcmp(o->pool, g->pool) == 0 && fleet->link[o->busy].source == 0) {
            return true;
        }
    }
    return false;
}

/* From whom to take at least `want`; NONE: nobody has it yet, or it is busy.
 * One copy enters a host: the first of its replicas to ask takes it from the
 * trainer, the others from that one. */
static uint32_t choose(const struct dyti_fleet *fleet, uint32_t group,
                       uint64_t want, uint64_t *out_version)
{
    const struct dyti_fleet_group *g = &fleet->group[group];
    const struct dyti_fleet_offer *o = &fleet->offer;
    bool have = dyti_group_holds(g);
    uint64_t least = have && g->version + 1 > want ? g->version + 1 : want;
    bool offered = o->open && o->version >= least &&
                   fleet->group[0].state == DYTI_GROUP_EMPTY;
    bool apart = offered && dyti_fleet_is_apart(fleet, 0, group);
    bool late = apart || g->ready_at >= o->serial;
    uint32_t from = sibling(fleet, group, offered && late ? o->version : least);

    if (from == NONE && apart && !g->alone && is_brought(fleet, group)) {
        return NONE;
    }
    if (from == NONE || (offered && !late)) {
        from = offered ? 0 : from;
    }
    if (from == NONE || fleet->group[from].busy != NONE) {
        return NONE; /* it takes one itself */
    }
    *out_version = from == 0 ? o->version : fleet->group[from].version;
    return from;
}

/* Does it hold what it asks for, and is nothing newer there? */
static bool is_served(const struct dyti_fleet *fleet, uint32_t group,
                      uint64_t want)
{
    const struct dyti_fleet_group *g = &fleet->group[group];
    const struct dyti_fleet_offer *o = &fleet->offer;

    if (g->state != DYTI_GROUP_SERVING || !dyti_group_holds(g) ||
        g->version < want) {
        return false;
    }
    return want > 0 || g->version == UINT64_MAX ||
           (!((o->open || o->taking) && o->version > g->version) &&
            sibling(fleet, group, g->version + 1) == NONE);
}

static bool others_receive(const struct dyti_fleet *fleet)
{
    for (size_t i = 1; i < fleet->group_count; i++) {
        if (fleet->group[i].used &&
            fleet->group[i].state == DYTI_GROUP_RECEIVING) {
            return true;
        }
    }
    return false;
}

/* Would it be too far above another replica?  Never one that is itself among
 * the oldest: versions that are further apart than the limit (the trainer has
 * left some out, or took an offer back) would hold up everybody for ever. */
static bool runs_ahead(struct dyti_fleet *fleet, uint32_t group,
                       uint64_t version)
{
    struct dyti_fleet_group *g = &fleet->group[group];
    uint64_t least = slowest(fleet, group);
    char text[160];

    if (fleet->max_version_skew == 0 || least >= version ||
        version - least <= fleet->max_version_skew ||
        (dyti_group_holds(g) && g->version <= least)) {
        return false;
    }
    snprintf(text, sizeof(text),
             "version %llu would be more than max_version_skew %u above "
             "%llu, which another replica still serves",
             (unsigned long long)version, fleet->max_version_skew,
             (unsigned long long)least);
    dyti_fleet_blame(g, DYT_PENDING, text);
    return true;
}

static void try_receive(struct dyti_fleet *fleet, uint32_t group,
                        int64_t now_ns)
{
    struct dyti_fleet_group *g = &fleet->group[group];
    uint64_t want, version = 0;
    uint32_t from;

    if (!dyti_group_is_up(g) || !dyti_group_is_idle(g) ||
        !all_want(fleet, g, &want)) {
        return;
    }
    if (is_served(fleet, group, want)) {
        dyti_fleet_received(fleet, group, DYT_OK, NULL);
        return;
    }
    from = choose(fleet, group, want, &version);
    if (from == NONE ||
        (fleet->policy == DYT_POLICY_ROLLING && others_receive(fleet))) {
        return;
    }
    if (runs_ahead(fleet, group, version)) {
        return;
    }
    dyti_fleet_begin(fleet, group, from, version, now_ns);
}

void dyti_fleet_pump_links(struct dyti_fleet *fleet, int64_t now_ns)
{
    for (uint32_t i = 1; i < fleet->group_count; i++) {
        try_receive(fleet, i, now_ns);
    }
}
