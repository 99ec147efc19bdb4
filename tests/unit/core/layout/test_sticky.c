/* Sticky ZeRO cuts: what moves, how even they stay, when they are made anew. */
#include "layout/sticky.h"

#include "layout_cases.h"

#include <math.h>

#define SEED 909u

/* Owner of a position, by looking through all ranges. */
static uint32_t owner_at(const struct dyti_zero_range *range, uint32_t count,
                         uint64_t x)
{
    for (uint32_t i = 0; i < count; i++) {
        if (x >= range[i].lo && x < range[i].hi) {
            return range[i].owner;
        }
    }
    fail();
    return 0;
}

static void check_cut(const struct dyti_sticky_cut *cut, uint32_t owners)
{
    uint64_t *have = calloc(owners, sizeof(*have)), at = 0;
    uint32_t *ranges = calloc(owners, sizeof(*ranges));

    assert_non_null(have);
    assert_non_null(ranges);
    for (uint32_t i = 0; i < cut->range_count; i++) {
        const struct dyti_zero_range *r = &cut->range[i];

        assert_int_equal(at, r->lo);
        assert_true(r->hi > r->lo);
        assert_true(r->owner < owners);
        assert_true(i == 0 || r[-1].owner != r->owner); /* merged */
        have[r->owner] += r->hi - r->lo;
        ranges[r->owner]++;
        at = r->hi;
    }
    assert_true(at == DYTI_ZERO_WHOLE);
    for (uint32_t o = 0; o < owners; o++) {
        double share = (double)have[o] * owners / (double)DYTI_ZERO_WHOLE;

        assert_true(share > 0.99 && share < 1.01);
        assert_true(ranges[o] <= 2 * cut->resizes + 1);
    }
    free(have);
    free(ranges);
}

/* Counted at 4096 places: how much has another owner. */
static double moved(const struct dyti_zero_range *a, uint32_t a_count,
                    const struct dyti_zero_range *b, uint32_t b_count,
                    const int32_t *old_of_new)
{
    uint32_t count = 0;

    for (uint64_t i = 0; i < 4096; i++) {
        uint64_t x = i * (DYTI_ZERO_WHOLE / 4096) + 77;
        uint32_t now = owner_at(b, b_count, x);

        count += (int64_t)owner_at(a, a_count, x) !=
                 (old_of_new == NULL ? (int64_t)now : old_of_new[now]);
    }
    return (double)count / 4096.0;
}

static double least(uint32_t a, uint32_t b)
{
    return a < b ? (double)(b - a) / b : (double)(a - b) / a;
}

static void each_resize_moves_the_least(void **state)
{
    static const uint32_t row[][2] = {{1, 2}, {2, 1},   {2, 3},    {2, 4},
                                      {3, 4}, {4, 3},   {6, 8},    {8, 6},
                                      {8, 7}, {12, 16}, {16, 8},   {8, 16},
                                      {5, 5}, {7, 24},  {96, 128}, {1000, 997}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        uint32_t a = row[i][0], b = row[i][1];
        struct dyti_sticky_cut cut = {0};

        assert_ok(dyti_sticky_resize(NULL, 0, a, 0, NULL, b, &cut));
        assert_int_equal(1, cut.resizes);
        check_cut(&cut, b);
        assert_true(fabs((double)cut.moved / (double)DYTI_ZERO_WHOLE -
                         least(a, b)) <= 0.01 * least(a, b) + 1e-6);
        dyti_sticky_fini(&cut);
    }
}

/* As the documentation says: by a quarter or more, or by any shrinking. */
static void larger_steps_are_never_cut_anew(void **state)
{
    (void)state;
    for (uint32_t a = 1; a <= 40; a++) {
        for (uint32_t b = 1; b <= 2 * a + 1; b++) {
            struct dyti_sticky_cut cut = {0};

            if (b > a && 4 * (b - a) < a) {
                continue;
            }
            assert_ok(dyti_sticky_resize(NULL, 0, a, 0, NULL, b, &cut));
            if (cut.resizes != 1) {
                fail_msg("%u to %u is cut anew", a, b);
            }
            check_cut(&cut, b);
            dyti_sticky_fini(&cut);
        }
    }
}

/* Many resizes one after the other, ranks leave and come at any position. */
static void chains_of_resizes(void **state)
{
    uint32_t anew = 0, kept = 0;

    (void)state;
    for (uint64_t trial = 0; trial < dyt_test_rounds(40, 400); trial++) {
        uint32_t owners = 1 + (uint32_t)dyt_case_pick(SEED, trial, 1, 12);
        struct dyti_sticky_cut cut = {0};

        assert_ok(dyti_sticky_resize(NULL, 0, owners, 0, NULL, owners, &cut));
        cut.resizes = 0;
        for (uint64_t step = 0; step < 8; step++) {
            uint32_t b =
                1 + (uint32_t)dyt_case_pick(SEED, trial, 10 + step, 16);
            struct dyti_sticky_cut next = {0};
            int32_t old_of_new[32];
            double part;

            for (uint32_t o = 0; o < b; o++) {
                /* those that stay, from the back, then new ones */
                old_of_new[o] = o < owners ? (int32_t)(owners - 1 - o) : -1;
            }
            assert_ok(dyti_sticky_resize(cut.range, cut.range_count, owners,
                                         cut.resizes, old_of_new, b, &next));
            check_cut(&next, b);
            part = moved(cut.range, cut.range_count, next.range,
                         next.range_count, old_of_new);
            assert_true(fabs(part - (double)next.moved /
                                        (double)DYTI_ZERO_WHOLE) < 0.01);
            if (next.resizes > 0) {
                assert_int_equal(cut.resizes + 1, next.resizes);
                assert_true(fabs(part - least(owners, b)) < 0.01);
                kept++;
            } else {
                anew++;
            }
            dyti_sticky_fini(&cut);
            cut = next;
            owners = b;
        }
        dyti_sticky_fini(&cut);
    }
    assert_true(kept > anew); /* both happen */
    assert_true(anew > 0);
}

