/* Linear assignment against all permutations. */
#include "dyt_test.h"

#include "base/rng.h"
#include "plan/assign.h"

#define SEED   31u
#define TRIALS 600u
#define MOST   7u

static dyti_cost cost_of(const dyti_cost *cost, uint32_t n,
                         const uint32_t *column)
{
    dyti_cost sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        sum += cost[i * n + column[i]];
    }
    return sum;
}

/* The least over all permutations of column[at ..]. */
static dyti_cost least(const dyti_cost *cost, uint32_t n, uint32_t *column,
                       uint32_t at)
{
    dyti_cost best = 0;

    if (at == n) {
        return cost_of(cost, n, column);
    }
    for (uint32_t i = at; i < n; i++) {
        uint32_t keep = column[at];
        dyti_cost c;

        column[at] = column[i];
        column[i] = keep;
        c = least(cost, n, column, at + 1);
        best = i == at || c < best ? c : best;
        column[i] = column[at];
        column[at] = keep;
    }
    return best;
}

static void nothing_is_cheaper(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        uint32_t n = 1 + (uint32_t)(trial % MOST), column[MOST], all[MOST];
        uint64_t values = trial % 3 == 0 ? 3 : 1u << 20;
        dyti_cost cost[MOST * MOST];
        uint32_t seen = 0;

        for (uint32_t i = 0; i < n * n; i++) {
            cost[i] = DYTI_COST(
                (int64_t)(dyti_rng_u64(SEED, trial, i, 1) % values) - 1,
                dyti_rng_u64(SEED, trial, i, 2) % values);
        }
        assert_ok(dyti_assign(cost, n, column));
        for (uint32_t i = 0; i < n; i++) {
            all[i] = i;
            seen |= 1u << column[i];
        }
        assert_int_equal((1u << n) - 1u, seen);
        assert_true(cost_of(cost, n, column) == least(cost, n, all, 0));
    }
}

/* Nothing to choose: everybody stays. */
static void equals_stay_where_they_are(void **state)
{
    dyti_cost cost[25];
    uint32_t column[5];

    (void)state;
    for (int i = 0; i < 25; i++) {
        cost[i] = 7;
    }
    assert_ok(dyti_assign(cost, 5, column));
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(i, column[i]);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_is_cheaper),
    cmocka_unit_test(equals_stay_where_they_are),
};
DYT_TEST_MAIN(tests)
