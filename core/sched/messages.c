/* Steps of the links that go by messages: a strategy's pieces, slots of staging
 * for them, and the waits between. */
#include "base/array.h"
#include "sched/builder.h"
#include "sched/chains.h"

#include <stdlib.h>
#include <string.h>

#define SLOT_ALIGN 64u

struct slot {
    uint32_t last; /* the step that must end before it is used again */
    bool held;     /* by a piece that has not left yet */
};

/* A piece on its way through this rank. */
struct held {
    uint32_t src, dst;
    uint64_t lo;
    uint32_t slot, step;
};

struct dyti_message_order {
    struct dyti_piece *piece; /* of all waves, by wave, in order; owned */
    size_t piece_count, next; /* next: the first not added yet */
    const struct dyti_chains *chains; /* of the flows; NULL: none */
    struct dyti_chains own_chains;    /* where nobody else has found them */
    uint64_t message_bytes;
    uint32_t slot_count, turn;
    struct slot slot[DYTI_SLOTS_MAX];
    struct held held[DYTI_SLOTS_MAX];
    uint32_t held_count;
    uint32_t *link_last; /* [2 * world_size], owned */
};

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
        qsort(chain, n, sizeof(*chain), by_identity);
        for (size_t i = 1; i < n; i++) {
            if (same_piece(&chain[i].piece, &chain[i - 1].piece)) {
                chain[i].first = chain[i - 1].first;
            }
        }
    }
    if (n > 1) {
        qsort(chain, n, sizeof(*chain), by_chain);
    }
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

/* What the strategy sees: of a chain the stream to its first. */
static enum dyt_status leave_out(const struct dyti_chains *chains,
                                 const struct dyti_flow *flow,
                                 const uint64_t *const *end, size_t count,
                                 struct dyti_flow **out_flow,
                                 const uint64_t ***out_end, size_t *out_count)
{
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

static enum dyt_status order_pieces(struct dyti_message_order *order,
                                    uint32_t world_size,
                                    const struct dyti_schedule_links *links,
                                    const struct dyti_flow *flow,
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
    enum dyt_status st = DYT_OK;

    if (links->cluster != NULL) {
        cluster = *links->cluster;
    } else {
        st = default_cluster(world_size, links->domain, &cluster);
    }
    if (st == DYT_OK && order->chains != NULL && order->chains->count > 0) {
        st = leave_out(order->chains, flow, end, count, &kept, &kept_end,
                       &in.flow_count);
        in.flow = kept;
        in.end = end == NULL ? NULL : kept_end;
    }
    st = st != DYT_OK ? st : links->strategy->order(&in, &pieces);
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
        free(order->piece);
        free(order->link_last);
        free(order);
    }
}

enum dyt_status dyti_message_order_init(const struct dyti_sched_builder *b,
                                        const struct dyti_schedule_links *links,
                                        struct dyti_message_order **out_order)
{
    struct dyti_schedule *s = b->schedule;
    struct dyti_message_order *order = NULL;
    struct dyti_flow *flow = NULL;
    uint64_t **end = NULL;
    size_t count = links->flow_count;
    struct dyti_chains chains = {0};
    uint32_t waves = 0;
    enum dyt_status st = DYT_OK;

    if (links->strategy == NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID, "messages need a strategy");
    }
    order = calloc(1, sizeof(*order));
    s->link_first = calloc(2u * s->world_size, sizeof(*s->link_first));
    if (order != NULL) {
        order->link_last =
            calloc(2u * s->world_size, sizeof(*order->link_last));
    }
    if (order == NULL || order->link_last == NULL || s->link_first == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "messages of %u ranks", s->world_size);
        goto out;
    }
    memset(s->link_first, 0xff, 2u * s->world_size * sizeof(*s->link_first));
    memset(order->link_last, 0xff,
           2u * s->world_size * sizeof(*order->link_last));
    st = dyti_message_slots(links, &order->message_bytes, &order->slot_count);
    if (st == DYT_OK && links->flow == NULL && count == 0 &&
        b->plan->rank < 0) {
        st = dyti_schedule_flows(b->plan, links->domain, &flow, &end, &count,
                                 &waves);
        st = st != DYT_OK
                 ? st
                 : dyti_chains_find(b->plan, links, flow, count, &chains);
        order->own_chains = chains;
        order->chains = &order->own_chains;
    } else {
        order->chains = links->chains;
    }
    s->chain_count = order->chains == NULL ? 0 : order->chains->count;
    if (st == DYT_OK && count > 0) {
        st = order_pieces(
            order, s->world_size, links, flow != NULL ? flow : links->flow,
            flow != NULL ? (const uint64_t *const *)end : links->end, count);
    }
    if (st != DYT_OK) {
        goto out;
    }
    for (uint32_t i = 0; i < order->slot_count; i++) {
        order->slot[i].last = DYTI_NO_STEP;
    }
    s->message_bytes = order->message_bytes;
    *out_order = order;
    order = NULL;
