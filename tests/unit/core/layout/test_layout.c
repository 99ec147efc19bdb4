/* Building: defaults, refusals that name the nearest degree, fingerprint,
 * residency, size of what can be described. */
#include "layout_cases.h"

#include "layout/dialect.h"

static struct dyti_model *model_of(struct dyti_arch arch)
{
    struct dyti_model *model = NULL;

    assert_ok(dyti_model_build(&arch, &model));
    return model;
}

static void bad_degrees_are_refused_with_a_remedy(void **state)
{
    static const uint32_t twice[] = {1, 1}, far[] = {0, 9}, zeros[] = {3, 0},
                          short_sum[] = {1, 1};
    static const struct {
        struct dyti_layout_desc desc;
        enum dyt_status want;
        const char *says[2];
    } row[] = {
        /* clang-format off */
        {{.world_size = 16, .tp = 10, .pp = 1, .dp = 1}, DYT_ERR_LAYOUT, {"tp 10: self_attn.q_proj.weight has 9 query heads", "nearest degree that works is tp 9"}},
        {{.world_size = 16, .tp = 1, .pp = 4, .dp = 1}, DYT_ERR_LAYOUT, {"pp 4: model.layers has 3 layers", "is pp 3"}},
        {{.world_size = 3, .tp = 2, .pp = 1, .dp = 2}, DYT_ERR_LAYOUT, {"needs 4 ranks, the world has 3", ""}},
        {{.world_size = 4, .tp = 0, .pp = 1, .dp = 1}, DYT_ERR_LAYOUT, {"tp 0", "at least 1"}},
        {{.world_size = 4, .tp = 2, .pp = 1, .dp = 1, .ranks = twice}, DYT_ERR_LAYOUT, {"ranks[1] names rank 1 a second time", ""}},
        {{.world_size = 4, .tp = 2, .pp = 1, .dp = 1, .ranks = far}, DYT_ERR_LAYOUT, {"ranks[1] is 9", "0 to 3"}},
        {{.world_size = 4, .tp = 1, .pp = 2, .dp = 1, .pp_layers = zeros}, DYT_ERR_LAYOUT, {"pp_layers[1] is 0", ""}},
        {{.world_size = 4, .tp = 1, .pp = 2, .dp = 1, .pp_layers = short_sum}, DYT_ERR_LAYOUT, {"add up to 2 layers", "has 3"}},
        {{.world_size = 4, .tp = 1, .pp = 1, .dp = 2, .zero = 4}, DYT_ERR_UNSUPPORTED, {"zero 4 is not available", ""}},
        {{.world_size = 4, .tp = 1, .pp = 1, .dp = 1, .dtype = {DYTI_I64}}, DYT_ERR_UNSUPPORTED, {"param as i64", ""}},
        {{.world_size = 4, .tp = 1, .pp = 1, .dp = 1, .dtype = {DYTI_F32, DYTI_BF16}}, DYT_ERR_UNSUPPORTED, {"grad as bf16", ""}},
        {{.world_size = 4, .tp = 1, .pp = 70000, .dp = 70000}, DYT_ERR_OVERFLOW, {"70000", ""}},
        /* clang-format on */
    };
    struct dyti_model *model = model_of((struct dyti_arch)DYT_ARCH_TINY_9_3);

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_layout *layout = NULL;

        assert_status(row[i].want,
                      dyti_layout_build(model, &row[i].desc, &layout));
        assert_error_has(row[i].says[0]);
        assert_error_has(row[i].says[1]);
        assert_null(layout);
    }
    dyti_layout_destroy(NULL);
    dyti_model_destroy(model);
}

