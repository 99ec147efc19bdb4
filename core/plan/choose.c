/* The least load by Newton's method on the minimum cut. */
#include "plan/choose.h"

#include <stdlib.h>
#include <string.h>

/* Nodes: source, keys, ranks, hosts, sink.  Keys that one rank alone can serve
 * are no nodes: they are that rank's `fixed` load. */
struct solver {
    struct dyti_choose *c;
    struct dyti_flow_net net;
    uint64_t *fixed; /* [world_size] */
    uint64_t *host_fixed;
    uint64_t demand; /* of the keys that are nodes */
    uint32_t rank_at, host_at, sink;
};

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* ---- the even spread ---------------------------------------------------- */

static void share_evenly(const struct dyti_choose *c)
{
    for (size_t k = 0; k < c->key_count; k++) {
        const struct dyti_choose_key *key = &c->key[k];
        uint64_t each = key->demand / key->count;
        uint64_t more = key->demand % key->count;

        for (uint32_t i = 0; i < key->count; i++) {
            /* The ones that are over begin elsewhere for each key. */
            uint32_t turn = (i + (uint32_t)k) % key->count;

            c->share[key->share + i] = each + (turn < more);
        }
    }
}

static void add_loads(const struct dyti_choose *c, uint64_t *load)
{
    memset(load, 0, c->world_size * sizeof(*load));
    for (size_t k = 0; k < c->key_count; k++) {
        for (uint32_t i = 0; i < c->key[k].count; i++) {
            load[c->key[k].rank[i]] += c->share[c->key[k].share + i];
        }
    }
}

/* a * b / c without overflow of the product; c > 0. */
static uint64_t scale(uint64_t a, uint64_t b, uint64_t c)
{
    __extension__ typedef unsigned __int128 wide;

    return (uint64_t)((wide)a * b / c);
}

static uint64_t ceil_scale(uint64_t a, uint64_t b, uint64_t c)
{
    __extension__ typedef unsigned __int128 wide;

    return (uint64_t)(((wide)a * b + c - 1) / c);
}

/* ---- the net ------------------------------------------------------------ */

static bool is_node(const struct dyti_choose_key *key)
{
    return key->count > 1 && key->demand > 0;
}

static void connect(struct dyti_flow_net *net, size_t *fill, uint32_t a,
                    uint32_t b)
{
    size_t x = fill[a]++, y = fill[b]++;

    net->edge[x] =
        (struct dyti_flow_edge){.to = b, .back = (uint32_t)(y - net->first[b])};
    net->edge[y] =
        (struct dyti_flow_edge){.to = a, .back = (uint32_t)(x - net->first[a])};
}

/* Visit every pair of connected nodes, twice: to count, then to fill.  Edges of
 * a key: [0] from the source, then one per rank. Of a rank: the last one to its
 * host.  Of a host: the last one to the sink. */
static void visit(struct solver *s, size_t *fill)
{
    const struct dyti_choose *c = s->c;
    struct dyti_flow_net *net = &s->net;

#define LINK(a, b)                                                             \
    do {                                                                       \
        if (fill != NULL) {                                                    \
            connect(net, fill, a, b);                                          \
        } else {                                                               \
            net->first[(a) + 1]++;                                             \
            net->first[(b) + 1]++;                                             \
        }                                                                      \
    } while (0)

    for (uint32_t k = 0; k < c->key_count; k++) {
        if (is_node(&c->key[k])) {
            LINK(0, k + 1);
            for (uint32_t i = 0; i < c->key[k].count; i++) {
                LINK(k + 1, s->rank_at + c->key[k].rank[i]);
            }
        }
    }
    for (uint32_t r = 0; r < c->world_size; r++) {
        LINK(s->rank_at + r, s->host_at + c->host[r]);
    }
    for (uint32_t h = 0; h < c->host_count; h++) {
        LINK(s->host_at + h, s->sink);
    }
#undef LINK
}

static enum dyt_status make_net(struct solver *s)
{
    struct dyti_flow_net *net = &s->net;
    uint32_t nodes;
    size_t *fill;

