/* The steps of one rank: in each wave its messages, its copies, a fence. */
#include "sched/overlay.h"

#include "base/array.h"
#include "base/hash.h"
#include "sched/builder.h"

#include <stdlib.h>

/* What one rank sends another in a wave. */
struct record {
    uint32_t src, dst, wave;
    size_t action; /* breaks ties */
    uint64_t bytes;
};

struct making {
    const struct dyti_overlay_params *params;
    const struct dyti_overlay *overlay;
    uint32_t rank;
    struct dyti_sched_builder b;
    struct dyti_schedule_links links; /* with the flows of all waves */
    struct dyti_flow *flow;           /* [links.flow_count], owned */
    uint64_t *block;                  /* ends of all flows, owned */
    const uint64_t **end;             /* [links.flow_count], owned */
};

static const struct dyti_wave_item *item_of(
    const struct dyti_overlay *o, const struct dyti_wave_action *action)
{
    return &o->item[action->item];
}

static bool is_message(const struct making *m,
                       const struct dyti_wave_action *action)
{
    const struct dyti_wave_item *item = item_of(m->overlay, action);

    return action->what != DYTI_WAVE_UNSTAGE &&
           !dyti_links_map(&m->links, item->src_rank, item->dst_rank);
}

/* What is staged lies dense in between, in the destination's dtype. */
static struct dyti_span span_of(const struct dyti_overlay *o,
                                const struct dyti_wave_action *action)
{
    struct dyti_span span = o->spans.span[o->span[action->item]];
    int64_t stride = (int64_t)dyti_dtype_bytes((enum dyti_dtype)span.dst_dtype);
    bool in_now = action->what == DYTI_WAVE_STAGE;

    if (action->what == DYTI_WAVE_DIRECT) {
        return span;
    }
    for (uint32_t d = DYTI_SPAN_DIMS; d-- > 0;) {
        *(in_now ? &span.dst_stride[d] : &span.src_stride[d]) = stride;
        stride *= span.size[d];
    }
    if (in_now) {
        span.dst_slot = DYTI_SLOT_STAGING;
        span.dst_kind = 0;
        span.dst_offset = action->staging_offset;
    } else {
        span.src_slot = DYTI_SLOT_STAGING;
        span.src_kind = 0;
        span.src_offset = action->staging_offset;
        span.src_dtype = span.dst_dtype;
    }
    return span;
}

static enum dyt_status push(struct making *m,
                            const struct dyti_wave_action *action)
{
    struct dyti_span span = span_of(m->overlay, action);

    return dyti_spans_push(
        &m->b.spans, &span,
        &m->overlay->spans.of[m->overlay->span[action->item]]);
}

/* ---- messages --------------------------------------------------------------
 */

static enum dyt_status add_stream(struct dyti_sched_builder *b, uint32_t src,
                                  uint32_t dst, uint32_t wave)
{
    struct making *m = (struct making *)(uintptr_t)b->stream_arg;
    const struct dyti_waves *waves = &m->overlay->waves;
    enum dyt_status st = DYT_OK;

    for (size_t a = waves->wave_first[wave];
         a < waves->wave_first[wave + 1] && st == DYT_OK; a++) {
        const struct dyti_wave_action *action = &waves->action[a];
        const struct dyti_wave_item *item = item_of(m->overlay, action);

        if (item->src_rank == src && item->dst_rank == dst &&
            is_message(m, action)) {
            st = push(m, action);
        }
    }
    return st;
}

static int by_stream(const void *a, const void *b)
{
    const struct record *x = a, *y = b;

    if (x->src != y->src) {
        return x->src < y->src ? -1 : 1;
    }
    if (x->dst != y->dst) {
        return x->dst < y->dst ? -1 : 1;
    }
    return (x->action > y->action) - (x->action < y->action); /* by wave too */
}

static enum dyt_status list_records(const struct making *m,
                                    struct record **out_record,
                                    size_t *out_count)
{
    const struct dyti_waves *waves = &m->overlay->waves;
    struct record *record = calloc(waves->action_count + 1, sizeof(*record));
    size_t count = 0;

    if (record == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu copies in waves",
                         waves->action_count);
    }
    for (size_t w = 0; w < waves->wave_count; w++) {
        for (size_t a = waves->wave_first[w]; a < waves->wave_first[w + 1];
             a++) {
            const struct dyti_wave_item *item =
                item_of(m->overlay, &waves->action[a]);

            if (is_message(m, &waves->action[a])) {
                record[count++] =
                    (struct record){item->src_rank, item->dst_rank, (uint32_t)w,
                                    a, item->staged_bytes};
            }
        }
    }
    if (count > 1) {
        qsort(record, count, sizeof(*record), by_stream);
    }
    *out_record = record;
    *out_count = count;
    return DYT_OK;
}

