/* Which tensors Megatron-LM registers on a rank, and what lies in them.
 *
 *   linear_qkv  per query group: its query heads, their gates where there are
 *               some, one K head, one V head; TP cuts the raw rows, so that a
 *               rank may own only queries
 *   linear_fc1  [gate of this rank; up of this rank]; of routed experts with
 *               glu_interleave, rows of both in turns
 *   norms       inside the linear that follows them
 *   experts     one weight per local expert, counted from 0 on each rank
 *   layers      counted from 0 on each (virtual) stage
 * Weights are [out, in]: GPT-2's, [in, out] in the files, lie transposed. */
#include "layout/megatron.h"

#include <stdio.h>
#include <string.h>

#define PREFIX_BYTES 48u

/* Where the listing stands. */
struct walk {
    struct dyti_locals *list;
    struct dyti_layer_index at;
    char prefix[PREFIX_BYTES]; /* "decoder.layers.3." */
    bool gpt2;
};

static const struct dyti_tensor *tensor(const struct walk *w,
                                        enum dyti_slot slot)
{
    uint32_t index = w->at.slot[slot];

    return index == UINT32_MAX ? NULL : &w->list->layout->model->tensor[index];
}

static bool has(const struct walk *w, enum dyti_slot slot)
{
    return w->at.slot[slot] != UINT32_MAX;
}

int64_t dyti_megatron_vocab(const struct dyti_layout *layout)
{
    const struct dyti_layout_desc *d = &layout->desc;
    int64_t step = (int64_t)(d->vocab_multiple == 0 ? 128 : d->vocab_multiple) *
                   (int64_t)d->tp;

    return (layout->model->arch.vocab + step - 1) / step * step;
}

/* ---- plain tensors ------------------------------------------------------- */

/* A tensor that every TP rank holds whole. */
static void whole(struct walk *w, enum dyti_slot slot, const char *name)
{
    const struct dyti_tensor *t = tensor(w, slot);
    struct dyti_put put = {.tensor = w->at.slot[slot]};

    if (t == NULL) {
        return;
    }
    dyti_locals_begin(w->list, put.tensor, t->ndim, t->shape, "%s%s", w->prefix,
                      name);
    put.hi = t->shape[0];
    dyti_locals_put(w->list, &put);
}

/* Share `rank` of `size` of one axis of a tensor; `turn`: transposed. */
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

static void by_tp(struct walk *w, enum dyti_slot slot, uint32_t axis,
                  const char *name)
{
    const struct dyti_part *part = w->list->part;

    shared(w, slot, axis, part->tp_size, part->tp_rank, false, name);
}

/* GPT-2's, whose axis 1 are the outputs. */
static void by_tp_turned(struct walk *w, enum dyti_slot slot, uint32_t axis,
                         const char *name)
{
    const struct dyti_part *part = w->list->part;

    shared(w, slot, axis, part->tp_size, part->tp_rank, true, name);
}

/* ---- attention ----------------------------------------------------------- */

/* Rows [lo, hi) of the fused matrix, of which [at, at + count) are elements
 * [from, from + count) of axis `axis` of a tensor. */
struct run {
    uint32_t tensor, axis;
    int64_t at, count, from;
};

static void put_run(struct walk *w, const struct run *run, int64_t lo,
                    int64_t hi)
{
    int64_t first = run->at > lo ? run->at : lo;
    int64_t end = run->at + run->count < hi ? run->at + run->count : hi;
    struct dyti_put put = {.tensor = run->tensor,
                           .axis = run->axis,
                           .lo = run->from + (first - run->at),
                           .hi = run->from + (end - run->at),
                           .at = first - lo,
                           .transposed = run->axis == 1};

    dyti_locals_put(w->list, &put); /* nothing where they do not meet */
}

/* Rows [lo, hi) of a fused matrix or bias, whose sources are three tensors, or
 * three segments of one. */
struct fused {
    uint32_t tensor[3], axis;
    int64_t first[3]; /* of the sources, on that axis */
    int64_t lo, hi;
};

/* Rows [row, row + count) of source s come at `at`; the row behind them. */
static int64_t put_rows(struct walk *w, const struct fused *f, int s,
                        int64_t at, int64_t row, int64_t count)
{
    const struct run run = {.tensor = f->tensor[s],
                            .axis = f->axis,
                            .at = at,
                            .count = count,
                            .from = f->first[s] + row};

    put_run(w, &run, f->lo, f->hi);
    return at + count;
}

/* A query group's heads, and behind them their gates: in the source each head
 * has its own right behind it. */
