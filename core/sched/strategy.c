/* The strategies by name, and what they share: checks, sorting, parts. */
#include "sched/strategy.h"

#include "base/array.h"
#include "base/sort.h"
#include "sched/certificate.h"
#include "sched/order.h"
#include "sched/replay.h"

#include <stdlib.h>
#include <string.h>

static const struct dyti_strategy_ops *const strategies[] = {
    &dyti_strategy_optimal, &dyti_strategy_xor, &dyti_strategy_funnel,
    &dyti_strategy_per_tensor};

const struct dyti_strategy_ops *dyti_strategy_at(size_t index)
{
    return index < sizeof(strategies) / sizeof(strategies[0])
               ? strategies[index]
               : NULL;
}

enum dyt_status dyti_strategy_by_name(const char *name,
                                      const struct dyti_strategy_ops **out_ops)
{
    for (size_t i = 0; dyti_strategy_at(i) != NULL; i++) {
        if (strcmp(strategies[i]->name, name) == 0) {
            *out_ops = strategies[i];
            return DYT_OK;
        }
    }
    return DYTI_FAIL(DYT_ERR_CONFIG,
                     "there is no strategy '%s': optimal, xor, funnel, "
                     "per-tensor",
                     name);
}

void dyti_pieces_fini(struct dyti_pieces *pieces)
{
    free(pieces->piece);
    *pieces = (struct dyti_pieces){0};
}

/* ---- lists -------------------------------------------------------------- */

enum dyt_status dyti_piece_add(struct dyti_piece_list *list,
                               const struct dyti_piece *piece)
{
    enum dyt_status st = DYTI_GROW(list->piece, list->cap, list->count + 1);

    if (st == DYT_OK) {
        list->piece[list->count++] = *piece;
    }
    return st;
}

enum dyt_status dyti_take_add(struct dyti_takes *takes, uint32_t edge,
                              uint32_t round, uint64_t bytes)
{
    enum dyt_status st = DYTI_GROW(takes->take, takes->cap, takes->count + 1);

    if (st == DYT_OK) {
        takes->take[takes->count++] =
            (struct dyti_take){.edge = edge, .round = round, .bytes = bytes};
        if (round >= takes->round_count) {
            takes->round_count = round + 1;
        }
    }
    return st;
}

uint64_t dyti_part_count(uint64_t bytes, uint64_t chunk)
{
    chunk = chunk < DYTI_PIECE_ALIGN
                ? DYTI_PIECE_ALIGN
                : chunk / DYTI_PIECE_ALIGN * DYTI_PIECE_ALIGN;
    return bytes / chunk + (bytes % chunk != 0);
}

/* In units of DYTI_PIECE_ALIGN, the last one cut: no part has more than the
 * units of a chunk, as count * chunk covers all of them. */
uint64_t dyti_part_begin(uint64_t bytes, uint64_t count, uint64_t k)
{
    uint64_t units = bytes / DYTI_PIECE_ALIGN + (bytes % DYTI_PIECE_ALIGN != 0);
    uint64_t base = units / count, more = units % count;
    uint64_t at = (base * k + (k < more ? k : more)) * DYTI_PIECE_ALIGN;

    return k == count || at > bytes ? bytes : at;
}

/* ---- input -------------------------------------------------------------- */

static enum dyt_status check_cluster(const struct dyti_cluster *c)
{
    for (uint32_t i = 0; i < c->rank_count; i++) {
        if (c->host[i] >= c->host_count) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "rank %u is on host %u, the cluster has %u", i,
                             c->host[i], c->host_count);
        }
    }
    return DYT_OK;
}

static enum dyt_status check_flow(const struct dyti_cluster *c,
                                  const struct dyti_flow *f)
{
    enum dyti_link_class link;

    if (f->src >= c->rank_count || f->dst >= c->rank_count ||
        f->src == f->dst) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "a flow from rank %u to rank %u: two different ranks "
                         "below %u",
                         f->src, f->dst, c->rank_count);
    }
    if (f->bytes == 0) {
        return DYTI_FAIL(DYT_ERR_INVALID, "the flow %u -> %u has no bytes",
                         f->src, f->dst);
    }
    link = dyti_cluster_link(c, f->src, f->dst);
    if (!(c->link[link].bytes_per_s > 0.0)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "the cluster's %s link has no speed: the flow %u -> "
                         "%u needs it",
                         dyti_link_class_name(link), f->src, f->dst);
    }
    return DYT_OK;
}

struct flow_key {
    uint32_t wave, src, dst, index;
};

static int compare_key(const void *a, const void *b)
{
    const struct flow_key *x = a, *y = b;

    if (x->wave != y->wave) {
        return x->wave < y->wave ? -1 : 1;
    }
    if (x->src != y->src) {
        return x->src < y->src ? -1 : 1;
    }
    return (x->dst > y->dst) - (x->dst < y->dst);
}

