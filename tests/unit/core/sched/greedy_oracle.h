/* List scheduling straight from its definition, without heaps, rows, tables or
 * lists of who is idle: at each time when ends become free, those choose, the
 * one with most left first, for its partner the free end with most left. */
#ifndef DYT_GREEDY_ORACLE_H
#define DYT_GREEDY_ORACLE_H

#include "sched/order.h"

#include <stdlib.h>

#define DYT_GREEDY_RANKS 40u

struct dyt_greedy {
    const struct dyti_graph *g;
    uint64_t *given;   /* [edges] parts that have begun */
    uint64_t *busy_to; /* [edges] when the part under way ends; 0: none is */
    uint32_t round[2][DYT_GREEDY_RANKS];
    bool may[2][DYT_GREEDY_RANKS]; /* choose at this time */
    struct dyti_takes out;
};

static inline uint32_t dyt_greedy_end(const struct dyti_edge *e, int side)
{
    return side == 0 ? e->from : e->to;
}

static inline uint64_t dyt_greedy_parts(const struct dyt_greedy *s, size_t i)
{
    return dyti_part_count(s->g->edge[i].bytes, s->g->chunk_bytes);
}

static inline bool dyt_greedy_taken(const struct dyt_greedy *s, int side,
                                    uint32_t rank)
{
    bool taken = false;

    for (size_t i = 0; i < s->g->count; i++) {
        taken |=
            s->busy_to[i] > 0 && dyt_greedy_end(&s->g->edge[i], side) == rank;
    }
    return taken;
}

/* Bytes that have not begun: of an end, or of all ends of its host. */
static inline uint64_t dyt_greedy_left(const struct dyt_greedy *s, int side,
                                       uint32_t rank, bool of_host)
{
    uint64_t left = 0;

    for (size_t i = 0; i < s->g->count; i++) {
        const struct dyti_edge *e = &s->g->edge[i];
        uint32_t end = dyt_greedy_end(e, side);

        if (of_host ? s->g->host[end] == s->g->host[rank] : end == rank) {
            left += e->bytes - dyti_part_begin(e->bytes, dyt_greedy_parts(s, i),
                                               s->given[i]);
        }
    }
    return left;
}

/* The more of its own bytes and of its host's for each of its slots. */
static inline uint64_t dyt_greedy_urgency(const struct dyt_greedy *s, int side,
                                          uint32_t rank)
{
    uint64_t own = dyt_greedy_left(s, side, rank, false), host = 0;

    if (s->g->host_slots > 0) {
        host = dyt_greedy_left(s, side, rank, true) / s->g->host_slots;
    }
    return own > host ? own : host;
}

static inline bool dyt_greedy_open(const struct dyt_greedy *s, int side,
                                   uint32_t rank)
{
    uint32_t used = 0;

    for (size_t i = 0; i < s->g->count && s->g->host_slots > 0; i++) {
        uint32_t end = dyt_greedy_end(&s->g->edge[i], side);

        used += s->busy_to[i] > 0 && s->g->host[end] == s->g->host[rank];
    }
    return !dyt_greedy_taken(s, side, rank) &&
           (s->g->host_slots == 0 || used < s->g->host_slots);
}

/* Of all edges of an end the one whose other end is most urgent, then the
 * first; s->g->count: none can begin. */
static inline size_t dyt_greedy_edge(const struct dyt_greedy *s, int side,
                                     uint32_t rank)
{
    size_t best = s->g->count;
    uint64_t most = 0;

    for (size_t i = 0; i < s->g->count; i++) {
        uint32_t other = dyt_greedy_end(&s->g->edge[i], 1 - side);
        uint64_t urgency;

        if (dyt_greedy_end(&s->g->edge[i], side) != rank ||
            s->given[i] == dyt_greedy_parts(s, i) ||
            !dyt_greedy_open(s, 1 - side, other)) {
            continue;
        }
        urgency = dyt_greedy_urgency(s, 1 - side, other);
        if (best == s->g->count || urgency > most) {
            best = i;
            most = urgency;
        }
    }
    return best;
}

