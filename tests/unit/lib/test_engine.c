/* Model, layout, plan and schedule behind the C interface: they say what the
 * rooms behind them say. */
#include "arch_cases.h"
#include "dyt_test.h"

#include "layout/layout.h"

#include <dynatrain/schedule.h>

#define PAIR(k, v)                                                             \
    {                                                                          \
        k, v                                                                   \
    }

static const struct dyt_config_pair smollm2[] = {
    PAIR("architectures.0", "LlamaForCausalLM"),
    PAIR("model_type", "llama"),
    PAIR("vocab_size", "49152"),
    PAIR("hidden_size", "576"),
    PAIR("num_hidden_layers", "30"),
    PAIR("num_attention_heads", "9"),
    PAIR("num_key_value_heads", "3"),
    PAIR("intermediate_size", "1536"),
    PAIR("max_position_embeddings", "8192"),
    PAIR("rms_norm_eps", "1e-05"),
    PAIR("rope_theta", "100000"),
    PAIR("rope_scaling", "null"),
    PAIR("hidden_act", "silu"),
    PAIR("tie_word_embeddings", "true"),
    PAIR("torch_dtype", "bfloat16"),
};

static dyt_model *model_of(void)
{
    dyt_model *model = NULL;

    assert_ok(dyt_model_from_config(smollm2, DYT_TEST_COUNT(smollm2), &model));
    return model;
}

static dyt_layout *layout_of(const dyt_model *model, const char *spec)
{
    dyt_layout *layout = NULL;

    assert_ok(dyt_layout_build(model, spec, 0, &layout));
    return layout;
}

/* ---- model --------------------------------------------------------------- */

static void a_model_is_its_configuration(void **state)
{
    const struct dyti_arch arch = DYT_ARCH_SMOLLM2_135M;
    struct dyti_model *want = NULL;
    dyt_model *model = model_of();
    struct dyt_tensor tensor = {.struct_size = sizeof(tensor)};
    uint32_t index = 0;

    (void)state;
    assert_ok(dyti_model_build(&arch, &want));
    assert_int_equal(dyt_model_tensor_count(model), want->tensor_count);
    assert_int_equal(dyt_model_elements(model), 134515008);
    for (uint32_t i = 0; i < want->tensor_count; i++) {
        assert_ok(dyt_model_tensor(model, i, &tensor));
        assert_string_equal(tensor.name, want->tensor[i].name);
        assert_int_equal(tensor.ndim, want->tensor[i].ndim);
        assert_memory_equal(tensor.shape, want->tensor[i].shape,
                            tensor.ndim * sizeof(int64_t));
        assert_ok(dyt_model_find(model, tensor.name, &index));
        assert_int_equal(index, i);
    }
    assert_status(DYT_ERR_INVALID,
                  dyt_model_find(model, "model.norm.weigth", &index));
    assert_error_has("(nearest: model.norm.weight");
    assert_status(DYT_ERR_INVALID, dyt_model_tensor(model, 9999, &tensor));
    tensor.struct_size = 8;
    assert_status(DYT_ERR_INVALID, dyt_model_tensor(model, 0, &tensor));
    assert_error_has("struct_size 8, the first release had 104");
    dyti_model_destroy(want);
    dyt_model_destroy(model);
    dyt_model_destroy(NULL);
}

static void wrong_configurations_are_named(void **state)
{
    struct dyt_config_pair pair[DYT_TEST_COUNT(smollm2)];
    dyt_model *model = NULL;

    (void)state;
    memcpy(pair, smollm2, sizeof(pair));
    pair[1].value = "gemma";
    assert_status(DYT_ERR_CONFIG,
                  dyt_model_from_config(pair, DYT_TEST_COUNT(pair), &model));
    assert_error_has("model_type gemma");
    assert_error_has("qwen3_moe");
    pair[1].value = "llama";
    pair[3].value = "wide";
    assert_status(DYT_ERR_CONFIG,
                  dyt_model_from_config(pair, DYT_TEST_COUNT(pair), &model));
    assert_error_has("hidden_size must be an integer");
    assert_status(DYT_ERR_CONFIG, dyt_model_from_config(pair, 2, &model));
    pair[0].key = NULL;
    assert_status(DYT_ERR_CONFIG, dyt_model_from_config(pair, 2, &model));
    assert_null(model);
}

/* ---- layout -------------------------------------------------------------- */

