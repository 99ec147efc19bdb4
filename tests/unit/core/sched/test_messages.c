/* Random switches whose links go by messages, with staging of one message and
 * more, by every strategy, while somebody with bad intentions chooses what ends
 * next: nothing ever waits in a circle, slots have one user at a time, both
 * ends of a message mean the same bytes, and the destination is right. */
#include "span_cases.h"

#include "sched/chains.h"
#include "sched/collectives.h"

#define TRIALS    160u
#define SEED      4242u
#define SLOTS_MAX 64u

enum intent { ANYTHING, LAST_FIRST, SENDERS_FIRST, RECEIVERS_LAST, INTENTS };

enum { WAITS, READY, POSTED, ENDED };

struct world {
    uint32_t size;
    struct dyti_schedule *s[DYT_CASE_RANKS];
    uint8_t *state[DYT_CASE_RANKS];
    uint32_t *waits[DYT_CASE_RANKS];
    uint32_t *link[DYT_CASE_RANKS];  /* [2 * size] next to post */
    uint32_t *slot[DYT_CASE_RANKS];  /* [staging bytes] an id for each byte */
    uint32_t *head[DYT_CASE_RANKS];  /* [2 * size] first posted, not ended */
    uint32_t *parts[DYT_CASE_RANKS]; /* messages of a COLLECTIVE not ended */
    uint32_t kinds;                  /* of collectives, as bits */
    uint32_t collectives;            /* steps that were some */
    uint32_t slower;                 /* ranks whose collectives do not pay */
    uint32_t left;
    struct dyt_case_memory memory;
};

/* ---- bytes --------------------------------------------------------------- */

typedef void (*byte_fn)(struct world *w, const struct dyti_step *step,
                        uint32_t *slot, const struct dyti_span *span,
                        int64_t src, int64_t dst);

/* Call for each byte of [lo, hi) of a stream. */
static void each_byte(struct world *w, uint32_t rank,
                      const struct dyti_step *step, byte_fn fn)
{
    const struct dyti_schedule *s = w->s[rank];
    const struct dyti_stream *stream = &s->stream[step->stream];
    uint32_t *slot = w->slot[rank] + step->staging_offset;

    for (uint32_t i = 0; i < stream->span_count; i++) {
        const struct dyti_span *span = &s->span[stream->span_first + i];
        uint64_t begin = s->at[stream->at_first + i];
        uint64_t end = s->at[stream->at_first + i + 1];
        uint32_t bytes = dyti_dtype_bytes((enum dyti_dtype)span->dst_dtype);

        for (uint64_t b = begin < step->lo ? step->lo : begin;
             b < end && b < step->hi; b++) {
            uint64_t element = (b - begin) / bytes;
            int64_t src = (int64_t)span->src_offset;
            int64_t dst = (int64_t)span->dst_offset;

            for (uint32_t d = DYTI_SPAN_DIMS; d-- > 0;) {
                int64_t at = (int64_t)(element % (uint64_t)span->size[d]);

                src += at * span->src_stride[d];
                dst += at * span->dst_stride[d];
                element /= (uint64_t)span->size[d];
            }
            fn(w, step, slot + (b - step->lo), span, src, dst);
        }
    }
}

static void pack_byte(struct world *w, const struct dyti_step *step,
                      uint32_t *slot, const struct dyti_span *span, int64_t src,
                      int64_t dst)
{
    const uint32_t *from =
        w->memory.region[span->src_slot][span->src_kind][step->src_rank];

    (void)dst;
    *slot = from[src / dyti_dtype_bytes((enum dyti_dtype)span->src_dtype)];
}

static void unpack_byte(struct world *w, const struct dyti_step *step,
                        uint32_t *slot, const struct dyti_span *span,
                        int64_t src, int64_t dst)
{
    uint32_t *to =
        w->memory.region[span->dst_slot][span->dst_kind][step->dst_rank];
    int64_t at = dst / dyti_dtype_bytes((enum dyti_dtype)span->dst_dtype);

    (void)src;
    assert_true(to[at] == DYT_CASE_NOTHING || to[at] == *slot);
    to[at] = *slot;
}

