/* Builds a layout: the description with its defaults, look-ups, and, unless it
 * is lazy, the view of each rank. */
#include "layout/layout.h"

#include "base/hash.h"
#include "layout/check.h"
#include "layout/index.h"
#include "layout/native.h"
#include "layout/view.h"

#include <stdlib.h>
#include <string.h>

#define LAYOUT_VERSION 2u /* counts in the fingerprint: bump with the rules */

/* ---- the description ---------------------------------------------------- */

/* A copy of `count` items, NULL of none; *st keeps the first failure. */
static void *copy_of(const void *from, size_t count, size_t item_bytes,
                     enum dyt_status *st)
{
    void *copy;

    if (from == NULL || count == 0 || *st != DYT_OK) {
        return NULL;
    }
    copy = calloc(count, item_bytes);
    if (copy == NULL) {
        *st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu entries of a layout", count);
        return NULL;
    }
    memcpy(copy, from, count * item_bytes);
    return copy;
}

static void fill_defaults(const struct dyti_layout_desc *desc, int64_t layers,
                          uint32_t *ranks, uint32_t member_count,
                          uint32_t *pp_layers, uint32_t stages)
{
    for (uint32_t m = 0; m < member_count; m++) {
        ranks[m] = desc->ranks == NULL ? m : desc->ranks[m];
    }
    for (uint32_t s = 0; s < stages; s++) {
        int64_t lo, hi;

        dyti_native_share(layers, stages, s, &lo, &hi);
        pp_layers[s] =
            desc->pp_layers == NULL ? (uint32_t)(hi - lo) : desc->pp_layers[s];
    }
}

/* Own copies of the arrays, with the defaults filled in. */
static enum dyt_status keep_desc(struct dyti_layout *layout,
                                 const struct dyti_layout_desc *desc)
{
    struct dyti_layout_desc *d = &layout->desc;
    uint32_t stages = desc->pp * desc->vpp;
    uint32_t *ranks = calloc(layout->member_count, sizeof(*ranks));
    uint32_t *pp_layers = calloc(stages, sizeof(*pp_layers));
    bool map = desc->experts == DYTI_EXPERTS_EXPLICIT;
    enum dyt_status st = DYT_OK;

    *d = *desc;
    d->ranks = ranks;
    d->pp_layers = pp_layers;
    d->phase = strdup(desc->phase == NULL ? "" : desc->phase);
    if (ranks == NULL || pp_layers == NULL || d->phase == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "a layout of %u ranks",
                       layout->member_count);
    } else {
        fill_defaults(desc, layout->model->arch.layers, ranks,
                      layout->member_count, pp_layers, stages);
    }
    d->expert_slot =
        copy_of(map ? desc->expert_slot : NULL,
                (size_t)desc->ep * desc->expert_slots, sizeof(int32_t), &st);
    d->host = copy_of(desc->host, desc->world_size, sizeof(*d->host), &st);
    d->zero_range = copy_of(desc->zero_range, desc->zero_range_count,
                            sizeof(*d->zero_range), &st);
    d->expert_zero_range =
        copy_of(desc->expert_zero_range, desc->expert_zero_range_count,
                sizeof(*d->expert_zero_range), &st);
    return st;
}

static void free_desc(struct dyti_layout_desc *d)
{
    free((void *)(uintptr_t)d->ranks);
    free((void *)(uintptr_t)d->pp_layers);
    free((void *)(uintptr_t)d->phase);
    free((void *)(uintptr_t)d->expert_slot);
    free((void *)(uintptr_t)d->host);
    free((void *)(uintptr_t)d->zero_range);
    free((void *)(uintptr_t)d->expert_zero_range);
}

/* ---- fingerprint -------------------------------------------------------- */

static uint64_t print_ranges(uint64_t state,
                             const struct dyti_zero_range *range,
                             uint32_t count)
{
    state = dyti_fingerprint_u64(state, count);
    for (uint32_t i = 0; i < count; i++) {
        state = dyti_fingerprint_u64(state, range[i].lo);
        state = dyti_fingerprint_u64(state, range[i].hi);
        state = dyti_fingerprint_u64(state, range[i].owner);
    }
    return state;
}

