/* Builds the look-ups of a layout. */
#include "layout/index.h"

#include "base/array.h"
#include "base/hash.h"
#include "layout/dialect.h"

#include <stdlib.h>
#include <string.h>

bool dyti_tensor_is_flat(const struct dyti_tensor *tensor)
{
    const uint32_t all = (1u << DYTI_EXTRA) - 1u;

    return (tensor->kinds & all) == all && !tensor->fixed_dtype &&
           tensor->extra == DYTI_EXTRA_NONE;
}

/* ---- ranks and stages ---------------------------------------------------- */

static enum dyt_status index_members(const struct dyti_layout *layout,
                                     struct dyti_layout_index *index)
{
    const struct dyti_layout_desc *d = &layout->desc;
    size_t stages = (size_t)d->pp * d->vpp;
    int64_t layers = layout->model->arch.layers, layer = 0;

    index->member_of = malloc(d->world_size * sizeof(*index->member_of));
    index->stage_of = calloc((size_t)layers, sizeof(*index->stage_of));
    index->first_layer = calloc(stages + 1, sizeof(*index->first_layer));
    if (index->member_of == NULL || index->stage_of == NULL ||
        index->first_layer == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u ranks", d->world_size);
    }
    memset(index->member_of, 0xff, d->world_size * sizeof(*index->member_of));
    for (uint32_t m = 0; m < layout->member_count; m++) {
        index->member_of[d->ranks[m]] = m;
    }
    for (size_t s = 0; s < stages; s++) {
        for (uint32_t i = 0; i < d->pp_layers[s]; i++) {
            index->stage_of[layer++] = (uint32_t)(s % d->pp);
        }
        index->first_layer[s + 1] = layer;
    }
    return DYT_OK;
}

/* ---- runs of tensors ----------------------------------------------------- */

/* Equal but for the name and the layer. */
static bool alike(const struct dyti_tensor *a, const struct dyti_tensor *b)
{
    if (a->slot != b->slot || a->ndim != b->ndim || a->expert != b->expert ||
        a->cut_axis != b->cut_axis || a->kinds != b->kinds ||
        a->fixed_dtype != b->fixed_dtype || a->dtype != b->dtype ||
        a->segment_count != b->segment_count ||
        memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0])) != 0) {
        return false;
    }
    for (uint32_t s = 0; s < a->segment_count; s++) {
        const struct dyti_segment *x = &a->segment[s], *y = &b->segment[s];

        if (x->lo != y->lo || x->hi != y->hi || x->cut != y->cut ||
            x->unit != y->unit) {
            return false;
        }
    }
    return true;
}

static bool runs_alike(const struct dyti_model *model,
                       const struct dyti_layout_run *a,
                       const struct dyti_layout_run *b)
{
    if (a->end - a->first != b->end - b->first || a->layer < 0 ||
        b->layer < 0) {
        return false;
    }
    for (uint32_t i = 0; i < a->end - a->first; i++) {
        if (!alike(&model->tensor[a->first + i],
                   &model->tensor[b->first + i])) {
            return false;
        }
    }
    return true;
}

/* The class of the last run is that of the first run of its like. */
static void classify(const struct dyti_model *model,
                     struct dyti_layout_index *index)
{
    struct dyti_layout_run *last = &index->run[index->run_count - 1];

    /* Backwards: a layer is mostly like the one before it. */
    for (uint32_t i = index->run_count - 1; i-- > 0;) {
        if (runs_alike(model, &index->run[i], last)) {
            last->class = index->run[i].class;
            return;
        }
    }
    last->class = index->class_count++;
}

static enum dyt_status index_runs(const struct dyti_model *model,
                                  struct dyti_layout_index *index)
{
    size_t cap = 0;

    for (uint32_t i = 0; i < model->tensor_count;) {
        int32_t layer = model->tensor[i].layer;
        struct dyti_layout_run run = {.first = i, .layer = layer};
        enum dyt_status st;

        if (model->tensor[i].extra != DYTI_EXTRA_NONE) {
            i++;
            continue;
        }
        while (i < model->tensor_count && model->tensor[i].layer == layer &&
               model->tensor[i].extra == DYTI_EXTRA_NONE) {
            i++;
        }
        run.end = i;
        st = DYTI_GROW(index->run, cap, index->run_count + 1u);
        if (st != DYT_OK) {
            return st;
        }
        index->run[index->run_count++] = run;
        classify(model, index);
    }
    return DYT_OK;
}

static enum dyt_status index_rest(const struct dyti_model *model,
                                  struct dyti_layout_index *index)
{
    size_t aside_cap = 0, extra_cap = 0;

    index->expert_of =
        malloc((model->tensor_count + (size_t)1) * sizeof(*index->expert_of));
    if (index->expert_of == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "an index of %u tensors",
                         model->tensor_count);
    }
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct dyti_tensor *t = &model->tensor[i];
        enum dyt_status st = DYT_OK;

        index->has_experts = index->has_experts || t->expert >= 0;
        index->expert_of[i] = !dyti_tensor_is_flat(t) ? DYTI_NOT_FLAT
                              : t->expert < 0         ? -1
                                                      : t->expert;
        if (t->extra != DYTI_EXTRA_NONE) {
            st = DYTI_GROW(index->extra, extra_cap, index->extra_count + 1u);
            if (st == DYT_OK) {
                index->extra[index->extra_count++] = i;
            }
        } else if (!dyti_tensor_is_flat(t)) {
            st = DYTI_GROW(index->aside, aside_cap, index->aside_count + 1u);
            if (st == DYT_OK) {
                index->aside[index->aside_count++] = i;
            }
        }
        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}

