/* Builds the catalogue of a family's tensors from its architecture. */
#include "vps/model.h"

#include "base/checked.h"
#include "base/hash.h"
#include "vps/catalogue.h"
#include "vps/slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- how many ------------------------------------------------------------ */

static uint64_t moe_layer_count(const struct dyti_arch *arch)
{
    int64_t rest = arch->layers - arch->moe.first_layer;

    if (arch->moe.count == 0 || rest <= 0) {
        return 0;
    }
    return (uint64_t)((rest - 1) / arch->moe.layer_step + 1);
}

static enum dyt_status count_tensors(const struct dyti_arch *arch,
                                     size_t extra_count, uint32_t *out_count)
{
    struct dyti_arch dense = *arch;
    uint64_t moe = moe_layer_count(arch), count = 0, part;
    bool over;

    dense.moe.count = 0;
    over = dyti_mul_overflow((uint64_t)arch->layers - moe,
                             dyti_layer_tensor_count(&dense, 0), &count);
    over =
        dyti_mul_overflow(
            moe, dyti_layer_tensor_count(arch, arch->moe.first_layer), &part) ||
        over;
    over = dyti_add_overflow(count, part, &count) || over;
    over = dyti_add_overflow(count, extra_count, &count) || over;
    for (int slot = 0; slot < DYTI_SLOT_COUNT; slot++) {
        count += !dyti_slot_rule(arch, (enum dyti_slot)slot)->layered &&
                 dyti_slot_present(arch, (enum dyti_slot)slot, -1);
    }
    if (over || count > DYTI_MAX_TENSORS) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW,
                         "num_hidden_layers %lld, num_experts %lld: the model "
                         "has more than %u tensors",
                         (long long)arch->layers, (long long)arch->moe.count,
                         DYTI_MAX_TENSORS);
    }
    *out_count = (uint32_t)count;
    return DYT_OK;
}

/* ---- the catalogue ------------------------------------------------------- */

/* The place where the next tensor goes. */
struct filler {
    struct dyti_model *model;
    char *name;
    bool too_long;
};

static void write_name(struct filler *f, enum dyti_slot slot, int32_t layer,
                       int32_t expert)
{
    const struct dyti_arch *arch = &f->model->arch;
    const char *suffix = dyti_slot_file_name(arch, slot);
    const char *hole = expert >= 0 ? strstr(suffix, "%d") : NULL;
    char head[DYTI_NAME_BYTES] = "";
    int length;

    if (layer >= 0) {
        (void)snprintf(head, sizeof(head), "%s%d.", dyti_layer_prefix(arch),
                       layer);
    }
    length = hole == NULL
                 ? snprintf(f->name, DYTI_NAME_BYTES, "%s%s", head, suffix)
                 : snprintf(f->name, DYTI_NAME_BYTES, "%s%.*s%d%s", head,
                            (int)(hole - suffix), suffix, expert, hole + 2);
    f->too_long = f->too_long || length >= (int)DYTI_NAME_BYTES;
}

/* Elements of the cut axis that stay together. */
static int64_t unit_of(const struct dyti_arch *arch, enum dyti_slot slot,
                       enum dyti_cut cut)
{
    const struct dyti_mla *mla = &arch->mla;

    if (cut != DYTI_CUT_Q_HEADS && cut != DYTI_CUT_KV_HEADS) {
        return 1;
    }
    if (mla->kv_lora == 0) {
        return slot == DYTI_SLOT_Q || slot == DYTI_SLOT_Q_BIAS
                   ? dyti_arch_q_dim(arch)
                   : arch->head_dim;
    }
    return slot == DYTI_SLOT_O      ? mla->v_dim
           : slot == DYTI_SLOT_KV_B ? mla->nope_dim + mla->v_dim
                                    : mla->nope_dim + mla->rope_dim;
}

/* A fused QKV is three segments, anything else one. */
static void fill_segments(const struct dyti_arch *arch,
                          const struct dyti_slot_rule *rule,
                          struct dyti_tensor *t)
{
    int64_t q = arch->q_heads * arch->head_dim;
    int64_t kv = arch->kv_heads * arch->head_dim, d = arch->head_dim;

    if (t->slot == DYTI_SLOT_QKV || t->slot == DYTI_SLOT_QKV_BIAS) {
        t->segment_count = 3;
        t->segment[0] = (struct dyti_segment){0, q, DYTI_CUT_Q_HEADS, d};
        t->segment[1] = (struct dyti_segment){q, q + kv, DYTI_CUT_KV_HEADS, d};
        t->segment[2] =
            (struct dyti_segment){q + kv, q + 2 * kv, DYTI_CUT_KV_HEADS, d};
        return;
    }
    t->segment_count = 1;
    t->segment[0] = (struct dyti_segment){0, t->shape[t->cut_axis], rule->cut,
                                          unit_of(arch, t->slot, rule->cut)};
}

