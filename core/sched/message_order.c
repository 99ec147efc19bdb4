/* Which messages there are, and in which order: a strategy's pieces, cut to
 * what a slot takes, with the hops of chains; and how many slots a cap gives.
 */
#include "base/array.h"
#include "base/sort.h"
#include "sched/messages.h"

#include <stdlib.h>
#include <string.h>

#define SLOT_ALIGN 64u

enum dyt_status dyti_message_slots(const struct dyti_schedule_links *links,
                                   uint64_t *out_message_bytes,
                                   uint32_t *out_slots)
{
    uint64_t message = links->message_bytes == 0 ? DYTI_SLOT_MESSAGE_BYTES
                                                 : links->message_bytes;
    uint64_t slots = DYTI_SLOTS_DEFAULT, cap = links->staging_bytes;

    message = message / SLOT_ALIGN * SLOT_ALIGN;
    if (cap != 0) {
        if (cap < message + DYTI_SLOT_HEAD_BYTES) {
            message =
                cap < DYTI_SLOT_HEAD_BYTES
                    ? 0
                    : (cap - DYTI_SLOT_HEAD_BYTES) / SLOT_ALIGN * SLOT_ALIGN;
        }
        slots = cap / (message + DYTI_SLOT_HEAD_BYTES);
    }
    if (message < DYTI_SLOT_LEAST_BYTES) {
        return DYTI_FAIL(
            DYT_ERR_UNSUPPORTED,
            "staging of %llu bytes, messages of %llu: the smallest that works "
            "is %u and %u",
            (unsigned long long)cap, (unsigned long long)message,
            DYTI_SLOT_LEAST_BYTES + DYTI_SLOT_HEAD_BYTES,
            DYTI_SLOT_LEAST_BYTES);
    }
    *out_message_bytes = message;
    *out_slots = slots < DYTI_SLOTS_MAX ? (uint32_t)slots : DYTI_SLOTS_MAX;
    return DYT_OK;
}

/* ---- the order ---------------------------------------------------------- */

/* Everything of one domain on one host, all links alike. */
static enum dyt_status default_cluster(uint32_t world_size,
                                       const uint32_t *domain,
                                       struct dyti_cluster *out)
{
    uint32_t hosts = 0;

    for (uint32_t r = 0; r < world_size; r++) {
        hosts = domain[r] >= hosts ? domain[r] + 1 : hosts;
    }
    *out = (struct dyti_cluster){.name = "domains",
                                 .rank_count = world_size,
                                 .host_count = hosts,
                                 .host = domain};
    for (int c = 0; c < DYTI_LINK_CLASS_COUNT; c++) {
        out->link[c].bytes_per_s = 1e9;
    }
    return DYT_OK;
}

struct chain {
    size_t first; /* index of the piece's first hop */
    struct dyti_piece piece;
};

static int by_chain(const void *a, const void *b)
{
    const struct chain *x = a, *y = b;

    if (x->piece.wave != y->piece.wave) {
        return x->piece.wave < y->piece.wave ? -1 : 1;
    }
    if (x->first != y->first) {
        return x->first < y->first ? -1 : 1;
    }
    return (x->piece.hop > y->piece.hop) - (x->piece.hop < y->piece.hop);
}

/* There are few waves, and fewer than 2^32 pieces. */
static uint64_t place_of_chain(const void *item)
{
    const struct chain *c = item;

    return (uint64_t)c->piece.wave << 32 | (uint64_t)c->first;
}

static bool same_piece(const struct dyti_piece *a, const struct dyti_piece *b)
{
    return a->src == b->src && a->dst == b->dst && a->wave == b->wave &&
           a->lo == b->lo;
}

static int by_identity(const void *a, const void *b)
{
    const struct chain *x = a, *y = b;
    const struct dyti_piece *p = &x->piece, *q = &y->piece;

    if (p->src != q->src) {
        return p->src < q->src ? -1 : 1;
    }
    if (p->dst != q->dst) {
        return p->dst < q->dst ? -1 : 1;
    }
    if (p->wave != q->wave) {
        return p->wave < q->wave ? -1 : 1;
    }
    if (p->lo != q->lo) {
        return p->lo < q->lo ? -1 : 1;
    }
    return (p->hop > q->hop) - (p->hop < q->hop);
}

