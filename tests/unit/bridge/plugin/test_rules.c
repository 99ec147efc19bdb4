/* Rows to pieces by tables of rules: as a running server holds them, and what
 * is refused, by name.  Against the dialect: test_rules_dialect.c. */
#include "plugin_cases.h"

#include "arch_cases.h"
#include "plugin/rows.h"

/* ---- SmolLM2, as a server holds it (measured on a running one) ----------- */

static struct dyti_model *smollm2(void)
{
    const struct dyti_arch arch = DYT_ARCH_SMOLLM2_135M;
    struct dyti_model *model = NULL, *listed;

    assert_ok(dyti_model_build(&arch, &model));
    listed = case_listed(model);
    dyti_model_destroy(model);
    return listed;
}

static const struct dyt_attribute head_64 = {"head_dim", 64};

static struct dyti_place place_of(uint32_t rank, uint32_t size)
{
    return (struct dyti_place){.tp_rank = rank,
                               .tp_size = size,
                               .ep_size = 1,
                               .attribute = &head_64,
                               .attribute_count = 1};
}

/* One layer, the embedding and the head of one rank. */
static void smollm2_rows(struct case_view *v, int64_t tp)
{
    CASE_ROW(v, "model.embed_tokens.weight", 49152 / tp, 576);
    CASE_ROW(v, "lm_head.weight", 49152 / tp, 576)->flags = DYT_ROW_ALIAS;
    v->row[1].data = v->row[0].data;
    CASE_ROW(v, "model.layers.7.self_attn.qkv_proj.weight", 960 / tp, 576);
    CASE_ROW(v, "model.layers.7.self_attn.o_proj.weight", 576, 576 / tp);
    CASE_ROW(v, "model.layers.7.mlp.gate_up_proj.weight", 3072 / tp, 576);
    CASE_ROW(v, "model.layers.7.mlp.down_proj.weight", 576, 1536 / tp);
    CASE_ROW(v, "model.layers.7.input_layernorm.weight", 576);
}

static void smollm2_pieces_are_the_measured_ones(void **state)
{
    struct dyti_model *model = smollm2();
    const struct dyt_rules *rules = NULL;

    (void)state;
    assert_ok(dyt_rules_builtin("vllm/llama", &rules));
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct dyti_place place = place_of(rank, 3);
        struct dyti_row_pieces got = {0};
        struct case_view v = {0};
        const struct dyti_row_piece *p;

        smollm2_rows(&v, 3);
        assert_ok(dyti_view_check(case_view(&v)));
        assert_ok(dyti_rules_apply(model, case_view(&v), rules, &place, &got));
        /* embed; q, k, v; o; gate, up; down; norm; the alias has none */
        assert_int_equal(got.count, 9);
        p = got.piece;
        assert_int_equal(p[0].box.lo[0], rank * 16384);
        assert_int_equal(p[0].box.hi[0], (rank + 1) * 16384);
        assert_int_equal(p[1].row, 2);
        assert_string_equal(model->tensor[p[2].tensor].name,
                            "model.layers.7.self_attn.k_proj.weight");
        assert_int_equal(p[1].box.lo[0], rank * 192);
        assert_int_equal(p[2].box.lo[0], rank * 64);
        assert_int_equal(p[2].offset, 192 * 576 * 2);
        assert_int_equal(p[3].offset, 256 * 576 * 2);
        assert_int_equal(p[4].box.lo[1], rank * 192);
        assert_int_equal(p[4].stride[0], 192 * 2);
        assert_int_equal(p[6].box.lo[0], rank * 512);
        assert_int_equal(p[6].offset, 512 * 576 * 2);
        assert_int_equal(p[7].box.lo[1], rank * 512);
        dyti_row_pieces_fini(&got);
        case_view_free(&v);
    }
    dyti_model_destroy(model);
}

/* A packed head has memory of its own although it is the embedding. */
static void a_staged_tied_head_is_a_copy(void **state)
{
    struct dyti_model *model = smollm2();
    const struct dyt_rules *rules = NULL;
    struct dyti_place place = place_of(0, 1);
    struct dyti_row_pieces got = {0};
    struct case_view v = {0};

    (void)state;
    assert_ok(dyt_rules_builtin("vllm/llama", &rules));
    CASE_ROW(&v, "model.embed_tokens.weight", 49152, 576);
    CASE_ROW(&v, "lm_head.weight", 49152, 576)->flags = DYT_ROW_STAGED;
    v.row[1].data = NULL;
    assert_ok(dyti_rules_apply(model, case_view(&v), rules, &place, &got));
    assert_int_equal(got.count, 2);
    assert_int_equal(got.piece[1].row, 1);
    assert_int_equal(got.piece[1].tensor, got.piece[0].tensor);
    dyti_row_pieces_fini(&got);
    case_view_free(&v);
    dyti_model_destroy(model);
}

