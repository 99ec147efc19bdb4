/* Orders a rank's copies by the XOR pairing and cuts them into steps; puts the
 * steps of messages between them, and a fence behind each wave. */
#include "base/array.h"
#include "base/hash.h"
#include "sched/builder.h"

#include <stdlib.h>

const char *dyti_step_kind_name(enum dyti_step_kind kind)
{
    static const char *const name[DYTI_STEP_KIND_COUNT] = {
        "copy", "pack", "move", "unpack", "collective", "fence"};

    return (unsigned)kind < DYTI_STEP_KIND_COUNT ? name[kind] : "?";
}

uint32_t dyti_schedule_link_next(const struct dyti_schedule *schedule,
                                 uint32_t step, uint32_t link)
{
    const struct dyti_step *at = &schedule->step[step];
    uint32_t peer = link % schedule->world_size;
    bool is_send = link < schedule->world_size;

    for (uint32_t i = 0; i < at->part_count; i++) {
        const struct dyti_fused_message *part =
            &schedule->part[at->part_first + i];

        if (part->peer == peer && part->is_send == is_send) {
            return part->link_next;
        }
    }
    return at->kind == DYTI_STEP_MOVE ? at->link_next : DYTI_NO_STEP;
}

static uint64_t chunk_of(const struct dyti_schedule_options *options)
{
    return options->chunk_bytes == 0 ? DYTI_SCHED_CHUNK_BYTES
                                     : options->chunk_bytes;
}

static uint64_t bits_of(double x)
{
    union {
        double x;
        uint64_t bits;
    } u = {.x = x};

    return u.bits;
}

/* Everything that decides which messages there are, and in which order. */
static uint64_t links_fingerprint(uint64_t state, uint32_t world_size,
                                  const struct dyti_schedule_links *links)
{
    const struct dyti_cluster *cluster = links->cluster;
    const char *name = links->strategy == NULL ? "" : links->strategy->name;

    for (uint32_t r = 0; r < world_size; r++) {
        state = dyti_fingerprint_u64(state, links->domain[r]);
    }
    while (*name != '\0') {
        state = dyti_fingerprint_u64(state, (unsigned char)*name++);
    }
    state = dyti_fingerprint_u64(state, links->staging_bytes);
    state = dyti_fingerprint_u64(state, links->message_bytes);
    for (uint32_t r = 0; cluster != NULL && r < cluster->rank_count; r++) {
        state = dyti_fingerprint_u64(state, cluster->host[r]);
    }
    for (int c = 0; cluster != NULL && c < DYTI_LINK_CLASS_COUNT; c++) {
        state =
            dyti_fingerprint_u64(state, bits_of(cluster->link[c].bytes_per_s));
        state = dyti_fingerprint_u64(state, cluster->link[c].half_duplex);
    }
    return state;
}

uint64_t dyti_schedule_fingerprint(uint64_t plan_fingerprint,
                                   uint32_t world_size,
                                   const struct dyti_schedule_options *options)
{
    uint64_t state = DYTI_FINGERPRINT_SEED;

    state = dyti_fingerprint_u64(state, DYTI_SCHED_VERSION);
    state = dyti_fingerprint_u64(state, plan_fingerprint);
    state = dyti_fingerprint_u64(state, world_size);
    state = dyti_fingerprint_u64(state, options->side);
    state = dyti_fingerprint_u64(state, chunk_of(options));
    return options->links.domain == NULL
               ? state
               : links_fingerprint(state, world_size, &options->links);
}

/* ---- steps and waits ---------------------------------------------------- */

enum dyt_status dyti_sched_add_edge(struct dyti_sched_builder *b,
                                    uint32_t before, uint32_t after)
{
    enum dyt_status st;

    if (before == DYTI_NO_STEP) {
        return DYT_OK;
    }
    st = DYTI_GROW(b->edge, b->edge_cap, b->edge_count + 1);
    if (st == DYT_OK) {
        b->edge[b->edge_count++] = (struct dyti_sched_edge){before, after};
    }
    return st;
}

enum dyt_status dyti_sched_add_step(struct dyti_sched_builder *b,
                                    const struct dyti_step *step,
                                    uint32_t *out_index)
{
    struct dyti_schedule *s = b->schedule;
    enum dyt_status st = DYTI_GROW(s->step, b->step_cap, s->step_count + 1u);

    if (st != DYT_OK) {
        return st;
    }
    s->step[s->step_count] = *step;
    s->read_bytes += step->read_bytes;
    s->write_bytes += step->write_bytes;
    if (out_index != NULL) {
        *out_index = s->step_count;
    }
    s->step_count++;
    return dyti_sched_add_edge(b, b->fence, s->step_count - 1u);
}

enum dyt_status dyti_sched_finish_edges(struct dyti_sched_builder *b)
{
    struct dyti_schedule *s = b->schedule;
    uint32_t first = 0;

