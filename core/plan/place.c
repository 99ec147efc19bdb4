/* Two assignments over what source and destination have in common. */
#include "plan/place.h"

#include "plan/assign.h"
#include "plan/check.h"
#include "plan/loads.h"
#include "plan/traffic_detail.h"

#include <stdlib.h>
#include <string.h>

/* Up to here every pair of hosts is tried with its ranks, so that hosts that
 * are equally good for the NICs are told apart by what stays on a rank. */
#define PAIR_RANKS 1024u

struct placer {
    struct dyti_common atoms;
    uint32_t n, hosts;
    uint32_t *by_host, *host_first; /* ranks by host: [host_first[h], …) */
    uint32_t *place;                /* of a rank among those of its host */
    uint32_t widest;                /* ranks of the largest host */
    uint64_t *need;                 /* [hosts] bytes that a host wants */
    uint64_t *have; /* [hosts][hosts] of what host t wants, on host h */
    uint64_t *keep; /* [n][n], or [n][widest] of the host that was found */
    /* For squares(): of what rank r wants, on host h; of what it holds, wanted
     * by target host t (a replica counts for its part); and in all. */
    uint64_t *wants_on, *held_for, *wants, *holds;
    uint64_t most;     /* of wants and holds */
    uint32_t *host_of; /* target host → host */
    uint32_t *rank_of; /* target rank → rank */
    dyti_cost *cost;
    uint32_t *column;
};

static uint32_t size_of(const struct placer *p, uint32_t host)
{
    return p->host_first[host + 1] - p->host_first[host];
}

static enum dyt_status open(struct placer *p)
{
    size_t n = p->n = p->atoms.world_size, h = p->hosts = p->atoms.host_count;
    uint32_t *fill;

    p->by_host = calloc(n + 1, sizeof(uint32_t));
    p->host_first = calloc(h + 2, sizeof(uint32_t));
    p->place = calloc(n + 1, sizeof(uint32_t));
    p->need = calloc(h + 1, sizeof(uint64_t));
    p->have = calloc(h * h + 1, sizeof(uint64_t));
    p->host_of = calloc(h + 1, sizeof(uint32_t));
    p->rank_of = calloc(n + 1, sizeof(uint32_t));
    if (p->by_host == NULL || p->host_first == NULL || p->place == NULL ||
        p->need == NULL || p->have == NULL || p->host_of == NULL ||
        p->rank_of == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "placing %u ranks", p->n);
    }
    for (uint32_t r = 0; r < p->n; r++) {
        p->host_first[p->atoms.host[r] + 1]++;
        p->rank_of[r] = r;
    }
    for (uint32_t k = 0; k < p->hosts; k++) {
        uint32_t size = p->host_first[k + 1];

        p->widest = size > p->widest ? size : p->widest;
        p->host_first[k + 1] += p->host_first[k];
        p->host_of[k] = k;
    }
    fill = p->host_of; /* counts for a moment */
    memset(fill, 0, h * sizeof(*fill));
    for (uint32_t r = 0; r < p->n; r++) {
        uint32_t host = p->atoms.host[r];

        p->place[r] = fill[host]++;
        p->by_host[p->host_first[host] + p->place[r]] = r;
    }
    for (uint32_t k = 0; k < p->hosts; k++) {
        p->host_of[k] = k;
    }
    return DYT_OK;
}

static void close(struct placer *p)
{
    dyti_common_fini(&p->atoms);
    free(p->by_host);
    free(p->host_first);
    free(p->place);
    free(p->need);
    free(p->have);
    free(p->keep);
    free(p->wants_on);
    free(p->held_for);
    free(p->wants);
    free(p->holds);
    free(p->host_of);
    free(p->rank_of);
    free(p->cost);
    free(p->column);
}

/* ---- what they have in common ------------------------------------------- */

static uint64_t bytes_of(const struct placer *p,
                         const struct dyti_common_class *c)
{
    return c->elements * p->atoms.group[c->group].write_all;
}