static void add_tensor(struct filler *f, enum dyti_slot slot, int32_t layer,
                       int32_t expert)
{
    const struct dyti_arch *arch = &f->model->arch;
    const struct dyti_slot_rule *rule = dyti_slot_rule(arch, slot);
    struct dyti_tensor *t = &f->model->tensor[f->model->tensor_count++];
    bool both_homes = arch->tied && slot == DYTI_SLOT_EMBED;

    write_name(f, slot, layer, expert);
    t->name = f->name;
    f->name += DYTI_NAME_BYTES;
    t->layer = layer;
    t->expert = expert;
    t->slot = slot;
    for (uint32_t d = 0; d < 2 && rule->dim[d] != DYTI_DIM_NONE; d++) {
        t->shape[t->ndim++] = dyti_arch_dim(arch, rule->dim[d]);
    }
    t->cut_axis = rule->cut_axis;
    fill_segments(arch, rule, t);
    t->on_first = rule->on_first;
    t->on_last = rule->on_last || both_homes;
    t->grad_partial = rule->grad_partial || both_homes;
    t->kinds = (1u << DYTI_EXTRA) - 1u;
    t->dtype = arch->dtype;
    t->extra_of = UINT32_MAX;
    if (slot == DYTI_SLOT_ROUTER_BIAS) {
        /* set by the load balancer, not by the optimizer */
        t->kinds = 1u << DYTI_PARAM;
        t->fixed_dtype = true;
        t->dtype = DYTI_F32;
    }
}

static void add_layer(struct filler *f, int32_t layer)
{
    const struct dyti_arch *arch = &f->model->arch;
    size_t count, i = 0;
    const enum dyti_slot *order = dyti_layer_order(&count);

    while (i < count) {
        size_t end = i + 1;

        if (!dyti_slot_present(arch, order[i], layer)) {
            i++;
            continue;
        }
        if (!dyti_slot_rule(arch, order[i])->per_expert) {
            add_tensor(f, order[i++], layer, -1);
            continue;
        }
        while (end < count && dyti_slot_rule(arch, order[end])->per_expert) {
            end++;
        }
        for (int32_t e = 0; e < arch->moe.count; e++) {
            for (size_t s = i; s < end; s++) {
                add_tensor(f, order[s], layer, e);
            }
        }
        i = end;
    }
}

static enum dyt_status fill_parameters(struct filler *f)
{
    static const enum dyti_slot before[] = {DYTI_SLOT_EMBED,
                                            DYTI_SLOT_POSITION};
    static const enum dyti_slot after[] = {
        DYTI_SLOT_FINAL_NORM, DYTI_SLOT_FINAL_NORM_BIAS, DYTI_SLOT_HEAD};
    struct dyti_model *model = f->model;

    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
        if (dyti_slot_present(&model->arch, before[i], -1)) {
            add_tensor(f, before[i], -1, -1);
        }
    }
    for (int32_t layer = 0; layer < model->arch.layers; layer++) {
        model->layer_first[layer] = model->tensor_count;
        add_layer(f, layer);
    }
    model->layer_first[model->arch.layers] = model->tensor_count;
    for (size_t i = 0; i < sizeof(after) / sizeof(after[0]); i++) {
        if (dyti_slot_present(&model->arch, after[i], -1)) {
            add_tensor(f, after[i], -1, -1);
        }
    }
    model->parameter_count = model->tensor_count;
    if (f->too_long) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW,
                         "a tensor's name is longer than %u bytes",
                         DYTI_NAME_BYTES - 1);
    }
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        enum dyt_status st = dyti_names_add(model, i);

        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}

static enum dyt_status fill_extras(struct filler *f,
                                   const struct dyti_extra_desc *extra,
                                   size_t extra_count)
{
    struct dyti_model *model = f->model;

    for (size_t i = 0; i < extra_count; i++) {
        enum dyt_status st = dyti_extra_fill(
            model, &extra[i], f->name, &model->tensor[model->tensor_count]);

        if (st != DYT_OK) {
            return st;
        }
        f->name += DYTI_NAME_BYTES;
        st = dyti_names_add(model, model->tensor_count++);
        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}

static enum dyt_status check_total(const struct dyti_model *model)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < model->tensor_count; i++) {
        /* 16 bytes an element still fit: that is all that we ever keep. */
        if (dyti_add_overflow(sum, dyti_tensor_elements(&model->tensor[i]),
                              &sum) ||
            sum > INT64_MAX / 32) {
            return DYTI_FAIL(DYT_ERR_OVERFLOW,
                             "the model has more than %lld parameters at %s",
                             (long long)(INT64_MAX / 32),
                             model->tensor[i].name);
        }
    }
    return DYT_OK;
}

/* ---- fingerprint --------------------------------------------------------- */

