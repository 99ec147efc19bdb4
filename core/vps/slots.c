/* The table of slots of the Llama family. */
#include "vps/slots.h"

/* clang-format off */
#define LAYER(name, partial, rows, cols, axis, how)                            \
    {name, true, false, false, partial,                                        \
     {DYTI_DIM_##rows, DYTI_DIM_##cols}, axis, DYTI_CUT_##how}
#define OUTER(name, first, last, rows, cols, how)                              \
    {name, false, first, last, false,                                          \
     {DYTI_DIM_##rows, DYTI_DIM_##cols}, 0, DYTI_CUT_##how}

const struct dyti_slot_rule dyti_slot_rule[DYTI_SLOT_COUNT] = {
    [DYTI_SLOT_EMBED]      = OUTER("model.embed_tokens.weight", true, false, VOCAB, HIDDEN, VOCAB),
    [DYTI_SLOT_INPUT_NORM] = LAYER("input_layernorm.weight", false, HIDDEN, NONE, 0, NONE),
    [DYTI_SLOT_Q]          = LAYER("self_attn.q_proj.weight", false, Q, HIDDEN, 0, Q_HEADS),
    [DYTI_SLOT_K]          = LAYER("self_attn.k_proj.weight", true, KV, HIDDEN, 0, KV_HEADS),
    [DYTI_SLOT_V]          = LAYER("self_attn.v_proj.weight", true, KV, HIDDEN, 0, KV_HEADS),
    [DYTI_SLOT_Q_BIAS]     = LAYER("self_attn.q_proj.bias", false, Q, NONE, 0, Q_HEADS),
    [DYTI_SLOT_K_BIAS]     = LAYER("self_attn.k_proj.bias", true, KV, NONE, 0, KV_HEADS),
    [DYTI_SLOT_V_BIAS]     = LAYER("self_attn.v_proj.bias", true, KV, NONE, 0, KV_HEADS),
    [DYTI_SLOT_Q_NORM]     = LAYER("self_attn.q_norm.weight", true, HEAD, NONE, 0, NONE),
    [DYTI_SLOT_K_NORM]     = LAYER("self_attn.k_norm.weight", true, HEAD, NONE, 0, NONE),
    [DYTI_SLOT_O]          = LAYER("self_attn.o_proj.weight", false, HIDDEN, Q, 1, Q_HEADS),
    [DYTI_SLOT_POST_NORM]  = LAYER("post_attention_layernorm.weight", false, HIDDEN, NONE, 0, NONE),
    [DYTI_SLOT_GATE]       = LAYER("mlp.gate_proj.weight", false, FFN, HIDDEN, 0, FFN),
    [DYTI_SLOT_UP]         = LAYER("mlp.up_proj.weight", false, FFN, HIDDEN, 0, FFN),
    [DYTI_SLOT_DOWN]       = LAYER("mlp.down_proj.weight", false, HIDDEN, FFN, 1, FFN),
    [DYTI_SLOT_FINAL_NORM] = OUTER("model.norm.weight", false, true, HIDDEN, NONE, NONE),
    [DYTI_SLOT_HEAD]       = OUTER("lm_head.weight", false, true, VOCAB, HIDDEN, VOCAB),
};
/* clang-format on */

bool dyti_slot_present(const struct dyti_arch *arch, enum dyti_slot slot)
{
    switch (slot) {
    case DYTI_SLOT_Q_BIAS:
    case DYTI_SLOT_K_BIAS:
    case DYTI_SLOT_V_BIAS:
        return arch->qkv_bias;
    case DYTI_SLOT_Q_NORM:
    case DYTI_SLOT_K_NORM:
        return arch->qk_norm;
    case DYTI_SLOT_HEAD:
        return !arch->tied;
    default:
        return slot < DYTI_SLOT_HEAD;
    }
}
