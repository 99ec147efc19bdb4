/* `optimal`: matchings of chunks, for each link class on its own, so that what
 * stays inside hosts and what crosses NICs move at the same time.  Three ways
 * to find them are tried, the simplest first; the certificate decides. */
#include "base/array.h"
#include "base/sort.h"
#include "sched/certificate.h"
#include "sched/order.h"
#include "sched/replay.h"

#include <stdlib.h>
#include <string.h>

/* Near enough to the load: nothing better is looked for.  A class that is not
 * the busiest need only be done before that one. */
#define GOOD       1.01
#define SLACK      0.8
#define FINER      3    /* times that the chunk is halved, … */
#define FINER_FROM 1.03 /* … where the best takes longer than this */
/* Flows of a rank from which on most are no bigger than a chunk: parts of
 * uneven size, which list scheduling is best at. */
#define CROWD 128u
/* A chunk is no smaller than what goes in so many costs of a message. */
#define COSTS 8.0

typedef enum dyt_status (*make_takes_fn)(const struct dyti_graph *graph,
                                         struct dyti_takes *out_takes);

/* One class of one wave. */
struct lane {
    const struct dyti_order *in;
    enum dyti_link_class link;
    uint32_t wave;
    struct dyti_edge *edge;
    struct dyti_flow *flow; /* the same, for the load */
    size_t count, cap, flow_cap;
    double load_s;
};

struct choice {
    struct dyti_takes takes;
    double fluid_s, cost_s;
    bool any;
};

/* ---- what there is ------------------------------------------------------ */

static enum dyt_status fill_lane(struct lane *l, const uint32_t *sorted)
{
    const struct dyti_order *in = l->in;
    struct dyti_busiest busiest;
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < in->flow_count && st == DYT_OK; i++) {
        const struct dyti_flow *f = &in->flow[sorted[i]];

        if (f->wave != l->wave ||
            dyti_cluster_link(in->cluster, f->src, f->dst) != l->link) {
            continue;
        }
        st = DYTI_GROW(l->edge, l->cap, l->count + 1);
        st = st != DYT_OK ? st : DYTI_GROW(l->flow, l->flow_cap, l->count + 1);
        if (st == DYT_OK) {
            l->flow[l->count] = *f;
            l->edge[l->count++] =
                (struct dyti_edge){f->src, f->dst, f->bytes, sorted[i]};
        }
    }
    if (st == DYT_OK) {
        st = dyti_busiest_of_flows(in->cluster, l->flow, l->count, &busiest);
        l->load_s = st == DYT_OK ? busiest.seconds : 0.0;
    }
    return st;
}

/* 1/64 of the busiest rank's bytes of this class, all waves together. */
static enum dyt_status choose_chunk(const struct dyti_order *in,
                                    enum dyti_link_class link,
                                    uint64_t *out_chunk)
{
    const struct dyti_link_speed *l = &in->cluster->link[link];
    uint64_t *sum = calloc(2 * (size_t)in->cluster->rank_count + 1, 8);
    double least = COSTS * l->message_s * l->bytes_per_s;
    uint64_t most = 0, chunk;

    if (in->chunk_bytes != 0) {
        free(sum);
        *out_chunk = in->chunk_bytes;
        return DYT_OK;
    }
    if (sum == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u ranks", in->cluster->rank_count);
    }
    for (size_t i = 0; i < in->flow_count; i++) {
        const struct dyti_flow *f = &in->flow[i];

        if (dyti_cluster_link(in->cluster, f->src, f->dst) == link) {
            uint64_t *a = &sum[2 * (size_t)f->src];
            uint64_t *b = &sum[2 * (size_t)f->dst + 1];

            *a += f->bytes;
            *b += f->bytes;
            most = *a > most ? *a : most;
            most = *b > most ? *b : most;
        }
    }
    free(sum);
    chunk = most / 64;
    if (least < 1e18 && (double)chunk < least) {
        chunk = (uint64_t)least;
    }
    *out_chunk = chunk < DYTI_PIECE_ALIGN ? DYTI_PIECE_ALIGN : chunk;
    return DYT_OK;
}

