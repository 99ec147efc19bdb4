#include "pairing.h"

#include <stdlib.h>

static double most(double a, double b)
{
    return a > b ? a : b;
}

bool pairing_times(const struct dyti_cluster *c, const struct dyti_flow *flow,
                   size_t count, double *out_free, double *out_barrier)
{
    size_t n = c->rank_count;
    double *s = calloc(n * n + 3 * n + 1, sizeof(*s)), *ready = s + n * n;
    double load = 0.0, end = 0.0, barrier = 0.0;

    if (s == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        enum dyti_link_class k = dyti_cluster_link(c, flow[i].src, flow[i].dst);
        double t = (double)flow[i].bytes / c->link[k].bytes_per_s;

        s[flow[i].src * n + flow[i].dst] += t;
        if (k == DYTI_LINK_NIC) {
            ready[n + flow[i].src] += t;
            ready[2 * n + flow[i].dst] += t;
        }
    }
    for (size_t i = 0; i < 2 * n; i++) {
        load = most(load, ready[n + i]);
    }
    for (size_t step = 1; step < 2 * n; step++) {
        double longest = 0.0;

        for (size_t a = 0; a < n; a++) {
            size_t b = a ^ step;

            if (b < n && a < b) {
                double t = most(s[a * n + b], s[b * n + a]);

                longest = most(longest, t);
                if (t > 0.0) {
                    ready[a] = ready[b] = most(ready[a], ready[b]) + t;
                }
                end = most(end, ready[a]);
            }
        }
        barrier += longest;
    }
    free(s);
    *out_free = load > 0.0 ? end / load : 1.0;
    *out_barrier = load > 0.0 ? barrier / load : 1.0;
    return true;
}
