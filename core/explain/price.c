/* Puts a price together: plan, placement, strategies, simulation. */
#include "explain/price.h"

#include "explain/price_internal.h"
#include "layout/dialect.h"

#include <stdlib.h>
#include <string.h>

static void begin(const struct dyti_price *p, const char *what)
{
    if (p->params.stage != NULL) {
        p->params.stage(p->params.stage_self, what);
    }
}

/* ---- memory -------------------------------------------------------------- */

/* Add what every rank's regions of one kind take; `each` is scratch. */
static enum dyt_status add_kind(struct dyti_price *p, enum dyti_kind kind,
                                bool moved, uint64_t *each)
{
    uint32_t world = p->traffic->world_size;
    enum dyt_status st =
        dyti_layout_all_region_bytes(p->params.src, kind, each);

    for (uint32_t r = 0; r < world && st == DYT_OK; r++) {
        p->memory[r].src_bytes += each[r];
    }
    st = st != DYT_OK ? st : dyti_layout_all_region_bytes(p->dst, kind, each);
    for (uint32_t r = 0; r < world && st == DYT_OK; r++) {
        p->memory[r].dst_bytes += each[r];
        p->memory[r].moved_bytes += moved ? each[r] : 0;
    }
    return st;
}

static enum dyt_status fill_memory(struct dyti_price *p)
{
    const struct dyti_plan_inputs *in = &p->traffic->inputs;
    uint32_t world = p->traffic->world_size, wanted = 0;
    uint64_t *each = calloc(world, sizeof(*each));
    enum dyt_status st = DYT_OK;

    p->memory = calloc(world, sizeof(*p->memory));
    if (p->memory == NULL || each == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "memory of %u ranks", world);
    }
    for (uint32_t w = 0; w < in->want_count; w++) {
        wanted |= 1u << in->want[w].kind;
    }
    for (int kind = 0; kind < DYTI_KIND_COUNT && st == DYT_OK; kind++) {
        st =
            add_kind(p, (enum dyti_kind)kind, (wanted >> kind & 1u) != 0, each);
    }
    free(each);
    return st;
}

/* ---- strategies ---------------------------------------------------------- */

#define MEMORY_BUCKETS 200u
/* `per-tensor` has millions of messages.  A few pieces of each flow stand for
 * all of its messages: seconds within about 15 % of those of ordering each one,
 * in a second or two instead of a minute. */
#define PIECES_IN_ALL   ((size_t)1 << 19)
#define PIECES_AT_MOST  ((size_t)64)
#define PIECES_AT_LEAST ((size_t)4)

static uint32_t pieces_of_flow(size_t flow_count)
{
    size_t n = PIECES_IN_ALL / (flow_count > 0 ? flow_count : 1);

    n = n < PIECES_AT_MOST ? n : PIECES_AT_MOST;
    return (uint32_t)(n > PIECES_AT_LEAST ? n : PIECES_AT_LEAST);
}

static enum dyt_status at_rest_of(const struct dyti_price *p,
                                  struct dyti_price_rest *out)
{
    uint32_t world = p->traffic->world_size;

    out->resident = calloc(world, sizeof(*out->resident));
    out->keep = calloc(world, sizeof(*out->keep));
    out->reads_more = calloc(world, sizeof(*out->reads_more));
    out->boxes = calloc(world, sizeof(*out->boxes));
    if (out->resident == NULL || out->keep == NULL || out->reads_more == NULL ||
        out->boxes == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u ranks", world);
    }
    for (uint32_t r = 0; r < world; r++) {
        out->resident[r] = p->memory[r].src_bytes + p->memory[r].dst_bytes;
        out->keep[r] = p->traffic->rank[r].keep_bytes;
    }
    for (size_t i = 0; i < p->traffic->pair_count; i++) {
        const struct dyti_traffic_pair *pair = &p->traffic->pair[i];

        if (pair->src_rank == pair->dst_rank) {
            out->boxes[pair->dst_rank].kept += pair->transfers;
        } else {
            out->boxes[pair->src_rank].sent += pair->transfers;
            out->boxes[pair->dst_rank].received += pair->transfers;
        }
        out->boxes[pair->src_rank].source_bytes += pair->read_bytes;
        out->reads_more[pair->src_rank] +=
            (int64_t)pair->read_bytes - (int64_t)pair->write_bytes;
    }
    for (uint32_t r = 0; r < world; r++) {
        uint64_t has = p->memory[r].src_bytes;
        uint64_t *reads = &out->boxes[r].source_bytes;

        *reads = *reads < has ? *reads : has;
    }
    return DYT_OK;
}

static enum dyt_status price_strategy(struct dyti_price *p,
                                      const struct dyti_order *order,
                                      const struct dyti_price_rest *rest,
                                      const struct dyti_strategy_ops *ops,
                                      struct dyti_price_row *row)
{
    bool first = row == &p->row[0];
    struct dyti_pieces pieces = {0};
    struct dyti_simulate_inputs in = {.cluster = p->params.cluster,
                                      .pieces = &pieces,
                                      .keep_bytes = rest->keep,
                                      .reads_more = rest->reads_more,
                                      .boxes = rest->boxes,
                                      .resident_bytes = rest->resident,
                                      .memory_buckets =
                                          first ? MEMORY_BUCKETS : 0,
                                      .gantt = first};
    enum dyt_status st;

