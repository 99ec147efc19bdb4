/* Known plans: same rank first, replicas share the sending, holes are named,
 * rows are not torn apart, the real case stays small. */
#include "plan_cases.h"

#include "pattern_cases.h"
#include "plan/traffic.h"

static struct dyti_model *model_of(struct dyti_arch arch)
{
    struct dyti_model *model = NULL;

    assert_ok(dyti_model_build(&arch, &model));
    return model;
}

static struct dyti_layout *layout_of(const struct dyti_model *model,
                                     const struct dyti_layout_desc *desc)
{
    struct dyti_layout *layout = NULL;

    assert_ok(dyti_layout_build(model, desc, &layout));
    return layout;
}

static struct dyti_plan *plan_of(const struct dyti_layout *src,
                                 const struct dyti_layout *dst,
                                 struct dyti_plan_inputs *in)
{
    struct dyti_plan *plan = NULL;

    assert_ok(dyti_plan_inputs_init(src, DYTI_ARENA_TRAIN, dst,
                                    DYTI_ARENA_ROLLOUT, 1u << DYTI_PARAM, in));
    assert_ok(dyti_plan_build(in, &plan));
    return plan;
}

static void equal_layouts_move_nothing(void **state)
{
    const struct dyti_layout_desc desc = {
        .phase = "x", .world_size = 4, .tp = 2, .pp = 2, .dp = 1};
    struct dyti_model *model = model_of((struct dyti_arch)DYT_ARCH_TINY_8_2);
    struct dyti_layout *a = layout_of(model, &desc);
    struct dyti_plan_inputs in;
    struct dyti_plan *plan = plan_of(a, a, &in);
    uint32_t shards = 0;

    (void)state;
    assert_int_equal(4, plan->pair_count);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(0, plan->total[r].send_bytes);
        assert_int_equal(0, plan->total[r].receive_bytes);
        assert_non_null(dyti_plan_find_pair(plan, r, r));
        assert_null(dyti_plan_find_pair(plan, r, (r + 1) % 4));
        assert_null(dyti_plan_find_pair(plan, r, 9));
    }
    /* one transfer a shard: nothing is cut without need */
    for (uint32_t r = 0; r < 4; r++) {
        shards += a->view[r].kind_first[1];
    }
    assert_int_equal(shards, plan->transfer_count);
    for (uint32_t i = 0; i < plan->transfer_count; i++) {
        assert_true(
            dyt_case_same_box(&plan->transfer[i].box,
                              &dyti_plan_dst(plan, &plan->transfer[i])->box));
    }
    dyti_plan_destroy(plan);
    dyti_layout_destroy(a);
    dyti_model_destroy(model);
}

/* Rank 0 and 1 are replicas; 4 others want everything: both send half. */
static void replicas_share_the_sending(void **state)
{
    static const uint32_t two[] = {0, 1}, four[] = {2, 3, 4, 5};
    const struct dyti_layout_desc src = {.phase = "train",
                                         .world_size = 6,
                                         .tp = 1,
                                         .pp = 1,
                                         .dp = 2,
                                         .ranks = two};
    const struct dyti_layout_desc dst = {.phase = "rollout",
                                         .world_size = 6,
                                         .tp = 1,
                                         .pp = 1,
                                         .dp = 4,
                                         .ranks = four};
    struct dyti_model *model =
        model_of((struct dyti_arch)DYT_ARCH_SMOLLM2_135M);
    struct dyti_layout *a = layout_of(model, &src), *b = layout_of(model, &dst);
    struct dyti_plan_inputs in;
    struct dyti_plan *plan = plan_of(a, b, &in);
    uint64_t all = dyti_model_elements(model) * 4 * 4;

    (void)state;
    assert_int_equal(all,
                     plan->total[0].send_bytes + plan->total[1].send_bytes);
    assert_int_equal(plan->total[0].send_bytes, plan->total[1].send_bytes);
    dyti_plan_destroy(plan);
    dyti_layout_destroy(a);
    dyti_layout_destroy(b);
    dyti_model_destroy(model);
}

