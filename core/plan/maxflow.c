/* Dinic: levels by breadth, then paths along them until none is left. */
#include "plan/choose.h"

#include <string.h>

static bool find_levels(struct dyti_flow_net *net, uint32_t source,
                        uint32_t sink)
{
    uint32_t head = 0, tail = 0;

    memset(net->level, 0, net->node_count * sizeof(*net->level));
    net->level[source] = 1;
    net->queue[tail++] = source;
    while (head < tail) {
        uint32_t v = net->queue[head++];

        for (size_t e = net->first[v]; e < net->first[v + 1]; e++) {
            uint32_t to = net->edge[e].to;

            if (net->edge[e].left > 0 && net->level[to] == 0) {
                net->level[to] = net->level[v] + 1;
                net->queue[tail++] = to;
            }
        }
    }
    return net->level[sink] != 0;
}

static uint64_t push_path(struct dyti_flow_net *net, uint32_t source,
                          const uint32_t *path, uint32_t depth)
{
    uint64_t least = UINT64_MAX;
    uint32_t v = source;

    for (uint32_t i = 0; i < depth; i++) {
        const struct dyti_flow_edge *e = &net->edge[net->next[path[i]]];

        least = e->left < least ? e->left : least;
    }
    for (uint32_t i = 0; i < depth; i++) {
        struct dyti_flow_edge *e;

        v = path[i];
        e = &net->edge[net->next[v]];
        e->left -= least;
        net->edge[net->first[e->to] + e->back].left += least;
    }
    return least;
}

/* A path without recursion: `queue` holds its nodes, next[] the edge that each
 * takes. */
static uint64_t push_all(struct dyti_flow_net *net, uint32_t source,
                         uint32_t sink)
{
    uint32_t *path = net->queue, depth = 0;
    uint64_t pushed = 0;

    path[0] = source;
    for (;;) {
        uint32_t v = path[depth];

        if (v == sink) {
            pushed += push_path(net, source, path, depth);
            depth = 0; /* edges that are full now are passed over */
            continue;
        }
        while (net->next[v] < net->first[v + 1] &&
               (net->edge[net->next[v]].left == 0 ||
                net->level[net->edge[net->next[v]].to] != net->level[v] + 1)) {
            net->next[v]++;
        }
        if (net->next[v] < net->first[v + 1]) {
            path[++depth] = net->edge[net->next[v]].to;
        } else if (depth > 0) {
            net->next[path[--depth]]++; /* dead end */
        } else {
            return pushed;
        }
    }
}

uint64_t dyti_flow_run(struct dyti_flow_net *net, uint32_t source,
                       uint32_t sink)
{
    uint64_t pushed = 0;

    while (find_levels(net, source, sink)) {
        memcpy(net->next, net->first, net->node_count * sizeof(*net->next));
        pushed += push_all(net, source, sink);
    }
    return pushed;
}
