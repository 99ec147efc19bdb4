/* `funnel`: three hops, of streams or, where the detours are given, of
 * tensors.  What a rank sends goes to the one of its replicas that
 * speaks for all of them; those exchange; the one that speaks for the receiver
 * scatters to it.  Each hop is ordered by `optimal`, and a chunk goes on as
 * soon as it is there: better than phases behind barriers, and as good as the
 * idea allows. */
#include "base/array.h"
#include "sched/certificate.h"
#include "sched/order.h"

#include <stdlib.h>
#include <string.h>

#define HOPS 3u

/* The way of one flow: places[0] … places[hops]. */
struct way {
    uint32_t place[HOPS + 1], hops;
};

struct hop_flow { /* traffic of one hop between two ranks */
    uint32_t from, to, flow;
};

static void way_of(const struct dyti_order *in, const struct dyti_flow *f,
                   const uint32_t *host_lead, struct way *out)
{
    const uint32_t *a = in->src_lead != NULL ? in->src_lead : host_lead;
    const uint32_t *b = in->dst_lead != NULL ? in->dst_lead : host_lead;
    uint32_t step[] = {a[f->src], b[f->dst], f->dst};

    out->place[0] = f->src;
    out->hops = 0;
    for (uint32_t k = 0; k < HOPS; k++) {
        if (step[k] != out->place[out->hops]) {
            out->place[++out->hops] = step[k];
        }
    }
    if (out->place[1] == f->dst || b[f->dst] == f->src) {
        out->place[1] = f->dst; /* there and back again is not needed */
        out->hops = 1;
    }
}

static enum dyt_status make_leads(const struct dyti_order *in,
                                  uint32_t **out_lead)
{
    const struct dyti_cluster *c = in->cluster;
    uint32_t *lead = malloc(((size_t)c->rank_count + 1) * sizeof(*lead));
    uint32_t *of_host = malloc(((size_t)c->host_count + 1) * sizeof(*of_host));

    if (lead == NULL || of_host == NULL) {
        free(lead);
        free(of_host);
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u ranks", c->rank_count);
    }
    memset(of_host, 0xff, c->host_count * sizeof(*of_host));
    for (uint32_t i = 0; i < c->rank_count; i++) {
        uint32_t *first = &of_host[c->host[i]];

        *first = *first == UINT32_MAX ? i : *first;
        lead[i] = *first;
    }
    free(of_host);
    for (uint32_t i = 0; i < c->rank_count; i++) {
        if ((in->src_lead != NULL && in->src_lead[i] >= c->rank_count) ||
            (in->dst_lead != NULL && in->dst_lead[i] >= c->rank_count)) {
            free(lead);
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "the replica that speaks for rank %u is none of "
                             "%u ranks",
                             i, c->rank_count);
        }
    }
    *out_lead = lead;
    return DYT_OK;
}

/* ---- one hop ------------------------------------------------------------ */

static int compare_hop(const void *a, const void *b)
{
    const struct hop_flow *x = a, *y = b;

    if (x->from != y->from) {
        return x->from < y->from ? -1 : 1;
    }
    if (x->to != y->to) {
        return x->to < y->to ? -1 : 1;
    }
    return (x->flow > y->flow) - (x->flow < y->flow);
}

/* Chunks of one stream that take this hop, by (from, to, flow). */
static enum dyt_status collect(const struct dyti_order *in,
                               const struct way *way, uint32_t wave,
                               uint32_t hop, struct hop_flow *hops,
                               size_t *out_count)
{
    size_t count = 0;

    for (size_t i = 0; i < in->flow_count; i++) {
        if (in->flow[i].wave == wave && hop < way[i].hops) {
            hops[count++] = (struct hop_flow){
                way[i].place[hop], way[i].place[hop + 1], (uint32_t)i};
        }
    }
    qsort(hops, count, sizeof(*hops), compare_hop);
    *out_count = count;
    return DYT_OK;
}

struct funnel {
    const struct dyti_order *in;
    struct way *way;       /* [flows] */
    struct hop_flow *hops; /* [flows] */
    uint64_t chunk;
    struct dyti_piece_list list;
    uint32_t round;
};

