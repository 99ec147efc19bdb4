/* A price for programs: exact bytes, seconds as numbers. */
#include "explain/outcome.h"
#include "explain/price.h"
#include "explain/price_words.h"

static void put_layout(const struct dyti_layout *layout, struct dyti_json *json,
                       const char *key)
{
    const struct dyti_layout_desc *d = &layout->desc;

    dyti_json_begin_object(json, key);
    dyti_json_text(json, "dialect", dyti_dialect_name(d->dialect));
    dyti_json_u64(json, "tp", d->tp);
    dyti_json_u64(json, "pp", d->pp);
    dyti_json_u64(json, "dp", d->dp);
    dyti_json_u64(json, "cp", d->cp);
    dyti_json_u64(json, "ep", d->ep);
    dyti_json_u64(json, "etp", d->etp);
    dyti_json_u64(json, "vpp", d->vpp);
    dyti_json_u64(json, "zero", d->zero);
    dyti_json_begin_array(json, "ranks");
    for (uint32_t m = 0; m < layout->member_count; m++) {
        dyti_json_u64(json, NULL, d->ranks[m]);
    }
    dyti_json_end(json);
    dyti_json_end(json);
}

static void put_bytes(const struct dyti_price *p, struct dyti_json *json)
{
    static const char *const link[] = {"kept", "inside_hosts", "between_hosts"};
    const struct dyti_traffic *t = p->traffic;

    dyti_json_begin_object(json, "bytes");
    for (uint32_t w = 0; w < t->inputs.want_count; w++) {
        enum dyti_kind kind = t->inputs.want[w].kind;

        dyti_json_begin_object(json, dyti_kind_name(kind));
        for (int l = 0; l < DYTI_LINK_CLASS_COUNT; l++) {
            dyti_json_u64(json, link[l], t->sum[kind][l].write_bytes);
        }
        dyti_json_end(json);
    }
    dyti_json_end(json);
}

static void put_choices(const struct dyti_price *p, struct dyti_json *json)
{
    const struct dyti_placement *l = &p->placement;

    dyti_json_begin_object(json, "placement");
    dyti_json_bool(json, "pinned", l->ranks == NULL);
    dyti_json_bool(json, "changed", l->changed);
    dyti_json_u64(json, "total_bytes", l->total_bytes);
    dyti_json_u64(json, "kept_before", l->keep_before);
    dyti_json_u64(json, "kept_after", l->keep_after);
    dyti_json_u64(json, "nic_before", l->nic_before);
    dyti_json_u64(json, "nic_after", l->nic_after);
    dyti_json_end(json);
    dyti_json_f64(json, "source_gain", dyti_traffic_gain(p->traffic));
}

static void put_memory(const struct dyti_price *p, struct dyti_json *json)
{
    struct dyti_price_peaks m = dyti_price_peaks(p);

    dyti_json_begin_object(json, "memory_per_rank");
    dyti_json_u64(json, "source", m.src);
    dyti_json_u64(json, "destination", m.dst);
    dyti_json_u64(json, "transactional", m.both);
    dyti_json_u64(json, "in_place", m.most);
    dyti_json_u64(json, "device", p->params.cluster->rank_memory_bytes);
    dyti_json_end(json);
}

static void put_bounds(const struct dyti_price *p, struct dyti_json *json)
{
    const struct dyti_bounds *b = &p->traffic->bounds;

    dyti_json_begin_object(json, "bounds");
    dyti_json_f64(json, "bound_seconds", b->bound_s);
    dyti_json_text(json, "bound_by", dyti_term_name(b->bound_by));
    dyti_json_f64(json, "plan_seconds", b->moved_s);
    dyti_json_text(json, "plan_by", dyti_term_name(b->moved_by));
    dyti_json_begin_array(json, "terms");
    for (int t = 0; t < DYTI_TERM_COUNT; t++) {
        dyti_json_begin_object(json, NULL);
        dyti_json_text(json, "term", dyti_term_name((enum dyti_term)t));
        dyti_json_u64(json, "bound_bytes", b->term[t].bound_bytes);
        dyti_json_u64(json, "plan_bytes", b->term[t].moved_bytes);
        dyti_json_f64(json, "ratio", dyti_bound_ratio(&b->term[t]));
        dyti_json_end(json);
    }
    dyti_json_end(json);
    dyti_json_end(json);
}

