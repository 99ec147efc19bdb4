/* Random models: presets, the value of each element, and the files. */
#include "format/model_init.h"

#include "format/file.h"
#include "format/hf_config.h"
#include "format/json_file.h"
#include "format/tokenizer_text.h"
#include "format/weights.h"

#include "base/rng.h"

#include "base/banned.h"

#include <errno.h>
#include <math.h>
#include <unistd.h>

#define CHUNK_ELEMENTS 65536

#define ROPE(theta)                                                            \
    {                                                                          \
        DYTI_ROPE_DEFAULT, theta, 1, 0, 0, 0                                   \
    }

/* No experts, plain attention without a gate. */
/* clang-format off */
#define DENSE {0}, {0}, false
/* clang-format on */

static const struct dyti_model_preset presets[] = {
    {"tiny",
     "Llama, 97,280 parameters, 43 characters: the quickstart's model",
     {DYTI_LLAMA, 43, 64, 2, 4, 4, 16, 160, 64, 1e-6, 0.08, ROPE(10000), true,
      false, false, DYTI_F32, DENSE}},
    {"small",
     "Llama, 1.4 million parameters, 43 characters, grouped KV heads",
     {DYTI_LLAMA, 43, 192, 4, 6, 2, 32, 512, 256, 1e-6, 0.04, ROPE(10000), true,
      false, false, DYTI_F32, DENSE}},
    {"test-gqa",
     "Llama with 9 query and 3 KV heads: nothing divides evenly",
     {DYTI_LLAMA, 50, 48, 3, 9, 3, 8, 100, 64, 1e-5, 0.08, ROPE(10000), true,
      false, false, DYTI_F32, DENSE}},
    {"test-llama3",
     "Llama with banded rope, head not tied",
     {DYTI_LLAMA,
      50,
      40,
      2,
      4,
      2,
      10,
      90,
      64,
      1e-5,
      0.08,
      {DYTI_ROPE_LLAMA3, 500000, 8, 1, 4, 32},
      false,
      false,
      false,
      DYTI_F32,
      DENSE}},
    {"test-mistral",
     "Mistral, head not tied",
     {DYTI_MISTRAL, 50, 48, 3, 6, 2, 8, 100, 64, 1e-5, 0.08, ROPE(1000000),
      false, false, false, DYTI_F32, DENSE}},
    {"test-qwen2",
     "Qwen2: bias on q, k and v, head not tied",
     {DYTI_QWEN2, 51, 48, 3, 6, 3, 8, 100, 64, 1e-6, 0.08, ROPE(1000000), false,
      true, false, DYTI_F32, DENSE}},
    {"test-qwen3",
     "Qwen3: norms on q and k, heads wider than hidden, tied",
     {DYTI_QWEN3, 53, 40, 3, 5, 1, 16, 72, 64, 1e-6, 0.08, ROPE(1000000), true,
      false, true, DYTI_F32, DENSE}},
    {"test-moe",
     "Qwen3-MoE, 5 experts: laid out, planned and converted, not run",
     {.family = DYTI_QWEN3_MOE,
      .vocab = 50,
      .hidden = 16,
      .layers = 3,
      .q_heads = 8,
      .kv_heads = 2,
      .head_dim = 2,
      .ffn = 24,
      .max_positions = 64,
      .rms_eps = 1e-6,
      .init_std = 0.08,
      .rope = ROPE(10000),
      .qk_norm = true,
      .moe = {.count = 5, .per_token = 2, .ffn = 12, .layer_step = 1}}},
    {"test-mla",
     "DeepSeek-V3 style attention, shared and routed experts: likewise",
     {.family = DYTI_DEEPSEEK_V3,
      .vocab = 50,
      .hidden = 16,
      .layers = 4,
      .q_heads = 8,
      .kv_heads = 8,
      .head_dim = 6,
      .ffn = 24,
      .max_positions = 64,
      .rms_eps = 1e-6,
      .init_std = 0.08,
      .rope = ROPE(10000),
      .moe = {.count = 5,
              .per_token = 2,
              .ffn = 12,
              .shared_ffn = 24,
              .first_layer = 1,
              .layer_step = 1,
              .router_bias = true},
      .mla = {.q_lora = 10,
              .kv_lora = 8,
              .rope_dim = 2,
              .nope_dim = 4,
              .v_dim = 5}}},
    {"test-gpt2",
     "GPT-2: fused QKV, weights stored [in, out]: likewise",
     {.family = DYTI_GPT2,
      .vocab = 50,
      .hidden = 16,
      .layers = 3,
      .q_heads = 4,
      .kv_heads = 4,
      .head_dim = 4,
      .ffn = 64,
      .max_positions = 64,
      .rms_eps = 1e-5,
      .init_std = 0.08,
      .rope = ROPE(10000),
      .tied = true}},
};
#define PRESET_COUNT (sizeof(presets) / sizeof(presets[0]))

