/* Switches whose links go by messages, all of them or those between hosts:
 * every byte arrives whatever the strategy, the staging and the dtypes, as over
 * mapped memory.  Ranks as threads and as processes. */
#include "switch_scene.h"

#include "mover/message/message.h"
#ifdef DYT_TEST_GLOO
#include "comm/gloo/gloo.h"
#endif
#ifdef DYT_TEST_NCCL
#include "comm/nccl/nccl.h"
#include "gpusim/gpusim_nccl.h"
#endif

#define ROUND_TRIPS sw_rounds(3u, 2u)

static const uint32_t two_hosts[SW_RANKS_MAX] = {0, 1, 0, 1};
static const uint32_t odd_hosts[SW_RANKS_MAX] = {0, 0, 0, 1};

struct trip {
    uint64_t seed;
    uint32_t world_size;
    const struct sw_memory *memory;
    struct dyti_world_switch_options options;
};

static void trip_rank(struct dyt_rank *me)
{
    const struct trip *trip = me->arg;
    struct sw_rank rank;

    if (sw_enter(&rank, me, trip->seed, trip->world_size, trip->memory)) {
        for (uint64_t n = 0; n < ROUND_TRIPS && me->wrong[0] == '\0'; n++) {
            sw_there_and_back(&rank, n, &trip->options, sw_verify(n));
        }
    }
    sw_rank_close(&rank);
}

/* Strategy, staging and links are drawn too. */
static void run_trip(enum dyt_ranks_kind kind, uint64_t seed)
{
    static const uint64_t staging[] = {4096 + 64, 16384, 0};
    const struct dyti_strategy_ops *strategy =
        dyti_strategy_at(sw_draw(seed, 70, 4));
    struct trip trip = {
        .seed = seed,
        .world_size = 2 + sw_draw(seed, 71, 3),
        .options = {.mover = DYTI_WORLD_MESSAGE,
                    .strategy = strategy,
                    .message_bytes = sw_draw(seed, 72, 2) == 0 ? 4096 : 0,
                    .staging_bytes = staging[sw_draw(seed, 73, 3)]}};
    struct sw_stage stage = {
        .kind = kind, .seed = seed, .world_size = trip.world_size};

    sw_message = &dyti_mover_message;
    sw_host = NULL;
    if (sw_draw(seed, 74, 2) == 0) {
        sw_host = sw_draw(seed, 75, 2) == 0 ? two_hosts : odd_hosts;
        trip.options.mover = DYTI_WORLD_AUTO;
    }
    print_message("seed %" PRIu64 ": %u ranks, %s, staging %" PRIu64 "%s\n",
                  seed, trip.world_size, strategy->name,
                  trip.options.staging_bytes, sw_host == NULL ? "" : ", hosts");
    sw_play(&stage, trip_rank, &trip, &trip.memory);
    sw_host = NULL;
}

static void processes_come_back_bit_equal(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= sw_rounds(24, 4); seed++) {
        run_trip(DYT_RANKS_PROCESSES, seed);
    }
}

static void threads_come_back_bit_equal(void **state)
{
    (void)state;
    for (uint64_t seed = 101; seed <= 100 + sw_rounds(40, 6); seed++) {
        run_trip(DYT_RANKS_THREADS, seed);
    }
}

#ifdef DYT_TEST_GLOO
static void over_tcp_they_come_back_bit_equal(void **state)
{
    (void)state;
    sw_group = &dyti_group_gloo;
    for (uint64_t seed = 201; seed <= 206; seed++) {
        run_trip(seed % 2 == 0 ? DYT_RANKS_PROCESSES : DYT_RANKS_THREADS, seed);
    }
    sw_group = &dyti_group_shm;
}
#endif

#ifdef DYT_TEST_NCCL
/* Between devices, by a group of devices. */
static void over_nccl_they_come_back_bit_equal(void **state)
{
    (void)state;
    sw_message_group = &dyti_group_nccl;
    for (uint64_t seed = 301; seed <= 300 + sw_rounds(30, 4); seed++) {
        run_trip(seed % 2 == 0 ? DYT_RANKS_PROCESSES : DYT_RANKS_THREADS, seed);
        assert_string_equal("", sw_device_ended());
    }
    sw_message_group = NULL;
}
#endif

static const struct CMUnitTest tests[] = {
#ifdef DYT_TEST_NCCL
    cmocka_unit_test(over_nccl_they_come_back_bit_equal),
#endif
    cmocka_unit_test(threads_come_back_bit_equal),
    cmocka_unit_test(processes_come_back_bit_equal),
#ifdef DYT_TEST_GLOO
    cmocka_unit_test(over_tcp_they_come_back_bit_equal),
#endif
};
DYT_TEST_MAIN(tests)
