/* Every allocation of opening a world and preparing its switches fails in turn:
 * the answer is always "out of memory", and nothing is left behind. */
#include "failing_alloc.h"
#include "switch_world.h"

static enum dyt_status open_and_prepare(struct sw_rank *rank,
                                        struct dyt_rank *me,
                                        const struct sw_memory *memory)
{
    struct dyti_switch *self = NULL;
    enum dyt_status st = sw_rank_open(rank, me, 3, 1, memory);

    if (st == DYT_OK) {
        st = dyti_world_prepare(rank->world, DYTI_ARENA_TRAIN,
                                DYTI_ARENA_ROLLOUT, NULL, &self, NULL);
    }
    if (st == DYT_OK) {
        st = dyti_world_prepare(rank->world, DYTI_ARENA_ROLLOUT,
                                DYTI_ARENA_TRAIN, NULL, &self, NULL);
    }
    return st;
}

static void fail_each(enum dyti_switch_mode mode)
{
    struct dyti_arena_options options = {
        .mode = mode, .work_bytes = SW_WORK_BYTES, .staging_bytes = 8192};
    struct dyt_rank me = {.size = 1, .kind = DYT_RANKS_THREADS};
    struct sw_memory memory;
    struct sw_case c;
    long fail_at = 0;
    enum dyt_status st;

    assert_ok(sw_case_init_mode(&c, 3, 1, &options));
    sw_memory_open(&memory, &c, DYT_RANKS_THREADS);
    do {
        struct sw_rank rank;

        memset(memory.control_mem.base, 0, dyti_control_bytes());
        dyt_alloc_countdown = fail_at++;
        st = open_and_prepare(&rank, &me, &memory);
        dyt_alloc_countdown = -1;
        if (st != DYT_OK) {
            assert_int_equal(DYT_ERR_NOMEM, st);
        }
        sw_rank_close(&rank);
    } while (st != DYT_OK);
    assert_true(fail_at > 50); /* the loop did reach all of it */
    sw_memory_close(&memory, 1);
    sw_case_fini(&c);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int mode = 0; mode < DYTI_MODE_COUNT; mode++) {
        fail_each((enum dyti_switch_mode)mode);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_allocation_may_fail),
};
DYT_TEST_MAIN(tests)
