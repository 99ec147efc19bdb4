/* Which transfers of a priced plan are one collective, and what that saves. */
#include "explain/price.h"

#include "base/array.h"
#include "base/hash.h"
#include "base/sort.h"
#include "explain/price_internal.h"
#include "sched/collectives.h"

#include <stdlib.h>

/* Larger worlds have more transfers than somebody would want to look at. */
#define MOST_RANKS 512u

/* What goes from whom to whom, one entry a route and destination. */
struct items {
    struct dyti_promotable *item;
    size_t count, cap;
};

/* Equal routes carry equal bytes of equal tensors. */
static uint64_t content_of(const struct dyti_route *route)
{
    uint64_t state = DYTI_FINGERPRINT_SEED;

    state = dyti_fingerprint_u64(state, route->atom);
    state = dyti_fingerprint_u64(state, route->tensor_first);
    state = dyti_fingerprint_u64(state, route->tensor_count);
    state = dyti_fingerprint_u64(state, (uint64_t)route->lo);
    return dyti_fingerprint_u64(state, (uint64_t)route->hi);
}

static enum dyt_status add_rank(const struct dyti_traffic *t, uint32_t rank,
                                struct items *items)
{
    struct dyti_routes routes = {0};
    enum dyt_status st = dyti_traffic_routes(t, rank, &routes);

    for (size_t i = 0; i < routes.count && st == DYT_OK; i++) {
        const struct dyti_route *route = &routes.route[i];

        if (route->dst_rank != rank || route->src_rank == rank) {
            continue;
        }
        st = DYTI_GROW(items->item, items->cap, items->count + 1);
        if (st == DYT_OK) {
            items->item[items->count++] =
                (struct dyti_promotable){.src = route->src_rank,
                                         .dst = rank,
                                         .content = content_of(route),
                                         .bytes = dyti_route_bytes(t, route),
                                         .wave = route->wave};
        }
    }
    dyti_routes_fini(&routes);
    return st;
}

/* ---- what is left -------------------------------------------------------- */

static int by_pair(const void *a, const void *b)
{
    const struct dyti_flow *x = a, *y = b;

    if (x->src != y->src) {
        return x->src < y->src ? -1 : 1;
    }
    if (x->dst != y->dst) {
        return x->dst < y->dst ? -1 : 1;
    }
    return x->wave < y->wave ? -1 : x->wave > y->wave;
}

static uint64_t place_of_flow(const void *item)
{
    const struct dyti_flow *f = item;

    return (uint64_t)f->src << 32 | f->dst;
}

/* The flows of what is in no collective: one for each pair and wave. */
static struct dyti_flow *flows_of_rest(const struct items *items,
                                       const struct dyti_promotion *promotion,
                                       size_t *out_count)
{
    struct dyti_flow *flow = calloc(promotion->rest_count + 1u, sizeof(*flow));
    size_t count = 0;

    for (uint32_t i = 0; flow != NULL && i < promotion->rest_count; i++) {
        const struct dyti_promotable *item = &items->item[promotion->rest[i]];

        flow[i] = (struct dyti_flow){item->src, item->dst, item->bytes, 1,
                                     item->wave};
    }
    if (flow == NULL || promotion->rest_count == 0) {
        *out_count = 0;
        return flow;
    }
    dyti_sort(flow, promotion->rest_count, sizeof(*flow), place_of_flow,
              by_pair);
    for (uint32_t i = 1; i < promotion->rest_count; i++) {
        if (by_pair(&flow[count], &flow[i]) == 0) {
            flow[count].bytes += flow[i].bytes;
            flow[count].messages++;
        } else {
            flow[++count] = flow[i];
        }
    }
    *out_count = count + 1;
    return flow;
}

static enum dyt_status simulate(struct dyti_price *p, const struct items *items,
                                const struct dyti_price_rest *rest)
{
    struct dyti_order order = {.cluster = p->params.cluster};
    struct dyti_pieces pieces = {0};
    struct dyti_flow *flow =
        flows_of_rest(items, &p->promotion, &order.flow_count);
    struct dyti_simulate_inputs in = {.cluster = p->params.cluster,
                                      .pieces = &pieces,
                                      .promotion = &p->promotion,
                                      .keep_bytes = rest->keep,
                                      .reads_more = rest->reads_more,
                                      .boxes = rest->boxes,
                                      .resident_bytes = rest->resident};
    enum dyt_status st;

    if (flow == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "flows of %u transfers",
                         p->promotion.rest_count);
    }
    order.flow = flow;
    st = dyti_strategy_optimal.order(&order, &pieces);
    st = st != DYT_OK ? st : dyti_simulate(&in, &p->promoted);
    dyti_pieces_fini(&pieces);
    free(flow);
    return st;
}

