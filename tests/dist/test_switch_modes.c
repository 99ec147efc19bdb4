/* The four modes: every byte arrives, addresses stay, memory is what the mode's
 * row says, and what a failure leaves is what the row promises. */
#include "switch_scene.h"

#include "mover/message/message.h"

#include <sys/stat.h>

#define ROUND_TRIPS sw_rounds(4u, 2u)
#define VICTIM      1u

struct trip {
    uint64_t seed;
    uint32_t world_size;
    const struct sw_memory *memory;
    void (*body)(struct sw_rank *rank, const struct trip *trip);
    _Atomic uint64_t *smallest; /* cap that a refusal names; 0: none */
};

static void trip_rank(struct dyt_rank *me)
{
    const struct trip *trip = me->arg;
    struct sw_rank rank;

    if (sw_enter(&rank, me, trip->seed, trip->world_size, trip->memory)) {
        trip->body(&rank, trip);
    }
    rank_where(me, " [%s, seed %" PRIu64 ", cap %" PRIu64 "]",
               dyti_switch_mode_name(trip->memory->options.mode), trip->seed,
               trip->memory->options.staging_bytes);
    sw_rank_close(&rank);
}

static void play(enum dyt_ranks_kind kind, enum dyti_switch_mode mode,
                 uint64_t staging_bytes, struct trip *trip)
{
    struct dyti_arena_options options = {.mode = mode,
                                         .work_bytes = SW_WORK_BYTES,
                                         .staging_bytes = staging_bytes};
    struct sw_stage stage = {
        .kind = kind, .seed = trip->seed, .options = &options};

    if (trip->world_size == 0) {
        trip->world_size = 1 + sw_draw(trip->seed, 8, 4);
    }
    stage.world_size = trip->world_size;
    sw_play(&stage, trip_rank, trip, &trip->memory);
}

/* ---- there and back ------------------------------------------------------ */

/* Bytes of the segment that have memory behind them. */
static uint64_t touched(const struct sw_rank *rank, const struct trip *trip)
{
    uint32_t r = rank->me->rank;
    struct dyti_segment_mem mem = trip->memory->segment_mem[r];
    uint64_t bytes = 0;

    return mem.base == NULL || sw_memory_of(r)->touched(&mem, 0, mem.bytes,
                                                        &bytes) != DYT_OK
               ? 0
               : bytes;
}

/* A region ends in a page, or a part of a device, that it may not fill. */
static uint64_t slack(const struct sw_rank *rank)
{
    const struct dyti_arena_map *map = &rank->c.map[rank->me->rank];
    uint64_t regions = 2; /* work, staging */

    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
        for (int k = 0; k < DYTI_KIND_COUNT; k++) {
            regions += map->bytes[s][k] > 0 ? 2 : 0;
        }
    }
    return regions * (sw_is_device(rank->me->rank) ? DYTI_ARENA_ALIGN : 4096u);
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
                                      .verify = sw_verify(n)};

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
    for (int mode = 0; mode < DYTI_MODE_COUNT; mode++) {
        for (uint64_t seed = 1; seed <= sw_rounds(6, 2); seed++) {
            struct trip trip = {.seed = seed, .body = trips};

            play(DYT_RANKS_PROCESSES, (enum dyti_switch_mode)mode, 8192, &trip);
        }
    }
}

/* ---- A, B, A ------------------------------------------------------------- */

/* Fifty switches with the values of A, then B, then A again, in turn: each time
 * exactly those, always at the same addresses. */
static void a_b_a(struct sw_rank *rank, const struct trip *trip)
{
    struct dyt_rank *me = rank->me;
    void *was[DYTI_ARENA_SLOT_COUNT][DYTI_KIND_COUNT];

    (void)trip;
    for (uint64_t n = 0; n < sw_rounds(50, 4); n++) {
        bool out = n % 2 == 0;
        uint64_t values = 1 + n / 2 % 2;
        struct dyti_switch_report report;
        struct dyti_switch_order order = {
            .epoch = n + 1, .version = n / 2 + 1, .unmanaged = true};

        if (out) {
            sw_update(rank, DYTI_ARENA_TRAIN, values);
        }
        rank_ok(me, sw_switch(rank, out ? DYTI_ARENA_TRAIN : DYTI_ARENA_ROLLOUT,
                              out ? DYTI_ARENA_ROLLOUT : DYTI_ARENA_TRAIN, NULL,
                              &order, &report));
        rank_true(me,
                  out ? sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, values)
                      : sw_check_all(rank, DYTI_ARENA_TRAIN, values));
        for (int i = 0; i < DYTI_ARENA_SLOT_COUNT * DYTI_KIND_COUNT; i++) {
            int s = i / DYTI_KIND_COUNT, k = i % DYTI_KIND_COUNT;
            void *now = dyti_world_region_in(rank->world, me->rank,
                                             (enum dyti_arena_slot)s,
                                             (enum dyti_kind)k, 0);

            was[s][k] = n == 0 ? now : was[s][k];
            rank_true(me, now == was[s][k]);
        }
    }
}

