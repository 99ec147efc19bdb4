/* Memory of devices in switches: what is given back, what sleeps and wakes, and
 * devices that are full or break. */
#include "switch_device_scene.h"

#include "edm/residency.h"
#include "mover/message/message.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#define BROKEN   1u /* the rank whose device breaks, or is full */
#define KV_BYTES (3u << 20)

/* Goes on, to where the others are. */
static void rank_none(struct dyt_rank *me, enum dyt_status st)
{
    if (st != DYT_OK) {
        rank_wrong(me, "%s", dyti_error_text());
    }
}

/* ---- memory that sleeps -------------------------------------------------- */

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
    struct dyti_switch_order order =
        sw_order(2 * n + (out ? 1 : 2), n + 1, DYTI_VERIFY_SAMPLE);
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

/* ---- devices that are full, or break ------------------------------------- */

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
    struct dyti_switch_order order = sw_order(1, 1, DYTI_VERIFY_FULL);
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
    cmocka_unit_test(what_a_switch_gives_back_is_nobodys),
    cmocka_unit_test(what_sleeps_is_the_devices_again),
    cmocka_unit_test(a_full_device_refuses_for_all),
    cmocka_unit_test(a_device_that_breaks_leaves_the_old),
};
DYT_TEST_MAIN(tests)
