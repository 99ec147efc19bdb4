/* Adds up what goes by messages in a whole plan: what strategies order. */
#include "base/array.h"
#include "sched/sched.h"

#include <stdlib.h>

struct flows {
    struct dyti_flow *flow; /* [count], owned */
    size_t count, cap;
    uint64_t *end; /* [end_count] of all flows, owned */
    size_t end_count, end_cap;
};

static uint64_t transfer_bytes(const struct dyti_transfer *t)
{
    uint64_t count = 1;

    for (uint32_t d = 0; d < t->box.ndim; d++) {
        count *= (uint64_t)(t->box.hi[d] - t->box.lo[d]);
    }
    return count * dyti_dtype_bytes((enum dyti_dtype)t->dst_dtype);
}

static enum dyt_status add_flow(struct flows *flows,
                                const struct dyti_plan *plan,
                                const struct dyti_plan_pair *pair,
                                uint32_t wave)
{
    struct dyti_flow flow = {
        .src = pair->src_rank, .dst = pair->dst_rank, .wave = wave};
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < pair->transfer_count && st == DYT_OK; i++) {
        const struct dyti_transfer *t =
            &plan->transfer[pair->transfer_first + i];

        if (t->wave == wave) {
            flow.bytes += transfer_bytes(t);
            flow.messages++;
            st = DYTI_GROW(flows->end, flows->end_cap, flows->end_count + 1);
            if (st == DYT_OK) {
                flows->end[flows->end_count++] = flow.bytes;
            }
        }
    }
    if (st == DYT_OK && flow.messages > 0) {
        st = DYTI_GROW(flows->flow, flows->cap, flows->count + 1);
        if (st == DYT_OK) {
            flows->flow[flows->count++] = flow;
        }
    }
    return st;
}

struct numbered {
    struct dyti_flow flow;
    const uint64_t *end;
};

static int by_pair(const void *a, const void *b)
{
    const struct dyti_flow *x = &((const struct numbered *)a)->flow;
    const struct dyti_flow *y = &((const struct numbered *)b)->flow;

    if (x->src != y->src) {
        return x->src < y->src ? -1 : 1;
    }
    if (x->dst != y->dst) {
        return x->dst < y->dst ? -1 : 1;
    }
    return (x->wave > y->wave) - (x->wave < y->wave);
}

/* By src, dst, wave; and one block of pointers with the ends behind them. */
static enum dyt_status finish(struct flows *flows, uint64_t ***out_end)
{
    size_t n = flows->count;
    size_t pointers = (n + 1) * sizeof(uint64_t *);
    struct numbered *sorted = calloc(n + 1, sizeof(*sorted));
    uint64_t **end =
        malloc(pointers + (flows->end_count + 1) * sizeof(uint64_t));
    uint64_t *block;

    if (sorted == NULL || end == NULL) {
        free(sorted);
        free(end);
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu flows", n);
    }
    block = (uint64_t *)(void *)((char *)end + pointers);
    for (size_t i = 0; i < flows->end_count; i++) {
        block[i] = flows->end[i];
    }
    for (size_t i = 0; i < n; i++) {
        sorted[i] = (struct numbered){flows->flow[i], block};
        block += flows->flow[i].messages;
    }
    if (n > 1) {
        qsort(sorted, n, sizeof(*sorted), by_pair);
    }
    for (size_t i = 0; i < n; i++) {
        flows->flow[i] = sorted[i].flow;
        end[i] = (uint64_t *)(uintptr_t)sorted[i].end;
    }
    end[n] = NULL;
    free(sorted);
    *out_end = end;
    return DYT_OK;
}

enum dyt_status dyti_schedule_flows(const struct dyti_plan *plan,
                                    const uint32_t *domain,
                                    struct dyti_flow **out_flow,
                                    uint64_t ***out_end, size_t *out_count,
                                    uint32_t *out_wave_count)
{
    struct flows flows = {0};
    uint64_t **end = NULL;
    uint32_t waves = 1;
    enum dyt_status st = DYT_OK;

    if (plan->rank >= 0) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "the messages of a world from the plan of rank %lld",
                         (long long)plan->rank);
    }
    for (uint32_t i = 0; i < plan->transfer_count; i++) {
        waves = plan->transfer[i].wave >= waves ? plan->transfer[i].wave + 1u
                                                : waves;
    }
    for (uint32_t i = 0; i < plan->pair_count && st == DYT_OK; i++) {
        const struct dyti_plan_pair *pair = &plan->pair[i];

        for (uint32_t w = 0; w < waves && st == DYT_OK; w++) {
            if (domain[pair->src_rank] != domain[pair->dst_rank]) {
                st = add_flow(&flows, plan, pair, w);
            }
        }
    }
    st = st != DYT_OK ? st : finish(&flows, &end);
    free(flows.end);
    if (st != DYT_OK) {
        free(flows.flow);
        return st;
    }
    *out_flow = flows.flow;
    *out_end = end;
    *out_count = flows.count;
    *out_wave_count = waves;
    return DYT_OK;
}
