/* Which source a kind gets, and what is refused. */
#include "plan_cases.h"

struct pair {
    struct dyti_model *model;
    struct dyti_layout *rollout, *train;
};

static void open_pair(enum dyti_dtype rollout_dtype,
                      enum dyti_dtype train_dtype,
                      enum dyti_residency rollout_master, struct pair *p)
{
    const struct dyti_arch arch = DYT_ARCH_TINY_9_3;
    struct dyti_layout_desc desc = {.phase = "rollout",
                                    .world_size = 4,
                                    .tp = 4,
                                    .pp = 1,
                                    .dp = 1,
                                    .dtype = {rollout_dtype}};

    assert_ok(dyti_model_build(&arch, &p->model));
    desc.residency[DYTI_GRAD] = DYTI_DROPPED;
    for (int kind = DYTI_MASTER; kind < DYTI_KIND_COUNT; kind++) {
        desc.residency[kind] = rollout_master;
    }
    assert_ok(dyti_layout_build(p->model, &desc, &p->rollout));
    desc = (struct dyti_layout_desc){.phase = "train",
                                     .world_size = 4,
                                     .tp = 1,
                                     .pp = 2,
                                     .dp = 2,
                                     .zero = 1,
                                     .dtype = {train_dtype}};
    assert_ok(dyti_layout_build(p->model, &desc, &p->train));
}

static void close_pair(struct pair *p)
{
    dyti_layout_destroy(p->rollout);
    dyti_layout_destroy(p->train);
    dyti_model_destroy(p->model);
}

static enum dyt_status to_train(const struct pair *p,
                                struct dyti_plan_inputs *inputs)
{
    return dyti_plan_inputs_init(p->rollout, DYTI_ARENA_ROLLOUT, p->train,
                                 DYTI_ARENA_TRAIN, DYTI_PLAN_KINDS_STATE,
                                 inputs);
}

static void rollout_is_filled_from_the_owners_masters(void **state)
{
    struct dyti_plan_inputs in;
    struct pair p;

    (void)state;
    open_pair(DYTI_BF16, DYTI_BF16, DYTI_PARKED, &p);
    assert_ok(dyti_plan_inputs_init(p.train, DYTI_ARENA_TRAIN, p.rollout,
                                    DYTI_ARENA_ROLLOUT, DYTI_PLAN_KINDS_STATE,
                                    &in));
    assert_int_equal(1, in.want_count);
    assert_int_equal(DYTI_PARAM, in.want[0].kind);
    assert_int_equal(DYTI_MASTER, in.want[0].source[0].kind);
    assert_ptr_equal(p.train, in.want[0].source[0].layout);
    close_pair(&p);
}

static void train_param_comes_from_rollout_unless_that_is_narrower(void **state)
{
    static const struct {
        enum dyti_dtype rollout, train;
        enum dyti_kind want;
    } row[] = {
        {DYTI_F32, DYTI_F32, DYTI_PARAM},
        {DYTI_BF16, DYTI_BF16, DYTI_PARAM},
        {DYTI_F32, DYTI_BF16, DYTI_PARAM},
        {DYTI_BF16, DYTI_F32, DYTI_MASTER}, /* parked in the train layout */
        {DYTI_BF16, DYTI_F16, DYTI_MASTER},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_plan_inputs in;
        struct pair p;

        open_pair(row[i].rollout, row[i].train, DYTI_PARKED, &p);
        assert_ok(to_train(&p, &in));
        assert_int_equal(1, in.want_count);
        assert_int_equal(row[i].want, in.want[0].source[0].kind);
        assert_ptr_equal(row[i].want == DYTI_PARAM ? p.rollout : p.train,
                         in.want[0].source[0].layout);
        close_pair(&p);
    }
}

static void moved_optimizer_goes_kind_to_kind(void **state)
{
    struct dyti_plan_inputs in;
    struct pair p;

    (void)state;
    open_pair(DYTI_BF16, DYTI_BF16, DYTI_HELD, &p);
    assert_ok(to_train(&p, &in));
    assert_int_equal(4, in.want_count);
    assert_int_equal(DYTI_MASTER, in.want[0].source[0].kind);
    for (uint32_t w = 1; w < in.want_count; w++) {
        assert_int_equal(in.want[w].kind, in.want[w].source[0].kind);
        assert_int_equal(DYTI_ARENA_ROLLOUT, in.want[w].source[0].slot);
    }
    close_pair(&p);
}