static void add_hosts(struct placer *p)
{
    const struct dyti_sets *sets = &p->atoms.sets;

    for (size_t c = 0; c < p->atoms.class_count; c++) {
        const struct dyti_common_class *k = &p->atoms.class[c];
        const struct dyti_rank_set *s = &sets->set[k->src_set];
        const struct dyti_rank_set *d = &sets->set[k->dst_set];
        uint64_t bytes = bytes_of(p, k);

        for (uint32_t i = 0; i < d->run_count; i++) {
            uint32_t t = sets->run[d->run_first + i].host;

            p->need[t] += bytes;
            for (uint32_t j = 0; j < s->run_count; j++) {
                p->have[(size_t)t * p->hosts +
                        sets->run[s->run_first + j].host] += bytes;
            }
        }
    }
}

/* All pairs of ranks, or each rank with those of the host that was found. */
static enum dyt_status add_ranks(struct placer *p, bool all)
{
    const struct dyti_sets *sets = &p->atoms.sets;
    size_t wide = all ? p->n : p->widest;

    free(p->keep);
    p->keep = calloc((size_t)p->n * wide + 1, sizeof(*p->keep));
    if (p->keep == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "placing %u ranks", p->n);
    }
    for (size_t c = 0; c < p->atoms.class_count; c++) {
        const struct dyti_common_class *k = &p->atoms.class[c];
        const uint32_t *src = dyti_sets_ranks(sets, k->src_set);
        const uint32_t *dst = dyti_sets_ranks(sets, k->dst_set);
        uint64_t bytes = bytes_of(p, k);

        for (uint32_t i = 0; i < dyti_sets_count(sets, k->dst_set); i++) {
            uint64_t *row = p->keep + dst[i] * wide;
            uint32_t home = p->host_of[p->atoms.host[dst[i]]];

            for (uint32_t j = 0; j < dyti_sets_count(sets, k->src_set); j++) {
                if (all) {
                    row[src[j]] += bytes;
                } else if (p->atoms.host[src[j]] == home) {
                    row[p->place[src[j]]] += bytes;
                }
            }
        }
    }
    return DYT_OK;
}

/* What squares() needs. */
static enum dyt_status add_links(struct placer *p)
{
    const struct dyti_sets *sets = &p->atoms.sets;
    size_t n = p->n, h = p->hosts;

    p->wants_on = calloc(n * h + 1, sizeof(uint64_t));
    p->held_for = calloc(n * h + 1, sizeof(uint64_t));
    p->wants = calloc(n + 1, sizeof(uint64_t));
    p->holds = calloc(n + 1, sizeof(uint64_t));
    if (p->wants_on == NULL || p->held_for == NULL || p->wants == NULL ||
        p->holds == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "placing %u ranks", p->n);
    }
    for (size_t c = 0; c < p->atoms.class_count; c++) {
        const struct dyti_common_class *k = &p->atoms.class[c];
        const struct dyti_rank_set *s = &sets->set[k->src_set];
        const struct dyti_rank_set *d = &sets->set[k->dst_set];
        uint64_t bytes = bytes_of(p, k);

        for (uint32_t i = 0; i < d->count; i++) {
            uint32_t rank = sets->rank[d->first + i];

            p->wants[rank] += bytes;
            for (uint32_t r = 0; r < s->run_count; r++) {
                p->wants_on[rank * h + sets->run[s->run_first + r].host] +=
                    bytes;
            }
        }
        for (uint32_t i = 0; i < s->count; i++) {
            uint32_t rank = sets->rank[s->first + i];

            p->holds[rank] += bytes / s->count;
            for (uint32_t r = 0; r < d->run_count; r++) {
                p->held_for[rank * h + sets->run[d->run_first + r].host] +=
                    bytes / s->count;
            }
        }
    }
    for (uint32_t r = 0; r < p->n; r++) {
        p->most = p->wants[r] > p->most ? p->wants[r] : p->most;
        p->most = p->holds[r] > p->most ? p->holds[r] : p->most;
    }
    return DYT_OK;
}