/* What came with experts, virtual stages and explicit cuts. */
static void bad_wider_degrees_are_refused(void **state)
{
    static const int32_t three[] = {0, 0, 0, 1, 2, 3, 4}, far[] = {0, 9},
                         lost[] = {0, 1, 2, 3, 3};
    static const struct dyti_zero_range gap[] = {{0, 9, 0},
                                                 {10, DYTI_ZERO_WHOLE, 1}};
    static const struct dyti_zero_range beyond[] = {{0, 9, 0},
                                                    {9, DYTI_ZERO_WHOLE, 2}};
    static const struct {
        bool moe;
        struct dyti_layout_desc desc;
        enum dyt_status want;
        const char *says[2];
    } row[] = {
        /* clang-format off */
        {false, {.world_size = 16, .tp = 2, .pp = 1, .dp = 2, .ep = 2}, DYT_ERR_LAYOUT, {"ep 2, etp 1: the model has no routed experts", "ep 1 and etp 1 work"}},
        {true, {.world_size = 16, .tp = 2, .pp = 1, .dp = 2, .ep = 3}, DYT_ERR_LAYOUT, {"ep 3 x etp 1 does not divide the 4 ranks of a stage", "nearest degree that works is ep 2"}},
        {true, {.world_size = 16, .tp = 2, .pp = 1, .dp = 2, .etp = 3}, DYT_ERR_LAYOUT, {"etp 3 does not divide the 4 ranks", "etp 2 works"}},
        {true, {.world_size = 16, .tp = 8, .pp = 1, .dp = 1, .ep = 8}, DYT_ERR_LAYOUT, {"ep 8: a layer has 5 experts", "is ep 4"}},
        {true, {.world_size = 16, .tp = 1, .pp = 1, .dp = 16, .etp = 16}, DYT_ERR_LAYOUT, {"etp 16: mlp.experts.0.gate_proj.weight has 12 FFN rows", "is etp 12"}},
        {true, {.world_size = 4, .tp = 2, .pp = 1, .dp = 1, .experts = DYTI_EXPERTS_EXPLICIT}, DYT_ERR_LAYOUT, {"an explicit expert map needs", ""}},
        {true, {.world_size = 4, .tp = 1, .pp = 1, .dp = 1, .experts = DYTI_EXPERTS_EXPLICIT, .expert_slot = three, .expert_slots = 7}, DYT_ERR_LAYOUT, {"expert 0 has three slots on ep rank 0", "two"}},
        {true, {.world_size = 4, .tp = 1, .pp = 1, .dp = 1, .experts = DYTI_EXPERTS_EXPLICIT, .expert_slot = far, .expert_slots = 2}, DYT_ERR_LAYOUT, {"expert_slot 1 of ep rank 0 is 9", "0 to 4"}},
        {true, {.world_size = 4, .tp = 1, .pp = 1, .dp = 1, .experts = DYTI_EXPERTS_EXPLICIT, .expert_slot = lost, .expert_slots = 5}, DYT_ERR_LAYOUT, {"expert 4 has no slot", ""}},
        {true, {.world_size = 4, .tp = 1, .pp = 1, .dp = 1, .experts = (enum dyti_expert_map)7}, DYT_ERR_LAYOUT, {"expert map 7", "round_robin"}},
        {false, {.world_size = 4, .tp = 1, .pp = 2, .dp = 1, .vpp = 2}, DYT_ERR_LAYOUT, {"vpp 2 x pp 2: model.layers has 3 layers", "is vpp 1"}},
        {false, {.world_size = 4, .tp = 1, .pp = 1, .dp = 1, .order = {0, 0, 1, 2}}, DYT_ERR_LAYOUT, {"order[1] is 0", "each come once"}},
        {false, {.world_size = 4, .tp = 1, .pp = 1, .dp = 2, .cp = 3}, DYT_ERR_LAYOUT, {"needs 6 ranks, the world has 4", ""}},
        {false, {.world_size = 4, .tp = 1, .pp = 1, .dp = 2, .zero = 1, .zero_range = gap, .zero_range_count = 2}, DYT_ERR_LAYOUT, {"zero_range[1] is [10, 4294967296)", "the last one ended at 9"}},
        {false, {.world_size = 4, .tp = 1, .pp = 1, .dp = 2, .zero = 1, .zero_range = beyond, .zero_range_count = 2}, DYT_ERR_LAYOUT, {"zero_range[1] belongs to position 2", "0 to 1"}},
        {false, {.world_size = 4, .tp = 1, .pp = 1, .dp = 1, .dialect = DYTI_DIALECT_LIST}, DYT_ERR_UNSUPPORTED, {"cannot be built from degrees", ""}},
        /* clang-format on */
    };
    struct dyti_model *model[] = {
        model_of((struct dyti_arch)DYT_ARCH_TINY_9_3),
        model_of((struct dyti_arch)DYT_ARCH_TINY_MOE)};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_layout *layout = NULL;

        assert_status(row[i].want, dyti_layout_build(model[row[i].moe],
                                                     &row[i].desc, &layout));
        assert_error_has(row[i].says[0]);
        assert_error_has(row[i].says[1]);
        assert_null(layout);
    }
    dyti_model_destroy(model[0]);
    dyti_model_destroy(model[1]);
}