static void a_then_b_then_a_is_a(void **state)
{
    (void)state;
    for (int mode = 0; mode < DYTI_MODE_COUNT; mode++) {
        struct trip trip = {
            .seed = 7 + (uint64_t)mode, .world_size = 3, .body = a_b_a};

        play(DYT_RANKS_THREADS, (enum dyti_switch_mode)mode, 1u << 16, &trip);
    }
}

/* ---- random layouts, modes and caps -------------------------------------- */

/* Both directions prepared, or refused by all ranks with the smallest cap. */
static void trips_if_it_fits(struct sw_rank *rank, const struct trip *trip)
{
    static const char words[] = "smallest cap that works is ";
    struct dyt_rank *me = rank->me;
    enum dyti_arena_slot slot[2] = {DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT};
    bool refused = false;

    for (int way = 0; way < 2; way++) {
        struct dyti_switch *self = NULL;
        enum dyt_status st = dyti_world_prepare(
            rank->world, slot[way], slot[1 - way], NULL, &self, NULL);
        const char *at = strstr(dyti_error_text(), words);
        uint64_t least, most = atomic_load(trip->smallest);

        if (st == DYT_OK) {
            continue;
        }
        rank_true(me, st == DYT_ERR_UNSUPPORTED && at != NULL);
        rank_true(me, trip->memory->options.mode == DYTI_MODE_IN_PLACE);
        least = strtoull(at + strlen(words), NULL, 10);
        rank_true(me, least > trip->memory->options.staging_bytes);
        while (most < least &&
               !atomic_compare_exchange_weak(trip->smallest, &most, least)) {
        }
        refused = true;
    }
    if (!refused) {
        trips(rank, trip);
    }
}

static void random_switches_hold_what_the_row_says(void **state)
{
    uint64_t quick = sw_device == NULL ? 200 : 8; /* simulated: a second each */
    uint64_t rounds = dyt_test_rounds(quick, 10 * quick);
    uint32_t refusals = 0;

    (void)state;
    for (uint64_t n = 0; n < rounds; n++) {
        static const uint64_t caps[] = {0, 0, 64, 256, 1024, 4096, 1u << 20};
        _Atomic uint64_t smallest = 0;
        struct trip trip = {
            .seed = 1000 + n, .body = trips_if_it_fits, .smallest = &smallest};
        uint64_t cap = caps[sw_draw(n, 77, (uint32_t)DYT_TEST_COUNT(caps))];
        enum dyti_switch_mode mode =
            n % 2 == 0 ? DYTI_MODE_IN_PLACE
                       : (enum dyti_switch_mode)(n / 2 % DYTI_MODE_IN_PLACE);

        play(DYT_RANKS_THREADS, mode, cap, &trip);
        if (smallest > 0) { /* and with that cap it works */
            refusals++;
            cap = smallest;
            smallest = 0;
            play(DYT_RANKS_THREADS, mode, cap, &trip);
            assert_int_equal(0, smallest);
        }
    }
    print_message("%u of %" PRIu64 " needed a larger cap\n", refusals, rounds);
    assert_true(refusals > 0 || sw_device != NULL);
}

/* ---- two hosts ----------------------------------------------------------- */

/* Between hosts bytes go by messages, in every mode. */
static void modes_go_by_messages_too(void **state)
{
    static const uint32_t hosts[SW_RANKS_MAX] = {0, 0, 1, 1};

    (void)state;
    sw_message = &dyti_mover_message;
    sw_host = hosts;
    for (int mode = 0; mode < DYTI_MODE_COUNT; mode++) {
        for (uint64_t seed = 1; seed <= sw_rounds(8, 1); seed++) {
            struct trip trip = {.seed = seed, .world_size = 4, .body = trips};

            play(DYT_RANKS_THREADS, (enum dyti_switch_mode)mode, 1u << 16,
                 &trip);
        }
    }
    sw_message = NULL;
    sw_host = NULL;
}

/* ---- a rank that dies while it copies ------------------------------------ */

static void die_at(void *arg, enum dyti_switch_point point)
{
    struct dyt_rank *me = arg;

    if (point == DYTI_AT_COMMITTING && me->rank == VICTIM) {
        me->expect_death = true;
        (void)raise(SIGKILL);
    }
}