static uint64_t place_of_stream(const void *item)
{
    const struct dyti_piece *p = &((const struct chain *)item)->piece;

    return (uint64_t)p->src << 32 | p->dst;
}

/* Waves one after the other; and, if asked, each piece all its way before the
 * next one starts. */
static enum dyt_status sort_pieces(struct dyti_message_order *order,
                                   bool whole_way)
{
    size_t n = order->piece_count;
    struct chain *chain = calloc(n + 1, sizeof(*chain));

    if (chain == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu pieces", n);
    }
    for (size_t i = 0; i < n; i++) {
        chain[i] = (struct chain){i, order->piece[i]};
    }
    if (whole_way) {
        dyti_sort(chain, n, sizeof(*chain), place_of_stream, by_identity);
        for (size_t i = 1; i < n; i++) {
            if (same_piece(&chain[i].piece, &chain[i - 1].piece)) {
                chain[i].first = chain[i - 1].first;
            }
        }
    }
    dyti_sort(chain, n, sizeof(*chain), place_of_chain, by_chain);
    for (size_t i = 0; i < n; i++) {
        order->piece[i] = chain[i].piece;
    }
    free(chain);
    return DYT_OK;
}

/* Does some rank hold more pieces for others than leave a slot free? */
static enum dyt_status overflows(const struct dyti_message_order *order,
                                 uint32_t world_size, bool *out_overflows)
{
    uint32_t *held = calloc(world_size, sizeof(*held));
    bool over = false;

    if (held == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u ranks", world_size);
    }
    for (size_t i = 0; i < order->piece_count; i++) {
        const struct dyti_piece *p = &order->piece[i];

        if (p->from != p->src) {
            held[p->from]--;
        } else {
            over |= held[p->from] >= order->slot_count;
        }
        over |= held[p->to] >= order->slot_count;
        held[p->to] += p->to != p->dst;
    }
    free(held);
    *out_overflows = over;
    return DYT_OK;
}

static enum dyt_status add_piece(struct dyti_message_order *order, size_t *cap,
                                 const struct dyti_piece *piece)
{
    enum dyt_status st = DYTI_GROW(order->piece, *cap, order->piece_count + 1);

    if (st == DYT_OK) {
        order->piece[order->piece_count++] = *piece;
    }
    return st;
}

/* A message to the first of a chain goes on from member to member: as hops of
 * the last one's stream. */
static enum dyt_status add_hops(struct dyti_message_order *order, size_t *cap,
                                const struct dyti_piece *piece)
{
    const struct dyti_chain *chain =
        dyti_chains_of(order->chains, piece->src, piece->dst, piece->wave);
    struct dyti_piece hop = *piece;
    enum dyt_status st = DYT_OK;

    if (chain == NULL) {
        return add_piece(order, cap, piece);
    }
    hop.dst = order->chains->member[chain->first + chain->count - 1];
    for (uint32_t m = 0; m < chain->count && st == DYT_OK; m++) {
        hop.to = order->chains->member[chain->first + m];
        hop.hop = m;
        hop.round = piece->round + m;
        st = add_piece(order, cap, &hop);
        hop.from = hop.to;
    }
    return st;
}

/* No piece is more than one message: a tensor sent by itself may be. */
static enum dyt_status split_pieces(struct dyti_message_order *order,
                                    const struct dyti_pieces *pieces)
{
    size_t cap = 0;
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < pieces->count && st == DYT_OK; i++) {
        struct dyti_piece piece = pieces->piece[i];
        uint64_t hi = piece.hi;

        while (piece.lo < hi && st == DYT_OK) {
            uint64_t left = hi - piece.lo;

            piece.hi =
                piece.lo +
                (left < order->message_bytes ? left : order->message_bytes);
            st = add_hops(order, &cap, &piece);
            piece.lo = piece.hi;
        }
    }
    return st;
}

