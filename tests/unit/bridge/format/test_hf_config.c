/* config.json: what the families fill in, what is refused and by which name,
 * and that what we write is read back. */
#include "dyt_test.h"

#include "arch_cases.h"

#include "format/hf_config.h"

#define LLAMA                                                                  \
    "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],"      \
    "\"vocab_size\":49152,\"hidden_size\":576,\"num_hidden_layers\":30,"       \
    "\"num_attention_heads\":9,\"num_key_value_heads\":3,"                     \
    "\"intermediate_size\":1536,\"max_position_embeddings\":2048,"             \
    "\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true,"                      \
    "\"torch_dtype\":\"bfloat16\",\"rope_theta\":100000,"                      \
    "\"attention_bias\":false,\"mlp_bias\":false,\"rope_scaling\":null,"       \
    "\"transformers_version\":\"4.42.3\",\"use_cache\":true"
#define OTHER(type, class)                                                     \
    "{\"model_type\":\"" type                                                  \
    "\",\"architectures\":[\"" class "\"],"                                    \
                                     "\"vocab_size\":1000,\"hidden_size\":"    \
                                     "256,\"num_hidden_layers\":4,"            \
                                     "\"num_attention_heads\":32,"             \
                                     "\"intermediate_size\":512"

static enum dyt_status parse(const char *text, struct dyti_arch *arch)
{
    return dyti_hf_config_parse("m/config.json", text, strlen(text), arch);
}

static void smollm2_gives_all_sizes(void **state)
{
    struct dyti_arch a;

    (void)state;
    assert_ok(parse(LLAMA "}", &a));
    assert_int_equal(DYTI_LLAMA, a.family);
    assert_int_equal(49152, a.vocab);
    assert_int_equal(576, a.hidden);
    assert_int_equal(30, a.layers);
    assert_int_equal(9, a.q_heads);
    assert_int_equal(3, a.kv_heads);
    assert_int_equal(64, a.head_dim);
    assert_int_equal(1536, a.ffn);
    assert_int_equal(2048, a.max_positions);
    assert_true(a.tied && !a.qkv_bias && !a.qk_norm);
    assert_int_equal(DYTI_BF16, a.dtype);
    assert_int_equal(DYTI_ROPE_DEFAULT, a.rope.kind);
    assert_true(a.rope.theta == 100000.0 && a.rms_eps == 1e-5);
}

static void families_fill_in_their_defaults(void **state)
{
    static const struct {
        const char *text;
        enum dyti_family family;
        int64_t kv_heads, head_dim, max_positions;
        bool qkv_bias, qk_norm;
    } row[] = {
        {OTHER("llama", "LlamaForCausalLM") "}", DYTI_LLAMA, 32, 8, 2048, false,
         false},
        {OTHER("mistral", "MistralForCausalLM") ",\"sliding_window\":null}",
         DYTI_MISTRAL, 8, 8, 131072, false, false},
        {OTHER("qwen2", "Qwen2ForCausalLM") ",\"use_sliding_window\":false}",
         DYTI_QWEN2, 32, 8, 32768, true, false},
        {OTHER("qwen3", "Qwen3ForCausalLM") "}", DYTI_QWEN3, 32, 128, 32768,
         false, true},
        {OTHER("qwen3", "Qwen3ForCausalLM") ",\"head_dim\":null}", DYTI_QWEN3,
         32, 8, 32768, false, true},
        {OTHER("mistral",
               "MistralForCausalLM") ",\"num_key_value_heads\":null,\"sliding_"
                                     "window\":4096,"
                                     "\"max_position_embeddings\":4096}",
         DYTI_MISTRAL, 32, 8, 4096, false, false},
        {OTHER("qwen2", "Qwen2ForCausalLM") ",\"use_sliding_window\":true,"
                                            "\"max_window_layers\":4}",
         DYTI_QWEN2, 32, 8, 32768, true, false},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_arch a;

        assert_ok(parse(row[i].text, &a));
        if (a.family != row[i].family || a.kv_heads != row[i].kv_heads ||
            a.head_dim != row[i].head_dim ||
            a.max_positions != row[i].max_positions ||
            a.qkv_bias != row[i].qkv_bias || a.qk_norm != row[i].qk_norm) {
            fail_msg("row %zu: kv %lld dim %lld max %lld", i,
                     (long long)a.kv_heads, (long long)a.head_dim,
                     (long long)a.max_positions);
        }
        assert_true(a.rope.theta == 10000.0 && !a.tied);
        assert_int_equal(DYTI_F32, a.dtype);
    }
}