static void what_nobody_has_is_refused_by_name(void **state)
{
    struct dyti_plan_inputs in = {.want_count = 77};
    struct pair p;

    (void)state;
    open_pair(DYTI_F32, DYTI_F32, DYTI_DROPPED, &p);
    assert_status(DYT_ERR_LAYOUT, to_train(&p, &in));
    assert_error_has("master of phase train has no source");
    close_pair(&p);
    open_pair(DYTI_BF16, DYTI_F32, DYTI_DROPPED, &p);
    assert_status(DYT_ERR_LAYOUT, to_train(&p, &in));
    assert_error_has("param of phase train as f32 has no source");
    assert_error_has("param as bf16");
    assert_int_equal(77, in.want_count);
    close_pair(&p);
}

static void inputs_that_make_no_sense_are_refused(void **state)
{
    struct dyti_plan_inputs good, bad;
    struct dyti_plan *plan = NULL;
    struct pair p;

    (void)state;
    open_pair(DYTI_BF16, DYTI_F32, DYTI_PARKED, &p);
    assert_ok(to_train(&p, &good));

    bad = good; /* a narrower source */
    bad.want[0].source[0] =
        (struct dyti_plan_source){p.rollout, DYTI_ARENA_ROLLOUT, DYTI_PARAM};
    assert_status(DYT_ERR_INVALID, dyti_plan_build(&bad, &plan));
    assert_error_has("param as bf16 cannot be the source of param as f32");

    bad = good; /* a kind that is not held there */
    bad.want[0].source[0] =
        (struct dyti_plan_source){p.rollout, DYTI_ARENA_ROLLOUT, DYTI_MASTER};
    assert_status(DYT_ERR_INVALID, dyti_plan_build(&bad, &plan));
    assert_error_has("phase rollout does not hold master");

    bad = good; /* the region itself */
    bad.want[0].source[0].kind = DYTI_PARAM;
    assert_status(DYT_ERR_INVALID, dyti_plan_build(&bad, &plan));
    assert_error_has("both source and destination");

    bad = good;
    bad.want[0].source_count = 3;
    assert_status(DYT_ERR_INVALID, dyti_plan_build(&bad, &plan));
    assert_status(DYT_ERR_INVALID, dyti_plan_build_rank(&good, 4, &plan));
    assert_null(plan);
    close_pair(&p);
}

static void other_models_and_worlds_are_refused(void **state)
{
    const struct dyti_arch other = DYT_ARCH_TINY_8_2, same = DYT_ARCH_TINY_9_3;
    const struct dyti_layout_desc desc = {
        .phase = "x", .world_size = 5, .tp = 1, .pp = 1, .dp = 1};
    struct dyti_plan_inputs in;
    struct dyti_model *model = NULL;
    struct dyti_layout *layout = NULL;
    struct pair p;

    (void)state;
    open_pair(DYTI_F32, DYTI_F32, DYTI_PARKED, &p);
    for (int i = 0; i < 2; i++) {
        assert_ok(dyti_model_build(i == 0 ? &other : &same, &model));
        assert_ok(dyti_layout_build(model, &desc, &layout));
        assert_status(DYT_ERR_LAYOUT,
                      dyti_plan_inputs_init(layout, DYTI_ARENA_ROLLOUT, p.train,
                                            DYTI_ARENA_TRAIN,
                                            DYTI_PLAN_KINDS_STATE, &in));
        assert_error_has(i == 0 ? "different models"
                                : "worlds of 5 and 4 ranks");
        dyti_layout_destroy(layout);
        dyti_model_destroy(model);
    }
    close_pair(&p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rollout_is_filled_from_the_owners_masters),
    cmocka_unit_test(train_param_comes_from_rollout_unless_that_is_narrower),
    cmocka_unit_test(moved_optimizer_goes_kind_to_kind),
    cmocka_unit_test(what_nobody_has_is_refused_by_name),
    cmocka_unit_test(inputs_that_make_no_sense_are_refused),
    cmocka_unit_test(other_models_and_worlds_are_refused),
};
DYT_TEST_MAIN(tests)