/* What the strategy sees: of a chain the stream to its first, of a collective
 * none. */
static enum dyt_status leave_out(const struct dyti_message_order *order,
                                 const struct dyti_flow *flow,
                                 const uint64_t *const *end, size_t count,
                                 struct dyti_flow **out_flow,
                                 const uint64_t ***out_end, size_t *out_count)
{
    const struct dyti_chains *chains = order->chains;
    struct dyti_flow *kept = calloc(count + 1, sizeof(*kept));
    const uint64_t **kept_end = calloc(count + 1, sizeof(*kept_end));
    size_t n = 0;

    if (kept == NULL || kept_end == NULL) {
        free(kept);
        free(kept_end);
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu flows", count);
    }
    for (size_t i = 0; i < count; i++) {
        const struct dyti_chain *chain =
            dyti_chains_of(chains, flow[i].src, flow[i].dst, flow[i].wave);

        if (dyti_collectives_have(order->collectives, flow[i].src, flow[i].dst,
                                  flow[i].wave)) {
            continue;
        }
        if (chain == NULL || chains->member[chain->first] == flow[i].dst) {
            kept_end[n] = end == NULL ? NULL : end[i];
            kept[n++] = flow[i];
        }
    }
    *out_flow = kept;
    *out_end = kept_end;
    *out_count = n;
    return DYT_OK;
}

enum dyt_status dyti_message_cluster(const struct dyti_schedule_links *links,
                                     uint32_t world_size,
                                     struct dyti_cluster *out_cluster)
{
    if (links->cluster != NULL) {
        *out_cluster = *links->cluster;
        return DYT_OK;
    }
    return default_cluster(world_size, links->domain, out_cluster);
}

enum dyt_status dyti_message_order_pieces(
    struct dyti_message_order *order, uint32_t world_size,
    const struct dyti_schedule_links *links, const struct dyti_flow *flow,
    const uint64_t *const *end, size_t count)
{
    struct dyti_cluster cluster;
    struct dyti_order in = {.cluster = &cluster,
                            .flow = flow,
                            .flow_count = count,
                            .end = end,
                            .chunk_bytes = order->message_bytes};
    struct dyti_flow *kept = NULL;
    const uint64_t **kept_end = NULL;
    struct dyti_pieces pieces = {0};
    bool over = false;
    enum dyt_status st = dyti_message_cluster(links, world_size, &cluster);

    if (st == DYT_OK &&
        ((order->chains != NULL && order->chains->count > 0) ||
         (order->collectives != NULL && order->collectives->key_count > 0))) {
        st = leave_out(order, flow, end, count, &kept, &kept_end,
                       &in.flow_count);
        in.flow = kept;
        in.end = end == NULL ? NULL : kept_end;
    }
    if (st == DYT_OK && in.flow_count > 0) { /* not all is in collectives */
        st = links->strategy->order(&in, &pieces);
    }
    free(kept);
    free(kept_end);
    if (st != DYT_OK) {
        return st;
    }
    st = split_pieces(order, &pieces);
    dyti_pieces_fini(&pieces);
    st = st != DYT_OK ? st : sort_pieces(order, false);
    st = st != DYT_OK ? st : overflows(order, world_size, &over);
    return st == DYT_OK && over ? sort_pieces(order, true) : st;
}

void dyti_message_order_fini(struct dyti_message_order *order)
{
    if (order != NULL) {
        dyti_chains_fini(&order->own_chains);
        dyti_collectives_fini(&order->own_collectives);
        free(order->piece);
        free(order->link_last);
        free(order->link_done);
        free(order);
    }
}

/* One place for each link of the rank: to each peer, then from each. */
static enum dyt_status make_links(struct dyti_message_order *order,
                                  struct dyti_schedule *s, bool one_by_one)
{
    size_t count = 2u * (size_t)s->world_size;

