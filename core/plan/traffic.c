/* Decides who sends what, adds it up by pair, kind and link, and compares it
 * with the first replica sending everything and with the bound. */
#include "plan/traffic.h"

#include "base/array.h"
#include "base/hash.h"
#include "plan/check.h"
#include "plan/loads.h"
#include "plan/traffic_detail.h"

#include <stdlib.h>
#include <string.h>

#define WAVES 2u

static uint64_t fingerprint(const struct dyti_traffic *t)
{
    uint64_t state = dyti_plan_fingerprint(&t->inputs);

    for (uint32_t r = 0; r < t->world_size; r++) {
        state = dyti_fingerprint_u64(state, t->host[r]);
    }
    state = dyti_fingerprint_u64(state, t->options.fan_out);
    state = dyti_fingerprint_u64(state, t->options.naive);
    state = dyti_fingerprint_u64(state, t->options.nearest);
    return dyti_fingerprint_u64(state, t->options.exact_cells);
}

/* ---- the matrix --------------------------------------------------------- */

struct adder {
    struct dyti_traffic *t;
    const struct dyti_common *atoms;
    struct dyti_loads loads;
    bool loads_only;
    size_t pair_cap;
    uint32_t *slot; /* pair + 1, by hash of (dst, src, wave) */
    size_t slot_count;
    uint64_t *elements, *boxes; /* [group][wave][link] */
};

static size_t slot_of(uint32_t src, uint32_t dst, uint32_t wave, size_t count)
{
    uint64_t key = ((uint64_t)dst << 32 | src) * 2 + wave;

    return (size_t)(key * 0x9e3779b97f4a7c15u >> 24) & (count - 1);
}

static enum dyt_status grow_slots(struct adder *a)
{
    size_t count = a->slot_count == 0 ? 4096 : a->slot_count * 2;
    uint32_t *slot;

    if (a->t->pair_count * 2 < a->slot_count) {
        return DYT_OK;
    }
    slot = calloc(count, sizeof(*slot));
    if (slot == NULL || a->t->pair_count >= UINT32_MAX) {
        free(slot);
        return DYTI_FAIL(DYT_ERR_NOMEM,
                         "a traffic matrix of %zu pairs; ask for one rank's",
                         a->t->pair_count);
    }
    for (size_t i = 0; i < a->t->pair_count; i++) {
        const struct dyti_traffic_pair *p = &a->t->pair[i];
        size_t at = slot_of(p->src_rank, p->dst_rank, p->wave, count);

        while (slot[at] != 0) {
            at = (at + 1) & (count - 1);
        }
        slot[at] = (uint32_t)i + 1;
    }
    free(a->slot);
    a->slot = slot;
    a->slot_count = count;
    return DYT_OK;
}

static enum dyt_status pair_of(struct adder *a, const struct dyti_stretch *s,
                               struct dyti_traffic_pair **out_pair)
{
    enum dyt_status st = grow_slots(a);
    size_t at;

    if (st != DYT_OK) {
        return st;
    }
    at = slot_of(s->src, s->dst, s->wave, a->slot_count);
    for (; a->slot[at] != 0; at = (at + 1) & (a->slot_count - 1)) {
        struct dyti_traffic_pair *p = &a->t->pair[a->slot[at] - 1];

        if (p->src_rank == s->src && p->dst_rank == s->dst &&
            p->wave == s->wave) {
            *out_pair = p;
            return DYT_OK;
        }
    }
    st = DYTI_GROW(a->t->pair, a->pair_cap, a->t->pair_count + 1);
    if (st != DYT_OK) {
        return st;
    }
    a->slot[at] = (uint32_t)a->t->pair_count + 1;
    *out_pair = &a->t->pair[a->t->pair_count++];
    **out_pair = (struct dyti_traffic_pair){
        .src_rank = s->src, .dst_rank = s->dst, .wave = s->wave};
    return DYT_OK;
}

static enum dyt_status add_stretch(void *arg, const struct dyti_stretch *s)
{
    struct adder *a = arg;
    const struct dyti_common_class *c = &a->atoms->class[s->class];
    const struct dyti_want_group *g = &a->atoms->group[c->group];
    struct dyti_traffic_pair *pair = NULL;
    uint64_t elements = s->hi - s->lo, boxes;
    size_t at =
        ((size_t)c->group * WAVES + s->wave) * DYTI_LINK_CLASS_COUNT + s->link;
    enum dyt_status st;