static void a_hole_is_named_with_its_size(void **state)
{
    const struct dyti_layout_desc src = {
        .phase = "train", .world_size = 4, .tp = 4, .pp = 1, .dp = 1};
    const struct dyti_layout_desc dst = {
        .phase = "rollout", .world_size = 4, .tp = 1, .pp = 1, .dp = 1};
    struct dyti_model *model = model_of((struct dyti_arch)DYT_ARCH_TINY_8_2);
    struct dyti_layout *a = layout_of(model, &src), *b = layout_of(model, &dst);
    struct dyti_plan_inputs in;
    struct dyti_traffic *traffic = NULL;
    struct dyti_patterns *held[2];
    const struct dyti_patterns *list[2];

    (void)state;
    assert_ok(dyti_plan_inputs_init(a, DYTI_ARENA_TRAIN, b, DYTI_ARENA_ROLLOUT,
                                    1u << DYTI_PARAM, &in));
    /* rank 3 loses the last row of its vocabulary rows 38..49 */
    for (uint32_t i = 0; i < a->view[3].shard_count; i++) {
        if (a->view[3].shard[i].tensor == 0) {
            a->view[3].shard[i].box.hi[0]--;
        }
    }
    list[0] = held[0] = dyt_case_patterns(a); /* of what the views say now */
    list[1] = held[1] = dyt_case_patterns(b);
    assert_status(DYT_ERR_LAYOUT,
                  dyti_traffic_build_from(&in, NULL, list, 2, &traffic));
    assert_error_has("param of model.embed_tokens.weight on rank 0 in phase "
                     "rollout: 784 of 800 elements have a source");
    assert_null(traffic);
    dyt_case_patterns_free(held[0]);
    dyt_case_patterns_free(held[1]);
    dyti_layout_destroy(a);
    dyti_layout_destroy(b);
    dyti_model_destroy(model);
}

/* TP 4 rollout from PP 2 x DP 2 ZeRO-1: 272 tensors, each destination shard
 * from at most the few boxes that the two cuts of its stage make. */
static void the_real_case_is_small_and_complete(void **state)
{
    const struct dyti_layout_desc src = {.phase = "train",
                                         .world_size = 4,
                                         .tp = 1,
                                         .pp = 2,
                                         .dp = 2,
                                         .zero = 1,
                                         .dtype = {DYTI_BF16}};
    struct dyti_layout_desc dst = {.phase = "rollout",
                                   .world_size = 4,
                                   .tp = 4,
                                   .pp = 1,
                                   .dp = 1,
                                   .dtype = {DYTI_BF16}};
    struct dyti_model *model =
        model_of((struct dyti_arch)DYT_ARCH_SMOLLM2_135M);
    struct dyti_layout *a = layout_of(model, &src), *b;
    struct dyti_plan_inputs in;
    struct dyti_plan *plan;
    uint64_t received = 0, want = 0;

    (void)state;
    dst.residency[DYTI_MASTER] = DYTI_PARKED;
    b = layout_of(model, &dst);
    plan = plan_of(a, b, &in);
    for (uint32_t r = 0; r < 4; r++) {
        received += plan->total[r].receive_bytes + plan->total[r].keep_bytes;
        for (uint32_t i = 0; i < b->view[r].kind_first[1]; i++) {
            uint64_t count = 0;

            assert_ok(dyt_box_count(&b->view[r].shard[i].box, &count));
            want += count * 2;
        }
    }
    assert_int_equal(want, received);
    assert_true(plan->transfer_count < 4 * (272 + 8));
    dyti_plan_destroy(plan);
    dyti_layout_destroy(a);
    dyti_layout_destroy(b);
    dyti_model_destroy(model);
}

/* Host 0 has all, host 1 wants it twice: each element crosses once, and what a
 * rank of host 1 has received it gives its sibling. */