/* One edge for each pair of ranks of a hop, of as many units as its streams
 * have chunks.  first[e] is the first stream of edge e in f->hops. */
static size_t edges_of(const struct funnel *f, size_t count,
                       struct dyti_edge *edge, size_t *first)
{
    size_t edges = 0;

    for (size_t i = 0; i < count; i++) {
        const struct hop_flow *hop = &f->hops[i];

        if (i == 0 || hop->from != hop[-1].from || hop->to != hop[-1].to) {
            edge[edges] =
                (struct dyti_edge){hop->from, hop->to, 0, (uint32_t)edges};
            first[edges++] = i;
        }
        edge[edges - 1].bytes +=
            dyti_part_count(f->in->flow[hop->flow].bytes, f->chunk) *
            DYTI_PIECE_ALIGN;
    }
    first[edges] = count;
    return edges;
}

/* Deals chunks of streams to the parts that `optimal` made of their sum: the
 * order of matchings stays, pieces are chunks of streams.
 * cursor of each edge: first[e] is its stream, chunk[e] which of its chunks. */
static enum dyt_status deal_chunks(struct funnel *f, uint32_t wave,
                                   uint32_t hop, const struct dyti_takes *takes,
                                   size_t *first, uint64_t *chunk)
{
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < takes->count && st == DYT_OK; i++) {
        size_t e = takes->take[i].edge;
        const struct dyti_flow *flow = &f->in->flow[f->hops[first[e]].flow];
        uint64_t parts = dyti_part_count(flow->bytes, f->chunk);
        struct dyti_piece p = {
            .src = flow->src,
            .dst = flow->dst,
            .wave = wave,
            .from = f->hops[first[e]].from,
            .to = f->hops[first[e]].to,
            .round = f->round + takes->take[i].round,
            .hop = hop,
            .lo = dyti_part_begin(flow->bytes, parts, chunk[e]),
            .hi = dyti_part_begin(flow->bytes, parts, chunk[e] + 1)};

        st = dyti_piece_add(&f->list, &p);
        if (++chunk[e] == parts) {
            chunk[e] = 0;
            first[e]++;
        }
    }
    f->round += takes->round_count;
    return st;
}

static enum dyt_status add_hop(struct funnel *f, uint32_t wave, uint32_t hop)
{
    struct dyti_takes takes = {0};
    struct dyti_graph g = {.rank_count = f->in->cluster->rank_count,
                           .chunk_bytes = DYTI_PIECE_ALIGN};
    struct dyti_edge *edge = NULL;
    size_t *first = NULL, count = 0;
    uint64_t *chunk = NULL;
    enum dyt_status st = collect(f->in, f->way, wave, hop, f->hops, &count);

    if (st != DYT_OK || count == 0) {
        return st;
    }
    edge = malloc(count * sizeof(*edge));
    first = malloc((count + 1) * sizeof(*first));
    chunk = calloc(count, sizeof(*chunk));
    if (edge == NULL || first == NULL || chunk == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu flows", count);
        goto out;
    }
    g.edge = edge;
    g.count = edges_of(f, count, edge, first);
    st = dyti_takes_coloured(&g, &takes);
    st = st != DYT_OK ? st : deal_chunks(f, wave, hop, &takes, first, chunk);
out:
    free(takes.take);
    free(edge);
    free(first);
    free(chunk);
    return st;
}

/* 1/64 of what the busiest rank sends or receives in its busiest hop. */
static enum dyt_status choose_chunk(struct funnel *f)
{
    size_t n = f->in->cluster->rank_count;
    uint64_t *sum = calloc(2 * HOPS * n + 1, sizeof(*sum)), most = 0;

