/* Joins: is the place free, do the degrees fit, and whose group is it? */
#include "phase/fleet.h"

#include "base/array.h"
#include "phase/fleet_internal.h"

#include <stdlib.h>
#include <string.h>

static enum dyt_status check_degrees(const struct dyti_fleet_place *p)
{
    uint64_t cells = (uint64_t)p->tp_size * p->pp_size * p->dp_size;

    if (p->size == 0 || p->size > DYTI_FLEET_MAX_SIZE || p->rank >= p->size) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "rank %u of %u: ranks count from 0 and are fewer than "
                         "the size, which is at most %u",
                         p->rank, p->size, DYTI_FLEET_MAX_SIZE);
    }
    if (p->tp_rank >= p->tp_size || p->pp_rank >= p->pp_size ||
        p->dp_rank >= p->dp_size || p->ep_rank >= p->ep_size) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "rank %u has tp %u of %u, pp %u of %u, dp %u of %u, "
                         "ep %u of %u: each must be below its size",
                         p->rank, p->tp_rank, p->tp_size, p->pp_rank,
                         p->pp_size, p->dp_rank, p->dp_size, p->ep_rank,
                         p->ep_size);
    }
    if (cells != 1 && cells != p->size) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "tp %u x pp %u x dp %u makes %llu ranks, but the size "
                         "is %u: give each rank its own coordinates",
                         p->tp_size, p->pp_size, p->dp_size,
                         (unsigned long long)cells, p->size);
    }
    return DYT_OK;
}

static bool same_coordinates(const struct dyti_fleet_place *a,
                             const struct dyti_fleet_place *b)
{
    return (uint64_t)a->tp_size * a->pp_size * a->dp_size != 1 &&
           a->tp_rank == b->tp_rank && a->pp_rank == b->pp_rank &&
           a->dp_rank == b->dp_rank;
}

/* Against one who is there already. */
static enum dyt_status check_beside(const struct dyti_fleet *fleet,
                                    const struct dyti_fleet_place *p,
                                    uint32_t other)
{
    const struct dyti_fleet_place *q = &fleet->member[other].place;
    char who[256];

    dyti_fleet_member_text(fleet, other, who, sizeof(who));
    if (p->size != q->size || p->tp_size != q->tp_size ||
        p->pp_size != q->pp_size || p->dp_size != q->dp_size ||
        p->ep_size != q->ep_size) {
        return DYTI_FAIL(p->role == DYTI_FLEET_TRAINER ? DYT_ERR_BUSY
                                                       : DYT_ERR_CONFIG,
                         "rank %u (pid %u) has size %u, tp %u, pp %u, dp %u, "
                         "ep %u, but %s is there with size %u, tp %u, pp %u, "
                         "dp %u, ep %u: %s",
                         p->rank, p->pid, p->size, p->tp_size, p->pp_size,
                         p->dp_size, p->ep_size, who, q->size, q->tp_size,
                         q->pp_size, q->dp_size, q->ep_size,
                         p->role == DYTI_FLEET_TRAINER
                             ? "a job has one trainer"
                             : "give another replica number, or the same "
                               "degrees");
    }
    if (p->rank == q->rank) {
        return DYTI_FAIL(DYT_ERR_BUSY, "%s has this place%s", who,
                         p->role == DYTI_FLEET_TRAINER
                             ? ": a job has one trainer"
                             : "; give each server a replica number of its "
                               "own");
    }
    if (same_coordinates(p, q)) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "rank %u has tp %u, pp %u, dp %u, which is also that "
                         "of %s: no two ranks may share coordinates",
                         p->rank, p->tp_rank, p->pp_rank, p->dp_rank, who);
    }
    if (p->host != q->host && p->role == DYTI_FLEET_RECEIVER) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "rank %u is on %s and %s on another host: members of "
                         "one replica must map each other's memory; run one "
                         "replica per host",
                         p->rank, p->host_name, who);
    }
    return DYT_OK;
}

static uint32_t find_group(const struct dyti_fleet *fleet,
                           const struct dyti_fleet_place *p)
{
    if (p->role == DYTI_FLEET_TRAINER) {
        return 0;
    }
    for (uint32_t i = 1; i < fleet->group_count; i++) {
        const struct dyti_fleet_group *g = &fleet->group[i];

        if (g->used && g->number == p->replica &&
            strcmp(g->pool, p->pool) == 0) {
            return i;
        }
    }
    return NONE;
}

bool dyti_fleet_is_deserted(const struct dyti_fleet_group *g)
{
    for (uint32_t r = 0; r < g->size; r++) {
        if (g->member[r] != NONE) {
            return false;
        }
    }
    return true;
}