static void use_host_slots(const struct lane *l, struct dyti_graph *g)
{
    const struct dyti_cluster *c = l->in->cluster;
    double slots;

    g->host = c->host;
    g->host_count = c->host_count;
    if (l->link == DYTI_LINK_NIC && c->host_nic_bytes_per_s > 0.0) {
        slots = c->host_nic_bytes_per_s / c->link[DYTI_LINK_NIC].bytes_per_s;
        slots = slots < 1.0 ? 1.0 : slots;
        /* a part of a slot is shared by one more */
        g->host_slots = slots >= c->rank_count ? 0 : (uint32_t)(slots + 0.999);
    }
}

/* ---- pieces of takes ---------------------------------------------------- */

/* `given`: bytes of each flow that are in pieces already. */
static enum dyt_status add_takes(const struct lane *l,
                                 const struct dyti_takes *takes, uint32_t round,
                                 uint64_t *given, struct dyti_piece_list *list)
{
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < takes->count && st == DYT_OK; i++) {
        const struct dyti_take *t = &takes->take[i];
        const struct dyti_edge *e = &l->edge[t->edge];
        struct dyti_piece p = {.src = e->from,
                               .dst = e->to,
                               .wave = l->wave,
                               .from = e->from,
                               .to = e->to,
                               .round = round + t->round,
                               .lo = given[e->flow],
                               .hi = given[e->flow] + t->bytes};

        given[e->flow] = p.hi;
        st = dyti_piece_add(list, &p);
    }
    return st;
}

static int by_round(const void *a, const void *b)
{
    const struct dyti_take *x = a, *y = b;

    return x->round != y->round ? (x->round < y->round ? -1 : 1)
                                : (x->edge > y->edge) - (x->edge < y->edge);
}

static uint64_t place_of_take(const void *item)
{
    const struct dyti_take *t = item;

    return (uint64_t)t->round << 32 | t->edge;
}

/* How long do these take, alone on the cluster? */
static enum dyt_status judge(const struct lane *l, uint64_t *given,
                             struct choice *c)
{
    const struct dyti_replay_options costs = {.costs = true};
    const struct dyti_link_speed *link = &l->in->cluster->link[l->link];
    struct dyti_piece_list list = {0};
    enum dyt_status st;

    dyti_sort(c->takes.take, c->takes.count, sizeof(*c->takes.take),
              place_of_take, by_round);
    for (size_t i = 0; i < l->count; i++) {
        given[l->edge[i].flow] = 0;
    }
    st = add_takes(l, &c->takes, 0, given, &list);
    for (size_t i = 0; i < list.count; i++) {
        list.piece[i].wave = 0; /* nothing came before */
    }
    st = st != DYT_OK ? st
                      : dyti_replay(l->in->cluster, list.piece, list.count,
                                    NULL, &c->fluid_s);
    c->cost_s = c->fluid_s;
    if (st == DYT_OK && (link->message_s > 0.0 || link->latency_s > 0.0)) {
        st = dyti_replay(l->in->cluster, list.piece, list.count, &costs,
                         &c->cost_s);
    }
    for (size_t i = 0; i < l->count; i++) {
        given[l->edge[i].flow] = 0;
    }
    free(list.piece);
    return st;
}

/* Keep the quicker; of two that are as quick the one with fewer pieces. */
static void keep_better(struct choice *best, struct choice *next)
{
    double edge = best->takes.count <= next->takes.count ? 0.999 : 1.001;

    if (!best->any || next->cost_s < best->cost_s * edge) {
        free(best->takes.take);
        *best = *next;
        best->any = true;
    } else {
        free(next->takes.take);
    }
    *next = (struct choice){0};
}

static enum dyt_status choose(const struct lane *l, uint64_t chunk,
                              double busiest_s, uint64_t *given,
                              struct choice *out)
{
    static const make_takes_fn ways[] = {dyti_takes_coloured, dyti_takes_greedy,
                                         dyti_takes_sliced};
    static const make_takes_fn crowded[] = {
        dyti_takes_greedy, dyti_takes_coloured, dyti_takes_sliced};
    struct dyti_graph g = {.rank_count = l->in->cluster->rank_count,
                           .edge = l->edge,
                           .count = l->count};
    double enough = GOOD * l->load_s > SLACK * busiest_s ? GOOD * l->load_s
                                                         : SLACK * busiest_s;
    struct choice best = {0};
    enum dyt_status st = DYT_OK;

