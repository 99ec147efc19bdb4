/* Random switches: executing the spans of all ranks in any order that the
 * waits allow gives exactly the destination layout, pulled or pushed, in small
 * chunks or large ones. */
#include "span_cases.h"

#define TRIALS 100u
#define SEED   991u

static void run_step(const struct dyti_schedule *s, uint32_t index,
                     struct dyt_case_memory *m)
{
    const struct dyti_step *step = &s->step[index];

    if (step->kind == DYTI_STEP_FENCE) {
        return;
    }
    assert_int_equal(DYTI_STEP_COPY, step->kind);
    assert_int_equal(s->rank, step->side == DYTI_SIDE_PULL ? step->dst_rank
                                                           : step->src_rank);
    for (uint32_t i = 0; i < step->span_count; i++) {
        dyt_case_run_span(&s->span[step->span_first + i], step->src_rank,
                          step->dst_rank, m);
    }
}

/* All ranks at once: each time, a random ready step of a random rank. */
static void run_all(struct dyti_schedule *const *s, uint32_t world,
                    uint64_t trial, struct dyt_case_memory *m)
{
    uint32_t *waits[DYT_CASE_RANKS], left[DYT_CASE_RANKS], total = 0;

    for (uint32_t r = 0; r < world; r++) {
        waits[r] = calloc(s[r]->step_count, sizeof(*waits[r]));
        assert_non_null(waits[r]);
        left[r] = s[r]->step_count;
        total += left[r];
        for (uint32_t i = 0; i < s[r]->step_count; i++) {
            waits[r][i] = s[r]->step[i].wait_count;
        }
    }
    for (uint32_t n = 0; n < total; n++) {
        uint64_t x = dyti_rng_u64(SEED, trial, n, 5);
        uint32_t r = (uint32_t)(x % world), i;

        while (left[r] == 0) {
            r = (r + 1) % world;
        }
        i = (uint32_t)((x >> 32) % s[r]->step_count);
        while (waits[r][i] != 0) {
            i = (i + 1) % s[r]->step_count;
        }
        run_step(s[r], i, m);
        waits[r][i] = UINT32_MAX; /* done */
        left[r]--;
        for (uint32_t k = 0; k < s[r]->step[i].next_count; k++) {
            waits[r][s[r]->next[s[r]->step[i].next_first + k]]--;
        }
    }
    for (uint32_t r = 0; r < world; r++) {
        free(waits[r]);
    }
}

/* The steps of a pair serve all of its transfers, in order and without a gap.
 */
static void check_ranges(const struct dyti_schedule *s,
                         const struct dyti_plan *plan)
{
    for (uint32_t i = 0; i + 1 < s->step_count; i++) {
        const struct dyti_step *step = &s->step[i], *next = step + 1;
        const struct dyti_plan_pair *pair =
            dyti_plan_find_pair(plan, step->src_rank, step->dst_rank);
        uint32_t end = step->transfer_first + step->transfer_count;
        bool first = i == 0 || step[-1].round != step->round;
        bool last = next->round != step->round;

        assert_non_null(pair);
        assert_true(step->transfer_count > 0);
        if (first) {
            assert_int_equal(pair->transfer_first, step->transfer_first);
        }
        if (last) {
            assert_int_equal(pair->transfer_first + pair->transfer_count, end);
        } else {
            /* a copy that is cut in pieces names its transfers in each */
            assert_true(next->transfer_first <= end &&
                        next->transfer_first >= step->transfer_first);
        }
    }
}

static void check_schedule(const struct dyti_schedule *s,
                           const struct dyti_plan *plan)
{
    const struct dyti_plan_rank *total = &plan->total[s->rank];
    uint32_t round = 0;

    assert_ok(dyti_schedule_check(s));
    assert_int_equal(0, s->staging_bytes);
    if (s->options.side == DYTI_SIDE_PULL) {
        assert_int_equal(total->keep_bytes + total->receive_bytes,
                         s->write_bytes);
    }
    for (uint32_t i = 0; i < s->step_count; i++) {
        const struct dyti_step *step = &s->step[i];
        uint64_t most =
            s->options.chunk_bytes < 256 ? 256 : s->options.chunk_bytes;

        assert_true(step->round >= round); /* in order of rounds */
        round = step->round;
        assert_true(step->write_bytes <= most);
        if (step->kind == DYTI_STEP_COPY) {
            assert_int_equal(step->src_rank ^ step->dst_rank, step->round);
            assert_true(step->round < s->round_count);
            for (uint32_t k = 0; k < step->transfer_count; k++) {
                const struct dyti_transfer *t =
                    &plan->transfer[step->transfer_first + k];

                assert_int_equal(step->src_rank, t->src_rank);
                assert_int_equal(step->dst_rank, t->dst_rank);
            }
        }
    }
}

static void any_allowed_order_gives_the_destination(void **state)
{
    static const uint64_t chunk[] = {0, 64, 300, 4096};

    (void)state;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        enum dyt_case_way way = (enum dyt_case_way)(trial % DYT_CASE_WAYS);
        uint32_t world = 1 + (uint32_t)dyt_case_pick(SEED, trial, 0, 12);
        const struct dyti_schedule_options options = {
            .side = dyt_case_pick(SEED, trial, 50, 2) == 0 ? DYTI_SIDE_PULL
                                                           : DYTI_SIDE_PUSH,
            .chunk_bytes = chunk[dyt_case_pick(SEED, trial, 51, 4)]};
        struct dyti_schedule *s[DYT_CASE_RANKS] = {NULL};
        struct dyt_case_switch c;
        struct dyt_case_memory m;

        dyt_case_switch_open(SEED, trial, way, world, &c);
        dyt_case_memory_open(&c.inputs, &m);
        for (uint32_t r = 0; r < world; r++) {
            struct dyti_plan *plan = NULL;

            assert_ok(dyti_plan_build_rank(&c.inputs, r, &plan));
            assert_ok(dyti_schedule_build(plan, r, &options, &s[r]));
            check_schedule(s[r], plan);
            check_ranges(s[r], plan);
            assert_true(s[r]->fingerprint == s[0]->fingerprint);
            dyti_plan_destroy(plan);
        }
        run_all(s, world, trial, &m);
        dyt_case_memory_check(&c.inputs, &m, -1);
        for (uint32_t r = 0; r < world; r++) {
            dyti_schedule_destroy(s[r]);
        }
        dyt_case_memory_close(&m);
        dyt_case_switch_close(&c);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_allowed_order_gives_the_destination),
};
DYT_TEST_MAIN(tests)
