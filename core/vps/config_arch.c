/* config.json, flattened → struct dyti_arch.  Every key that changes what the
 * model computes is either understood or refused by name; keys without meaning
 * for the computation (names, versions, cache switches) are passed over. */
#include "vps/config.h"

#include "base/error.h"
#include "vps/config_read.h"

#include <string.h>

#define MOST_SIZE ((int64_t)1 << 31)

/* What transformers fills in for a key that the file does not have. */
struct family_row {
    enum dyti_family family;
    const char *model_type, *architecture;
    int64_t kv_heads; /* 0 = as many as query heads */
    int64_t head_dim; /* 0 = hidden / query heads */
    int64_t max_positions;
    int64_t sliding_window; /* 0 = none */
};

static const struct family_row families[] = {
    {DYTI_LLAMA, "llama", "LlamaForCausalLM", 0, 0, 2048, 0},
    {DYTI_MISTRAL, "mistral", "MistralForCausalLM", 8, 0, 131072, 4096},
    {DYTI_QWEN2, "qwen2", "Qwen2ForCausalLM", 32, 0, 32768, 4096},
    {DYTI_QWEN3, "qwen3", "Qwen3ForCausalLM", 32, 128, 32768, 4096},
};
#define FAMILY_COUNT (sizeof(families) / sizeof(families[0]))

static enum dyt_status find_family(const struct dyti_config_at *at,
                                   const struct family_row **out_row)
{
    size_t count = 0;
    const char *type, *architecture = NULL;
    enum dyt_status st = dyti_config_text_or(at, "model_type", NULL, &type);

    if (st == DYT_OK && type == NULL) {
        st = DYTI_FAIL(DYT_ERR_FORMAT, "%s: model_type is missing", at->file);
    }
    if (st == DYT_OK) {
        st = dyti_config_array(at, "architectures", &count);
    }
    if (st != DYT_OK) {
        return st;
    }
    if (count > 0) {
        architecture = dyti_config_item(at, "architectures", 0);
        if (architecture == NULL || count != 1) {
            return DYTI_FAIL(DYT_ERR_FORMAT,
                             "%s: architectures must hold one name", at->file);
        }
    }
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        if (strcmp(families[i].model_type, type) != 0) {
            continue;
        }
        if (architecture != NULL &&
            strcmp(families[i].architecture, architecture) != 0) {
            return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                             "%s: architecture %s is not available; %s is",
                             at->file, architecture, families[i].architecture);
        }
        *out_row = &families[i];
        return DYT_OK;
    }
    return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                     "%s: model_type %s is not available; llama, mistral, "
                     "qwen2 and qwen3 are, and for layouts and plans "
                     "qwen3_moe, mixtral, deepseek_v2, deepseek_v3 and gpt2",
                     at->file, type);
}

/* ---- refused by name ---------------------------------------------------- */

/* Keys that change the computation and that we do not have, with the value
 * under which they change nothing. */
static const struct {
    const char *key;
    double neutral;
} refused_number[] = {
    {"attention_bias", 0},
    {"attn_output_gate", 0},
    {"mlp_bias", 0},
    {"attention_dropout", 0},
    {"embd_pdrop", 0},
    {"resid_pdrop", 0},
    {"hidden_dropout", 0},
    {"partial_rotary_factor", 1},
    {"rotary_pct", 1},
    {"embedding_multiplier", 1},
    {"residual_multiplier", 1},
    {"attention_multiplier", 1},
    {"logits_scaling", 1},
    {"logit_scale", 1},
    {"scale_emb", 1},
    {"num_experts", 0},
    {"num_local_experts", 0},
    {"use_qk_norm", 0},
    {"qk_layernorm", 0},
    {"use_bias", 0},
    {"is_encoder_decoder", 0},
    {"add_cross_attention", 0},
    {"final_logit_softcapping", 0},
    {"attn_logit_softcapping", 0},
    {"use_mrope", 0},
    {"num_nextn_predict_layers", 0},
    {"rope_interleaved", 0},
};
static const char *const refused_if_present[] = {
    "quantization_config", "compression_config",   "clip_qkv",
    "no_rope_layers",      "rope_local_base_freq", "vision_config",
    "text_config",
};