/* How unevenly target host t on host h loads the NICs: the sum of squares of
 * what its ranks take in and those of h give away, in 1/1024 of the most. */
static uint64_t squares(const struct placer *p, uint32_t t, uint32_t h)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < size_of(p, t) && p->most > 0; i++) {
        uint32_t in = p->by_host[p->host_first[t] + i];
        uint32_t out = p->by_host[p->host_first[h] + i];
        double a =
            (double)(p->wants[in] - p->wants_on[in * (size_t)p->hosts + h]);
        double b = (double)p->holds[out];
        double used = (double)p->held_for[out * (size_t)p->hosts + t];

        b = b > used ? b - used : 0;
        a = a * 1024 / (double)p->most;
        b = b * 1024 / (double)p->most;
        sum += (uint64_t)(a * a + b * b);
    }
    return sum;
}

/* ---- assigning ---------------------------------------------------------- */

/* The ranks of target host t to those of host h: what stays, and who where. */
static enum dyt_status assign_ranks(struct placer *p, uint32_t t, uint32_t h,
                                    bool all, uint64_t *out_keep)
{
    const uint32_t *to = p->by_host + p->host_first[t];
    const uint32_t *at = p->by_host + p->host_first[h];
    uint32_t n = size_of(p, t);
    enum dyt_status st;

    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            uint64_t keep = all ? p->keep[(size_t)to[i] * p->n + at[j]]
                                : p->keep[(size_t)to[i] * p->widest + j];

            p->cost[(size_t)i * n + j] = -(dyti_cost)keep;
        }
    }
    st = dyti_assign(p->cost, n, p->column);
    *out_keep = 0;
    for (uint32_t i = 0; i < n && st == DYT_OK; i++) {
        *out_keep += (uint64_t)-p->cost[(size_t)i * n + p->column[i]];
    }
    return st;
}

/* Bits of a tie: squares above, what stays below. */
#define KEEP_BITS 34u

static enum dyt_status cost_of_pair(struct placer *p, uint32_t t, uint32_t h,
                                    bool all, uint32_t shift,
                                    dyti_cost *out_cost)
{
    uint64_t crosses = p->need[t] - p->have[(size_t)t * p->hosts + h], keep = 0;
    uint64_t uneven = 0, most = UINT64_MAX >> (KEEP_BITS + 3u);
    enum dyt_status st = DYT_OK;

    if (size_of(p, t) != size_of(p, h)) {
        *out_cost = DYTI_COST((int64_t)1 << 50, 0);
        return DYT_OK;
    }
    if (all) {
        st = assign_ranks(p, t, h, true, &keep);
        uneven = squares(p, t, h);
        uneven = uneven < most ? uneven : most;
    }
    *out_cost = DYTI_COST((int64_t)crosses, ((dyti_cost)uneven << KEEP_BITS) -
                                                (dyti_cost)(keep >> shift));
    return st;
}

static enum dyt_status assign_hosts(struct placer *p, bool all)
{
    dyti_cost *cost = calloc((size_t)p->hosts * p->hosts + 1, sizeof(*cost));
    uint64_t kept_most = 0;
    uint32_t shift = 0;
    enum dyt_status st = DYT_OK;

    if (cost == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "placing %u hosts", p->hosts);
    }
    for (uint32_t r = 0; r < p->n && all; r++) {
        kept_most += p->wants[r];
    }
    while (kept_most >> shift >> KEEP_BITS != 0) {
        shift++;
    }
    for (uint32_t t = 0; t < p->hosts && st == DYT_OK; t++) {
        for (uint32_t h = 0; h < p->hosts && st == DYT_OK; h++) {
            st = cost_of_pair(p, t, h, all, shift,
                              &cost[(size_t)t * p->hosts + h]);
        }
    }
    st = st != DYT_OK ? st : dyti_assign(cost, p->hosts, p->host_of);
    free(cost);
    return st;
}

