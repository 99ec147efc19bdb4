/* 18,000 names are planned without looking at one: the names are taken away,
 * and everything between two built layouts and a rank's list works all the
 * same. */
#include "arch_cases.h"
#include "dyt_test.h"
#include "plan/place.h"
#include "plan/traffic.h"

static const struct dyti_arch many = {
    .family = DYTI_QWEN3_MOE,
    .vocab = 64,
    .hidden = 16,
    .layers = 47,
    .q_heads = 4,
    .kv_heads = 2,
    .head_dim = 4,
    .ffn = 16,
    .max_positions = 64,
    .rms_eps = 1e-6,
    .init_std = 0.02,
    .rope = {.theta = 1000000},
    .qk_norm = true,
    .dtype = DYTI_BF16,
    .moe = {.count = 128, .per_token = 8, .ffn = 4, .layer_step = 1}};

static struct dyti_layout *lay_out(const struct dyti_model *model, uint32_t tp,
                                   uint32_t pp, uint32_t ep)
{
    const struct dyti_layout_desc desc = {.phase = "x",
                                          .world_size = 8,
                                          .tp = tp,
                                          .pp = pp,
                                          .dp = 8 / tp / pp,
                                          .ep = ep,
                                          .zero = 1,
                                          .dtype = {DYTI_BF16},
                                          .lazy = true};
    struct dyti_layout *layout = NULL;

    assert_ok(dyti_layout_build(model, &desc, &layout));
    return layout;
}

static void planning_reads_no_names(void **state)
{
    struct dyti_model *model = NULL;
    struct dyti_layout *from, *to;
    struct dyti_plan_inputs in;
    struct dyti_traffic *traffic = NULL;
    struct dyti_placement placement = {0};
    struct dyti_routes routes = {0};
    const char **name;

    (void)state;
    assert_ok(dyti_model_build(&many, &model));
    assert_true(model->tensor_count > 18000);
    from = lay_out(model, 2, 2, 4);
    to = lay_out(model, 4, 1, 8);
    assert_ok(dyti_plan_inputs_init(from, DYTI_ARENA_TRAIN, to,
                                    DYTI_ARENA_ROLLOUT, DYTI_PLAN_KINDS_STATE,
                                    &in));
    name = calloc(model->tensor_count, sizeof(*name));
    assert_non_null(name);
    for (uint32_t t = 0; t < model->tensor_count; t++) {
        name[t] = model->tensor[t].name;
        model->tensor[t].name = NULL;
    }
    assert_ok(dyti_traffic_build(&in, NULL, &traffic));
    assert_ok(dyti_traffic_routes(traffic, 3, &routes));
    assert_ok(dyti_place(&in, NULL, &placement));
    assert_true(dyti_plan_fingerprint(&in) != 0);
    assert_true(routes.transfers > 18000 / 8);
    for (uint32_t t = 0; t < model->tensor_count; t++) {
        model->tensor[t].name = name[t];
    }
    free(name);
    dyti_placement_fini(&placement);
    dyti_routes_fini(&routes);
    dyti_traffic_destroy(traffic);
    dyti_layout_destroy(from);
    dyti_layout_destroy(to);
    dyti_model_destroy(model);
}

/* The compact form does not grow with the names: layers and experts that are
 * equal share all of it. */
static void equal_tensors_share_their_routes(void **state)
{
    struct dyti_model *model = NULL;
    struct dyti_layout *from, *to;
    struct dyti_plan_inputs in;
    struct dyti_traffic *traffic = NULL;
    struct dyti_routes routes = {0};

    (void)state;
    assert_ok(dyti_model_build(&many, &model));
    from = lay_out(model, 2, 2, 4);
    to = lay_out(model, 4, 1, 8);
    assert_ok(dyti_plan_inputs_init(from, DYTI_ARENA_TRAIN, to,
                                    DYTI_ARENA_ROLLOUT, DYTI_PLAN_KINDS_STATE,
                                    &in));
    assert_ok(dyti_traffic_build(&in, NULL, &traffic));
    for (uint32_t r = 0; r < 8; r++) {
        assert_ok(dyti_traffic_routes(traffic, r, &routes));
        assert_true(routes.count * 10 < routes.transfers);
        dyti_routes_fini(&routes);
    }
    dyti_traffic_destroy(traffic);
    dyti_layout_destroy(from);
    dyti_layout_destroy(to);
    dyti_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(planning_reads_no_names),
    cmocka_unit_test(equal_tensors_share_their_routes),
};
DYT_TEST_MAIN(tests)