static uint64_t print_arrays(uint64_t state, const struct dyti_layout *layout)
{
    const struct dyti_layout_desc *d = &layout->desc;

    for (uint32_t m = 0; m < layout->member_count; m++) {
        state = dyti_fingerprint_u64(state, d->ranks[m]);
    }
    for (uint32_t s = 0; s < d->pp * d->vpp; s++) {
        state = dyti_fingerprint_u64(state, d->pp_layers[s]);
    }
    for (size_t i = 0;
         d->expert_slot != NULL && i < (size_t)d->ep * d->expert_slots; i++) {
        state = dyti_fingerprint_u64(state, (uint64_t)d->expert_slot[i]);
    }
    for (uint32_t r = 0; d->host != NULL && r < d->world_size; r++) {
        state = dyti_fingerprint_u64(state, d->host[r]);
    }
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        state = dyti_fingerprint_u64(state, d->dtype[kind]);
        state = dyti_fingerprint_u64(state, d->residency[kind]);
    }
    state = print_ranges(state, d->zero_range, d->zero_range_count);
    return print_ranges(state, d->expert_zero_range,
                        d->expert_zero_range_count);
}

/* Not whether it is lazy: that changes nothing of what lies where. */
static uint64_t fingerprint(const struct dyti_layout *layout)
{
    const struct dyti_layout_desc *d = &layout->desc;
    const uint64_t number[] = {LAYOUT_VERSION,  layout->model->fingerprint,
                               d->dialect,      d->world_size,
                               d->tp,           d->pp,
                               d->dp,           d->cp,
                               d->ep,           d->etp,
                               d->vpp,          d->zero,
                               d->order[0],     d->order[1],
                               d->order[2],     d->order[3],
                               d->experts,      d->expert_slots,
                               d->host != NULL, d->vocab_multiple};
    uint64_t state = dyti_fingerprint_text(DYTI_FINGERPRINT_SEED, d->phase);

    for (size_t i = 0; i < sizeof(number) / sizeof(number[0]); i++) {
        state = dyti_fingerprint_u64(state, number[i]);
    }
    /* came later: what does not use them keeps its number */
    if (d->bucket_multiple > 0 || d->glu_interleave > 0 || d->round_robin) {
        state = dyti_fingerprint_u64(state, d->bucket_multiple);
        state = dyti_fingerprint_u64(state, d->glu_interleave);
        state = dyti_fingerprint_u64(state, d->round_robin);
    }
    return print_arrays(state, layout);
}

/* ---- the whole ---------------------------------------------------------- */

static enum dyt_status build_views(struct dyti_layout *layout)
{
    layout->view = calloc(layout->desc.world_size, sizeof(*layout->view));
    if (layout->view == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "views of %u ranks",
                         layout->desc.world_size);
    }
    for (uint32_t m = 0; m < layout->member_count; m++) {
        uint32_t rank = layout->desc.ranks[m];
        enum dyt_status st = dyti_view_build(layout, m, &layout->view[rank]);

        if (st != DYT_OK) {
            DYTI_NOTE("building the view of rank %u", rank);
            return st;
        }
    }
    return DYT_OK;
}

static enum dyt_status fill(struct dyti_layout *layout,
                            const struct dyti_layout_desc *desc)
{
    const struct dyti_dialect_ops *ops = dyti_dialect_ops(desc->dialect);
    enum dyt_status st = keep_desc(layout, desc);

    st = st != DYT_OK ? st : ops->check(layout);
    st = st != DYT_OK ? st : dyti_layout_index_build(layout);
    if (st == DYT_OK) {
        layout->fingerprint = fingerprint(layout);
    }
    return st != DYT_OK || desc->lazy ? st : build_views(layout);
}

enum dyt_status dyti_layout_build(const struct dyti_model *model,
                                  const struct dyti_layout_desc *desc,
                                  struct dyti_layout **out_layout)
{
    struct dyti_layout_desc whole = dyti_layout_with_defaults(desc);
    struct dyti_layout *layout = NULL;
    uint32_t member_count = 0;
    enum dyt_status st;

    if (dyti_model_is_listed(model)) {
        st = DYTI_FAIL(DYT_ERR_INVALID,
                       "the model is a list of %u tensors, which says not how "
                       "degrees cut them: hand in views of its shards, or "
                       "describe the model by its config.json",
                       model->tensor_count);
        goto out;
    }
    if (dyti_dialect_ops(desc->dialect) == NULL) {
        st = DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                       "a layout of dialect %d cannot be built from degrees",
                       (int)desc->dialect);
        goto out;
    }
    st = dyti_layout_check(model, &whole, &member_count);
    if (st != DYT_OK) {
        goto out;
    }
    layout = calloc(1, sizeof(*layout));
    if (layout == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "a layout");
        goto out;
    }
    layout->model = model;
    layout->member_count = member_count;
    st = fill(layout, &whole);
    if (st == DYT_OK) {
        *out_layout = layout;
        layout = NULL;
    }
