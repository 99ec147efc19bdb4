/* How NeMo-RL's nccl_reshard sends, by its own guide: the weights of a layer's
 * experts are one entry for each projection, everything else an entry for each
 * parameter; entries go one after the other, each rank sending what it has of
 * one to each rank that wants part of it; there is a communicator for each
 * pipeline stage of the trainer, and two streams, so two stages go at a time.
 * Every replica gets its own copy.  Stacking experts before and copying them
 * into place after is not counted. */
#include "entries.h"

#include "explain/simulate.h"
#include "layout/dialect.h"

#include <stdlib.h>
#include <string.h>

#define STREAMS 2u /* stages that go at a time */

/* Which entry a tensor is of: experts of a layer are one for each slot. */
static uint32_t entry_of(const struct dyti_model *model, uint32_t tensor)
{
    const struct dyti_tensor *t = &model->tensor[tensor];
    uint32_t slots = DYTI_SLOT_COUNT;

    return t->expert < 0 || t->layer < 0
               ? tensor
               : model->tensor_count + (uint32_t)t->layer * slots +
                     (uint32_t)t->slot;
}

/* What one rank sends another of one entry.  Stages that go at a time are a
 * turn. */
struct part {
    uint32_t stage, entry, src, dst;
    uint64_t bytes;
};

struct parts {
    struct part *part;
    size_t count, cap;
    /* of one pair, while its routes are read */
    uint64_t *bytes;          /* [entries] */
    uint32_t *touched, touch; /* entries that have some */
    uint32_t *stage;          /* [world] of a source */
};

static enum dyt_status flush_pair(struct parts *p, uint32_t src, uint32_t dst)
{
    if (p->count + p->touch > p->cap) {
        size_t cap = (p->count + p->touch) * 2;
        struct part *more = realloc(p->part, cap * sizeof(*more));

        if (more == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "%zu parts of entries", cap);
        }
        p->part = more;
        p->cap = cap;
    }
    for (uint32_t i = 0; i < p->touch; i++) {
        uint32_t entry = p->touched[i];

        p->part[p->count++] =
            (struct part){p->stage[src], entry, src, dst, p->bytes[entry]};
        p->bytes[entry] = 0;
    }
    p->touch = 0;
    return DYT_OK;
}

/* Everything that `rank` receives. */
static enum dyt_status read_rank(const struct priced *m, uint32_t rank,
                                 struct parts *p)
{
    struct dyti_routes routes = {0};
    enum dyt_status st = dyti_traffic_routes(m->traffic, rank, &routes);

    for (size_t i = 0; i < routes.count && st == DYT_OK; i++) {
        const struct dyti_route *route = &routes.route[i];
        struct dyti_route_cursor cursor = {0};
        struct dyti_transfer t;

        if (route->dst_rank != rank || route->src_rank == rank) {
            continue;
        }
        while (dyti_route_next(m->traffic, route, &cursor, &t)) {
            uint32_t entry = entry_of(m->pair.model, t.tensor);
            uint64_t elements = 0;

            st = dyt_box_count(&t.box, &elements);
            if (p->bytes[entry] == 0) {
                p->touched[p->touch++] = entry;
            }
            p->bytes[entry] +=
                elements * dyti_dtype_bytes((enum dyti_dtype)t.dst_dtype);
        }
        if (i + 1 == routes.count ||
            routes.route[i + 1].src_rank != route->src_rank ||
            routes.route[i + 1].dst_rank != rank) {
            st = st != DYT_OK ? st : flush_pair(p, route->src_rank, rank);
        }
    }
    dyti_routes_fini(&routes);
    return st;
}

static int compare(const uint32_t *a, const uint32_t *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (a[i] != b[i]) {
            return a[i] < b[i] ? -1 : 1;
        }
    }
    return 0;
}

static int by_stage(const void *a, const void *b)
{
    const struct part *x = a, *y = b;

    return compare((const uint32_t[]){x->stage, x->entry},
                   (const uint32_t[]){y->stage, y->entry}, 2);
}

static int by_turn(const void *a, const void *b)
{
    const struct part *x = a, *y = b;

    return compare(
        (const uint32_t[]){x->stage / STREAMS, x->entry, x->src, x->dst},
        (const uint32_t[]){y->stage / STREAMS, y->entry, y->src, y->dst}, 4);
}

