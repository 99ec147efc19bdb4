/* The detour by way of one replica: each tensor is gathered to the first of
 * the replicas that hold parts of it, goes to the first that wants it, and is
 * scattered from there to the others. */
#include "plan/traffic_detail.h"

#include "base/hash.h"
#include "layout/dialect.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define HOPS 3u /* gather, exchange, scatter: the flows' waves */

/* Who is whose replica: ranks of equal numbers hold the same tensors, whole or
 * in parts that ZeRO cut.  Below world_size. */
struct replicas {
    uint32_t *dense, *expert; /* [world_size] */
    uint32_t *lead;           /* [world_size] by number, of one block */
};

/* Flows by (wave, src, dst): open addressing. */
struct table {
    struct dyti_flow *flow; /* bytes 0: free */
    size_t count, slots;
};

struct funnel {
    const struct dyti_common *atoms;
    uint32_t world;
    struct replicas src, dst;
    struct table table;
};

static size_t slot_of(const struct table *t, const struct dyti_flow *key)
{
    size_t at = (size_t)dyti_mix64(
                    ((uint64_t)key->src << 32 | key->dst) * HOPS + key->wave) &
                (t->slots - 1);

    while (t->flow[at].bytes != 0 &&
           (t->flow[at].wave != key->wave || t->flow[at].src != key->src ||
            t->flow[at].dst != key->dst)) {
        at = (at + 1) & (t->slots - 1);
    }
    return at;
}

static enum dyt_status grow(struct table *t)
{
    struct table more = {.slots = t->slots == 0 ? 4096 : t->slots * 2};

    if (t->count * 2 < t->slots) {
        return DYT_OK;
    }
    more.flow = calloc(more.slots, sizeof(*more.flow));
    if (more.flow == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a table of %zu flows", more.slots);
    }
    for (size_t i = 0; i < t->slots; i++) {
        if (t->flow[i].bytes != 0) {
            more.flow[slot_of(&more, &t->flow[i])] = t->flow[i];
            more.count++;
        }
    }
    free(t->flow);
    *t = more;
    return DYT_OK;
}

static enum dyt_status add(struct table *t, uint32_t hop, uint32_t src,
                           uint32_t dst, uint64_t bytes, uint32_t messages)
{
    const struct dyti_flow key = {.src = src, .dst = dst, .wave = hop};
    enum dyt_status st = src == dst || bytes == 0 ? DYT_OK : grow(t);
    struct dyti_flow *f;

    if (st != DYT_OK || src == dst || bytes == 0) {
        return st;
    }
    f = &t->flow[slot_of(t, &key)];
    t->count += f->bytes == 0;
    if (f->bytes == 0) {
        *f = key;
    }
    f->bytes += bytes;
    f->messages += messages;
    return DYT_OK;
}

/* ---- replicas ------------------------------------------------------------ */

static enum dyt_status replicas_init(struct replicas *r, uint32_t world)
{
    r->dense = malloc((size_t)world * sizeof(*r->dense));
    r->expert = malloc((size_t)world * sizeof(*r->expert));
    r->lead = malloc((size_t)world * sizeof(*r->lead));
    return r->dense != NULL && r->expert != NULL && r->lead != NULL
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_NOMEM, "replicas of %u ranks", world);
}

static void replicas_fini(struct replicas *r)
{
    free(r->dense);
    free(r->expert);
    free(r->lead);
}

static void number(const struct dyti_layout *layout, uint32_t world,
                   struct replicas *r)
{
    for (uint32_t i = 0; i < world; i++) {
        r->dense[i] = r->expert[i] = i; /* a list has no degrees */
    }
    if (layout->desc.dialect == DYTI_DIALECT_LIST) {
        return;
    }
    for (uint32_t m = 0; m < layout->member_count; m++) {
        struct dyti_part part;
        uint32_t rank = layout->desc.ranks[m];

        dyti_layout_part(layout, m, &part);
        r->dense[rank] = part.pp_rank * part.tp_size + part.tp_rank;
        r->expert[rank] =
            (part.pp_rank * part.ep_size + part.ep_rank) * part.etp_size +
            part.etp_rank;
    }
}

static const uint32_t *numbers_of(const struct replicas *r, bool expert)
{
    return expert ? r->expert : r->dense;
}

/* The first rank of each number among the holders of a block's atoms. */
static void find_leads(const struct funnel *f,
                       const struct dyti_common_block *block, bool expert)
{
    const struct dyti_sets *sets = &f->atoms->sets;

    for (int end = 0; end < 2; end++) {
        const struct replicas *r = end == 0 ? &f->src : &f->dst;
        const uint32_t *of = numbers_of(r, expert);

        memset(r->lead, 0xff, (size_t)f->world * sizeof(*r->lead));
        for (uint32_t k = 0; k < block->atom_count; k++) {
            const struct dyti_common_atom *a =
                &f->atoms->atom[block->atom_first + k];
            uint32_t set = end == 0 ? a->src_set : a->dst_set;
            const uint32_t *rank = dyti_sets_ranks(sets, set);

            for (uint32_t i = 0; i < dyti_sets_count(sets, set); i++) {
                uint32_t *lead = &r->lead[of[rank[i]]];

                *lead = rank[i] < *lead ? rank[i] : *lead;
            }
        }
    }
}