/* 8 to 9: each old one gives up 1/72, four pieces that touch at best. */
static void a_small_step_is_cut_anew_in_the_best_order(void **state)
{
    struct dyti_sticky_cut cut = {0};

    (void)state;
    assert_ok(dyti_sticky_resize(NULL, 0, 8, 0, NULL, 9, &cut));
    assert_int_equal(0, cut.resizes);
    assert_int_equal(9, cut.range_count);
    check_cut(&cut, 9);
    /* in place of 50 %, which the old order would move */
    assert_true(cut.moved < DYTI_ZERO_WHOLE * 3 / 10);
    dyti_sticky_fini(&cut);
    /* Later it may hold more pieces, so it stays. */
    assert_ok(dyti_sticky_resize(NULL, 0, 8, 1, NULL, 9, &cut));
    assert_int_equal(2, cut.resizes);
    assert_true(cut.moved < DYTI_ZERO_WHOLE / 9 + DYTI_ZERO_WHOLE / 900);
    check_cut(&cut, 9);
    dyti_sticky_fini(&cut);
}

/* The master bytes of two layouts: a rank keeps what both give it. */
static void layouts_move_what_the_cut_says(void **state)
{
    const struct dyti_arch arch = DYT_ARCH_SMOLLM2_135M;
    struct dyti_layout_desc desc = {.phase = "train",
                                    .world_size = 8,
                                    .tp = 1,
                                    .pp = 1,
                                    .dp = 6,
                                    .zero = 1};
    struct dyti_sticky_cut cut = {0};
    struct dyti_model *model = NULL;
    struct dyti_layout *a = NULL, *b = NULL;
    uint64_t kept = 0, all;

    (void)state;
    assert_ok(dyti_model_build(&arch, &model));
    assert_ok(dyti_layout_build(model, &desc, &a));
    assert_ok(dyti_sticky_resize(NULL, 0, 6, 0, NULL, 8, &cut));
    desc.dp = 8;
    desc.zero_range = cut.range;
    desc.zero_range_count = cut.range_count;
    assert_ok(dyti_layout_build(model, &desc, &b));
    assert_true(a->fingerprint != b->fingerprint);
    all = a->view[0].flat_elements;
    for (uint32_t r = 0; r < 6; r++) {
        for (uint32_t i = 0; i < b->view[r].zero_count; i++) {
            const struct dyti_zero_cut *z = &b->view[r].zero[i];
            uint64_t lo =
                z->lo > a->view[r].zero_lo ? z->lo : a->view[r].zero_lo;
            uint64_t hi =
                z->hi < a->view[r].zero_hi ? z->hi : a->view[r].zero_hi;

            kept += lo < hi ? hi - lo : 0;
        }
    }
    assert_true(fabs((double)(all - kept) / (double)all - 0.25) < 0.0025);
    for (uint32_t r = 0; r < 8; r++) {
        double share = (double)b->view[r].region_bytes[DYTI_MASTER] / 4.0 * 8 /
                       (double)all;

        assert_true(share > 0.99 && share < 1.01);
    }
    dyti_sticky_fini(&cut);
    dyti_layout_destroy(a);
    dyti_layout_destroy(b);
    dyti_model_destroy(model);
}

static void wrong_cuts_are_refused(void **state)
{
    static const struct dyti_zero_range gap[] = {{0, 5, 0},
                                                 {6, DYTI_ZERO_WHOLE, 1}};
    static const struct dyti_zero_range cut_short[] = {{0, 5, 0}};
    static const struct dyti_zero_range stranger[] = {{0, DYTI_ZERO_WHOLE, 2}};
    static const int32_t twice[] = {0, 0}, far[] = {0, 9};
    struct dyti_sticky_cut cut = {0};

    (void)state;
    assert_status(DYT_ERR_LAYOUT,
                  dyti_sticky_resize(gap, 2, 2, 0, NULL, 3, &cut));
    assert_error_has("the last one ended at 5");
    assert_status(DYT_ERR_LAYOUT,
                  dyti_sticky_resize(cut_short, 1, 2, 0, NULL, 3, &cut));
    assert_error_has("ends at 5");
    assert_status(DYT_ERR_LAYOUT,
                  dyti_sticky_resize(stranger, 1, 2, 0, NULL, 3, &cut));
    assert_error_has("position 2");
    assert_status(DYT_ERR_INVALID,
                  dyti_sticky_resize(NULL, 0, 2, 0, twice, 2, &cut));
    assert_status(DYT_ERR_INVALID,
                  dyti_sticky_resize(NULL, 0, 2, 0, far, 2, &cut));
    assert_status(DYT_ERR_INVALID,
                  dyti_sticky_resize(NULL, 0, 2, 0, NULL, 0, &cut));
    assert_null(cut.range);
    dyti_sticky_fini(&cut);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_resize_moves_the_least),
    cmocka_unit_test(larger_steps_are_never_cut_anew),
    cmocka_unit_test(chains_of_resizes),
    cmocka_unit_test(a_small_step_is_cut_anew_in_the_best_order),
    cmocka_unit_test(layouts_move_what_the_cut_says),
    cmocka_unit_test(wrong_cuts_are_refused),
};
DYT_TEST_MAIN(tests)