    dyti_loads_add(&a->loads, s);
    if (a->loads_only) {
        return DYT_OK;
    }
    st = pair_of(a, s, &pair);
    if (st != DYT_OK) {
        return st;
    }
    boxes = elements == c->elements
                ? c->boxes
                : dyti_class_boxes(a->atoms, c, s->lo, s->hi);
    a->elements[at] += elements;
    a->boxes[at] += boxes;
    pair->transfers += (uint32_t)(boxes * g->want_count);
    pair->read_bytes += elements * (s->wave == 0 ? g->read_all : g->write_all);
    pair->write_bytes += elements * g->write_all;
    return DYT_OK;
}

static enum dyt_status add_all(struct adder *a, struct dyti_tapes *tapes)
{
    const struct dyti_traffic_options *o = &a->t->options;
    int64_t rank = o->one_rank && !a->loads_only ? (int64_t)o->rank : -1;
    enum dyt_status st = DYT_OK;

    for (uint32_t c = 0; c < a->atoms->class_count && st == DYT_OK; c++) {
        st = dyti_tapes_visit(tapes, c, rank, add_stretch, a);
    }
    return st;
}

static int by_pair(const void *a, const void *b)
{
    const struct dyti_traffic_pair *x = a, *y = b;

    if (x->dst_rank != y->dst_rank) {
        return x->dst_rank < y->dst_rank ? -1 : 1;
    }
    if (x->src_rank != y->src_rank) {
        return x->src_rank < y->src_rank ? -1 : 1;
    }
    return (x->wave > y->wave) - (x->wave < y->wave);
}

/* By destination with one pass over the ranks, then each row by source. */
static enum dyt_status sort_pairs(struct dyti_traffic *t)
{
    struct dyti_traffic_pair *sorted =
        malloc((t->pair_count + 1) * sizeof(*sorted));
    size_t *fill = calloc((size_t)t->world_size + 1, sizeof(*fill));

    t->pair_first = calloc((size_t)t->world_size + 2, sizeof(size_t));
    if (sorted == NULL || t->pair_first == NULL || fill == NULL) {
        free(sorted);
        free(fill);
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu pairs of ranks", t->pair_count);
    }
    for (size_t i = 0; i < t->pair_count; i++) {
        t->pair_first[t->pair[i].dst_rank + 1]++;
    }
    for (uint32_t r = 0; r < t->world_size; r++) {
        t->pair_first[r + 1] += t->pair_first[r];
        fill[r] = t->pair_first[r];
    }
    for (size_t i = 0; i < t->pair_count; i++) {
        sorted[fill[t->pair[i].dst_rank]++] = t->pair[i];
    }
    for (uint32_t r = 0; r < t->world_size; r++) {
        size_t count = t->pair_first[r + 1] - t->pair_first[r];

        if (count > 1) {
            qsort(sorted + t->pair_first[r], count, sizeof(*sorted), by_pair);
        }
    }
    free(t->pair);
    free(fill);
    t->pair = sorted;
    return DYT_OK;
}

static void add_sums(struct adder *a)
{
    for (size_t g = 0; g < a->atoms->group_count; g++) {
        const struct dyti_want_group *group = &a->atoms->group[g];

        for (uint32_t i = 0; i < group->want_count; i++) {
            enum dyti_kind kind = a->t->inputs.want[group->want[i]].kind;

            for (uint32_t w = 0; w < WAVES; w++) {
                for (int link = 0; link < DYTI_LINK_CLASS_COUNT; link++) {
                    size_t at =
                        (g * WAVES + w) * DYTI_LINK_CLASS_COUNT + (size_t)link;
                    struct dyti_traffic_sum *sum = &a->t->sum[kind][link];

                    sum->transfers += a->boxes[at];
                    sum->write_bytes += a->elements[at] * group->write[i];
                    sum->read_bytes +=
                        a->elements[at] *
                        (w == 0 ? group->read[i] : group->write[i]);
                }
            }
        }
    }
    for (uint32_t r = 0; r < a->t->world_size; r++) {
        const struct dyti_rank_load *l = &a->loads.rank[r];
        struct dyti_traffic_rank *rank = &a->t->rank[r];

        rank->keep_bytes = l->in[DYTI_LINK_SELF];
        memcpy(rank->send_bytes, l->out, sizeof(rank->send_bytes));
        memcpy(rank->receive_bytes, l->in, sizeof(rank->receive_bytes));
    }
}

/* ---- choosing ----------------------------------------------------------- */

/* What the NICs of a host carry together, for choose.h; NULL where they do not
 * bind. */
