/* Switches of ranks on several hosts: what a host needs enters it once, and its
 * ranks then read it from each other.  Every byte arrives, in each mode and
 * with each strategy; the bytes between the hosts are counted against a count
 * element by element; what goes wrong between the two waves leaves the old. */
#include "host_bytes.h"
#include "switch_scene.h"

#include "mover/message/message.h"
#include "plan/traffic.h"

/* Worlds to try: never fewer than `quick`, since what all of them did together
 * is compared. */
static uint64_t worlds_to_try(uint64_t quick, uint64_t full)
{
    uint64_t rounds = dyt_test_rounds(quick, full);

    return rounds < quick ? quick : rounds;
}

#define ROUND_TRIPS 2u

static const uint32_t hosts_of_two[][SW_RANKS_MAX] = {
    {0, 0, 1, 1, 1, 1}, {0, 1, 0, 1, 0, 1}, {0, 1, 1, 1, 0, 0}};
static const uint32_t hosts_of_three[][SW_RANKS_MAX] = {{0, 0, 1, 1, 2, 2},
                                                        {0, 1, 2, 0, 1, 2}};

/* ---- there and back --------------------------------------------------------
 */

struct trip {
    uint64_t seed;
    uint32_t world_size;
    const struct sw_memory *memory;
    struct dyti_world_switch_options options;
    void (*body)(struct sw_rank *rank, const struct trip *trip);
    uint32_t victim;
    _Atomic uint32_t *aborted;
};

static void round_trips(struct sw_rank *rank, const struct trip *trip)
{
    for (uint64_t n = 0; n < ROUND_TRIPS && rank->me->wrong[0] == '\0'; n++) {
        sw_there_and_back(rank, n, &trip->options, DYTI_VERIFY_FULL);
    }
}

static void trip_rank(struct dyt_rank *me)
{
    const struct trip *trip = me->arg;
    struct sw_rank rank;

    if (sw_enter(&rank, me, trip->seed, trip->world_size, trip->memory)) {
        trip->body(&rank, trip);
    }
    sw_rank_close(&rank);
}

static const struct dyti_mover_ops *copier; /* NULL: direct */

static void draw_hosts(struct trip *trip)
{
    trip->world_size = 3 + sw_draw(trip->seed, 71, 4);
    sw_host = trip->world_size == 6 || sw_draw(trip->seed, 76, 2) == 0
                  ? hosts_of_three[sw_draw(trip->seed, 77, 2)]
                  : hosts_of_two[sw_draw(trip->seed, 77, 3)];
}

/* Some rank reads what it needs for the rollout from a sibling. */
static bool has_siblings(struct trip *trip)
{
    struct sw_case c;
    bool has;

    draw_hosts(trip);
    assert_ok(sw_case_init(&c, trip->seed, trip->world_size));
    has = must_cross(&c, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, true) >
          must_cross(&c, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, false);
    sw_case_fini(&c);
    return has;
}

/* Runs it; hosts and layouts are drawn.  Bytes that had to cross. */
static uint64_t play(enum dyt_ranks_kind kind, enum dyti_switch_mode mode,
                     struct trip *trip)
{
    struct dyti_arena_options options = {
        .mode = mode, .work_bytes = SW_WORK_BYTES, .staging_bytes = 1u << 16};
    struct sw_case c;
    struct sw_memory memory;
    uint64_t must;

    draw_hosts(trip);
    sw_message = &dyti_mover_message;
    count_groups();
    assert_ok(sw_case_init_mode(&c, trip->seed, trip->world_size, &options));
    must = must_cross(&c, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT,
                      trip->options.no_fan_out) +
           must_cross(&c, DYTI_ARENA_ROLLOUT, DYTI_ARENA_TRAIN,
                      trip->options.no_fan_out);
    sw_memory_open(&memory, &c, kind);
    memory.mover = copier;
    trip->memory = &memory;
    dyt_ranks_run(kind, trip->world_size, trip_rank, trip);
    sw_memory_close(&memory, trip->world_size);
    sw_case_fini(&c);
    return must;
}

/* Where links inside a host are what takes long, a plan may be the first
 * replica's, and cross more: of near holders only such a plan makes no use. */