const struct dyti_model_preset *dyti_model_preset_at(size_t index)
{
    return index < PRESET_COUNT ? &presets[index] : NULL;
}

enum dyt_status dyti_model_preset_find(
    const char *name, const struct dyti_model_preset **out_preset)
{
    char list[512] = "";
    size_t used = 0;

    for (size_t i = 0; i < PRESET_COUNT; i++) {
        if (strcmp(presets[i].name, name) == 0) {
            *out_preset = &presets[i];
            return DYT_OK;
        }
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
                                 i > 0 ? ", " : "", presets[i].name);
    }
    return DYTI_FAIL(DYT_ERR_INVALID, "no preset \"%.60s\"; there are %s", name,
                     list);
}

/* ---- values ------------------------------------------------------------- */

static bool is_norm(enum dyti_slot slot)
{
    return slot == DYTI_SLOT_INPUT_NORM || slot == DYTI_SLOT_POST_NORM ||
           slot == DYTI_SLOT_Q_NORM || slot == DYTI_SLOT_K_NORM ||
           slot == DYTI_SLOT_Q_A_NORM || slot == DYTI_SLOT_KV_A_NORM ||
           slot == DYTI_SLOT_FINAL_NORM;
}

float dyti_model_init_value(const struct dyti_model *model, uint32_t tensor,
                            uint64_t index, uint64_t seed)
{
    double u, v;

    if (is_norm(model->tensor[tensor].slot)) {
        return 1.0f;
    }
    u = 1.0 - dyti_rng_unit(dyti_rng_u64(seed, tensor, index, 0)); /* (0, 1] */
    v = dyti_rng_unit(dyti_rng_u64(seed, tensor, index, 1));
    return (float)(model->arch.init_std * sqrt(-2.0 * log(u)) *
                   cos(6.283185307179586 * v));
}

/* ---- weights ------------------------------------------------------------ */

/* One tensor, some rows at a time. */
static enum dyt_status write_tensor(int fd, const char *path,
                                    const struct dyti_safetensors_plan *plan,
                                    const struct dyti_model *model, uint32_t t,
                                    uint64_t seed)
{
    const struct dyti_tensor *tensor = &model->tensor[t];
    uint64_t total = dyti_tensor_elements(tensor);
    int64_t rows = tensor->shape[0], row = (int64_t)total / rows;
    int64_t at_once = CHUNK_ELEMENTS / row > 0 ? CHUNK_ELEMENTS / row : 1;
    int64_t stride[DYT_MAX_DIMS] = {0};
    struct dyt_box box = {.ndim = tensor->ndim};
    float *chunk = malloc((size_t)(at_once * row) * sizeof(float));
    enum dyt_status st = DYT_OK;

    if (chunk == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s", tensor->name);
    }
    memcpy(box.hi, tensor->shape, sizeof(box.hi));
    stride[tensor->ndim - 1] = sizeof(float);
    for (uint32_t d = tensor->ndim - 1; d-- > 0;) {
        stride[d] = stride[d + 1] * tensor->shape[d + 1];
    }
    for (int64_t lo = 0; lo < rows && st == DYT_OK; lo += at_once) {
        box.lo[0] = lo;
        box.hi[0] = lo + at_once < rows ? lo + at_once : rows;
        for (int64_t i = 0; i < (box.hi[0] - lo) * row; i++) {
            chunk[i] =
                dyti_model_init_value(model, t, (uint64_t)(lo * row + i), seed);
        }
        st = dyti_safetensors_write_box(fd, path, plan, t, &box, DYTI_F32,
                                        chunk, stride);
    }
    free(chunk);
    return st;
}

static enum dyt_status write_all(int fd, const char *path,
                                 const struct dyti_safetensors_plan *plan,
                                 const struct dyti_model *model, uint64_t seed)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t t = 0; t < model->tensor_count && st == DYT_OK; t++) {
        st = write_tensor(fd, path, plan, model, t, seed);
    }
    if (st == DYT_OK && fsync(fd) != 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: fsync: %s", path, strerror(errno));
    }
    return st;
}

static enum dyt_status write_weights(const char *dir,
                                     const struct dyti_model *model,
                                     uint64_t seed)
{
    struct dyti_safetensors_plan plan = {0};
    char temp[DYTI_PATH_BYTES], path[DYTI_PATH_BYTES];
    int fd = -1;
    enum dyt_status st = dyti_path_join(path, dir, "model.safetensors");

    if (st == DYT_OK) {
        st = dyti_path_join(temp, dir, "model.safetensors.tmp");
    }
    if (st == DYT_OK) {
        st = dyti_weights_plan(model, model->arch.dtype, &plan);
    }
    if (st == DYT_OK) {
        st = dyti_safetensors_create(temp, &plan, &fd);
    }
    if (st != DYT_OK) {
        goto out;
    }
    st = write_all(fd, temp, &plan, model, seed);
    close(fd);
    if (st == DYT_OK && rename(temp, path) != 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: rename: %s", path, strerror(errno));
    }
    if (st == DYT_OK) {
        st = dyti_dir_sync(dir);
    } else {
        unlink(temp);
    }
out:
    dyti_safetensors_plan_fini(&plan);
    return st;
}

