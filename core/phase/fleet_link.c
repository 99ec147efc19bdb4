/* Links: made, begun, answered, over. */
#include "base/array.h"
#include "phase/fleet_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- links --------------------------------------------------------------- */

static struct dyti_fleet_group *receiver_of(struct dyti_fleet *fleet,
                                            const struct dyti_fleet_link *k)
{
    return &fleet->group[k->receiver];
}

static void free_link(struct dyti_fleet_link *k)
{
    free(k->member);
    free(k->answered);
    *k = (struct dyti_fleet_link){.state = DYTI_LINK_FREE};
}

static void act_link(struct dyti_fleet *fleet, enum dyti_fleet_action_kind kind,
                     uint32_t link)
{
    const struct dyti_fleet_link *k = &fleet->link[link];
    struct dyti_fleet_action *a = dyti_fleet_act(fleet, kind);

    if (a != NULL) {
        a->link = link;
        a->epoch = k->epoch;
        a->version = k->version;
    }
}

static void close_link(struct dyti_fleet *fleet, uint32_t link)
{
    act_link(fleet, DYTI_ACT_CLOSE, link);
    free_link(&fleet->link[link]);
}

void dyti_fleet_close_links(struct dyti_fleet *fleet, uint32_t group)
{
    for (uint32_t l = 0; l < fleet->link_count; l++) {
        const struct dyti_fleet_link *k = &fleet->link[l];

        if (k->state == DYTI_LINK_READY &&
            (k->source == group || k->receiver == group)) {
            close_link(fleet, l);
        }
    }
}

void dyti_fleet_abort(struct dyti_fleet *fleet, uint32_t link, uint32_t rank,
                      enum dyt_status status, const char *text)
{
    struct dyti_fleet_link *k = &fleet->link[link];
    struct dyti_fleet_action *a;

    if (k->status == DYT_OK) {
        k->status = status;
        snprintf(k->text, sizeof(k->text), "%s", text != NULL ? text : "");
    }
    if (k->aborted) {
        return;
    }
    k->aborted = true;
    a = dyti_fleet_act(fleet, DYTI_ACT_ABORT);
    if (a != NULL) {
        a->link = link;
        a->rank = rank;
        a->status = status;
        snprintf(a->text, sizeof(a->text), "%s", k->text);
    }
}

/* All members owe an answer. */
static void await(struct dyti_fleet *fleet, uint32_t link, uint32_t count,
                  int64_t now_ns)
{
    struct dyti_fleet_link *k = &fleet->link[link];
    int64_t most = 0;

    for (uint32_t i = 0; i < k->member_count; i++) {
        int64_t own = fleet->member[k->member[i]].place.timeout_ns;

        k->answered[i] = i >= count;
        most = own > most ? own : most;
    }
    k->awaited = count;
    /* Twice: each wait inside has the whole time, and ends by itself first. */
    k->deadline_ns =
        most > (INT64_MAX - now_ns) / 2 ? INT64_MAX : now_ns + 2 * most;
}

static void start(struct dyti_fleet *fleet, uint32_t link,
                  enum dyti_link_state state, int64_t now_ns)
{
    struct dyti_fleet_link *k = &fleet->link[link];

    k->state = state;
    await(fleet, link,
          state == DYTI_LINK_SNAPPING ? k->source_count : k->member_count,
          now_ns);
    act_link(fleet,
             state == DYTI_LINK_SNAPPING  ? DYTI_ACT_SNAP
             : state == DYTI_LINK_OPENING ? DYTI_ACT_OPEN
                                          : DYTI_ACT_RUN,
             link);
}

static void run(struct dyti_fleet *fleet, uint32_t link, int64_t now_ns)
{
    struct dyti_fleet_link *k = &fleet->link[link];

    k->epoch = ++fleet->epoch;
    k->committed = k->broken = k->retry = k->receiver_failed = k->told = false;
    k->moved_bytes = 0;
    start(fleet, link, DYTI_LINK_RUNNING, now_ns);
}

