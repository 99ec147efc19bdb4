/* Sums, products and alignment that say when they overflow (base/checked.h). */
#include "base/checked.h"

#include "dyt_test.h"

static void sums_and_products_say_when_they_overflow(void **state)
{
    static const struct {
        uint64_t a, b;
        bool add, mul;
    } row[] = {
        {0, 0, false, false},
        {1, UINT64_MAX, true, false},
        {2, UINT64_MAX / 2, false, false},
        {2, UINT64_MAX / 2 + 1, false, true},
        {UINT64_MAX, UINT64_MAX, true, true},
        {1ull << 32, 1ull << 31, false, false},
        {1ull << 32, 1ull << 32, false, true},
        {UINT64_MAX, 0, false, false},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        uint64_t out = 0;

        assert_int_equal(row[i].add,
                         dyti_add_overflow(row[i].a, row[i].b, &out));
        assert_true(row[i].add || out == row[i].a + row[i].b);
        assert_int_equal(row[i].mul,
                         dyti_mul_overflow(row[i].a, row[i].b, &out));
        assert_true(row[i].mul || out == row[i].a * row[i].b);
    }
}

static void align_up_agrees_with_counting(void **state)
{
    (void)state;
    for (uint64_t step = 1; step <= 64; step *= 2) {
        for (uint64_t x = 0; x < 200; x++) {
            uint64_t want = x;

            while (want % step != 0) {
                want++;
            }
            assert_int_equal(want, dyti_align_up(x, step));
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sums_and_products_say_when_they_overflow),
    cmocka_unit_test(align_up_agrees_with_counting),
};
DYT_TEST_MAIN(tests)