static enum dyt_status units_of(const struct dyti_common *atoms,
                                const struct dyti_cluster *c,
                                uint64_t **out_unit)
{
    double rank = c->link[DYTI_LINK_NIC].bytes_per_s;
    double units = rank > 0 ? c->host_nic_bytes_per_s / rank : 0;
    uint64_t *unit;

    *out_unit = NULL;
    if (units <= 0 || atoms->host_count < 2) {
        return DYT_OK;
    }
    units *= DYTI_CHOOSE_UNIT;
    unit = calloc(atoms->host_count, sizeof(*unit));
    if (unit == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "speeds of %u hosts",
                         atoms->host_count);
    }
    for (uint32_t h = 0; h < atoms->host_count; h++) {
        unit[h] = units < 1 ? 1 : units > 1e9 ? 1000000000u : (uint64_t)units;
    }
    *out_unit = unit;
    return DYT_OK;
}

static enum dyt_status seconds_of(struct dyti_traffic *t,
                                  const struct dyti_common *atoms,
                                  const struct dyti_cluster *cluster,
                                  struct dyti_tapes *tapes, double *out_s)
{
    struct adder a = {.t = t, .atoms = atoms, .loads_only = true};
    enum dyt_status st = dyti_loads_init(&a.loads, atoms, cluster);

    st = st != DYT_OK ? st : add_all(&a, tapes);
    if (st == DYT_OK) {
        *out_s = dyti_loads_seconds(&a.loads);
    }
    dyti_loads_fini(&a.loads);
    return st;
}

/* Who may send, the ways in the order in which they are tried. */
static const struct dyti_tapes_how ways[DYTI_SOURCES_COUNT] = {
    [DYTI_SOURCES_SPREAD] = {.fan_out = true},
    [DYTI_SOURCES_NEAREST] = {.fan_out = true, .nearest = true},
    [DYTI_SOURCES_SPREAD_EACH] = {.fan_out = false},
    [DYTI_SOURCES_NEAREST_EACH] = {.nearest = true},
    [DYTI_SOURCES_FIRST] = {.naive = true}};

static enum dyti_sources first_way(const struct dyti_traffic_options *options)
{
    if (options->naive) {
        return DYTI_SOURCES_FIRST;
    }
    if (options->nearest) {
        return options->fan_out ? DYTI_SOURCES_NEAREST
                                : DYTI_SOURCES_NEAREST_EACH;
    }
    return options->fan_out ? DYTI_SOURCES_SPREAD : DYTI_SOURCES_SPREAD_EACH;
}

/* The tapes of the first way that is no worse than the first replica sending
 * everything.  All but that one take from a rank of the same host what one
 * holds, and with fan-out let one copy enter a host: a far rank sends what a
 * near one could only where the links inside a host are what takes longest.
 * Worlds that are too large to look at every cell take the first way. */
static enum dyt_status choose(struct dyti_traffic *t,
                              const struct dyti_cluster *cluster)
{
    const struct dyti_common *atoms = &t->detail->atoms;
    struct dyti_tapes *tapes = &t->detail->tapes, naive = {0};
    uint64_t *unit = NULL;
    enum dyt_status st = units_of(atoms, cluster, &unit);
    bool better = false;

    for (uint32_t way = first_way(&t->options); st == DYT_OK && !better;
         way++) {
        struct dyti_tapes_how how = ways[way];

        how.host_unit = unit;
        how.exact_cells = t->options.exact_cells;
        t->sources = (enum dyti_sources)way;
        dyti_tapes_fini(tapes);
        st = dyti_tapes_build(atoms, &how, tapes);
        if (st != DYT_OK || !tapes->cells) {
            break;
        }
        if (naive.atoms == NULL) {
            st = dyti_tapes_build(atoms, &ways[DYTI_SOURCES_FIRST], &naive);
            st = st != DYT_OK
                     ? st
                     : seconds_of(t, atoms, cluster, &naive, &t->naive_s);
        }
        st = st != DYT_OK ? st
                          : seconds_of(t, atoms, cluster, tapes, &t->load_s);
        better = t->load_s <= t->naive_s || way + 1 == DYTI_SOURCES_COUNT;
    }
    t->spread_in_turn = !tapes->cells || tapes->deck[DYTI_TAPE_OUT].in_turn;
    dyti_tapes_fini(&naive);
    free(unit);
    return st;
}

