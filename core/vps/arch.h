/* Stage 1 of 5: VPS.  What a model is, as its config.json says, in our words.
 * in: bridge/format reads config.json into it   out: vps/model.h builds the
 * catalogue of tensors from it.  Plain value, owns nothing. */
#ifndef DYTI_VPS_ARCH_H
#define DYTI_VPS_ARCH_H

#include "base/dtype.h"

#include <stdbool.h>
#include <stdint.h>

enum dyti_family {
    DYTI_LLAMA, /* Llama 2/3, SmolLM2 */
    DYTI_MISTRAL,
    DYTI_QWEN2, /* bias on q, k, v */
    DYTI_QWEN3, /* RMSNorm on each head of q and k */
    /* From here on described, laid out and planned, but not run by nn: */
    DYTI_QWEN3_MOE,
    DYTI_MIXTRAL,
    DYTI_DEEPSEEK_V2, /* MLA, shared and routed experts */
    DYTI_DEEPSEEK_V3, /* … and a bias of the router, MTP layers not counted */
    DYTI_GPT2,        /* GPT-2 and GPT-3 style: learned positions, fused QKV,
                         LayerNorm with bias, weights stored [in, out] */
    DYTI_FAMILY_COUNT,
    DYTI_FAMILY_LISTED /* none: a list of tensors (dyti_model_build_listed) */
};

enum dyti_rope_kind {
    DYTI_ROPE_DEFAULT,
    DYTI_ROPE_LINEAR, /* positions divided by factor */
    DYTI_ROPE_LLAMA3  /* frequencies scaled by band */
};

struct dyti_rope {
    enum dyti_rope_kind kind;
    double theta;
    double factor;              /* LINEAR, LLAMA3 */
    double low_freq, high_freq; /* LLAMA3: low/high_freq_factor */
    int64_t original_max;       /* LLAMA3: original_max_position_embeddings */
};

/* Mixture of experts; count 0: the model has none. */
struct dyti_moe {
    int64_t count;       /* E routed experts of a layer */
    int64_t per_token;   /* of them used by a token */
    int64_t ffn;         /* rows of gate and of up of one routed expert */
    int64_t shared_ffn;  /* of all shared experts together; 0 = none */
    int64_t first_layer; /* layers before it are dense */
    int64_t layer_step;  /* of the rest every such one is MoE; 1 = all */
    bool router_bias;    /* e_score_correction_bias, f32 */
};

/* Multi-head latent attention; kv_lora 0: plain attention. */
struct dyti_mla {
    int64_t q_lora;                    /* 0: q is projected directly */
    int64_t kv_lora;                   /* rank of the latent of k and v */
    int64_t rope_dim, nope_dim, v_dim; /* of one head */
};

struct dyti_arch {
    enum dyti_family family;
    int64_t vocab;    /* V rows of the embedding */
    int64_t hidden;   /* h */
    int64_t layers;   /* L */
    int64_t q_heads;  /* H */
    int64_t kv_heads; /* K, divides H */
    int64_t head_dim; /* d */
    int64_t ffn;      /* F, rows of gate and of up */
    int64_t max_positions;
    double rms_eps;
    double init_std; /* initializer_range */
    struct dyti_rope rope;
    bool tied;             /* lm_head is embed_tokens */
    bool qkv_bias;         /* bias on q, k, v */
    bool qk_norm;          /* RMSNorm over head_dim of q and k, before rope */
    enum dyti_dtype dtype; /* of the file */
    struct dyti_moe moe;
    struct dyti_mla mla;
    bool attn_gate; /* q_proj has a gate of the attention's output too: of
                       each head d rows of q, then d of its gate */
};

static inline bool dyti_arch_is_moe_layer(const struct dyti_arch *arch,
                                          int64_t layer)
{
    return arch->moe.count > 0 && layer >= arch->moe.first_layer &&
           (layer - arch->moe.first_layer) % arch->moe.layer_step == 0;
}

/* Rows of q_proj that are one head's, where attention is plain. */
static inline int64_t dyti_arch_q_dim(const struct dyti_arch *arch)
{
    return arch->head_dim * (arch->attn_gate ? 2 : 1);
}

const char *dyti_family_name(enum dyti_family family); /* "llama", … */

#endif /* DYTI_VPS_ARCH_H */
