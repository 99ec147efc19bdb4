/* Random numbers by coordinates: fixed values, uniform along each (base/rng.h).
 */
#include "base/rng.h"

#include "dyt_test.h"

#include <math.h>

static void values_stay_what_they_are(void **state)
{
    (void)state;
    assert_true(dyti_rng_u64(1, 2, 3, 4) == 0x9b0aeef6aa7030b7u);
    assert_true(dyti_rng_u64(0, 0, 0, 0) == 0x8131319281553871u);
}

static void every_coordinate_matters(void **state)
{
    uint64_t base = dyti_rng_u64(1, 2, 3, 4);

    (void)state;
    assert_true(base != dyti_rng_u64(2, 2, 3, 4));
    assert_true(base != dyti_rng_u64(1, 3, 3, 4));
    assert_true(base != dyti_rng_u64(1, 2, 4, 4));
    assert_true(base != dyti_rng_u64(1, 2, 3, 5));
    assert_true(base != dyti_rng_u64(1, 3, 2, 4)); /* not symmetric */
    assert_true(base != dyti_rng_u64(1, 2, 4, 3));
}

static void unit_is_in_zero_to_below_one(void **state)
{
    (void)state;
    assert_true(dyti_rng_unit(0) == 0.0);
    assert_true(dyti_rng_unit(UINT64_MAX) < 1.0);
    assert_true(dyti_rng_unit(UINT64_MAX) > 0.9999999999999998);
    assert_true(dyti_rng_unit(1ull << 63) == 0.5);
}

/* Chi-squared over 64 bins, and neighbours uncorrelated: 1e5 draws along each
 * coordinate, with bounds that chance passes in all but 1 of 1e6 seeds. */
static void draws_along_each_coordinate_are_uniform(void **state)
{
    (void)state;
    for (int axis = 0; axis < 4; axis++) {
        enum { N = 100000, BINS = 64 };
        uint32_t bin[BINS] = {0};
        double chi = 0, product = 0, last = 0.5;

        for (uint64_t i = 0; i < N; i++) {
            uint64_t c[4] = {7, 7, 7, 7};
            double u;

            c[axis] = i;
            u = dyti_rng_unit(dyti_rng_u64(c[0], c[1], c[2], c[3]));
            bin[(int)(u * BINS)]++;
            product += (u - 0.5) * (last - 0.5);
            last = u;
        }
        for (int b = 0; b < BINS; b++) {
            double off = bin[b] - (double)N / BINS;

            chi += off * off / ((double)N / BINS);
        }
        /* mean 63, deviation sqrt(126) */
        assert_true(chi > 63 - 5 * 11.3 && chi < 63 + 6 * 11.3);
        assert_true(fabs(product / N) < 5.0 / 12 / sqrt((double)N));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(values_stay_what_they_are),
    cmocka_unit_test(every_coordinate_matters),
    cmocka_unit_test(unit_is_in_zero_to_below_one),
    cmocka_unit_test(draws_along_each_coordinate_are_uniform),
};
DYT_TEST_MAIN(tests)
