/* Switches of ranks with memory of devices, as no rank of a host has them: host
 * ranks among them, memory that sleeps and wakes, devices that are full or
 * break, and what a later switch sends to its device: nothing. */
#include "switch_scene.h"

#include "edm/residency.h"
#include "mover/message/message.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#define TRIPS    2u
#define BROKEN   1u /* the rank whose device breaks, or is full */
#define KV_BYTES (3u << 20)

struct scene {
    uint64_t seed;
    uint32_t world_size;
    const struct sw_memory *memory;
    struct dyti_world_switch_options options;
    void (*body)(struct sw_rank *rank, const struct scene *scene);
    _Atomic uint64_t *shared; /* [2] of all ranks */
};

static void scene_rank(struct dyt_rank *me)
{
    const struct scene *scene = me->arg;
    struct sw_rank rank;

    if (sw_enter(&rank, me, scene->seed, scene->world_size, scene->memory)) {
        scene->body(&rank, scene);
    }
    sw_rank_close(&rank);
}

static void play(enum dyt_ranks_kind kind,
                 const struct dyti_arena_options *options, struct scene *scene)
{
    struct sw_stage stage = {.kind = kind,
                             .seed = scene->seed,
                             .world_size = scene->world_size,
                             .options = options};

    scene->shared = dyt_ranks_shared(2 * sizeof(*scene->shared));
    sw_play(&stage, scene_rank, scene, &scene->memory);
    munmap((void *)scene->shared, 2 * sizeof(*scene->shared));
}

/* Goes on, to where the others are. */
static void rank_none(struct dyt_rank *me, enum dyt_status st)
{
    if (st != DYT_OK) {
        rank_wrong(me, "%s", dyti_error_text());
    }
}

/* ---- hosts and devices in one world -----------------------------------------
 */

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

/* ---- what goes to the device, once ------------------------------------------
 */

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
        struct dyti_switch_order order = {.epoch = n + 1,
                                          .version = n + 1,
                                          .unmanaged = true,
                                          .keep_abandoned = true,
                                          .verify = sw_verify(n / 4)};

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

/* ---- what a tool sees -------------------------------------------------------
 */

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

/* ---- memory that sleeps
 * -------------------------------------------------------
 */

/* Bytes of the rank's segment that have memory behind them: whole parts, as a
 * peer would map them. */
static uint64_t touched(const struct sw_rank *rank, const struct scene *scene)
{
    uint32_t r = rank->me->rank;
    uint64_t total = rank->c.map[r].total_bytes, bytes = 0;
    struct dyti_segment_mem mem = {0};

    rank_none(rank->me,
              sw_memory_of(r)->map(scene->memory->segment[r],
                                   scene->memory->pages[r], total, &mem));
    rank_none(rank->me, sw_memory_of(r)->touched(&mem, 0, mem.bytes, &bytes));
    sw_memory_of(r)->unmap(&mem);
    return bytes;
}

static enum dyt_status managed(struct sw_rank *rank, uint64_t n, bool out,
                               struct dyti_world_switch_memory *memory)
{
    enum dyti_arena_slot from = out ? DYTI_ARENA_TRAIN : DYTI_ARENA_ROLLOUT;
    enum dyti_arena_slot to = out ? DYTI_ARENA_ROLLOUT : DYTI_ARENA_TRAIN;
    struct dyti_switch_order order = {.epoch = 2 * n + (out ? 1 : 2),
                                      .version = n + 1,
                                      .unmanaged = true,
                                      .keep_abandoned = true,
                                      .verify = DYTI_VERIFY_SAMPLE};
    struct dyti_switch_report report;
    struct dyti_switch *self = NULL;
    enum dyt_status st =
        dyti_world_prepare(rank->world, from, to, NULL, &self, NULL);

    return st != DYT_OK ? st
                        : dyti_world_switch(rank->world, from, to, self, &order,
                                            &report, memory);
}

/* The phase can use its work memory. */
static enum dyt_status use_work(const struct sw_rank *rank)
{
    uint64_t bytes = 0;
    void *work = dyti_world_work(rank->world, &bytes);
    enum dyt_status st = dyti_kernels_fill(&rank->kernels, work, bytes, 1);

    return st == DYT_OK ? dyti_kernels_wait(&rank->kernels) : st;
}

/* What the device holds of this rank's, apart from the segment: lists, rings.
 * Peers hold nothing of it either. */
