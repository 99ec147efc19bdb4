/* struct dyti_arch → config.json, and generation_config.json both ways. */
#include "format/file.h"
#include "format/hf_config.h"
#include "format/hf_planned.h"
#include "format/json_file.h"

#include "base/banned.h"

static const struct {
    const char *model_type, *architecture;
} names[DYTI_FAMILY_COUNT] = {
    [DYTI_LLAMA] = {"llama", "LlamaForCausalLM"},
    [DYTI_MISTRAL] = {"mistral", "MistralForCausalLM"},
    [DYTI_QWEN2] = {"qwen2", "Qwen2ForCausalLM"},
    [DYTI_QWEN3] = {"qwen3", "Qwen3ForCausalLM"},
};

static const char *dtype_name(enum dyti_dtype dtype)
{
    return dtype == DYTI_BF16  ? "bfloat16"
           : dtype == DYTI_F16 ? "float16"
                               : "float32";
}

static json_t *rope_scaling(const struct dyti_rope *rope)
{
    if (rope->kind == DYTI_ROPE_LINEAR) {
        return json_pack("{s:s,s:s,s:f}", "rope_type", "linear", "type",
                         "linear", "factor", rope->factor);
    }
    if (rope->kind == DYTI_ROPE_LLAMA3) {
        return json_pack("{s:s,s:f,s:f,s:f,s:I}", "rope_type", "llama3",
                         "factor", rope->factor, "low_freq_factor",
                         rope->low_freq, "high_freq_factor", rope->high_freq,
                         "original_max_position_embeddings",
                         (json_int_t)rope->original_max);
    }
    return json_null();
}

