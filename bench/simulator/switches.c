#include "switches.h"

#include "bench.h"
#include "sched/sched.h"

#include <stdlib.h>
#include <string.h>

#define STEP_BYTES (64u << 20) /* as a world cuts its steps */

/* Runs of bytes that lie together on the sides that are asked about. */
static uint64_t runs_of(const struct dyti_span *span, bool src, bool dst)
{
    int64_t read = dyti_dtype_bytes((enum dyti_dtype)span->src_dtype);
    int64_t written = dyti_dtype_bytes((enum dyti_dtype)span->dst_dtype);
    uint64_t runs = 1;
    bool together = true;

    for (int d = DYTI_SPAN_DIMS; d-- > 0;) {
        together =
            together &&
            (!src || span->size[d] == 1 || span->src_stride[d] == read) &&
            (!dst || span->size[d] == 1 || span->dst_stride[d] == written);
        if (!together) {
            runs *= (uint64_t)span->size[d];
        }
        read *= span->size[d];
        written *= span->size[d];
    }
    return runs;
}

static uint64_t converted(const struct dyti_span *span)
{
    uint64_t elements = 1;

    if (span->src_dtype == span->dst_dtype) {
        return 0;
    }
    for (int d = 0; d < (int)DYTI_SPAN_DIMS; d++) {
        elements *= (uint64_t)span->size[d];
    }
    return elements * dyti_dtype_bytes((enum dyti_dtype)span->dst_dtype);
}

/* What a rank's schedule has to do beside its messages. */
static void read_schedule(const struct dyti_schedule *s,
                          struct real_switch *out)
{
    struct dyti_rank_boxes *b = &out->boxes[s->rank];

    for (uint32_t i = 0; i < s->step_count; i++) {
        const struct dyti_step *step = &s->step[i];

        if (step->kind != DYTI_STEP_COPY) {
            continue;
        }
        out->keep[s->rank] += step->write_bytes;
        for (uint32_t k = 0; k < step->span_count; k++) {
            const struct dyti_span *span = &s->span[step->span_first + k];

            b->kept += runs_of(span, true, true);
            b->converted_kept += converted(span);
        }
    }
    for (uint32_t i = 0; i < s->stream_count; i++) {
        const struct dyti_stream *stream = &s->stream[i];

        for (uint32_t k = 0; k < stream->span_count; k++) {
            const struct dyti_span *span = &s->span[stream->span_first + k];

            if (stream->src_rank == s->rank) {
                b->sent += runs_of(span, true, false);
                b->converted_to_send += converted(span);
            }
            if (stream->dst_rank == s->rank) {
                b->received += runs_of(span, false, true);
            }
        }
    }
}

/* Distinct bytes of the source that a rank reads: no more than there are. */
static void count_source(const struct team *team, const struct dyti_plan *plan,
                         struct real_switch *s)
{
    for (uint32_t i = 0; i < plan->pair_count; i++) {
        s->boxes[plan->pair[i].src_rank].source_bytes +=
            plan->pair[i].read_bytes;
    }
    for (uint32_t r = 0; r < team->shape.ranks; r++) {
        uint64_t has = 0, *reads = &s->boxes[r].source_bytes;

        for (uint32_t w = 0; w < plan->inputs.want_count; w++) {
            const struct dyti_plan_source *from =
                &plan->inputs.want[w].source[0];

            has += dyti_layout_view(from->layout, r)->region_bytes[from->kind];
        }
        *reads = *reads < has ? *reads : has;
    }
}

/* Pieces as the schedule sends them: in messages of at most a slot. */
static void count_messages(struct real_switch *s, uint64_t message_bytes)
{
    for (size_t i = 0; i < s->pieces.count; i++) {
        struct dyti_piece *p = &s->pieces.piece[i];

        p->messages = message_bytes == 0
                          ? 1
                          : (uint32_t)((p->hi - p->lo + message_bytes - 1) /
                                       message_bytes);
    }
}