static uint64_t besides(const struct sw_rank *rank, const struct scene *scene)
{
    sw_meet(rank);
    return gpusim_held_bytes() - touched(rank, scene);
}

static void cycles(struct sw_rank *rank, const struct scene *scene)
{
    struct dyt_rank *me = rank->me;
    uint64_t base = 0;

    for (uint64_t n = 0; n < 3 && me->wrong[0] == '\0'; n++) {
        for (int way = 0; way < 2 && me->wrong[0] == '\0'; way++) {
            struct dyti_world_switch_memory memory = {0};

            if (way == 0) {
                sw_update(rank, DYTI_ARENA_TRAIN, n + 1);
            }
            rank_ok(me, use_work(rank));
            rank_ok(me, managed(rank, n, way == 0, &memory));
            rank_true(me, memory.before.bytes >= KV_BYTES);
            rank_true(me,
                      n == 0 || memory.after.bytes > 0 ||
                          scene->memory->options.mode == DYTI_MODE_IN_PLACE);
            rank_true(
                me, way == 0
                        ? sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, n + 1)
                        : sw_check_all(rank, DYTI_ARENA_TRAIN, n + 1));
            if (n < 2) { /* both address sets have their lists then */
                base = besides(rank, scene);
            } else if (besides(rank, scene) != base) {
                rank_wrong(me, "%" PRIu64 " bytes held besides, %" PRIu64,
                           besides(rank, scene), base);
            }
        }
    }
    rank_ok(me, use_work(rank));
}

static void what_a_switch_gives_back_is_nobodys(void **state)
{
    (void)state;
    for (int mode = 0; mode < DYTI_MODE_COUNT; mode++) {
        struct dyti_arena_options options = {.mode =
                                                 (enum dyti_switch_mode)mode,
                                             .work_bytes = KV_BYTES,
                                             .staging_bytes = 1u << 16};
        struct scene scene = {.seed = sw_good_seed(60 + (uint64_t)mode, 3),
                              .world_size = 3,
                              .body = cycles};

        play(DYT_RANKS_PROCESSES, &options, &scene);
    }
}

static void sleeper(struct sw_rank *rank, const struct scene *scene)
{
    const uint32_t tags =
        DYTI_TAG_BIT(DYTI_TAG_WEIGHTS) | DYTI_TAG_BIT(DYTI_TAG_KV_CACHE);
    struct dyt_rank *me = rank->me;
    struct dyti_world_switch_memory memory = {0};
    struct dyti_residency_report report;
    uint64_t before, base;
    void *was = dyti_world_region(rank->world, me->rank, DYTI_ARENA_ROLLOUT,
                                  DYTI_PARAM);

    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    rank_ok(me, managed(rank, 0, true, &memory));
    base = besides(rank, scene);
    before = touched(rank, scene);
    sw_meet(rank);
    rank_ok(me, dyti_world_release(rank->world, tags, 0, &report));
    rank_true(me, report.bytes >= KV_BYTES);
    rank_true(me, touched(rank, scene) + report.bytes == before);
    sw_meet(rank);
    rank_ok(me, dyti_world_refresh(rank->world));
    rank_true(me, besides(rank, scene) == base); /* peers have let go, too */
    sw_meet(rank);
    rank_ok(me, dyti_world_restore(rank->world, tags, &report));
    rank_true(me, touched(rank, scene) == before);
    sw_meet(rank);
    rank_ok(me, dyti_world_refresh(rank->world));
    rank_true(me, besides(rank, scene) == base);
    rank_status(me, DYT_ERR_STATE,
                dyti_control_check_rank(
                    dyti_world_control(rank->world), me->rank,
                    dyti_region_bit(DYTI_ARENA_ROLLOUT, DYTI_PARAM)));
    sw_meet(rank);
    sw_update(rank, DYTI_ARENA_TRAIN, 2);
    rank_ok(me, managed(rank, 1, true, &memory));
    rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 2));
    rank_true(me, was == dyti_world_region(rank->world, me->rank,
                                           DYTI_ARENA_ROLLOUT, DYTI_PARAM));
    rank_ok(me, use_work(rank));
}

static void what_sleeps_is_the_devices_again(void **state)
{
    struct dyti_arena_options options = {.work_bytes = KV_BYTES};
    struct scene scene = {
        .seed = sw_good_seed(70, 3), .world_size = 3, .body = sleeper};

    (void)state;
    play(DYT_RANKS_PROCESSES, &options, &scene);
}

