/* config.json of Qwen3-MoE, Mixtral, DeepSeek-V2/V3 and GPT-2, both ways. */
#include "format/hf_planned.h"

#include "base/banned.h"

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

bool dyti_hf_planned_has(const char *model_type, enum dyti_family *out_family)
{
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        if (strcmp(families[i].model_type, model_type) == 0) {
            *out_family = families[i].family;
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

static enum dyt_status read_keys(const struct dyti_json_at *at,
                                 const struct size_key *row, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        enum dyt_status st =
            row[i].fallback < 0
                ? dyti_json_int(at, row[i].key, row[i].least, MOST, row[i].out)
                : dyti_json_int_or(at, row[i].key, row[i].least, MOST,
                                   row[i].fallback, row[i].out);

        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}
#define READ(at, rows) read_keys(at, rows, sizeof(rows) / sizeof((rows)[0]))

static enum dyt_status check_heads(const struct dyti_json_at *at,
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
static enum dyt_status default_head_dim(const struct dyti_json_at *at,
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

static enum dyt_status read_common(const struct dyti_json_at *at,
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
        st = dyti_json_int_or(at, "num_key_value_heads", 1, MOST, a->q_heads,
                              &a->kv_heads);
    }
    if (st == DYT_OK) {
        st = check_heads(at, a);
    }
    if (st == DYT_OK) {
        st = dyti_json_real_or(at, "rms_norm_eps", 1e-6, &a->rms_eps);
    }
    if (st == DYT_OK) {
        st = dyti_json_real_or(at, "rope_theta", 10000, &a->rope.theta);
    }
    if (st == DYT_OK) {
        st = dyti_json_bool_or(at, "tie_word_embeddings", false, &a->tied);
    }
    return st;
}

static enum dyt_status read_qwen3_moe(const struct dyti_json_at *at,
                                      struct dyti_arch *a)
{
    const json_t *dense;
    int64_t step;
    const struct size_key size[] = {
        {"num_experts", 1, -1, &a->moe.count},
        {"num_experts_per_tok", 1, 8, &a->moe.per_token},
        {"moe_intermediate_size", 1, -1, &a->moe.ffn},
        {"decoder_sparse_step", 1, 1, &step},
    };
    enum dyt_status st = READ(at, size);

    if (st == DYT_OK) {
        st = dyti_json_array_or_null(at, "mlp_only_layers", &dense);
    }
    if (st == DYT_OK && dense != NULL && json_array_size(dense) > 0) {
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
    return st;
}

static enum dyt_status read_mixtral(const struct dyti_json_at *at,
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

static enum dyt_status read_deepseek(const struct dyti_json_at *at,
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
        st = dyti_json_text_or(
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

static enum dyt_status read_gpt2(const struct dyti_json_at *at,
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
        st = dyti_json_real_or(at, "layer_norm_epsilon", 1e-5, &a->rms_eps);
    }
    if (st == DYT_OK) {
        st = dyti_json_bool_or(at, "tie_word_embeddings", true, &a->tied);
    }
    if (st == DYT_OK) {
        a->ffn = a->ffn == 0 ? 4 * a->hidden : a->ffn;
        a->kv_heads = a->q_heads;
        st = default_head_dim(at, a);
    }
    return st;
}

enum dyt_status dyti_hf_planned_read(const struct dyti_json_at *at,
                                     enum dyti_family family,
                                     struct dyti_arch *out_arch)
{
    struct dyti_arch a = {.family = family, .rope = {.factor = 1}};
    enum dyt_status st = dyti_hf_dtype(at, &a.dtype);

    if (st == DYT_OK) {
        st = dyti_json_real_or(at, "initializer_range", 0.02, &a.init_std);
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

/* ---- writing ------------------------------------------------------------- */

static const char *dtype_name(enum dyti_dtype dtype)
{
    return dtype == DYTI_BF16  ? "bfloat16"
           : dtype == DYTI_F16 ? "float16"
                               : "float32";
}

static json_t *gpt2_json(const struct dyti_arch *a)
{
    return json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:s}", "vocab_size", (json_int_t)a->vocab,
        "n_embd", (json_int_t)a->hidden, "n_layer", (json_int_t)a->layers,
        "n_head", (json_int_t)a->q_heads, "n_positions",
        (json_int_t)a->max_positions, "n_inner", (json_int_t)a->ffn,
        "layer_norm_epsilon", a->rms_eps, "activation_function", "gelu_new");
}

static json_t *common_json(const struct dyti_arch *a)
{
    return json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:f,s:s,s:I}", "vocab_size",
        (json_int_t)a->vocab, "hidden_size", (json_int_t)a->hidden,
        "num_hidden_layers", (json_int_t)a->layers, "num_attention_heads",
        (json_int_t)a->q_heads, "num_key_value_heads", (json_int_t)a->kv_heads,
        "head_dim", (json_int_t)a->head_dim, "intermediate_size",
        (json_int_t)a->ffn, "max_position_embeddings",
        (json_int_t)a->max_positions, "rms_norm_eps", a->rms_eps, "rope_theta",
        a->rope.theta, "hidden_act", "silu", "num_experts_per_tok",
        (json_int_t)a->moe.per_token);
}

static int put_numbers(json_t *to, const struct size_key *row, size_t count)
{
    int bad = 0;

    for (size_t i = 0; i < count; i++) {
        bad |= json_object_set_new(to, row[i].key, json_integer(*row[i].out));
    }
    return bad;
}

static int put_moe(json_t *to, const struct dyti_arch *a)
{
    struct dyti_moe moe = a->moe;
    struct dyti_mla mla = a->mla;
    int64_t shared = moe.ffn > 0 ? moe.shared_ffn / moe.ffn : 0;
    const struct size_key qwen[] = {
        {"num_experts", 0, 0, &moe.count},
        {"moe_intermediate_size", 0, 0, &moe.ffn},
        {"decoder_sparse_step", 0, 0, &moe.layer_step},
    };
    const struct size_key mixtral[] = {
        {"num_local_experts", 0, 0, &moe.count},
    };
    const struct size_key deepseek[] = {
        {"n_routed_experts", 0, 0, &moe.count},
        {"n_shared_experts", 0, 0, &shared},
        {"moe_intermediate_size", 0, 0, &moe.ffn},
        {"first_k_dense_replace", 0, 0, &moe.first_layer},
        {"moe_layer_freq", 0, 0, &moe.layer_step},
        {"kv_lora_rank", 0, 0, &mla.kv_lora},
        {"qk_rope_head_dim", 0, 0, &mla.rope_dim},
        {"qk_nope_head_dim", 0, 0, &mla.nope_dim},
        {"v_head_dim", 0, 0, &mla.v_dim},
    };

    switch (a->family) {
    case DYTI_QWEN3_MOE:
        return put_numbers(to, qwen, sizeof(qwen) / sizeof(qwen[0]));
    case DYTI_MIXTRAL:
        return put_numbers(to, mixtral, 1);
    default:
        return put_numbers(to, deepseek,
                           sizeof(deepseek) / sizeof(deepseek[0])) |
               json_object_set_new(to, "q_lora_rank",
                                   mla.q_lora == 0 ? json_null()
                                                   : json_integer(mla.q_lora)) |
               json_object_set_new(
                   to, "topk_method",
                   json_string(moe.router_bias ? "noaux_tc" : "greedy"));
    }
}

json_t *dyti_hf_planned_json(const struct dyti_arch *a)
{
    json_t *json = a->family == DYTI_GPT2 ? gpt2_json(a) : common_json(a);
    int bad = json == NULL;

    for (size_t i = 0; !bad && i < FAMILY_COUNT; i++) {
        if (families[i].family == a->family) {
            bad |= json_object_set_new(json, "model_type",
                                       json_string(families[i].model_type));
            bad |=
                json_object_set_new(json, "architectures",
                                    json_pack("[s]", families[i].architecture));
        }
    }
    if (!bad) {
        bad |= json_object_set_new(json, "torch_dtype",
                                   json_string(dtype_name(a->dtype)));
        bad |= json_object_set_new(json, "tie_word_embeddings",
                                   json_boolean(a->tied));
        bad |= json_object_set_new(json, "initializer_range",
                                   json_real(a->init_std));
        bad |= a->family != DYTI_GPT2 && put_moe(json, a) != 0;
    }
    if (bad) {
        json_decref(json);
        return NULL;
    }
    return json;
}