static void put_strategies(const struct dyti_price *p, struct dyti_json *json)
{
    dyti_json_begin_array(json, "strategies");
    for (uint32_t i = 0; i < DYTI_PRICE_STRATEGIES; i++) {
        const struct dyti_price_row *r = &p->row[i];

        dyti_json_begin_object(json, NULL);
        dyti_json_text(json, "name", r->name);
        dyti_json_u64(json, "rounds", r->rounds);
        dyti_json_u64(json, "messages", r->messages);
        dyti_json_u64(json, "pieces", r->pieces);
        dyti_json_f64(json, "makespan_seconds", r->makespan_s);
        dyti_json_f64(json, "load_seconds", r->load_s);
        dyti_json_f64(json, "simulated_seconds", r->simulation.seconds);
        dyti_json_text(json, "bottleneck", r->simulation.text);
        dyti_json_end(json);
    }
    dyti_json_end(json);
}

static void put_promotion(const struct dyti_price *p, struct dyti_json *json)
{
    dyti_json_begin_object(json, "promoted");
    for (int kind = 0; kind < DYTI_COLLECTIVE_KIND_COUNT; kind++) {
        struct dyti_collective_sum s =
            dyti_collective_sum(&p->promotion, (enum dyti_collective_kind)kind);

        dyti_json_begin_object(
            json, dyti_collective_kind_name((enum dyti_collective_kind)kind));
        dyti_json_u64(json, "count", s.count);
        dyti_json_u64(json, "most_members", s.members);
        dyti_json_u64(json, "bytes", s.bytes);
        dyti_json_u64(json, "run_as_one", p->run_as_one[kind]);
        dyti_json_end(json);
    }
    if (p->promotion.count > 0) {
        dyti_json_f64(json, "simulated_seconds", p->promoted.seconds);
    }
    dyti_json_end(json);
}

static void put_matrix(const struct dyti_traffic *t, struct dyti_json *json)
{
    dyti_json_begin_array(json, "pairs");
    for (size_t i = 0; i < t->pair_count; i++) {
        const struct dyti_traffic_pair *pair = &t->pair[i];

        dyti_json_begin_object(json, NULL);
        dyti_json_u64(json, "from", pair->src_rank);
        dyti_json_u64(json, "to", pair->dst_rank);
        dyti_json_u64(json, "wave", pair->wave);
        dyti_json_u64(json, "transfers", pair->transfers);
        dyti_json_u64(json, "read_bytes", pair->read_bytes);
        dyti_json_u64(json, "written_bytes", pair->write_bytes);
        dyti_json_end(json);
    }
    dyti_json_end(json);
}

void dyti_price_json(const struct dyti_price *price, bool matrix,
                     struct dyti_json *json, const char *key)
{
    const struct dyti_cluster *c = price->params.cluster;

    dyti_json_begin_object(json, key);
    dyti_json_u64(json, "schema", 1);
    put_layout(price->params.src, json, "from");
    put_layout(price->dst, json, "to");
    dyti_json_begin_object(json, "cluster");
    dyti_json_text(json, "name", c->name);
    dyti_json_u64(json, "ranks", c->rank_count);
    dyti_json_u64(json, "hosts", c->host_count);
    dyti_json_end(json);
    put_bytes(price, json);
    put_choices(price, json);
    put_memory(price, json);
    put_bounds(price, json);
    put_strategies(price, json);
    put_promotion(price, json);
    if (matrix) {
        put_matrix(price->traffic, json);
        dyti_explain_simulation_json(&price->row[0].simulation, json,
                                     "simulation");
        dyti_explain_promotion_json(&price->promotion, json, "collectives");
    }
    dyti_words_hex_json(json, "fingerprint", price->traffic->fingerprint);
    dyti_json_end(json);
}
