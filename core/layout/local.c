/* The list of a framework's tensors on one rank, and the questions about model
 * and layout that all dialects ask. */
#include "layout/local.h"

#include "base/array.h"
#include "layout/native.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dyti_locals_init(struct dyti_locals *list,
                      const struct dyti_layout *layout,
                      const struct dyti_part *part, bool named)
{
    *list = (struct dyti_locals){
        .layout = layout, .part = part, .named = named, .status = DYT_OK};
}

void dyti_locals_fini(struct dyti_locals *list)
{
    free(list->local);
    free(list->piece);
    memset(list, 0, sizeof(*list));
}

void dyti_locals_begin(struct dyti_locals *list, uint32_t like, uint32_t ndim,
                       const int64_t *shape, const char *fmt, ...)
{
    const struct dyti_tensor *t = &list->layout->model->tensor[like];
    struct dyti_local *l;
    va_list args;

    if (list->status != DYT_OK) {
        return;
    }
    list->status = DYTI_GROW(list->local, list->cap, list->count + 1);
    if (list->status != DYT_OK) {
        return;
    }
    l = &list->local[list->count++];
    memset(l, 0, sizeof(*l));
    l->ndim = ndim;
    l->elements = 1;
    for (uint32_t d = 0; d < ndim; d++) {
        l->shape[d] = shape[d];
        l->elements *= (uint64_t)shape[d];
    }
    l->chunk = list->chunk;
    l->kinds = t->kinds;
    l->fixed_dtype = t->fixed_dtype;
    l->dtype = t->dtype;
    l->expert = t->expert >= 0;
    l->piece_first = list->piece_count;
    if (list->named) {
        va_start(args, fmt);
        (void)vsnprintf(l->name, sizeof(l->name), fmt, args);
        va_end(args);
    }
}

void dyti_locals_put(struct dyti_locals *list, const struct dyti_put *put)
{
    const struct dyti_tensor *t = &list->layout->model->tensor[put->tensor];
    struct dyti_piece *p;
    uint8_t first = put->leads ? 1 : 0;

    if (list->status != DYT_OK || put->lo >= put->hi) {
        return;
    }
    list->status =
        DYTI_GROW(list->piece, list->piece_cap, list->piece_count + 1);
    if (list->status != DYT_OK) {
        return;
    }
    p = &list->piece[list->piece_count++];
    list->local[list->count - 1].piece_count++;
    memset(p, 0, sizeof(*p));
    p->tensor = put->tensor;
    p->box.ndim = t->ndim;
    for (uint32_t d = 0; d < t->ndim && d < DYT_MAX_DIMS; d++) {
        p->box.hi[d] = t->shape[d];
        p->axis[d] = (uint8_t)(first + (put->transposed ? t->ndim - 1 - d : d));
    }
    p->box.lo[put->axis] = put->lo;
    p->box.hi[put->axis] = put->hi;
    p->at[p->axis[put->axis]] = put->at;
    if (put->leads) {
        p->at[0] = put->lead;
    }
}

/* ---- model and layout ---------------------------------------------------- */

void dyti_layer_index(const struct dyti_model *model, int32_t layer,
                      struct dyti_layer_index *out_index)
{
    const uint32_t *first = model->layer_first;
    uint32_t end_of_layers = first[model->arch.layers];
    uint32_t i = layer < 0 ? 0 : first[layer];
    uint32_t end = layer < 0 ? model->parameter_count : first[layer + 1];

    memset(out_index->slot, 0xff, sizeof(out_index->slot));
    out_index->expert_step = 1;
    for (; i < end; i++) {
        const struct dyti_tensor *t = &model->tensor[i];

        if (layer < 0 && i == first[0] && end_of_layers > i) {
            i = end_of_layers - 1; /* over the layers */
            continue;
        }
        if (out_index->slot[t->slot] == UINT32_MAX) {
            out_index->slot[t->slot] = i;
        } else if (t->expert == 1) {
            out_index->expert_step = i - out_index->slot[t->slot];
        }
    }
}

void dyti_chunk_layers(const struct dyti_layout *layout,
                       const struct dyti_part *part, uint32_t chunk,
                       int64_t *out_lo, int64_t *out_hi)
{
    const struct dyti_layout_desc *d = &layout->desc;
    uint32_t stage = chunk * d->pp + part->pp_rank;
    int64_t lo = 0;

    for (uint32_t s = 0; s < stage; s++) {
        lo += d->pp_layers[s];
    }
    *out_lo = lo;
    *out_hi = lo + d->pp_layers[stage];
}

uint32_t dyti_expert_places(const struct dyti_layout *layout,
                            const struct dyti_part *part)
{
    const struct dyti_layout_desc *d = &layout->desc;
    int64_t lo, hi;

    if (d->experts == DYTI_EXPERTS_EXPLICIT) {
        return d->expert_slots;
    }
    dyti_native_share(layout->model->arch.moe.count, dyti_degree(d->ep),
                      part->ep_rank, &lo, &hi);
    return (uint32_t)(hi - lo); /* round robin: the same counts */
}

int32_t dyti_expert_at(const struct dyti_layout *layout,
                       const struct dyti_part *part, uint32_t place)
{
    const struct dyti_layout_desc *d = &layout->desc;
    uint32_t ep = dyti_degree(d->ep);
    int64_t lo, hi;

    if (d->experts == DYTI_EXPERTS_EXPLICIT) {
        return d->expert_slot[(size_t)part->ep_rank * d->expert_slots + place];
    }
    if (d->experts == DYTI_EXPERTS_ROUND_ROBIN) {
        return (int32_t)(place * ep + part->ep_rank);
    }
    dyti_native_share(layout->model->arch.moe.count, ep, part->ep_rank, &lo,
                      &hi);
    return (int32_t)(lo + place);
}

void dyti_chunk(int64_t count, int64_t parts, int64_t r, int64_t *out_lo,
                int64_t *out_hi)
{
    int64_t each = count / parts + (count % parts != 0);

    *out_lo = r * each < count ? r * each : count;
    *out_hi = (r + 1) * each < count ? (r + 1) * each : count;
}

uint32_t dyti_nearest_degree(uint32_t degree, uint32_t most,
                             bool (*works)(const void *arg, uint32_t degree),
                             const void *arg)
{
    for (uint32_t step = 1; step < degree || degree + step <= most; step++) {
        if (step < degree && works(arg, degree - step)) {
            return degree - step;
        }
        if (degree + step <= most && works(arg, degree + step)) {
            return degree + step;
        }
    }
    return 1;
}