out:
    free(flow);
    free(end);
    dyti_message_order_fini(order);
    return st;
}

/* ---- steps -------------------------------------------------------------- */

/* The stream of a pair and wave; made when its first piece is met. */
static enum dyt_status find_stream(struct dyti_sched_builder *b, uint32_t src,
                                   uint32_t dst, uint32_t wave,
                                   uint32_t *out_stream)
{
    struct dyti_schedule *s = b->schedule;
    const struct dyti_plan_pair *pair;
    struct dyti_stream stream = {.src_rank = src,
                                 .dst_rank = dst,
                                 .wave = wave,
                                 .span_first = (uint32_t)b->spans.span_count,
                                 .at_first = (uint32_t)b->at_count};
    enum dyt_status st;

    for (uint32_t i = 0; i < s->stream_count; i++) {
        if (s->stream[i].src_rank == src && s->stream[i].dst_rank == dst &&
            s->stream[i].wave == wave) {
            *out_stream = i;
            return DYT_OK;
        }
    }
    pair = dyti_plan_find_pair(b->plan, src, dst);
    if (pair == NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "the traffic has messages from rank %u to rank %u, "
                         "the plan has none",
                         src, dst);
    }
    st = dyti_spans_add_wave(&b->spans, b->plan, pair, wave, 0);
    if (st == DYT_OK && b->spans.span_count > UINT32_MAX / 2) {
        st = DYTI_FAIL(DYT_ERR_OVERFLOW, "%zu spans", b->spans.span_count);
    }
    stream.span_count = (uint32_t)(b->spans.span_count - stream.span_first);
    st = st != DYT_OK ? st
                      : DYTI_GROW(s->at, b->at_cap,
                                  b->at_count + stream.span_count + 1u);
    st = st != DYT_OK
             ? st
             : DYTI_GROW(s->stream, b->stream_cap, s->stream_count + 1u);
    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t i = 0; i < stream.span_count; i++) {
        const struct dyti_span *span = &b->spans.span[stream.span_first + i];

        s->at[b->at_count++] = stream.bytes;
        stream.bytes += dyti_span_elements(span) *
                        dyti_dtype_bytes((enum dyti_dtype)span->dst_dtype);
    }
    s->at[b->at_count++] = stream.bytes;
    s->stream[s->stream_count] = stream;
    *out_stream = s->stream_count++;
    return DYT_OK;
}

static uint32_t take_slot(struct dyti_message_order *order)
{
    while (order->slot[order->turn % order->slot_count].held) {
        order->turn++; /* one is free: overflows() has seen to it */
    }
    return order->turn++ % order->slot_count;
}

static uint64_t slot_offset(struct dyti_message_order *order,
                            struct dyti_schedule *s, uint32_t slot)
{
    uint64_t bytes = order->message_bytes + DYTI_SLOT_HEAD_BYTES;

    if ((slot + 1u) * bytes > s->staging_bytes) {
        s->staging_bytes = (slot + 1u) * bytes;
        s->slot_count = slot + 1u;
    }
    return slot * bytes + DYTI_SLOT_HEAD_BYTES;
}

static struct dyti_step form_of(const struct dyti_piece *piece,
                                enum dyti_step_kind kind)
{
    return (struct dyti_step){.kind = (uint8_t)kind,
                              .round = piece->round,
                              .src_rank = piece->src,
                              .dst_rank = piece->dst,
                              .stream = DYTI_NO_STREAM,
                              .lo = piece->lo,
                              .hi = piece->hi,
                              .link_next = DYTI_NO_STEP};
}

/* One end of a message. */
static enum dyt_status add_move(struct dyti_message_order *order,
                                struct dyti_sched_builder *b,
                                const struct dyti_piece *piece, bool is_send,
                                uint64_t offset, uint32_t before,
                                uint32_t *out_step)
{
    struct dyti_schedule *s = b->schedule;
    struct dyti_step step = form_of(piece, DYTI_STEP_MOVE);
    uint32_t link = is_send ? piece->to : s->world_size + piece->from;
    enum dyt_status st;

    step.side = is_send ? DYTI_SIDE_PUSH : DYTI_SIDE_PULL;
    step.src_rank = piece->from;
    step.dst_rank = piece->to;
    step.staging_offset = offset;
    st = dyti_sched_add_step(b, &step, out_step);
    st = st != DYT_OK ? st : dyti_sched_add_edge(b, before, *out_step);
    if (st != DYT_OK) {
        return st;
    }
    if (order->link_last[link] == DYTI_NO_STEP) {
        s->link_first[link] = *out_step;
    } else {
        s->step[order->link_last[link]].link_next = *out_step;
    }
    order->link_last[link] = *out_step;
    s->message_count += is_send;
    return DYT_OK;
}