static void on_death(uint32_t rank, void *arg)
{
    const struct trip *trip = arg;

    dyti_control_abort(trip->memory->control_mem.base, &dyti_wait_futex, rank,
                       DYT_ERR_PEER);
}

static void dying_trip(struct sw_rank *rank, const struct trip *trip)
{
    struct dyt_rank *me = rank->me;
    struct dyti_switch_report report;
    struct dyti_switch_order order = {.epoch = 1,
                                      .version = 1,
                                      .unmanaged = true,
                                      .verify = DYTI_VERIFY_FULL,
                                      .at = die_at,
                                      .at_arg = me};

    (void)trip;
    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    rank_ok(me, sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, NULL,
                          &order, &report));
    rank_true(me, report.decision == DYTI_DECISION_COMMIT);
    rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 1));
}

/* What was staged is where it belongs. */
static void check_copied(const struct dyti_kernels *kernels, const void *base,
                         const struct dyti_arena_map *map)
{
    uint64_t bytes = map->bytes[DYTI_ARENA_ROLLOUT][DYTI_PARAM];
    unsigned char *seen[2];

    for (uint32_t set = 0; set < 2; set++) {
        seen[set] = malloc(bytes);
        assert_non_null(seen[set]);
        assert_ok(dyti_kernels_carry(
            kernels, seen[set],
            (const unsigned char *)base +
                dyti_arena_offset(map, set, DYTI_ARENA_ROLLOUT, DYTI_PARAM),
            bytes));
    }
    assert_memory_equal(seen[0], seen[1], bytes);
    free(seen[0]);
    free(seen[1]);
}

/* What the dead rank's segment holds, seen by the one who maps it. */
static void check_corpse(struct sw_case *c, struct sw_memory *memory,
                         bool whole)
{
    struct dyti_segment_mem *mem = &memory->segment_mem[VICTIM];
    struct dyti_kernels kernels = {.ops = sw_kernels_of(VICTIM)};
    struct dyti_kernel_params params = {.struct_size = sizeof(params)};
    struct dyti_control_page *page = memory->control_mem.base;
    uint64_t region = dyti_region_bit(DYTI_ARENA_ROLLOUT, DYTI_PARAM);

    assert_int_equal(whole ? DYT_OK : DYT_ERR_STATE,
                     dyti_control_check_rank(page, VICTIM, region));
    assert_ok(sw_memory_of(VICTIM)->use(NULL));
    assert_ok(kernels.ops->open(&params, &kernels.self));
    if (whole) {
        check_copied(&kernels, mem->base, &c->map[VICTIM]);
    } else {
        assert_ok(sw_memory_of(VICTIM)->map(memory->segment[VICTIM],
                                            memory->pages[VICTIM],
                                            c->map[VICTIM].total_bytes, mem));
        assert_ok(dyti_switch_heal_staged(page, VICTIM, &c->map[VICTIM],
                                          mem->base, &kernels));
        assert_int_equal(1, atomic_load(&page->rank[VICTIM].serves));
    }
    kernels.ops->close(kernels.self);
}

static void a_death_in_the_local_copy_is_healed_from_scratch(void **state)
{
    struct dyti_arena_options options = {.mode = DYTI_MODE_STAGED,
                                         .work_bytes = SW_WORK_BYTES};
    uint32_t played = 0;

    (void)state;
    for (uint64_t seed = 1; played < sw_rounds(3, 1); seed++) {
        struct trip trip = {.seed = seed, .world_size = 3, .body = dying_trip};
        struct sw_memory memory;
        struct sw_case c;

        assert_ok(sw_case_init_mode(&c, seed, 3, &options));
        if (c.map[VICTIM].bytes[DYTI_ARENA_ROLLOUT][DYTI_PARAM] > 0) {
            sw_memory_open(&memory, &c, DYT_RANKS_PROCESSES);
            trip.memory = &memory;
            dyt_ranks_on_death = on_death;
            dyt_ranks_run(DYT_RANKS_PROCESSES, 3, trip_rank, &trip);
            dyt_ranks_on_death = NULL;
            check_corpse(&c, &memory, false);
            check_corpse(&c, &memory, true);
            sw_memory_close(&memory, 3);
            played++;
        }
        sw_case_fini(&c);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_mode_comes_back_bit_equal),
    cmocka_unit_test(a_then_b_then_a_is_a),
    cmocka_unit_test(random_switches_hold_what_the_row_says),
    cmocka_unit_test(modes_go_by_messages_too),
    cmocka_unit_test(a_death_in_the_local_copy_is_healed_from_scratch),
};
DYT_TEST_MAIN(tests)
