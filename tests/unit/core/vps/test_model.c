/* The catalogue: parameter totals of published models, order, look-ups,
 * refusals. */
#include "dyt_test.h"

#include "arch_cases.h"

static struct dyti_model *build(const struct dyti_arch *arch)
{
    struct dyti_model *model = NULL;

    assert_ok(dyti_model_build(arch, &model));
    return model;
}

static void totals_match_published_models(void **state)
{
    static const struct {
        const char *what;
        struct dyti_arch arch;
        uint64_t want;
    } row[] = {
        /* clang-format off */
        {"SmolLM2-135M", DYT_ARCH_SMOLLM2_135M, 134515008},
        {"SmolLM2-1.7B", DYT_ARCH(DYTI_LLAMA, 49152, 2048, 24, 32, 32, 64, 8192, .tied = true), 1711376384},
        {"Llama-2-7B", DYT_ARCH(DYTI_LLAMA, 32000, 4096, 32, 32, 32, 128, 11008, .tied = false), 6738415616},
        {"Llama-2-70B", DYT_ARCH_LLAMA2_70B, 68976648192},
        {"Llama-3.1-8B", DYT_ARCH(DYTI_LLAMA, 128256, 4096, 32, 32, 8, 128, 14336, .tied = false), 8030261248},
        {"Llama-3.1-70B", DYT_ARCH(DYTI_LLAMA, 128256, 8192, 80, 64, 8, 128, 28672, .tied = false), 70553706496},
        {"Mistral-7B-v0.1", DYT_ARCH(DYTI_MISTRAL, 32000, 4096, 32, 32, 8, 128, 14336, .tied = false), 7241732096},
        {"Qwen2.5-0.5B", DYT_ARCH(DYTI_QWEN2, 151936, 896, 24, 14, 2, 64, 4864, .tied = true, .qkv_bias = true), 494032768},
        {"Qwen2.5-7B", DYT_ARCH(DYTI_QWEN2, 152064, 3584, 28, 28, 4, 128, 18944, .tied = false, .qkv_bias = true), 7615616512},
        {"Qwen3-30B-A3B", DYT_ARCH_QWEN3_30B, 30532122624},
        {"Qwen3-235B-A22B", DYT_ARCH_QWEN3_235B, 235093634560},
        {"Mixtral-8x7B", DYT_ARCH_MIXTRAL_8X7B, 46702792704},
        {"DeepSeek-V2-Lite", DYT_ARCH_DEEPSEEK_V2_LITE, 15706484224},
        {"DeepSeek-V2", DYT_ARCH_DEEPSEEK_V2, 235741434880},
        {"DeepSeek-V3", DYT_ARCH_DEEPSEEK_V3, 671026419200},
        {"GPT-2", DYT_ARCH_GPT2(768, 12, 12), 124439808},
        {"GPT-2 XL", DYT_ARCH_GPT2(1600, 48, 25), 1557611200},
        {"Qwen3-0.6B", DYT_ARCH(DYTI_QWEN3, 151936, 1024, 28, 16, 8, 128, 3072, .tied = true, .qk_norm = true), 596049920},
        /* clang-format on */
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_model *model = build(&row[i].arch);

        if (dyti_model_elements(model) != row[i].want) {
            fail_msg("%s: %llu parameters", row[i].what,
                     (unsigned long long)dyti_model_elements(model));
        }
        dyti_model_destroy(model);
    }
}

static void catalogue_has_the_stated_order(void **state)
{
    static const char *const want[] = {
        "model.embed_tokens.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.self_attn.v_proj.weight",
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.0.self_attn.k_proj.bias",
        "model.layers.0.self_attn.v_proj.bias",
        "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.self_attn.k_norm.weight",
        "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.post_attention_layernorm.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
        "model.norm.weight",
        "lm_head.weight",
    };
    const struct dyti_arch arch = DYT_ARCH(DYTI_LLAMA, 5, 4, 1, 2, 1, 2, 3,
                                           .qkv_bias = true, .qk_norm = true);
    struct dyti_model *model = build(&arch);

    (void)state;
    assert_int_equal(DYT_TEST_COUNT(want), model->tensor_count);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        assert_string_equal(want[i], model->tensor[i].name);
        assert_int_equal(i, (int)model->tensor[i].slot);
    }
    dyti_model_destroy(model);
}