static enum dyt_status fill(struct dyti_traffic *t,
                            const struct dyti_cluster *cluster)
{
    const struct dyti_common *atoms = &t->detail->atoms;
    struct adder a = {.t = t, .atoms = atoms};
    size_t cells = (atoms->group_count + 1) * WAVES * DYTI_LINK_CLASS_COUNT;
    enum dyt_status st = dyti_loads_init(&a.loads, atoms, cluster);

    a.elements = calloc(cells, sizeof(*a.elements));
    a.boxes = calloc(cells, sizeof(*a.boxes));
    t->rank = calloc((size_t)t->world_size + 1, sizeof(*t->rank));
    if (st == DYT_OK &&
        (a.elements == NULL || a.boxes == NULL || t->rank == NULL)) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "sums of %u ranks", t->world_size);
    }
    st = st != DYT_OK ? st : add_all(&a, &t->detail->tapes);
    st = st != DYT_OK ? st : sort_pairs(t);
    if (st == DYT_OK) {
        add_sums(&a);
        dyti_loads_into(&a.loads, &t->bounds);
        dyti_bounds_finish(&t->bounds);
    }
    dyti_loads_fini(&a.loads);
    free(a.elements);
    free(a.boxes);
    free(a.slot);
    return st;
}

/* ---- the whole ---------------------------------------------------------- */

static enum dyt_status open(const struct dyti_plan_inputs *inputs,
                            const struct dyti_traffic_options *options,
                            struct dyti_traffic **out_traffic)
{
    struct dyti_traffic *t;

    if (options->one_rank && options->rank >= inputs->dst->desc.world_size) {
        return DYTI_FAIL(DYT_ERR_INVALID, "rank %u of a world of %u",
                         options->rank, inputs->dst->desc.world_size);
    }
    t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a traffic matrix");
    }
    t->inputs = *inputs;
    t->options = *options;
    t->options.cluster = NULL;
    t->world_size = inputs->dst->desc.world_size;
    t->detail = calloc(1, sizeof(*t->detail));
    if (t->detail == NULL) {
        free(t);
        return DYTI_FAIL(DYT_ERR_NOMEM, "a traffic matrix");
    }
    *out_traffic = t;
    return DYT_OK;
}

enum dyt_status dyti_traffic_build_from(
    const struct dyti_plan_inputs *inputs,
    const struct dyti_traffic_options *options,
    const struct dyti_patterns *const *patterns, uint32_t pattern_count,
    struct dyti_traffic **out_traffic)
{
    const struct dyti_traffic_options none = {0};
    struct dyti_traffic *t = NULL;
    struct dyti_cluster cluster = {0};
    enum dyt_status st = dyti_plan_check_inputs(inputs);

    options = options == NULL ? &none : options;
    st = st != DYT_OK ? st : open(inputs, options, &t);
    st = st != DYT_OK
             ? st
             : dyti_traffic_cluster(inputs, options, &cluster, &t->host);
    st = st != DYT_OK ? st
                      : dyti_common_build(inputs, t->host, patterns,
                                          pattern_count, &t->detail->atoms);
    if (st == DYT_OK) {
        t->host_count = t->detail->atoms.host_count;
        st = dyti_bounds_find(&t->detail->atoms, &cluster, &t->bounds);
    }
    st = st != DYT_OK ? st : choose(t, &cluster);
    st = st != DYT_OK ? st : fill(t, &cluster);
    if (st != DYT_OK) {
        DYTI_NOTE("adding up the switch to phase %s", inputs->dst->desc.phase);
        dyti_traffic_destroy(t);
        return st;
    }
    t->fingerprint = fingerprint(t);
    *out_traffic = t;
    return DYT_OK;
}

enum dyt_status dyti_traffic_build(const struct dyti_plan_inputs *inputs,
                                   const struct dyti_traffic_options *options,
                                   struct dyti_traffic **out_traffic)
{
    struct dyti_pattern_list list = {0};
    const struct dyti_patterns *patterns[DYTI_MAX_PATTERNS];
    enum dyt_status st = dyti_plan_check_inputs(inputs);

    st = st != DYT_OK ? st : dyti_pattern_list_build(inputs, &list);
    for (uint32_t i = 0; i < list.count; i++) {
        patterns[i] = list.patterns[i];
    }
    st = st != DYT_OK ? st
                      : dyti_traffic_build_from(inputs, options, patterns,
                                                list.count, out_traffic);
    dyti_pattern_list_fini(&list);
    return st;
}

void dyti_traffic_destroy(struct dyti_traffic *t)
{
    if (t != NULL) {
        dyti_tapes_fini(&t->detail->tapes);
        dyti_common_fini(&t->detail->atoms);
        free(t->detail);
        free(t->host);
        free(t->pair);
        free(t->pair_first);
        free(t->rank);
        free(t);
    }
}