static uint64_t place_of_key(const void *item)
{
    const struct flow_key *k = item;

    return (uint64_t)k->wave << 32 | k->src;
}

enum dyt_status dyti_order_sorted(const struct dyti_order *in,
                                  uint32_t **out_index)
{
    struct flow_key *key = NULL;
    uint32_t *index = NULL;
    enum dyt_status st = check_cluster(in->cluster);

    if (st == DYT_OK && in->flow_count >= UINT32_MAX) {
        st = DYTI_FAIL(DYT_ERR_OVERFLOW, "%zu flows", in->flow_count);
    }
    for (size_t i = 0; i < in->flow_count && st == DYT_OK; i++) {
        st = check_flow(in->cluster, &in->flow[i]);
    }
    if (st != DYT_OK) {
        return st;
    }
    key = malloc((in->flow_count + 1) * sizeof(*key));
    index = malloc((in->flow_count + 1) * sizeof(*index));
    if (key == NULL || index == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu flows", in->flow_count);
        goto out;
    }
    for (size_t i = 0; i < in->flow_count; i++) {
        const struct dyti_flow *f = &in->flow[i];

        key[i] = (struct flow_key){f->wave, f->src, f->dst, (uint32_t)i};
    }
    dyti_sort(key, in->flow_count, sizeof(*key), place_of_key, compare_key);
    for (size_t i = 0; i < in->flow_count && st == DYT_OK; i++) {
        if (i > 0 && compare_key(&key[i - 1], &key[i]) == 0) {
            st = DYTI_FAIL(DYT_ERR_INVALID,
                           "the flow %u -> %u of wave %u is given twice",
                           key[i].src, key[i].dst, key[i].wave);
        }
        index[i] = key[i].index;
    }
    if (st == DYT_OK) {
        *out_index = index;
        index = NULL;
    }
out:
    free(key);
    free(index);
    return st;
}

/* ---- output ------------------------------------------------------------- */

static int compare_piece(const void *a, const void *b)
{
    const struct dyti_piece *x = a, *y = b;
    uint64_t p[] = {x->round, x->from, x->to, x->lo};
    uint64_t q[] = {y->round, y->from, y->to, y->lo};

    for (size_t i = 0; i < sizeof(p) / sizeof(p[0]); i++) {
        if (p[i] != q[i]) {
            return p[i] < q[i] ? -1 : 1;
        }
    }
    return 0;
}

static uint64_t place_of_piece(const void *item)
{
    const struct dyti_piece *p = item;

    return (uint64_t)p->round << 32 | p->from;
}

enum dyt_status dyti_pieces_finish(const struct dyti_order *in,
                                   struct dyti_piece_list *list,
                                   struct dyti_pieces *out_pieces)
{
    struct dyti_pieces p = {.piece = list->piece, .count = list->count};
    struct dyti_busiest busiest;
    enum dyt_status st;

    list->piece = NULL;
    dyti_sort(p.piece, p.count, sizeof(*p.piece), place_of_piece,
              compare_piece);
    for (size_t i = 0; i < p.count; i++) {
        uint64_t bytes = p.piece[i].hi - p.piece[i].lo;

        p.chunk_bytes = bytes > p.chunk_bytes ? bytes : p.chunk_bytes;
    }
    p.round_count = p.count > 0 ? p.piece[p.count - 1].round + 1 : 0;
    st = dyti_busiest_of_flows(in->cluster, in->flow, in->flow_count, &busiest);
    st = st != DYT_OK
             ? st
             : dyti_replay(in->cluster, p.piece, p.count, NULL, &p.makespan_s);
    if (st != DYT_OK) {
        dyti_pieces_fini(&p);
        return st;
    }
    p.load_s = busiest.seconds;
    dyti_assert(dyti_pieces_check(in, &p) == DYT_OK);
    *out_pieces = p;
    return DYT_OK;
}

/* Each port's next free round, by class; hops and waves are in the list behind
 * what they wait for, and so get later rounds than those. */
enum dyt_status dyti_rounds_first_fit(const struct dyti_order *in,
                                      struct dyti_piece_list *list)
{
    const struct dyti_cluster *c = in->cluster;
    size_t ports = (size_t)c->rank_count * DYTI_LINK_CLASS_COUNT;
    uint32_t *next = calloc(2 * ports + 1, sizeof(*next));

    if (next == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu ends of links", 2 * ports);
    }
    for (size_t i = 0; i < list->count; i++) {
        struct dyti_piece *p = &list->piece[i];
        size_t class = dyti_cluster_link(c, p->from, p->to);
        uint32_t *a = &next[p->from * (size_t)DYTI_LINK_CLASS_COUNT + class];
        uint32_t *b =
            &next[ports + p->to * (size_t)DYTI_LINK_CLASS_COUNT + class];
        uint32_t round = *a > *b ? *a : *b;

        p->round = round > p->round ? round : p->round;
        *a = *b = p->round + 1;
    }
    free(next);
    return DYT_OK;
}