/* Every tensor is found by both look-ups; names that are none are not. */
static void lookups_find_each_tensor_and_nothing_else(void **state)
{
    static const struct dyti_arch arch[] = {
        DYT_ARCH_TINY_9_3,   DYT_ARCH_TINY_8_2,        DYT_ARCH_TINY_QWEN2,
        DYT_ARCH_TINY_QWEN3, DYT_ARCH_TINY_MOE,        DYT_ARCH_TINY_MIXTRAL,
        DYT_ARCH_TINY_MLA,   DYT_ARCH_TINY_MLA_DIRECT, DYT_ARCH_TINY_GPT2};
    static const char *const none[] = {
        "",
        "model.layers.",
        "model.layers.x.mlp.up_proj.weight",
        "model.layers.00.mlp.up_proj.weight",
        "model.layers.-1.mlp.up_proj.weight",
        "model.layers.9.mlp.up_proj.weight",
        "model.layers.99999999999999999999.mlp.up_proj.weight",
        "model.layers.0.mlp.up_proj.weigh",
        "model.layers.0.lm_head.weight",
        "mlp.up_proj.weight",
        "model.embed_tokens.weight2",
    };

    (void)state;
    for (size_t a = 0; a < DYT_TEST_COUNT(arch); a++) {
        struct dyti_model *model = build(&arch[a]);

        for (uint32_t i = 0; i < model->tensor_count; i++) {
            const struct dyti_tensor *t = &model->tensor[i];

            assert_int_equal(
                i, t->expert >= 0 ? dyti_model_find_expert(model, t->layer,
                                                           t->expert, t->slot)
                                  : dyti_model_find(model, t->layer, t->slot));
            assert_int_equal(i, dyti_model_find_name(model, t->name));
        }
        for (size_t i = 0; i < DYT_TEST_COUNT(none); i++) {
            assert_int_equal(UINT32_MAX, dyti_model_find_name(model, none[i]));
        }
        if (arch[a].tied) {
            assert_int_equal(UINT32_MAX,
                             dyti_model_find_name(model, "lm_head.weight"));
            assert_int_equal(0, dyti_model_find(model, -1, DYTI_SLOT_HEAD));
            assert_true(model->tensor[0].on_first && model->tensor[0].on_last &&
                        model->tensor[0].grad_partial);
        }
        assert_int_equal(UINT32_MAX,
                         dyti_model_find(model, 7, DYTI_SLOT_INPUT_NORM));
        assert_int_equal(UINT32_MAX,
                         dyti_model_find(model, -1, DYTI_SLOT_INPUT_NORM));
        dyti_model_destroy(model);
    }
}

