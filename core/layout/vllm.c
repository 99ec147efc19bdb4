/* vLLM: the weights of a server.
 *
 *   qkv_proj      query heads of the rank, then its K heads, then its V heads;
 *                 with fewer KV heads than ranks each is held by several
 *   gate_up_proj  [gate of this rank; up of this rank]
 *   o, down       cut along dimension 1
 *   vocabulary    rows padded to vocab_multiple (64), cut evenly; padding is
 *                 zero and in no shard
 *   experts       w13 [places, 2 * rows, hidden], w2 [places, hidden, rows];
 *                 over ep ranks whole ones lie in places, over etp ranks each
 *                 is cut
 *   tied head     one buffer, the embedding's
 * Layers keep the numbers that they have in the whole model. */
#include "layout/local.h"

#include <stdio.h>
#include <string.h>

#define PREFIX_BYTES 48u

struct walk {
    struct dyti_locals *list;
    struct dyti_layer_index at;
    char prefix[PREFIX_BYTES]; /* "model.layers.3." */
};

/* Names that differ by family. */
struct names {
    const char *layer;   /* before the number */
    const char *experts; /* "mlp.experts", with what comes before */
    const char *router;
};

static struct names names_of(const struct dyti_arch *a)
{
    if (a->family == DYTI_GPT2) {
        return (struct names){"transformer.h.", "", ""};
    }
    if (a->family == DYTI_MIXTRAL) {
        return (struct names){"model.layers.", "block_sparse_moe.experts",
                              "block_sparse_moe.gate.weight"};
    }
    return (struct names){"model.layers.", "mlp.experts", "mlp.gate.weight"};
}

/* ---- plain tensors ------------------------------------------------------- */

static const struct dyti_tensor *tensor(const struct walk *w,
                                        enum dyti_slot slot)
{
    uint32_t index = w->at.slot[slot];

    return index == UINT32_MAX ? NULL : &w->list->layout->model->tensor[index];
}

/* Share `rank` of `size` of one axis of a tensor. */
static void shared(struct walk *w, enum dyti_slot slot, uint32_t axis,
                   uint32_t size, uint32_t rank, bool turn, const char *name)
{
    const struct dyti_tensor *t = tensor(w, slot);
    struct dyti_put put = {
        .tensor = w->at.slot[slot], .axis = axis, .transposed = turn};
    int64_t shape[DYT_MAX_DIMS], each;

    if (t == NULL) {
        return;
    }
    each = t->shape[axis] / size;
    for (uint32_t d = 0; d < t->ndim; d++) {
        shape[turn ? t->ndim - 1 - d : d] = d == axis ? each : t->shape[d];
    }
    dyti_locals_begin(w->list, put.tensor, t->ndim, shape, "%s%s", w->prefix,
                      name);
    put.lo = rank * each;
    put.hi = put.lo + each;
    dyti_locals_put(w->list, &put);
}

static void whole(struct walk *w, enum dyti_slot slot, const char *name)
{
    shared(w, slot, 0, 1, 0, false, name);
}

static void by_tp(struct walk *w, enum dyti_slot slot, uint32_t axis,
                  const char *name)
{
    const struct dyti_part *part = w->list->part;

    shared(w, slot, axis, part->tp_size, part->tp_rank, false, name);
}

static void by_tp_turned(struct walk *w, enum dyti_slot slot, uint32_t axis,
                         const char *name)
{
    const struct dyti_part *part = w->list->part;

    shared(w, slot, axis, part->tp_size, part->tp_rank, true, name);
}