bool dyti_fleet_is_apart(const struct dyti_fleet *fleet, uint32_t source,
                         uint32_t receiver)
{
    const struct dyti_fleet_group *s = &fleet->group[source];

    for (uint32_t r = 0; r < s->size; r++) {
        if (s->member[r] != NONE && fleet->member[s->member[r]].place.host !=
                                        fleet->group[receiver].host) {
            return true;
        }
    }
    return false;
}

/* Rows that no other process can map are read from a snapshot, but for STAGED,
 * where the sources write, and between hosts, where they send; and so are those
 * that may be written meanwhile. */
static bool needs_snapshot(const struct dyti_fleet *fleet, uint32_t source,
                           uint32_t receiver)
{
    const struct dyti_fleet_group *s = &fleet->group[source];
    const struct dyti_fleet_group *r = &fleet->group[receiver];

    return (source == 0 && fleet->offer.snapshot) ||
           (!s->shared && !r->shared &&
            !dyti_fleet_is_apart(fleet, source, receiver) &&
            fleet->member[r->member[0]].place.commit != DYT_COMMIT_STAGED);
}

/* One that reads another snapshot than this offer fills would bring the version
 * that it holds from before, by the name of the new one. */
static uint32_t find_link(const struct dyti_fleet *fleet, uint32_t source,
                          uint32_t receiver)
{
    bool snapshot = needs_snapshot(fleet, source, receiver);
    bool whole = source == 0 && fleet->offer.snapshot;

    for (uint32_t l = 0; l < fleet->link_count; l++) {
        if (fleet->link[l].state == DYTI_LINK_READY &&
            fleet->link[l].source == source &&
            fleet->link[l].receiver == receiver &&
            fleet->link[l].snapshot == snapshot &&
            fleet->link[l].whole == whole) {
            return l;
        }
    }
    return NONE;
}

static uint32_t make_link(struct dyti_fleet *fleet, uint32_t source,
                          uint32_t receiver)
{
    const struct dyti_fleet_group *s = &fleet->group[source];
    const struct dyti_fleet_group *r = &fleet->group[receiver];
    uint32_t count = s->size + r->size, at = 0;
    struct dyti_fleet_link k = {
        .source = source,
        .receiver = receiver,
        .source_count = s->size,
        .member_count = count,
        .apart = dyti_fleet_is_apart(fleet, source, receiver),
        .snapshot = needs_snapshot(fleet, source, receiver),
        .whole = source == 0 && fleet->offer.snapshot};

    while (at < fleet->link_count && fleet->link[at].state != DYTI_LINK_FREE) {
        at++;
    }
    k.member = malloc(count * sizeof(*k.member));
    k.answered = calloc(count, sizeof(*k.answered));
    if (k.member == NULL || k.answered == NULL ||
        DYTI_GROW(fleet->link, fleet->link_cap, (size_t)at + 1) != DYT_OK) {
        free_link(&k);
        fleet->out_of_memory = true;
        return NONE;
    }
    memcpy(k.member, s->member, s->size * sizeof(*k.member));
    memcpy(k.member + s->size, r->member, r->size * sizeof(*k.member));
    fleet->link_count = at < fleet->link_count ? fleet->link_count : at + 1;
    fleet->link[at] = k;
    return at;
}

void dyti_fleet_begin(struct dyti_fleet *fleet, uint32_t group, uint32_t source,
                      uint64_t version, int64_t now_ns)
{
    struct dyti_fleet_group *g = &fleet->group[group];
    uint32_t link = find_link(fleet, source, group);

    link = link != NONE ? link : make_link(fleet, source, group);
    if (link == NONE || !dyti_fleet_move(g, DYTI_GE_BEGIN)) {
        return;
    }
    fleet->link[link].version = version;
    fleet->link[link].line = fleet->line;
    g->busy = link;
    fleet->group[source].readers++;
    fleet->link[link].reads = true;
    if (fleet->link[link].state == DYTI_LINK_READY) {
        run(fleet, link, now_ns);
    } else {
        start(fleet, link,
              fleet->link[link].snapshot ? DYTI_LINK_SNAPPING
                                         : DYTI_LINK_OPENING,
              now_ns);
    }
}