static int64_t put_queries(struct walk *w, const struct fused *f, int64_t at,
                           int64_t group, int64_t heads)
{
    const struct dyti_arch *a = &w->list->layout->model->arch;
    int64_t d = a->head_dim, unit = dyti_arch_q_dim(a);

    if (unit == d) {
        return put_rows(w, f, 0, at, group * heads * d, heads * d);
    }
    for (int64_t from = 0; from < unit; from += d) {
        for (int64_t i = 0; i < heads; i++) {
            at = put_rows(w, f, 0, at, (group * heads + i) * unit + from, d);
        }
    }
    return at;
}

/* The fused QKV matrix or bias. */
static void fused_qkv(struct walk *w, const enum dyti_slot source[3],
                      const char *name)
{
    const struct dyti_arch *a = &w->list->layout->model->arch;
    const struct dyti_part *part = w->list->part;
    const struct dyti_tensor *q = tensor(w, source[0]);
    bool one = source[0] == source[1];
    int64_t d = a->head_dim, heads = a->q_heads / a->kv_heads;
    int64_t group = heads * dyti_arch_q_dim(a) + 2 * d;
    int64_t rows = group * a->kv_heads / part->tp_size;
    int64_t shape[2] = {rows, a->hidden};
    struct fused f = {.axis = one && q != NULL && q->ndim == 2 ? 1 : 0,
                      .lo = part->tp_rank * rows,
                      .hi = (part->tp_rank + 1) * rows};

    if (q == NULL) {
        return;
    }
    for (int s = 0; s < 3; s++) {
        f.tensor[s] = w->at.slot[source[s]];
        f.first[s] = one ? q->segment[s].lo : 0;
    }
    dyti_locals_begin(w->list, f.tensor[0], q->ndim, shape, "%s%s", w->prefix,
                      name);
    for (int64_t g = 0; g < a->kv_heads; g++) {
        int64_t at = put_queries(w, &f, g * group, g, heads);

        at = put_rows(w, &f, 1, at, g * d, d);
        (void)put_rows(w, &f, 2, at, g * d, d);
    }
}

static void attention(struct walk *w)
{
    static const enum dyti_slot weight[3] = {DYTI_SLOT_Q, DYTI_SLOT_K,
                                             DYTI_SLOT_V};
    static const enum dyti_slot bias[3] = {DYTI_SLOT_Q_BIAS, DYTI_SLOT_K_BIAS,
                                           DYTI_SLOT_V_BIAS};
    static const enum dyti_slot gpt2_weight[3] = {DYTI_SLOT_QKV, DYTI_SLOT_QKV,
                                                  DYTI_SLOT_QKV};
    static const enum dyti_slot gpt2_bias[3] = {
        DYTI_SLOT_QKV_BIAS, DYTI_SLOT_QKV_BIAS, DYTI_SLOT_QKV_BIAS};

    if (w->gpt2) {
        by_tp_turned(w, DYTI_SLOT_O, 0, "self_attention.linear_proj.weight");
    } else {
        by_tp(w, DYTI_SLOT_O, 1, "self_attention.linear_proj.weight");
    }
    whole(w, DYTI_SLOT_O_BIAS, "self_attention.linear_proj.bias");
    whole(w, DYTI_SLOT_INPUT_NORM,
          "self_attention.linear_qkv.layer_norm_weight");
    whole(w, DYTI_SLOT_INPUT_NORM_BIAS,
          "self_attention.linear_qkv.layer_norm_bias");
    fused_qkv(w, w->gpt2 ? gpt2_weight : weight,
              "self_attention.linear_qkv.weight");
    fused_qkv(w, w->gpt2 ? gpt2_bias : bias, "self_attention.linear_qkv.bias");
    whole(w, DYTI_SLOT_Q_NORM, "self_attention.q_layernorm.weight");
    whole(w, DYTI_SLOT_K_NORM, "self_attention.k_layernorm.weight");
}

/* Multi-head latent attention: what leads down is whole everywhere, what leads
 * up is cut by heads. */
static void latent_attention(struct walk *w)
{
    whole(w, DYTI_SLOT_INPUT_NORM, "input_layernorm.weight");
    by_tp(w, DYTI_SLOT_O, 1, "self_attention.linear_proj.weight");
    by_tp(w, DYTI_SLOT_Q, 0, "self_attention.linear_q_proj.weight");
    whole(w, DYTI_SLOT_Q_A, "self_attention.linear_q_down_proj.weight");
    whole(w, DYTI_SLOT_Q_A_NORM,
          "self_attention.linear_q_up_proj.layer_norm_weight");
    by_tp(w, DYTI_SLOT_Q_B, 0, "self_attention.linear_q_up_proj.weight");
    whole(w, DYTI_SLOT_KV_A, "self_attention.linear_kv_down_proj.weight");
    whole(w, DYTI_SLOT_KV_A_NORM,
          "self_attention.linear_kv_up_proj.layer_norm_weight");
    by_tp(w, DYTI_SLOT_KV_B, 0, "self_attention.linear_kv_up_proj.weight");
}