static bool is_naive(const struct trip *trip)
{
    static const enum dyti_arena_slot slot[] = {DYTI_ARENA_TRAIN,
                                                DYTI_ARENA_ROLLOUT};
    struct dyti_traffic_options options = {.fan_out =
                                               !trip->options.no_fan_out};
    struct sw_case c;
    bool naive = false;

    assert_ok(sw_case_init(&c, trip->seed, trip->world_size));
    for (int i = 0; i < 2; i++) {
        struct dyti_plan_inputs in;
        struct dyti_traffic *traffic = NULL;

        assert_ok(dyti_plan_inputs_init(c.layout[slot[i]], slot[i],
                                        c.layout[slot[1 - i]], slot[1 - i],
                                        DYTI_PLAN_KINDS_STATE, &in));
        in.host = sw_host;
        in.fan_out = options.fan_out;
        assert_ok(dyti_traffic_build(&in, &options, &traffic));
        naive |=
            traffic->sources > (options.fan_out ? DYTI_SOURCES_NEAREST
                                                : DYTI_SOURCES_NEAREST_EACH);
        dyti_traffic_destroy(traffic);
    }
    sw_case_fini(&c);
    return naive;
}

static bool crossed_once(const struct trip *trip, uint64_t must)
{
    return must == atomic_load(&crossed) ||
           (must < atomic_load(&crossed) && is_naive(trip));
}

static void one_copy_enters_a_host(void **state)
{
    uint64_t once = 0, each = 0, exact = 0;
    uint64_t worlds = worlds_to_try(24, 240);

    (void)state;
    for (uint64_t seed = 1; seed <= worlds; seed++) {
        struct trip trip = {.seed = seed, .body = round_trips};
        uint64_t must = ROUND_TRIPS *
                        play(DYT_RANKS_THREADS, DYTI_MODE_TRANSACTIONAL, &trip);

        exact += must == atomic_load(&crossed);
        assert_true(crossed_once(&trip, must));
        once += must;
        trip.options.no_fan_out = true;
        must = ROUND_TRIPS *
               play(DYT_RANKS_THREADS, DYTI_MODE_TRANSACTIONAL, &trip);
        assert_true(crossed_once(&trip, must));
        each += must;
    }
    print_message("%" PRIu64 " bytes between hosts, %" PRIu64
                  " when each rank fetches its own\n",
                  once, each);
    assert_true(once < each);
    assert_in_range(exact, worlds - worlds / 12, worlds);
}

/* The sibling's new memory is the source, not the live one.  In place each rank
 * fetches its own: a sibling's may be overwritten by then. */
static void every_mode_and_strategy_comes_back_bit_equal(void **state)
{
    (void)state;
    for (uint64_t seed = 101; seed <= 100 + worlds_to_try(36, 360); seed++) {
        struct trip trip = {
            .seed = seed,
            .body = round_trips,
            .options = {.strategy = dyti_strategy_at(seed % 4),
                        .mover = seed % 5 == 0 ? DYTI_WORLD_MESSAGE
                                               : DYTI_WORLD_AUTO,
                        .side = seed % 7 == 0 ? DYTI_SIDE_PUSH : DYTI_SIDE_PULL,
                        .message_bytes = seed % 2 == 0 ? 4096 : 0,
                        .staging_bytes = seed % 3 == 0 ? 16384 : 0}};

        (void)play(seed % 5 == 3 ? DYT_RANKS_PROCESSES : DYT_RANKS_THREADS,
                   (enum dyti_switch_mode)(seed / 4 % DYTI_MODE_COUNT), &trip);
    }
}

/* ---- a chain of hosts ------------------------------------------------------
 */

static void one_way(struct sw_rank *rank, const struct trip *trip)
{
    struct dyt_rank *me = rank->me;
    struct dyti_switch_report report;

    for (uint64_t n = 1; n <= ROUND_TRIPS; n++) {
        struct dyti_switch_order order = sw_order(n, n, DYTI_VERIFY_FULL);

        sw_update(rank, DYTI_ARENA_TRAIN, n);
        rank_ok(me, sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT,
                              &trip->options, &order, &report));
        rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, n));
    }
}

static uint64_t busiest(void)
{
    uint64_t most = 0;

    for (uint32_t r = 0; r < SW_RANKS_MAX; r++) {
        most = atomic_load(&sent[r]) > most ? atomic_load(&sent[r]) : most;
    }
    return most;
}

