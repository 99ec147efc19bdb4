/* Overlap, difference and union of boxes against counting points. */
#include "layout_cases.h"

#include "plan/boxes.h"

#define SIDE 5

static struct dyt_box random_box(uint64_t trial, uint64_t salt)
{
    struct dyt_box box = {.ndim = 3};

    for (uint32_t d = 0; d < 3; d++) {
        uint64_t r = dyti_rng_u64(3, trial, salt, d);

        box.lo[d] = (int64_t)(r % SIDE);
        box.hi[d] =
            box.lo[d] + 1 + (int64_t)(r / SIDE % (uint64_t)(SIDE - box.lo[d]));
    }
    return box;
}

static bool has(const struct dyt_box *box, const int64_t *at)
{
    for (uint32_t d = 0; d < box->ndim; d++) {
        if (at[d] < box->lo[d] || at[d] >= box->hi[d]) {
            return false;
        }
    }
    return true;
}

static void difference_and_overlap_equal_counting(void **state)
{
    const struct dyt_box all = {3, {0, 0, 0}, {SIDE, SIDE, SIDE}};

    (void)state;
    for (uint64_t trial = 0; trial < 400; trial++) {
        struct dyt_box a = random_box(trial, 1), b = random_box(trial, 2);
        struct dyt_box both, piece[2 * DYT_MAX_DIMS];
        bool overlap = dyti_boxes_overlap(&a, &b, &both);
        uint32_t count = overlap ? dyti_boxes_without(&a, &both, piece) : 0;
        int64_t at[DYT_MAX_DIMS] = {0};
        uint64_t common = 0;

        assert_true(count <= 6);
        do {
            uint32_t in = 0;

            for (uint32_t i = 0; i < count; i++) {
                in += has(&piece[i], at);
            }
            if (overlap) {
                assert_int_equal(has(&a, at) && !has(&b, at), in);
                assert_int_equal(has(&a, at) && has(&b, at), has(&both, at));
            }
            common += has(&a, at) && has(&b, at);
        } while (dyt_case_next(&all, at));
        assert_int_equal(overlap, common > 0);
        assert_int_equal(common, overlap ? dyti_boxes_elements(&both) : 0);
    }
}

static void join_makes_a_box_or_nothing(void **state)
{
    static const struct {
        int64_t a[4], b[4], want[4]; /* lo0 hi0 lo1 hi1; want[1] 0 = no */
    } row[] = {
        {{0, 2, 0, 3}, {2, 4, 0, 3}, {0, 4, 0, 3}},
        {{2, 4, 0, 3}, {0, 2, 0, 3}, {0, 4, 0, 3}},
        {{0, 2, 0, 3}, {0, 2, 3, 9}, {0, 2, 0, 9}},
        {{0, 2, 0, 3}, {3, 4, 0, 3}, {0, 0, 0, 0}}, /* a gap */
        {{0, 2, 0, 3}, {2, 4, 0, 2}, {0, 0, 0, 0}}, /* another width */
        {{0, 2, 0, 3}, {0, 2, 0, 3}, {0, 0, 0, 0}}, /* the same */
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        const int64_t *p = row[i].a, *q = row[i].b, *w = row[i].want;
        struct dyt_box a = {2, {p[0], p[2]}, {p[1], p[3]}};
        struct dyt_box b = {2, {q[0], q[2]}, {q[1], q[3]}};

        assert_int_equal(w[1] != 0, dyti_boxes_join(&a, &b));
        if (w[1] != 0) {
            assert_true(a.lo[0] == w[0] && a.hi[0] == w[1] && a.lo[1] == w[2] &&
                        a.hi[1] == w[3]);
        } else {
            assert_true(a.hi[0] == p[1] && a.hi[1] == p[3]);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(difference_and_overlap_equal_counting),
    cmocka_unit_test(join_makes_a_box_or_nothing),
};
DYT_TEST_MAIN(tests)