/* Layers before the first MoE layer are dense, experts lie together. */
static void experts_have_their_place(void **state)
{
    static const struct dyti_arch arch = DYT_ARCH_TINY_MLA;
    struct dyti_model *model = build(&arch);
    uint32_t gate = dyti_model_find_expert(model, 2, 3, DYTI_SLOT_EXPERT_GATE);
    const struct dyti_tensor *t = &model->tensor[gate];

    (void)state;
    assert_string_equal("model.layers.2.mlp.experts.3.gate_proj.weight",
                        t->name);
    assert_int_equal(3, t->expert);
    assert_int_equal(12, t->shape[0]);
    assert_int_equal(DYTI_SLOT_EXPERT_UP, t[1].slot);
    assert_int_equal(DYTI_SLOT_EXPERT_GATE, t[3].slot);
    assert_int_equal(4, t[3].expert);
    assert_int_equal(UINT32_MAX,
                     dyti_model_find_expert(model, 0, 3, DYTI_SLOT_EXPERT_UP));
    assert_int_equal(UINT32_MAX,
                     dyti_model_find_expert(model, 2, 5, DYTI_SLOT_EXPERT_UP));
    assert_int_equal(UINT32_MAX,
                     dyti_model_find(model, 2, DYTI_SLOT_EXPERT_UP));
    assert_true(dyti_model_find(model, 0, DYTI_SLOT_GATE) != UINT32_MAX);
    assert_int_equal(UINT32_MAX, dyti_model_find(model, 1, DYTI_SLOT_GATE));
    t = &model->tensor[dyti_model_find(model, 1, DYTI_SLOT_ROUTER_BIAS)];
    assert_true(t->fixed_dtype && t->dtype == DYTI_F32);
    assert_int_equal(1u << DYTI_PARAM, t->kinds);
    t = &model->tensor[dyti_model_find(model, 1, DYTI_SLOT_KV_B)];
    assert_int_equal(9, t->segment[0].unit);
    assert_int_equal(72, t->shape[0]);
    dyti_model_destroy(model);
}

static void extras_say_how_they_move(void **state)
{
    static const struct dyti_arch arch = DYT_ARCH_TINY_8_2;
    static const struct dyti_extra_desc good[] = {
        {.name = "model.layers.1.mlp.down_proj.weight_scale_inv",
         .rule = DYTI_EXTRA_SHARDED,
         .dtype = DYTI_F32,
         .ndim = 2,
         .shape = {2, 3},
         .of = "model.layers.1.mlp.down_proj.weight",
         .block = {8, 10}},
        {.name = "rng",
         .rule = DYTI_EXTRA_PER_RANK,
         .dtype = DYTI_I64,
         .ndim = 2,
         .shape = {8, 4}},
        {.name = "step",
         .rule = DYTI_EXTRA_EVERY,
         .dtype = DYTI_I64,
         .ndim = 1,
         .shape = {1}},
        {.name = "cursor",
         .rule = DYTI_EXTRA_OWNER,
         .dtype = DYTI_I64,
         .ndim = 1,
         .shape = {2}},
    };
    static const struct {
        struct dyti_extra_desc extra;
        const char *says;
    } bad[] = {
        {{.name = ""}, "without a name"},
        {{.name = "x", .ndim = 0}, "dimensions"},
        {{.name = "x", .ndim = 1, .shape = {0}}, "at least 1"},
        {{.name = "x", .ndim = 1, .shape = {1}}, "how it moves"},
        {{.name = "x", .rule = DYTI_EXTRA_SHARDED, .ndim = 1, .shape = {1}},
         "no such tensor"},
        {{.name = "x",
          .rule = DYTI_EXTRA_SHARDED,
          .ndim = 2,
          .shape = {2, 2},
          .of = "model.layers.1.mlp.down_proj.weight",
          .block = {8, 10}},
         "blocks"},
        {{.name = "lm_head.weight",
          .rule = DYTI_EXTRA_EVERY,
          .ndim = 1,
          .shape = {1}},
         "two tensors"},
    };
    struct dyti_model *model = NULL;
    uint32_t scale;

    (void)state;
    assert_ok(dyti_model_build_with(&arch, good, DYT_TEST_COUNT(good), &model));
    assert_int_equal(model->parameter_count + 4, model->tensor_count);
    assert_int_equal((1u << DYTI_KIND_COUNT) - 1u, model->kinds);
    scale = dyti_model_find_name(model, good[0].name);
    assert_int_equal(1, model->tensor[scale].layer);
    assert_string_equal(good[0].of,
                        model->tensor[model->tensor[scale].extra_of].name);
    assert_int_equal(1, model->tensor[scale].cut_axis);
    dyti_model_destroy(model);
    for (size_t i = 0; i < DYT_TEST_COUNT(bad); i++) {
        model = NULL;
        assert_status(DYT_ERR_INVALID,
                      dyti_model_build_with(&arch, &bad[i].extra, 1, &model));
        assert_error_has(bad[i].says);
        assert_null(model);
    }
}