/* Replicas of the rollout on three hosts, one of the trainer. */
static bool has_few_sources(struct trip *trip)
{
    struct sw_case c;
    const struct dyti_layout_desc *from, *to;
    bool has;

    draw_hosts(trip);
    assert_ok(sw_case_init(&c, trip->seed, trip->world_size));
    from = &c.layout[DYTI_ARENA_TRAIN]->desc;
    to = &c.layout[DYTI_ARENA_ROLLOUT]->desc;
    has = from->dp == 1 && to->dp > 2 &&
          (sw_host == hosts_of_three[0] || sw_host == hosts_of_three[1]);
    sw_case_fini(&c);
    return has;
}

/* What several hosts need of one rank leaves it once: they pass it on.  The
 * other strategies send it to each. */
static void a_broadcast_between_hosts_leaves_its_source_once(void **state)
{
    static const uint64_t staging[] = {512 + 64, 3 * (512 + 64), 0};
    uint32_t chained = 0, worlds = 0;

    (void)state;
    for (uint64_t seed = 501; worlds < worlds_to_try(16, 160); seed++) {
        struct trip trip = {.seed = seed,
                            .body = one_way,
                            .options = {.message_bytes = 512,
                                        .staging_bytes = staging[seed % 3],
                                        .strategy = &dyti_strategy_xor}};
        enum dyti_switch_mode mode = (enum dyti_switch_mode)(seed % 3);
        uint64_t all, most;

        if (!has_few_sources(&trip)) {
            continue;
        }
        (void)play(DYT_RANKS_THREADS, mode, &trip);
        all = atomic_load(&crossed);
        most = busiest();
        trip.options.strategy = &dyti_strategy_optimal;
        (void)play(DYT_RANKS_THREADS, mode, &trip);
        assert_int_equal(all, atomic_load(&crossed));
        assert_true(busiest() <= most);
        chained += busiest() < most;
        worlds++;
    }
    print_message("%u of %u worlds have chains\n", chained, worlds);
    assert_in_range(chained, 4, worlds);
}

/* ---- between the waves ------------------------------------------------------
 */

enum wrong { DIES, FLIPS, FAILS };

static enum wrong wrong;
static _Thread_local bool fails_next; /* post of this rank's direct mover */

struct spoiler {
    struct sw_rank *rank;
    uint32_t victim;
    enum dyti_switch_mode mode;
};

static enum dyt_status failing_post(void *self, const struct dyti_move *move,
                                    dyti_ticket *out_ticket)
{
    if (fails_next) {
        fails_next = false;
        return DYTI_FAIL(DYT_ERR_DEVICE, "a copy from a sibling");
    }
    return dyti_mover_direct.post(self, move, out_ticket);
}

static void spoil(void *arg, enum dyti_switch_point point)
{
    const struct spoiler *s = arg;
    struct dyt_rank *me = s->rank->me;
    uint32_t set = s->mode == DYTI_MODE_TRANSACTIONAL ? 0 : 1;
    unsigned char *param;

    if (point == DYTI_AT_TRANSFERRED) {
        fails_next = false; /* it took nothing from a sibling */
    }
    if (point != DYTI_AT_WAVE || me->rank != s->victim) {
        return;
    }
    switch (wrong) {
    case DIES:
        me->expect_death = true;
        (void)raise(SIGKILL);
        break;
    case FLIPS:
        param = dyti_world_region_in(s->rank->world, me->rank,
                                     DYTI_ARENA_ROLLOUT, DYTI_PARAM, set);
        if (param != NULL) {
            param[0] ^= 0x40u;
        }
        break;
    case FAILS:
        fails_next = true;
        break;
    default:
        break;
    }
}