/* ---- experts and ZeRO ---------------------------------------------------- */

static enum dyt_status index_slots(const struct dyti_layout *layout,
                                   struct dyti_layout_index *index)
{
    const struct dyti_layout_desc *d = &layout->desc;
    size_t experts = (size_t)layout->model->arch.moe.count;
    size_t bytes = experts * d->ep * sizeof(*index->slot);

    if (d->experts != DYTI_EXPERTS_EXPLICIT || experts == 0) {
        return DYT_OK;
    }
    index->slot = malloc(bytes);
    index->second_slot = malloc(bytes);
    if (index->slot == NULL || index->second_slot == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu experts on %u ranks", experts,
                         d->ep);
    }
    memset(index->slot, 0xff, bytes);
    memset(index->second_slot, 0xff, bytes);
    for (uint32_t r = 0; r < d->ep; r++) {
        for (uint32_t s = 0; s < d->expert_slots; s++) {
            int32_t e = d->expert_slot[(size_t)r * d->expert_slots + s];
            size_t at = (size_t)r * experts + (size_t)(e < 0 ? 0 : e);

            if (e >= 0 && index->slot[at] < 0) {
                index->slot[at] = (int32_t)s;
            } else if (e >= 0) {
                index->second_slot[at] = (int32_t)s;
                index->has_copies = true;
            }
        }
    }
    return DYT_OK;
}

/* The members that hold the same expert parameters are those that hold the
 * same dense ones: TP is the fastest dimension and the experts' cuts fill it.
 */
static bool groups_agree(const struct dyti_layout_desc *d)
{
    const uint32_t size[DYTI_AXIS_COUNT] = {d->tp, d->cp, d->dp, 1};

    if ((uint64_t)d->ep * d->etp != d->tp) {
        return false;
    }
    for (int i = 0; i < DYTI_AXIS_COUNT && d->tp > 1; i++) {
        if (size[d->order[i]] > 1) {
            return d->order[i] == DYTI_AXIS_TP;
        }
    }
    return true;
}

static enum dyt_status index_cut(const struct dyti_zero_range *range,
                                 uint32_t count, uint32_t owners,
                                 uint32_t **out_first, uint32_t **out_range)
{
    uint32_t *first, *list;

    if (count == 0) {
        return DYT_OK;
    }
    first = *out_first = calloc((size_t)owners + 2, sizeof(*first));
    list = *out_range = calloc(count, sizeof(*list));
    if (first == NULL || list == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u ZeRO ranges", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        first[range[i].owner + 2]++;
    }
    for (uint32_t o = 2; o < owners + 2; o++) {
        first[o] += first[o - 1];
    }
    for (uint32_t i = 0; i < count; i++) {
        list[first[range[i].owner + 1]++] = i;
    }
    return DYT_OK;
}

enum dyt_status dyti_layout_index_build(struct dyti_layout *layout)
{
    const struct dyti_layout_desc *d = &layout->desc;
    struct dyti_layout_index *index = calloc(1, sizeof(*index));
    enum dyt_status st;

    if (index == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "look-ups of a layout");
    }
    layout->index = index;
    st = index_members(layout, index);
    st = st != DYT_OK ? st : index_runs(layout->model, index);
    st = st != DYT_OK ? st : index_rest(layout->model, index);
    st = st != DYT_OK ? st : index_slots(layout, index);
    index->experts_apart = index->has_experts && !groups_agree(d);
    st = st != DYT_OK
             ? st
             : index_cut(d->zero_range, d->zero_range_count, d->dp * d->cp,
                         &index->cut[0].owner_first, &index->cut[0].range);
    return st != DYT_OK
               ? st
               : index_cut(d->expert_zero_range, d->expert_zero_range_count,
                           d->tp * d->cp * d->dp / (d->ep * d->etp),
                           &index->cut[1].owner_first, &index->cut[1].range);
}

uint32_t dyti_layout_run_before(const struct dyti_layout *layout, uint32_t run)
{
    const struct dyti_layout_run *r = layout->index->run;

    for (uint32_t i = run; r[run].layer >= 0 && i-- > 0;) {
        if (r[i].layer >= 0 && r[i].class == r[run].class &&
            dyti_layout_stage_of(layout, r[i].layer) ==
                dyti_layout_stage_of(layout, r[run].layer)) {
            return i;
        }
    }
    return UINT32_MAX;
}

void dyti_layout_index_destroy(struct dyti_layout_index *index)
{
    if (index == NULL) {
        return;
    }
    free(index->member_of);
    free(index->stage_of);
    free(index->first_layer);
    free(index->run);
    free(index->aside);
    free(index->expert_of);
    free(index->extra);
    free(index->slot);
    free(index->second_slot);
    for (int b = 0; b < 2; b++) {
        free(index->cut[b].owner_first);
        free(index->cut[b].range);
    }
    free(index);
}