/* The expert maps of the vectors: 10 experts over 4 ranks. */
static void experts_are_placed_by_the_map(void **state)
{
    static const int32_t want[2][10] = {{0, 0, 0, 1, 1, 1, 2, 2, 3, 3},
                                        {0, 1, 2, 3, 0, 1, 2, 3, 0, 1}};
    struct dyti_arch arch = DYT_ARCH_TINY_MOE;
    struct dyti_model *model;

    (void)state;
    arch.moe.count = 10;
    model = model_of(arch);
    for (int map = 0; map < 2; map++) {
        const struct dyti_layout_desc desc = {.world_size = 4,
                                              .tp = 4,
                                              .pp = 1,
                                              .dp = 1,
                                              .ep = 4,
                                              .experts =
                                                  (enum dyti_expert_map)map};
        struct dyti_layout *layout = NULL;

        assert_ok(dyti_layout_build(model, &desc, &layout));
        for (uint32_t r = 0; r < 4; r++) {
            for (int32_t e = 0; e < 10; e++) {
                uint32_t t =
                    dyti_model_find_expert(model, 1, e, DYTI_SLOT_EXPERT_UP);
                const struct dyti_shard *s =
                    dyti_view_find(&layout->view[r], DYTI_PARAM, t);

                assert_int_equal(want[map][e] == (int32_t)r, s != NULL);
            }
        }
        dyti_layout_destroy(layout);
    }
    dyti_model_destroy(model);
}

/* Five layers on 2 stages x 2 virtual ones: 2, 1, 1, 1 in turn. */
static void virtual_stages_take_turns(void **state)
{
    static const uint32_t want[] = {0, 0, 1, 0, 1};
    const struct dyti_layout_desc desc = {
        .world_size = 2, .tp = 1, .pp = 2, .dp = 1, .vpp = 2};
    struct dyti_arch arch = DYT_ARCH_TINY_9_3;
    struct dyti_model *model;
    struct dyti_layout *layout = NULL;

    (void)state;
    arch.layers = 5;
    model = model_of(arch);
    assert_ok(dyti_layout_build(model, &desc, &layout));
    for (int32_t layer = 0; layer < 5; layer++) {
        uint32_t t = dyti_model_find(model, layer, DYTI_SLOT_O);

        assert_int_equal(want[layer], dyti_layout_stage_of(layout, layer));
        for (uint32_t r = 0; r < 2; r++) {
            assert_int_equal(want[layer] == r,
                             dyti_view_find(&layout->view[r], DYTI_PARAM, t) !=
                                 NULL);
        }
    }
    assert_int_equal(0, layout->view[0].part.layer_lo);
    assert_int_equal(2, layout->view[0].part.layer_hi);
    dyti_layout_destroy(layout);
    dyti_model_destroy(model);
}

