/* Pairing for awkward numbers of ranks, refusals, fingerprints, and that
 * copies that continue each other are one. */
#include "gather_case.h"

#include "sched/sched.h"

/* In every round each rank has one peer, both agree, and after all rounds
 * every two have met exactly once. */
static void every_pair_meets_once(void **state)
{
    static const uint32_t ranks[] = {1, 2, 3, 4, 5, 6, 7, 12, 24};

    (void)state;
    for (size_t k = 0; k < DYT_TEST_COUNT(ranks); k++) {
        uint32_t n = ranks[k], met = 0;
        unsigned char seen[24][24] = {{0}};
        const struct dyti_schedule_options options = {.side = DYTI_SIDE_PULL};
        struct dyt_gather_case g;

        dyt_gather_open((struct dyti_arch)DYT_ARCH_TINY_8_2, n, &g);
        for (uint32_t r = 0; r < n; r++) {
            struct dyti_plan *plan = NULL;
            struct dyti_schedule *s = NULL;
            uint32_t peer_of_round[32];

            memset(peer_of_round, 0xff, sizeof(peer_of_round));
            assert_ok(dyti_plan_build_rank(&g.inputs, r, &plan));
            assert_ok(dyti_schedule_build(plan, r, &options, &s));
            assert_true(s->round_count >= n && s->round_count < 2 * n);
            for (uint32_t i = 0; i + 1 < s->step_count; i++) {
                const struct dyti_step *step = &s->step[i];
                uint32_t peer = step->src_rank;

                assert_true(step->round < s->round_count);
                assert_int_equal(r ^ step->round, peer);
                assert_true(peer_of_round[step->round] == UINT32_MAX ||
                            peer_of_round[step->round] == peer);
                peer_of_round[step->round] = peer;
                met += !seen[r][peer];
                seen[r][peer] = 1;
            }
            dyti_schedule_destroy(s);
            dyti_plan_destroy(plan);
        }
        assert_int_equal(n * n, met); /* itself too */
        dyt_gather_close(&g);
    }
}

/* The cut of a replica is one run of its flat buffer: q, k, v join, as do gate
 * and up, so there are fewer copies than transfers. */
static void copies_that_continue_each_other_join(void **state)
{
    const struct dyti_schedule_options options = {.side = DYTI_SIDE_PULL};
    struct dyti_schedule *s = NULL;
    struct dyti_plan *plan = NULL;
    struct dyt_gather_case g;

    (void)state;
    dyt_gather_open((struct dyti_arch)DYT_ARCH_TINY_8_2, 1, &g);
    assert_ok(dyti_plan_build(&g.inputs, &plan));
    assert_ok(dyti_schedule_build(plan, 0, &options, &s));
    assert_int_equal(g.model->tensor_count, plan->transfer_count);
    /* k, v and up of each of the 3 layers are part of what comes before; in
     * this model more tensors happen to end on a multiple of 64 elements */
    assert_true(s->span_count <= plan->transfer_count - 3 * 3);
    assert_int_equal(2, s->step_count);
    assert_int_equal(plan->transfer_count, s->step[0].transfer_count);
    dyti_schedule_destroy(s);
    dyti_plan_destroy(plan);
    dyt_gather_close(&g);
}

static void what_cannot_be_is_refused(void **state)
{
    struct dyti_schedule_options options = {.side = DYTI_SIDE_PULL};
    struct dyti_schedule *s = NULL;
    struct dyti_plan *plan = NULL;
    struct dyt_gather_case g;

    (void)state;
    dyt_gather_open((struct dyti_arch)DYT_ARCH_TINY_8_2, 3, &g);
    assert_ok(dyti_plan_build_rank(&g.inputs, 1, &plan));
    assert_status(DYT_ERR_INVALID, dyti_schedule_build(plan, 2, &options, &s));
    assert_status(DYT_ERR_INVALID, dyti_schedule_build(plan, 3, &options, &s));
    options.segment_bytes = 1001;
    options.cap_bytes = 1000;
    assert_status(DYT_ERR_UNSUPPORTED,
                  dyti_schedule_build(plan, 1, &options, &s));
    assert_error_has("rank 1 needs 1001 bytes");
    assert_error_has("the cap is 1000");
    assert_error_has("waves is not available");
    options.cap_bytes = 1001;
    options.side = (enum dyti_side)7;
    assert_status(DYT_ERR_INVALID, dyti_schedule_build(plan, 1, &options, &s));
    assert_null(s);
    options.side = DYTI_SIDE_PULL;
    assert_ok(dyti_schedule_build(plan, 1, &options, &s));
    dyti_schedule_destroy(s);
    dyti_schedule_destroy(NULL);
    dyti_plan_destroy(plan);
    dyti_plan_destroy(NULL);
    dyt_gather_close(&g);
}

static void fingerprint_tells_options_apart(void **state)
{
    const struct dyti_schedule_options a = {.side = DYTI_SIDE_PULL};
    struct dyti_schedule_options b = a;
    uint64_t base = dyti_schedule_fingerprint(1, 4, &a);

    (void)state;
    b.segment_bytes = 7; /* of one rank: all ranks must still agree */
    b.chunk_bytes = DYTI_SCHED_CHUNK_BYTES;
    assert_true(base == dyti_schedule_fingerprint(1, 4, &b));
    assert_true(base != dyti_schedule_fingerprint(2, 4, &b));
    assert_true(base != dyti_schedule_fingerprint(1, 5, &b));
    b.side = DYTI_SIDE_PUSH;
    assert_true(base != dyti_schedule_fingerprint(1, 4, &b));
    b = a;
    b.chunk_bytes = 1;
    assert_true(base != dyti_schedule_fingerprint(1, 4, &b));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_pair_meets_once),
    cmocka_unit_test(copies_that_continue_each_other_join),
    cmocka_unit_test(what_cannot_be_is_refused),
    cmocka_unit_test(fingerprint_tells_options_apart),
};
DYT_TEST_MAIN(tests)