/* ---- MLP ----------------------------------------------------------------- */

/* [gate; up] of share `rank` of `size`, or `turn` rows of each in turns;
 * number: of an expert, behind the name. */
static void gate_up(struct walk *w, uint32_t gate, uint32_t up, uint32_t size,
                    uint32_t rank, const char *name, int32_t number,
                    int64_t turn)
{
    const struct dyti_tensor *t = &w->list->layout->model->tensor[gate];
    int64_t each = t->shape[0] / size, lo = rank * each;
    int64_t shape[2] = {2 * each, t->shape[1]};

    turn = turn == 0 ? each : turn;
    if (number < 0) {
        dyti_locals_begin(w->list, gate, 2, shape, "%s%s", w->prefix, name);
    } else {
        dyti_locals_begin(w->list, gate, 2, shape, "%s%s%d", w->prefix, name,
                          number);
    }
    for (int64_t at = 0; at < each; at += turn) {
        struct dyti_put put = {
            .tensor = gate, .lo = lo + at, .hi = lo + at + turn, .at = 2 * at};

        dyti_locals_put(w->list, &put);
        put.tensor = up;
        put.at += turn;
        dyti_locals_put(w->list, &put);
    }
}

static void dense_mlp(struct walk *w)
{
    const struct dyti_part *part = w->list->part;

    whole(w, DYTI_SLOT_POST_NORM, "mlp.linear_fc1.layer_norm_weight");
    whole(w, DYTI_SLOT_POST_NORM_BIAS, "mlp.linear_fc1.layer_norm_bias");
    if (w->gpt2) {
        by_tp_turned(w, DYTI_SLOT_FC, 1, "mlp.linear_fc1.weight");
        by_tp(w, DYTI_SLOT_FC_BIAS, 0, "mlp.linear_fc1.bias");
        by_tp_turned(w, DYTI_SLOT_PROJ, 0, "mlp.linear_fc2.weight");
        whole(w, DYTI_SLOT_PROJ_BIAS, "mlp.linear_fc2.bias");
        return;
    }
    gate_up(w, w->at.slot[DYTI_SLOT_GATE], w->at.slot[DYTI_SLOT_UP],
            part->tp_size, part->tp_rank, "mlp.linear_fc1.weight", -1, 0);
    by_tp(w, DYTI_SLOT_DOWN, 1, "mlp.linear_fc2.weight");
}

static void expert_down(struct walk *w, uint32_t index, uint32_t number)
{
    const struct dyti_part *part = w->list->part;
    const struct dyti_tensor *t = &w->list->layout->model->tensor[index];
    int64_t each = t->shape[1] / dyti_degree(part->etp_size);
    int64_t shape[2] = {t->shape[0], each};
    struct dyti_put put = {.tensor = index, .axis = 1};

    put.lo = part->etp_rank * each;
    put.hi = put.lo + each;
    dyti_locals_begin(w->list, index, 2, shape,
                      "%smlp.experts.linear_fc2."
                      "weight%u",
                      w->prefix, number);
    dyti_locals_put(w->list, &put);
}

static void experts(struct walk *w)
{
    const struct dyti_layout *layout = w->list->layout;
    const struct dyti_part *part = w->list->part;
    uint32_t places = dyti_expert_places(layout, part);

    for (uint32_t i = 0; i < places; i++) {
        uint32_t e =
            (uint32_t)dyti_expert_at(layout, part, i) * w->at.expert_step;

        gate_up(w, w->at.slot[DYTI_SLOT_EXPERT_GATE] + e,
                w->at.slot[DYTI_SLOT_EXPERT_UP] + e,
                dyti_degree(part->etp_size), part->etp_rank,
                "mlp.experts.linear_fc1.weight", (int32_t)i,
                layout->desc.glu_interleave);
    }
    for (uint32_t i = 0; i < places; i++) {
        uint32_t e =
            (uint32_t)dyti_expert_at(layout, part, i) * w->at.expert_step;

        expert_down(w, w->at.slot[DYTI_SLOT_EXPERT_DOWN] + e, i);
    }
}