static void shards_are_the_views(void **state)
{
    dyt_model *model = model_of();
    dyt_layout *layout = layout_of(model, "vllm:tp=3");
    struct dyt_shard s = {.struct_size = sizeof(s)};
    uint64_t count = 0;
    bool seen = false;
    char *json = NULL;

    (void)state;
    assert_int_equal(dyt_layout_world_size(layout), 3);
    assert_ok(dyt_layout_shard_count(layout, 2, &count));
    for (uint64_t i = 0; i < count; i++) {
        assert_ok(dyt_layout_shard(layout, 2, i, &s));
        if (s.buffer != NULL &&
            strcmp(s.buffer, "model.layers.4.self_attn.qkv_proj.weight") == 0 &&
            s.offset == (uint64_t)192 * 576 * 2) {
            seen = true; /* k of the last rank behind its q */
            assert_int_equal(s.box.lo[0], 128);
            assert_int_equal(s.box.hi[0], 192);
        }
    }
    assert_true(seen);
    assert_status(DYT_ERR_INVALID, dyt_layout_shard(layout, 2, count, &s));
    assert_status(DYT_ERR_INVALID, dyt_layout_shard_count(layout, 3, &count));
    assert_ok(dyt_layout_json(layout, &json));
    assert_non_null(strstr(json, "dynatrain.layout/1"));
    dyt_text_free(json);
    dyt_text_free(NULL);
    dyt_layout_destroy(layout);
    layout = NULL;
    assert_status(DYT_ERR_LAYOUT,
                  dyt_layout_build(model, "vllm:tp=2", 0, &layout));
    assert_status(DYT_ERR_CONFIG,
                  dyt_layout_build(model, "vlm:tp=2", 0, &layout));
    assert_error_has("vllm");
    assert_status(DYT_ERR_INVALID, dyt_layout_build(model, NULL, 0, &layout));
    assert_null(layout);
    dyt_layout_destroy(NULL);
    dyt_model_destroy(model);
}

/* ---- plan and schedule --------------------------------------------------- */

static void a_plan_counts_what_moves(void **state)
{
    static const char *const strategy[] = {NULL, "optimal", "xor", "funnel",
                                           "per-tensor"};
    dyt_model *model = model_of();
    dyt_layout *from = layout_of(model, "fsdp2:dp=3");
    dyt_layout *to = layout_of(model, "vllm:tp=3");
    struct dyt_plan_params params = {.struct_size = sizeof(params),
                                     .hosts = "2+1"};
    struct dyt_plan_figures totals = {.struct_size = sizeof(totals)};
    uint64_t bytes[9], sum = 0;
    dyt_schedule *schedule = NULL;
    dyt_plan *plan = NULL;
    char *text = NULL;

    (void)state;
    assert_ok(dyt_plan_build(from, to, &params, &plan));
    assert_ok(dyt_plan_totals(plan, &totals));
    assert_ok(dyt_plan_traffic(plan, bytes, 9));
    for (int i = 0; i < 9; i++) {
        sum += bytes[i];
    }
    assert_int_equal(sum, totals.kept_bytes + totals.host_bytes +
                              totals.network_bytes);
    assert_int_equal(bytes[0] + bytes[4] + bytes[8], totals.kept_bytes);
    assert_int_equal(bytes[1] + bytes[3], totals.host_bytes);
    /* every rank gets its part of all weights in bf16, norms on each */
    assert_true(sum >= 2 * dyt_model_elements(model));
    assert_true(totals.bound_bytes > 0);
    assert_true(totals.busiest_bytes >= totals.bound_bytes);
    assert_status(DYT_ERR_INVALID, dyt_plan_traffic(plan, bytes, 8));
    assert_ok(dyt_plan_text(plan, &text));
    assert_non_null(strstr(text, "param"));
    dyt_text_free(text);
    for (size_t i = 0; i < DYT_TEST_COUNT(strategy); i++) {
        struct dyt_schedule_params how = {.struct_size = sizeof(how),
                                          .strategy = strategy[i]};
        struct dyt_schedule_figures done = {.struct_size = sizeof(done)};

        assert_ok(dyt_schedule_build(plan, &how, &schedule));
        assert_ok(dyt_schedule_totals(schedule, &done));
        assert_true(done.rounds > 0 && done.messages > 0);
        assert_true(done.over_load >= 0.999);
        assert_ok(dyt_schedule_text(schedule, &text));
        assert_non_null(strstr(text, i == 0 ? "optimal" : strategy[i]));
        dyt_text_free(text);
        dyt_schedule_destroy(schedule);
    }
    {
        struct dyt_schedule_params how = {.struct_size = sizeof(how),
                                          .strategy = "fastest"};

        schedule = NULL;
        assert_status(DYT_ERR_CONFIG,
                      dyt_schedule_build(plan, &how, &schedule));
        assert_error_has("xor");
        assert_null(schedule);
    }
    dyt_plan_destroy(plan);
    plan = NULL;
    params.hosts = "2+x";
    assert_status(DYT_ERR_INVALID, dyt_plan_build(from, to, &params, &plan));
    params.hosts = "1+1";
    assert_status(DYT_ERR_INVALID, dyt_plan_build(from, to, &params, &plan));
    params.struct_size = 4;
    assert_status(DYT_ERR_INVALID, dyt_plan_build(from, to, &params, &plan));
    assert_error_has("struct_size 4");
    assert_null(plan);
    dyt_plan_destroy(NULL);
    dyt_schedule_destroy(NULL);
    dyt_layout_destroy(from);
    dyt_layout_destroy(to);
    dyt_model_destroy(model);
}

