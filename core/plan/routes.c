/* One rank's own list, and its way back to single transfers. */
#include "plan/routes.h"

#include "base/array.h"
#include "plan/traffic.h"
#include "plan/traffic_detail.h"

#include <stdlib.h>

struct lister {
    const struct dyti_traffic *t;
    struct dyti_routes *out;
    size_t cap;
};

static enum dyt_status add(struct lister *l, const struct dyti_stretch *s,
                           uint32_t atom, uint32_t tensor, uint32_t count,
                           int64_t lo, int64_t hi)
{
    const struct dyti_common *atoms = &l->t->detail->atoms;
    uint32_t group = atoms->class[s->class].group;
    enum dyt_status st = DYTI_GROW(l->out->route, l->cap, l->out->count + 1);

    if (st == DYT_OK) {
        l->out->route[l->out->count++] =
            (struct dyti_route){.src_rank = s->src,
                                .dst_rank = s->dst,
                                .atom = atom,
                                .tensor_first = tensor,
                                .tensor_count = count,
                                .wave = s->wave,
                                .lo = lo,
                                .hi = hi};
        l->out->transfers += (uint64_t)count * atoms->group[group].want_count;
    }
    return st;
}

/* Elements [lo, hi) of an atom's part of the stream: the end of one box, whole
 * boxes, the beginning of one. */
static enum dyt_status add_atom(struct lister *l, const struct dyti_stretch *s,
                                uint32_t atom, uint64_t lo, uint64_t hi)
{
    const struct dyti_common *atoms = &l->t->detail->atoms;
    const struct dyti_common_atom *a = &atoms->atom[atom];
    uint64_t step, box = a->elements;
    uint32_t axis = dyti_common_cut_axis(atoms, atom, &step);
    int64_t from = atoms->edge[a->at + axis];
    int64_t to = atoms->edge[a->at + a->ndim + axis];
    enum dyt_status st = DYT_OK;

    while (lo < hi && st == DYT_OK) {
        uint64_t in = lo % box, whole = (hi - lo) / box, end;

        if (in == 0 && whole > 0) {
            st = add(l, s, atom, (uint32_t)(lo / box), (uint32_t)whole, from,
                     to);
            lo += whole * box;
            continue;
        }
        end = hi - lo < box - in ? in + (hi - lo) : box;
        st = add(l, s, atom, (uint32_t)(lo / box), 1,
                 from + (int64_t)(in / step), from + (int64_t)(end / step));
        lo += end - in;
    }
    return st;
}

static enum dyt_status add_stretch(void *arg, const struct dyti_stretch *s)
{
    struct lister *l = arg;
    const struct dyti_common *atoms = &l->t->detail->atoms;
    const struct dyti_common_class *c = &atoms->class[s->class];
    uint32_t i = dyti_class_find(atoms, c, s->lo);
    uint64_t lo = s->lo;
    enum dyt_status st = DYT_OK;

    for (; lo < s->hi && st == DYT_OK; i++) {
        const struct dyti_common_place *o = &atoms->order[i];
        uint64_t all = i + 1 < c->first + c->count ? o[1].element : c->elements;
        uint64_t hi = s->hi < all ? s->hi : all;

        st = add_atom(l, s, o->atom, lo - o->element, hi - o->element);
        lo = hi;
    }
    return st;
}

static int by_route(const void *a, const void *b)
{
    const struct dyti_route *x = a, *y = b;
    const uint32_t key[][2] = {{x->dst_rank, y->dst_rank},
                               {x->src_rank, y->src_rank},
                               {x->wave, y->wave},
                               {x->atom, y->atom},
                               {x->tensor_first, y->tensor_first}};

    for (size_t k = 0; k < sizeof(key) / sizeof(key[0]); k++) {
        if (key[k][0] != key[k][1]) {
            return key[k][0] < key[k][1] ? -1 : 1;
        }
    }
    return (x->lo > y->lo) - (x->lo < y->lo);
}

enum dyt_status dyti_routes_list(const struct dyti_traffic *traffic,
                                 int64_t rank, struct dyti_routes *out_routes)
{
    struct dyti_traffic_detail *detail = traffic->detail;
    struct dyti_routes routes = {0};
    struct lister l = {.t = traffic, .out = &routes};
    enum dyt_status st = DYT_OK;

    for (uint32_t c = 0; c < detail->atoms.class_count && st == DYT_OK; c++) {
        st = dyti_tapes_visit(&detail->tapes, c, rank, add_stretch, &l);
    }
    if (st != DYT_OK) {
        dyti_routes_fini(&routes);
        return st;
    }
    *out_routes = routes;
    return DYT_OK;
}

