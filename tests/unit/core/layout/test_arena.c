/* The segment of a rank: regions aligned, in order, apart. */
#include "layout_cases.h"

#include "layout/arena.h"

static void regions_are_aligned_and_apart(void **state)
{
    const struct dyti_arch arch = DYT_ARCH_SMOLLM2_135M;
    struct dyti_layout_desc rollout = {.phase = "rollout",
                                       .world_size = 4,
                                       .tp = 4,
                                       .pp = 1,
                                       .dp = 1,
                                       .dtype = {DYTI_BF16}};
    const struct dyti_layout_desc train = {.phase = "train",
                                           .world_size = 4,
                                           .tp = 1,
                                           .pp = 2,
                                           .dp = 2,
                                           .zero = 1,
                                           .dtype = {DYTI_BF16}};
    struct dyti_model *model = NULL;
    struct dyti_layout *a = NULL, *b = NULL;

    (void)state;
    for (int kind = DYTI_GRAD; kind < DYTI_KIND_COUNT; kind++) {
        rollout.residency[kind] =
            kind == DYTI_GRAD ? DYTI_DROPPED : DYTI_PARKED;
    }
    assert_ok(dyti_model_build(&arch, &model));
    assert_ok(dyti_layout_build(model, &rollout, &a));
    assert_ok(dyti_layout_build(model, &train, &b));
    for (uint32_t r = 0; r < 4; r++) {
        const struct dyti_layout *const layout[] = {a, b, NULL};
        struct dyti_arena_map map;
        uint64_t end = 0;

        assert_ok(dyti_arena_map_build(layout, r, 12345, &map));
        for (int slot = 0; slot < DYTI_ARENA_SLOT_COUNT; slot++) {
            for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
                if (map.bytes[slot][kind] > 0) {
                    assert_int_equal(0,
                                     map.offset[slot][kind] % DYTI_ARENA_ALIGN);
                    assert_true(map.offset[slot][kind] >= end);
                    assert_true(map.offset[slot][kind] <
                                end + DYTI_ARENA_ALIGN);
                    end = map.offset[slot][kind] + map.bytes[slot][kind];
                }
            }
        }
        assert_int_equal(0, map.offset[DYTI_ARENA_ROLLOUT][DYTI_PARAM]);
        assert_int_equal(0, map.bytes[DYTI_ARENA_ROLLOUT][DYTI_MASTER]);
        assert_int_equal(a->view[r].region_bytes[DYTI_PARAM],
                         map.bytes[DYTI_ARENA_ROLLOUT][DYTI_PARAM]);
        assert_int_equal(b->view[r].region_bytes[DYTI_EXP_AVG],
                         map.bytes[DYTI_ARENA_TRAIN][DYTI_EXP_AVG]);
        assert_true(map.work_offset >= end);
        assert_int_equal(12345, map.work_bytes);
        assert_int_equal(map.work_offset + DYTI_ARENA_ALIGN, map.total_bytes);
    }
    dyti_layout_destroy(a);
    dyti_layout_destroy(b);
    dyti_model_destroy(model);
}

static void too_much_is_refused(void **state)
{
    const struct dyti_layout *const none[DYTI_ARENA_SLOT_COUNT] = {NULL};
    struct dyti_arena_map map = {.total_bytes = 7};

    (void)state;
    assert_status(DYT_ERR_OVERFLOW,
                  dyti_arena_map_build(none, 0, UINT64_MAX, &map));
    assert_int_equal(7, map.total_bytes);
    assert_ok(dyti_arena_map_build(none, 0, 0, &map));
    assert_int_equal(0, map.total_bytes);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(regions_are_aligned_and_apart),
    cmocka_unit_test(too_much_is_refused),
};
DYT_TEST_MAIN(tests)
