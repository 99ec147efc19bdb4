/* Checks the degrees, fills in the defaults and builds each rank's view. */
#include "layout/layout.h"

#include "base/hash.h"
#include "layout/native.h"
#include "layout/view.h"

#include <stdlib.h>
#include <string.h>

#define LAYOUT_VERSION 1u /* counts in the fingerprint: bump with the rules */

/* ---- the description ---------------------------------------------------- */

/* Every TP rank gets at least one of what the degree cuts. */
static enum dyt_status check_tp(const struct dyti_model *model, uint32_t tp)
{
    const struct dyti_arch *a = &model->arch;
    const struct {
        const char *tensor, *dimension;
        int64_t count;
    } cut[] = {
        {"self_attn.q_proj.weight", "query heads", a->q_heads},
        {"mlp.gate_proj.weight", "FFN rows", a->ffn},
        {"model.embed_tokens.weight", "vocabulary rows", a->vocab},
    };
    int64_t most = a->q_heads;

    for (size_t i = 0; i < sizeof(cut) / sizeof(cut[0]); i++) {
        most = cut[i].count < most ? cut[i].count : most;
    }
    for (size_t i = 0; i < sizeof(cut) / sizeof(cut[0]); i++) {
        if (tp > cut[i].count) {
            return DYTI_FAIL(DYT_ERR_LAYOUT,
                             "tp %u: %s has %lld %s to share, some rank would "
                             "hold none; the nearest degree that works is tp "
                             "%lld",
                             tp, cut[i].tensor, (long long)cut[i].count,
                             cut[i].dimension, (long long)most);
        }
    }
    return DYT_OK;
}

static enum dyt_status check_pp(const struct dyti_model *model,
                                const struct dyti_layout_desc *desc)
{
    int64_t layers = model->arch.layers, sum = 0;

    if (desc->pp > layers) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "pp %u: model.layers has %lld layers to share; the "
                         "nearest degree that works is pp %lld",
                         desc->pp, (long long)layers, (long long)layers);
    }
    for (uint32_t s = 0; desc->pp_layers != NULL && s < desc->pp; s++) {
        if (desc->pp_layers[s] == 0) {
            return DYTI_FAIL(DYT_ERR_LAYOUT,
                             "pp_layers[%u] is 0: each of the %u pipeline "
                             "stages needs a layer",
                             s, desc->pp);
        }
        sum += desc->pp_layers[s];
    }
    if (desc->pp_layers != NULL && sum != layers) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "pp_layers add up to %lld layers, model.layers has "
                         "%lld",
                         (long long)sum, (long long)layers);
    }
    return DYT_OK;
}

static enum dyt_status check_ranks(const struct dyti_layout_desc *desc,
                                   uint32_t member_count)
{
    unsigned char *seen;
    enum dyt_status st = DYT_OK;

    if (member_count > desc->world_size) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "tp %u x pp %u x dp %u needs %u ranks, the world has "
                         "%u",
                         desc->tp, desc->pp, desc->dp, member_count,
                         desc->world_size);
    }
    if (desc->ranks == NULL) {
        return DYT_OK;
    }
    seen = calloc(desc->world_size, 1);
    if (seen == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u ranks", desc->world_size);
    }
    for (uint32_t m = 0; m < member_count && st == DYT_OK; m++) {
        uint32_t rank = desc->ranks[m];

        if (rank >= desc->world_size) {
            st = DYTI_FAIL(DYT_ERR_LAYOUT,
                           "ranks[%u] is %u: the world has ranks 0 to %u", m,
                           rank, desc->world_size - 1);
        } else if (seen[rank]++) {
            st = DYTI_FAIL(DYT_ERR_LAYOUT,
                           "ranks[%u] names rank %u a second time", m, rank);
        }
    }
    free(seen);
    return st;
}

static enum dyt_status check_dtypes(const struct dyti_layout_desc *desc)
{
    enum dyti_dtype param = desc->dtype[DYTI_PARAM];

    if (param != DYTI_F32 && param != DYTI_BF16 && param != DYTI_F16) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "param as %s is not available: f32, bf16 or f16",
                         dyti_dtype_name(param));
    }
    for (int kind = DYTI_PARAM + 1; kind < DYTI_KIND_COUNT; kind++) {
        if (desc->dtype[kind] != DYTI_F32) {
            return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                             "%s as %s is not available: f32 only",
                             dyti_kind_name((enum dyti_kind)kind),
                             dyti_dtype_name(desc->dtype[kind]));
        }
    }
    return DYT_OK;
}