/* ---- views --------------------------------------------------------------- */

/* Two ranks that hold halves of `w` as columns, and `n` whole. */
static void fill_rows(struct dyt_row row[2], struct dyt_piece *piece,
                      uint32_t rank, float *memory)
{
    memset(row, 0, 2 * sizeof(*row));
    *piece = (struct dyt_piece){.struct_size = sizeof(*piece),
                                .tensor = "w",
                                .box = {2, {0, 4 * rank}, {6, 4 * rank + 4}}};
    row[0] = (struct dyt_row){.struct_size = sizeof(row[0]),
                              .name = "w.part",
                              .ndim = 2,
                              .shape = {6, 4},
                              .data = memory,
                              .fd = -1,
                              .piece = piece,
                              .piece_count = 1,
                              .piece_struct_size = sizeof(*piece)};
    row[1] = (struct dyt_row){.struct_size = sizeof(row[1]),
                              .name = "n",
                              .ndim = 1,
                              .shape = {3},
                              .data = memory + 24,
                              .fd = -1};
}

static void views_make_layouts(void **state)
{
    struct dyt_tensor tensor[] = {{.struct_size = sizeof(tensor[0]),
                                   .name = "w",
                                   .ndim = 2,
                                   .shape = {6, 8},
                                   .layer = -1,
                                   .expert = -1},
                                  {.struct_size = sizeof(tensor[0]),
                                   .name = "n",
                                   .ndim = 1,
                                   .shape = {3},
                                   .layer = -1,
                                   .expert = -1}};
    float memory[2][32];
    struct dyt_row row[2][2];
    struct dyt_piece piece[2];
    struct dyt_view view[2];
    struct dyt_shard s = {.struct_size = sizeof(s)};
    struct dyt_plan_figures totals = {.struct_size = sizeof(totals)};
    dyt_layout *layout = NULL, *again = NULL;
    dyt_plan *plan = NULL;
    dyt_model *model = NULL;

    (void)state;
    assert_ok(dyt_model_create(tensor, 2, &model));
    for (uint32_t r = 0; r < 2; r++) {
        fill_rows(row[r], &piece[r], r, memory[r]);
        view[r] =
            (struct dyt_view){sizeof(view[r]), sizeof(row[r][0]), row[r], 2};
    }
    assert_ok(dyt_layout_from_views(model, view, 2, &layout));
    assert_ok(dyt_layout_shard(layout, 1, 0, &s));
    assert_string_equal(s.buffer, "w.part");
    assert_int_equal(s.box.lo[1], 4);
    assert_int_equal(s.stride[0], 16);
    assert_int_equal(s.offset, 0);
    /* the same list again: all of it stays */
    assert_ok(dyt_layout_from_views(model, view, 2, &again));
    assert_true(dyt_layout_fingerprint(layout) ==
                dyt_layout_fingerprint(again));
    assert_ok(dyt_plan_build(layout, again, NULL, &plan));
    assert_ok(dyt_plan_totals(plan, &totals));
    assert_int_equal(totals.kept_bytes, (48 + 6) * 4);
    assert_int_equal(totals.host_bytes + totals.network_bytes, 0);
    dyt_plan_destroy(plan);
    dyt_layout_destroy(again);
    dyt_layout_destroy(layout);
    layout = NULL;
    /* an element that nobody holds, and memory that two rows share */
    piece[1].box = (struct dyt_box){2, {0, 3}, {6, 7}};
    row[0][1].data = memory[0] + 23;
    assert_status(DYT_ERR_LAYOUT,
                  dyt_layout_from_views(model, view, 2, &layout));
    assert_error_has("no rank holds param of w");
    assert_error_has("n");
    assert_null(layout);
    assert_status(DYT_ERR_INVALID,
                  dyt_layout_build(model, "native:tp=2", 0, &layout));
    assert_error_has("list of 2 tensors");
    tensor[1].name = "w";
    dyt_model_destroy(model);
    model = NULL;
    assert_status(DYT_ERR_INVALID, dyt_model_create(tensor, 2, &model));
    tensor[0].struct_size = 8;
    assert_status(DYT_ERR_INVALID, dyt_model_create(tensor, 2, &model));
    assert_null(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_model_is_its_configuration),
    cmocka_unit_test(wrong_configurations_are_named),
    cmocka_unit_test(shards_are_the_views),
    cmocka_unit_test(a_plan_counts_what_moves),
    cmocka_unit_test(views_make_layouts),
};
DYT_TEST_MAIN(tests)
