/* Transitions that went wrong in other systems, each there and back: fewer KV
 * heads than ranks, tied embeddings under every cut, stages that change,
 * sizes that nothing divides, trainers sharded one way or another. */
#include "span_cases.h"

struct degrees {
    uint32_t tp, pp, dp, zero;
};

struct transition {
    const char *what;
    struct dyti_arch arch;
    struct degrees train, rollout;
};

/* clang-format off */
static const struct transition transition[] = {
    {"8 heads, 2 KV heads: TP 4", DYT_ARCH_TINY_8_2, {2, 1, 2, 1}, {4, 1, 1, 0}},
    {"8 heads, 2 KV heads: TP 8", DYT_ARCH_TINY_8_2, {1, 2, 2, 1}, {8, 1, 1, 0}},
    {"TP 2 to TP 8, every kind of tensor", DYT_ARCH_TINY_8_2, {2, 1, 1, 0}, {8, 1, 1, 0}},
    {"9 heads, 3 KV heads: TP 2", DYT_ARCH_TINY_9_3, {1, 2, 2, 1}, {2, 1, 2, 0}},
    {"9 heads, 3 KV heads: TP 4", DYT_ARCH_TINY_9_3, {4, 2, 1, 1}, {4, 1, 2, 0}},
    {"9 heads, 3 KV heads: TP 6", DYT_ARCH_TINY_9_3, {1, 3, 2, 1}, {6, 1, 1, 0}},
    {"tied, vocab 50 over 4 ranks", DYT_ARCH_TINY_9_3, {1, 1, 4, 1}, {4, 1, 1, 0}},
    {"untied, vocab 50 over 4 ranks", DYT_ARCH_TINY_8_2, {1, 1, 4, 1}, {4, 1, 1, 0}},
    {"tied, both homes", DYT_ARCH_TINY_9_3, {2, 3, 1, 1}, {1, 1, 1, 0}},
    {"PP 2 to PP 1", DYT_ARCH_TINY_8_2, {1, 2, 1, 0}, {1, 1, 1, 0}},
    {"PP 1 to PP 2", DYT_ARCH_TINY_8_2, {1, 1, 1, 0}, {1, 2, 1, 0}},
    {"PP 3 to PP 2", DYT_ARCH_TINY_8_2, {1, 3, 1, 1}, {1, 2, 1, 0}},
    {"nothing divides: TP 5, DP 3", DYT_ARCH_TINY_QWEN2, {1, 2, 3, 1}, {5, 1, 1, 0}},
    {"qk norm, one KV head", DYT_ARCH_TINY_QWEN3, {2, 2, 1, 1}, {4, 1, 2, 0}},
    {"trainer not sharded", DYT_ARCH_TINY_8_2, {1, 1, 1, 1}, {2, 1, 1, 0}},
    {"trainer sharded 2 ways", DYT_ARCH_TINY_8_2, {1, 1, 2, 1}, {2, 1, 1, 0}},
    {"trainer sharded 8 ways", DYT_ARCH_TINY_8_2, {1, 1, 8, 1}, {2, 1, 1, 0}},
};
/* clang-format on */

static struct dyti_layout *layout_of(const struct dyti_model *model,
                                     const struct degrees *d, bool train,
                                     const uint32_t *ranks)
{
    struct dyti_layout_desc desc = {.phase = train ? "train" : "rollout",
                                    .world_size = 16,
                                    .tp = d->tp,
                                    .pp = d->pp,
                                    .dp = d->dp,
                                    .zero = d->zero,
                                    .ranks = ranks,
                                    .dtype = {DYTI_BF16}};
    struct dyti_layout *layout = NULL;

    for (int kind = DYTI_GRAD; !train && kind < DYTI_KIND_COUNT; kind++) {
        desc.residency[kind] = kind == DYTI_GRAD ? DYTI_DROPPED : DYTI_PARKED;
    }
    assert_ok(dyti_layout_build(model, &desc, &layout));
    return layout;
}

static void run_way(const struct dyti_layout *src, enum dyti_arena_slot from,
                    const struct dyti_layout *dst, enum dyti_arena_slot to)
{
    const struct dyti_schedule_options how = {.side = DYTI_SIDE_PULL};
    struct dyti_plan_inputs inputs;
    struct dyt_case_memory m;

    assert_ok(dyti_plan_inputs_init(src, from, dst, to, DYTI_PLAN_KINDS_STATE,
                                    &inputs));
    dyt_case_memory_open(&inputs, &m);
    dyt_case_run_switch(&inputs, &how, &m);
    dyt_case_memory_check(&inputs, &m, -1);
    dyt_case_memory_close(&m);
}

/* The same ranks; some of them in common; none in common. */
static void every_transition_there_and_back(void **state)
{
    static const uint32_t apart[] = {15, 14, 13, 12, 11, 10, 9, 8},
                          some[] = {3, 9, 1, 12, 0, 5, 7, 8};
    const uint32_t *const ranks[] = {NULL, some, apart};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(transition); i++) {
        const struct transition *t = &transition[i];

        for (size_t k = 0; k < DYT_TEST_COUNT(ranks); k++) {
            struct dyti_model *model = NULL;
            struct dyti_layout *train, *rollout;

            assert_ok(dyti_model_build(&t->arch, &model));
            train = layout_of(model, &t->train, true, NULL);
            rollout = layout_of(model, &t->rollout, false, ranks[k]);
            run_way(train, DYTI_ARENA_TRAIN, rollout, DYTI_ARENA_ROLLOUT);
            run_way(rollout, DYTI_ARENA_ROLLOUT, train, DYTI_ARENA_TRAIN);
            dyti_layout_destroy(train);
            dyti_layout_destroy(rollout);
            dyti_model_destroy(model);
        }
    }
}

/* The last row of a tied embedding, cut over 4 ranks, arrives at both of its
 * uses: first and last pipeline stage. */
static void the_last_row_of_a_tied_embedding_arrives(void **state)
{
    const struct dyti_arch arch = DYT_ARCH_TINY_9_3;
    const struct degrees four = {4, 1, 1, 0}, stages = {1, 2, 1, 0};
    struct dyti_model *model = NULL;
    struct dyti_layout *rollout, *train;
    struct dyti_plan_inputs inputs;
    struct dyti_plan *plan = NULL;
    bool arrives[2] = {false, false};

    (void)state;
    assert_ok(dyti_model_build(&arch, &model));
    rollout = layout_of(model, &four, false, NULL);
    train = layout_of(model, &stages, true, NULL);
    assert_ok(dyti_plan_inputs_init(rollout, DYTI_ARENA_ROLLOUT, train,
                                    DYTI_ARENA_TRAIN, DYTI_PLAN_KINDS_STATE,
                                    &inputs));
    assert_ok(dyti_plan_build(&inputs, &plan));
    for (uint32_t i = 0; i < plan->transfer_count; i++) {
        const struct dyti_transfer *t = &plan->transfer[i];

        if (t->tensor == 0 && t->box.hi[0] == 50) {
            assert_int_equal(3, t->src_rank);
            arrives[t->dst_rank] = true;
        }
    }
    assert_true(arrives[0] && arrives[1]);
    dyti_plan_destroy(plan);
    dyti_layout_destroy(train);
    dyti_layout_destroy(rollout);
    dyti_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_transition_there_and_back),
    cmocka_unit_test(the_last_row_of_a_tied_embedding_arrives),
};
DYT_TEST_MAIN(tests)
