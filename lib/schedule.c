/* schedule.h: the order of a plan's bytes by a strategy, and how close that is
 * to the busiest link's load. */
#include "explain/words.h"
#include "lib/handles.h"
#include "sched/certificate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PARAMS_BYTES_0_1 24u
#define TOTALS_BYTES_0_1 24u

_Static_assert(sizeof(struct dyt_schedule_params) >= PARAMS_BYTES_0_1 &&
                   sizeof(struct dyt_schedule_figures) >= TOTALS_BYTES_0_1,
               "structs only grow");

static enum dyt_status order(struct dyt_schedule *s,
                             const struct dyti_strategy_ops *ops,
                             uint64_t chunk_bytes)
{
    struct dyti_order in = {.cluster = &s->plan->cluster,
                            .chunk_bytes = chunk_bytes};
    struct dyti_flow *detour = NULL;
    enum dyt_status st =
        dyti_traffic_flows(s->plan->traffic, &s->flow, &s->flow_count);

    if (st == DYT_OK && ops == &dyti_strategy_funnel) {
        st = dyti_traffic_funnel(s->plan->traffic, &detour, &in.detour_count);
        in.detour = detour;
    }
    in.flow = s->flow;
    in.flow_count = s->flow_count;
    st = st != DYT_OK ? st : ops->order(&in, &s->pieces);
    free(detour);
    for (size_t i = 0; st == DYT_OK && i < s->pieces.count; i++) {
        uint32_t stands_for = s->pieces.piece[i].messages;

        s->messages += stands_for > 0 ? stands_for : 1;
    }
    return st;
}

enum dyt_status dyt_schedule_build(const dyt_plan *plan,
                                   const struct dyt_schedule_params *params,
                                   dyt_schedule **out_schedule)
{
    const struct dyti_strategy_ops *ops = &dyti_strategy_optimal;
    dyt_schedule *s = NULL;
    enum dyt_status st =
        params == NULL
            ? DYT_OK
            : dyti_struct_check("dyt_schedule_params", params->struct_size,
                                PARAMS_BYTES_0_1);

    if (st == DYT_OK && params != NULL && params->strategy != NULL) {
        st = dyti_strategy_by_name(params->strategy, &ops);
    }
    if (st == DYT_OK && (plan == NULL || out_schedule == NULL)) {
        st = dyti_null_argument("dyt_schedule_build");
    }
    if (st != DYT_OK) {
        return st;
    }
    s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a schedule");
    }
    s->plan = plan;
    s->strategy = ops->name;
    st = order(s, ops, params == NULL ? 0 : params->chunk_bytes);
    if (st != DYT_OK) {
        dyt_schedule_destroy(s);
        return st;
    }
    *out_schedule = s;
    return DYT_OK;
}

void dyt_schedule_destroy(dyt_schedule *schedule)
{
    if (schedule != NULL) {
        dyti_pieces_fini(&schedule->pieces);
        free(schedule->flow);
        free(schedule);
    }
}

enum dyt_status dyt_schedule_totals(const dyt_schedule *schedule,
                                    struct dyt_schedule_figures *out)
{
    struct dyt_schedule_figures whole = {0};
    enum dyt_status st;
    uint32_t size;

    if (schedule == NULL || out == NULL) {
        return dyti_null_argument("dyt_schedule_totals");
    }
    size = whole.struct_size = out->struct_size;
    whole.rounds = schedule->pieces.round_count;
    whole.messages = schedule->messages;
    whole.over_load = dyti_pieces_ratio(&schedule->pieces);
    st = dyti_struct_check("dyt_schedule_figures", size, TOTALS_BYTES_0_1);
    if (st == DYT_OK) {
        memcpy(out, &whole, size < sizeof(whole) ? size : sizeof(whole));
    }
    return st;
}

static void write_text(const struct dyt_schedule *s,
                       const struct dyti_busiest *busiest, FILE *out)
{
    fprintf(out, "schedule %s: %u rounds, %" PRIu64 " messages of at most %s\n",
            s->strategy, s->pieces.round_count, s->messages,
            dyti_words_bytes(s->pieces.chunk_bytes).text);
    fprintf(out,
            "  busiest: %s %u, %s, %s %s, %.6f s at least\n"
            "  this order: %.6f s, %.4f of the busiest (without latencies)\n",
            busiest->place == DYTI_PLACE_RANK   ? "rank"
            : busiest->place == DYTI_PLACE_HOST ? "host"
                                                : "fabric",
            busiest->at, dyti_link_class_name(busiest->link),
            busiest->receiving ? "receives" : "sends",
            dyti_words_bytes(busiest->bytes).text, busiest->seconds,
            s->pieces.makespan_s, dyti_pieces_ratio(&s->pieces));
}

enum dyt_status dyt_schedule_text(const dyt_schedule *schedule, char **out_text)
{
    struct dyti_busiest busiest = {0};
    struct dyti_text text;
    enum dyt_status st;

    if (schedule == NULL || out_text == NULL) {
        return dyti_null_argument("dyt_schedule_text");
    }
    st = dyti_text_open(&text);
    st = st != DYT_OK
             ? st
             : dyti_busiest_of_flows(&schedule->plan->cluster, schedule->flow,
                                     schedule->flow_count, &busiest);
    if (st == DYT_OK) {
        write_text(schedule, &busiest, text.file);
    }
    return dyti_text_finish(&text, st, out_text);
}
