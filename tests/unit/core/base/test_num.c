/* bf16 and f16 against an oracle that only knows what the formats mean: the
 * value of a pattern by its definition, and "the nearest, ties to the even
 * pattern" by comparing distances in double. */
#include "base/num.h"

#include "dyt_test.h"

#include <math.h>

struct narrow {
    const char *name;
    int exp_bits, man_bits;
    float (*widen)(uint16_t h);
    uint16_t (*round)(float x);
};

static const struct narrow kinds[] = {
    {"bf16", 8, 7, dyti_bf16_to_f32, dyti_f32_to_bf16},
    {"f16", 5, 10, dyti_f16_to_f32, dyti_f32_to_f16},
};

/* The value of a pattern, by definition. */
static double meaning(const struct narrow *k, uint32_t pattern)
{
    int exp_max = (1 << k->exp_bits) - 1, bias = exp_max / 2;
    int exp = (int)(pattern >> k->man_bits) & exp_max;
    int man = (int)(pattern & ((1u << k->man_bits) - 1));
    double sign = pattern >> (k->exp_bits + k->man_bits) & 1 ? -1 : 1;

    if (exp == exp_max) {
        return man != 0 ? NAN : sign * INFINITY;
    }
    if (exp == 0) {
        return sign * ldexp(man, 1 - bias - k->man_bits);
    }
    return sign * ldexp((1 << k->man_bits) + man, exp - bias - k->man_bits);
}

static void every_pattern_widens_to_its_meaning_and_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(kinds); i++) {
        const struct narrow *k = &kinds[i];

        for (uint32_t h = 0; h < 65536; h++) {
            double want = meaning(k, h);
            float got = k->widen((uint16_t)h);

            if (isnan(want)) {
                uint16_t back = k->round(got);

                assert_true(isnan(got) && isnan(meaning(k, back)));
                assert_int_equal(h >> 15, back >> 15);
            } else if ((double)got != want || !signbit(got) != !signbit(want) ||
                       k->round(got) != h) {
                fail_msg("%s %04x: %g, want %g; back %04x", k->name, h,
                         (double)got, want, k->round(got));
            }
        }
    }
}

/* The right pattern for a finite x >= 0: between two neighbours the nearer
 * one, a tie to the even one; half a step past the largest is infinity. */
static uint32_t nearest(const struct narrow *k, double x, uint32_t guess)
{
    double low, high;

    while (guess > 0 && meaning(k, guess) > x) {
        guess--;
    }
    low = meaning(k, guess);
    high = meaning(k, guess + 1);
    if (isinf(high)) { /* as if the next step existed */
        high = low + (low - meaning(k, guess - 1));
    }
    if (x - low != high - x) {
        return x - low < high - x ? guess : guess + 1;
    }
    return guess + (guess & 1);
}

static void check(const struct narrow *k, float x, uint32_t guess)
{
    uint32_t want = nearest(k, (double)fabsf(x), guess);
    uint16_t got = k->round(x);

    want |= signbit(x) ? 0x8000u : 0;
    if (got != want) {
        fail_msg("%s of %a: %04x, want %04x", k->name, (double)x, got, want);
    }
}

/* Between each two neighbours: just above, just below, the middle, and one
 * float to each side of the middle. */
static void rounding_is_to_nearest_even_between_all_neighbours(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(kinds); i++) {
        const struct narrow *k = &kinds[i];
        uint32_t inf = ((1u << k->exp_bits) - 1) << k->man_bits;

        for (uint32_t h = 0; h < inf; h++) {
            float low = k->widen((uint16_t)h);
            float high = k->widen((uint16_t)(h + 1));
            float middle = h + 1 < inf
                               ? low + (high - low) / 2
                               : low + (low - k->widen((uint16_t)(h - 1))) / 2;
            float x[] = {nextafterf(low, INFINITY), nextafterf(middle, 0.0f),
                         middle, nextafterf(middle, INFINITY)};

            for (size_t j = 0; j < DYT_TEST_COUNT(x); j++) {
                if (isfinite(x[j])) {
                    check(k, x[j], h + 1 < inf ? h + 1 : h);
                    check(k, -x[j], h + 1 < inf ? h + 1 : h);
                }
            }
        }
    }
}

static void far_out_and_not_a_number(void **state)
{
    (void)state;
    assert_int_equal(0x7f80, dyti_f32_to_bf16(INFINITY));
    assert_int_equal(0xff80, dyti_f32_to_bf16(-INFINITY));
    assert_int_equal(0x7f80, dyti_f32_to_bf16(0x1.fffffep127f));
    assert_int_equal(0x7c00, dyti_f32_to_f16(INFINITY));
    assert_int_equal(0xfc00, dyti_f32_to_f16(-1e30f));
    assert_int_equal(0x0000, dyti_f32_to_f16(0x1p-26f));
    assert_int_equal(0x8000, dyti_f32_to_f16(-0x1p-149f));
    /* A NaN whose payload lies in the low bits only must not become inf. */
    assert_int_equal(0x7fc0, dyti_f32_to_bf16(dyti_bits_f32(0x7f800001u)));
    assert_int_equal(0xffc0, dyti_f32_to_bf16(dyti_bits_f32(0xff800001u)));
    assert_int_equal(0x7e00, dyti_f32_to_f16(dyti_bits_f32(0x7f800001u)));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_pattern_widens_to_its_meaning_and_back),
    cmocka_unit_test(rounding_is_to_nearest_even_between_all_neighbours),
    cmocka_unit_test(far_out_and_not_a_number),
};
DYT_TEST_MAIN(tests)
