/* Builds the catalogue of a family's tensors from its architecture. */
#include "vps/model.h"

#include "base/checked.h"
#include "base/hash.h"
#include "vps/slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 64u

const char *dyti_family_name(enum dyti_family family)
{
    static const char *const name[DYTI_FAMILY_COUNT] = {
        "llama",   "mistral",     "qwen2",       "qwen3", "qwen3_moe",
        "mixtral", "deepseek_v2", "deepseek_v3", "gpt2"};

    return family < DYTI_FAMILY_COUNT ? name[family] : "?";
}

/* ---- sizes of the architecture ------------------------------------------ */

static int64_t dim_of(const struct dyti_arch *arch, enum dyti_dim dim)
{
    switch (dim) {
    case DYTI_DIM_VOCAB:
        return arch->vocab;
    case DYTI_DIM_HIDDEN:
        return arch->hidden;
    case DYTI_DIM_HEAD:
        return arch->head_dim;
    case DYTI_DIM_Q:
        return arch->q_heads * arch->head_dim;
    case DYTI_DIM_KV:
        return arch->kv_heads * arch->head_dim;
    case DYTI_DIM_FFN:
        return arch->ffn;
    default:
        return 1;
    }
}

/* Every size far below 2^31, so that products of two never overflow and their
 * sums over the catalogue are checked once, in check_total. */
static enum dyt_status check_arch(const struct dyti_arch *arch)
{
    const struct {
        const char *name;
        int64_t value;
    } size[] = {
        {"vocab_size", arch->vocab},
        {"hidden_size", arch->hidden},
        {"num_hidden_layers", arch->layers},
        {"num_attention_heads", arch->q_heads},
        {"num_key_value_heads", arch->kv_heads},
        {"head_dim", arch->head_dim},
        {"intermediate_size", arch->ffn},
    };

    for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
        if (size[i].value <= 0) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "%s is %lld: it must be at least 1", size[i].name,
                             (long long)size[i].value);
        }
        if (size[i].value > INT32_MAX / 2) {
            return DYTI_FAIL(DYT_ERR_OVERFLOW, "%s is %lld: at most %d",
                             size[i].name, (long long)size[i].value,
                             INT32_MAX / 2);
        }
    }
    if (arch->q_heads % arch->kv_heads != 0) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "num_key_value_heads %lld does not divide "
                         "num_attention_heads %lld",
                         (long long)arch->kv_heads, (long long)arch->q_heads);
    }
    if (arch->q_heads * arch->head_dim > INT32_MAX / 2) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW,
                         "%lld heads of %lld elements: at most %d together",
                         (long long)arch->q_heads, (long long)arch->head_dim,
                         INT32_MAX / 2);
    }
    return DYT_OK;
}

/* Tensors of one layer / of the whole model. */
static uint32_t layer_tensors(const struct dyti_arch *arch)
{
    uint32_t count = 0;

    for (int slot = 0; slot < DYTI_SLOT_COUNT; slot++) {
        count += dyti_slot_rule[slot].layered &&
                 dyti_slot_present(arch, (enum dyti_slot)slot);
    }
    return count;
}

static enum dyt_status count_tensors(const struct dyti_arch *arch,
                                     uint32_t *out_count)
{
    uint64_t count =
        (uint64_t)arch->layers * layer_tensors(arch) + 2 + (arch->tied ? 0 : 1);

    if (count > UINT32_MAX / 2) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW,
                         "num_hidden_layers %lld: the model "
                         "has %llu tensors",
                         (long long)arch->layers, (unsigned long long)count);
    }
    *out_count = (uint32_t)count;
    return DYT_OK;
}

/* ---- the catalogue ------------------------------------------------------ */

static void write_name(char *name, const struct dyti_slot_rule *rule,
                       int32_t layer)
{
    if (rule->layered) {
        (void)snprintf(name, NAME_BYTES, "model.layers.%d.%s", layer,
                       rule->suffix);
    } else {
        (void)snprintf(name, NAME_BYTES, "%s", rule->suffix);
    }
}

