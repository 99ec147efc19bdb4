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
    DYTI_FAMILY_COUNT
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
};

const char *dyti_family_name(enum dyti_family family); /* "llama", … */

#endif /* DYTI_VPS_ARCH_H */