/* Two tensors, one above the other, each cut along dimension 0. */
static void stacked(struct walk *w, enum dyti_slot above, enum dyti_slot below,
                    uint32_t size, uint32_t rank, const char *name)
{
    const struct dyti_tensor *a = tensor(w, above), *b = tensor(w, below);
    struct dyti_put put = {.tensor = w->at.slot[above]};
    int64_t shape[2];

    if (a == NULL || b == NULL) {
        return;
    }
    shape[0] = a->shape[0] / size + b->shape[0] / size;
    shape[1] = a->shape[1];
    dyti_locals_begin(w->list, put.tensor, 2, shape, "%s%s", w->prefix, name);
    put.lo = rank * (a->shape[0] / size);
    put.hi = put.lo + a->shape[0] / size;
    dyti_locals_put(w->list, &put);
    put.at = put.hi - put.lo;
    put.tensor = w->at.slot[below];
    put.lo = rank * (b->shape[0] / size);
    put.hi = put.lo + b->shape[0] / size;
    dyti_locals_put(w->list, &put);
}

/* ---- attention ----------------------------------------------------------- */

/* q, k and v of the rank, from three tensors or from three segments of one. */
static void fused_qkv(struct walk *w, const enum dyti_slot source[3],
                      const char *name)
{
    const struct dyti_arch *a = &w->list->layout->model->arch;
    const struct dyti_part *part = w->list->part;
    const struct dyti_tensor *q = tensor(w, source[0]);
    int64_t d = a->head_dim, tp = part->tp_size;
    int64_t heads = a->q_heads / tp;
    int64_t kv = a->kv_heads >= tp ? a->kv_heads / tp : 1;
    int64_t copies = a->kv_heads >= tp ? 1 : tp / a->kv_heads;
    int64_t shape[2] = {heads * dyti_arch_q_dim(a) + 2 * kv * d, a->hidden};
    struct dyti_put put = {.axis = 0};
    bool one = source[0] == source[1];

    if (q == NULL) {
        return;
    }
    dyti_locals_begin(w->list, w->at.slot[source[0]], q->ndim, shape, "%s%s",
                      w->prefix, name);
    put.axis = one && q->ndim == 2 ? 1 : 0;
    put.transposed = put.axis == 1;
    for (int s = 0; s < 3; s++) {
        int64_t count = s == 0 ? heads * dyti_arch_q_dim(a) : kv * d;

        put.tensor = w->at.slot[source[s]];
        put.lo = (s == 0 ? part->tp_rank : part->tp_rank / copies) * count +
                 (one ? q->segment[s].lo : 0);
        put.hi = put.lo + count;
        dyti_locals_put(w->list, &put);
        put.at += count;
    }
}

static void attention(struct walk *w)
{
    static const enum dyti_slot weight[3] = {DYTI_SLOT_Q, DYTI_SLOT_K,
                                             DYTI_SLOT_V};
    static const enum dyti_slot bias[3] = {DYTI_SLOT_Q_BIAS, DYTI_SLOT_K_BIAS,
                                           DYTI_SLOT_V_BIAS};

    fused_qkv(w, weight, "self_attn.qkv_proj.weight");
    fused_qkv(w, bias, "self_attn.qkv_proj.bias");
    by_tp(w, DYTI_SLOT_O, 1, "self_attn.o_proj.weight");
    whole(w, DYTI_SLOT_Q_NORM, "self_attn.q_norm.weight");
    whole(w, DYTI_SLOT_K_NORM, "self_attn.k_norm.weight");
}

/* What leads down is one matrix, whole on every rank. */
static void latent_attention(struct walk *w)
{
    if (tensor(w, DYTI_SLOT_Q_A) != NULL) {
        stacked(w, DYTI_SLOT_Q_A, DYTI_SLOT_KV_A, 1, 0,
                "self_attn.fused_qkv_a_proj.weight");
        whole(w, DYTI_SLOT_Q_A_NORM, "self_attn.q_a_layernorm.weight");
        by_tp(w, DYTI_SLOT_Q_B, 0, "self_attn.q_b_proj.weight");
    } else {
        whole(w, DYTI_SLOT_KV_A, "self_attn.kv_a_proj_with_mqa.weight");
        by_tp(w, DYTI_SLOT_Q, 0, "self_attn.q_proj.weight");
    }
    whole(w, DYTI_SLOT_KV_A_NORM, "self_attn.kv_a_layernorm.weight");
    by_tp(w, DYTI_SLOT_KV_B, 0, "self_attn.kv_b_proj.weight");
    by_tp(w, DYTI_SLOT_O, 1, "self_attn.o_proj.weight");
}

