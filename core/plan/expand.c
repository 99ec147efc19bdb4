/* Finds the shard of a view that a transfer's box lies in. */
#include "plan/expand.h"

#include "base/array.h"
#include "plan/routes.h"

#include <stdlib.h>

struct expander {
    const struct dyti_traffic *t;
    struct dyti_transfer *transfer;
    size_t count, cap;
};

static bool lies_in(const struct dyt_box *box, const struct dyt_box *whole)
{
    for (uint32_t d = 0; d < box->ndim; d++) {
        if (box->lo[d] < whole->lo[d] || box->hi[d] > whole->hi[d]) {
            return false;
        }
    }
    return true;
}

/* First shard at or behind `from` of this kind and tensor that holds the box;
 * UINT32_MAX: there is none. */
static uint32_t find_shard(const struct dyti_view *view, enum dyti_kind kind,
                           uint32_t tensor, const struct dyt_box *box,
                           uint32_t from)
{
    uint32_t a = view->kind_first[kind], end = view->kind_first[kind + 1];
    uint32_t b = end;

    while (a < b) {
        uint32_t mid = a + (b - a) / 2;

        if (view->shard[mid].tensor < tensor) {
            a = mid + 1;
        } else {
            b = mid;
        }
    }
    for (a = a < from ? from : a; a < end && view->shard[a].tensor == tensor;
         a++) {
        if (lies_in(box, &view->shard[a].box)) {
            return a;
        }
    }
    return UINT32_MAX;
}

static enum dyt_status not_held(const struct dyti_layout *layout, uint32_t rank,
                                uint32_t kind, uint32_t tensor)
{
    return DYTI_FAIL(DYT_ERR_INVALID,
                     "rank %u of phase %s has no shard of %s %s where the "
                     "layout says that it holds one",
                     rank, layout->desc.phase,
                     layout->model->tensor[tensor].name,
                     dyti_kind_name((enum dyti_kind)kind));
}

/* A rank may hold a box twice (two copies of an expert): each is filled. */
static enum dyt_status add(struct expander *e, struct dyti_transfer *t)
{
    const struct dyti_plan_inputs *in = &e->t->inputs;
    const struct dyti_layout *src =
        t->wave > 0 ? in->dst : in->want[t->want].source[t->source].layout;
    const struct dyti_view *to = &in->dst->view[t->dst_rank];
    const struct dyti_view *from = &src->view[t->src_rank];
    uint32_t at = 0, first;

    t->src_shard =
        find_shard(from, (enum dyti_kind)t->src_kind, t->tensor, &t->box, 0);
    first = find_shard(to, (enum dyti_kind)t->dst_kind, t->tensor, &t->box, 0);
    if (t->src_shard == UINT32_MAX) {
        return not_held(src, t->src_rank, t->src_kind, t->tensor);
    }
    if (first == UINT32_MAX) {
        return not_held(in->dst, t->dst_rank, t->dst_kind, t->tensor);
    }
    t->src_dtype = from->shard[t->src_shard].dtype;
    for (at = first; at != UINT32_MAX;
         at = find_shard(to, (enum dyti_kind)t->dst_kind, t->tensor, &t->box,
                         at + 1)) {
        enum dyt_status st = DYTI_GROW(e->transfer, e->cap, e->count + 1);

        if (st != DYT_OK) {
            return st;
        }
        t->dst_shard = at;
        t->dst_dtype = to->shard[at].dtype;
        e->transfer[e->count++] = *t;
    }
    return DYT_OK;
}

static enum dyt_status has_views(const struct dyti_plan_inputs *in)
{
    const struct dyti_layout *lazy = in->dst->view == NULL ? in->dst : NULL;

    for (uint32_t w = 0; w < in->want_count; w++) {
        for (uint32_t s = 0; s < in->want[w].source_count; s++) {
            const struct dyti_layout *layout = in->want[w].source[s].layout;

            lazy = layout->view == NULL ? layout : lazy;
        }
    }
    return lazy == NULL
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                           "the layout of phase %s was built without views: "
                           "its traffic can be planned, its transfers cannot",
                           lazy->desc.phase);
}

enum dyt_status dyti_expand(const struct dyti_traffic *traffic, int64_t rank,
                            struct dyti_transfer **out_transfer,
                            size_t *out_count)
{
    struct expander e = {.t = traffic};
    struct dyti_routes routes = {0};
    enum dyt_status st = has_views(&traffic->inputs);

    st = st != DYT_OK ? st : dyti_routes_list(traffic, rank, &routes);
    for (size_t i = 0; i < routes.count && st == DYT_OK; i++) {
        struct dyti_route_cursor cursor = {0};
        struct dyti_transfer t;

        while (st == DYT_OK &&
               dyti_route_next(traffic, &routes.route[i], &cursor, &t)) {
            st = add(&e, &t);
        }
    }
    dyti_routes_fini(&routes);
    if (st != DYT_OK) {
        free(e.transfer);
        return st;
    }
    *out_transfer = e.transfer;
    *out_count = e.count;
    return DYT_OK;
}