static enum dyt_status refuse_features(const struct dyti_config_at *at)
{
    for (size_t i = 0; i < sizeof(refused_number) / sizeof(refused_number[0]);
         i++) {
        double x;

        if (!dyti_config_has(at, refused_number[i].key)) {
            continue;
        }
        if (!dyti_config_number(at, refused_number[i].key, &x)) {
            return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s must be a number",
                             at->file, refused_number[i].key);
        }
        if (x < refused_number[i].neutral || x > refused_number[i].neutral) {
            return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                             "%s: %s = %g is not available", at->file,
                             refused_number[i].key, x);
        }
    }
    for (size_t i = 0;
         i < sizeof(refused_if_present) / sizeof(refused_if_present[0]); i++) {
        if (dyti_config_has(at, refused_if_present[i])) {
            return DYTI_FAIL(DYT_ERR_UNSUPPORTED, "%s: %s is not available",
                             at->file, refused_if_present[i]);
        }
    }
    return DYT_OK;
}

static enum dyt_status check_activation(const struct dyti_config_at *at)
{
    const char *act;
    enum dyt_status st = dyti_config_text_or(at, "hidden_act", "silu", &act);

    if (st == DYT_OK && strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0) {
        st = DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                       "%s: hidden_act %s is not available; silu is", at->file,
                       act);
    }
    return st;
}

/* A window as wide as the longest position hides nothing. */
static enum dyt_status check_window(const struct dyti_config_at *at,
                                    const struct family_row *row,
                                    const struct dyti_arch *arch, bool in_use)
{
    int64_t window = row->sliding_window;
    enum dyt_status st = DYT_OK;

    if (dyti_config_given(at, "sliding_window")) {
        st = dyti_config_int_or(at, "sliding_window", 1, INT64_MAX, 0, &window);
    }
    if (st != DYT_OK || !in_use || window == 0 ||
        window >= arch->max_positions) {
        return st;
    }
    return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                     "%s: sliding_window %lld (of %lld positions) is not "
                     "available; where no sequence is longer than the window, "
                     "set it to null",
                     at->file, (long long)window,
                     (long long)arch->max_positions);
}

static enum dyt_status window_in_use(const struct dyti_config_at *at,
                                     const struct family_row *row,
                                     const struct dyti_arch *arch, bool *out)
{
    size_t types = 0;
    int64_t first;
    bool use = row->family == DYTI_MISTRAL;
    enum dyt_status st = dyti_config_array(at, "layer_types", &types);

    if (st == DYT_OK && row->family != DYTI_LLAMA && !use) {
        st = dyti_config_bool_or(at, "use_sliding_window", false, &use);
        if (st == DYT_OK) {
            st = dyti_config_int_or(at, "max_window_layers", 0, INT64_MAX, 28,
                                    &first);
        }
        if (st == DYT_OK && first >= arch->layers) {
            use = false; /* the first max_window_layers layers are full */
        }
    }
    if (st != DYT_OK) {
        return st;
    }
    for (size_t i = 0; i < types; i++) {
        const char *type = dyti_config_item(at, "layer_types", i);

        if (type == NULL) {
            return DYTI_FAIL(DYT_ERR_FORMAT,
                             "%s: layer_types must hold strings", at->file);
        }
        if (strcmp(type, "sliding_attention") == 0) {
            use = true;
        } else if (strcmp(type, "full_attention") != 0) {
            return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                             "%s: layer type %s is not available", at->file,
                             type);
        }
    }
    *out = use;
    return DYT_OK;
}

/* ---- rope ---------------------------------------------------------------- */

static enum dyt_status rope_llama3(const struct dyti_config_at *at,
                                   struct dyti_rope *rope)
{
    enum dyt_status st;

    st = dyti_config_real_or(at, "low_freq_factor", 0, &rope->low_freq);
    if (st == DYT_OK) {
        st = dyti_config_real_or(at, "high_freq_factor", 0, &rope->high_freq);
    }
    if (st == DYT_OK) {
        st = dyti_config_int(at, "original_max_position_embeddings", 1,
                             MOST_SIZE, &rope->original_max);
    }
    if (st == DYT_OK &&
        !(rope->low_freq > 0 && rope->high_freq > rope->low_freq)) {
        st = DYTI_FAIL(DYT_ERR_FORMAT,
                       "%s: %slow_freq_factor must be above 0 and under "
                       "high_freq_factor",
                       at->file, at->prefix);
    }
    return st;
}