    row->name = ops->name;
    begin(p, ops->name);
    st = ops->order(order, &pieces);
    if (st != DYT_OK) {
        DYTI_NOTE("ordering by %s", ops->name);
        return st;
    }
    row->rounds = pieces.round_count;
    row->pieces = pieces.count;
    for (size_t i = 0; i < pieces.count; i++) {
        uint32_t stands_for = pieces.piece[i].messages;

        row->messages += stands_for > 0 ? stands_for : 1;
    }
    row->makespan_s = pieces.makespan_s;
    row->load_s = pieces.load_s;
    st = dyti_simulate(&in, &row->simulation);
    dyti_pieces_fini(&pieces);
    return st;
}

/* Found out before anything is ordered, not when memory is short. */
static enum dyt_status check_exact(const struct dyti_price *p,
                                   const struct dyti_order *order)
{
    uint64_t most =
        p->params.exact_most > 0 ? p->params.exact_most : DYTI_PRICE_EXACT_MOST;
    uint64_t messages = 0;

    for (size_t i = 0; i < order->flow_count; i++) {
        messages += order->flow[i].messages;
    }
    return !p->params.exact || messages <= most
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_CONFIG,
                           "%llu messages of per-tensor are too many to order "
                           "each by itself, at most %llu: leave out --exact",
                           (unsigned long long)messages,
                           (unsigned long long)most);
}

static enum dyt_status price_strategies(struct dyti_price *p)
{
    struct dyti_flow *flow = NULL, *detour = NULL;
    struct dyti_order order = {.cluster = p->params.cluster};
    struct dyti_price_rest rest = {0};
    enum dyt_status st =
        dyti_traffic_flows(p->traffic, &flow, &order.flow_count);

    st = st != DYT_OK
             ? st
             : dyti_traffic_funnel(p->traffic, &detour, &order.detour_count);
    st = st != DYT_OK ? st : at_rest_of(p, &rest);
    order.flow = flow;
    order.detour = detour;
    order.most_pieces = p->params.exact ? 0 : pieces_of_flow(order.flow_count);
    st = st != DYT_OK ? st : check_exact(p, &order);
    for (uint32_t i = 0; i < DYTI_PRICE_STRATEGIES && st == DYT_OK; i++) {
        st = price_strategy(p, &order, &rest, dyti_strategy_at(i), &p->row[i]);
    }
    begin(p, "collectives");
    st = st != DYT_OK ? st : dyti_price_promote(p, &rest);
    free(rest.resident);
    free(rest.keep);
    free(rest.reads_more);
    free(rest.boxes);
    free(detour);
    free(flow);
    return st;
}

/* ---- placement ----------------------------------------------------------- */

/* The destination laid out anew over the ranks that keep the most. */
static enum dyt_status place(struct dyti_price *p,
                             const struct dyti_plan_inputs *inputs,
                             const struct dyti_traffic_options *options)
{
    struct dyti_layout_desc desc = p->params.dst->desc;
    enum dyt_status st = dyti_place(inputs, options, &p->placement);

    if (st != DYT_OK || !p->placement.changed) {
        return st;
    }
    desc.ranks = p->placement.ranks;
    st = dyti_layout_build(p->params.dst->model, &desc, &p->placed);
    if (st == DYT_OK) {
        p->dst = p->placed;
    }
    return st;
}

static enum dyt_status inputs_of(const struct dyti_price *p,
                                 struct dyti_plan_inputs *out_inputs)
{
    const struct dyti_price_params *in = &p->params;

    return dyti_plan_inputs_init(in->src, in->src_slot, p->dst, in->dst_slot,
                                 in->kinds, out_inputs);
}

enum dyt_status dyti_price_build(const struct dyti_price_params *params,
                                 struct dyti_price **out_price)
{
    const struct dyti_traffic_options options = {.cluster = params->cluster,
                                                 .fan_out = true};
    struct dyti_price *p = calloc(1, sizeof(*p));
    struct dyti_plan_inputs inputs;
    enum dyt_status st;

    if (p == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a price");
    }
    p->params = *params;
    p->dst = params->dst;
    if (p->params.kinds == 0) {
        p->params.kinds = DYTI_PLAN_KINDS_STATE;
    }
    st = inputs_of(p, &inputs);
    if (st == DYT_OK && !params->pinned &&
        params->dst->desc.dialect != DYTI_DIALECT_LIST) {
        begin(p, "placing ranks");
        st = place(p, &inputs, &options);
        st = st != DYT_OK ? st : inputs_of(p, &inputs);
    }
    begin(p, "who sends whom");
    st = st != DYT_OK ? st : dyti_traffic_build(&inputs, &options, &p->traffic);
    st = st != DYT_OK ? st : fill_memory(p);
    st = st != DYT_OK ? st : price_strategies(p);
    if (st == DYT_OK) {
        *out_price = p;
        return DYT_OK;
    }
    DYTI_NOTE("pricing the switch");
    dyti_price_destroy(p);
    return st;
}

void dyti_price_destroy(struct dyti_price *price)
{
    if (price == NULL) {
        return;
    }
    for (uint32_t i = 0; i < DYTI_PRICE_STRATEGIES; i++) {
        dyti_simulation_fini(&price->row[i].simulation);
    }
    dyti_simulation_fini(&price->promoted);
    dyti_promotion_fini(&price->promotion);
    dyti_traffic_destroy(price->traffic);
    dyti_placement_fini(&price->placement);
    dyti_layout_destroy(price->placed);
    free(price->memory);
    free(price);
}
