/* The texts of one small case: rollout TP 2 from train PP 2 x DP 2 ZeRO-1. */
#include "golden.h"
#include "plan_cases.h"

#include "explain/explain.h"

struct small {
    struct dyti_model *model;
    struct dyti_layout *rollout, *train;
    const struct dyti_layout *slot[DYTI_ARENA_SLOT_COUNT];
    struct dyti_plan_inputs inputs;
    struct dyti_plan *plan;
    struct dyti_schedule *schedule;
};

static int open_small(void **state)
{
    static struct small s;
    const struct dyti_arch arch = DYT_ARCH(DYTI_QWEN2, 50, 8, 2, 4, 2, 2, 10,
                                           .tied = true, .qkv_bias = true);
    static const uint32_t two[] = {2, 1};
    struct dyti_layout_desc desc = {.phase = "rollout",
                                    .world_size = 4,
                                    .tp = 2,
                                    .pp = 1,
                                    .dp = 1,
                                    .ranks = two,
                                    .dtype = {DYTI_BF16}};
    const struct dyti_schedule_options options = {.side = DYTI_SIDE_PULL,
                                                  .chunk_bytes = 1024};

    memset(&s, 0, sizeof(s));
    desc.residency[DYTI_GRAD] = DYTI_DROPPED;
    desc.residency[DYTI_MASTER] = DYTI_PARKED;
    desc.residency[DYTI_EXP_AVG] = DYTI_PARKED;
    desc.residency[DYTI_EXP_AVG_SQ] = DYTI_PARKED;
    assert_ok(dyti_model_build(&arch, &s.model));
    assert_ok(dyti_layout_build(s.model, &desc, &s.rollout));
    desc = (struct dyti_layout_desc){.phase = "train",
                                     .world_size = 4,
                                     .tp = 1,
                                     .pp = 2,
                                     .dp = 2,
                                     .zero = 1,
                                     .dtype = {DYTI_BF16}};
    assert_ok(dyti_layout_build(s.model, &desc, &s.train));
    s.slot[DYTI_ARENA_ROLLOUT] = s.rollout;
    s.slot[DYTI_ARENA_TRAIN] = s.train;
    assert_ok(dyti_plan_inputs_init(s.train, DYTI_ARENA_TRAIN, s.rollout,
                                    DYTI_ARENA_ROLLOUT, DYTI_PLAN_KINDS_STATE,
                                    &s.inputs));
    assert_ok(dyti_plan_build(&s.inputs, &s.plan));
    assert_ok(dyti_schedule_build(s.plan, 2, &options, &s.schedule));
    *state = &s;
    return 0;
}

static int close_small(void **state)
{
    struct small *s = *state;

    dyti_schedule_destroy(s->schedule);
    dyti_plan_destroy(s->plan);
    dyti_layout_destroy(s->rollout);
    dyti_layout_destroy(s->train);
    dyti_model_destroy(s->model);
    return 0;
}

static const struct dyti_arena_options separate = {.mode =
                                                       DYTI_MODE_TRANSACTIONAL};

static void the_text_of_each_artifact(void **state)
{
    static const uint64_t work[] = {4096, 0, 1000000, 5};
    const struct small *s = *state;
    struct dyt_golden_stream g;

    assert_ok(dyti_explain_model(s->model, dyt_golden_begin(&g)));
    dyt_golden_end(&g, "explain_model.txt");
    assert_ok(dyti_explain_layout(s->rollout, false, dyt_golden_begin(&g)));
    dyt_golden_end(&g, "explain_rollout.txt");
    assert_ok(dyti_explain_layout(s->train, true, dyt_golden_begin(&g)));
    dyt_golden_end(&g, "explain_train.txt");
    assert_ok(
        dyti_explain_arenas(s->slot, work, &separate, dyt_golden_begin(&g)));
    dyt_golden_end(&g, "explain_arenas.txt");
    assert_ok(dyti_explain_plan(s->plan, NULL, true, dyt_golden_begin(&g)));
    dyt_golden_end(&g, "explain_plan.txt");
    assert_ok(dyti_explain_schedule(s->schedule, true, dyt_golden_begin(&g)));
    dyt_golden_end(&g, "explain_schedule.txt");
}