/* ---- what runs as one ---------------------------------------------------- */

/* Messages are so large that no more than these are looked at. */
#define MOST_MESSAGES 4096u

static int by_ends(const void *a, const void *b)
{
    const struct dyti_promotable *x = a, *y = b;

    if (x->src != y->src) {
        return x->src < y->src ? -1 : 1;
    }
    if (x->dst != y->dst) {
        return x->dst < y->dst ? -1 : 1;
    }
    return x->wave < y->wave ? -1 : x->wave > y->wave;
}

static uint64_t place_of_item(const void *item)
{
    const struct dyti_promotable *p = item;

    return (uint64_t)p->src << 32 | p->dst;
}

/* Items to streams, in place: what goes from one rank to another in a wave. */
static size_t join_streams(struct items *items)
{
    struct dyti_promotable *s = items->item;
    size_t kept = 0;

    if (items->count == 0) {
        return 0;
    }
    dyti_sort(s, items->count, sizeof(*s), place_of_item, by_ends);
    for (size_t i = 0; i < items->count; i++) {
        uint64_t content = dyti_fingerprint_u64(s[i].content, s[i].bytes);

        if (i > 0 && by_ends(&s[kept - 1], &s[i]) == 0) {
            s[kept - 1].bytes += s[i].bytes;
            s[kept - 1].content += content; /* in whatever order */
        } else {
            s[kept] = s[i];
            s[kept++].content = content;
        }
    }
    return kept;
}

static enum dyt_status count_streams(struct dyti_price *p, struct items *items)
{
    size_t count = join_streams(items);
    uint32_t world = p->params.cluster->rank_count;
    struct dyti_flow *flow = calloc(count + 1, sizeof(*flow));
    uint32_t *domain = calloc((size_t)world + 1, sizeof(*domain));
    struct dyti_collectives found = {0};
    struct dyti_schedule_links links = {.domain = domain,
                                        .strategy = &dyti_strategy_optimal,
                                        .cluster = p->params.cluster};
    uint64_t total = 0;
    enum dyt_status st = DYT_OK;

    if (flow == NULL || domain == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "streams of %u ranks", world);
        goto out;
    }
    for (uint32_t r = 0; r < world; r++) {
        domain[r] = r;
    }
    for (size_t i = 0; i < count; i++) {
        const struct dyti_promotable *s = &items->item[i];

        flow[i] = (struct dyti_flow){s->src, s->dst, s->bytes, 1, s->wave};
        total += s->bytes;
    }
    links.message_bytes = total / MOST_MESSAGES > DYTI_SLOT_MESSAGE_BYTES
                              ? total / MOST_MESSAGES
                              : 0;
    st = dyti_collectives_of_streams(items->item, world, &links, flow, count,
                                     &found);
    for (size_t i = 0; st == DYT_OK && i < found.found.count; i++) {
        p->run_as_one[found.found.collective[i].kind]++;
    }
out:
    dyti_collectives_fini(&found);
    free(domain);
    free(flow);
    return st;
}

enum dyt_status dyti_price_promote(struct dyti_price *p,
                                   const struct dyti_price_rest *rest)
{
    const struct dyti_promote_options options = {.min_bytes = 1u << 20};
    const struct dyti_traffic *t = p->traffic;
    struct items items = {0};
    enum dyt_status st = DYT_OK;

    if (t->world_size > MOST_RANKS) {
        return DYT_OK;
    }
    for (uint32_t r = 0; r < t->world_size && st == DYT_OK; r++) {
        st = add_rank(t, r, &items);
    }
    st = st != DYT_OK
             ? st
             : dyti_promote(items.item, items.count, &options, &p->promotion);
    if (st == DYT_OK && p->promotion.count > 0) {
        st = simulate(p, &items, rest);
    }
    st = st != DYT_OK ? st : count_streams(p, &items);
    free(items.item);
    return st;
}