    if (b->edge_count > UINT32_MAX) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "%zu waits", b->edge_count);
    }
    s->next = calloc(b->edge_count + 1, sizeof(*s->next));
    if (s->next == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu followers", b->edge_count);
    }
    s->next_total = (uint32_t)b->edge_count;
    for (size_t i = 0; i < b->edge_count; i++) {
        s->step[b->edge[i].before].next_count++;
        s->step[b->edge[i].after].wait_count++;
    }
    for (uint32_t i = 0; i < s->step_count; i++) {
        s->step[i].next_first = first;
        first += s->step[i].next_count;
        s->step[i].next_count = 0;
    }
    for (size_t i = 0; i < b->edge_count; i++) {
        struct dyti_step *step = &s->step[b->edge[i].before];

        s->next[step->next_first + step->next_count++] = b->edge[i].after;
    }
    return DYT_OK;
}

enum dyt_status dyti_sched_add_fence(struct dyti_sched_builder *b)
{
    struct dyti_schedule *s = b->schedule;
    uint32_t first = b->first_slack, last = s->step_count, fence = 0;
    struct dyti_step step = {.kind = DYTI_STEP_FENCE,
                             .side = (uint8_t)s->options.side,
                             .round = s->round_count,
                             .src_rank = s->rank,
                             .dst_rank = s->rank,
                             .stream = DYTI_NO_STREAM,
                             .link_next = DYTI_NO_STEP};
    bool *followed = calloc((size_t)(last - first) + 1, sizeof(*followed));
    enum dyt_status st;

    if (followed == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u steps", last - first);
    }
    for (size_t i = b->edge_count; i-- > 0;) {
        if (b->edge[i].before >= first) {
            followed[b->edge[i].before - first] = true;
        }
    }
    /* With nothing between two fences the second follows the first. */
    st = dyti_sched_add_step(b, &step, &fence);
    for (uint32_t i = first; i < last && st == DYT_OK; i++) {
        if (!followed[i - first]) {
            st = dyti_sched_add_edge(b, i, fence);
        }
    }
    free(followed);
    b->fence = fence;
    b->first_slack = fence + 1;
    return st;
}

/* ---- copies ------------------------------------------------------------- */

void dyti_sched_count_span(struct dyti_step *step, const struct dyti_span *span,
                           const struct dyti_span_range *of)
{
    uint64_t elements = dyti_span_elements(span);

    if (step->span_count == 0) {
        step->transfer_first = of->transfer_first;
    }
    step->transfer_count = of->transfer_last + 1 - step->transfer_first;
    step->span_count++;
    step->read_bytes +=
        elements * dyti_dtype_bytes((enum dyti_dtype)span->src_dtype);
    step->write_bytes +=
        elements * dyti_dtype_bytes((enum dyti_dtype)span->dst_dtype);
}

/* The copies of one pair, as steps of at most a chunk. */
static enum dyt_status add_pair(struct dyti_sched_builder *b,
                                const struct dyti_plan_pair *pair,
                                uint32_t wave)
{
    const struct dyti_schedule_options *options = &b->schedule->options;
    struct dyti_step form = {.kind = DYTI_STEP_COPY,
                             .side = (uint8_t)options->side,
                             .round = pair->src_rank ^ pair->dst_rank,
                             .src_rank = pair->src_rank,
                             .dst_rank = pair->dst_rank,
                             .stream = DYTI_NO_STREAM,
                             .link_next = DYTI_NO_STEP};
    struct dyti_step step = form;
    size_t first = b->spans.span_count;
    enum dyt_status st = dyti_spans_add_wave(&b->spans, b->plan, pair, wave,
                                             options->chunk_bytes);

    if (st == DYT_OK && b->spans.span_count > UINT32_MAX) {
        st = DYTI_FAIL(DYT_ERR_OVERFLOW, "%zu spans", b->spans.span_count);
    }
    step.span_first = (uint32_t)first;
    for (size_t i = first; st == DYT_OK && i < b->spans.span_count; i++) {
        const struct dyti_span *span = &b->spans.span[i];
        uint64_t bytes = dyti_span_elements(span) *
                         dyti_dtype_bytes((enum dyti_dtype)span->dst_dtype);

        if (step.span_count > 0 &&
            step.write_bytes + bytes > options->chunk_bytes) {
            st = dyti_sched_add_step(b, &step, NULL);
            step = form;
            step.span_first = (uint32_t)i;
        }
        dyti_sched_count_span(&step, span, &b->spans.of[i]);
    }
    return st != DYT_OK || step.span_count == 0
               ? st
               : dyti_sched_add_step(b, &step, NULL);
}

static int by_round(const void *a, const void *b)
{
    const struct dyti_plan_pair *x = *(const struct dyti_plan_pair *const *)a;
    const struct dyti_plan_pair *y = *(const struct dyti_plan_pair *const *)b;
    uint32_t i = x->src_rank ^ x->dst_rank, j = y->src_rank ^ y->dst_rank;

    return (i > j) - (i < j); /* one pair a round: never equal */
}

/* Pairs whose copies this rank executes. */
static bool executes(const struct dyti_schedule *s,
                     const struct dyti_plan_pair *pair)
{
    return (s->options.side == DYTI_SIDE_PULL ? pair->dst_rank
                                              : pair->src_rank) == s->rank;
}