static void fill_tensor(const struct dyti_arch *arch, enum dyti_slot slot,
                        int32_t layer, char *name, struct dyti_tensor *t)
{
    const struct dyti_slot_rule *rule = &dyti_slot_rule[slot];
    bool both_homes = arch->tied && slot == DYTI_SLOT_EMBED;

    write_name(name, rule, layer);
    t->name = name;
    t->layer = layer;
    t->slot = slot;
    for (uint32_t d = 0; d < 2 && rule->dim[d] != DYTI_DIM_NONE; d++) {
        t->shape[t->ndim++] = dim_of(arch, rule->dim[d]);
    }
    t->cut_axis = rule->cut_axis;
    t->segment_count = 1;
    t->segment[0].hi = t->shape[t->cut_axis];
    t->segment[0].cut = rule->cut;
    t->segment[0].unit =
        rule->cut == DYTI_CUT_Q_HEADS || rule->cut == DYTI_CUT_KV_HEADS
            ? arch->head_dim
            : 1;
    t->expert = -1;
    t->kinds = (1u << DYTI_EXTRA) - 1u;
    t->dtype = arch->dtype;
    t->on_first = rule->on_first;
    t->on_last = rule->on_last || both_homes;
    t->grad_partial = rule->grad_partial || both_homes;
}

/* Slots [first, end) that the model has, as tensors of one layer. */
static void fill_run(struct dyti_model *model, int first, int end,
                     int32_t layer, char **name)
{
    for (int slot = first; slot < end; slot++) {
        if (dyti_slot_present(&model->arch, (enum dyti_slot)slot)) {
            fill_tensor(&model->arch, (enum dyti_slot)slot, layer, *name,
                        &model->tensor[model->tensor_count++]);
            *name += NAME_BYTES;
        }
    }
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

/* Field by field: padding bytes of the struct must not count. */
static uint64_t fingerprint_arch(const struct dyti_arch *a)
{
    const int64_t whole[] = {a->family,   a->vocab,     a->hidden,
                             a->layers,   a->q_heads,   a->kv_heads,
                             a->head_dim, a->ffn,       a->max_positions,
                             a->tied,     a->qkv_bias,  a->qk_norm,
                             a->dtype,    a->rope.kind, a->rope.original_max};
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
    return state;
}

static uint64_t fingerprint_catalogue(const struct dyti_model *model,
                                      uint64_t state)
{
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct dyti_tensor *t = &model->tensor[i];

        state = dyti_fingerprint_text(state, t->name);
        for (uint32_t d = 0; d < t->ndim; d++) {
            state = dyti_fingerprint_u64(state, (uint64_t)t->shape[d]);
        }
    }
    return state;
}

enum dyt_status dyti_model_build(const struct dyti_arch *arch,
                                 struct dyti_model **out_model)
{
    struct dyti_model *model = NULL;
    uint32_t count = 0;
    char *name;
    enum dyt_status st = check_arch(arch);

    if (st == DYT_OK) {
        st = count_tensors(arch, &count);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("describing a %s model", dyti_family_name(arch->family));
        return st;
    }
    model = calloc(1, sizeof(*model));
    /* The names lie behind the tensors, in the same block. */
    if (model != NULL) {
        model->tensor = calloc(count, sizeof(*model->tensor) + NAME_BYTES);
    }
    if (model == NULL || model->tensor == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "a catalogue of %u tensors", count);
        goto out;
    }
    model->arch = *arch;
    name = (char *)(model->tensor + count);
    fill_run(model, DYTI_SLOT_EMBED, DYTI_SLOT_EMBED + 1, -1, &name);
    for (int32_t layer = 0; layer < arch->layers; layer++) {
        fill_run(model, DYTI_SLOT_EMBED + 1, DYTI_SLOT_FINAL_NORM, layer,
                 &name);
    }
    fill_run(model, DYTI_SLOT_FINAL_NORM, DYTI_SLOT_COUNT, -1, &name);
    dyti_assert(model->tensor_count == count);
    st = check_total(model);
    if (st != DYT_OK) {
        goto out;
    }
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        model->kinds |= model->tensor[i].kinds;
    }
    model->fingerprint =
        fingerprint_catalogue(model, fingerprint_arch(&model->arch));
    *out_model = model;
    model = NULL;
out:
    dyti_model_destroy(model);
    return st;
}

void dyti_model_destroy(struct dyti_model *model)
{
    if (model != NULL) {
        free(model->tensor);
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

    for (uint32_t i = 0; i < model->tensor_count; i++) {
        sum += dyti_tensor_elements(&model->tensor[i]);
    }
    return sum;
}
