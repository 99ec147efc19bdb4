/* What others read off a traffic matrix. */
#include "plan/traffic.h"

#include "base/sort.h"

#include <stdlib.h>

static int by_flow(const void *a, const void *b)
{
    const struct dyti_flow *x = a, *y = b;

    if (x->src != y->src) {
        return x->src < y->src ? -1 : 1;
    }
    if (x->dst != y->dst) {
        return x->dst < y->dst ? -1 : 1;
    }
    return (x->wave > y->wave) - (x->wave < y->wave);
}

static uint64_t place_of_flow(const void *item)
{
    const struct dyti_flow *f = item;

    return (uint64_t)f->src << 32 | f->dst;
}

enum dyt_status dyti_traffic_flows(const struct dyti_traffic *t,
                                   struct dyti_flow **out_flow,
                                   size_t *out_count)
{
    struct dyti_flow *flow = calloc(t->pair_count + 1, sizeof(*flow));
    size_t count = 0;

    if (flow == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "flows of %zu pairs", t->pair_count);
    }
    for (size_t i = 0; i < t->pair_count; i++) {
        const struct dyti_traffic_pair *p = &t->pair[i];

        if (p->src_rank != p->dst_rank) {
            flow[count++] = (struct dyti_flow){.src = p->src_rank,
                                               .dst = p->dst_rank,
                                               .bytes = p->write_bytes,
                                               .messages = p->transfers,
                                               .wave = p->wave};
        }
    }
    dyti_sort(flow, count, sizeof(*flow), place_of_flow, by_flow);
    *out_flow = flow;
    *out_count = count;
    return DYT_OK;
}

double dyti_traffic_gain(const struct dyti_traffic *t)
{
    return t->load_s > 0 ? t->naive_s / t->load_s : 1.0;
}

static double share(const struct dyti_traffic *t, enum dyti_link_class link)
{
    uint64_t all = 0, some = 0;

    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        for (int k = 0; k < DYTI_LINK_CLASS_COUNT; k++) {
            all += t->sum[kind][k].write_bytes;
        }
        some += t->sum[kind][link].write_bytes;
    }
    return all == 0 ? 0 : (double)some / (double)all;
}

double dyti_traffic_kept_share(const struct dyti_traffic *t)
{
    return share(t, DYTI_LINK_SELF);
}

double dyti_traffic_nic_share(const struct dyti_traffic *t)
{
    return share(t, DYTI_LINK_NIC);
}