/* The first entries of all stages of a turn, then the second ones, … */
static void sort_parts(struct parts *p)
{
    uint32_t nth = 0, last = 0;

    qsort(p->part, p->count, sizeof(*p->part), by_stage);
    for (size_t i = 0; i < p->count; i++) {
        struct part *x = &p->part[i];
        uint32_t entry = x->entry;

        if (i > 0 && x->stage != x[-1].stage) {
            nth = 0;
        } else if (i > 0 && entry != last) {
            nth++;
        }
        x->entry = nth * STREAMS + x->stage % STREAMS;
        last = entry;
    }
    qsort(p->part, p->count, sizeof(*p->part), by_turn);
}

static int by_round(const void *a, const void *b)
{
    const struct dyti_piece *x = a, *y = b;

    return x->round != y->round ? (x->round < y->round ? -1 : 1)
           : x->from != y->from ? (x->from < y->from ? -1 : 1)
                                : (x->to > y->to) - (x->to < y->to);
}

/* Pieces in order: of an entry every rank sends to one after the other of those
 * that want it, each beginning with another one, all at the same time.  Entries
 * of the stages of a turn take turns.  fence: where a turn begins. */
static enum dyt_status order_parts(const struct priced *m, struct parts *p,
                                   struct dyti_pieces *out, size_t *fence,
                                   size_t *out_fences)
{
    uint32_t world = m->pair.cluster.rank_count, base = 0;
    uint64_t *at = calloc((size_t)world * world, sizeof(*at));

    out->piece = calloc(p->count + 1, sizeof(*out->piece));
    if (at == NULL || out->piece == NULL) {
        free(at);
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu pieces", p->count);
    }
    sort_parts(p);
    for (size_t i = 0; i < p->count; i++) {
        const struct part *x = &p->part[i];
        uint64_t *lo = &at[(size_t)x->src * world + x->dst];
        bool turn = i > 0 && x->stage / STREAMS != x[-1].stage / STREAMS;

        if (i > 0 && (turn || x->entry != x[-1].entry)) {
            base += world;
        }
        if (turn) {
            fence[(*out_fences)++] = out->count;
        }
        out->piece[out->count++] = (struct dyti_piece){
            .src = x->src,
            .dst = x->dst,
            .from = x->src,
            .to = x->dst,
            .round = base + (x->dst + world - x->src) % world,
            .lo = *lo,
            .hi = *lo + x->bytes};
        *lo += x->bytes;
    }
    qsort(out->piece, out->count, sizeof(*out->piece), by_round);
    out->round_count = base + world;
    free(at);
    return DYT_OK;
}

static void name_stages(const struct priced *m, uint32_t *stage)
{
    const struct dyti_layout *l = m->pair.src;

    for (uint32_t i = 0; i < l->member_count; i++) {
        struct dyti_part part;

        dyti_layout_part(l, i, &part);
        stage[l->desc.ranks[i]] = part.pp_rank;
    }
}

enum dyt_status entries_simulate(const struct priced *m, double *out_seconds)
{
    uint32_t world = m->pair.cluster.rank_count, pp = m->pair.src->desc.pp;
    size_t entries =
        m->pair.model->tensor_count + (size_t)m->arch.layers * DYTI_SLOT_COUNT;
    struct parts p = {.bytes = calloc(entries, sizeof(*p.bytes)),
                      .touched = calloc(entries, sizeof(*p.touched)),
                      .stage = calloc(world, sizeof(*p.stage))};
    size_t *fence = calloc(pp + 1, sizeof(*fence));
    struct dyti_pieces pieces = {0};
    struct dyti_simulate_inputs sim = {
        .cluster = &m->pair.cluster, .pieces = &pieces, .fence = fence};
    struct dyti_simulation result = {0};
    enum dyt_status st = DYT_OK;

    if (p.bytes == NULL || p.touched == NULL || p.stage == NULL ||
        fence == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu entries", entries);
    } else {
        name_stages(m, p.stage);
    }
    for (uint32_t r = 0; r < world && st == DYT_OK; r++) {
        st = read_rank(m, r, &p);
    }
    st = st != DYT_OK ? st
                      : order_parts(m, &p, &pieces, fence, &sim.fence_count);
    st = st != DYT_OK ? st : dyti_simulate(&sim, &result);
    if (st == DYT_OK) {
        *out_seconds = result.seconds;
    }
    dyti_simulation_fini(&result);
    dyti_pieces_fini(&pieces);
    free(p.part);
    free(p.bytes);
    free(p.touched);
    free(p.stage);
    free(fence);
    return st;
}