out:
    if (st != DYT_OK) {
        DYTI_NOTE("laying out phase %s",
                  desc->phase == NULL ? "?" : desc->phase);
    }
    dyti_layout_destroy(layout);
    return st;
}

void dyti_layout_destroy(struct dyti_layout *layout)
{
    if (layout == NULL) {
        return;
    }
    for (uint32_t r = 0; layout->view != NULL && r < layout->desc.world_size;
         r++) {
        dyti_view_fini(&layout->view[r]);
    }
    free(layout->view);
    dyti_layout_index_destroy(layout->index);
    free_desc(&layout->desc);
    free(layout);
}

/* ---- one rank of any layout --------------------------------------------- */

static enum dyt_status check_rank(const struct dyti_layout *layout,
                                  uint32_t rank)
{
    return rank < layout->desc.world_size
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_INVALID, "rank %u: the world has 0 to %u",
                           rank, layout->desc.world_size - 1);
}

enum dyt_status dyti_layout_view_build(const struct dyti_layout *layout,
                                       uint32_t rank,
                                       struct dyti_view *out_view)
{
    struct dyti_view view = {0};
    enum dyt_status st = check_rank(layout, rank);

    if (st == DYT_OK && layout->desc.dialect == DYTI_DIALECT_LIST) {
        st = dyti_view_copy(&layout->view[rank], &view);
    } else if (st == DYT_OK && layout->index->member_of[rank] != UINT32_MAX) {
        st = dyti_view_build(layout, layout->index->member_of[rank], &view);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("building the view of rank %u", rank);
        dyti_view_fini(&view);
        return st;
    }
    *out_view = view;
    return DYT_OK;
}

static enum dyt_status ignore_shard(void *self, const struct dyti_shard *shard)
{
    (void)self;
    (void)shard;
    return DYT_OK;
}

enum dyt_status dyti_layout_region_bytes(const struct dyti_layout *layout,
                                         uint32_t rank, enum dyti_kind kind,
                                         uint64_t *out_bytes)
{
    const struct dyti_dialect_ops *ops = dyti_dialect_ops(layout->desc.dialect);
    const struct dyti_shard_sink nothing = {.shard = ignore_shard};
    struct dyti_part part;
    enum dyt_status st = check_rank(layout, rank);

    if (st != DYT_OK) {
        return st;
    }
    if (layout->view != NULL) {
        *out_bytes = layout->view[rank].region_bytes[kind];
        return DYT_OK;
    }
    if (layout->index->member_of[rank] == UINT32_MAX ||
        !dyti_layout_holds(layout, kind)) {
        *out_bytes = 0;
        return DYT_OK;
    }
    dyti_layout_part(layout, layout->index->member_of[rank], &part);
    return ops->emit(layout, &part, kind, &nothing, out_bytes);
}

enum dyt_status dyti_layout_all_region_bytes(const struct dyti_layout *layout,
                                             enum dyti_kind kind,
                                             uint64_t *bytes)
{
    const struct dyti_dialect_ops *ops = dyti_dialect_ops(layout->desc.dialect);
    bool even = ops != NULL && ops->even_regions && kind != DYTI_EXTRA;
    enum dyt_status st = DYT_OK;

    memset(bytes, 0, layout->desc.world_size * sizeof(*bytes));
    if (!even) {
        for (uint32_t r = 0; r < layout->desc.world_size && st == DYT_OK; r++) {
            st = dyti_layout_region_bytes(layout, r, kind, &bytes[r]);
        }
        return st;
    }
    for (uint32_t m = 0; m < layout->member_count && st == DYT_OK; m++) {
        uint32_t like = dyti_layout_alike(layout, m);
        uint32_t rank = layout->desc.ranks[m];

        if (like < m) {
            bytes[rank] = bytes[layout->desc.ranks[like]];
        } else {
            st = dyti_layout_region_bytes(layout, rank, kind, &bytes[rank]);
        }
    }
    return st;
}