/* A group for this place, new or deserted. */
static enum dyt_status make_group(struct dyti_fleet *fleet,
                                  const struct dyti_fleet_place *p,
                                  uint32_t *out)
{
    uint32_t at = find_group(fleet, p);
    uint32_t *member = malloc(p->size * sizeof(*member));
    struct dyti_fleet_group *g;
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 1; at == NONE && i < fleet->group_count; i++) {
        at = fleet->group[i].used ? NONE : i;
    }
    if (at == NONE) {
        at = (uint32_t)fleet->group_count;
        st = DYTI_GROW(fleet->group, fleet->group_cap, fleet->group_count + 1);
    }
    if (member == NULL || st != DYT_OK) {
        free(member);
        return DYTI_FAIL(DYT_ERR_NOMEM, "a group of %u members", p->size);
    }
    if (at == fleet->group_count) {
        fleet->group[fleet->group_count++] = (struct dyti_fleet_group){0};
    }
    for (uint32_t r = 0; r < p->size; r++) {
        member[r] = NONE;
    }
    for (uint32_t l = 0; l < fleet->link_count; l++) {
        if (fleet->link[l].source == at) { /* it read the one before */
            fleet->link[l].reads = false;
        }
    }
    g = &fleet->group[at];
    free(g->member);
    *g = (struct dyti_fleet_group){.used = true,
                                   .role = p->role,
                                   .number = p->replica,
                                   .size = p->size,
                                   .member = member,
                                   .host = p->host,
                                   .state = DYTI_GROUP_JOINING,
                                   .busy = NONE,
                                   .why_status = g->why_status};
    memcpy(g->pool, p->pool, sizeof(g->pool));
    *out = at;
    return DYT_OK;
}

static enum dyt_status free_member(struct dyti_fleet *fleet, uint32_t *out)
{
    enum dyt_status st;

    for (uint32_t i = 0; i < fleet->member_count; i++) {
        if (fleet->member[i].state == DYTI_MEMBER_FREE) {
            *out = i;
            return DYT_OK;
        }
    }
    st = DYTI_GROW(fleet->member, fleet->member_cap, fleet->member_count + 1);
    if (st == DYT_OK) {
        *out = (uint32_t)fleet->member_count;
        fleet->member[fleet->member_count++] =
            (struct dyti_fleet_member){.group = NONE};
    }
    return st;
}

/* The first rank of a new trainer: what the replicas hold is of an old line. */
static void new_line(struct dyti_fleet *fleet)
{
    fleet->line++;
    fleet->last_version = 0;
    fleet->any_version = false;
    fleet->offer = (struct dyti_fleet_offer){0};
    for (size_t i = 1; i < fleet->group_count; i++) {
        fleet->group[i].current = false;
    }
}

/* The trainer's, where the manager was not given one. */
static void take_policy(struct dyti_fleet *fleet,
                        const struct dyti_fleet_place *p)
{
    if (!fleet->policy_given) {
        fleet->policy = p->policy;
        fleet->quorum = p->quorum;
    }
    if (!fleet->skew_given) {
        fleet->max_version_skew = p->max_version_skew;
    }
}

/* Who comes anew is behind nobody: it waits for those that sleep. */
static uint64_t most_releases(const struct dyti_fleet *fleet, uint32_t group)
{
    const struct dyti_fleet_group *g = &fleet->group[group];
    uint64_t most = 0;

    for (uint32_t r = 0; r < g->size; r++) {
        uint64_t n =
            g->member[r] != NONE ? fleet->member[g->member[r]].releases : 0;

        most = n > most ? n : most;
    }
    return most;
}

enum dyt_status dyti_fleet_join(struct dyti_fleet *fleet,
                                const struct dyti_fleet_place *p,
                                int64_t now_ns, uint32_t *out_member)
{
    uint32_t at = find_group(fleet, p), id = NONE;
    enum dyt_status st = check_degrees(p);
    bool fresh = at == NONE || !fleet->group[at].used ||
                 dyti_fleet_is_deserted(&fleet->group[at]);

    for (uint32_t r = 0; st == DYT_OK && !fresh && r < fleet->group[at].size;
         r++) {
        uint32_t other = fleet->group[at].member[r];

        st = other != NONE ? check_beside(fleet, p, other) : DYT_OK;
    }
    if (st == DYT_OK) {
        st = free_member(fleet, &id);
    }
    if (st == DYT_OK && fresh) {
        st = make_group(fleet, p, &at);
    }
    if (st != DYT_OK) {
        return st;
    }
    if (fresh && at == 0) {
        new_line(fleet);
    }
    fleet->member[id] = (struct dyti_fleet_member){.state = DYTI_MEMBER_JOINED,
                                                   .place = *p,
                                                   .group = at,
                                                   .heard_ns = now_ns};
    fleet->member[id].releases = most_releases(fleet, at);
    fleet->group[at].member[p->rank] = id;
    dyti_fleet_move(&fleet->group[at], DYTI_GE_JOIN);
    if (at == 0 && p->rank == 0) {
        take_policy(fleet, p);
    }
    *out_member = id;
    return DYT_OK;
}