static void rope_kinds_old_and_new(void **state)
{
    struct dyti_arch a;

    (void)state;
    assert_ok(parse(
        OTHER("llama",
              "LlamaForCausalLM") ",\"rope_theta\":500000.0,\"rope_scaling\":{"
                                  "\"factor\":32,"
                                  "\"low_freq_factor\":1.0,\"high_freq_"
                                  "factor\":4.0,"
                                  "\"original_max_position_embeddings\":8192,"
                                  "\"rope_type\":\"llama3\"}}",
        &a));
    assert_int_equal(DYTI_ROPE_LLAMA3, a.rope.kind);
    assert_true(a.rope.theta == 500000.0 && a.rope.factor == 32.0);
    assert_true(a.rope.low_freq == 1.0 && a.rope.high_freq == 4.0);
    assert_int_equal(8192, a.rope.original_max);

    assert_ok(
        parse(OTHER("llama", "LlamaForCausalLM") ",\"rope_scaling\":{\"type\":"
                                                 "\"linear\",\"factor\":2.5}}",
              &a));
    assert_int_equal(DYTI_ROPE_LINEAR, a.rope.kind);
    assert_true(a.rope.factor == 2.5);

    assert_ok(
        parse(OTHER("qwen3", "Qwen3ForCausalLM") ",\"rope_parameters\":{\"rope_"
                                                 "type\":\"default\","
                                                 "\"rope_theta\":1000000}}",
              &a));
    assert_int_equal(DYTI_ROPE_DEFAULT, a.rope.kind);
    assert_true(a.rope.theta == 1000000.0);
}