static void moe_mlp(struct walk *w)
{
    const struct dyti_part *part = w->list->part;

    whole(w, DYTI_SLOT_POST_NORM, "pre_mlp_layernorm.weight");
    whole(w, DYTI_SLOT_ROUTER, "mlp.router.weight");
    whole(w, DYTI_SLOT_ROUTER_BIAS, "mlp.router.expert_bias");
    experts(w);
    if (has(w, DYTI_SLOT_SHARED_GATE)) {
        gate_up(w, w->at.slot[DYTI_SLOT_SHARED_GATE],
                w->at.slot[DYTI_SLOT_SHARED_UP], part->tp_size, part->tp_rank,
                "mlp.shared_experts.linear_fc1.weight", -1, 0);
        by_tp(w, DYTI_SLOT_SHARED_DOWN, 1,
              "mlp.shared_experts.linear_fc2.weight");
    }
}

/* ---- the whole ----------------------------------------------------------- */

/* Embedding or head: this rank's rows of the padded vocabulary. */
static void vocabulary(struct walk *w, enum dyti_slot slot, const char *name)
{
    const struct dyti_layout *layout = w->list->layout;
    const struct dyti_part *part = w->list->part;
    const struct dyti_tensor *t = tensor(w, slot);
    int64_t rows = dyti_megatron_vocab(layout) / part->tp_size;
    int64_t shape[2] = {rows, t->shape[1]};
    struct dyti_put put = {.tensor = w->at.slot[slot],
                           .lo = part->tp_rank * rows};

    put.hi = put.lo + rows < t->shape[0] ? put.lo + rows : t->shape[0];
    dyti_locals_begin(w->list, put.tensor, 2, shape, "%s%s", w->prefix, name);
    dyti_locals_put(w->list, &put);
    if (w->list->status == DYT_OK) {
        w->list->local[w->list->count - 1].own_bucket =
            layout->model->arch.tied && part->pp_size > 1;
    }
}

static void layers(struct walk *w, int64_t lo, int64_t hi, const char *chunk)
{
    bool latent = w->list->layout->model->arch.mla.kv_lora > 0;

    for (int64_t layer = lo; layer < hi; layer++) {
        if (dyti_locals_skip(w->list, layer)) {
            continue;
        }
        dyti_layer_index(w->list->layout->model, (int32_t)layer, &w->at);
        (void)snprintf(w->prefix, sizeof(w->prefix), "%sdecoder.layers.%d.",
                       chunk, (int)(layer - lo));
        if (latent) {
            latent_attention(w);
        } else {
            attention(w);
        }
        if (has(w, DYTI_SLOT_ROUTER)) {
            moe_mlp(w);
        } else {
            dense_mlp(w);
        }
    }
}

void dyti_megatron_list(struct dyti_locals *list)
{
    const struct dyti_layout *layout = list->layout;
    const struct dyti_part *part = list->part;
    uint32_t chunks = dyti_degree(layout->desc.vpp);
    struct walk w = {.list = list,
                     .gpt2 = layout->model->arch.family == DYTI_GPT2};

    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        char name[PREFIX_BYTES / 2] = "";
        int64_t lo, hi;

        if (chunks > 1) {
            (void)snprintf(name, sizeof(name), "model%u.", chunk);
        }
        list->chunk = chunk;
        dyti_layer_index(layout->model, -1, &w.at);
        (void)snprintf(w.prefix, sizeof(w.prefix), "%s", name);
        if (part->has_embed && chunk == 0) {
            vocabulary(&w, DYTI_SLOT_EMBED, "embedding.word_embeddings.weight");
            whole(&w, DYTI_SLOT_POSITION,
                  "embedding.position_embeddings.weight");
        }
        dyti_chunk_layers(layout, part, chunk, &lo, &hi);
        layers(&w, lo, hi, name);
        if (!part->has_head || chunk + 1 < chunks) {
            continue;
        }
        dyti_layer_index(layout->model, -1, &w.at);
        (void)snprintf(w.prefix, sizeof(w.prefix), "%s", name);
        whole(&w, DYTI_SLOT_FINAL_NORM, "decoder.final_layernorm.weight");
        whole(&w, DYTI_SLOT_FINAL_NORM_BIAS, "decoder.final_layernorm.bias");
        if (!layout->model->arch.tied) {
            vocabulary(&w, DYTI_SLOT_HEAD, "output_layer.weight");
        } else if (part->pp_size > 1) {
            vocabulary(&w, DYTI_SLOT_EMBED, "output_layer.weight");
        } /* else: the embedding is the head */
    }
}