    use_host_slots(l, &g);
    for (int finer = 0; finer <= FINER && st == DYT_OK; finer++) {
        g.chunk_bytes = chunk >> finer;
        if (finer > 0 && (g.chunk_bytes < DYTI_PIECE_ALIGN ||
                          best.fluid_s <= FINER_FROM * l->load_s ||
                          best.fluid_s <= enough)) {
            break;
        }
        for (size_t k = 0; k < sizeof(ways) / sizeof(ways[0]); k++) {
            struct choice next = {0};

            st = (l->count > CROWD * (size_t)g.rank_count ? crowded : ways)[k](
                &g, &next.takes);
            if (st == DYT_ERR_UNSUPPORTED) { /* too much to try */
                st = DYT_OK;
                continue;
            }
            st = st != DYT_OK ? st : judge(l, given, &next);
            if (st != DYT_OK) {
                free(next.takes.take);
                break;
            }
            keep_better(&best, &next);
            if (best.fluid_s <= enough) {
                break;
            }
        }
    }
    if (st != DYT_OK) {
        free(best.takes.take);
        return st;
    }
    *out = best;
    return DYT_OK;
}

/* ---- the whole ---------------------------------------------------------- */

/* Both classes of a wave, side by side from round `*io_round` on. */
static enum dyt_status add_wave(const struct dyti_order *in, uint32_t wave,
                                const uint32_t *sorted, const uint64_t *chunk,
                                uint64_t *given, uint32_t *io_round,
                                struct dyti_piece_list *list)
{
    struct lane lane[DYTI_LINK_CLASS_COUNT] = {0};
    double busiest = 0.0;
    uint32_t rounds = 0;
    enum dyt_status st = DYT_OK;

    for (int k = DYTI_LINK_HOST; k < DYTI_LINK_CLASS_COUNT; k++) {
        if (st == DYT_OK) {
            lane[k] = (struct lane){
                .in = in, .link = (enum dyti_link_class)k, .wave = wave};
            st = fill_lane(&lane[k], sorted);
            busiest = lane[k].load_s > busiest ? lane[k].load_s : busiest;
        }
    }
    for (int k = DYTI_LINK_HOST; k < DYTI_LINK_CLASS_COUNT; k++) {
        struct choice c = {0};

        if (st == DYT_OK && lane[k].count > 0) {
            st = choose(&lane[k], chunk[k], busiest, given, &c);
            st = st != DYT_OK
                     ? st
                     : add_takes(&lane[k], &c.takes, *io_round, given, list);
            rounds =
                c.takes.round_count > rounds ? c.takes.round_count : rounds;
            free(c.takes.take);
        }
        free(lane[k].edge);
        free(lane[k].flow);
    }
    *io_round += rounds;
    return st;
}

static enum dyt_status order(const struct dyti_order *in,
                             struct dyti_pieces *out_pieces)
{
    uint64_t chunk[DYTI_LINK_CLASS_COUNT] = {0}, *given = NULL;
    struct dyti_piece_list list = {0};
    uint32_t *sorted = NULL, round = 0;
    enum dyt_status st = dyti_order_sorted(in, &sorted);

    for (int k = DYTI_LINK_HOST; st == DYT_OK && k < DYTI_LINK_CLASS_COUNT;
         k++) {
        st = choose_chunk(in, (enum dyti_link_class)k, &chunk[k]);
    }
    if (st == DYT_OK) {
        given = calloc(in->flow_count + 1, sizeof(*given));
        st = given != NULL
                 ? DYT_OK
                 : DYTI_FAIL(DYT_ERR_NOMEM, "%zu flows", in->flow_count);
    }
    for (size_t i = 0; i < in->flow_count && st == DYT_OK; i++) {
        uint32_t wave = in->flow[sorted[i]].wave;

        if (i == 0 || wave != in->flow[sorted[i - 1]].wave) {
            st = add_wave(in, wave, sorted, chunk, given, &round, &list);
        }
    }
    st = st != DYT_OK ? st : dyti_pieces_finish(in, &list, out_pieces);
    if (st != DYT_OK) {
        DYTI_NOTE("ordering %zu flows by 'optimal'", in->flow_count);
    }
    free(list.piece);
    free(given);
    free(sorted);
    return st;
}

const struct dyti_strategy_ops dyti_strategy_optimal = {.name = "optimal",
                                                        .order = order};