static enum dyt_status add_rounds(struct dyti_sched_builder *b,
                                  const struct dyti_schedule_links *links,
                                  uint32_t wave)
{
    const struct dyti_plan *plan = b->plan;
    const struct dyti_plan_pair **mine;
    size_t count = 0;
    enum dyt_status st = DYT_OK;

    mine = calloc((size_t)plan->pair_count + 1, sizeof(*mine));
    if (mine == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u pairs", plan->pair_count);
    }
    for (uint32_t i = 0; i < plan->pair_count; i++) {
        if (executes(b->schedule, &plan->pair[i]) &&
            !dyti_plan_stays(plan, &plan->pair[i]) &&
            dyti_links_map(links, plan->pair[i].src_rank,
                           plan->pair[i].dst_rank)) {
            mine[count++] = &plan->pair[i];
        }
    }
    if (count > 1) {
        qsort(mine, count, sizeof(*mine), by_round);
    }
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        st = add_pair(b, mine[i], wave);
    }
    free(mine);
    return st;
}

/* ---- the whole ---------------------------------------------------------- */

static enum dyt_status check(const struct dyti_plan *plan, uint32_t rank,
                             const struct dyti_schedule_options *options)
{
    if (rank >= plan->world_size ||
        (plan->rank >= 0 && plan->rank != (int64_t)rank)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "rank %u cannot be scheduled from a plan of rank "
                         "%lld in a world of %u",
                         rank, (long long)plan->rank, plan->world_size);
    }
    if (options->side != DYTI_SIDE_PULL && options->side != DYTI_SIDE_PUSH) {
        return DYTI_FAIL(DYT_ERR_INVALID, "side %d: pull or push",
                         (int)options->side);
    }
    if (options->cap_bytes != 0 &&
        options->segment_bytes > options->cap_bytes) {
        return DYTI_FAIL(
            DYT_ERR_UNSUPPORTED,
            "rank %u needs %llu bytes for what is resident, the source and "
            "the destination together, the cap is %llu: moving in waves is "
            "not available; the smallest cap that works is %llu",
            rank, (unsigned long long)options->segment_bytes,
            (unsigned long long)options->cap_bytes,
            (unsigned long long)options->segment_bytes);
    }
    return DYT_OK;
}

uint32_t dyti_sched_rounds(uint32_t n)
{
    uint32_t p = 1;

    while (p < n && p < 1u << 31) {
        p *= 2;
    }
    return p;
}

enum dyt_status dyti_schedule_build(const struct dyti_plan *plan, uint32_t rank,
                                    const struct dyti_schedule_options *options,
                                    struct dyti_schedule **out_schedule)
{
    const struct dyti_schedule_links *links = &options->links;
    struct dyti_sched_builder b = {.plan = plan, .fence = DYTI_NO_STEP};
    struct dyti_message_order *order = NULL;
    uint32_t waves = links->wave_count > 0  ? links->wave_count
                     : plan->inputs.fan_out ? 2
                                            : 1;
    struct dyti_schedule *s = NULL;
    enum dyt_status st = check(plan, rank, options);

    if (st != DYT_OK) {
        goto out;
    }
    s = calloc(1, sizeof(*s));
    if (s == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "a schedule");
        goto out;
    }
    b.schedule = s;
    s->rank = rank;
    s->world_size = plan->world_size;
    s->options = *options;
    s->options.chunk_bytes = chunk_of(options);
    s->round_count = dyti_sched_rounds(plan->world_size);
    s->fingerprint =
        dyti_schedule_fingerprint(plan->fingerprint, plan->world_size, options);
    if (links->domain != NULL) {
        st = dyti_message_order_init(&b, links, &order);
    }
    for (uint32_t wave = 0; wave < waves && st == DYT_OK; wave++) {
        if (order != NULL) {
            st = dyti_message_order_add(order, &b, links, wave);
        }
        st = st != DYT_OK ? st : add_rounds(&b, links, wave);
        st = st != DYT_OK ? st : dyti_sched_add_fence(&b);
    }
    st = st != DYT_OK ? st : dyti_sched_finish_edges(&b);
    if (st != DYT_OK) {
        goto out;
    }
    s->options.links = (struct dyti_schedule_links){
        .wave_count = waves,
        .staging_bytes = links->staging_bytes,
        .message_bytes = links->message_bytes,
        .strategy = links->strategy}; /* the only pointer: a constant */
    s->span = b.spans.span;
    s->span_count = (uint32_t)b.spans.span_count;
    b.spans.span = NULL;
    *out_schedule = s;
    s = NULL;
out:
    if (st != DYT_OK) {
        DYTI_NOTE("scheduling rank %u", rank);
    }
    dyti_message_order_fini(order);
    free(b.edge);
    dyti_spans_fini(&b.spans);
    dyti_schedule_destroy(s);
    return st;
}

void dyti_schedule_destroy(struct dyti_schedule *schedule)
{
    if (schedule != NULL) {
        free(schedule->step);
        free(schedule->span);
        free(schedule->next);
        free(schedule->stream);
        free(schedule->at);
        free(schedule->link_first);
        free(schedule->part);
        free(schedule->member);
        free(schedule);
    }
}