static void the_json_of_all(void **state)
{
    const struct small *s = *state;
    struct dyti_json json;
    const char *text = NULL;
    size_t bytes = 0;

    dyti_json_init(&json, 1);
    dyti_json_begin_object(&json, NULL);
    dyti_explain_model_json(s->model, &json, "model");
    dyti_json_begin_array(&json, "layouts");
    dyti_explain_layout_json(s->rollout, true, &json, NULL);
    dyti_explain_layout_json(s->train, false, &json, NULL);
    dyti_json_end(&json);
    assert_ok(
        dyti_explain_arenas_json(s->slot, NULL, &separate, &json, "arenas"));
    dyti_explain_plan_json(s->plan, NULL, true, &json, "plan");
    dyti_explain_schedule_json(s->schedule, true, &json, "schedule");
    dyti_json_end(&json);
    assert_ok(dyti_json_finish(&json, &text, &bytes));
    dyt_golden_check("explain.json", text);
    dyti_json_release(&json);
}

/* A full disk is reported, not ignored. */
static void a_failed_write_is_an_error(void **state)
{
    const struct small *s = *state;
    FILE *full = fopen("/dev/full", "w");

    assert_non_null(full);
    assert_status(DYT_ERR_IO, dyti_explain_model(s->model, full));
    assert_error_has("writing the model");
    assert_status(DYT_ERR_IO, dyti_explain_plan(s->plan, NULL, false, full));
    fclose(full);
}

/* More than 12 ranks: a list instead of a matrix. */
/* Experts, virtual stages, a sticky cut; lazy: views are made one by one. */
static void a_layout_of_experts(void **state)
{
    static const struct dyti_zero_range cut[] = {
        {0, 1u << 30, 1}, {1u << 30, 3u << 30, 0}, {3u << 30, 1ull << 32, 1}};
    const struct dyti_arch arch = DYT_ARCH_TINY_MOE;
    const struct dyti_layout_desc desc = {.phase = "train",
                                          .world_size = 4,
                                          .tp = 2,
                                          .pp = 1,
                                          .dp = 2,
                                          .ep = 4,
                                          .zero = 2,
                                          .experts = DYTI_EXPERTS_ROUND_ROBIN,
                                          .zero_range = cut,
                                          .zero_range_count = 3,
                                          .lazy = true};
    struct dyt_golden_stream stream;
    struct dyti_model *model = NULL;
    struct dyti_layout *layout = NULL;

    (void)state;
    assert_ok(dyti_model_build(&arch, &model));
    assert_ok(dyti_layout_build(model, &desc, &layout));
    assert_ok(dyti_explain_layout(layout, false, dyt_golden_begin(&stream)));
    dyt_golden_end(&stream, "explain_experts.txt");
    dyti_layout_destroy(layout);
    dyti_model_destroy(model);
}

static void a_wide_world_is_a_list(void **state)
{
    const struct dyti_arch arch = DYT_ARCH_TINY_8_2;
    const struct dyti_layout_desc desc = {
        .phase = "train", .world_size = 13, .tp = 2, .pp = 1, .dp = 2};
    struct dyti_plan_inputs in;
    struct dyti_model *model = NULL;
    struct dyti_layout *layout = NULL;
    struct dyti_plan *plan = NULL;
    struct dyt_golden_stream g;

    (void)state;
    assert_ok(dyti_model_build(&arch, &model));
    assert_ok(dyti_layout_build(model, &desc, &layout));
    assert_ok(dyti_plan_inputs_init(layout, DYTI_ARENA_TRAIN, layout,
                                    DYTI_ARENA_ROLLOUT, 1u << DYTI_PARAM, &in));
    assert_ok(dyti_plan_build_rank(&in, 3, &plan));
    assert_ok(dyti_explain_plan(plan, NULL, false, dyt_golden_begin(&g)));
    dyt_golden_end(&g, "explain_plan_wide.txt");
    dyti_plan_destroy(plan);
    dyti_layout_destroy(layout);
    dyti_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_text_of_each_artifact),
    cmocka_unit_test(the_json_of_all),
    cmocka_unit_test(a_failed_write_is_an_error),
    cmocka_unit_test(a_layout_of_experts),
    cmocka_unit_test(a_wide_world_is_a_list),
};

int main(void)
{
    return dyt_test_verdict(
        cmocka_run_group_tests_name(__FILE__, tests, open_small, close_small));
}