/* What nn and the trainer do not do yet is said where they ask. */
static void what_is_not_trained_is_said(void **state)
{
    static const struct {
        struct dyti_layout_desc desc;
        const char *says;
    } row[] = {
        {{.world_size = 4, .tp = 1, .pp = 1, .dp = 2, .cp = 2},
         "cp 2 can be planned, is not trained yet"},
        {{.world_size = 4, .tp = 1, .pp = 1, .dp = 2, .zero = 2},
         "zero 2 can be planned, is not trained yet"},
        {{.world_size = 4, .tp = 1, .pp = 1, .dp = 2, .vpp = 2},
         "vpp 2 can be planned, is not trained yet"},
        {{.world_size = 4,
          .tp = 1,
          .pp = 1,
          .dp = 2,
          .dialect = DYTI_DIALECT_HF},
         "dialect hf can be planned, is not trained yet"},
        {{.world_size = 4, .tp = 1, .pp = 1, .dp = 2, .lazy = true},
         "a lazy layout"},
    };
    struct dyti_model *model = model_of((struct dyti_arch)DYT_ARCH_TINY_9_3);

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_layout *layout = NULL;
        struct dyti_shared_part *part = NULL;
        size_t count = 0;

        assert_ok(dyti_layout_build(model, &row[i].desc, &layout));
        assert_status(DYT_ERR_UNSUPPORTED,
                      dyti_layout_shared(layout, 0, &part, &count));
        assert_error_has(row[i].says);
        assert_null(part);
        dyti_layout_destroy(layout);
    }
    dyti_model_destroy(model);
}

static void dialects_have_names(void **state)
{
    (void)state;
    assert_string_equal("megatron", dyti_dialect_name(DYTI_DIALECT_MEGATRON));
    assert_null(dyti_dialect_ops(DYTI_DIALECT_LIST));
}

static void members_are_ordered_pp_dp_tp(void **state)
{
    static const uint32_t ranks[] = {7, 6, 5, 4, 3, 2, 1, 0};
    const struct dyti_layout_desc desc = {
        .world_size = 9, .tp = 2, .pp = 2, .dp = 2, .ranks = ranks};
    struct dyti_model *model = model_of((struct dyti_arch)DYT_ARCH_TINY_9_3);
    struct dyti_layout *layout = NULL;

    (void)state;
    assert_ok(dyti_layout_build(model, &desc, &layout));
    for (uint32_t m = 0; m < 8; m++) {
        const struct dyti_part *p = &layout->view[7 - m].part;

        assert_true(p->member);
        assert_int_equal(m % 2, p->tp_rank);
        assert_int_equal(m / 2 % 2, p->dp_rank);
        assert_int_equal(m / 4, p->pp_rank);
        assert_int_equal(7 - m, dyti_layout_rank(layout, p->tp_rank, p->pp_rank,
                                                 p->dp_rank));
    }
    assert_false(layout->view[8].part.member);
    assert_int_equal(0, layout->view[8].shard_count);
    assert_int_equal(0, layout->view[0].part.layer_hi - 3); /* last stage */
    assert_int_equal(2, layout->desc.pp_layers[0]);
    dyti_layout_destroy(layout);
    dyti_model_destroy(model);
}

static void only_held_kinds_have_shards(void **state)
{
    struct dyti_layout_desc desc = {.phase = "rollout",
                                    .world_size = 2,
                                    .tp = 2,
                                    .pp = 1,
                                    .dp = 1,
                                    .dtype = {DYTI_BF16}};
    struct dyti_model *model = model_of((struct dyti_arch)DYT_ARCH_TINY_8_2);
    struct dyti_layout *layout = NULL;

    (void)state;
    desc.residency[DYTI_GRAD] = DYTI_DROPPED;
    desc.residency[DYTI_MASTER] = DYTI_PARKED;
    desc.residency[DYTI_EXP_AVG] = DYTI_PARKED;
    desc.residency[DYTI_EXP_AVG_SQ] = DYTI_DERIVED;
    assert_ok(dyti_layout_build(model, &desc, &layout));
    for (uint32_t r = 0; r < 2; r++) {
        const struct dyti_view *view = &layout->view[r];

        assert_int_equal(model->tensor_count, view->shard_count);
        assert_int_equal(view->flat_elements * 2,
                         view->region_bytes[DYTI_PARAM]);
        for (int kind = DYTI_GRAD; kind < DYTI_KIND_COUNT; kind++) {
            assert_int_equal(0, view->region_bytes[kind]);
            assert_null(dyti_view_find(view, (enum dyti_kind)kind, 0));
        }
    }
    dyti_layout_destroy(layout);
    dyti_model_destroy(model);
}