/* ---- steps --------------------------------------------------------------- */

static bool is_message(const struct dyti_step *step)
{
    return step->kind == DYTI_STEP_MOVE || step->kind == DYTI_STEP_COLLECTIVE;
}

/* It is the step's turn on all its links. */
static bool is_due(const struct world *w, uint32_t rank, uint32_t at)
{
    const struct dyti_schedule *s = w->s[rank];

    for (uint32_t k = 0; k < s->step[at].part_count; k++) {
        const struct dyti_fused_message *part =
            &s->part[s->step[at].part_first + k];

        if (w->link[rank][part->peer + (part->is_send ? 0 : w->size)] != at) {
            return false;
        }
    }
    return w->state[rank][at] == READY;
}

static bool post_one(struct world *w, uint32_t rank, uint32_t l)
{
    const struct dyti_schedule *s = w->s[rank];
    uint32_t at = w->link[rank][l];

    if (at == DYTI_NO_STEP || !is_due(w, rank, at)) {
        return false;
    }
    w->state[rank][at] = POSTED;
    w->parts[rank][at] = s->step[at].part_count;
    w->collectives += s->step[at].kind == DYTI_STEP_COLLECTIVE;
    if (s->step[at].kind == DYTI_STEP_MOVE) {
        w->link[rank][l] = s->step[at].link_next;
        w->parts[rank][at] = 1;
    }
    for (uint32_t k = 0; k < s->step[at].part_count; k++) {
        const struct dyti_fused_message *part =
            &s->part[s->step[at].part_first + k];

        w->link[rank][part->peer + (part->is_send ? 0 : w->size)] =
            part->link_next;
    }
    return true;
}

static void post_ready(struct world *w, uint32_t rank)
{
    bool more = w->s[rank]->link_first != NULL;

    while (more) {
        more = false;
        for (uint32_t l = 0; l < 2 * w->size; l++) {
            while (post_one(w, rank, l)) {
                more = true;
            }
        }
    }
}

static void end_step(struct world *w, uint32_t rank, uint32_t index)
{
    const struct dyti_schedule *s = w->s[rank];
    const struct dyti_step *step = &s->step[index];

    w->state[rank][index] = ENDED;
    w->left--;
    for (uint32_t k = 0; k < step->next_count; k++) {
        uint32_t next = s->next[step->next_first + k];

        if (--w->waits[rank][next] == 0) {
            w->state[rank][next] = READY;
        }
    }
    post_ready(w, rank);
}

static void do_step(struct world *w, uint32_t rank, uint32_t index)
{
    const struct dyti_schedule *s = w->s[rank];
    const struct dyti_step *step = &s->step[index];

    if (step->kind == DYTI_STEP_PACK) {
        each_byte(w, rank, step, pack_byte);
    } else if (step->kind == DYTI_STEP_UNPACK) {
        each_byte(w, rank, step, unpack_byte);
    } else if (step->kind == DYTI_STEP_COPY) {
        for (uint32_t i = 0; i < step->span_count; i++) {
            dyt_case_run_span(&s->span[step->span_first + i], step->src_rank,
                              step->dst_rank, &w->memory);
        }
    }
    end_step(w, rank, index);
}

/* The oldest message from a to b, if both ends have been posted. */
static bool message_of(const struct world *w, uint32_t a, uint32_t b,
                       uint32_t *out_send, uint32_t *out_recv)
{
    uint32_t send, recv;

    if (w->s[a]->link_first == NULL || w->s[b]->link_first == NULL) {
        return false;
    }
    send = w->head[a][b];
    recv = w->head[b][w->size + a];
    if (send == DYTI_NO_STEP || recv == DYTI_NO_STEP ||
        w->state[a][send] != POSTED || w->state[b][recv] != POSTED) {
        return false;
    }
    *out_send = send;
    *out_recv = recv;
    return true;
}