/* Old files call the kind "type" and keep rope_theta outside; new ones have
 * rope_parameters with rope_type and rope_theta in it. */
static enum dyt_status read_rope(const struct dyti_config_at *at,
                                 struct dyti_rope *rope)
{
    struct dyti_config_at in = {at->file, "rope_parameters.", NULL};
    bool there = false;
    const char *kind = NULL;
    double theta;
    enum dyt_status st;

    st = dyti_config_object(at, "rope_parameters", &there);
    if (st == DYT_OK && !there) {
        in.prefix = "rope_scaling.";
        st = dyti_config_object(at, "rope_scaling", &there);
    }
    in.config = there ? at->config : NULL;
    if (st == DYT_OK) {
        st = dyti_config_real_or(at, "rope_theta", 10000.0, &theta);
    }
    if (st == DYT_OK) {
        st = dyti_config_real_or(&in, "rope_theta", theta, &rope->theta);
    }
    if (st == DYT_OK) {
        st = dyti_config_text_or(&in, "type", "default", &kind);
    }
    if (st == DYT_OK) {
        st = dyti_config_text_or(&in, "rope_type", kind, &kind);
    }
    if (st == DYT_OK) {
        st = refuse_features(&in); /* partial_rotary_factor may lie in it */
    }
    if (st == DYT_OK) {
        st = dyti_config_real_or(&in, "factor", 1.0, &rope->factor);
    }
    if (st != DYT_OK) {
        return st;
    }
    if (!(rope->theta > 0) || !(rope->factor > 0)) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s: rope_theta and the rope factor must be above 0",
                         at->file);
    }
    if (dyti_config_has(&in, "full_attention") ||
        dyti_config_has(&in, "sliding_attention")) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s: rope parameters per layer type are not available",
                         at->file);
    }
    if (strcmp(kind, "default") == 0) {
        rope->kind = DYTI_ROPE_DEFAULT;
        return DYT_OK;
    }
    if (strcmp(kind, "linear") == 0) {
        rope->kind = DYTI_ROPE_LINEAR;
        return DYT_OK;
    }
    if (strcmp(kind, "llama3") == 0) {
        rope->kind = DYTI_ROPE_LLAMA3;
        return rope_llama3(&in, rope);
    }
    return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                     "%s: rope kind %s is not available; default, linear and "
                     "llama3 are",
                     at->file, kind);
}

/* ---- sizes --------------------------------------------------------------- */

enum dyt_status dyti_config_dtype(const struct dyti_config_at *at,
                                  enum dyti_dtype *out)
{
    const char *name;
    enum dyt_status st =
        dyti_config_text_or(at, "torch_dtype", "float32", &name);

    if (st == DYT_OK) {
        st = dyti_config_text_or(at, "dtype", name, &name);
    }
    if (st != DYT_OK) {
        return st;
    }
    if (strcmp(name, "float32") == 0) {
        *out = DYTI_F32;
    } else if (strcmp(name, "bfloat16") == 0) {
        *out = DYTI_BF16;
    } else if (strcmp(name, "float16") == 0) {
        *out = DYTI_F16;
    } else {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s: dtype %s is not available; float32, bfloat16 "
                         "and float16 are",
                         at->file, name);
    }
    return DYT_OK;
}

static enum dyt_status check_heads(const struct dyti_config_at *at,
                                   struct dyti_arch *a)
{
    if (a->q_heads % a->kv_heads != 0) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s: num_key_value_heads %lld does not divide "
                         "num_attention_heads %lld",
                         at->file, (long long)a->kv_heads,
                         (long long)a->q_heads);
    }
    if (a->head_dim == 0) {
        if (a->hidden % a->q_heads != 0) {
            return DYTI_FAIL(DYT_ERR_FORMAT,
                             "%s: hidden_size %lld is not a multiple of "
                             "num_attention_heads %lld and head_dim is missing",
                             at->file, (long long)a->hidden,
                             (long long)a->q_heads);
        }
        a->head_dim = a->hidden / a->q_heads;
    }
    if (a->head_dim % 2 != 0) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s: an odd head_dim (%lld) is not available",
                         at->file, (long long)a->head_dim);
    }
    return DYT_OK;
}

