/* The groups of a world: who is in which, and that regions do not overlap. */
#include "dyt_test.h"

#include "comm/shm/shm.h"
#include "edm/groups.h"

struct fixture {
    struct dyti_model *model;
    struct dyti_layout *layout[DYTI_ARENA_SLOT_COUNT];
};

static struct dyti_layout *build(struct fixture *f, uint32_t world_size,
                                 uint32_t tp, uint32_t pp, uint32_t dp,
                                 const uint32_t *ranks)
{
    struct dyti_layout_desc desc = {.phase = "x",
                                    .world_size = world_size,
                                    .tp = tp,
                                    .pp = pp,
                                    .dp = dp,
                                    .ranks = ranks};
    struct dyti_layout *layout = NULL;

    assert_ok(dyti_layout_build(f->model, &desc, &layout));
    return layout;
}

static void setup(struct fixture *f)
{
    static const struct dyti_arch arch = {.family = DYTI_LLAMA,
                                          .vocab = 16,
                                          .hidden = 16,
                                          .layers = 4,
                                          .q_heads = 4,
                                          .kv_heads = 4,
                                          .head_dim = 4,
                                          .ffn = 16,
                                          .max_positions = 8,
                                          .rms_eps = 1e-5,
                                          .init_std = 0.1,
                                          .rope = {.theta = 10000},
                                          .tied = true};

    *f = (struct fixture){0};
    assert_ok(dyti_model_build(&arch, &f->model));
}

static void teardown(struct fixture *f)
{
    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
        dyti_layout_destroy(f->layout[s]);
    }
    dyti_model_destroy(f->model);
}

static void make(const struct fixture *f, uint32_t world_size, uint32_t rank,
                 struct dyti_group_table *out)
{
    assert_ok(
        dyti_group_table_init(out, (const struct dyti_layout *const *)f->layout,
                              world_size, rank, &dyti_group_shm));
}

static void assert_members(const struct dyti_group_table *table,
                           enum dyti_arena_slot slot,
                           enum dyti_dimension dimension, uint32_t size,
                           const uint32_t *want)
{
    int32_t at = table->own[slot][dimension];

    assert_true(at >= 0);
    assert_int_equal(size, table->entry[at].size);
    assert_memory_equal(want, table->entry[at].member, size * sizeof(*want));
}

/* member (pp * 2 + dp) * 2 + tp of 8 ranks */
static void each_dimension_has_its_members(void **state)
{
    struct dyti_group_table table;
    struct fixture f;

    (void)state;
    setup(&f);
    f.layout[DYTI_ARENA_TRAIN] = build(&f, 8, 2, 2, 2, NULL);
    make(&f, 8, 5, &table); /* tp 1, dp 0, pp 1 */
    assert_members(&table, DYTI_ARENA_TRAIN, DYTI_DIM_TP, 2,
                   (uint32_t[]){4, 5});
    assert_members(&table, DYTI_ARENA_TRAIN, DYTI_DIM_DP, 2,
                   (uint32_t[]){5, 7});
    assert_members(&table, DYTI_ARENA_TRAIN, DYTI_DIM_PP, 2,
                   (uint32_t[]){1, 5});
    assert_members(&table, DYTI_ARENA_TRAIN, DYTI_DIM_MODEL, 4,
                   (uint32_t[]){0, 1, 4, 5});
    assert_members(&table, DYTI_ARENA_TRAIN, DYTI_DIM_EMBED, 2,
                   (uint32_t[]){1, 5});
    assert_members(&table, DYTI_ARENA_TRAIN, DYTI_DIM_ALL, 8,
                   (uint32_t[]){0, 1, 2, 3, 4, 5, 6, 7});
    assert_int_equal(0, table.own[DYTI_ARENA_TRAIN][DYTI_DIM_ALL]);
    assert_int_equal(-1, table.own[DYTI_ARENA_ROLLOUT][DYTI_DIM_TP]);
    dyti_group_table_fini(&table);
    teardown(&f);
}

static void a_rank_outside_a_layout_has_no_group_there(void **state)
{
    const uint32_t ranks[] = {3, 1};
    struct dyti_group_table table;
    struct fixture f;

    (void)state;
    setup(&f);
    f.layout[DYTI_ARENA_ROLLOUT] = build(&f, 4, 2, 1, 1, ranks);
    make(&f, 4, 0, &table);
    assert_int_equal(-1, table.own[DYTI_ARENA_ROLLOUT][DYTI_DIM_ALL]);
    dyti_group_table_fini(&table);
    make(&f, 4, 1, &table);
    assert_members(&table, DYTI_ARENA_ROLLOUT, DYTI_DIM_TP, 2, ranks);
    dyti_group_table_fini(&table);
    teardown(&f);
}

/* The same table on all ranks, but for `own`; no two regions share a byte. */
static void all_ranks_find_the_same_regions(void **state)
{
    struct fixture f;
    uint64_t bytes = 0;

    (void)state;
    setup(&f);
    f.layout[DYTI_ARENA_ROLLOUT] = build(&f, 4, 4, 1, 1, NULL);
    f.layout[DYTI_ARENA_TRAIN] = build(&f, 4, 1, 2, 2, NULL);
    assert_ok(
        dyti_world_control_bytes((const struct dyti_layout *const *)f.layout, 4,
                                 &dyti_group_shm, &bytes));
    for (uint32_t rank = 0; rank < 4; rank++) {
        struct dyti_group_table table;
        uint64_t end = dyti_control_bytes();

        make(&f, 4, rank, &table);
        assert_int_equal(bytes, table.total_bytes);
        /* the world, four of one, two dp, two pp (= embed, model) */
        assert_int_equal(9, table.entry_count);
        for (size_t i = 0; i < table.entry_count; i++) {
            assert_true(table.entry[i].offset >= end);
            end = table.entry[i].offset + table.entry[i].bytes;
        }
        assert_true(end <= bytes);
        assert_int_equal(0, table.own[DYTI_ARENA_ROLLOUT][DYTI_DIM_TP]);
        dyti_group_table_fini(&table);
    }
    teardown(&f);
}

static void another_world_is_refused(void **state)
{
    struct dyti_group_table table;
    struct fixture f;

    (void)state;
    setup(&f);
    f.layout[DYTI_ARENA_TRAIN] = build(&f, 2, 2, 1, 1, NULL);
    assert_status(DYT_ERR_INVALID,
                  dyti_group_table_init(
                      &table, (const struct dyti_layout *const *)f.layout, 3, 0,
                      &dyti_group_shm));
    assert_error_has("train");
    teardown(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_dimension_has_its_members),
    cmocka_unit_test(a_rank_outside_a_layout_has_no_group_there),
    cmocka_unit_test(all_ranks_find_the_same_regions),
    cmocka_unit_test(another_world_is_refused),
};
DYT_TEST_MAIN(tests)