/* null, one id, or a list: the forms that transformers writes. */
static json_t *ids(const int32_t *id, uint32_t count)
{
    json_t *list;

    if (count == 0) {
        return json_null();
    }
    if (count == 1) {
        return json_integer(id[0]);
    }
    list = json_array();
    for (uint32_t i = 0; i < count && list != NULL; i++) {
        if (json_array_append_new(list, json_integer(id[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *id_or_null(int32_t id)
{
    return id < 0 ? json_null() : json_integer(id);
}

static enum dyt_status put_ids(json_t *to,
                               const struct dyti_generation_config *gen)
{
    enum dyt_status st =
        dyti_json_put(to, "bos_token_id", id_or_null(gen->bos));

    if (st == DYT_OK) {
        st = dyti_json_put(to, "eos_token_id", ids(gen->eos, gen->eos_count));
    }
    if (st == DYT_OK && gen->pad >= 0) {
        st = dyti_json_put(to, "pad_token_id", json_integer(gen->pad));
    }
    return st;
}

static json_t *arch_json(const struct dyti_arch *a)
{
    return json_pack(
        "{s:[s],s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:f,s:f,s:o,s:b,s:b,"
        "s:s,s:s,s:n}",
        "architectures", names[a->family].architecture, "model_type",
        names[a->family].model_type, "vocab_size", (json_int_t)a->vocab,
        "hidden_size", (json_int_t)a->hidden, "num_hidden_layers",
        (json_int_t)a->layers, "num_attention_heads", (json_int_t)a->q_heads,
        "num_key_value_heads", (json_int_t)a->kv_heads, "head_dim",
        (json_int_t)a->head_dim, "intermediate_size", (json_int_t)a->ffn,
        "max_position_embeddings", (json_int_t)a->max_positions, "rms_norm_eps",
        a->rms_eps, "initializer_range", a->init_std, "rope_theta",
        a->rope.theta, "rope_scaling", rope_scaling(&a->rope),
        "tie_word_embeddings", (int)a->tied, "use_cache", 1, "torch_dtype",
        dtype_name(a->dtype), "hidden_act", "silu", "sliding_window");
}

enum dyt_status dyti_hf_config_write(const char *dir,
                                     const struct dyti_arch *arch,
                                     const struct dyti_generation_config *gen)
{
    char path[DYTI_PATH_BYTES];
    json_t *json = NULL;
    enum dyt_status st = dyti_path_join(path, dir, "config.json");

    if (st != DYT_OK) {
        return st;
    }
    json = arch->family <= DYTI_QWEN3 ? arch_json(arch)
                                      : dyti_hf_planned_json(arch);
    if (json == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s", path);
    }
    if (gen != NULL) {
        st = put_ids(json, gen);
    }
    if (st == DYT_OK) {
        st = dyti_json_save(path, json);
    }
    json_decref(json);
    return st;
}

enum dyt_status dyti_generation_config_write(
    const char *dir, const struct dyti_generation_config *gen)
{
    char path[DYTI_PATH_BYTES];
    json_t *json = NULL;
    enum dyt_status st = dyti_path_join(path, dir, "generation_config.json");

    if (st != DYT_OK) {
        return st;
    }
    json = json_pack("{s:b,s:f,s:f,s:i}", "do_sample", (int)gen->do_sample,
                     "temperature", gen->temperature, "top_p", gen->top_p,
                     "top_k", (int)gen->top_k);
    if (json == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s", path);
    }
    st = put_ids(json, gen);
    if (st == DYT_OK && gen->min_p > 0) {
        st = dyti_json_put(json, "min_p", json_real(gen->min_p));
    }
    if (st == DYT_OK &&
        (gen->repetition_penalty < 1 || gen->repetition_penalty > 1)) {
        st = dyti_json_put(json, "repetition_penalty",
                           json_real(gen->repetition_penalty));
    }
    if (st == DYT_OK) {
        st = dyti_json_save(path, json);
    }
    json_decref(json);
    return st;
}

/* ---- reading ------------------------------------------------------------ */

static enum dyt_status one_id(const struct dyti_json_at *at, const char *key,
                              const json_t *value, int32_t *out)
{
    json_int_t x = json_integer_value(value);

    if (!json_is_integer(value) || x < 0 || x > INT32_MAX) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s must be a token id", at->file,
                         key);
    }
    *out = (int32_t)x;
    return DYT_OK;
}

static enum dyt_status read_eos(const struct dyti_json_at *at,
                                struct dyti_generation_config *gen)
{
    const json_t *value = dyti_json_get(at, "eos_token_id");
    enum dyt_status st = DYT_OK;
    uint32_t count = 0;

    if (value == NULL) {
        return DYT_OK;
    }
    if (!json_is_array(value)) {
        gen->eos_count = 1;
        return one_id(at, "eos_token_id", value, &gen->eos[0]);
    }
    if (json_array_size(value) > DYTI_MAX_EOS) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s: %zu ids in eos_token_id; at most %u are taken",
                         at->file, json_array_size(value), DYTI_MAX_EOS);
    }
    for (size_t i = 0; i < json_array_size(value) && st == DYT_OK; i++) {
        st = one_id(at, "eos_token_id", json_array_get(value, i),
                    &gen->eos[count++]);
    }
    gen->eos_count = count;
    return st;
}

static enum dyt_status read_ids(const struct dyti_json_at *at,
                                struct dyti_generation_config *gen)
{
    const json_t *bos = dyti_json_get(at, "bos_token_id");
    const json_t *pad = dyti_json_get(at, "pad_token_id");
    enum dyt_status st = read_eos(at, gen);

    if (st == DYT_OK && bos != NULL) {
        st = one_id(at, "bos_token_id", bos, &gen->bos);
    }
    if (st == DYT_OK && pad != NULL) {
        st = one_id(at, "pad_token_id", pad, &gen->pad);
    }
    return st;
}

static enum dyt_status read_sampling(const struct dyti_json_at *at,
                                     struct dyti_generation_config *gen)
{
    int64_t top_k;
    enum dyt_status st;

    st = dyti_json_bool_or(at, "do_sample", false, &gen->do_sample);
    if (st == DYT_OK) {
        st = dyti_json_real_or(at, "temperature", 1, &gen->temperature);
    }
    if (st == DYT_OK) {
        st = dyti_json_real_or(at, "top_p", 1, &gen->top_p);
    }
    if (st == DYT_OK) {
        st = dyti_json_real_or(at, "min_p", 0, &gen->min_p);
    }
    if (st == DYT_OK) {
        st = dyti_json_real_or(at, "repetition_penalty", 1,
                               &gen->repetition_penalty);
    }
    if (st == DYT_OK) {
        st = dyti_json_int_or(at, "top_k", 0, INT32_MAX, 0, &top_k);
    }
    if (st == DYT_OK) {
        gen->top_k = (int32_t)top_k;
    }
    return st;
}

enum dyt_status dyti_generation_config_read(
    const char *dir, struct dyti_generation_config *out_gen)
{
    struct dyti_generation_config gen = {.bos = -1, .pad = -1};
    char path[DYTI_PATH_BYTES], own[DYTI_PATH_BYTES];
    struct dyti_json_at base = {path, "", NULL}, at = {own, "", NULL};
    json_t *model = NULL, *json = NULL;
    enum dyt_status st = dyti_path_join(path, dir, "config.json");

    if (st == DYT_OK) {
        st = dyti_path_join(own, dir, "generation_config.json");
    }
    if (st == DYT_OK) {
        st = dyti_json_load(path, &model);
    }
    if (st == DYT_OK && dyti_file_exists(own)) {
        st = dyti_json_load(own, &json);
    }
    if (st == DYT_OK) {
        base.object = model;
        at.object = json;
        st = read_ids(&base, &gen);
    }
    if (st == DYT_OK) {
        st = read_ids(&at, &gen);
    }
    if (st == DYT_OK) {
        st = read_sampling(&at, &gen);
    }
    if (st == DYT_OK) {
        *out_gen = gen;
    }
    json_decref(model);
    json_decref(json);
    return st;
}
