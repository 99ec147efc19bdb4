/* Where do this rank's weights (or gradients) lie?  From a view's shards to the
 * pointers that the passes read. */
#include "nn/pass.h"

#include <stdlib.h>

struct binder {
    const struct dyti_model *model;
    const struct dyti_view *view;
    enum dyti_kind kind;
    unsigned char *base;
};

static uint64_t shard_bytes(const struct dyti_shard *shard)
{
    uint64_t elements = 1;

    for (uint32_t i = 0; i < shard->box.ndim; i++) {
        elements *= (uint64_t)(shard->box.hi[i] - shard->box.lo[i]);
    }
    return elements * dyti_dtype_bytes((enum dyti_dtype)shard->dtype);
}

/* The shard of (layer, slot); *out_shard is NULL if the model has no such
 * tensor.  A tensor that this rank does not hold, or holds in pieces, is an
 * error. */
static enum dyt_status find(const struct binder *b, int32_t layer,
                            enum dyti_slot slot,
                            const struct dyti_shard **out_shard)
{
    uint32_t tensor = dyti_model_find(b->model, layer, slot);
    const struct dyti_shard *shard, *end;

    *out_shard = NULL;
    if (tensor == UINT32_MAX) {
        return DYT_OK;
    }
    shard = dyti_view_find(b->view, b->kind, tensor);
    if (shard == NULL) {
        return DYTI_FAIL(DYT_ERR_LAYOUT, "this rank holds no %s of %s",
                         dyti_kind_name(b->kind),
                         b->model->tensor[tensor].name);
    }
    end = b->view->shard + b->view->kind_first[b->kind + 1];
    if (shard + 1 < end && shard[1].tensor == tensor) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "%s of %s lies in pieces here: a pass wants it whole",
                         dyti_kind_name(b->kind),
                         b->model->tensor[tensor].name);
    }
    *out_shard = shard;
    return DYT_OK;
}

static enum dyt_status bind_one(const struct binder *b, int32_t layer,
                                enum dyti_slot slot, const void **out)
{
    const struct dyti_shard *shard;

    DYTI_NN_TRY(find(b, layer, slot, &shard));
    *out = shard == NULL ? NULL : b->base + shard->offset;
    return DYT_OK;
}

/* `count` tensors that must follow each other without a gap. */
static enum dyt_status bind_run(const struct binder *b, int32_t layer,
                                const enum dyti_slot *slot, size_t count,
                                const void **out)
{
    const struct dyti_shard *first, *shard;
    uint64_t end;

    DYTI_NN_TRY(find(b, layer, slot[0], &first));
    if (first == NULL) {
        *out = NULL;
        return DYT_OK;
    }
    end = first->offset + shard_bytes(first);
    for (size_t i = 1; i < count; i++) {
        DYTI_NN_TRY(find(b, layer, slot[i], &shard));
        if (shard == NULL || shard->offset != end ||
            shard->dtype != first->dtype) {
            return DYTI_FAIL(DYT_ERR_LAYOUT,
                             "%s of %s is not followed by its partner: one "
                             "matrix product reads both",
                             dyti_kind_name(b->kind),
                             b->model->tensor[first->tensor].name);
        }
        end += shard_bytes(shard);
    }
    *out = b->base + first->offset;
    return DYT_OK;
}

static enum dyt_status bind_layer(const struct binder *b, int32_t layer,
                                  struct dyti_nn_layer *out)
{
    static const enum dyti_slot qkv[] = {DYTI_SLOT_Q, DYTI_SLOT_K, DYTI_SLOT_V};
    static const enum dyti_slot bias[] = {DYTI_SLOT_Q_BIAS, DYTI_SLOT_K_BIAS,
                                          DYTI_SLOT_V_BIAS};
    static const enum dyti_slot gate_up[] = {DYTI_SLOT_GATE, DYTI_SLOT_UP};

    DYTI_NN_TRY(bind_one(b, layer, DYTI_SLOT_INPUT_NORM, &out->input_norm));
    DYTI_NN_TRY(bind_run(b, layer, qkv, 3, &out->qkv));
    DYTI_NN_TRY(bind_run(b, layer, bias, 3, &out->qkv_bias));
    DYTI_NN_TRY(bind_one(b, layer, DYTI_SLOT_Q_NORM, &out->q_norm));
    DYTI_NN_TRY(bind_one(b, layer, DYTI_SLOT_K_NORM, &out->k_norm));
    DYTI_NN_TRY(bind_one(b, layer, DYTI_SLOT_O, &out->o));
    DYTI_NN_TRY(bind_one(b, layer, DYTI_SLOT_POST_NORM, &out->post_norm));
    DYTI_NN_TRY(bind_run(b, layer, gate_up, 2, &out->gate_up));
    DYTI_NN_TRY(bind_one(b, layer, DYTI_SLOT_DOWN, &out->down));
    return DYT_OK;
}

static enum dyt_status bind_ends(const struct binder *b,
                                 struct dyti_nn_weights *w)
{
    if (b->view->part.has_embed) {
        DYTI_NN_TRY(bind_one(b, -1, DYTI_SLOT_EMBED, &w->embed));
    }
    if (b->view->part.has_head) {
        DYTI_NN_TRY(bind_one(b, -1, DYTI_SLOT_FINAL_NORM, &w->final_norm));
        DYTI_NN_TRY(bind_one(b, -1, DYTI_SLOT_HEAD, &w->head));
    }
    return DYT_OK;
}

enum dyt_status dyti_nn_bind(const struct dyti_model *model,
                             const struct dyti_view *view, enum dyti_kind kind,
                             void *base, struct dyti_nn_weights *out_weights)
{
    struct binder b = {model, view, kind, base};
    struct dyti_nn_weights w = {0};
    int64_t layers = view->part.layer_hi - view->part.layer_lo;
    uint32_t first = view->kind_first[kind];
    enum dyt_status st = DYT_OK;

    if (!view->part.member || view->kind_first[kind + 1] == first) {
        return DYTI_FAIL(DYT_ERR_LAYOUT, "this rank holds no %s in the layout",
                         dyti_kind_name(kind));
    }
    w.dtype = (enum dyti_dtype)view->shard[first].dtype;
    if (w.dtype != DYTI_F32 && (w.dtype != DYTI_BF16 || kind != DYTI_PARAM)) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "the passes read no %s of type %s",
                         dyti_kind_name(kind), dyti_dtype_name(w.dtype));
    }
    w.layer = calloc((size_t)layers + 1, sizeof(*w.layer));
    if (w.layer == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "no memory for %lld layers' pointers",
                         (long long)layers);
    }
    for (int64_t l = 0; l < layers && st == DYT_OK; l++) {
        st = bind_layer(&b, (int32_t)(view->part.layer_lo + l), &w.layer[l]);
    }
    if (st == DYT_OK) {
        st = bind_ends(&b, &w);
    }
    if (st != DYT_OK) {
        dyti_nn_unbind(&w);
        return st;
    }
    *out_weights = w;
    return DYT_OK;
}

void dyti_nn_unbind(struct dyti_nn_weights *weights)
{
    free(weights->layer);
    *weights = (struct dyti_nn_weights){0};
}
