/* Switches between drawn layouts and residencies: every byte arrives, addresses
 * stay, nothing grows.  Ranks as threads and as processes. */
#include "switch_scene.h"

#define ROUND_TRIPS sw_rounds(5u, 3u)

struct trip {
    uint64_t seed;
    uint32_t world_size;
    const struct sw_memory *memory;
    struct dyti_world_switch_options options;
};

static uint64_t touched(const struct sw_rank *rank)
{
    struct dyti_world_owner owner[32];
    uint64_t sum = 0;
    size_t count = 0;

    if (dyti_world_memory(rank->world, owner, DYT_TEST_COUNT(owner), &count) !=
        DYT_OK) {
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        sum +=
            strcmp(owner[i].name, "control") == 0 ? 0 : owner[i].touched_bytes;
    }
    return sum;
}

static bool is_nan_region(const struct sw_rank *rank, enum dyti_arena_slot slot)
{
    uint32_t r = rank->me->rank;
    const void *at = dyti_world_region(rank->world, r, slot, DYTI_PARAM);
    uint16_t first = 0xffff;

    return at == NULL ||
           (sw_peek(rank, at, sizeof(first), &first) && first == 0xffff);
}

static void round_trip(struct sw_rank *rank, const struct trip *trip,
                       uint64_t n, struct dyti_switch_report *report)
{
    struct dyt_rank *me = rank->me;
    struct dyti_switch_order order = {.epoch = 2 * n + 1,
                                      .version = n + 1,
                                      .unmanaged = true,
                                      .verify = sw_verify(n)};
    bool optimizer = rank->c.moves_optimizer;

    sw_update(rank, DYTI_ARENA_TRAIN, n + 1);
    rank_ok(me, sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT,
                          &trip->options, &order, report));
    rank_true(me, report->decision == DYTI_DECISION_COMMIT);
    rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, n + 1));
    rank_true(me, !optimizer || sw_check_all(rank, DYTI_ARENA_ROLLOUT, n + 1));
    rank_true(me, is_nan_region(rank, DYTI_ARENA_TRAIN));
    rank_true(me,
              atomic_load(&dyti_world_control(rank->world)->version) == n + 1);
    order.epoch++;
    rank_ok(me, sw_switch(rank, DYTI_ARENA_ROLLOUT, DYTI_ARENA_TRAIN,
                          &trip->options, &order, report));
    rank_true(me, sw_check_all(rank, DYTI_ARENA_TRAIN, n + 1));
}

static void trip_body(struct sw_rank *rank, const struct trip *trip)
{
    struct dyt_rank *me = rank->me;
    void *was =
        dyti_world_region(rank->world, me->rank, DYTI_ARENA_TRAIN, DYTI_PARAM);
    struct dyti_switch_report report;
    uint64_t memory = 0;
    uint32_t files = 0;

    for (uint64_t n = 0; n < ROUND_TRIPS && me->wrong[0] == '\0'; n++) {
        if (n == 2) { /* everything has been touched twice */
            memory = touched(rank);
            files = dyt_open_files();
        }
        round_trip(rank, trip, n, &report);
    }
    rank_true(me, touched(rank) == memory);
    rank_true(me, me->kind == DYT_RANKS_THREADS || dyt_open_files() == files);
    rank_true(me, was == dyti_world_region(rank->world, me->rank,
                                           DYTI_ARENA_TRAIN, DYTI_PARAM));
}

static void trip_rank(struct dyt_rank *me)
{
    const struct trip *trip = me->arg;
    struct sw_rank rank;

    if (sw_enter(&rank, me, trip->seed, trip->world_size, trip->memory)) {
        trip_body(&rank, trip);
    }
    sw_rank_close(&rank);
}

static void run_trip(enum dyt_ranks_kind kind, uint64_t seed)
{
    struct trip trip = {.seed = seed, .world_size = 1 + sw_draw(seed, 8, 4)};
    struct sw_stage stage = {
        .kind = kind, .seed = seed, .world_size = trip.world_size};

    trip.options.side = sw_draw(seed, 9, 2) ? DYTI_SIDE_PUSH : DYTI_SIDE_PULL;
    print_message("seed %" PRIu64 ": %u ranks\n", seed, trip.world_size);
    sw_play(&stage, trip_rank, &trip, &trip.memory);
}

/* 20 draws × 10 switches by threads, as many by processes. */
static void processes_come_back_bit_equal(void **state)
{
    uint32_t files = dyt_open_files();

    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        if (seed % 5 < sw_rounds(5, 1)) {
            run_trip(DYT_RANKS_PROCESSES, seed);
        }
    }
    assert_int_equal(files, dyt_open_files());
}

static void threads_come_back_bit_equal(void **state)
{
    (void)state;
    for (uint64_t seed = 21; seed <= 20 + sw_rounds(20, 5); seed++) {
        run_trip(DYT_RANKS_THREADS, seed);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(processes_come_back_bit_equal),
    cmocka_unit_test(threads_come_back_bit_equal),
};
DYT_TEST_MAIN(tests)
