/* The tables of slots: one for all families, with GPT-2's exceptions; names by
 * style of the files. */
#include "vps/slots.h"

/* clang-format off */
#define LAYER(partial, rows, cols, axis, how)                                  \
    {true, false, false, false, partial,                                       \
     {DYTI_DIM_##rows, DYTI_DIM_##cols}, axis, DYTI_CUT_##how}
#define EXPERT(rows, cols, axis)                                               \
    {true, true, false, false, false,                                          \
     {DYTI_DIM_##rows, DYTI_DIM_##cols}, axis, DYTI_CUT_EXPERT_FFN}
#define OUTER(first, last, rows, cols, how)                                    \
    {false, false, first, last, false,                                         \
     {DYTI_DIM_##rows, DYTI_DIM_##cols}, 0, DYTI_CUT_##how}

static const struct dyti_slot_rule common[DYTI_SLOT_COUNT] = {
    [DYTI_SLOT_EMBED]           = OUTER(true, false, VOCAB, HIDDEN, VOCAB),
    [DYTI_SLOT_POSITION]        = OUTER(true, false, POSITIONS, HIDDEN, NONE),
    [DYTI_SLOT_INPUT_NORM]      = LAYER(false, HIDDEN, NONE, 0, NONE),
    [DYTI_SLOT_INPUT_NORM_BIAS] = LAYER(false, HIDDEN, NONE, 0, NONE),
    [DYTI_SLOT_Q]               = LAYER(false, Q, HIDDEN, 0, Q_HEADS),
    [DYTI_SLOT_K]               = LAYER(true, KV, HIDDEN, 0, KV_HEADS),
    [DYTI_SLOT_V]               = LAYER(true, KV, HIDDEN, 0, KV_HEADS),
    [DYTI_SLOT_Q_BIAS]          = LAYER(false, Q, NONE, 0, Q_HEADS),
    [DYTI_SLOT_K_BIAS]          = LAYER(true, KV, NONE, 0, KV_HEADS),
    [DYTI_SLOT_V_BIAS]          = LAYER(true, KV, NONE, 0, KV_HEADS),
    [DYTI_SLOT_QKV]             = LAYER(false, HIDDEN, QKV, 1, Q_HEADS),
    [DYTI_SLOT_QKV_BIAS]        = LAYER(false, QKV, NONE, 0, Q_HEADS),
    [DYTI_SLOT_Q_NORM]          = LAYER(true, HEAD, NONE, 0, NONE),
    [DYTI_SLOT_K_NORM]          = LAYER(true, HEAD, NONE, 0, NONE),
    [DYTI_SLOT_Q_A]             = LAYER(true, Q_LORA, HIDDEN, 0, NONE),
    [DYTI_SLOT_Q_A_NORM]        = LAYER(true, Q_LORA, NONE, 0, NONE),
    [DYTI_SLOT_Q_B]             = LAYER(false, Q, Q_LORA, 0, Q_HEADS),
    [DYTI_SLOT_KV_A]            = LAYER(true, KV_LATENT, HIDDEN, 0, NONE),
    [DYTI_SLOT_KV_A_NORM]       = LAYER(true, KV_LORA, NONE, 0, NONE),
    [DYTI_SLOT_KV_B]            = LAYER(false, KV_UP, KV_LORA, 0, Q_HEADS),
    [DYTI_SLOT_O]               = LAYER(false, HIDDEN, O, 1, Q_HEADS),
    [DYTI_SLOT_O_BIAS]          = LAYER(false, HIDDEN, NONE, 0, NONE),
    [DYTI_SLOT_POST_NORM]       = LAYER(false, HIDDEN, NONE, 0, NONE),
    [DYTI_SLOT_POST_NORM_BIAS]  = LAYER(false, HIDDEN, NONE, 0, NONE),
    [DYTI_SLOT_GATE]            = LAYER(false, FFN, HIDDEN, 0, FFN),
    [DYTI_SLOT_UP]              = LAYER(false, FFN, HIDDEN, 0, FFN),
    [DYTI_SLOT_DOWN]            = LAYER(false, HIDDEN, FFN, 1, FFN),
    [DYTI_SLOT_ROUTER]          = LAYER(false, EXPERTS, HIDDEN, 0, NONE),
    [DYTI_SLOT_ROUTER_BIAS]     = LAYER(false, EXPERTS, NONE, 0, NONE),
    [DYTI_SLOT_EXPERT_GATE]     = EXPERT(EXPERT_FFN, HIDDEN, 0),
    [DYTI_SLOT_EXPERT_UP]       = EXPERT(EXPERT_FFN, HIDDEN, 0),
    [DYTI_SLOT_EXPERT_DOWN]     = EXPERT(HIDDEN, EXPERT_FFN, 1),
    [DYTI_SLOT_SHARED_GATE]     = LAYER(false, SHARED_FFN, HIDDEN, 0, FFN),
    [DYTI_SLOT_SHARED_UP]       = LAYER(false, SHARED_FFN, HIDDEN, 0, FFN),
    [DYTI_SLOT_SHARED_DOWN]     = LAYER(false, HIDDEN, SHARED_FFN, 1, FFN),
    [DYTI_SLOT_FC]              = LAYER(false, HIDDEN, FFN, 1, FFN),
    [DYTI_SLOT_FC_BIAS]         = LAYER(false, FFN, NONE, 0, FFN),
    [DYTI_SLOT_PROJ]            = LAYER(false, FFN, HIDDEN, 0, FFN),
    [DYTI_SLOT_PROJ_BIAS]       = LAYER(false, HIDDEN, NONE, 0, NONE),
    [DYTI_SLOT_FINAL_NORM]      = OUTER(false, true, HIDDEN, NONE, NONE),
    [DYTI_SLOT_FINAL_NORM_BIAS] = OUTER(false, true, HIDDEN, NONE, NONE),
    [DYTI_SLOT_HEAD]            = OUTER(false, true, VOCAB, HIDDEN, VOCAB),
};

/* GPT-2 stores [in, out]: the heads are the rows of the output projection. */
static const struct dyti_slot_rule gpt2_output =
    LAYER(false, O, HIDDEN, 0, Q_HEADS);

/* Names that Llama and its kin share. */
static const char *const llama_name[DYTI_SLOT_COUNT] = {
    [DYTI_SLOT_EMBED]       = "model.embed_tokens.weight",
    [DYTI_SLOT_INPUT_NORM]  = "input_layernorm.weight",
    [DYTI_SLOT_Q]           = "self_attn.q_proj.weight",
    [DYTI_SLOT_K]           = "self_attn.k_proj.weight",
    [DYTI_SLOT_V]           = "self_attn.v_proj.weight",
    [DYTI_SLOT_Q_BIAS]      = "self_attn.q_proj.bias",
    [DYTI_SLOT_K_BIAS]      = "self_attn.k_proj.bias",
    [DYTI_SLOT_V_BIAS]      = "self_attn.v_proj.bias",
    [DYTI_SLOT_Q_NORM]      = "self_attn.q_norm.weight",
    [DYTI_SLOT_K_NORM]      = "self_attn.k_norm.weight",
    [DYTI_SLOT_Q_A]         = "self_attn.q_a_proj.weight",
    [DYTI_SLOT_Q_A_NORM]    = "self_attn.q_a_layernorm.weight",
    [DYTI_SLOT_Q_B]         = "self_attn.q_b_proj.weight",
    [DYTI_SLOT_KV_A]        = "self_attn.kv_a_proj_with_mqa.weight",
    [DYTI_SLOT_KV_A_NORM]   = "self_attn.kv_a_layernorm.weight",
    [DYTI_SLOT_KV_B]        = "self_attn.kv_b_proj.weight",
    [DYTI_SLOT_O]           = "self_attn.o_proj.weight",
    [DYTI_SLOT_POST_NORM]   = "post_attention_layernorm.weight",
    [DYTI_SLOT_GATE]        = "mlp.gate_proj.weight",
    [DYTI_SLOT_UP]          = "mlp.up_proj.weight",
    [DYTI_SLOT_DOWN]        = "mlp.down_proj.weight",
    [DYTI_SLOT_ROUTER]      = "mlp.gate.weight",
    [DYTI_SLOT_ROUTER_BIAS] = "mlp.gate.e_score_correction_bias",
    [DYTI_SLOT_EXPERT_GATE] = "mlp.experts.%d.gate_proj.weight",
    [DYTI_SLOT_EXPERT_UP]   = "mlp.experts.%d.up_proj.weight",
    [DYTI_SLOT_EXPERT_DOWN] = "mlp.experts.%d.down_proj.weight",
    [DYTI_SLOT_SHARED_GATE] = "mlp.shared_experts.gate_proj.weight",
    [DYTI_SLOT_SHARED_UP]   = "mlp.shared_experts.up_proj.weight",
    [DYTI_SLOT_SHARED_DOWN] = "mlp.shared_experts.down_proj.weight",
    [DYTI_SLOT_FINAL_NORM]  = "model.norm.weight",
    [DYTI_SLOT_HEAD]        = "lm_head.weight",
};

/* Where Mixtral's differ. */
static const char *const mixtral_name[DYTI_SLOT_COUNT] = {
    [DYTI_SLOT_ROUTER]      = "block_sparse_moe.gate.weight",
    [DYTI_SLOT_EXPERT_GATE] = "block_sparse_moe.experts.%d.w1.weight",
    [DYTI_SLOT_EXPERT_UP]   = "block_sparse_moe.experts.%d.w3.weight",
    [DYTI_SLOT_EXPERT_DOWN] = "block_sparse_moe.experts.%d.w2.weight",
};

static const char *const gpt2_name[DYTI_SLOT_COUNT] = {
    [DYTI_SLOT_EMBED]           = "transformer.wte.weight",
    [DYTI_SLOT_POSITION]        = "transformer.wpe.weight",
    [DYTI_SLOT_INPUT_NORM]      = "ln_1.weight",
    [DYTI_SLOT_INPUT_NORM_BIAS] = "ln_1.bias",
    [DYTI_SLOT_QKV]             = "attn.c_attn.weight",
    [DYTI_SLOT_QKV_BIAS]        = "attn.c_attn.bias",
    [DYTI_SLOT_O]               = "attn.c_proj.weight",
    [DYTI_SLOT_O_BIAS]          = "attn.c_proj.bias",
    [DYTI_SLOT_POST_NORM]       = "ln_2.weight",
    [DYTI_SLOT_POST_NORM_BIAS]  = "ln_2.bias",
    [DYTI_SLOT_FC]              = "mlp.c_fc.weight",
    [DYTI_SLOT_FC_BIAS]         = "mlp.c_fc.bias",
    [DYTI_SLOT_PROJ]            = "mlp.c_proj.weight",
    [DYTI_SLOT_PROJ_BIAS]       = "mlp.c_proj.bias",
    [DYTI_SLOT_FINAL_NORM]      = "transformer.ln_f.weight",
    [DYTI_SLOT_FINAL_NORM_BIAS] = "transformer.ln_f.bias",
    [DYTI_SLOT_HEAD]            = "lm_head.weight",
};

static const enum dyti_slot layer_order[] = {
    DYTI_SLOT_INPUT_NORM,  DYTI_SLOT_INPUT_NORM_BIAS,
    DYTI_SLOT_Q,           DYTI_SLOT_K,              DYTI_SLOT_V,
    DYTI_SLOT_Q_BIAS,      DYTI_SLOT_K_BIAS,         DYTI_SLOT_V_BIAS,
    DYTI_SLOT_QKV,         DYTI_SLOT_QKV_BIAS,
    DYTI_SLOT_Q_NORM,      DYTI_SLOT_K_NORM,
    DYTI_SLOT_Q_A,         DYTI_SLOT_Q_A_NORM,       DYTI_SLOT_Q_B,
    DYTI_SLOT_KV_A,        DYTI_SLOT_KV_A_NORM,      DYTI_SLOT_KV_B,
    DYTI_SLOT_O,           DYTI_SLOT_O_BIAS,
    DYTI_SLOT_POST_NORM,   DYTI_SLOT_POST_NORM_BIAS,
    DYTI_SLOT_GATE,        DYTI_SLOT_UP,             DYTI_SLOT_DOWN,
    DYTI_SLOT_FC,          DYTI_SLOT_FC_BIAS,
    DYTI_SLOT_PROJ,        DYTI_SLOT_PROJ_BIAS,
    DYTI_SLOT_ROUTER,      DYTI_SLOT_ROUTER_BIAS,
    /* these three once per expert, together */
    DYTI_SLOT_EXPERT_GATE, DYTI_SLOT_EXPERT_UP,      DYTI_SLOT_EXPERT_DOWN,
    DYTI_SLOT_SHARED_GATE, DYTI_SLOT_SHARED_UP,      DYTI_SLOT_SHARED_DOWN,
};
/* clang-format on */

const enum dyti_slot *dyti_layer_order(size_t *out_count)
{
    *out_count = sizeof(layer_order) / sizeof(layer_order[0]);
    return layer_order;
}

const struct dyti_slot_rule *dyti_slot_rule(const struct dyti_arch *arch,
                                            enum dyti_slot slot)
{
    return arch->family == DYTI_GPT2 && slot == DYTI_SLOT_O ? &gpt2_output
                                                            : &common[slot];
}

const char *dyti_slot_file_name(const struct dyti_arch *arch,
                                enum dyti_slot slot)
{
    if (arch->family == DYTI_GPT2) {
        return gpt2_name[slot];
    }
    if (arch->family == DYTI_MIXTRAL && mixtral_name[slot] != NULL) {
        return mixtral_name[slot];
    }
    return llama_name[slot];
}

const char *dyti_layer_prefix(const struct dyti_arch *arch)
{
    return arch->family == DYTI_GPT2 ? "transformer.h." : "model.layers.";
}

int64_t dyti_arch_dim(const struct dyti_arch *arch, enum dyti_dim dim)
{
    const struct dyti_mla *mla = &arch->mla;
    bool latent = mla->kv_lora > 0;
    const int64_t size[] = {
        [DYTI_DIM_NONE] = 1,
        [DYTI_DIM_VOCAB] = arch->vocab,
        [DYTI_DIM_POSITIONS] = arch->max_positions,
        [DYTI_DIM_HIDDEN] = arch->hidden,
        [DYTI_DIM_HEAD] = arch->head_dim,
        [DYTI_DIM_Q] = arch->q_heads * (latent ? mla->nope_dim + mla->rope_dim
                                               : dyti_arch_q_dim(arch)),
        [DYTI_DIM_KV] = arch->kv_heads * arch->head_dim,
        [DYTI_DIM_O] = arch->q_heads * (latent ? mla->v_dim : arch->head_dim),
        [DYTI_DIM_QKV] = (arch->q_heads + 2 * arch->kv_heads) * arch->head_dim,
        [DYTI_DIM_FFN] = arch->ffn,
        [DYTI_DIM_EXPERTS] = arch->moe.count,
        [DYTI_DIM_EXPERT_FFN] = arch->moe.ffn,
        [DYTI_DIM_SHARED_FFN] = arch->moe.shared_ffn,
        [DYTI_DIM_Q_LORA] = mla->q_lora,
        [DYTI_DIM_KV_LORA] = mla->kv_lora,
        [DYTI_DIM_KV_LATENT] = mla->kv_lora + mla->rope_dim,
        [DYTI_DIM_KV_UP] = arch->q_heads * (mla->nope_dim + mla->v_dim),
    };

    return size[dim];
}

bool dyti_slot_present(const struct dyti_arch *arch, enum dyti_slot slot,
                       int64_t layer)
{
    bool latent = arch->mla.kv_lora > 0;
    bool moe = layer >= 0 && dyti_arch_is_moe_layer(arch, layer);

    if ((unsigned)slot >= DYTI_SLOT_COUNT ||
        dyti_slot_file_name(arch, slot) == NULL) {
        return false;
    }
    switch (slot) {
    case DYTI_SLOT_Q:
        return !latent || arch->mla.q_lora == 0;
    case DYTI_SLOT_K:
    case DYTI_SLOT_V:
        return !latent;
    case DYTI_SLOT_Q_A:
    case DYTI_SLOT_Q_A_NORM:
    case DYTI_SLOT_Q_B:
        return latent && arch->mla.q_lora > 0;
    case DYTI_SLOT_KV_A:
    case DYTI_SLOT_KV_A_NORM:
    case DYTI_SLOT_KV_B:
        return latent;
    case DYTI_SLOT_Q_BIAS:
    case DYTI_SLOT_K_BIAS:
    case DYTI_SLOT_V_BIAS:
        return arch->qkv_bias;
    case DYTI_SLOT_Q_NORM:
    case DYTI_SLOT_K_NORM:
        return arch->qk_norm;
    case DYTI_SLOT_GATE:
    case DYTI_SLOT_UP:
    case DYTI_SLOT_DOWN:
        return !moe;
    case DYTI_SLOT_ROUTER:
    case DYTI_SLOT_EXPERT_GATE:
    case DYTI_SLOT_EXPERT_UP:
    case DYTI_SLOT_EXPERT_DOWN:
        return moe;
    case DYTI_SLOT_ROUTER_BIAS:
        return moe && arch->moe.router_bias;
    case DYTI_SLOT_SHARED_GATE:
    case DYTI_SLOT_SHARED_UP:
    case DYTI_SLOT_SHARED_DOWN:
        return moe && arch->moe.shared_ffn > 0;
    case DYTI_SLOT_HEAD:
        return !arch->tied;
    default:
        return true; /* those that the family names, it has */
    }
}

uint64_t dyti_layer_tensor_count(const struct dyti_arch *arch, int64_t layer)
{
    uint64_t count = 0;

    for (size_t i = 0; i < sizeof(layer_order) / sizeof(layer_order[0]); i++) {
        enum dyti_slot slot = layer_order[i];

        if (dyti_slot_present(arch, slot, layer)) {
            count += common[slot].per_expert ? (uint64_t)arch->moe.count : 1;
        }
    }
    return count;
}