static void count_bytes(struct dyti_sched_builder *b, struct dyti_step *step)
{
    const struct dyti_schedule *s = b->schedule;
    const struct dyti_stream *stream = &s->stream[step->stream];

    step->span_first = stream->span_first;
    step->span_count = stream->span_count;
    if (stream->span_count > 0) {
        step->transfer_first = b->spans.of[stream->span_first].transfer_first;
        step->transfer_count =
            b->spans.of[stream->span_first + stream->span_count - 1]
                .transfer_last +
            1 - step->transfer_first;
    }
    step->read_bytes = step->write_bytes = step->hi - step->lo;
}

static enum dyt_status add_send(struct dyti_message_order *order,
                                struct dyti_sched_builder *b,
                                const struct dyti_piece *piece)
{
    struct dyti_step step = form_of(piece, DYTI_STEP_PACK);
    uint32_t slot = take_slot(order), pack = 0, move = 0;
    enum dyt_status st =
        find_stream(b, piece->src, piece->dst, piece->wave, &step.stream);

    if (st != DYT_OK) {
        return st;
    }
    step.side = DYTI_SIDE_PUSH;
    step.staging_offset = slot_offset(order, b->schedule, slot);
    count_bytes(b, &step);
    st = dyti_sched_add_step(b, &step, &pack);
    st = st != DYT_OK ? st
                      : dyti_sched_add_edge(b, order->slot[slot].last, pack);
    st = st != DYT_OK ? st
                      : add_move(order, b, piece, true, step.staging_offset,
                                 pack, &move);
    order->slot[slot].last = move;
    return st;
}

/* A piece that came before, and goes on. */
static enum dyt_status add_onward(struct dyti_message_order *order,
                                  struct dyti_sched_builder *b,
                                  const struct dyti_piece *piece)
{
    for (uint32_t i = 0; i < order->held_count; i++) {
        const struct held held = order->held[i];
        uint32_t move = 0;
        enum dyt_status st;

        if (held.src != piece->src || held.dst != piece->dst ||
            held.lo != piece->lo) {
            continue;
        }
        order->held[i] = order->held[--order->held_count];
        st = add_move(order, b, piece, true,
                      slot_offset(order, b->schedule, held.slot), held.step,
                      &move);
        order->slot[held.slot] = (struct slot){.last = move};
        return st;
    }
    return DYTI_FAIL(DYT_ERR_INVALID,
                     "a piece from rank %u to rank %u leaves rank %u before it "
                     "has come there",
                     piece->src, piece->dst, piece->from);
}

/* Into the stream that this rank receives: of a chain its own, not the last
 * one's. */
static enum dyt_status add_unpack(struct dyti_sched_builder *b,
                                  const struct dyti_piece *piece,
                                  struct dyti_step step, uint32_t move,
                                  uint32_t *out_step)
{
    enum dyt_status st =
        find_stream(b, piece->src, piece->to, piece->wave, &step.stream);

    if (st != DYT_OK) {
        return st;
    }
    step.dst_rank = piece->to;
    step.side = DYTI_SIDE_PULL;
    count_bytes(b, &step);
    st = dyti_sched_add_step(b, &step, out_step);
    return st != DYT_OK ? st : dyti_sched_add_edge(b, move, *out_step);
}

static enum dyt_status add_receive(struct dyti_message_order *order,
                                   struct dyti_sched_builder *b,
                                   const struct dyti_piece *piece)
{
    struct dyti_step step = form_of(piece, DYTI_STEP_UNPACK);
    uint32_t slot = take_slot(order), move = 0;
    enum dyt_status st;

    step.staging_offset = slot_offset(order, b->schedule, slot);
    st = add_move(order, b, piece, false, step.staging_offset,
                  order->slot[slot].last, &move);
    if (st != DYT_OK) {
        return st;
    }
    order->slot[slot].last = move;
    if (piece->to == piece->dst ||
        dyti_chains_of(order->chains, piece->src, piece->to, piece->wave) !=
            NULL) {
        st = add_unpack(b, piece, step, move, &order->slot[slot].last);
    }
    if (piece->to != piece->dst) {
        b->schedule->passed_count += order->slot[slot].last != move;
        order->slot[slot].held = true;
        order->held[order->held_count++] = (struct held){
            piece->src, piece->dst, piece->lo, slot, order->slot[slot].last};
    }
    return st;
}

enum dyt_status dyti_message_order_add(struct dyti_message_order *order,
                                       struct dyti_sched_builder *b,
                                       const struct dyti_schedule_links *links,
                                       uint32_t wave)
{
    uint32_t rank = b->schedule->rank;
    enum dyt_status st = DYT_OK;

    (void)links;
    while (order->next < order->piece_count && st == DYT_OK &&
           order->piece[order->next].wave == wave) {
        const struct dyti_piece *piece = &order->piece[order->next++];

        if (piece->from == rank) {
            st = piece->src == rank ? add_send(order, b, piece)
                                    : add_onward(order, b, piece);
        } else if (piece->to == rank) {
            st = add_receive(order, b, piece);
        }
    }
    return st;
}