/* Where a message on a link lies. */
static uint32_t *place_of(const struct world *w, uint32_t rank, uint32_t at,
                          uint32_t link)
{
    const struct dyti_schedule *s = w->s[rank];
    const struct dyti_step *step = &s->step[at];

    for (uint32_t k = 0; k < step->part_count; k++) {
        const struct dyti_fused_message *part = &s->part[step->part_first + k];

        if (part->peer == link % w->size && part->is_send == (link < w->size)) {
            return w->slot[rank] + part->staging_offset;
        }
    }
    assert_true(step->kind == DYTI_STEP_MOVE);
    assert_true(link < w->size
                    ? step->src_rank == rank && step->dst_rank == link
                    : step->dst_rank == rank &&
                          step->src_rank == link - w->size);
    return w->slot[rank] + step->staging_offset;
}

static void do_message(struct world *w, uint32_t a, uint32_t b)
{
    uint32_t send = 0, recv = 0;
    const struct dyti_step *from, *to;

    assert_true(message_of(w, a, b, &send, &recv));
    from = &w->s[a]->step[send];
    to = &w->s[b]->step[recv];
    assert_true(from->lo == to->lo && from->hi == to->hi);
    assert_int_equal(from->kind, to->kind);
    if (from->kind == DYTI_STEP_COLLECTIVE) { /* number and kind: the same */
        assert_int_equal(from->round, to->round);
        assert_int_equal(from->collective, to->collective);
    }
    memcpy(place_of(w, b, recv, w->size + a), place_of(w, a, send, b),
           (from->hi - from->lo) * sizeof(uint32_t));
    w->head[a][b] = dyti_schedule_link_next(w->s[a], send, b);
    w->head[b][w->size + a] =
        dyti_schedule_link_next(w->s[b], recv, w->size + a);
    if (--w->parts[a][send] == 0) {
        end_step(w, a, send);
    }
    if (--w->parts[b][recv] == 0) {
        end_step(w, b, recv);
    }
}

/* ---- who chooses --------------------------------------------------------- */

struct choice {
    uint32_t rank, index; /* a step … */
    uint32_t to;          /* … or, not UINT32_MAX, a message rank -> to */
};

/* How much the bad one likes it. */
static uint64_t taste(const struct world *w, enum intent intent,
                      const struct choice *c, uint64_t random)
{
    bool message = c->to != UINT32_MAX;
    uint8_t kind =
        message ? DYTI_STEP_MOVE : w->s[c->rank]->step[c->index].kind;

    random >>= 40;
    switch (intent) {
    case LAST_FIRST:
        return ((uint64_t)c->rank << 40) + ((uint64_t)c->index << 8);
    case SENDERS_FIRST:
        return (kind == DYTI_STEP_PACK ? UINT64_C(1) << 40 : 0) + random;
    case RECEIVERS_LAST:
        return (kind == DYTI_STEP_UNPACK ? 0 : UINT64_C(1) << 40) + random;
    default:
        return random;
    }
}

static bool next_choice(const struct world *w, enum intent intent, uint64_t n,
                        uint64_t trial, struct choice *out)
{
    uint64_t best = 0, seen = 0;
    bool found = false;

    for (uint32_t r = 0; r < w->size; r++) {
        for (uint32_t i = 0; i < w->s[r]->step_count + w->size; i++) {
            bool is_step = i < w->s[r]->step_count;
            struct choice c = {r, is_step ? i : 0,
                               is_step ? UINT32_MAX : i - w->s[r]->step_count};
            uint32_t send, recv;
            uint64_t like;

            if (is_step
                    ? w->state[r][i] != READY || is_message(&w->s[r]->step[i])
                    : !message_of(w, r, c.to, &send, &recv)) {
                continue;
            }
            like = 1 + taste(w, intent, &c,
                             dyti_rng_u64(SEED, trial * 100000 + n, seen++, 7));
            if (like > best) {
                best = like;
                *out = c;
                found = true;
            }
        }
    }
    return found;
}

/* ---- a trial ------------------------------------------------------------- */

