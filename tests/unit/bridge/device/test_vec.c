/* What the kernel bodies have in place of libm, against libm. */
#include "dyt_test.h"

#include "base/rng.h"
#include "device/host/simd/vec_scalar.h"

#include "device/host/simd/vec_common.h"

#include <float.h>

static void same_log(float x)
{
    double want = log((double)x);
    float got = f_log(x);
    double ulp = fabs(want) * 0x1p-23;

    /* the nearest float: half a unit in the last place, and a little */
    if (!(fabs((double)got - want) <= 0.51 * ulp)) {
        fail_msg("f_log(%a) is %a, want %a", (double)x, (double)got, want);
    }
}

static void logarithms_are_those_of_libm(void **state)
{
    uint64_t rounds = dyt_test_rounds(300000, 20000000);

    (void)state;
    for (uint64_t n = 0; n < rounds; n++) { /* all exponents alike */
        same_log(dyti_bits_f32(
            (uint32_t)(dyti_rng_u64(7, n, 0, 0) % 0x7f800000u) | 1u));
    }
    for (uint32_t n = 0; n < 20000; n++) { /* sums of few exponentials */
        same_log(1.0f + (float)n * 0x1p-12f);
        same_log(dyti_bits_f32(0x3f800000u + n));
        same_log(dyti_bits_f32(0x3f800000u - n));
    }
    assert_true(f_log(1.0f) == 0.0f);
    assert_true(f_log(0.0f) == -INFINITY && f_log(-0.0f) == -INFINITY);
    assert_true(f_log(INFINITY) == INFINITY);
    assert_true(isnan(f_log(-1.0f)) && isnan(f_log(NAN)));
    same_log(0x1p-149f);
    same_log(FLT_MAX);
}

static void rounding_is_to_even(void **state)
{
    (void)state;
    for (int32_t n = -4000; n <= 4000; n++) {
        float x = (float)n / 16.0f;

        assert_true(v_round(x) == nearbyintf(x));
    }
    assert_true(isnan(v_round(NAN)));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(logarithms_are_those_of_libm),
    cmocka_unit_test(rounding_is_to_even),
};
DYT_TEST_MAIN(tests)