    if (sum == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu ranks", n);
    }
    for (size_t i = 0; i < f->in->flow_count; i++) {
        const struct way *w = &f->way[i];

        for (uint32_t k = 0; k < w->hops; k++) {
            uint64_t *a = &sum[(size_t)k * 2 * n + w->place[k]];
            uint64_t *b = &sum[((size_t)k * 2 + 1) * n + w->place[k + 1]];

            *a += f->in->flow[i].bytes;
            *b += f->in->flow[i].bytes;
            most = *a > most ? *a : most;
            most = *b > most ? *b : most;
        }
    }
    free(sum);
    f->chunk = f->in->chunk_bytes != 0 ? f->in->chunk_bytes : most / 64;
    f->chunk = f->chunk < DYTI_PIECE_ALIGN ? DYTI_PIECE_ALIGN : f->chunk;
    return DYT_OK;
}

/* By wave, src, dst: chunks are dealt in this order. */
static enum dyt_status sort_flows(const struct dyti_order *in,
                                  struct dyti_flow **out_flow)
{
    struct dyti_flow *flow = malloc((in->flow_count + 1) * sizeof(*flow));
    uint32_t *sorted = NULL;
    enum dyt_status st = dyti_order_sorted(in, &sorted);

    if (st == DYT_OK && flow == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu flows", in->flow_count);
    }
    for (size_t i = 0; i < in->flow_count && st == DYT_OK; i++) {
        flow[i] = in->flow[sorted[i]];
    }
    free(sorted);
    if (st != DYT_OK) {
        free(flow);
        return st;
    }
    *out_flow = flow;
    return DYT_OK;
}

/* Waves of detours, each ordered by `optimal`: what a rank sends in one waits
 * for what it receives in those before. */
static enum dyt_status order_detours(const struct dyti_order *in,
                                     struct dyti_pieces *out_pieces)
{
    const struct dyti_order waves = {.cluster = in->cluster,
                                     .flow = in->detour,
                                     .flow_count = in->detour_count,
                                     .chunk_bytes = in->chunk_bytes};
    struct dyti_busiest busiest;
    struct dyti_pieces made = {0};
    enum dyt_status st =
        dyti_busiest_of_flows(in->cluster, in->flow, in->flow_count, &busiest);

    st = st != DYT_OK ? st : dyti_strategy_optimal.order(&waves, &made);
    if (st != DYT_OK) {
        DYTI_NOTE("ordering %zu detours by 'funnel'", in->detour_count);
        return st;
    }
    made.load_s = busiest.seconds; /* of what has to go, by any way */
    *out_pieces = made;
    return DYT_OK;
}

static enum dyt_status order(const struct dyti_order *in,
                             struct dyti_pieces *out_pieces)
{
    struct dyti_order mine = *in;
    struct funnel f = {.in = &mine};
    struct dyti_flow *flow = NULL;
    uint32_t *host_lead = NULL;
    enum dyt_status st;

    if (in->detour != NULL) {
        return order_detours(in, out_pieces);
    }
    st = sort_flows(in, &flow);
    mine.flow = flow;
    st = st != DYT_OK ? st : make_leads(in, &host_lead);
    if (st == DYT_OK) {
        f.way = malloc((in->flow_count + 1) * sizeof(*f.way));
        f.hops = malloc((in->flow_count + 1) * sizeof(*f.hops));
        if (f.way == NULL || f.hops == NULL) {
            st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu flows", in->flow_count);
        }
    }
    for (size_t i = 0; i < in->flow_count && st == DYT_OK; i++) {
        way_of(in, &flow[i], host_lead, &f.way[i]);
    }
    st = st != DYT_OK ? st : choose_chunk(&f);
    for (size_t i = 0; i < in->flow_count && st == DYT_OK; i++) {
        bool first = i == 0 || flow[i].wave != flow[i - 1].wave;

        for (uint32_t hop = 0; st == DYT_OK && hop < HOPS && first; hop++) {
            st = add_hop(&f, flow[i].wave, hop);
        }
    }
    st = st != DYT_OK ? st : dyti_pieces_finish(&mine, &f.list, out_pieces);
    if (st != DYT_OK) {
        DYTI_NOTE("ordering %zu flows by 'funnel'", in->flow_count);
    }
    free(f.list.piece);
    free(f.way);
    free(f.hops);
    free(host_lead);
    free(flow);
    return st;
}

const struct dyti_strategy_ops dyti_strategy_funnel = {.name = "funnel",
                                                       .order = order};