/* ---- the tokenizer ------------------------------------------------------ */

static json_t *character_vocabulary(void)
{
    json_t *vocab = json_object();

    for (size_t i = 0; vocab != NULL && i < sizeof(DYTI_INIT_CHARS) - 1; i++) {
        char text[5] = "";
        size_t length = dyti_utf8_put(
            dyti_byte_char((unsigned char)DYTI_INIT_CHARS[i]), text);

        text[length] = '\0';
        if (json_object_set_new(vocab, text, json_integer((json_int_t)i)) !=
            0) {
            json_decref(vocab);
            vocab = NULL;
        }
    }
    return vocab;
}

static enum dyt_status write_tokenizer(const char *dir)
{
    char path[DYTI_PATH_BYTES];
    json_t *json;
    enum dyt_status st = dyti_path_join(path, dir, "tokenizer.json");

    if (st != DYT_OK) {
        return st;
    }
    json = json_pack(
        "{s:s,s:n,s:n,s:[],s:n,s:{s:s,s:b,s:b,s:b},s:n,s:{s:s,s:b,s:b,s:b},"
        "s:{s:s,s:n,s:n,s:n,s:n,s:b,s:b,s:b,s:o,s:[]}}",
        "version", "1.0", "truncation", "padding", "added_tokens", "normalizer",
        "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0,
        "trim_offsets", 1, "use_regex", 0, "post_processor", "decoder", "type",
        "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 0,
        "model", "type", "BPE", "dropout", "unk_token",
        "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
        "byte_fallback", 0, "ignore_merges", 0, "vocab", character_vocabulary(),
        "merges");
    if (json == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s", path);
    }
    st = dyti_json_save(path, json);
    json_decref(json);
    return st;
}

static enum dyt_status write_tokenizer_config(const char *dir,
                                              const struct dyti_arch *arch)
{
    char path[DYTI_PATH_BYTES];
    json_t *json;
    enum dyt_status st = dyti_path_join(path, dir, "tokenizer_config.json");

    if (st != DYT_OK) {
        return st;
    }
    json =
        json_pack("{s:s,s:I,s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                  "model_max_length", (json_int_t)arch->max_positions,
                  "clean_up_tokenization_spaces", 0);
    if (json == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s", path);
    }
    st = dyti_json_save(path, json);
    json_decref(json);
    return st;
}

/* ---- the directory ------------------------------------------------------ */

static enum dyt_status refuse_existing(const char *dir)
{
    char path[DYTI_PATH_BYTES];
    enum dyt_status st = dyti_path_join(path, dir, "config.json");

    if (st == DYT_OK && dyti_file_exists(path)) {
        st = DYTI_FAIL(DYT_ERR_STATE,
                       "%s: there is a model already; overwriting it must be "
                       "asked for",
                       dir);
    }
    return st;
}

enum dyt_status dyti_model_init(const char *dir,
                                const struct dyti_model_preset *preset,
                                uint64_t seed, bool overwrite)
{
    /* A line ends an answer: "\n" is the first character of the vocabulary. */
    const struct dyti_generation_config gen = {.bos = -1,
                                               .pad = -1,
                                               .eos = {0},
                                               .eos_count = 1,
                                               .do_sample = true,
                                               .temperature = 1,
                                               .top_p = 1,
                                               .repetition_penalty = 1};
    struct dyti_model *model = NULL;
    enum dyt_status st = overwrite ? DYT_OK : refuse_existing(dir);

    if (st == DYT_OK) {
        st = dyti_model_build(&preset->arch, &model);
    }
    if (st == DYT_OK) {
        st = dyti_dir_make(dir);
    }
    if (st == DYT_OK) {
        st = dyti_hf_config_write(dir, &preset->arch, &gen);
    }
    if (st == DYT_OK) {
        st = dyti_generation_config_write(dir, &gen);
    }
    if (st == DYT_OK) {
        st = write_tokenizer(dir);
    }
    if (st == DYT_OK) {
        st = write_tokenizer_config(dir, &preset->arch);
    }
    if (st == DYT_OK) {
        st = write_weights(dir, model, seed);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("making a %s model in %s", preset->name, dir);
    }
    dyti_model_destroy(model);
    return st;
}