    s->rank_at = (uint32_t)s->c->key_count + 1;
    s->host_at = s->rank_at + s->c->world_size;
    s->sink = s->host_at + s->c->host_count;
    net->node_count = nodes = s->sink + 1;
    net->first = calloc((size_t)nodes + 1, sizeof(*net->first));
    net->level = calloc(nodes, sizeof(*net->level));
    net->queue = calloc((size_t)nodes + 1, sizeof(*net->queue));
    net->next = calloc(nodes, sizeof(*net->next));
    fill = calloc(nodes, sizeof(*fill));
    if (net->first == NULL || net->level == NULL || net->queue == NULL ||
        net->next == NULL || fill == NULL) {
        free(fill);
        return DYTI_FAIL(DYT_ERR_NOMEM, "a flow of %u nodes", nodes);
    }
    visit(s, NULL);
    for (uint32_t v = 0; v < nodes; v++) {
        net->first[v + 1] += net->first[v];
        fill[v] = net->first[v];
    }
    net->edge = calloc(net->first[nodes] + 1, sizeof(*net->edge));
    if (net->edge == NULL) {
        free(fill);
        return DYTI_FAIL(DYT_ERR_NOMEM, "a flow of %zu edges",
                         net->first[nodes]);
    }
    visit(s, fill);
    free(fill);
    return DYT_OK;
}

static struct dyti_flow_edge *reverse(const struct solver *s,
                                      const struct dyti_flow_edge *e)
{
    return &s->net.edge[s->net.first[e->to] + e->back];
}

static struct dyti_flow_edge *last_edge(const struct solver *s, uint32_t node)
{
    return &s->net.edge[s->net.first[node + 1] - 1];
}

static uint64_t rank_room(const struct solver *s, uint32_t r, uint64_t load)
{
    return load > s->fixed[r] ? load - s->fixed[r] : 0;
}

static uint64_t host_room(const struct solver *s, uint32_t h, uint64_t load)
{
    uint64_t all;

    if (s->c->host_unit == NULL) {
        return UINT64_MAX / 4;
    }
    all = scale(load, s->c->host_unit[h], DYTI_CHOOSE_UNIT);
    return all > s->host_fixed[h] ? all - s->host_fixed[h] : 0;
}

/* Even shares of what each rank would have, were all keys spread evenly. */
static void add_even(const struct solver *s, uint64_t load, uint64_t *rank_load,
                     uint64_t *host_load)
{
    const struct dyti_choose *c = s->c;

    memset(rank_load, 0, c->world_size * sizeof(*rank_load));
    memset(host_load, 0, c->host_count * sizeof(*host_load));
    for (size_t k = 0; k < c->key_count; k++) {
        for (uint32_t i = 0; is_node(&c->key[k]) && i < c->key[k].count; i++) {
            rank_load[c->key[k].rank[i]] += c->key[k].demand / c->key[k].count;
        }
    }
    for (uint32_t r = 0; r < c->world_size; r++) {
        uint64_t room = rank_room(s, r, load);

        host_load[c->host[r]] += rank_load[r] < room ? rank_load[r] : room;
    }
}

/* Give rank i of a key up to x more; returns what fits. */
static uint64_t give(struct solver *s, uint32_t k, uint32_t i, uint64_t x)
{
    uint32_t r = s->c->key[k].rank[i], h = s->c->host[r];
    struct dyti_flow_edge *in = &s->net.edge[s->net.first[k + 1]];
    struct dyti_flow_edge *out = in + 1 + i;
    struct dyti_flow_edge *up = last_edge(s, s->rank_at + r);
    struct dyti_flow_edge *down = last_edge(s, s->host_at + h);

    x = x < up->left ? x : up->left;
    x = x < down->left ? x : down->left;
    x = x < reverse(s, in)->left ? x : reverse(s, in)->left;
    reverse(s, in)->left -= x;
    in->left += x;
    out->left -= x;
    reverse(s, out)->left += x;
    up->left -= x;
    reverse(s, up)->left += x;
    down->left -= x;
    reverse(s, down)->left += x;
    return x;
}

