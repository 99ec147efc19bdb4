/* Switches of ranks with memory of devices, as no rank of a host has them: host
 * ranks among them, what a later switch sends to its device (nothing), and what
 * a tool sees.  Memory that sleeps, is full or breaks:
 * test_switch_device_memory.c. */
#include "switch_device_scene.h"

#include "mover/message/message.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#define TRIPS 2u

/* ---- hosts and devices in one world -------------------------------------- */

static void mixed(struct sw_rank *rank, const struct scene *scene)
{
    struct dyt_rank *me = rank->me;

    for (uint32_t r = 0; r < scene->world_size; r++) {
        bool seen = dyti_world_region(rank->world, r, DYTI_ARENA_TRAIN,
                                      DYTI_MASTER) != NULL;

        rank_true(me, !seen || sw_is_device(r) == sw_is_device(me->rank));
    }
    for (uint64_t n = 0; n < TRIPS && me->wrong[0] == '\0'; n++) {
        sw_there_and_back(rank, n, &scene->options, sw_verify(n));
    }
}

/* Modes, sides, strategies and which rank is what are drawn. */
static void play_mixed(enum dyt_ranks_kind kind, uint64_t seed)
{
    uint32_t size = 2 + sw_draw(seed, 61, 3);
    struct sw_device device = cuda_world;
    struct dyti_arena_options options = {
        .mode = (enum dyti_switch_mode)(seed % DYTI_MODE_COUNT),
        .work_bytes = SW_WORK_BYTES,
        .staging_bytes = 1u << 16};
    struct scene scene = {
        .seed = seed,
        .world_size = size,
        .body = mixed,
        .options = {.side =
                        sw_draw(seed, 62, 2) ? DYTI_SIDE_PUSH : DYTI_SIDE_PULL,
                    .strategy = dyti_strategy_at(sw_draw(seed, 63, 4))}};

    device.ranks = 1 + sw_draw(seed, 64, (1u << size) - 2); /* not all, some */
    print_message("seed %" PRIu64 ": %u ranks, devices %x, %s\n", seed, size,
                  device.ranks, dyti_switch_mode_name(options.mode));
    sw_message = &dyti_mover_message;
    sw_device = &device;
    play(kind, &options, &scene);
    sw_device = &cuda_world;
    sw_message = NULL;
}

static void hosts_and_devices_share_a_world(void **state)
{
    uint64_t rounds = dyt_test_rounds(4, 80);

    (void)state;
    for (uint64_t seed = 1; seed <= rounds; seed++) {
        play_mixed(seed % 2 == 0 ? DYT_RANKS_PROCESSES : DYT_RANKS_THREADS,
                   seed);
    }
}

static void direct(struct sw_rank *rank, const struct scene *scene)
{
    struct dyti_switch *self = NULL;

    rank_status(rank->me, DYT_ERR_UNSUPPORTED,
                dyti_world_prepare(rank->world, DYTI_ARENA_TRAIN,
                                   DYTI_ARENA_ROLLOUT, &scene->options, &self,
                                   NULL));
    rank_true(rank->me, strstr(dyti_error_text(), "mover direct") != NULL);
}

static void what_is_not_mapped_is_not_direct(void **state)
{
    struct dyti_arena_options options = {.work_bytes = SW_WORK_BYTES};
    struct scene scene = {.seed = 3,
                          .world_size = 2,
                          .body = direct,
                          .options = {.mover = DYTI_WORLD_DIRECT}};
    struct sw_device device = cuda_world;

    (void)state;
    device.ranks = 1;
    sw_device = &device;
    play(DYT_RANKS_THREADS, &options, &scene);
    sw_device = &cuda_world;
}

/* ---- what goes to the device, once --------------------------------------- */

/* Off, sampled and full, there and back, each with both address sets of a rank
 * that has two; then all of it again. */