static void families_that_do_not_run_are_named(void **state)
{
    static const struct dyti_arch yes = DYT_ARCH_TINY_QWEN3,
                                  no = DYT_ARCH_TINY_MOE;

    (void)state;
    assert_ok(dyti_arch_check_runs(&yes));
    assert_status(DYT_ERR_UNSUPPORTED, dyti_arch_check_runs(&no));
    assert_error_has("qwen3_moe");
}

static void fingerprint_tells_architectures_apart(void **state)
{
    struct dyti_arch arch = DYT_ARCH_TINY_8_2;
    struct dyti_model *a = build(&arch), *b = build(&arch), *c;

    (void)state;
    assert_true(a->fingerprint == b->fingerprint);
    arch.rope.theta = 10001.0;
    c = build(&arch);
    assert_true(a->fingerprint != c->fingerprint);
    dyti_model_destroy(c);
    arch.rope.theta = 10000.0;
    arch.attn_gate = true;
    c = build(&arch);
    assert_true(a->fingerprint != c->fingerprint);
    dyti_model_destroy(a);
    dyti_model_destroy(b);
    dyti_model_destroy(c);
}

static void impossible_sizes_are_refused_by_name(void **state)
{
    static const struct {
        struct dyti_arch arch;
        enum dyt_status want;
        const char *says;
    } row[] = {
        /* clang-format off */
        {DYT_ARCH(DYTI_LLAMA, 0, 4, 1, 2, 1, 2, 3, .tied = false), DYT_ERR_INVALID, "vocab_size is 0"},
        {DYT_ARCH(DYTI_LLAMA, 5, -4, 1, 2, 1, 2, 3, .tied = false), DYT_ERR_INVALID, "hidden_size is -4"},
        {DYT_ARCH(DYTI_LLAMA, 5, 4, 0, 2, 1, 2, 3, .tied = false), DYT_ERR_INVALID, "num_hidden_layers"},
        {DYT_ARCH(DYTI_LLAMA, 5, 4, 1, 5, 2, 2, 3, .tied = false), DYT_ERR_INVALID, "does not divide"},
        {DYT_ARCH(DYTI_LLAMA, 5, 4, 1LL << 40, 2, 1, 2, 3, .tied = false), DYT_ERR_OVERFLOW, "num_hidden_layers"},
        {DYT_ARCH(DYTI_LLAMA, 5, 4, 120000, 2, 1, 2, 3, .tied = false), DYT_ERR_OVERFLOW, "1048576 tensors"},
        {DYT_ARCH(DYTI_LLAMA, 5, 4, 1000000000, 2, 1, 2, 3, .tied = false), DYT_ERR_OVERFLOW, "tensors"},
        {DYT_ARCH(DYTI_LLAMA, 5, 4, 1, 1 << 20, 1, 1 << 20, 3, .tied = false), DYT_ERR_OVERFLOW, "heads"},
        {DYT_ARCH(DYTI_LLAMA, 1 << 29, 1 << 29, 1, 2, 1, 2, 3, .tied = false), DYT_ERR_OVERFLOW, "parameters"},
        /* clang-format on */
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_model *model = NULL;

        assert_status(row[i].want, dyti_model_build(&row[i].arch, &model));
        assert_error_has(row[i].says);
        assert_null(model);
    }
    dyti_model_destroy(NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(totals_match_published_models),
    cmocka_unit_test(catalogue_has_the_stated_order),
    cmocka_unit_test(lookups_find_each_tensor_and_nothing_else),
    cmocka_unit_test(experts_have_their_place),
    cmocka_unit_test(extras_say_how_they_move),
    cmocka_unit_test(families_that_do_not_run_are_named),
    cmocka_unit_test(fingerprint_tells_architectures_apart),
    cmocka_unit_test(impossible_sizes_are_refused_by_name),
};
DYT_TEST_MAIN(tests)