    s->link_first = calloc(count, sizeof(*s->link_first));
    order->link_last = calloc(count, sizeof(*order->link_last));
    if (one_by_one) {
        order->link_done = calloc(count, sizeof(*order->link_done));
    }
    if (s->link_first == NULL || order->link_last == NULL ||
        (one_by_one && order->link_done == NULL)) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "messages of %u ranks", s->world_size);
    }
    memset(s->link_first, 0xff, count * sizeof(*s->link_first));
    memset(order->link_last, 0xff, count * sizeof(*order->link_last));
    if (one_by_one) {
        memset(order->link_done, 0xff, count * sizeof(*order->link_done));
    }
    return DYT_OK;
}

/* What the ranks exchange: as given, or added up from a plan of all ranks,
 * with chains and collectives found in it. */
struct exchanged {
    struct dyti_flow *own_flow; /* NULL: given */
    uint64_t **own_end;
    const struct dyti_flow *flow;
    const uint64_t *const *end;
    size_t count;
};

static enum dyt_status find_exchanged(const struct dyti_sched_builder *b,
                                      const struct dyti_schedule_links *links,
                                      struct dyti_message_order *order,
                                      struct exchanged *x)
{
    uint32_t waves = 0;
    enum dyt_status st;

    if (links->flow != NULL || links->flow_count > 0 || b->plan->rank >= 0) {
        *x = (struct exchanged){
            .flow = links->flow, .end = links->end, .count = links->flow_count};
        order->chains = links->chains;
        order->collectives = links->collectives;
        return DYT_OK;
    }
    st = dyti_schedule_flows(b->plan, links->domain, &x->own_flow, &x->own_end,
                             &x->count, &waves);
    x->flow = x->own_flow;
    x->end = (const uint64_t *const *)x->own_end;
    st = st != DYT_OK ? st
                      : dyti_chains_find(b->plan, links, x->flow, x->count,
                                         &order->own_chains);
    order->chains = &order->own_chains;
    st = st != DYT_OK
             ? st
             : dyti_collectives_find(b->plan, links, x->flow, x->count,
                                     order->chains, &order->own_collectives);
    order->collectives = &order->own_collectives;
    return st;
}

static void count_groups(const struct dyti_message_order *order,
                         struct dyti_schedule *s)
{
    const struct dyti_collectives *c = order->collectives;

    for (size_t i = 0; c != NULL && i < c->found.count; i++) {
        s->collective_count[c->found.collective[i].kind]++;
    }
    s->chain_count = order->chains == NULL ? 0 : order->chains->count;
}

enum dyt_status dyti_message_order_init(const struct dyti_sched_builder *b,
                                        const struct dyti_schedule_links *links,
                                        struct dyti_message_order **out_order)
{
    struct dyti_message_order *order;
    struct exchanged x = {.own_flow = NULL};
    enum dyt_status st;

    if (links->strategy == NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID, "messages need a strategy");
    }
    order = calloc(1, sizeof(*order));
    if (order == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "messages of %u ranks",
                         b->schedule->world_size);
    }
    st = make_links(order, b->schedule, links->strategy->one_by_one);
    st = st != DYT_OK ? st
                      : dyti_message_slots(links, &order->message_bytes,
                                           &order->slot_count);
    st = st != DYT_OK ? st : find_exchanged(b, links, order, &x);
    if (st == DYT_OK) {
        count_groups(order, b->schedule);
        st = x.count == 0
                 ? DYT_OK
                 : dyti_message_order_pieces(order, b->schedule->world_size,
                                             links, x.flow, x.end, x.count);
    }
    free(x.own_flow);
    free(x.own_end);
    if (st != DYT_OK) {
        dyti_message_order_fini(order);
        return st;
    }
    for (uint32_t i = 0; i < order->slot_count; i++) {
        order->slot[i].last = DYTI_NO_STEP;
    }
    b->schedule->message_bytes = order->message_bytes;
    *out_order = order;
    return DYT_OK;
}