static void wrong_configs_are_named(void **state)
{
    static const struct {
        const char *text;
        enum dyt_status want;
        const char *says;
    } row[] = {
        {"{", DYT_ERR_FORMAT, "m/config.json:1:1"},
        {"[]", DYT_ERR_FORMAT, "object"},
        {"{} x", DYT_ERR_FORMAT, "end of file"},
        {"{}", DYT_ERR_FORMAT, "model_type is missing"},
        {"{\"model_type\":\"bloom\"}", DYT_ERR_UNSUPPORTED, "bloom"},
        {"{\"model_type\":\"mixtral\"}", DYT_ERR_FORMAT,
         "vocab_size is missing"},
        {"{\"model_type\":\"gpt2\",\"n_embd\":10,\"n_head\":3}", DYT_ERR_FORMAT,
         "not a multiple of 3 heads"},
        {OTHER("qwen3_moe", "Qwen3MoeForCausalLM") "}", DYT_ERR_FORMAT,
         "num_experts is missing"},
        {OTHER("qwen3_moe", "Qwen3MoeForCausalLM") ",\"num_experts\":4,"
                                                   "\"moe_intermediate_size\":"
                                                   "8,\"mlp_only_layers\":[1]}",
         DYT_ERR_UNSUPPORTED, "mlp_only_layers"},
        {OTHER("deepseek_v3",
               "DeepseekV3ForCausalLM") ",\"n_routed_experts\":0}",
         DYT_ERR_FORMAT, "n_routed_experts is 0"},
        {"{\"model_type\":7}", DYT_ERR_FORMAT, "model_type must be a string"},
        {"{\"model_type\":\"llama\"}", DYT_ERR_FORMAT, "vocab_size is missing"},
        {"{\"model_type\":\"llama\",\"model_type\":\"llama\"}", DYT_ERR_FORMAT,
         "duplicate"},
        {LLAMA ",\"hidden_size\":576}", DYT_ERR_FORMAT, "duplicate"},
        {OTHER("llama", "LlamaForSequenceClassification") "}",
         DYT_ERR_UNSUPPORTED, "LlamaForSequenceClassification"},
        {OTHER("llama", "LlamaForCausalLM\",\"Other") "}", DYT_ERR_FORMAT,
         "architectures"},
        {OTHER("llama", "LlamaForCausalLM") ",\"attention_bias\":true}",
         DYT_ERR_UNSUPPORTED, "attention_bias"},
        {OTHER("qwen3", "Qwen3ForCausalLM") ",\"attention_bias\":true}",
         DYT_ERR_UNSUPPORTED, "attention_bias"},
        {OTHER("qwen3", "Qwen3ForCausalLM") ",\"attn_output_gate\":true}",
         DYT_ERR_UNSUPPORTED, "attn_output_gate"},
        {OTHER("llama", "LlamaForCausalLM") ",\"mlp_bias\":true}",
         DYT_ERR_UNSUPPORTED, "mlp_bias"},
        {OTHER("llama", "LlamaForCausalLM") ",\"hidden_act\":\"gelu\"}",
         DYT_ERR_UNSUPPORTED, "hidden_act gelu"},
        {OTHER("llama", "LlamaForCausalLM") ",\"partial_rotary_factor\":0.5}",
         DYT_ERR_UNSUPPORTED, "partial_rotary_factor"},
        {OTHER("llama", "LlamaForCausalLM") ",\"rope_parameters\":{\"partial_"
                                            "rotary_factor\":0.5}}",
         DYT_ERR_UNSUPPORTED, "partial_rotary_factor"},
        {OTHER("llama", "LlamaForCausalLM") ",\"rope_parameters\":{\"full_"
                                            "attention\":{}}}",
         DYT_ERR_UNSUPPORTED, "layer type"},
        {OTHER("llama",
               "LlamaForCausalLM") ",\"quantization_config\":{\"bits\":4}}",
         DYT_ERR_UNSUPPORTED, "quantization_config"},
        {OTHER("llama", "LlamaForCausalLM") ",\"rope_scaling\":{\"type\":"
                                            "\"yarn\",\"factor\":4}}",
         DYT_ERR_UNSUPPORTED, "rope kind yarn"},
        {OTHER("llama", "LlamaForCausalLM") ",\"rope_scaling\":{\"rope_type\":"
                                            "\"dynamic\"}}",
         DYT_ERR_UNSUPPORTED, "rope kind dynamic"},
        {OTHER("llama", "LlamaForCausalLM") ",\"rope_scaling\":{\"rope_type\":"
                                            "\"llama3\",\"factor\":8}}",
         DYT_ERR_FORMAT, "original_max_position_embeddings"},
        {OTHER("llama", "LlamaForCausalLM") ",\"rope_scaling\":3}",
         DYT_ERR_FORMAT, "rope_scaling must be an object"},
        {OTHER("mistral", "MistralForCausalLM") "}", DYT_ERR_UNSUPPORTED,
         "sliding_window 4096"},
        {OTHER("qwen2", "Qwen2ForCausalLM") ",\"use_sliding_window\":true,"
                                            "\"max_window_layers\":2}",
         DYT_ERR_UNSUPPORTED, "sliding_window 4096"},
        {OTHER("qwen3",
               "Qwen3ForCausalLM") ",\"layer_types\":[\"full_attention\","
                                   "\"sliding_attention\"]}",
         DYT_ERR_UNSUPPORTED, "sliding_window"},
        {OTHER("qwen3", "Qwen3ForCausalLM") ",\"layer_types\":[\"mamba\"]}",
         DYT_ERR_UNSUPPORTED, "mamba"},
        {OTHER("llama", "LlamaForCausalLM") ",\"torch_dtype\":\"float8\"}",
         DYT_ERR_UNSUPPORTED, "float8"},
        {OTHER("llama", "LlamaForCausalLM") ",\"num_key_value_heads\":5}",
         DYT_ERR_FORMAT, "does not divide"},
        {OTHER("llama", "LlamaForCausalLM") ",\"num_key_value_heads\":0}",
         DYT_ERR_FORMAT, "num_key_value_heads is 0"},
        {OTHER("llama", "LlamaForCausalLM") ",\"head_dim\":7}",
         DYT_ERR_UNSUPPORTED, "odd head_dim"},
        {OTHER("llama", "LlamaForCausalLM") ",\"rms_norm_eps\":-1}",
         DYT_ERR_FORMAT, "rms_norm_eps"},
        {OTHER("llama", "LlamaForCausalLM") ",\"rope_theta\":0}",
         DYT_ERR_FORMAT, "rope_theta"},
        {OTHER("llama", "LlamaForCausalLM") ",\"tie_word_embeddings\":1}",
         DYT_ERR_FORMAT, "tie_word_embeddings must be true or false"},
        {OTHER("llama", "LlamaForCausalLM") ",\"num_local_experts\":8}",
         DYT_ERR_UNSUPPORTED, "num_local_experts"},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_arch a = {.vocab = -7};

        if (parse(row[i].text, &a) != row[i].want) {
            fail_msg("row %zu: %s", i, dyti_error_text());
        }
        assert_error_has(row[i].says);
        assert_error_has("m/config.json");
        assert_int_equal(-7, a.vocab);
    }
}

