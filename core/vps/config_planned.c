/* Configurations of families that are laid out, planned and converted, but not
 * run: Qwen3-MoE, Mixtral, DeepSeek-V2 and V3, GPT-2.  Only what decides shapes
 * is read, so rope kinds, windows and how files are quantised do not matter. */
#include "vps/config_read.h"

#include "base/error.h"

#include <string.h>

#define MOST ((int64_t)1 << 31)

static const struct {
    enum dyti_family family;
    const char *model_type, *architecture;
} families[] = {
    {DYTI_QWEN3_MOE, "qwen3_moe", "Qwen3MoeForCausalLM"},
    {DYTI_MIXTRAL, "mixtral", "MixtralForCausalLM"},
    {DYTI_DEEPSEEK_V2, "deepseek_v2", "DeepseekV2ForCausalLM"},
    {DYTI_DEEPSEEK_V3, "deepseek_v3", "DeepseekV3ForCausalLM"},
    {DYTI_GPT2, "gpt2", "GPT2LMHeadModel"},
};
#define FAMILY_COUNT (sizeof(families) / sizeof(families[0]))

bool dyti_config_planned_has(const char *model_type,
                             enum dyti_family *out_family)
{
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        if (strcmp(families[i].model_type, model_type) == 0) {
            *out_family = families[i].family;
            return true;
        }
    }
    return false;
}

bool dyti_config_planned_words(enum dyti_family family, const char **out_type,
                               const char **out_architecture)
{
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        if (families[i].family == family) {
            *out_type = families[i].model_type;
            *out_architecture = families[i].architecture;
            return true;
        }
    }
    return false;
}

/* One number of the file.  fallback < 0: it must be there. */
struct size_key {
    const char *key;
    int64_t least, fallback;
    int64_t *out;
};

static enum dyt_status read_keys(const struct dyti_config_at *at,
                                 const struct size_key *row, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        enum dyt_status st =
            row[i].fallback < 0
                ? dyti_config_int(at, row[i].key, row[i].least, MOST,
                                  row[i].out)
                : dyti_config_int_or(at, row[i].key, row[i].least, MOST,
                                     row[i].fallback, row[i].out);

        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}
#define READ(at, rows) read_keys(at, rows, sizeof(rows) / sizeof((rows)[0]))

static enum dyt_status check_heads(const struct dyti_config_at *at,
                                   const struct dyti_arch *a)
{
    if (a->q_heads % a->kv_heads != 0) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s: num_key_value_heads %lld does not divide "
                         "num_attention_heads %lld",
                         at->file, (long long)a->kv_heads,
                         (long long)a->q_heads);
    }
    return DYT_OK;
}

/* hidden / heads, where the file does not say otherwise. */
static enum dyt_status default_head_dim(const struct dyti_config_at *at,
                                        struct dyti_arch *a)
{
    if (a->head_dim == 0 && a->hidden % a->q_heads != 0) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s: hidden size %lld is not a multiple of %lld heads "
                         "and head_dim is missing",
                         at->file, (long long)a->hidden, (long long)a->q_heads);
    }
    a->head_dim = a->head_dim == 0 ? a->hidden / a->q_heads : a->head_dim;
    return DYT_OK;
}

static enum dyt_status read_common(const struct dyti_config_at *at,
                                   struct dyti_arch *a)
{
    const struct size_key size[] = {
        {"vocab_size", 1, -1, &a->vocab},
        {"hidden_size", 1, -1, &a->hidden},
        {"num_hidden_layers", 1, -1, &a->layers},
        {"num_attention_heads", 1, -1, &a->q_heads},
        {"intermediate_size", 1, -1, &a->ffn},
        {"max_position_embeddings", 1, 4096, &a->max_positions},
        {"head_dim", 1, 0, &a->head_dim},
    };
    enum dyt_status st = READ(at, size);

    if (st == DYT_OK) {
        st = dyti_config_int_or(at, "num_key_value_heads", 1, MOST, a->q_heads,
                                &a->kv_heads);
    }
    if (st == DYT_OK) {
        st = check_heads(at, a);
    }
    if (st == DYT_OK) {
        st = dyti_config_real_or(at, "rms_norm_eps", 1e-6, &a->rms_eps);
    }
    if (st == DYT_OK) {
        st = dyti_config_real_or(at, "rope_theta", 10000, &a->rope.theta);
    }
    if (st == DYT_OK) {
        st = dyti_config_bool_or(at, "tie_word_embeddings", false, &a->tied);
    }
    return st;
}

static enum dyt_status read_qwen3_moe(const struct dyti_config_at *at,
                                      struct dyti_arch *a)
{
    size_t dense = 0;
    int64_t step;
    const struct size_key size[] = {
        {"num_experts", 1, -1, &a->moe.count},
        {"num_experts_per_tok", 1, 8, &a->moe.per_token},
        {"moe_intermediate_size", 1, -1, &a->moe.ffn},
        {"decoder_sparse_step", 1, 1, &step},
    };
    enum dyt_status st = READ(at, size);