static void open_rank(struct world *w, uint32_t r)
{
    const struct dyti_schedule *s = w->s[r];
    size_t links = 2 * w->size;

    w->state[r] = calloc(s->step_count, 1);
    w->waits[r] = calloc(s->step_count, sizeof(uint32_t));
    w->link[r] = calloc(links, sizeof(uint32_t));
    w->head[r] = calloc(links, sizeof(uint32_t));
    w->parts[r] = calloc(s->step_count, sizeof(uint32_t));
    w->slot[r] = calloc(s->staging_bytes + 1, sizeof(uint32_t));
    assert_true(w->state[r] && w->waits[r] && w->link[r] && w->head[r] &&
                w->slot[r] && w->parts[r]);
    for (uint32_t i = 0; i < s->step_count; i++) {
        w->waits[r][i] = s->step[i].wait_count;
        w->state[r][i] = w->waits[r][i] == 0 ? READY : WAITS;
    }
    if (s->link_first != NULL) {
        memcpy(w->link[r], s->link_first, links * sizeof(uint32_t));
        memcpy(w->head[r], s->link_first, links * sizeof(uint32_t));
    }
    w->left += s->step_count;
    post_ready(w, r);
}

static void run_world(struct world *w, uint64_t trial)
{
    enum intent intent = (enum intent)(trial % INTENTS);
    struct choice c = {0};

    for (uint64_t n = 0; w->left > 0; n++) {
        if (!next_choice(w, intent, n, trial, &c)) {
            fail_msg("trial %" PRIu64 ": %u steps wait for ever", trial,
                     w->left);
        }
        if (c.to == UINT32_MAX) {
            do_step(w, c.rank, c.index);
        } else {
            do_message(w, c.rank, c.to);
        }
    }
}

/* With those that are promoted it takes no longer; with all it may. */
static void check_pays(struct world *w, const struct dyti_plan *whole,
                       const struct dyti_schedule_links *links,
                       const struct dyti_flow *flow,
                       const struct dyti_chains *chains)
{
    struct dyti_collectives some = {0}, all = {0};
    double without, with, most;
    size_t n = links->flow_count;

    assert_ok(dyti_collectives_find(whole, links, flow, n, chains, &some));
    assert_ok(dyti_collectives_all(whole, links, flow, n, chains, &all));
    assert_ok(dyti_collectives_seconds(whole, links, flow, n, chains, NULL,
                                       &without));
    assert_ok(
        dyti_collectives_seconds(whole, links, flow, n, chains, &some, &with));
    assert_ok(
        dyti_collectives_seconds(whole, links, flow, n, chains, &all, &most));
    assert_true(with <= without * (1 + 1e-9));
    assert_true(some.found.count <= all.found.count);
    w->slower += most > without * (1 + 1e-9);
    dyti_collectives_fini(&some);
    dyti_collectives_fini(&all);
}

static void build_rank(const struct dyt_case_switch *c, struct world *w,
                       uint32_t r, const struct dyti_plan *whole,
                       struct dyti_schedule_options options)
{
    struct dyti_plan *plan = NULL;
    struct dyti_flow *flow = NULL;
    uint64_t **end = NULL;
    struct dyti_chains chains = {0};
    struct dyti_collectives collectives = {0};

    assert_ok(dyti_plan_build_rank(&c->inputs, r, &plan));
    assert_ok(dyti_schedule_flows(whole, options.links.domain, &flow, &end,
                                  &options.links.flow_count,
                                  &options.links.wave_count));
    options.links.flow = flow;
    options.links.end = (const uint64_t *const *)end;
    assert_ok(dyti_chains_find(whole, &options.links, flow,
                               options.links.flow_count, &chains));
    check_pays(w, whole, &options.links, flow, &chains);
    assert_ok(dyti_collectives_all(whole, &options.links, flow,
                                   options.links.flow_count, &chains,
                                   &collectives));
    options.links.chains = &chains;
    options.links.collectives = &collectives;
    for (size_t i = 0; i < collectives.found.count; i++) {
        w->kinds |= 1u << collectives.found.collective[i].kind;
    }
    assert_ok(dyti_schedule_build(plan, r, &options, &w->s[r]));
    assert_ok(dyti_schedule_check(w->s[r]));
    assert_true(w->s[r]->staging_bytes <= options.links.staging_bytes ||
                options.links.staging_bytes == 0);
    free(flow);
    free(end);
    dyti_chains_fini(&chains);
    dyti_collectives_fini(&collectives);
    dyti_plan_destroy(plan);
}