/* ---- what is refused ----------------------------------------------------- */

static void faults_are_listed_all_at_once(void **state)
{
    struct dyti_model *model = smollm2();
    const struct dyt_rules *rules = NULL;
    struct dyti_place place = place_of(0, 3);
    struct dyti_row_pieces got = {0};
    struct case_view v = {0};

    (void)state;
    assert_ok(dyt_rules_builtin("vllm/llama", &rules));
    CASE_ROW(&v, "model.embed_tokens.weigth", 16384, 576);
    CASE_ROW(&v, "model.layers.7.self_attn.qkv_proj.weight", 960, 576);
    CASE_ROW(&v, "model.layers.99.mlp.down_proj.weight", 576, 512);
    CASE_ROW(&v, "model.layers.3.mlp.down_proj.weight", 576, 512)->dtype =
        DYT_I32;
    CASE_ROW(&v, "model.layers.3.mlp.gate_up_proj.lora_A.weight", 8, 576);
    CASE_ROW(&v, "model.layers.3.mlp.down_proj.qweight", 8, 576);
    CASE_ROW(&v, "model.rotary_emb.inv_freq", 32);
    CASE_ROW(&v, "model.unknown_buffer", 32)->flags = DYT_ROW_OPTIONAL;
    assert_status(DYT_ERR_LAYOUT,
                  dyti_rules_apply(model, case_view(&v), rules, &place, &got));
    assert_error_has("unexpected: row model.embed_tokens.weigth fits no rule");
    assert_error_has("(nearest: model.embed_tokens.weight");
    assert_error_has("mismatched: row model.layers.7.self_attn.qkv_proj.weight "
                     "is [960, 576], by rule it is [320, 576]");
    assert_error_has("made of model.layers.99.mlp.down_proj.weight");
    assert_error_has("row model.layers.3.mlp.down_proj.weight is i32");
    assert_error_has("belongs to a LoRA adapter");
    assert_error_has("belongs to a quantised layer");
    assert_error_has("missing on this member");
    assert_null(strstr(dyti_error_text(), "inv_freq"));
    assert_null(strstr(dyti_error_text(), "unknown_buffer"));
    assert_null(got.piece);
    case_view_free(&v);
    dyti_model_destroy(model);
}

static void odd_cuts_name_the_number(void **state)
{
    struct dyti_model *model = smollm2();
    const struct dyt_rules *rules = NULL;
    struct dyti_place place = place_of(0, 2);
    struct dyti_row_pieces got = {0};
    struct case_view v = {0};

    (void)state;
    assert_ok(dyt_rules_builtin("vllm/llama", &rules));
    CASE_ROW(&v, "model.layers.7.self_attn.qkv_proj.weight", 480, 576);
    assert_status(DYT_ERR_LAYOUT,
                  dyti_rules_apply(model, case_view(&v), rules, &place, &got));
    assert_error_has("9 heads and tp 2");
    place.attribute_count = 0;
    assert_status(DYT_ERR_LAYOUT,
                  dyti_rules_apply(model, case_view(&v), rules, &place, &got));
    assert_error_has("the attribute \"head_dim\" is missing");
    place.tp_rank = 2;
    assert_status(DYT_ERR_INVALID,
                  dyti_rules_apply(model, case_view(&v), rules, &place, &got));
    case_view_free(&v);
    dyti_model_destroy(model);
}