static void cached(struct sw_rank *rank, const struct scene *scene)
{
    struct dyt_rank *me = rank->me;
    uint64_t sent = 0, memory = 0;
    size_t free_bytes[2] = {0}, total;

    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    for (uint64_t n = 0; n < 24 && me->wrong[0] == '\0'; n++) {
        struct dyti_switch_report report;
        struct dyti_switch_order order =
            sw_order(n + 1, n + 1, sw_verify(n / 4));

        sw_meet(rank);
        if (n == 12) {
            sent = gpusim_uploads();
            rank_true(me, cudaMemGetInfo(&free_bytes[0], &total) == 0);
            sw_meet(rank);
        }
        rank_ok(me,
                sw_switch(rank,
                          n % 2 == 0 ? DYTI_ARENA_TRAIN : DYTI_ARENA_ROLLOUT,
                          n % 2 == 0 ? DYTI_ARENA_ROLLOUT : DYTI_ARENA_TRAIN,
                          &scene->options, &order, &report));
    }
    sw_meet(rank);
    memory = gpusim_uploads();
    rank_true(me, cudaMemGetInfo(&free_bytes[1], &total) == 0);
    sw_meet(rank);
    rank_true(me, sent > 0 && memory == sent);
    rank_true(me, free_bytes[0] == free_bytes[1]);
    rank_true(me, sw_check_all(rank, DYTI_ARENA_TRAIN, 1));
}

static void later_switches_send_and_take_nothing(void **state)
{
    struct dyti_arena_options options = {.work_bytes = SW_WORK_BYTES};

    (void)state;
    for (int mode = 0; mode < DYTI_MODE_COUNT; mode++) {
        uint64_t rounds = dyt_test_rounds(1, 2);

        for (uint64_t i = 0; i < rounds; i++) {
            struct scene scene = {
                .seed = sw_good_seed(40 + (uint64_t)mode, 3),
                .world_size = 3,
                .body = cached,
                .options = {.mover = ((uint64_t)mode + i) % 2 == 0
                                         ? DYTI_WORLD_AUTO
                                         : DYTI_WORLD_MESSAGE}};

            options.mode = (enum dyti_switch_mode)mode;
            options.staging_bytes = 1u << 16;
            sw_message = &dyti_mover_message;
            play(DYT_RANKS_THREADS, &options, &scene);
            sw_message = NULL;
        }
    }
}

/* ---- what a tool sees ---------------------------------------------------- */

static void shown(struct sw_rank *rank, const struct scene *scene)
{
    struct dyt_rank *me = rank->me;
    const char *exec = "exec: prepare()exec: transfer()exec: verify()"
                       "exec: vote()";
    struct dyti_switch_report report;
    struct dyti_switch_order order = {
        .epoch = 1, .version = 1, .unmanaged = true};

    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    for (uint64_t n = 0; n < 2; n++) { /* planned, and found */
        char want[160];

        snprintf(want, sizeof(want), "%s%s", n == 0 ? "plan()sched()" : "",
                 exec);
        gpusim_ranges_clear();
        rank_ok(me, sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT,
                              &scene->options, &order, &report));
        if (strcmp(want, gpusim_ranges()) != 0) {
            rank_wrong(me, "switch %" PRIu64 ": %s, want %s", n,
                       gpusim_ranges(), want);
        }
        order.epoch++;
        rank_ok(me, sw_switch(rank, DYTI_ARENA_ROLLOUT, DYTI_ARENA_TRAIN,
                              &scene->options, &order, &report));
        order.epoch++;
    }
}

static void stages_are_ranges_of_a_switch(void **state)
{
    struct dyti_arena_options options = {.work_bytes = SW_WORK_BYTES};
    struct scene scene = {
        .seed = sw_good_seed(80, 2), .world_size = 2, .body = shown};

    (void)state;
    play(DYT_RANKS_PROCESSES, &options, &scene);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(hosts_and_devices_share_a_world),
    cmocka_unit_test(what_is_not_mapped_is_not_direct),
    cmocka_unit_test(later_switches_send_and_take_nothing),
    cmocka_unit_test(stages_are_ranges_of_a_switch),
};
DYT_TEST_MAIN(tests)