static void a_missing_directory_is_an_io_error(void **state)
{
    struct dyti_arch a;

    (void)state;
    assert_status(DYT_ERR_IO, dyti_hf_config_read("/nonexistent", &a));
    assert_error_has("/nonexistent/config.json");
}

static void written_configs_are_read_back(void **state)
{
    static const struct dyti_arch arch[] = {
        {DYTI_LLAMA,
         42,
         64,
         2,
         4,
         4,
         16,
         160,
         64,
         1e-6,
         0.08,
         {DYTI_ROPE_DEFAULT, 10000, 1, 0, 0, 0},
         true,
         false,
         false,
         DYTI_F32,
         {0},
         {0},
         false},
        {DYTI_MISTRAL,
         50,
         48,
         3,
         9,
         3,
         8,
         100,
         32768,
         1e-5,
         0.02,
         {DYTI_ROPE_LINEAR, 1e6, 2.5, 0, 0, 0},
         false,
         false,
         false,
         DYTI_F16,
         {0},
         {0},
         false},
        {DYTI_QWEN2,
         50,
         48,
         3,
         6,
         3,
         8,
         100,
         32768,
         1e-6,
         0.02,
         {DYTI_ROPE_DEFAULT, 1e6, 1, 0, 0, 0},
         false,
         true,
         false,
         DYTI_BF16,
         {0},
         {0},
         false},
        {DYTI_QWEN3,
         50,
         48,
         3,
         6,
         3,
         128,
         100,
         4096,
         1e-6,
         0.02,
         {DYTI_ROPE_LLAMA3, 5e5, 32, 1, 4, 8192},
         true,
         false,
         true,
         DYTI_BF16,
         {0},
         {0},
         false},
    };
    const char *dir = dyt_test_dir();

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(arch); i++) {
        const struct dyti_arch *w = &arch[i];
        struct dyti_arch a;

        assert_ok(dyti_hf_config_write(dir, w, NULL));
        assert_ok(dyti_hf_config_read(dir, &a));
        assert_int_equal(w->family, a.family);
        assert_true(a.vocab == w->vocab && a.hidden == w->hidden &&
                    a.layers == w->layers && a.q_heads == w->q_heads &&
                    a.kv_heads == w->kv_heads && a.head_dim == w->head_dim &&
                    a.ffn == w->ffn && a.max_positions == w->max_positions);
        assert_true(a.rms_eps == w->rms_eps && a.init_std == w->init_std);
        assert_true(a.tied == w->tied && a.qkv_bias == w->qkv_bias &&
                    a.qk_norm == w->qk_norm && a.dtype == w->dtype);
        assert_true(a.rope.kind == w->rope.kind &&
                    a.rope.theta == w->rope.theta &&
                    a.rope.factor == w->rope.factor &&
                    a.rope.low_freq == w->rope.low_freq &&
                    a.rope.high_freq == w->rope.high_freq &&
                    a.rope.original_max == w->rope.original_max);
    }
}