    if (st == DYT_OK) {
        st = dyti_config_array(at, "mlp_only_layers", &dense);
    }
    if (st == DYT_OK && dense > 0) {
        st = DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                       "%s: mlp_only_layers with layers in it is not available",
                       at->file);
    }
    if (st == DYT_OK) {
        a->qk_norm = true;
        a->moe.layer_step = step;
        a->moe.first_layer = step - 1;
        st = default_head_dim(at, a);
    }
    if (st == DYT_OK) {
        st = dyti_config_bool_or(at, "attn_output_gate", false, &a->attn_gate);
    }
    return st;
}

static enum dyt_status read_mixtral(const struct dyti_config_at *at,
                                    struct dyti_arch *a)
{
    const struct size_key size[] = {
        {"num_local_experts", 1, 8, &a->moe.count},
        {"num_experts_per_tok", 1, 2, &a->moe.per_token},
    };
    enum dyt_status st = READ(at, size);

    a->moe.ffn = a->ffn;
    a->moe.layer_step = 1;
    return st == DYT_OK ? default_head_dim(at, a) : st;
}

static enum dyt_status read_deepseek(const struct dyti_config_at *at,
                                     struct dyti_arch *a)
{
    int64_t shared = 0;
    const char *method = NULL;
    const struct size_key size[] = {
        {"n_routed_experts", 1, -1, &a->moe.count},
        {"n_shared_experts", 0, 0, &shared},
        {"num_experts_per_tok", 1, 8, &a->moe.per_token},
        {"moe_intermediate_size", 1, -1, &a->moe.ffn},
        {"first_k_dense_replace", 0, 0, &a->moe.first_layer},
        {"moe_layer_freq", 1, 1, &a->moe.layer_step},
        {"q_lora_rank", 1, 0, &a->mla.q_lora},
        {"kv_lora_rank", 1, -1, &a->mla.kv_lora},
        {"qk_rope_head_dim", 1, -1, &a->mla.rope_dim},
        {"qk_nope_head_dim", 1, -1, &a->mla.nope_dim},
        {"v_head_dim", 1, -1, &a->mla.v_dim},
    };
    enum dyt_status st = READ(at, size);

    if (st == DYT_OK) {
        st = dyti_config_text_or(
            at, "topk_method",
            a->family == DYTI_DEEPSEEK_V3 ? "noaux_tc" : "greedy", &method);
    }
    if (st == DYT_OK) {
        a->moe.shared_ffn = shared * a->moe.ffn;
        a->moe.router_bias = strcmp(method, "noaux_tc") == 0;
        a->head_dim = a->mla.nope_dim + a->mla.rope_dim;
    }
    return st;
}

static enum dyt_status read_gpt2(const struct dyti_config_at *at,
                                 struct dyti_arch *a)
{
    const struct size_key size[] = {
        {"vocab_size", 1, 50257, &a->vocab},
        {"n_embd", 1, 768, &a->hidden},
        {"n_layer", 1, 12, &a->layers},
        {"n_head", 1, 12, &a->q_heads},
        {"n_positions", 1, 1024, &a->max_positions},
        {"n_inner", 1, 0, &a->ffn},
    };
    enum dyt_status st = READ(at, size);

    if (st == DYT_OK) {
        st = dyti_config_real_or(at, "layer_norm_epsilon", 1e-5, &a->rms_eps);
    }
    if (st == DYT_OK) {
        st = dyti_config_bool_or(at, "tie_word_embeddings", true, &a->tied);
    }
    if (st == DYT_OK) {
        a->ffn = a->ffn == 0 ? 4 * a->hidden : a->ffn;
        a->kv_heads = a->q_heads;
        st = default_head_dim(at, a);
    }
    return st;
}

enum dyt_status dyti_config_planned_read(const struct dyti_config_at *at,
                                         enum dyti_family family,
                                         struct dyti_arch *out_arch)
{
    struct dyti_arch a = {.family = family, .rope = {.factor = 1}};
    enum dyt_status st = dyti_config_dtype(at, &a.dtype);

    if (st == DYT_OK) {
        st = dyti_config_real_or(at, "initializer_range", 0.02, &a.init_std);
    }
    if (st == DYT_OK) {
        st = family == DYTI_GPT2 ? read_gpt2(at, &a) : read_common(at, &a);
    }
    if (st == DYT_OK && family == DYTI_QWEN3_MOE) {
        st = read_qwen3_moe(at, &a);
    }
    if (st == DYT_OK && family == DYTI_MIXTRAL) {
        st = read_mixtral(at, &a);
    }
    if (st == DYT_OK &&
        (family == DYTI_DEEPSEEK_V2 || family == DYTI_DEEPSEEK_V3)) {
        st = read_deepseek(at, &a);
    }
    if (st == DYT_OK) {
        *out_arch = a;
    }
    return st;
}