static void one_copy_enters_a_host(void **state)
{
    static const uint32_t first[] = {0, 1}, second[] = {2, 3};
    static const uint32_t host[] = {0, 0, 1, 1};
    struct dyti_layout_desc desc = {.phase = "train",
                                    .world_size = 4,
                                    .tp = 1,
                                    .pp = 1,
                                    .dp = 2,
                                    .ranks = first,
                                    .host = host,
                                    .dtype = {DYTI_BF16}};
    struct dyti_model *model =
        model_of((struct dyti_arch)DYT_ARCH_SMOLLM2_135M);
    struct dyti_layout *a = layout_of(model, &desc), *b;
    struct dyti_plan_inputs in;
    struct dyti_plan *plan = NULL;
    uint64_t all = dyti_model_elements(model) * 2, crossed[4] = {0};
    uint64_t passed[4] = {0};

    (void)state;
    desc.phase = "rollout";
    desc.ranks = second;
    b = layout_of(model, &desc);
    assert_ok(dyti_plan_inputs_init(a, DYTI_ARENA_TRAIN, b, DYTI_ARENA_ROLLOUT,
                                    1u << DYTI_PARAM, &in));
    in.fan_out = true;
    assert_ok(dyti_plan_build(&in, &plan));
    for (uint32_t i = 0; i < plan->transfer_count; i++) {
        const struct dyti_transfer *t = &plan->transfer[i];
        const struct dyti_shard *src = dyti_plan_src(plan, t);
        uint64_t count = 0;

        assert_ok(dyt_box_count(&t->box, &count));
        assert_int_equal(t->tensor, src->tensor);
        assert_int_equal(t->wave, host[t->src_rank]);
        assert_int_equal(t->wave == 1, t->source == DYTI_PLAN_SIBLING);
        assert_int_equal(t->wave == 1 ? DYTI_PARAM : DYTI_MASTER, t->src_kind);
        (t->wave == 0 ? crossed : passed)[t->dst_rank] += count * 2;
    }
    /* both receive half, from both, to within a box or a row */
    assert_int_equal(all, crossed[2] + crossed[3]);
    assert_int_equal(all, passed[2] + passed[3]);
    assert_int_equal(crossed[2], passed[3]);
    assert_true(crossed[2] > all / 2 - (64u << 10) &&
                crossed[2] < all / 2 + (64u << 10));
    assert_int_equal(all * 2,
                     plan->total[0].send_bytes + plan->total[1].send_bytes);
    dyti_plan_destroy(plan);
    dyti_layout_destroy(a);
    dyti_layout_destroy(b);
    dyti_model_destroy(model);
}

/* A replica next door is taken before one on another host. */
static void the_same_host_comes_first(void **state)
{
    static const uint32_t host[] = {0, 0, 1, 1}, two[] = {0, 2};
    static const uint32_t others[] = {1, 3};
    struct dyti_layout_desc desc = {.phase = "train",
                                    .world_size = 4,
                                    .tp = 1,
                                    .pp = 1,
                                    .dp = 2,
                                    .ranks = two,
                                    .host = host};
    struct dyti_model *model = model_of((struct dyti_arch)DYT_ARCH_TINY_8_2);
    struct dyti_layout *a = layout_of(model, &desc), *b;
    struct dyti_plan_inputs in;
    struct dyti_plan *plan;

    (void)state;
    desc.phase = "rollout";
    desc.ranks = others;
    b = layout_of(model, &desc);
    plan = plan_of(a, b, &in);
    assert_int_equal(2, plan->pair_count);
    assert_non_null(dyti_plan_find_pair(plan, 0, 1));
    assert_non_null(dyti_plan_find_pair(plan, 2, 3));
    dyti_plan_destroy(plan);
    dyti_layout_destroy(a);
    dyti_layout_destroy(b);
    dyti_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(equal_layouts_move_nothing),
    cmocka_unit_test(replicas_share_the_sending),
    cmocka_unit_test(one_copy_enters_a_host),
    cmocka_unit_test(the_same_host_comes_first),
    cmocka_unit_test(a_hole_is_named_with_its_size),
    cmocka_unit_test(the_real_case_is_small_and_complete),
};
DYT_TEST_MAIN(tests)
