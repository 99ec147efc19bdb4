/* config.json of Qwen3-MoE, Mixtral, DeepSeek-V2/V3 and GPT-2, written;
 * vps/config_planned.c reads it. */
#include "format/hf_planned.h"

#include "base/banned.h"
#include "vps/config.h"

/* One number of the file. */
struct size_key {
    const char *key;
    const int64_t *out;
};

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
        {"num_experts", &moe.count},
        {"moe_intermediate_size", &moe.ffn},
        {"decoder_sparse_step", &moe.layer_step},
    };
    const struct size_key mixtral[] = {
        {"num_local_experts", &moe.count},
    };
    const struct size_key deepseek[] = {
        {"n_routed_experts", &moe.count},
        {"n_shared_experts", &shared},
        {"moe_intermediate_size", &moe.ffn},
        {"first_k_dense_replace", &moe.first_layer},
        {"moe_layer_freq", &moe.layer_step},
        {"kv_lora_rank", &mla.kv_lora},
        {"qk_rope_head_dim", &mla.rope_dim},
        {"qk_nope_head_dim", &mla.nope_dim},
        {"v_head_dim", &mla.v_dim},
    };

    switch (a->family) {
    case DYTI_QWEN3_MOE:
        return put_numbers(to, qwen, sizeof(qwen) / sizeof(qwen[0])) |
               (a->attn_gate
                    ? json_object_set_new(to, "attn_output_gate", json_true())
                    : 0);
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
    const char *type, *architecture;
    int bad = json == NULL;

    if (!bad && dyti_config_planned_words(a->family, &type, &architecture)) {
        bad |= json_object_set_new(json, "model_type", json_string(type));
        bad |= json_object_set_new(json, "architectures",
                                   json_pack("[s]", architecture));
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