static enum dyt_status check_desc(const struct dyti_model *model,
                                  const struct dyti_layout_desc *desc,
                                  uint32_t *out_member_count)
{
    uint32_t count;
    enum dyt_status st;

    if (desc->tp == 0 || desc->pp == 0 || desc->dp == 0 ||
        desc->world_size == 0) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "tp %u, pp %u, dp %u over %u ranks: each must be at "
                         "least 1",
                         desc->tp, desc->pp, desc->dp, desc->world_size);
    }
    if (desc->zero > 1) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "zero %u is not available: 0 or 1", desc->zero);
    }
    if (__builtin_mul_overflow(desc->tp, desc->pp, &count) ||
        __builtin_mul_overflow(count, desc->dp, &count)) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "tp %u x pp %u x dp %u ranks",
                         desc->tp, desc->pp, desc->dp);
    }
    st = check_tp(model, desc->tp);
    st = st != DYT_OK ? st : check_pp(model, desc);
    st = st != DYT_OK ? st : check_ranks(desc, count);
    st = st != DYT_OK ? st : check_dtypes(desc);
    if (st == DYT_OK) {
        *out_member_count = count;
    }
    return st;
}

/* Own copies of the arrays, with the defaults filled in. */
static enum dyt_status keep_desc(struct dyti_layout *layout,
                                 const struct dyti_layout_desc *desc)
{
    uint32_t *ranks = calloc(layout->member_count, sizeof(*ranks));
    uint32_t *pp_layers = calloc(desc->pp, sizeof(*pp_layers));

    layout->desc = *desc;
    layout->desc.ranks = ranks;
    layout->desc.pp_layers = pp_layers;
    layout->desc.phase = strdup(desc->phase == NULL ? "" : desc->phase);
    if (ranks == NULL || pp_layers == NULL || layout->desc.phase == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a layout of %u ranks",
                         layout->member_count);
    }
    for (uint32_t m = 0; m < layout->member_count; m++) {
        ranks[m] = desc->ranks == NULL ? m : desc->ranks[m];
    }
    for (uint32_t s = 0; s < desc->pp; s++) {
        int64_t lo, hi;

        dyti_native_share(layout->model->arch.layers, desc->pp, s, &lo, &hi);
        pp_layers[s] =
            desc->pp_layers == NULL ? (uint32_t)(hi - lo) : desc->pp_layers[s];
    }
    return DYT_OK;
}

/* ---- the whole ---------------------------------------------------------- */

static uint64_t fingerprint(const struct dyti_layout *layout)
{
    const struct dyti_layout_desc *d = &layout->desc;
    uint64_t state = DYTI_FINGERPRINT_SEED;

    state = dyti_fingerprint_u64(state, LAYOUT_VERSION);
    state = dyti_fingerprint_u64(state, layout->model->fingerprint);
    state = dyti_fingerprint_text(state, d->phase);
    state = dyti_fingerprint_u64(state, d->world_size);
    state = dyti_fingerprint_u64(state, d->tp);
    state = dyti_fingerprint_u64(state, d->pp);
    state = dyti_fingerprint_u64(state, d->dp);
    state = dyti_fingerprint_u64(state, d->zero);
    for (uint32_t m = 0; m < layout->member_count; m++) {
        state = dyti_fingerprint_u64(state, d->ranks[m]);
    }
    for (uint32_t s = 0; s < d->pp; s++) {
        state = dyti_fingerprint_u64(state, d->pp_layers[s]);
    }
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        state = dyti_fingerprint_u64(state, d->dtype[kind]);
        state = dyti_fingerprint_u64(state, d->residency[kind]);
    }
    return state;
}

static enum dyt_status build_views(struct dyti_layout *layout)
{
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

enum dyt_status dyti_layout_build(const struct dyti_model *model,
                                  const struct dyti_layout_desc *desc,
                                  struct dyti_layout **out_layout)
{
    struct dyti_layout *layout = NULL;
    uint32_t member_count = 0;
    enum dyt_status st = check_desc(model, desc, &member_count);

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
    st = keep_desc(layout, desc);
    if (st != DYT_OK) {
        goto out;
    }
    layout->view = calloc(desc->world_size, sizeof(*layout->view));
    if (layout->view == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "views of %u ranks", desc->world_size);
        goto out;
    }
    st = build_views(layout);
    if (st != DYT_OK) {
        goto out;
    }
    layout->fingerprint = fingerprint(layout);
    *out_layout = layout;
    layout = NULL;
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
        free(layout->view[r].shard);
    }
    free(layout->view);
    free((void *)(uintptr_t)layout->desc.ranks);
    free((void *)(uintptr_t)layout->desc.pp_layers);
    free((void *)(uintptr_t)layout->desc.phase);
    free(layout);
}

uint32_t dyti_layout_rank(const struct dyti_layout *layout, uint32_t tp,
                          uint32_t pp, uint32_t dp)
{
    const struct dyti_layout_desc *d = &layout->desc;

    return d->ranks[(pp * d->dp + dp) * d->tp + tp];
}