static void doubles_are_named_with_both_rows(void **state)
{
    struct dyti_listed_desc desc = {
        .name = "w", .ndim = 2, .shape = {8, 4}, .layer = -1, .expert = -1};
    struct dyt_piece piece[2] = {
        {sizeof(struct dyt_piece), 0, "w", {2, {0, 0}, {4, 4}}, {0}},
        {sizeof(struct dyt_piece), 0, "w", {2, {3, 1}, {8, 4}}, {0}}};
    struct dyti_place place = {.tp_size = 1, .ep_size = 1};
    struct dyti_row_pieces got = {0};
    struct dyti_model *model = NULL;
    struct case_view v = {0};

    (void)state;
    assert_ok(dyti_model_build_listed(&desc, 1, &model));
    for (int i = 0; i < 2; i++) {
        struct dyt_row *row = CASE_ROW(&v, i == 0 ? "upper" : "lower", 8, 4);

        row->piece = &piece[i];
        row->piece_count = 1;
        row->piece_struct_size = sizeof(piece[i]);
    }
    assert_ok(dyti_view_check(case_view(&v)));
    assert_status(DYT_ERR_LAYOUT,
                  dyti_rules_apply(model, case_view(&v), NULL, &place, &got));
    assert_error_has("doubly covered: w from [3, 1] to [4, 4] is in row upper "
                     "and in row lower");
    case_view_free(&v);
    dyti_model_destroy(model);
}

static void malformed_tables_are_refused(void **state)
{
    struct dyti_model *model = smollm2();
    struct dyti_place place = place_of(0, 1);
    struct dyti_row_pieces got = {0};
    struct case_view v = {0};
    struct dyt_rule_part part = {.struct_size = sizeof(part),
                                 .tensor = "model.{what}"};
    struct dyt_rule rule = {.struct_size = sizeof(rule),
                            .part_struct_size = sizeof(part),
                            .name = "{*}",
                            .part = &part,
                            .part_count = 1};
    struct dyt_rules rules = {.struct_size = sizeof(rules),
                              .rule_struct_size = sizeof(rule),
                              .family = "mine",
                              .rule = &rule,
                              .rule_count = 1};

    (void)state;
    CASE_ROW(&v, "model.norm.weight", 576);
    assert_status(DYT_ERR_INVALID,
                  dyti_rules_apply(model, case_view(&v), &rules, &place, &got));
    assert_error_has("\"model.{what}\" is no pattern");
    part.tensor = "{*}";
    part.cut = 9;
    assert_status(DYT_ERR_INVALID,
                  dyti_rules_apply(model, case_view(&v), &rules, &place, &got));
    assert_error_has("cut 9");
    part.cut = DYT_RULE_WHOLE;
    rule.part_struct_size = 8;
    assert_status(DYT_ERR_INVALID,
                  dyti_rules_apply(model, case_view(&v), &rules, &place, &got));
    assert_error_has("8 bytes each");
    rule.part_struct_size = sizeof(part);
    rules.struct_size = 4;
    assert_status(DYT_ERR_INVALID,
                  dyti_rules_apply(model, case_view(&v), &rules, &place, &got));
    assert_error_has("struct_size 4");
    rules.struct_size = sizeof(rules);
    assert_ok(dyti_rules_apply(model, case_view(&v), &rules, &place, &got));
    assert_int_equal(got.count, 1);
    dyti_row_pieces_fini(&got);
    case_view_free(&v);
    dyti_model_destroy(model);
}

static void unknown_tables_list_the_known(void **state)
{
    const struct dyt_rules *rules = NULL;

    (void)state;
    assert_status(DYT_ERR_INVALID, dyt_rules_builtin("vllm/lama", &rules));
    assert_error_has("vllm/llama");
    assert_error_has("hf");
    assert_null(rules);
    assert_status(DYT_ERR_INVALID, dyt_rules_builtin(NULL, &rules));
}