/* Field by field: padding bytes of the struct must not count. */
static uint64_t fingerprint_arch(const struct dyti_arch *a)
{
    const int64_t whole[] = {a->family,
                             a->vocab,
                             a->hidden,
                             a->layers,
                             a->q_heads,
                             a->kv_heads,
                             a->head_dim,
                             a->ffn,
                             a->max_positions,
                             a->tied,
                             a->qkv_bias,
                             a->qk_norm,
                             a->dtype,
                             a->rope.kind,
                             a->rope.original_max,
                             a->moe.count,
                             a->moe.per_token,
                             a->moe.ffn,
                             a->moe.shared_ffn,
                             a->moe.first_layer,
                             a->moe.layer_step,
                             a->moe.router_bias,
                             a->mla.q_lora,
                             a->mla.kv_lora,
                             a->mla.rope_dim,
                             a->mla.nope_dim,
                             a->mla.v_dim};
    const double real[] = {a->rms_eps,     a->init_std,      a->rope.theta,
                           a->rope.factor, a->rope.low_freq, a->rope.high_freq};
    uint64_t state = DYTI_FINGERPRINT_SEED;

    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        state = dyti_fingerprint_u64(state, (uint64_t)whole[i]);
    }
    for (size_t i = 0; i < sizeof(real) / sizeof(real[0]); i++) {
        uint64_t bits;

        memcpy(&bits, &real[i], sizeof(bits));
        state = dyti_fingerprint_u64(state, bits);
    }
    /* came later: who has none keeps the number */
    return a->attn_gate ? dyti_fingerprint_text(state, "attn_gate") : state;
}

static uint64_t fingerprint_catalogue(const struct dyti_model *model,
                                      uint64_t state)
{
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct dyti_tensor *t = &model->tensor[i];

        state = dyti_fingerprint_text(state, t->name);
        state = dyti_fingerprint_u64(state, (uint64_t)t->extra << 8 | t->dtype);
        for (uint32_t d = 0; d < t->ndim; d++) {
            state = dyti_fingerprint_u64(state, (uint64_t)t->shape[d]);
        }
    }
    return state;
}

/* ---- the whole ----------------------------------------------------------- */

static enum dyt_status allocate(const struct dyti_arch *arch, uint32_t count,
                                struct dyti_model **out_model)
{
    struct dyti_model *model = calloc(1, sizeof(*model));

    *out_model = model;
    if (model != NULL) {
        /* The names lie behind the tensors, in the same block. */
        model->tensor = calloc(count, sizeof(*model->tensor) + DYTI_NAME_BYTES);
        model->layer_first =
            calloc((size_t)arch->layers + 1, sizeof(*model->layer_first));
    }
    if (model == NULL || model->tensor == NULL || model->layer_first == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a catalogue of %u tensors", count);
    }
    model->arch = *arch;
    return DYT_OK;
}

enum dyt_status dyti_model_build_with(const struct dyti_arch *arch,
                                      const struct dyti_extra_desc *extra,
                                      size_t extra_count,
                                      struct dyti_model **out_model)
{
    struct dyti_model *model = NULL;
    struct filler f = {0};
    uint32_t count = 0;
    enum dyt_status st = dyti_arch_check(arch);

    st = st != DYT_OK ? st : count_tensors(arch, extra_count, &count);
    st = st != DYT_OK ? st : allocate(arch, count, &model);
    if (st != DYT_OK) {
        goto out;
    }
    f.model = model;
    f.name = (char *)(model->tensor + count);
    st = dyti_names_init(model, count);
    st = st != DYT_OK ? st : fill_parameters(&f);
    st = st != DYT_OK ? st : fill_extras(&f, extra, extra_count);
    st = st != DYT_OK ? st : check_total(model);
    if (st != DYT_OK) {
        goto out;
    }
    dyti_assert(model->tensor_count == count);
    for (uint32_t i = 0; i < count; i++) {
        model->kinds |= model->tensor[i].kinds;
    }
    model->fingerprint =
        fingerprint_catalogue(model, fingerprint_arch(&model->arch));
    *out_model = model;
    model = NULL;
out:
    if (st != DYT_OK) {
        DYTI_NOTE("describing a %s model", dyti_family_name(arch->family));
    }
    dyti_model_destroy(model);
    return st;
}

enum dyt_status dyti_model_build(const struct dyti_arch *arch,
                                 struct dyti_model **out_model)
{
    return dyti_model_build_with(arch, NULL, 0, out_model);
}

void dyti_model_destroy(struct dyti_model *model)
{
    if (model != NULL) {
        free(model->tensor);
        free(model->layer_first);
        free(model->by_name);
        free(model);
    }
}

uint64_t dyti_tensor_elements(const struct dyti_tensor *tensor)
{
    uint64_t count = 1;

    for (uint32_t d = 0; d < tensor->ndim; d++) {
        count *= (uint64_t)tensor->shape[d];
    }
    return count;
}

uint64_t dyti_model_elements(const struct dyti_model *model)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < model->parameter_count; i++) {
        if (model->tensor[i].extra == DYTI_EXTRA_NONE) {
            sum += dyti_tensor_elements(&model->tensor[i]);
        }
    }
    return sum;
}