static void gpt2_layer(struct walk *w)
{
    static const enum dyti_slot weight[3] = {DYTI_SLOT_QKV, DYTI_SLOT_QKV,
                                             DYTI_SLOT_QKV};
    static const enum dyti_slot bias[3] = {
        DYTI_SLOT_QKV_BIAS, DYTI_SLOT_QKV_BIAS, DYTI_SLOT_QKV_BIAS};

    whole(w, DYTI_SLOT_INPUT_NORM, "ln_1.weight");
    whole(w, DYTI_SLOT_INPUT_NORM_BIAS, "ln_1.bias");
    fused_qkv(w, weight, "attn.c_attn.weight");
    fused_qkv(w, bias, "attn.c_attn.bias");
    by_tp_turned(w, DYTI_SLOT_O, 0, "attn.c_proj.weight");
    whole(w, DYTI_SLOT_O_BIAS, "attn.c_proj.bias");
    whole(w, DYTI_SLOT_POST_NORM, "ln_2.weight");
    whole(w, DYTI_SLOT_POST_NORM_BIAS, "ln_2.bias");
    by_tp_turned(w, DYTI_SLOT_FC, 1, "mlp.c_fc.weight");
    by_tp(w, DYTI_SLOT_FC_BIAS, 0, "mlp.c_fc.bias");
    by_tp_turned(w, DYTI_SLOT_PROJ, 0, "mlp.c_proj.weight");
    whole(w, DYTI_SLOT_PROJ_BIAS, "mlp.c_proj.bias");
}

/* ---- experts ------------------------------------------------------------- */

/* Rows or columns of every expert of the rank, one place each.  With `second`
 * two tensors lie in a place, one above the other. */
static void grouped(struct walk *w, enum dyti_slot slot, enum dyti_slot second,
                    uint32_t axis, const char *base, const char *name)
{
    const struct dyti_layout *layout = w->list->layout;
    const struct dyti_part *part = w->list->part;
    const struct dyti_tensor *t = tensor(w, slot);
    uint32_t places = dyti_expert_places(layout, part);
    int64_t each = t->shape[axis] / dyti_degree(part->etp_size);
    int64_t stack = second == slot ? 1 : 2;
    int64_t shape[3] = {places, t->shape[0], t->shape[1]};
    struct dyti_put put = {.axis = axis, .leads = true};

    shape[axis + 1] = stack * each;
    dyti_locals_begin(w->list, w->at.slot[slot], 3, shape, "%s%s.%s", w->prefix,
                      base, name);
    put.lo = part->etp_rank * each;
    put.hi = put.lo + each;
    for (uint32_t i = 0; i < places; i++) {
        int32_t expert = dyti_expert_at(layout, part, i);

        put.lead = i;
        for (int64_t s = 0; s < stack && expert >= 0; s++) {
            put.tensor = w->at.slot[s == 0 ? slot : second] +
                         (uint32_t)expert * w->at.expert_step;
            put.at = s * each;
            dyti_locals_put(w->list, &put);
        }
    }
}