/* What did not fit goes to the others of the key, evenly as long as it can. */
static uint64_t give_rest(struct solver *s, uint32_t k)
{
    const struct dyti_choose_key *key = &s->c->key[k];
    struct dyti_flow_edge *in = reverse(s, &s->net.edge[s->net.first[k + 1]]);
    uint64_t given = 0;

    for (int pass = 0; pass < 3 && in->left > 0; pass++) {
        uint64_t each;
        uint32_t open = 0;

        for (uint32_t i = 0; i < key->count; i++) {
            open += last_edge(s, s->rank_at + key->rank[i])->left > 0;
        }
        each = open == 0 ? 0 : ceil_div(in->left, open);
        for (uint32_t i = 0; i < key->count && each > 0; i++) {
            given += give(s, k, i, each);
        }
    }
    return given;
}

/* Capacities for this load, and the even spread as far as it fits. */
static uint64_t fill_net(struct solver *s, uint64_t load, uint64_t *rank_load,
                         uint64_t *host_load)
{
    const struct dyti_choose *c = s->c;
    uint64_t flow = 0;

    add_even(s, load, rank_load, host_load);
    for (size_t v = 0; v < s->net.first[s->net.node_count]; v++) {
        s->net.edge[v].left = 0;
    }
    for (uint32_t r = 0; r < c->world_size; r++) {
        last_edge(s, s->rank_at + r)->left = rank_room(s, r, load);
    }
    for (uint32_t h = 0; h < c->host_count; h++) {
        last_edge(s, s->host_at + h)->left = host_room(s, h, load);
    }
    for (uint32_t k = 0; k < c->key_count; k++) {
        const struct dyti_choose_key *key = &c->key[k];
        struct dyti_flow_edge *in;

        if (!is_node(key)) {
            continue;
        }
        in = &s->net.edge[s->net.first[k + 1]]; /* the way back */
        reverse(s, in)->left = key->demand;
        for (uint32_t i = 0; i < key->count; i++) {
            uint32_t r = key->rank[i], h = c->host[r];
            uint64_t room = rank_room(s, r, load), x = key->demand / key->count;

            in[1 + i].left = key->demand;
            if (rank_load[r] > room) {
                x = scale(x, room, rank_load[r]);
            }
            if (host_load[h] > host_room(s, h, load)) {
                x = scale(x, host_room(s, h, load), host_load[h]);
            }
            flow += give(s, k, i, x);
        }
    }
    for (uint32_t k = 0; k < c->key_count; k++) {
        flow += is_node(&c->key[k]) ? give_rest(s, k) : 0;
    }
    return flow;
}

/* ---- Newton ------------------------------------------------------------- */

/* What the ranks and hosts behind the minimum cut need. */
static uint64_t load_of_cut(const struct solver *s, uint64_t load)
{
    const struct dyti_choose *c = s->c;
    const uint32_t *level = s->net.level;
    uint64_t need = 0, units = 0;

    for (size_t k = 0; k < c->key_count; k++) {
        need += is_node(&c->key[k]) && level[k + 1] != 0 ? c->key[k].demand : 0;
    }
    for (uint32_t r = 0; r < c->world_size; r++) {
        if (level[s->rank_at + r] != 0 && level[s->host_at + c->host[r]] == 0) {
            need += s->fixed[r];
            units += DYTI_CHOOSE_UNIT;
        }
    }
    for (uint32_t h = 0; h < c->host_count; h++) {
        if (level[s->host_at + h] != 0 && c->host_unit != NULL) {
            need += s->host_fixed[h];
            units += c->host_unit[h];
        }
    }
    if (units > 0) {
        uint64_t least = ceil_scale(need, DYTI_CHOOSE_UNIT, units);

        return least > load ? least : load + 1;
    }
    return load + 1;
}