/* Records of one stream make one flow. */
static enum dyt_status make_flows(struct making *m)
{
    struct record *record = NULL;
    size_t count = 0, flows = 0;
    enum dyt_status st = list_records(m, &record, &count);

    if (st != DYT_OK) {
        return st;
    }
    m->flow = calloc(count + 1, sizeof(*m->flow));
    m->block = calloc(count + 1, sizeof(*m->block));
    m->end = calloc(count + 1, sizeof(*m->end));
    if (m->flow == NULL || m->block == NULL || m->end == NULL) {
        free(record);
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu messages in waves", count);
    }
    for (size_t i = 0; i < count; i++) {
        const struct record *r = &record[i];
        struct dyti_flow *last = flows == 0 ? NULL : &m->flow[flows - 1];

        if (last == NULL || last->src != r->src || last->dst != r->dst ||
            last->wave != r->wave) {
            m->end[flows] = &m->block[i];
            last = &m->flow[flows++];
            *last = (struct dyti_flow){
                .src = r->src, .dst = r->dst, .wave = r->wave};
        }
        last->bytes += r->bytes;
        last->messages++;
        m->block[i] = last->bytes;
    }
    free(record);
    m->links.flow = m->flow;
    m->links.end = (const uint64_t *const *)m->end;
    m->links.flow_count = flows;
    return DYT_OK;
}

/* ---- copies ----------------------------------------------------------------
 */

/* A copy of this rank, in the order of its peers: itself, then the next. */
struct own {
    uint32_t turn, src, dst;
    size_t action;
};

static int by_turn(const void *a, const void *b)
{
    const struct own *x = a, *y = b;

    if (x->turn != y->turn) {
        return x->turn < y->turn ? -1 : 1;
    }
    return (x->action > y->action) - (x->action < y->action);
}

/* Who executes it, and with whom. */
static bool is_own(const struct making *m,
                   const struct dyti_wave_action *action, struct own *out)
{
    const struct dyti_wave_item *item = item_of(m->overlay, action);
    uint32_t ranks = m->params->world_size, peer;

    *out = (struct own){.src = item->src_rank, .dst = item->dst_rank};
    if (action->what == DYTI_WAVE_UNSTAGE) {
        out->src = out->dst;
    } else if (is_message(m, action)) {
        return false;
    }
    peer = m->params->side == DYTI_SIDE_PULL ? out->src : out->dst;
    out->turn = (peer + ranks - m->rank) % ranks;
    return (m->params->side == DYTI_SIDE_PULL ? out->dst : out->src) == m->rank;
}

static enum dyt_status add_step(struct making *m, const struct own *own,
                                size_t count)
{
    const struct dyti_waves *waves = &m->overlay->waves;
    struct dyti_step step = {.kind = DYTI_STEP_COPY,
                             .side = (uint8_t)m->params->side,
                             .round = own->src ^ own->dst,
                             .src_rank = own->src,
                             .dst_rank = own->dst,
                             .stream = DYTI_NO_STREAM,
                             .link_next = DYTI_NO_STEP,
                             .span_first = (uint32_t)m->b.spans.span_count};

    for (size_t i = 0; i < count; i++) {
        enum dyt_status st = push(m, &waves->action[own[i].action]);
        size_t at = m->b.spans.span_count - 1;

        if (st == DYT_OK && at > UINT32_MAX / 2) {
            st = DYTI_FAIL(DYT_ERR_OVERFLOW, "%zu spans", at);
        }
        if (st != DYT_OK) {
            return st;
        }
        dyti_sched_count_span(&step, &m->b.spans.span[at], &m->b.spans.of[at]);
    }
    return dyti_sched_add_step(&m->b, &step, NULL);
}

static enum dyt_status add_steps(struct making *m, const struct own *own,
                                 size_t count)
{
    const struct dyti_overlay *o = m->overlay;
    size_t first = 0;
    uint64_t bytes = 0;
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        const struct dyti_wave_item *item =
            item_of(o, &o->waves.action[own[i].action]);

        if (i > first &&
            (own[i].turn != own[first].turn ||
             bytes + item->staged_bytes > m->b.schedule->options.chunk_bytes)) {
            st = add_step(m, own + first, i - first);
            first = i;
            bytes = 0;
        }
        bytes += item->staged_bytes;
    }
    return st != DYT_OK || first == count
               ? st
               : add_step(m, own + first, count - first);
}