static void spoiled(struct sw_rank *rank, const struct trip *trip)
{
    struct dyt_rank *me = rank->me;
    struct dyti_switch_report report;
    struct spoiler spoiler = {.rank = rank,
                              .victim = trip->victim,
                              .mode = trip->memory->options.mode};
    struct dyti_switch_order order = sw_order(1, 1, DYTI_VERIFY_FULL);
    bool apart = spoiler.mode != DYTI_MODE_TRANSACTIONAL;
    uint64_t live;
    enum dyt_status st;

    if (apart) { /* something that goes on serving, in set 0 */
        sw_write(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 1);
    }
    sw_update(rank, DYTI_ARENA_TRAIN, 2);
    order.at = spoil;
    order.at_arg = &spoiler;
    st = sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, &trip->options,
                   &order, &report);
    rank_true(me, (st == DYT_OK) == (report.decision == DYTI_DECISION_COMMIT));
    live = st == DYT_OK ? 2 : 1;
    if (st != DYT_OK) {
        atomic_fetch_add(trip->aborted, 1);
        rank_true(me, report.decision == DYTI_DECISION_ABORT);
        rank_true(me, dyti_error_text()[0] != '\0');
    }
    rank_true(me, sw_check(rank, DYTI_ARENA_TRAIN, DYTI_MASTER, 2));
    rank_true(me, (live == 1 && !apart) ||
                      sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, live));
    if (st != DYT_OK && wrong == DIES) {
        rank_status(me, DYT_ERR_PEER, st);
        return; /* the world is without a rank */
    }
    order.epoch = 2; /* as if nothing had been */
    order.version = 2;
    order.at = NULL;
    rank_ok(me, sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT,
                          &trip->options, &order, &report));
    rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 2));
}

static void on_death(uint32_t rank, void *arg)
{
    const struct trip *trip = arg;

    dyti_control_abort(trip->memory->control_mem.base, &dyti_wait_futex, rank,
                       DYT_ERR_PEER);
}

/* Each rank in turn, of a few worlds; out: how many aborted of how many.  All
 * ranks that live must have seen the same. */
static uint32_t spoil_all(enum wrong how, enum dyt_ranks_kind kind,
                          uint32_t *out_runs)
{
    static struct dyti_mover_ops failing;
    _Atomic uint32_t *aborted = dyt_ranks_shared(4096);
    uint32_t aborts = 0, worlds = 0, runs = 0;

    failing = dyti_mover_direct;
    failing.post = failing_post;
    wrong = how;
    for (uint64_t seed = 301; worlds < worlds_to_try(6, 60); seed++) {
        struct trip trip = {.seed = seed, .body = spoiled, .aborted = aborted};

        if (!has_siblings(&trip)) {
            continue;
        }
        for (uint32_t victim = 0; victim < trip.world_size; victim++, runs++) {
            uint32_t seen;

            atomic_store(aborted, 0);
            trip.victim = victim;
            copier = how == FAILS ? &failing : NULL;
            dyt_ranks_on_death = on_death;
            (void)play(kind, (enum dyti_switch_mode)(worlds % 3), &trip);
            dyt_ranks_on_death = NULL;
            copier = NULL;
            seen = atomic_load(aborted);
            assert_true(seen == 0 ||
                        seen == trip.world_size - (how == DIES ? 1 : 0));
            aborts += seen > 0;
        }
        worlds++;
    }
    munmap(aborted, 4096);
    print_message("%u of %u gave up\n", aborts, runs);
    *out_runs = runs;
    return aborts;
}

static void a_death_between_the_waves_leaves_the_old(void **state)
{
    uint32_t runs, aborts;

    (void)state;
    aborts = spoil_all(DIES, DYT_RANKS_PROCESSES, &runs);
    assert_int_equal(runs, aborts);
}

static void a_failed_copy_from_a_sibling_leaves_the_old(void **state)
{
    uint32_t runs, aborts;

    (void)state;
    aborts = spoil_all(FAILS, DYT_RANKS_THREADS, &runs);
    assert_in_range(aborts, 6, runs); /* not all ranks read from a sibling */
}

static void a_bit_that_siblings_pass_on_is_found(void **state)
{
    uint32_t runs, aborts;

    (void)state;
    aborts = spoil_all(FLIPS, DYT_RANKS_THREADS, &runs);
    assert_in_range(aborts, 6, runs); /* or it was written over */
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_copy_enters_a_host),
    cmocka_unit_test(every_mode_and_strategy_comes_back_bit_equal),
    cmocka_unit_test(a_broadcast_between_hosts_leaves_its_source_once),
    cmocka_unit_test(a_death_between_the_waves_leaves_the_old),
    cmocka_unit_test(a_failed_copy_from_a_sibling_leaves_the_old),
    cmocka_unit_test(a_bit_that_siblings_pass_on_is_found),
};
DYT_TEST_MAIN(tests)