static enum dyt_status plan_links(const struct team *team,
                                  const struct dyti_plan *plan,
                                  const struct dyti_order *order,
                                  const struct dyti_schedule_links *links,
                                  struct real_switch *s)
{
    struct dyti_schedule_options options = {
        .side = DYTI_SIDE_PULL, .chunk_bytes = STEP_BYTES, .links = *links};
    uint64_t message_bytes = 0;
    enum dyt_status st = links->strategy->order(order, &s->pieces);

    for (uint32_t r = 0; r < team->shape.ranks && st == DYT_OK; r++) {
        struct dyti_schedule *schedule = NULL;

        st = dyti_schedule_build(plan, r, &options, &schedule);
        if (st == DYT_OK) {
            read_schedule(schedule, s);
            message_bytes = schedule->message_bytes > message_bytes
                                ? schedule->message_bytes
                                : message_bytes;
            dyti_schedule_destroy(schedule);
        }
    }
    count_messages(s, message_bytes);
    count_source(team, plan, s);
    return st;
}

bool real_switch_plan(const struct team *team, struct real_switch *s)
{
    uint32_t n = team->shape.ranks, host[TEAM_RANKS_MAX] = {0}, waves = 0;
    uint32_t domain[TEAM_RANKS_MAX];
    /* the cluster that the workers are told */
    struct dyti_cluster cluster = {
        .name = "one host", .rank_count = n, .host_count = 1, .host = host};
    struct dyti_schedule_links links = {.domain = domain,
                                        .strategy =
                                            dyti_strategy_at(s->strategy),
                                        .cluster = &cluster};
    struct dyti_order order = {.cluster = &cluster};
    struct dyti_plan_inputs inputs;
    struct dyti_plan *plan = NULL;
    struct dyti_flow *flow = NULL;
    uint64_t **end = NULL;
    enum dyt_status st = dyti_plan_inputs_init(team->layout[s->from], s->from,
                                               team->layout[s->to], s->to,
                                               DYTI_PLAN_KINDS_STATE, &inputs);

    for (uint32_t r = 0; r < n; r++) {
        domain[r] = r;
    }
    for (int c = 0; c < DYTI_LINK_CLASS_COUNT; c++) {
        cluster.link[c].bytes_per_s = 4e9;
    }
    st = st != DYT_OK ? st : dyti_plan_build(&inputs, &plan);
    st = st != DYT_OK ? st
                      : dyti_schedule_flows(plan, domain, &flow, &end,
                                            &order.flow_count, &waves);
    if (st == DYT_OK) {
        order.flow = links.flow = flow;
        order.end = links.end = (const uint64_t *const *)end;
        links.flow_count = order.flow_count;
        links.wave_count = waves;
        st = plan_links(team, plan, &order, &links, s);
    }
    free(flow);
    free(end);
    dyti_plan_destroy(plan);
    if (st != DYT_OK) {
        fprintf(stderr, "simulator: %s: %s\n", s->model, dyti_error_text());
    }
    return st == DYT_OK;
}

void real_switch_fini(struct real_switch *s)
{
    dyti_pieces_fini(&s->pieces);
}

bool real_switch_run(struct team *team, struct real_switch *s, bool counts)
{
    const struct team_command command = {.order = TEAM_SWITCH,
                                         .from = s->from,
                                         .to = s->to,
                                         .verify = DYTI_VERIFY_SAMPLE,
                                         .mover = DYTI_WORLD_MESSAGE,
                                         .strategy = s->strategy};
    double seconds = 0.0;
    enum dyt_status st = team_run(team, &command, &seconds, NULL);

    if (st != DYT_OK) {
        fprintf(stderr, "simulator: %s: %s\n", s->model, dyti_error_text());
        return false;
    }
    if (counts && s->rounds < SWITCH_ROUNDS) {
        s->seconds[s->rounds++] = seconds;
    }
    return true;
}

double real_switch_median(const struct real_switch *s)
{
    double copy[SWITCH_ROUNDS];

    memcpy(copy, s->seconds, sizeof(copy));
    return bench_median(copy, s->rounds);
}