/* ---- devices that are full, or break
 * ------------------------------------------
 */

static void full(struct sw_rank *rank, const struct scene *scene)
{
    struct dyt_rank *me = rank->me;
    struct dyti_world_switch_memory memory;

    (void)scene;
    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    rank_ok(me, managed(rank, 0, true, &memory));
    rank_ok(me, managed(rank, 0, false, &memory));
    sw_update(rank, DYTI_ARENA_TRAIN, 2);
    if (me->rank == BROKEN) {
        gpusim_fail_call("cuMemCreate", 1, (int)CUDA_ERROR_OUT_OF_MEMORY);
    }
    rank_status(me, DYT_ERR_NOMEM, managed(rank, 1, true, &memory));
    rank_true(me,
              strstr(dyti_error_text(),
                     me->rank == BROKEN ? "MiB" : "rank 1 refuses") != NULL);
    rank_true(me, sw_check(rank, DYTI_ARENA_TRAIN, DYTI_MASTER, 2));
    rank_ok(me, use_work(rank)); /* the old phase goes on */
    rank_ok(me, managed(rank, 2, true, &memory));
    rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 2));
}

static void a_full_device_refuses_for_all(void **state)
{
    struct dyti_arena_options options = {.work_bytes = KV_BYTES};
    struct scene scene = {
        .seed = sw_good_seed(80, 3), .world_size = 3, .body = full};

    (void)state;
    play(DYT_RANKS_PROCESSES, &options, &scene);
}

/* One piece of work ends with an error: a copy, or a hash, as drawn. */
static void broken(struct sw_rank *rank, const struct scene *scene)
{
    struct dyt_rank *me = rank->me;
    struct dyti_switch_report report;
    struct dyti_switch_order order = {.epoch = 1,
                                      .version = 1,
                                      .unmanaged = true,
                                      .keep_abandoned = true,
                                      .verify = DYTI_VERIFY_FULL};
    enum dyt_status st;

    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    rank_ok(me, sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT,
                          &scene->options, &order, &report));
    order.epoch = order.version = 2;
    sw_update(rank, DYTI_ARENA_TRAIN, 2);
    sw_meet(rank);
    if (me->rank == BROKEN) {
        gpusim_fail_work(1 + scene->seed % 2, (int)cudaErrorLaunchFailure);
    }
    st = sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, &scene->options,
                   &order, &report);
    rank_true(me, report.decision == DYTI_DECISION_ABORT);
    rank_true(me, report.version == 1);
    if (me->rank == BROKEN) {
        rank_true(me, st == DYT_ERR_DEVICE && gpusim_has_failed());
        sw_meet(rank);
        _exit(0); /* its device is of no use to it any more */
    }
    sw_meet(rank);
    rank_true(me, st == DYT_ERR_PEER); /* of who was first to hear of it */
    rank_true(me, sw_check(rank, DYTI_ARENA_TRAIN, DYTI_MASTER, 2));
}

static void a_device_that_breaks_leaves_the_old(void **state)
{
    (void)state;
    for (uint64_t seed = 90; seed < 90 + dyt_test_rounds(2, 40); seed++) {
        struct dyti_arena_options options = {
            .mode = seed % 4 == 3 ? DYTI_MODE_DOUBLE : DYTI_MODE_TRANSACTIONAL,
            .work_bytes = SW_WORK_BYTES};
        struct scene scene = {.seed = sw_good_seed(10 * seed, 3),
                              .world_size = 3,
                              .body = broken,
                              .options = {.mover = seed % 2 == 0
                                                       ? DYTI_WORLD_AUTO
                                                       : DYTI_WORLD_MESSAGE}};

        sw_message = &dyti_mover_message;
        play(DYT_RANKS_PROCESSES, &options, &scene);
        sw_message = NULL;
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(hosts_and_devices_share_a_world),
    cmocka_unit_test(what_is_not_mapped_is_not_direct),
    cmocka_unit_test(later_switches_send_and_take_nothing),
    cmocka_unit_test(stages_are_ranges_of_a_switch),
    cmocka_unit_test(what_a_switch_gives_back_is_nobodys),
    cmocka_unit_test(what_sleeps_is_the_devices_again),
    cmocka_unit_test(a_full_device_refuses_for_all),
    cmocka_unit_test(a_device_that_breaks_leaves_the_old),
};
DYT_TEST_MAIN(tests)
