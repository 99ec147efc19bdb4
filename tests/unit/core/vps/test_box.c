/* Overlap and size of boxes: examples, errors, and one property. */
#include "dyt_test.h"

#include "base/rng.h"

#include <dynatrain/box.h>

static void intersect_examples(void **state)
{
    static const struct {
        const char *what;
        int64_t a[4], b[4]; /* lo0 hi0 lo1 hi1 */
        uint64_t want;
    } row[] = {
        {"same box", {0, 4, 0, 3}, {0, 4, 0, 3}, 12},
        {"b inside a", {0, 8, 0, 8}, {2, 4, 1, 3}, 4},
        {"touching is no overlap", {0, 4, 0, 3}, {4, 8, 0, 3}, 0},
        {"apart in one dim only", {0, 4, 0, 3}, {0, 4, 5, 9}, 0},
        {"empty input", {2, 2, 0, 3}, {0, 4, 0, 3}, 0},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyt_box a = {
            2, {row[i].a[0], row[i].a[2]}, {row[i].a[1], row[i].a[3]}};
        struct dyt_box b = {
            2, {row[i].b[0], row[i].b[2]}, {row[i].b[1], row[i].b[3]}};
        struct dyt_box both;
        uint64_t count = 99;

        assert_ok(dyt_box_intersect(&a, &b, &both));
        assert_ok(dyt_box_count(&both, &count));
        if (count != row[i].want) {
            fail_msg("%s: %llu elements", row[i].what,
                     (unsigned long long)count);
        }
    }
}

static void bad_boxes_are_refused_and_outputs_untouched(void **state)
{
    const struct dyt_box one = {1, {0}, {4}}, two = {2, {0, 0}, {4, 4}};
    const struct dyt_box bad[] = {
        {0, {0}, {1}}, {9, {0}, {1}}, {1, {-1}, {1}}, {1, {3}, {2}}};
    const struct dyt_box huge = {
        3, {0, 0, 0}, {INT64_MAX, INT64_MAX, INT64_MAX}};
    const struct dyt_box empty_huge = {
        4, {0, 0, 0, 5}, {INT64_MAX, INT64_MAX, INT64_MAX, 5}};
    struct dyt_box out = {7, {7}, {7}};
    uint64_t count = 77;

    (void)state;
    assert_status(DYT_ERR_INVALID, dyt_box_intersect(&one, &two, &out));
    for (size_t i = 0; i < DYT_TEST_COUNT(bad); i++) {
        assert_status(DYT_ERR_INVALID, dyt_box_intersect(&bad[i], &one, &out));
        assert_status(DYT_ERR_INVALID, dyt_box_intersect(&one, &bad[i], &out));
        assert_status(DYT_ERR_INVALID, dyt_box_count(&bad[i], &count));
    }
    assert_status(DYT_ERR_OVERFLOW, dyt_box_count(&huge, &count));
    assert_int_equal(7, out.ndim);
    assert_int_equal(77, count);
    assert_ok(dyt_box_count(&empty_huge, &count));
    assert_int_equal(0, count);
}

/* Counting points one by one gives the same. */
static void intersect_equals_counting_points(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < 500; trial++) {
        struct dyt_box box[2], both;
        uint64_t want = 0, count;

        for (uint64_t i = 0; i < 2; i++) {
            box[i].ndim = 2;
            for (uint64_t d = 0; d < 2; d++) {
                uint64_t r = dyti_rng_u64(11, trial, i, d);

                box[i].lo[d] = (int64_t)(r % 6);
                box[i].hi[d] = box[i].lo[d] + (int64_t)(r / 6 % 5);
            }
        }
        for (int64_t y = 0; y < 12; y++) {
            for (int64_t x = 0; x < 12; x++) {
                bool in = true;

                for (int i = 0; i < 2; i++) {
                    in = in && y >= box[i].lo[0] && y < box[i].hi[0] &&
                         x >= box[i].lo[1] && x < box[i].hi[1];
                }
                want += in;
            }
        }
        assert_ok(dyt_box_intersect(&box[0], &box[1], &both));
        assert_ok(dyt_box_count(&both, &count));
        assert_int_equal(want, count);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(intersect_examples),
    cmocka_unit_test(bad_boxes_are_refused_and_outputs_untouched),
    cmocka_unit_test(intersect_equals_counting_points),
};
DYT_TEST_MAIN(tests)