/* Families that are planned only: what decides shapes goes through the file. */
static void planned_families_are_read_back(void **state)
{
    static const struct dyti_arch arch[] = {
        DYT_ARCH_TINY_MOE,        DYT_ARCH_TINY_MIXTRAL, DYT_ARCH_TINY_MLA,
        DYT_ARCH_TINY_MLA_DIRECT, DYT_ARCH_TINY_GPT2,    DYT_ARCH_QWEN3_235B,
        DYT_ARCH_DEEPSEEK_V3};
    const char *dir = dyt_test_dir();

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(arch); i++) {
        struct dyti_model *want = NULL, *got = NULL;
        struct dyti_arch a;

        assert_ok(dyti_hf_config_write(dir, &arch[i], NULL));
        assert_ok(dyti_hf_config_read(dir, &a));
        assert_ok(dyti_model_build(&arch[i], &want));
        assert_ok(dyti_model_build(&a, &got));
        assert_int_equal(want->tensor_count, got->tensor_count);
        for (uint32_t t = 0; t < want->tensor_count; t++) {
            assert_string_equal(want->tensor[t].name, got->tensor[t].name);
            assert_memory_equal(want->tensor[t].shape, got->tensor[t].shape,
                                sizeof(want->tensor[t].shape));
        }
        assert_int_equal(arch[i].dtype, a.dtype);
        dyti_model_destroy(want);
        dyti_model_destroy(got);
    }
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    dyt_test_write(path, text, strlen(text));
}

static void generation_config_falls_back_to_config(void **state)
{
    const char *dir = dyt_test_dir();
    struct dyti_generation_config gen, back;

    (void)state;
    write_text(dir, "config.json",
               LLAMA ",\"eos_token_id\":2,"
                     "\"bos_token_id\":1}");
    assert_ok(dyti_generation_config_read(dir, &gen));
    assert_int_equal(1, gen.eos_count);
    assert_int_equal(2, gen.eos[0]);
    assert_int_equal(1, gen.bos);
    assert_int_equal(-1, gen.pad);
    assert_true(gen.temperature == 1.0 && gen.top_p == 1.0 && gen.top_k == 0);

    write_text(
        dir, "generation_config.json",
        "{\"eos_token_id\":[7,8,9],\"pad_token_id\":7,\"do_sample\":true,"
        "\"temperature\":0.6,\"top_p\":0.9,\"top_k\":20,"
        "\"repetition_penalty\":1.05}");
    assert_ok(dyti_generation_config_read(dir, &gen));
    assert_int_equal(3, gen.eos_count);
    assert_int_equal(9, gen.eos[2]);
    assert_int_equal(1, gen.bos);
    assert_true(gen.do_sample && gen.temperature == 0.6 && gen.top_k == 20);

    assert_ok(dyti_generation_config_write(dir, &gen));
    assert_ok(dyti_generation_config_read(dir, &back));
    assert_memory_equal(gen.eos, back.eos, sizeof(gen.eos));
    assert_true(back.repetition_penalty == 1.05 && back.top_p == 0.9 &&
                back.pad == 7);

    write_text(dir, "generation_config.json", "{\"eos_token_id\":\"x\"}");
    assert_status(DYT_ERR_FORMAT, dyti_generation_config_read(dir, &gen));
    assert_error_has("eos_token_id");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(smollm2_gives_all_sizes),
    cmocka_unit_test(families_fill_in_their_defaults),
    cmocka_unit_test(rope_kinds_old_and_new),
    cmocka_unit_test(wrong_configs_are_named),
    cmocka_unit_test(a_missing_directory_is_an_io_error),
    cmocka_unit_test(written_configs_are_read_back),
    cmocka_unit_test(planned_families_are_read_back),
    cmocka_unit_test(generation_config_falls_back_to_config),
};
DYT_TEST_MAIN(tests)