static void no_order_of_ends_makes_them_wait_for_ever(void **state)
{
    static const uint64_t staging[] = {128, 192, 512, 0};

    uint32_t collectives = 0, kinds = 0, slower = 0;

    (void)state;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        struct world w = {.size =
                              2 + (uint32_t)dyt_case_pick(SEED, trial, 0, 6)};
        uint32_t domain[DYT_CASE_RANKS];
        struct dyti_schedule_options options = {
            .links = {
                .domain = domain,
                .strategy = dyti_strategy_at(dyt_case_pick(SEED, trial, 61, 4)),
                .message_bytes =
                    dyt_case_pick(SEED, trial, 60, 2) == 0 ? 64 : 0,
                .staging_bytes = staging[dyt_case_pick(SEED, trial, 62, 4)]}};
        struct dyti_plan *whole = NULL;
        struct dyt_case_switch c;

        for (uint32_t r = 0; r < w.size; r++) {
            domain[r] = trial % 3 == 0 ? r / 2 : r;
        }
        dyt_case_switch_open(SEED, trial,
                             (enum dyt_case_way)(trial % DYT_CASE_WAYS), w.size,
                             &c);
        dyt_case_memory_open(&c.inputs, &w.memory);
        assert_ok(dyti_plan_build(&c.inputs, &whole));
        for (uint32_t r = 0; r < w.size; r++) {
            build_rank(&c, &w, r, whole, options);
            assert_true(w.s[r]->fingerprint == w.s[0]->fingerprint);
            open_rank(&w, r);
        }
        run_world(&w, trial);
        dyt_case_memory_check(&c.inputs, &w.memory, -1);
        for (uint32_t r = 0; r < w.size; r++) {
            free(w.state[r]);
            free(w.waits[r]);
            free(w.link[r]);
            free(w.head[r]);
            free(w.parts[r]);
            free(w.slot[r]);
            dyti_schedule_destroy(w.s[r]);
        }
        dyti_plan_destroy(whole);
        dyt_case_memory_close(&w.memory);
        dyt_case_switch_close(&c);
        collectives += w.collectives;
        kinds |= w.kinds;
        slower += w.slower;
    }
    print_message("%u steps were collectives, kinds %x\n", collectives, kinds);
    assert_true(collectives > 0);
    assert_true(slower > 0); /* and are not promoted */
}

static void a_cap_too_small_is_refused_with_the_smallest(void **state)
{
    const uint32_t domain[] = {0, 1, 2};
    struct dyti_schedule_options options = {
        .links = {.domain = domain,
                  .strategy = dyti_strategy_at(0),
                  .staging_bytes = 127}};
    struct dyti_schedule *s = NULL;
    struct dyti_plan *plan = NULL;
    struct dyt_case_switch c;

    (void)state;
    dyt_case_switch_open(SEED, 1, (enum dyt_case_way)0, 3, &c);
    assert_ok(dyti_plan_build(&c.inputs, &plan));
    assert_status(DYT_ERR_UNSUPPORTED,
                  dyti_schedule_build(plan, 0, &options, &s));
    assert_null(s);
    assert_error_has("127");
    assert_error_has("128");
    options.links.staging_bytes = 128; /* and that works */
    assert_ok(dyti_schedule_build(plan, 0, &options, &s));
    dyti_schedule_destroy(s);
    options.links.strategy = NULL;
    assert_status(DYT_ERR_INVALID, dyti_schedule_build(plan, 0, &options, &s));
    dyti_plan_destroy(plan);
    dyt_case_switch_close(&c);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_order_of_ends_makes_them_wait_for_ever),
    cmocka_unit_test(a_cap_too_small_is_refused_with_the_smallest),
};
DYT_TEST_MAIN(tests)