/* ---- answers ------------------------------------------------------------- */

/* What its other links know of a replica with two sets is of before: they would
 * write the one that it serves now. */
static void close_stale(struct dyti_fleet *fleet, uint32_t link)
{
    uint32_t group = fleet->link[link].receiver;
    const struct dyti_fleet_group *g = &fleet->group[group];

    if (g->member[0] == NONE ||
        fleet->member[g->member[0]].place.commit != DYT_COMMIT_DOUBLE) {
        return;
    }
    for (uint32_t l = 0; l < fleet->link_count; l++) {
        if (l != link && fleet->link[l].state == DYTI_LINK_READY &&
            fleet->link[l].receiver == group) {
            close_link(fleet, l);
        }
    }
}

/* The link is idle again: what is left of it, and of the replica? */
static void finish(struct dyti_fleet *fleet, uint32_t link)
{
    struct dyti_fleet_link *k = &fleet->link[link];
    struct dyti_fleet_group *g = receiver_of(fleet, k);
    uint32_t group = k->receiver, source = k->source;
    bool told = k->told;
    bool ok = k->committed && !k->receiver_failed;
    bool again = !ok && k->retry && !k->receiver_failed;
    bool mine = g->busy == link; /* not another group by now */
    enum dyt_status status = ok                    ? DYT_OK
                             : k->status != DYT_OK ? k->status
                                                   : DYT_ERR_PEER;
    char text[DYTI_FLEET_TEXT_BYTES];

    memcpy(text, k->text, sizeof(text));
    if (k->reads) {
        fleet->group[source].readers--;
        k->reads = false;
    }
    k->state = DYTI_LINK_READY;
    if (!mine) {
        close_link(fleet, link);
        return;
    }
    g->busy = NONE;
    g->bytes += k->moved_bytes;
    if (k->committed && !k->broken && g->state == DYTI_GROUP_RECEIVING) {
        g->version = k->version;
        g->current = k->line == fleet->line; /* not of a trainer before */
        g->alone = false;
        g->why_status = DYT_OK;
        g->why[0] = '\0';
    }
    /* committed, and one has not got it into place: not the whole replica */
    dyti_fleet_move(g, k->broken      ? DYTI_GE_BREAK
                       : k->committed ? DYTI_GE_COMMIT
                                      : DYTI_GE_KEEP);
    if (k->committed) {
        close_stale(fleet, link);
    }
    if (k->broken && g->state == DYTI_GROUP_INVALID) {
        g->version = 0;
        g->current = false;
    }
    if (again) { /* that sibling cannot be read: the trainer, or the next */
        g->alone = !k->aborted;
        dyti_fleet_blame(g, status, text);
    }
    if (k->status != DYT_OK || !ok ||
        source != 0) { /* siblings' are not kept */
        close_link(fleet, link);
    }
    if (!again && !told) { /* who asks by now asks for another */
        dyti_fleet_received(fleet, group, status, text);
    }
}

static void advance(struct dyti_fleet *fleet, uint32_t link, int64_t now_ns)
{
    struct dyti_fleet_link *k = &fleet->link[link];

    if (k->awaited > 0) {
        return;
    }
    if (k->status != DYT_OK || k->state == DYTI_LINK_RUNNING) {
        finish(fleet, link);
    } else if (k->state == DYTI_LINK_SNAPPING) {
        start(fleet, link, DYTI_LINK_OPENING, now_ns);
    } else {
        run(fleet, link, now_ns);
    }
}

