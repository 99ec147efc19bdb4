/* Building: defaults, refusals that name the nearest degree, fingerprint,
 * residency, size of what can be described. */
#include "layout_cases.h"

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
    struct dyti_layout_desc desc[10];
    uint64_t seen[10];
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
    cmocka_unit_test(members_are_ordered_pp_dp_tp),
    cmocka_unit_test(only_held_kinds_have_shards),
    cmocka_unit_test(fingerprint_tells_inputs_apart),
    cmocka_unit_test(a_large_model_is_described),
};
DYT_TEST_MAIN(tests)