/* ---- one atom ------------------------------------------------------------ */

/* Who has it first: one that speaks for its replicas where there is one. */
static uint32_t first_source(const struct funnel *f, uint32_t set, bool expert)
{
    const uint32_t *rank = dyti_sets_ranks(&f->atoms->sets, set);
    const uint32_t *of = numbers_of(&f->src, expert);
    uint32_t first = NONE, lead = NONE;

    for (uint32_t i = 0; i < dyti_sets_count(&f->atoms->sets, set); i++) {
        first = rank[i] < first ? rank[i] : first;
        if (f->src.lead[of[rank[i]]] == rank[i] && rank[i] < lead) {
            lead = rank[i];
        }
    }
    return lead != NONE ? lead : first;
}

static enum dyt_status add_atom(struct funnel *f,
                                const struct dyti_common_block *block,
                                const struct dyti_common_atom *atom,
                                bool expert)
{
    const struct dyti_want_group *group = &f->atoms->group[block->group];
    const uint32_t *rank = dyti_sets_ranks(&f->atoms->sets, atom->dst_set);
    const uint32_t *of = numbers_of(&f->dst, expert);
    uint32_t count = dyti_sets_count(&f->atoms->sets, atom->dst_set);
    uint32_t messages = block->tensor_count * group->want_count;
    uint64_t bytes = atom->elements * block->tensor_count * group->write_all;
    uint32_t source = first_source(f, atom->src_set, expert);
    uint32_t from = f->src.lead[numbers_of(&f->src, expert)[source]];
    enum dyt_status st = add(&f->table, 0, source, from, bytes, messages);

    for (uint32_t i = 0; i < count && st == DYT_OK; i++) {
        uint32_t to = f->dst.lead[of[rank[i]]];
        bool seen = false; /* it has come to this one already */

        for (uint32_t k = 0; k < i && !seen; k++) {
            seen = of[rank[k]] == of[rank[i]];
        }
        st = seen ? DYT_OK : add(&f->table, 1, from, to, bytes, messages);
        st =
            st != DYT_OK ? st : add(&f->table, 2, to, rank[i], bytes, messages);
    }
    return st;
}

static enum dyt_status add_block(struct funnel *f,
                                 const struct dyti_common_block *block)
{
    const struct dyti_plan_inputs *in = &f->atoms->inputs;
    uint32_t tensor = f->atoms->tensor[block->tensor_first];
    bool expert = in->dst->model->tensor[tensor].expert >= 0;
    enum dyt_status st = DYT_OK;

    find_leads(f, block, expert);
    for (uint32_t k = 0; k < block->atom_count && st == DYT_OK; k++) {
        st = add_atom(f, block, &f->atoms->atom[block->atom_first + k], expert);
    }
    return st;
}

/* ---- the whole ----------------------------------------------------------- */

static int by_flow(const void *a, const void *b)
{
    const struct dyti_flow *x = a, *y = b;

    if (x->wave != y->wave) {
        return x->wave < y->wave ? -1 : 1;
    }
    if (x->src != y->src) {
        return x->src < y->src ? -1 : 1;
    }
    return (x->dst > y->dst) - (x->dst < y->dst);
}

static void take_out(struct table *t, struct dyti_flow **out_flow,
                     size_t *out_count)
{
    size_t count = 0;

    for (size_t i = 0; i < t->slots; i++) {
        if (t->flow[i].bytes != 0) {
            t->flow[count++] = t->flow[i];
        }
    }
    if (count > 1) {
        qsort(t->flow, count, sizeof(*t->flow), by_flow);
    }
    *out_flow = t->flow;
    *out_count = count;
    *t = (struct table){0};
}

enum dyt_status dyti_traffic_funnel(const struct dyti_traffic *traffic,
                                    struct dyti_flow **out_flow,
                                    size_t *out_count)
{
    const struct dyti_common *atoms = &traffic->detail->atoms;
    const struct dyti_plan_inputs *in = &atoms->inputs;
    struct funnel f = {.atoms = atoms, .world = traffic->world_size};
    const struct dyti_layout *last = NULL;
    enum dyt_status st = replicas_init(&f.src, f.world);

    st = st != DYT_OK ? st : replicas_init(&f.dst, f.world);
    st = st != DYT_OK ? st : grow(&f.table);
    if (st == DYT_OK) {
        number(in->dst, f.world, &f.dst);
    }
    for (size_t b = 0; b < atoms->block_count && st == DYT_OK; b++) {
        const struct dyti_common_block *block = &atoms->block[b];
        const struct dyti_want_group *group = &atoms->group[block->group];
        const struct dyti_layout *source =
            in->want[group->want[0]].source[group->source].layout;

        if (source != last) {
            number(source, f.world, &f.src);
            last = source;
        }
        st = add_block(&f, block);
    }
    if (st == DYT_OK) {
        take_out(&f.table, out_flow, out_count);
    } else {
        DYTI_NOTE("flows of a funnel");
    }
    free(f.table.flow);
    replicas_fini(&f.src);
    replicas_fini(&f.dst);
    return st;
}