static void moe_mlp(struct walk *w, const struct names *names)
{
    const struct dyti_part *part = w->list->part;

    whole(w, DYTI_SLOT_ROUTER, names->router);
    whole(w, DYTI_SLOT_ROUTER_BIAS, "mlp.gate.e_score_correction_bias");
    if (tensor(w, DYTI_SLOT_SHARED_GATE) != NULL) {
        stacked(w, DYTI_SLOT_SHARED_GATE, DYTI_SLOT_SHARED_UP, part->tp_size,
                part->tp_rank, "mlp.shared_experts.gate_up_proj.weight");
        by_tp(w, DYTI_SLOT_SHARED_DOWN, 1,
              "mlp.shared_experts.down_proj.weight");
    }
    grouped(w, DYTI_SLOT_EXPERT_GATE, DYTI_SLOT_EXPERT_UP, 0, names->experts,
            "w13_weight");
    grouped(w, DYTI_SLOT_EXPERT_DOWN, DYTI_SLOT_EXPERT_DOWN, 1, names->experts,
            "w2_weight");
}

/* ---- the whole ----------------------------------------------------------- */

static int64_t padded_vocab(const struct dyti_layout *layout)
{
    int64_t step = layout->desc.vocab_multiple == 0
                       ? 64
                       : (int64_t)layout->desc.vocab_multiple;

    return (layout->model->arch.vocab + step - 1) / step * step;
}

static void vocabulary(struct walk *w, enum dyti_slot slot, const char *name)
{
    const struct dyti_part *part = w->list->part;
    const struct dyti_tensor *t = tensor(w, slot);
    int64_t rows = padded_vocab(w->list->layout) / part->tp_size;
    int64_t shape[2] = {rows, t->shape[1]};
    struct dyti_put put = {.tensor = w->at.slot[slot],
                           .lo = part->tp_rank * rows};

    put.hi = put.lo + rows < t->shape[0] ? put.lo + rows : t->shape[0];
    dyti_locals_begin(w->list, put.tensor, 2, shape, "%s", name);
    dyti_locals_put(w->list, &put);
}

static void layer_of(struct walk *w, const struct names *names)
{
    const struct dyti_arch *a = &w->list->layout->model->arch;
    const struct dyti_part *part = w->list->part;

    if (a->family == DYTI_GPT2) {
        gpt2_layer(w);
        return;
    }
    if (a->mla.kv_lora > 0) {
        latent_attention(w);
    } else {
        attention(w);
    }
    if (tensor(w, DYTI_SLOT_ROUTER) != NULL) {
        moe_mlp(w, names);
    } else {
        stacked(w, DYTI_SLOT_GATE, DYTI_SLOT_UP, part->tp_size, part->tp_rank,
                "mlp.gate_up_proj.weight");
        by_tp(w, DYTI_SLOT_DOWN, 1, "mlp.down_proj.weight");
    }
    whole(w, DYTI_SLOT_INPUT_NORM, "input_layernorm.weight");
    whole(w, DYTI_SLOT_POST_NORM, "post_attention_layernorm.weight");
}

static void list_all(struct dyti_locals *list)
{
    const struct dyti_layout *layout = list->layout;
    const struct dyti_arch *a = &layout->model->arch;
    const struct dyti_part *part = list->part;
    struct names names = names_of(a);
    bool gpt2 = a->family == DYTI_GPT2;
    struct walk w = {.list = list};
    struct dyti_layer_index outer;
    int64_t lo, hi;

    dyti_layer_index(layout->model, -1, &outer);
    w.at = outer;
    if (part->has_embed || (a->tied && part->has_head)) {
        vocabulary(&w, DYTI_SLOT_EMBED,
                   gpt2 ? "transformer.wte.weight"
                        : "model.embed_tokens.weight");
    }
    if (part->has_embed) {
        whole(&w, DYTI_SLOT_POSITION, "transformer.wpe.weight");
    }
    dyti_chunk_layers(layout, part, 0, &lo, &hi);
    for (int64_t layer = lo; layer < hi; layer++) {
        if (dyti_locals_skip(list, layer)) {
            continue;
        }
        dyti_layer_index(layout->model, (int32_t)layer, &w.at);
        (void)snprintf(w.prefix, sizeof(w.prefix), "%s%d.", names.layer,
                       (int)layer);
        layer_of(&w, &names);
    }
    if (part->has_head) {
        w.at = outer;
        w.prefix[0] = '\0';
        whole(&w, DYTI_SLOT_FINAL_NORM,
              gpt2 ? "transformer.ln_f.weight" : "model.norm.weight");
        whole(&w, DYTI_SLOT_FINAL_NORM_BIAS, "transformer.ln_f.bias");
        if (!a->tied) {
            vocabulary(&w, DYTI_SLOT_HEAD, "lm_head.weight");
        }
    }
}

