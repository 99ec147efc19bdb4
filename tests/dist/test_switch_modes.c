/* The four modes: every byte arrives, addresses stay, memory is what the mode's
 * row says, and what a failure leaves is what the row promises. */
#include "switch_world.h"

#define ROUND_TRIPS 4u
#define VICTIM      1u

struct trip {
    uint64_t seed;
    uint32_t world_size;
    const struct sw_memory *memory;
    void (*body)(struct sw_rank *rank, const struct trip *trip);
    enum dyti_switch_fault fault;
    enum dyti_switch_point point;
    _Atomic uint32_t *board; /* [world_size] decisions */
};

static void trip_rank(struct dyt_rank *me)
{
    const struct trip *trip = me->arg;
    struct sw_rank rank;

    if (sw_rank_open(&rank, me, trip->seed, trip->world_size, trip->memory) !=
        DYT_OK) {
        rank_wrong(me, "%s", dyti_error_text());
    } else {
        trip->body(&rank, trip);
    }
    sw_rank_close(&rank);
}

static void play(enum dyt_ranks_kind kind, enum dyti_switch_mode mode,
                 struct trip *trip)
{
    struct dyti_arena_options options = {
        .mode = mode, .work_bytes = SW_WORK_BYTES, .staging_bytes = 8192};
    struct sw_case c;
    struct sw_memory memory;

    if (trip->world_size == 0) {
        trip->world_size = 1 + sw_draw(trip->seed, 8, 4);
    }
    assert_ok(sw_case_init_mode(&c, trip->seed, trip->world_size, &options));
    sw_memory_open(&memory, &c, kind);
    trip->memory = &memory;
    print_message("%s, seed %" PRIu64 ": %u ranks\n",
                  dyti_switch_mode_name(mode), trip->seed, trip->world_size);
    dyt_ranks_run(kind, trip->world_size, trip_rank, trip);
    sw_memory_close(&memory, trip->world_size);
    sw_case_fini(&c);
}

/* ---- there and back ---------------------------------------------------------
 */

/* Bytes of the segment that have memory behind them. */
static uint64_t touched(const struct sw_rank *rank, const struct trip *trip)
{
    uint32_t r = rank->me->rank;
    struct dyti_segment_mem mem = trip->memory->segment_mem[r];
    uint64_t bytes = 0;

    return mem.base == NULL || trip->memory->ops->touched(&mem, 0, mem.bytes,
                                                          &bytes) != DYT_OK
               ? 0
               : bytes;
}

/* A region ends in a page that it may not fill. */
static uint64_t slack(const struct sw_rank *rank)
{
    const struct dyti_arena_map *map = &rank->c.map[rank->me->rank];
    uint64_t regions = 2; /* work, staging */

    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
        for (int k = 0; k < DYTI_KIND_COUNT; k++) {
            regions += map->bytes[s][k] > 0 ? 2 : 0;
        }
    }
    return regions * 4096u;
}

static void check_memory(const struct sw_rank *rank, const struct trip *trip)
{
    struct dyti_arena_cost cost;

    dyti_arena_cost((const struct dyti_layout *const *)rank->c.layout,
                    rank->me->rank, &trip->memory->options, &cost);
    rank_true(rank->me, touched(rank, trip) <= cost.total + slack(rank));
}

static void round_trip(struct sw_rank *rank, uint64_t n)
{
    struct dyt_rank *me = rank->me;
    struct dyti_control_page *page = dyti_world_control(rank->world);
    struct dyti_switch_report report;
    struct dyti_switch_order order = {.epoch = 2 * n + 1,
                                      .version = n + 1,
                                      .unmanaged = true,
                                      .verify = (enum dyti_verify)(n % 3)};

    sw_update(rank, DYTI_ARENA_TRAIN, n + 1);
    rank_ok(me, sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, NULL,
                          &order, &report));
    rank_true(me, report.decision == DYTI_DECISION_COMMIT);
    rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, n + 1));
    rank_true(me, !rank->c.moves_optimizer ||
                      sw_check_all(rank, DYTI_ARENA_ROLLOUT, n + 1));
    rank_true(me, atomic_load(&page->rank[me->rank].serves) == n + 1);
    rank_true(me, atomic_load(&page->version) == n + 1);
    order.epoch++;
    rank_ok(me, sw_switch(rank, DYTI_ARENA_ROLLOUT, DYTI_ARENA_TRAIN, NULL,
                          &order, &report));
    rank_true(me, sw_check_all(rank, DYTI_ARENA_TRAIN, n + 1));
}

static void trips(struct sw_rank *rank, const struct trip *trip)
{
    struct dyt_rank *me = rank->me;
    enum dyti_switch_mode mode = trip->memory->options.mode;
    void *was[2] = {dyti_world_region(rank->world, me->rank, DYTI_ARENA_ROLLOUT,
                                      DYTI_PARAM)};
    uint64_t memory = 0;

    for (uint64_t n = 0; n < ROUND_TRIPS && me->wrong[0] == '\0'; n++) {
        void *now;

        round_trip(rank, n);
        now = dyti_world_region(rank->world, me->rank, DYTI_ARENA_ROLLOUT,
                                DYTI_PARAM);
        was[1] = n == 0 ? now : was[1];
        rank_true(me, now == was[n % 2 == 0]);
        if (n == 1) { /* both sets have been touched */
            memory = touched(rank, trip);
        }
    }
    rank_true(me, (was[0] != was[1]) ==
                      (mode == DYTI_MODE_DOUBLE && was[0] != NULL));
    rank_true(me, touched(rank, trip) == memory);
    if (me->wrong[0] == '\0') {
        check_memory(rank, trip);
    }
}

static void every_mode_comes_back_bit_equal(void **state)
{
    (void)state;
    for (int mode = 0; mode < DYTI_MODE_IN_PLACE; mode++) {
        for (uint64_t seed = 1; seed <= 10; seed++) {
            struct trip trip = {.seed = seed, .body = trips};

            play(seed % 2 == 0 ? DYT_RANKS_PROCESSES : DYT_RANKS_THREADS,
                 (enum dyti_switch_mode)mode, &trip);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_mode_comes_back_bit_equal),
};
DYT_TEST_MAIN(tests)