static enum dyt_status assign(struct placer *p,
                              struct dyti_placement *placement)
{
    bool all = p->n <= PAIR_RANKS;
    size_t wide = p->widest > p->hosts ? p->widest : p->hosts;
    enum dyt_status st;

    p->cost = calloc(wide * wide + 1, sizeof(*p->cost));
    p->column = calloc(wide + 1, sizeof(*p->column));
    if (p->cost == NULL || p->column == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "placing %u ranks", p->n);
    }
    add_hosts(p);
    st = add_ranks(p, all); /* hosts as described */
    if (all) {
        st = st != DYT_OK ? st : add_links(p);
    }
    for (uint32_t r = 0; r < p->n && st == DYT_OK; r++) {
        placement->keep_before +=
            all ? p->keep[(size_t)r * p->n + r]
                : p->keep[(size_t)r * p->widest + p->place[r]];
    }
    st = st != DYT_OK ? st : assign_hosts(p, all);
    if (!all) {
        st = st != DYT_OK ? st : add_ranks(p, false);
    }
    for (uint32_t t = 0; t < p->hosts && st == DYT_OK; t++) {
        uint32_t h = p->host_of[t];
        uint64_t keep = 0;

        st = assign_ranks(p, t, h, all, &keep);
        placement->keep_after += keep;
        placement->nic_before += p->need[t] - p->have[(size_t)t * p->hosts + t];
        placement->nic_after += p->need[t] - p->have[(size_t)t * p->hosts + h];
        for (uint32_t i = 0; i < size_of(p, t) && st == DYT_OK; i++) {
            p->rank_of[p->by_host[p->host_first[t] + i]] =
                p->by_host[p->host_first[h] + p->column[i]];
        }
    }
    return st;
}

static enum dyt_status add_load(void *loads, const struct dyti_stretch *s)
{
    dyti_loads_add(loads, s);
    return DYT_OK;
}

/* Seconds of the busiest link under a relabelling; NULL: as described. */
static enum dyt_status seconds_of(struct placer *p,
                                  const struct dyti_cluster *cluster,
                                  const uint32_t *rank_of, double *out_s)
{
    struct dyti_common *atoms = &p->atoms;
    const struct dyti_tapes_how how = {.fan_out = atoms->host_count > 1};
    uint32_t *rank = calloc((size_t)p->n + 1, sizeof(*rank));
    struct dyti_tapes tapes = {0};
    struct dyti_loads loads = {0};
    enum dyt_status st =
        rank == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "placing %u ranks", p->n)
                     : DYT_OK;

    for (size_t c = 0; c < atoms->class_count && rank_of != NULL; c++) {
        struct dyti_common_class *k = &atoms->class[c];
        uint32_t count = dyti_sets_count(&atoms->sets, k->dst_set);

        for (uint32_t i = 0; i < count && st == DYT_OK; i++) {
            rank[i] = rank_of[dyti_sets_ranks(&atoms->sets, k->dst_set)[i]];
        }
        st = st != DYT_OK
                 ? st
                 : dyti_sets_intern(&atoms->sets, rank, count, &k->dst_set);
        st = st != DYT_OK ? st : dyti_sets_split(&atoms->sets, k->dst_set);
    }
    st = st != DYT_OK ? st : dyti_tapes_build(atoms, &how, &tapes);
    st = st != DYT_OK ? st : dyti_loads_init(&loads, atoms, cluster);
    for (uint32_t c = 0; c < atoms->class_count && st == DYT_OK; c++) {
        st = dyti_tapes_visit(&tapes, c, -1, add_load, &loads);
    }
    *out_s = st == DYT_OK ? dyti_loads_seconds(&loads) : 0;
    dyti_loads_fini(&loads);
    dyti_tapes_fini(&tapes);
    free(rank);
    return st;
}

/* Both permutations, or those of the description where they are no better. */
static enum dyt_status conclude(struct placer *p,
                                struct dyti_placement *placement)
{
    const struct dyti_layout *dst = p->atoms.inputs.dst;