/* The place of a member in a link that awaits it; NONE. */
static uint32_t awaited(const struct dyti_fleet *fleet,
                        const struct dyti_fleet_event *e)
{
    const struct dyti_fleet_link *k;

    if (e->link >= fleet->link_count) {
        return NONE;
    }
    k = &fleet->link[e->link];
    for (uint32_t i = 0; k->awaited > 0 && i < k->member_count; i++) {
        if (k->member[i] == e->member && !k->answered[i]) {
            return i;
        }
    }
    return NONE;
}

static void note_failure(struct dyti_fleet *fleet,
                         const struct dyti_fleet_event *e, uint32_t at)
{
    struct dyti_fleet_link *k = &fleet->link[e->link];
    char who[256], text[DYTI_FLEET_TEXT_BYTES];

    if (e->status == DYT_OK) {
        return;
    }
    /* Of several, the one that is not only told of another's. */
    if (k->status != DYT_OK && !(k->status == DYT_ERR_PEER && !k->aborted &&
                                 e->status != DYT_ERR_PEER)) {
        return;
    }
    dyti_fleet_member_text(fleet, e->member, who, sizeof(who));
    snprintf(text, sizeof(text), "%s: %s", who, e->text != NULL ? e->text : "");
    k->status = e->status;
    memcpy(k->text, text, sizeof(k->text));
    k->receiver_failed =
        k->receiver_failed || (at >= k->source_count && k->source == 0) ||
        (at >= k->source_count && k->state == DYTI_LINK_RUNNING);
    k->retry = k->source != 0 && k->state != DYTI_LINK_RUNNING;
    if (k->state != DYTI_LINK_RUNNING) { /* who opens waits for it */
        dyti_fleet_abort(fleet, e->link, at, e->status, text);
        k->aborted = false; /* nobody took it back: it failed */
    } else if (k->apart) {  /* who shares no page with it hears it from here */
        dyti_fleet_abort(fleet, e->link, at, e->status, text);
        k->aborted = false;
    }
}

void dyti_fleet_take_ready(struct dyti_fleet *fleet,
                           const struct dyti_fleet_event *e, int64_t now_ns)
{
    uint32_t at = awaited(fleet, e);
    struct dyti_fleet_link *k;

    if (at == NONE || fleet->link[e->link].state == DYTI_LINK_RUNNING) {
        return;
    }
    k = &fleet->link[e->link];
    k->answered[at] = true;
    k->awaited--;
    note_failure(fleet, e, at);
    advance(fleet, e->link, now_ns);
}

void dyti_fleet_take_ran(struct dyti_fleet *fleet,
                         const struct dyti_fleet_event *e)
{
    uint32_t at = awaited(fleet, e);
    struct dyti_fleet_link *k;

    if (at == NONE) {
        return;
    }
    k = &fleet->link[e->link];
    if (k->state != DYTI_LINK_RUNNING || e->epoch != k->epoch) {
        return;
    }
    k->answered[at] = true;
    k->awaited--;
    if (at >= k->source_count) {
        k->committed = k->committed || e->committed;
        k->broken = k->broken || e->broken;
        k->moved_bytes += e->moved_bytes;
    }
    note_failure(fleet, e, at);
    advance(fleet, e->link, 0);
}

void dyti_fleet_links_lose(struct dyti_fleet *fleet, uint32_t member,
                           enum dyt_status status, const char *text)
{
    for (uint32_t l = 0; l < fleet->link_count; l++) {
        struct dyti_fleet_link *k = &fleet->link[l];

        for (uint32_t i = 0; i < k->member_count; i++) {
            if (k->member[i] != member || k->state == DYTI_LINK_READY ||
                k->state == DYTI_LINK_FREE) {
                continue;
            }
            dyti_fleet_abort(fleet, l, i, status, text);
            k->retry = k->source != 0 && i < k->source_count;
            k->receiver_failed = k->receiver_failed || i >= k->source_count;
            if (!k->answered[i]) {
                k->answered[i] = true;
                k->awaited--;
            }
            k->member[i] = NONE;
            advance(fleet, l, 0);
            break;
        }
    }
}