/* ---- refusals ------------------------------------------------------------ */

static bool tp_works(const void *arg, uint32_t tp)
{
    const struct dyti_layout *layout = arg;
    const struct dyti_arch *a = &layout->model->arch;
    bool dense =
        a->moe.count == 0 || a->moe.first_layer > 0 || a->moe.layer_step > 1;

    return a->q_heads % tp == 0 &&
           (a->mla.kv_lora > 0 || a->kv_heads % tp == 0 ||
            tp % a->kv_heads == 0) &&
           (!dense || a->ffn % tp == 0) && a->moe.shared_ffn % tp == 0 &&
           padded_vocab(layout) % tp == 0;
}

static bool etp_works(const void *arg, uint32_t etp)
{
    const struct dyti_layout *layout = arg;

    return layout->model->arch.moe.ffn % etp == 0;
}

static enum dyt_status check_experts(const struct dyti_layout *layout)
{
    const struct dyti_arch *a = &layout->model->arch;
    uint32_t etp = dyti_degree(layout->desc.etp);

    if (etp > 1 && dyti_degree(layout->desc.ep) > 1) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "vllm: ep %u places experts whole, etp %u would cut "
                         "them; the nearest degree that works is etp 1",
                         layout->desc.ep, etp);
    }
    if (!etp_works(layout, etp)) {
        return DYTI_FAIL(
            DYT_ERR_LAYOUT,
            "vllm: etp %u does not divide the %lld rows of an "
            "expert; the nearest degree that works is etp %u",
            etp, (long long)a->moe.ffn,
            dyti_nearest_degree(etp, (uint32_t)a->moe.ffn, etp_works, layout));
    }
    return DYT_OK;
}

static enum dyt_status check(const struct dyti_layout *layout)
{
    const struct dyti_arch *a = &layout->model->arch;
    const struct dyti_layout_desc *d = &layout->desc;

    if (d->zero != 0) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "vllm: zero %u: a server has no optimizer to cut; the "
                         "nearest that works is zero 0",
                         d->zero);
    }
    if (d->vpp > 1) {
        return DYTI_FAIL(DYT_ERR_LAYOUT,
                         "vllm: vpp %u: its pipeline has no virtual stages; "
                         "the nearest degree that works is vpp 1",
                         d->vpp);
    }
    if (!tp_works(layout, d->tp)) {
        return DYTI_FAIL(
            DYT_ERR_LAYOUT,
            "vllm: tp %u must divide %lld query heads, %lld KV heads (or they "
            "it), %lld FFN rows and %lld padded vocabulary rows; the nearest "
            "degree that works is tp %u",
            d->tp, (long long)a->q_heads, (long long)a->kv_heads,
            (long long)a->ffn, (long long)padded_vocab(layout),
            dyti_nearest_degree(d->tp, (uint32_t)a->q_heads, tp_works, layout));
    }
    return a->moe.count > 0 ? check_experts(layout) : DYT_OK;
}

/* ---- the dialect --------------------------------------------------------- */

static enum dyt_status place(const struct dyti_placer *p,
                             struct dyti_locals *list, uint64_t *offset)
{
    (void)list;
    return dyti_place_apart(p, NULL, offset);
}

const struct dyti_dialect_ops dyti_dialect_vllm = {
    .name = "vllm",
    .check = check,
    DYTI_FRAME,
    .list = list_all,
    .place = place,
};