    for (size_t c = 0; c < p->atoms.class_count; c++) {
        const struct dyti_common_class *k = &p->atoms.class[c];

        placement->total_bytes +=
            bytes_of(p, k) * dyti_sets_count(&p->atoms.sets, k->dst_set);
    }
    placement->changed = placement->load_after_s <= placement->load_before_s &&
                         (placement->nic_after < placement->nic_before ||
                          (placement->nic_after == placement->nic_before &&
                           placement->keep_after > placement->keep_before));
    if (!placement->changed) {
        placement->nic_after = placement->nic_before;
        placement->keep_after = placement->keep_before;
        placement->load_after_s = placement->load_before_s;
    }
    placement->world_size = p->n;
    placement->member_count = dst->member_count;
    placement->rank_of = calloc((size_t)p->n + 1, sizeof(uint32_t));
    placement->ranks = calloc((size_t)dst->member_count + 1, sizeof(uint32_t));
    if (placement->rank_of == NULL || placement->ranks == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a placement of %u ranks", p->n);
    }
    for (uint32_t r = 0; r < p->n; r++) {
        placement->rank_of[r] = placement->changed ? p->rank_of[r] : r;
    }
    for (uint32_t m = 0; m < dst->member_count && dst->desc.ranks != NULL;
         m++) {
        placement->ranks[m] = placement->rank_of[dst->desc.ranks[m]];
    }
    return DYT_OK;
}

enum dyt_status dyti_place_from(const struct dyti_plan_inputs *inputs,
                                const struct dyti_traffic_options *options,
                                const struct dyti_patterns *const *patterns,
                                uint32_t pattern_count,
                                struct dyti_placement *out_placement)
{
    const struct dyti_traffic_options none = {0};
    struct placer p = {0};
    struct dyti_placement placement = {0};
    struct dyti_cluster cluster;
    uint32_t *host = NULL;
    enum dyt_status st = dyti_plan_check_inputs(inputs);

    st = st != DYT_OK
             ? st
             : dyti_traffic_cluster(inputs, options == NULL ? &none : options,
                                    &cluster, &host);
    st = st != DYT_OK ? st
                      : dyti_common_build(inputs, host, patterns, pattern_count,
                                          &p.atoms);
    st = st != DYT_OK ? st : open(&p);
    st = st != DYT_OK ? st : assign(&p, &placement);
    if (st == DYT_OK && p.n <= PAIR_RANKS) {
        st = seconds_of(&p, &cluster, NULL, &placement.load_before_s);
        st = st != DYT_OK
                 ? st
                 : seconds_of(&p, &cluster, p.rank_of, &placement.load_after_s);
    }
    st = st != DYT_OK ? st : conclude(&p, &placement);
    free(host);
    close(&p);
    if (st != DYT_OK) {
        DYTI_NOTE("placing the ranks of phase %s", inputs->dst->desc.phase);
        dyti_placement_fini(&placement);
        return st;
    }
    *out_placement = placement;
    return DYT_OK;
}

enum dyt_status dyti_place(const struct dyti_plan_inputs *inputs,
                           const struct dyti_traffic_options *options,
                           struct dyti_placement *out_placement)
{
    struct dyti_pattern_list list = {0};
    const struct dyti_patterns *patterns[DYTI_MAX_PATTERNS];
    enum dyt_status st = dyti_plan_check_inputs(inputs);

    st = st != DYT_OK ? st : dyti_pattern_list_build(inputs, &list);
    for (uint32_t i = 0; i < list.count; i++) {
        patterns[i] = list.patterns[i];
    }
    st = st != DYT_OK ? st
                      : dyti_place_from(inputs, options, patterns, list.count,
                                        out_placement);
    dyti_pattern_list_fini(&list);
    return st;
}

void dyti_placement_fini(struct dyti_placement *placement)
{
    free(placement->rank_of);
    free(placement->ranks);
    *placement = (struct dyti_placement){0};
}
