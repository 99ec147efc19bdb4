/* Steps of this rank's messages: a slot of staging for each, and the waits
 * between them. */
#include "sched/messages.h"
#include "base/array.h"

/* Of the plan's transfers. */
static enum dyt_status add_planned(struct dyti_sched_builder *b, uint32_t src,
                                   uint32_t dst, uint32_t wave)
{
    const struct dyti_plan_pair *pair = dyti_plan_find_pair(b->plan, src, dst);

    return pair == NULL
               ? DYTI_FAIL(DYT_ERR_INVALID,
                           "the traffic has messages from rank %u to rank %u, "
                           "the plan has none",
                           src, dst)
               : dyti_spans_add_wave(&b->spans, b->plan, pair, wave, 0);
}

/* The stream of a pair and wave; made when its first piece is met. */
enum dyt_status dyti_message_stream(struct dyti_sched_builder *b, uint32_t src,
                                    uint32_t dst, uint32_t wave,
                                    uint32_t *out_stream)
{
    struct dyti_schedule *s = b->schedule;
    struct dyti_stream stream = {.src_rank = src,
                                 .dst_rank = dst,
                                 .wave = wave,
                                 .span_first = (uint32_t)b->spans.span_count,
                                 .at_first = (uint32_t)b->at_count};
    enum dyt_status st;

    /* waves rise */
    for (uint32_t i = s->stream_count; i-- > 0 && s->stream[i].wave == wave;) {
        if (s->stream[i].src_rank == src && s->stream[i].dst_rank == dst) {
            *out_stream = i;
            return DYT_OK;
        }
    }
    st = b->stream != NULL ? b->stream(b, src, dst, wave)
                           : add_planned(b, src, dst, wave);
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

uint32_t dyti_message_take_slot(struct dyti_message_order *order)
{
    while (order->slot[order->turn % order->slot_count].held) {
        order->turn++; /* one is free: overflows() has seen to it */
    }
    return order->turn++ % order->slot_count;
}

uint64_t dyti_message_slot_offset(struct dyti_message_order *order,
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

/* The first step of a message on a link waits for the last of the one before,
 * where a strategy has them go one by one; and is that of the next. */
static enum dyt_status after_link(const struct dyti_message_order *order,
                                  struct dyti_sched_builder *b, uint32_t link,
                                  uint32_t first)
{
    return order->link_done == NULL
               ? DYT_OK
               : dyti_sched_add_edge(b, order->link_done[link], first);
}

static void done_on_link(struct dyti_message_order *order, uint32_t link,
                         uint32_t last)
{
    if (order->link_done != NULL) {
        order->link_done[link] = last;
    }
}

void dyti_message_link(struct dyti_message_order *order,
                       struct dyti_schedule *s, uint32_t link, uint32_t step)
{
    uint32_t before = order->link_last[link];

    order->link_last[link] = step;
    if (before == DYTI_NO_STEP) {
        s->link_first[link] = step;
        return;
    }
    for (uint32_t i = 0; i < s->step[before].part_count; i++) {
        struct dyti_fused_message *part =
            &s->part[s->step[before].part_first + i];

        if (part->peer == link % s->world_size &&
            part->is_send == (link < s->world_size)) {
            part->link_next = step;
        }
    }
    if (s->step[before].kind == DYTI_STEP_MOVE) {
        s->step[before].link_next = step;
    }
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
    dyti_message_link(order, s, link, *out_step);
    s->message_count += is_send;
    return DYT_OK;
}

void dyti_message_count_bytes(struct dyti_sched_builder *b,
                              struct dyti_step *step)
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
    uint32_t slot = dyti_message_take_slot(order), pack = 0, move = 0;
    enum dyt_status st = dyti_message_stream(b, piece->src, piece->dst,
                                             piece->wave, &step.stream);

    if (st != DYT_OK) {
        return st;
    }
    step.side = DYTI_SIDE_PUSH;
    step.staging_offset = dyti_message_slot_offset(order, b->schedule, slot);
    dyti_message_count_bytes(b, &step);
    st = dyti_sched_add_step(b, &step, &pack);
    st = st != DYT_OK ? st
                      : dyti_sched_add_edge(b, order->slot[slot].last, pack);
    st = st != DYT_OK ? st : after_link(order, b, piece->to, pack);
    st = st != DYT_OK ? st
                      : add_move(order, b, piece, true, step.staging_offset,
                                 pack, &move);
    order->slot[slot].last = move;
    done_on_link(order, piece->to, move);
    return st;
}

/* A piece that came before, and goes on. */
static enum dyt_status add_onward(struct dyti_message_order *order,
                                  struct dyti_sched_builder *b,
                                  const struct dyti_piece *piece)
{
    for (uint32_t i = 0; i < order->held_count; i++) {
        const struct dyti_held_piece held = order->held[i];
        uint32_t move = 0;
        enum dyt_status st;

        if (held.src != piece->src || held.dst != piece->dst ||
            held.lo != piece->lo) {
            continue;
        }
        order->held[i] = order->held[--order->held_count];
        st = add_move(order, b, piece, true,
                      dyti_message_slot_offset(order, b->schedule, held.slot),
                      held.step, &move);
        order->slot[held.slot] = (struct dyti_staging_slot){.last = move};
        done_on_link(order, piece->to, move);
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
    enum dyt_status st = dyti_message_stream(b, piece->src, piece->to,
                                             piece->wave, &step.stream);

    if (st != DYT_OK) {
        return st;
    }
    step.dst_rank = piece->to;
    step.side = DYTI_SIDE_PULL;
    dyti_message_count_bytes(b, &step);
    st = dyti_sched_add_step(b, &step, out_step);
    return st != DYT_OK ? st : dyti_sched_add_edge(b, move, *out_step);
}

static enum dyt_status add_receive(struct dyti_message_order *order,
                                   struct dyti_sched_builder *b,
                                   const struct dyti_piece *piece)
{
    struct dyti_step step = form_of(piece, DYTI_STEP_UNPACK);
    uint32_t slot = dyti_message_take_slot(order), move = 0;
    uint32_t link = b->schedule->world_size + piece->from;
    enum dyt_status st;

    step.staging_offset = dyti_message_slot_offset(order, b->schedule, slot);
    st = add_move(order, b, piece, false, step.staging_offset,
                  order->slot[slot].last, &move);
    st = st != DYT_OK ? st : after_link(order, b, link, move);
    if (st != DYT_OK) {
        return st;
    }
    order->slot[slot].last = move;
    if (piece->to == piece->dst ||
        dyti_chains_of(order->chains, piece->src, piece->to, piece->wave) !=
            NULL) {
        st = add_unpack(b, piece, step, move, &order->slot[slot].last);
    }
    done_on_link(order, link, order->slot[slot].last);
    if (piece->to != piece->dst) {
        b->schedule->passed_count += order->slot[slot].last != move;
        order->slot[slot].held = true;
        order->held[order->held_count++] = (struct dyti_held_piece){
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
    enum dyt_status st = dyti_message_collectives(order, b, wave);

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