/* Loads that nobody can take away, and the average. */
static uint64_t first_load(const struct solver *s)
{
    const struct dyti_choose *c = s->c;
    uint64_t load = ceil_div(s->demand, c->world_size == 0 ? 1 : c->world_size);

    for (uint32_t r = 0; r < c->world_size; r++) {
        load = s->fixed[r] > load ? s->fixed[r] : load;
    }
    for (uint32_t h = 0; c->host_unit != NULL && h < c->host_count; h++) {
        uint64_t least = c->host_unit[h] == 0
                             ? 0
                             : ceil_scale(s->host_fixed[h], DYTI_CHOOSE_UNIT,
                                          c->host_unit[h]);

        load = least > load ? least : load;
    }
    return load;
}

static void take_shares(const struct solver *s)
{
    const struct dyti_choose *c = s->c;

    for (size_t k = 0; k < c->key_count; k++) {
        const struct dyti_choose_key *key = &c->key[k];

        if (!is_node(key)) {
            c->share[key->share] = key->demand;
            continue;
        }
        for (uint32_t i = 0; i < key->count; i++) {
            c->share[key->share + i] =
                key->demand - s->net.edge[s->net.first[k + 1] + 1 + i].left;
        }
    }
}

static enum dyt_status solve(struct solver *s)
{
    struct dyti_choose *c = s->c;
    uint64_t *rank_load = calloc((size_t)c->world_size + 1, sizeof(uint64_t));
    uint64_t *host_load = calloc((size_t)c->host_count + 1, sizeof(uint64_t));
    uint64_t load = first_load(s);
    enum dyt_status st = DYT_OK;

    if (rank_load == NULL || host_load == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "loads of %u ranks", c->world_size);
    }
    while (st == DYT_OK) {
        uint64_t flow = fill_net(s, load, rank_load, host_load);

        flow += dyti_flow_run(&s->net, 0, s->sink);
        if (flow == s->demand) {
            take_shares(s);
            c->load = load;
            break;
        }
        load = load_of_cut(s, load);
    }
    free(rank_load);
    free(host_load);
    return st;
}

static enum dyt_status choose_in_turn(struct dyti_choose *c)
{
    uint64_t *load = calloc((size_t)c->world_size + 1, sizeof(*load));

    if (load == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "loads of %u ranks", c->world_size);
    }
    share_evenly(c);
    add_loads(c, load);
    c->in_turn = true;
    for (uint32_t r = 0; r < c->world_size; r++) {
        c->load = load[r] > c->load ? load[r] : c->load;
    }
    free(load);
    return DYT_OK;
}

enum dyt_status dyti_choose(struct dyti_choose *c)
{
    struct solver s = {.c = c};
    size_t edges = 0;
    enum dyt_status st = DYT_OK;

    c->load = 0;
    c->in_turn = false;
    for (size_t k = 0; k < c->key_count; k++) {
        c->key[k].share = edges;
        edges += c->key[k].count;
        s.demand += is_node(&c->key[k]) ? c->key[k].demand : 0;
    }
    c->share = calloc(edges + 1, sizeof(*c->share));
    s.fixed = calloc((size_t)c->world_size + 1, sizeof(*s.fixed));
    s.host_fixed = calloc((size_t)c->host_count + 1, sizeof(*s.host_fixed));
    if (c->share == NULL || s.fixed == NULL || s.host_fixed == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "shares of %zu sources", edges);
        goto out;
    }
    if (edges > DYTI_CHOOSE_EDGES) {
        st = choose_in_turn(c);
        goto out;
    }
    for (size_t k = 0; k < c->key_count; k++) {
        if (c->key[k].count == 1) {
            s.fixed[c->key[k].rank[0]] += c->key[k].demand;
            s.host_fixed[c->host[c->key[k].rank[0]]] += c->key[k].demand;
        }
    }
    st = make_net(&s);
    st = st != DYT_OK ? st : solve(&s);
out:
    free(s.fixed);
    free(s.host_fixed);
    free(s.net.first);
    free(s.net.edge);
    free(s.net.level);
    free(s.net.queue);
    free(s.net.next);
    return st;
}