static void fingerprint_tells_inputs_apart(void **state)
{
    static const uint32_t ranks[] = {0, 1, 3, 2}, same[] = {0, 1, 2, 3},
                          layers[] = {1, 2}, even[] = {2, 1};
    const struct dyti_layout_desc base = {
        .phase = "train", .world_size = 4, .tp = 1, .pp = 2, .dp = 2};
    struct dyti_layout_desc desc[14];
    uint64_t seen[14];
    struct dyti_model *model = model_of((struct dyti_arch)DYT_ARCH_TINY_8_2);

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(desc); i++) {
        desc[i] = base;
    }
    desc[1].ranks = ranks;
    desc[2].pp_layers = layers;
    desc[3].zero = 1;
    desc[4].dtype[DYTI_PARAM] = DYTI_BF16;
    desc[5].residency[DYTI_GRAD] = DYTI_DROPPED;
    desc[6].phase = "rollout";
    desc[7].world_size = 5;
    desc[8].tp = 2, desc[8].pp = 1;
    desc[9].ranks = same; /* the defaults, written out: equal */
    desc[9].pp_layers = even;
    for (size_t i = 10; i < DYT_TEST_COUNT(desc); i++) {
        desc[i].dialect = i < 12 ? DYTI_DIALECT_ZERO12 : DYTI_DIALECT_MEGATRON;
        desc[i].zero = 1;
    }
    desc[11].round_robin = true;
    desc[13].bucket_multiple = 65536;
    for (size_t i = 0; i < DYT_TEST_COUNT(desc); i++) {
        struct dyti_layout *layout = NULL;

        assert_ok(dyti_layout_build(model, &desc[i], &layout));
        seen[i] = layout->fingerprint;
        for (size_t j = 0; j < i; j++) {
            assert_true((seen[i] == seen[j]) == (i == 9 && j == 0));
        }
        dyti_layout_destroy(layout);
    }
    dyti_model_destroy(model);
}

/* 70B over 128 ranks is described without any of its weights. */
static void a_large_model_is_described(void **state)
{
    const struct dyti_layout_desc desc = {
        .world_size = 128, .tp = 8, .pp = 8, .dp = 2, .zero = 1};
    struct dyti_model *model = model_of((struct dyti_arch)DYT_ARCH_LLAMA2_70B);
    struct dyti_layout *layout = NULL;
    uint64_t master = 0;

    (void)state;
    assert_ok(dyti_layout_build(model, &desc, &layout));
    for (uint32_t r = 0; r < 128; r++) {
        master += layout->view[r].region_bytes[DYTI_MASTER];
    }
    /* every element once, norms in each of the 8 TP ranks */
    assert_int_equal((dyti_model_elements(model) + 7ull * 161 * 8192) * 4,
                     master);
    dyti_layout_destroy(layout);
    dyti_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bad_degrees_are_refused_with_a_remedy),
    cmocka_unit_test(bad_wider_degrees_are_refused),
    cmocka_unit_test(experts_are_placed_by_the_map),
    cmocka_unit_test(virtual_stages_take_turns),
    cmocka_unit_test(what_is_not_trained_is_said),
    cmocka_unit_test(dialects_have_names),
    cmocka_unit_test(members_are_ordered_pp_dp_tp),
    cmocka_unit_test(only_held_kinds_have_shards),
    cmocka_unit_test(fingerprint_tells_inputs_apart),
    cmocka_unit_test(a_large_model_is_described),
};
DYT_TEST_MAIN(tests)