static inline enum dyt_status dyt_greedy_begin(struct dyt_greedy *s, size_t i,
                                               uint64_t now)
{
    const struct dyti_edge *e = &s->g->edge[i];
    uint64_t parts = dyt_greedy_parts(s, i), k = s->given[i]++;
    uint64_t bytes = dyti_part_begin(e->bytes, parts, k + 1) -
                     dyti_part_begin(e->bytes, parts, k);
    uint32_t a = s->round[0][e->from], b = s->round[1][e->to];
    uint32_t round = a > b ? a : b;

    s->busy_to[i] = now + bytes;
    s->round[0][e->from] = s->round[1][e->to] = round + 1;
    return dyti_take_add(&s->out, (uint32_t)i, round, bytes);
}

/* Of those that may choose the most urgent, then the lowest rank, a sender
 * before a receiver; until none is left. */
static inline enum dyt_status dyt_greedy_match(struct dyt_greedy *s,
                                               uint64_t now)
{
    enum dyt_status st = DYT_OK;

    while (st == DYT_OK) {
        int best = -1;
        uint64_t most = 0;
        size_t edge = s->g->count;

        for (int at = 0; at < (int)(2 * s->g->rank_count); at++) {
            uint32_t rank = (uint32_t)at / 2;
            uint64_t urgency;

            if (!s->may[at % 2][rank] || dyt_greedy_taken(s, at % 2, rank)) {
                continue;
            }
            urgency = dyt_greedy_urgency(s, at % 2, rank);
            if (best < 0 || urgency > most) {
                best = at;
                most = urgency;
            }
        }
        if (best < 0) {
            return DYT_OK;
        }
        s->may[best % 2][best / 2] = false;
        if (dyt_greedy_open(s, best % 2, (uint32_t)best / 2)) {
            edge = dyt_greedy_edge(s, best % 2, (uint32_t)best / 2);
        }
        st = edge == s->g->count ? st : dyt_greedy_begin(s, edge, now);
    }
    return st;
}

/* Who may choose at `now`: those whose part has ended; where hosts have slots
 * all, as one may have become free. */
static inline void dyt_greedy_free(struct dyt_greedy *s, uint64_t now)
{
    for (uint32_t r = 0; r < s->g->rank_count; r++) {
        s->may[0][r] = s->may[1][r] = now == 0 || s->g->host_slots > 0;
    }
    for (size_t i = 0; i < s->g->count; i++) {
        if (s->busy_to[i] == now && now > 0) {
            s->busy_to[i] = 0;
            s->may[0][s->g->edge[i].from] = true;
            s->may[1][s->g->edge[i].to] = true;
        }
    }
}

/* free(out->take).  O(parts * ranks * edges^2). */
static inline enum dyt_status dyt_greedy_takes(const struct dyti_graph *g,
                                               struct dyti_takes *out)
{
    struct dyt_greedy s = {.g = g,
                           .given = calloc(g->count + 1, sizeof(*s.given)),
                           .busy_to = calloc(g->count + 1, sizeof(*s.busy_to))};
    uint64_t now = 0;
    bool more = s.given != NULL && s.busy_to != NULL;
    enum dyt_status st = more ? DYT_OK : DYT_ERR_NOMEM;

    while (more && st == DYT_OK) {
        dyt_greedy_free(&s, now);
        st = dyt_greedy_match(&s, now);
        more = false;
        for (size_t i = 0; i < g->count; i++) {
            if (s.busy_to[i] > 0 && (!more || s.busy_to[i] < now)) {
                now = s.busy_to[i];
                more = true;
            }
        }
    }
    free(s.given);
    free(s.busy_to);
    *out = s.out;
    return st;
}

#endif /* DYT_GREEDY_ORACLE_H */