static enum dyt_status read_sizes(const struct dyti_config_at *at,
                                  const struct family_row *row,
                                  struct dyti_arch *a)
{
    int64_t head_dim_or = row->head_dim, kv_or = row->kv_heads;
    const struct {
        const char *key;
        int64_t *out;
    } needed[] = {
        {"vocab_size", &a->vocab},         {"hidden_size", &a->hidden},
        {"num_hidden_layers", &a->layers}, {"num_attention_heads", &a->q_heads},
        {"intermediate_size", &a->ffn},
    };
    enum dyt_status st;

    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        st = dyti_config_int(at, needed[i].key, 1, MOST_SIZE, needed[i].out);
        if (st != DYT_OK) {
            return st;
        }
    }
    /* A key that is there and null means "work it out", absent "the class
     * default". */
    if (dyti_config_given(at, "num_key_value_heads") || kv_or == 0) {
        kv_or = a->q_heads;
    }
    if (dyti_config_given(at, "head_dim")) {
        head_dim_or = 0;
    }
    st = dyti_config_int_or(at, "num_key_value_heads", 1, a->q_heads, kv_or,
                            &a->kv_heads);
    if (st == DYT_OK) {
        st = dyti_config_int_or(at, "head_dim", 1, MOST_SIZE, head_dim_or,
                                &a->head_dim);
    }
    if (st == DYT_OK) {
        st = dyti_config_int_or(at, "max_position_embeddings", 1, MOST_SIZE,
                                row->max_positions, &a->max_positions);
    }
    return st == DYT_OK ? check_heads(at, a) : st;
}

static enum dyt_status read_rest(const struct dyti_config_at *at,
                                 struct dyti_arch *a)
{
    enum dyt_status st;

    st = dyti_config_real_or(at, "rms_norm_eps", 1e-6, &a->rms_eps);
    if (st == DYT_OK) {
        st = dyti_config_real_or(at, "initializer_range", 0.02, &a->init_std);
    }
    if (st == DYT_OK) {
        st = dyti_config_bool_or(at, "tie_word_embeddings", false, &a->tied);
    }
    if (st == DYT_OK) {
        st = dyti_config_dtype(at, &a->dtype);
    }
    if (st == DYT_OK && (!(a->rms_eps >= 0) || !(a->init_std >= 0))) {
        st = DYTI_FAIL(DYT_ERR_FORMAT,
                       "%s: rms_norm_eps and initializer_range must not be "
                       "negative",
                       at->file);
    }
    a->qkv_bias = a->family == DYTI_QWEN2;
    a->qk_norm = a->family == DYTI_QWEN3;
    return st;
}

enum dyt_status dyti_config_arch(const struct dyti_config *config,
                                 const char *file, struct dyti_arch *out_arch)
{
    const struct dyti_config_at place = {file, "", config}, *at = &place;
    struct dyti_arch arch = {0};
    const struct family_row *row = NULL;
    enum dyti_family planned;
    const char *type = NULL;
    bool window = false;
    enum dyt_status st = dyti_config_text_or(at, "model_type", NULL, &type);

    if (st == DYT_OK && type != NULL &&
        dyti_config_planned_has(type, &planned)) {
        return dyti_config_planned_read(at, planned, out_arch);
    }
    st = st != DYT_OK ? st : find_family(at, &row);
    if (st != DYT_OK) {
        return st;
    }
    arch.family = row->family;
    st = refuse_features(at);
    if (st == DYT_OK) {
        st = check_activation(at);
    }
    if (st == DYT_OK) {
        st = read_sizes(at, row, &arch);
    }
    if (st == DYT_OK) {
        st = read_rest(at, &arch);
    }
    if (st == DYT_OK) {
        st = read_rope(at, &arch.rope);
    }
    if (st == DYT_OK) {
        st = window_in_use(at, row, &arch, &window);
    }
    if (st == DYT_OK) {
        st = check_window(at, row, &arch, window);
    }
    if (st == DYT_OK) {
        *out_arch = arch;
    }
    return st;
}