static enum dyt_status add_copies(struct making *m, size_t wave)
{
    const struct dyti_waves *waves = &m->overlay->waves;
    size_t lo = waves->wave_first[wave], hi = waves->wave_first[wave + 1];
    struct own *own = calloc(hi - lo + 1, sizeof(*own));
    size_t count = 0;
    enum dyt_status st;

    if (own == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu copies of a wave", hi - lo);
    }
    for (size_t a = lo; a < hi; a++) {
        if (is_own(m, &waves->action[a], &own[count])) {
            own[count++].action = a;
        }
    }
    if (count > 1) {
        qsort(own, count, sizeof(*own), by_turn);
    }
    st = add_steps(m, own, count);
    free(own);
    return st;
}

/* ---- the whole -------------------------------------------------------------
 */

static enum dyt_status add_waves(struct making *m)
{
    struct dyti_message_order *order = NULL;
    size_t waves = m->overlay->waves.wave_count;
    enum dyt_status st = make_flows(m);

    if (st == DYT_OK && m->links.flow_count > 0) {
        st = dyti_message_order_init(&m->b, &m->links, &order);
    }
    for (size_t w = 0; w < waves && st == DYT_OK; w++) {
        if (order != NULL) {
            st = dyti_message_order_add(order, &m->b, &m->links, (uint32_t)w);
        }
        st = st != DYT_OK ? st : add_copies(m, w);
        st = st != DYT_OK ? st : dyti_sched_add_fence(&m->b);
    }
    if (st == DYT_OK && waves == 0) {
        st = dyti_sched_add_fence(&m->b);
    }
    dyti_message_order_fini(order);
    return st != DYT_OK ? st : dyti_sched_finish_edges(&m->b);
}

static struct dyti_schedule *begin(const struct making *m)
{
    const struct dyti_overlay_params *params = m->params;
    struct dyti_schedule *s = calloc(1, sizeof(*s));
    size_t waves = m->overlay->waves.wave_count;

    if (s == NULL) {
        return NULL;
    }
    s->rank = m->rank;
    s->world_size = params->world_size;
    s->round_count = dyti_sched_rounds(params->world_size);
    s->options.side = params->side;
    s->options.chunk_bytes =
        params->chunk_bytes == 0 ? DYTI_SCHED_CHUNK_BYTES : params->chunk_bytes;
    s->options.links = (struct dyti_schedule_links){
        .wave_count = waves == 0 ? 1 : (uint32_t)waves,
        .staging_bytes = m->overlay->slot_bytes,
        .message_bytes = params->links->message_bytes,
        .strategy = params->links->strategy}; /* the only pointer: a constant */
    s->fingerprint =
        dyti_fingerprint_u64(dyti_overlay_fingerprint(m->overlay),
                             dyti_plan_fingerprint(params->inputs));
    return s;
}

enum dyt_status dyti_overlay_schedule(const struct dyti_overlay_params *params,
                                      const struct dyti_overlay *overlay,
                                      uint32_t rank,
                                      struct dyti_schedule **out_schedule)
{
    struct making m = {.params = params,
                       .overlay = overlay,
                       .rank = rank,
                       .links = *params->links,
                       .b = {.fence = DYTI_NO_STEP, .stream = add_stream}};
    struct dyti_schedule *s = begin(&m);
    enum dyt_status st;

    m.links.staging_bytes = overlay->slot_bytes;
    m.links.chains = NULL;
    m.links.collectives = NULL;
    m.b.stream_arg = &m;
    m.b.schedule = s;
    st = s == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "a schedule") : add_waves(&m);
    if (st == DYT_OK) {
        s->span = m.b.spans.span;
        s->span_count = (uint32_t)m.b.spans.span_count;
        m.b.spans.span = NULL;
        *out_schedule = s;
        s = NULL;
    } else {
        DYTI_NOTE("scheduling the waves of rank %u", rank);
    }
    free(m.b.edge);
    free(m.flow);
    free(m.block);
    free(m.end);
    dyti_spans_fini(&m.b.spans);
    dyti_schedule_destroy(s);
    return st;
}