/* A trainer that holds all experts of a layer in one tensor. */
static void experts_of_one_tensor(void **state)
{
    struct dyti_listed_desc desc[] = {
        {.name = "model.layers.0.mlp.experts.gate_up_proj",
         .ndim = 3,
         .shape = {5, 8, 6},
         .layer = 0,
         .expert = -1},
        {.name = "model.layers.0.mlp.experts.down_proj",
         .ndim = 3,
         .shape = {5, 6, 4},
         .layer = 0,
         .expert = -1}};
    static const int32_t experts[] = {4, -1, 0, 4};
    struct dyti_place place = {.tp_size = 2,
                               .tp_rank = 1,
                               .ep_size = 2,
                               .expert = experts,
                               .expert_count = 4};
    const struct dyt_rules *rules = NULL;
    struct dyti_row_pieces got = {0};
    struct dyti_model *model = NULL;
    struct case_view v = {0};

    (void)state;
    assert_ok(dyti_model_build_listed(desc, 2, &model));
    assert_ok(dyt_rules_builtin("vllm/qwen3_moe", &rules));
    CASE_ROW(&v, "model.layers.0.mlp.experts.routed_experts.w13_weight", 4, 8,
             6);
    CASE_ROW(&v, "model.layers.0.mlp.experts.w2_weight", 4, 6, 4);
    assert_ok(dyti_rules_apply(model, case_view(&v), rules, &place, &got));
    /* three places, gate and up of each; the second row once each */
    assert_int_equal(got.count, 9);
    assert_int_equal(got.piece[0].box.lo[0], 4);
    assert_int_equal(got.piece[1].box.lo[1], 4);
    assert_int_equal(got.piece[1].offset, 4 * 6 * 2);
    assert_int_equal(got.piece[2].box.lo[0], 0);
    assert_int_equal(got.piece[2].offset, 2 * 8 * 6 * 2);
    dyti_row_pieces_fini(&got);
    case_view_free(&v);
    dyti_model_destroy(model);
}

/* ---- a replica together -------------------------------------------------- */

static void missing_tensors_are_listed(void **state)
{
    struct dyti_listed_desc desc[] = {
        {.name = "a", .ndim = 2, .shape = {4, 4}, .layer = -1, .expert = -1},
        {.name = "b", .ndim = 1, .shape = {4}, .layer = -1, .expert = -1}};
    struct dyti_shard shard[2] = {{.box = {2, {0, 0}, {2, 4}}},
                                  {.box = {2, {2, 0}, {4, 3}}}};
    struct dyti_view view[2] = {{.shard = &shard[0], .shard_count = 1},
                                {.shard = &shard[1], .shard_count = 1}};
    const struct dyti_view *member[] = {&view[0], &view[1]};
    struct dyti_model *model = NULL;

    (void)state;
    assert_ok(dyti_model_build_listed(desc, 2, &model));
    assert_status(DYT_ERR_LAYOUT, dyti_replica_check(model, 1u << DYTI_PARAM,
                                                     "replica", member, 2));
    assert_error_has("missing: element [2, 3] of param of a");
    assert_error_has("missing: param of b, [4], is in no row");
    dyti_model_destroy(model);
    assert_ok(dyti_model_build_listed(desc, 1, &model));
    shard[1].box.hi[1] = 4;
    assert_ok(
        dyti_replica_check(model, 1u << DYTI_PARAM, "replica", member, 2));
    dyti_model_destroy(model);
}

/* ---- many ---------------------------------------------------------------- */

/* 18,000 names, all of them wrong: listed, counted, and not for ever. */
static void many_wrong_names_are_counted(void **state)
{
    const struct dyti_arch arch = DYT_ARCH_QWEN3_30B;
    struct dyti_model *model = NULL;
    struct dyti_place place = {.tp_size = 1, .ep_size = 1};
    struct dyti_row_pieces got = {0};
    struct case_view v = {0};
    char(*name)[96];

    (void)state;
    assert_ok(dyti_model_build(&arch, &model));
    assert_true(model->tensor_count > 18000);
    name = calloc(model->tensor_count, sizeof(*name));
    assert_non_null(name);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        (void)snprintf(name[i], sizeof(name[i]), "%sx", model->tensor[i].name);
        case_row(&v, name[i], model->tensor[i].ndim, model->tensor[i].shape);
    }
    assert_ok(dyti_view_check(case_view(&v)));
    assert_status(DYT_ERR_LAYOUT,
                  dyti_rules_apply(model, case_view(&v), NULL, &place, &got));
    assert_error_has("more; missing on this member: 18867 tensors");
    free(name);
    case_view_free(&v);
    dyti_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(smollm2_pieces_are_the_measured_ones),
    cmocka_unit_test(a_staged_tied_head_is_a_copy),
    cmocka_unit_test(faults_are_listed_all_at_once),
    cmocka_unit_test(odd_cuts_name_the_number),
    cmocka_unit_test(doubles_are_named_with_both_rows),
    cmocka_unit_test(malformed_tables_are_refused),
    cmocka_unit_test(unknown_tables_list_the_known),
    cmocka_unit_test(experts_of_one_tensor),
    cmocka_unit_test(missing_tensors_are_listed),
    cmocka_unit_test(many_wrong_names_are_counted),
};
DYT_TEST_MAIN(tests)