enum dyt_status dyti_traffic_routes(const struct dyti_traffic *traffic,
                                    uint32_t rank,
                                    struct dyti_routes *out_routes)
{
    struct dyti_routes routes = {0};
    enum dyt_status st;

    if (rank >= traffic->world_size) {
        return DYTI_FAIL(DYT_ERR_INVALID, "rank %u of a world of %u", rank,
                         traffic->world_size);
    }
    st = dyti_routes_list(traffic, rank, &routes);
    if (st == DYT_OK && routes.count > 1) {
        qsort(routes.route, routes.count, sizeof(*routes.route), by_route);
    }
    if (st == DYT_OK) {
        *out_routes = routes;
    }
    return st;
}

void dyti_routes_fini(struct dyti_routes *routes)
{
    free(routes->route);
    *routes = (struct dyti_routes){0};
}

/* ---- transfers of a route ----------------------------------------------- */

static void set_ends(const struct dyti_traffic *traffic,
                     const struct dyti_want_group *g, uint32_t at,
                     struct dyti_transfer *t)
{
    const struct dyti_plan_inputs *in = &traffic->inputs;
    const struct dyti_plan_want *want = &in->want[g->want[at]];
    const struct dyti_plan_source *from = &want->source[g->source];

    t->want = (uint8_t)g->want[at];
    t->dst_slot = (uint8_t)in->dst_slot;
    t->dst_kind = (uint8_t)want->kind;
    t->dst_dtype = (uint8_t)(g->dtype != 0 ? g->dtype - 1
                                           : in->dst->desc.dtype[want->kind]);
    if (t->wave > 0) {
        t->source = DYTI_PLAN_SIBLING;
        t->src_slot = t->dst_slot;
        t->src_kind = t->dst_kind;
        t->src_dtype = t->dst_dtype;
        return;
    }
    t->source = (uint8_t)g->source;
    t->src_slot = (uint8_t)from->slot;
    t->src_kind = (uint8_t)from->kind;
    t->src_dtype = (uint8_t)(g->dtype != 0 && from->kind == want->kind
                                 ? g->dtype - 1
                                 : from->layout->desc.dtype[from->kind]);
}

bool dyti_route_next(const struct dyti_traffic *traffic,
                     const struct dyti_route *route,
                     struct dyti_route_cursor *cursor,
                     struct dyti_transfer *out_transfer)
{
    const struct dyti_common *atoms = &traffic->detail->atoms;
    const struct dyti_common_block *block =
        &atoms->block[atoms->atom[route->atom].block];
    const struct dyti_want_group *group = &atoms->group[block->group];
    struct dyti_transfer t = {.src_rank = route->src_rank,
                              .dst_rank = route->dst_rank,
                              .src_shard = UINT32_MAX,
                              .dst_shard = UINT32_MAX,
                              .wave = (uint8_t)route->wave};
    uint64_t step;
    uint32_t axis;

    if (cursor->tensor >= route->tensor_count) {
        return false;
    }
    axis = dyti_common_cut_axis(atoms, route->atom, &step);
    t.tensor = atoms->tensor[block->tensor_first + route->tensor_first +
                             cursor->tensor];
    dyti_common_box(atoms, route->atom, &t.box);
    t.box.lo[axis] = route->lo;
    t.box.hi[axis] = route->hi;
    set_ends(traffic, group, cursor->want, &t);
    *out_transfer = t;
    if (++cursor->want == group->want_count) {
        cursor->want = 0;
        cursor->tensor++;
    }
    return true;
}

uint64_t dyti_route_bytes(const struct dyti_traffic *traffic,
                          const struct dyti_route *route)
{
    const struct dyti_common *atoms = &traffic->detail->atoms;
    const struct dyti_common_block *block =
        &atoms->block[atoms->atom[route->atom].block];
    struct dyt_box box;
    uint64_t step, elements = route->tensor_count;
    uint32_t axis = dyti_common_cut_axis(atoms, route->atom, &step);

    dyti_common_box(atoms, route->atom, &box);
    box.lo[axis] = route->lo;
    box.hi[axis] = route->hi;
    for (uint32_t d = 0; d < box.ndim; d++) {
        elements *= (uint64_t)(box.hi[d] - box.lo[d]);
    }
    return elements * atoms->group[block->group].write_all;
}
