/* Sleep and wake: memory that is released goes back to the system, addresses
 * stay, and nobody reads what a sleeper holds. */
#include "switch_scene.h"

#include "edm/residency.h"

#include <sys/stat.h>

#define RANKS 3u

#define WEIGHTS   DYTI_TAG_BIT(DYTI_TAG_WEIGHTS)
#define KV_CACHE  DYTI_TAG_BIT(DYTI_TAG_KV_CACHE)
#define OPTIMIZER DYTI_TAG_BIT(DYTI_TAG_OPTIMIZER)
#define GRAD      DYTI_TAG_BIT(DYTI_TAG_GRAD)

#define ROLLOUT_PARAM dyti_region_bit(DYTI_ARENA_ROLLOUT, DYTI_PARAM)

struct scene {
    uint64_t seed;
    const struct sw_memory *memory;
    void (*body)(struct sw_rank *rank, const struct scene *scene);
};

static void scene_rank(struct dyt_rank *me)
{
    const struct scene *scene = me->arg;
    struct sw_rank rank;

    if (sw_enter(&rank, me, scene->seed, RANKS, scene->memory)) {
        scene->body(&rank, scene);
    }
    sw_rank_close(&rank);
}

static void play(enum dyti_switch_mode mode, uint64_t seed,
                 void (*body)(struct sw_rank *, const struct scene *))
{
    struct dyti_arena_options options = {
        .mode = mode, .work_bytes = 1u << 20, .staging_bytes = 1u << 16};
    struct scene scene = {.seed = sw_good_seed(seed, RANKS), .body = body};
    struct sw_stage stage = {.kind = DYT_RANKS_THREADS,
                             .seed = scene.seed,
                             .world_size = RANKS,
                             .options = &options};

    sw_play(&stage, scene_rank, &scene, &scene.memory);
}

/* Physical bytes of the rank's segment. */
static uint64_t physical(const struct sw_rank *rank, const struct scene *scene)
{
    struct stat info;

    return fstat(scene->memory->segment[rank->me->rank], &info) == 0
               ? (uint64_t)info.st_blocks * 512u
               : 0;
}

static void use_work(const struct sw_rank *rank)
{
    uint64_t bytes = 0;
    void *work = dyti_world_work(rank->world, &bytes);

    memset(work, 1, bytes);
}

static enum dyt_status to_rollout(struct sw_rank *rank, uint64_t epoch,
                                  struct dyti_switch_report *report)
{
    struct dyti_switch_order order = {.epoch = epoch,
                                      .version = epoch,
                                      .unmanaged = true,
                                      .verify = DYTI_VERIFY_FULL};

    sw_update(rank, DYTI_ARENA_TRAIN, epoch);
    return sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, NULL, &order,
                     report);
}

/* ---- sleep, wake --------------------------------------------------------- */

static void sleeper(struct sw_rank *rank, const struct scene *scene)
{
    struct dyt_rank *me = rank->me;
    struct dyti_control_page *page = dyti_world_control(rank->world);
    struct dyti_residency_report report;
    struct dyti_switch_report done;
    void *was = dyti_world_region(rank->world, me->rank, DYTI_ARENA_ROLLOUT,
                                  DYTI_PARAM);
    uint64_t before, asleep;

    rank_ok(me, to_rollout(rank, 1, &done));
    use_work(rank);
    sw_meet(rank);
    before = physical(rank, scene);
    rank_ok(me,
            dyti_world_release(rank->world, WEIGHTS | KV_CACHE, 0, &report));
    asleep = physical(rank, scene);
    rank_true(me, report.bytes >= (1u << 20));
    rank_true(me, asleep + report.bytes == before);
    rank_true(me, dyti_world_asleep(rank->world) == (WEIGHTS | KV_CACHE));
    sw_meet(rank);
    /* A switch into a sleeper touches nothing. */
    rank_status(me, DYT_ERR_STATE, to_rollout(rank, 2, &done));
    rank_true(me, done.decision == DYTI_DECISION_NONE && done.version == 1);
    rank_true(me, strstr(dyti_error_text(), "wrong phase") != NULL);
    sw_meet(rank);
    rank_true(me, physical(rank, scene) == asleep);
    /* Awake it is INVALID until it has been filled. */
    rank_ok(me, dyti_world_restore(rank->world, WEIGHTS | KV_CACHE, &report));
    rank_true(me, dyti_world_asleep(rank->world) == 0);
    rank_true(me, physical(rank, scene) == asleep);
    rank_status(me, DYT_ERR_STATE,
                dyti_control_check_rank(page, me->rank, ROLLOUT_PARAM));
    sw_meet(rank);
    rank_ok(me, to_rollout(rank, 3, &done));
    rank_ok(me, dyti_control_check_rank(page, me->rank, ROLLOUT_PARAM));
    rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 3));
    rank_true(me, scene->memory->options.mode == DYTI_MODE_DOUBLE ||
                      was == dyti_world_region(rank->world, me->rank,
                                               DYTI_ARENA_ROLLOUT, DYTI_PARAM));
}

static void what_sleeps_gives_its_memory_back(void **state)
{
    (void)state;
    for (int mode = 0; mode < DYTI_MODE_IN_PLACE; mode++) {
        play((enum dyti_switch_mode)mode, 10 * (uint64_t)mode, sleeper);
    }
}

/* One rank alone sleeps: all refuse, and the others hear of it. */
static void one_sleeper(struct sw_rank *rank, const struct scene *scene)
{
    struct dyt_rank *me = rank->me;
    struct dyti_residency_report report;
    struct dyti_switch_report done;

    (void)scene;
    rank_ok(me, to_rollout(rank, 1, &done));
    sw_meet(rank);
    if (me->rank == 1) {
        rank_ok(me, dyti_world_release(rank->world, WEIGHTS, 0, &report));
    }
    sw_meet(rank);
    rank_status(me, DYT_ERR_STATE, to_rollout(rank, 2, &done));
    rank_true(me, strstr(dyti_error_text(), "rank 1") != NULL);
    rank_true(me, me->rank == 1 ||
                      sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 1));
}

static void one_sleeper_refuses_for_all(void **state)
{
    (void)state;
    play(DYTI_MODE_TRANSACTIONAL, 50, one_sleeper);
}

/* ---- the last copy ------------------------------------------------------- */

static void keeper(struct sw_rank *rank, const struct scene *scene)
{
    struct dyt_rank *me = rank->me;
    struct dyti_control_page *page = dyti_world_control(rank->world);
    struct dyti_residency_report report;
    struct dyti_switch_report done;
    uint64_t before;

    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    sw_meet(rank);
    before = physical(rank, scene);
    if (rank->c.layout[DYTI_ARENA_TRAIN]->desc.dp == 1 ||
        rank->c.layout[DYTI_ARENA_TRAIN]->desc.zero > 0) {
        rank_status(me, DYT_ERR_STATE,
                    dyti_world_release(rank->world, OPTIMIZER, 0, &report));
        rank_true(me, strstr(dyti_error_text(), "releasing master") != NULL);
        rank_true(me, strstr(dyti_error_text(), "alone holds it") != NULL);
        rank_true(me, physical(rank, scene) == before);
        rank_true(me, dyti_world_asleep(rank->world) == 0);
    }
    rank_true(me, sw_check(rank, DYTI_ARENA_TRAIN, DYTI_MASTER, 1));
    sw_meet(rank);
    /* Gradients are nobody's treasure; weights have the masters behind them. */
    rank_ok(me, dyti_world_release(rank->world, GRAD | WEIGHTS, 0, &report));
    rank_ok(me, dyti_world_restore(rank->world, GRAD | WEIGHTS, &report));
    sw_meet(rank);
    rank_ok(me, dyti_world_release(rank->world, OPTIMIZER, OPTIMIZER, &report));
    rank_true(me, report.bytes > 0 && physical(rank, scene) < before);
    sw_meet(rank);
    /* Without the masters nobody can make the weights. */
    if (rank->c.layout[DYTI_ARENA_ROLLOUT]->desc.dp == 1) {
        rank_status(me, DYT_ERR_STATE,
                    dyti_world_release(rank->world, WEIGHTS, 0, &report));
    }
    rank_ok(me, dyti_world_release(rank->world, WEIGHTS, WEIGHTS, &report));
    rank_ok(me, dyti_world_restore(rank->world, OPTIMIZER | WEIGHTS, &report));
    sw_meet(rank);
    rank_status(me, DYT_ERR_STATE, to_rollout(rank, 2, &done));
    rank_true(me, strstr(dyti_error_text(), "INVALID") != NULL);
    sw_meet(rank);
    dyti_control_heal(page, me->rank, ~UINT64_C(0)); /* from a checkpoint */
    sw_meet(rank);
    rank_ok(me, to_rollout(rank, 3, &done));
    rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 3));
}

static void the_last_copy_is_not_released_unless_a_receive_follows(void **state)
{
    (void)state;
    for (uint64_t seed = 100; seed < 106; seed++) {
        play(DYTI_MODE_TRANSACTIONAL, seed, keeper);
    }
}

/* ---- switches that release and restore ----------------------------------- */

static void cycle(struct sw_rank *rank, const struct scene *scene, uint64_t n,
                  uint64_t *most)
{
    static const enum dyti_arena_slot way[2] = {DYTI_ARENA_TRAIN,
                                                DYTI_ARENA_ROLLOUT};
    struct dyt_rank *me = rank->me;

    sw_update(rank, DYTI_ARENA_TRAIN, n + 1);
    for (uint32_t i = 0; i < 2; i++) {
        struct dyti_switch_order order =
            sw_order(2 * n + i + 1, n + 1, DYTI_VERIFY_OFF);
        struct dyti_world_switch_memory memory;
        struct dyti_switch_report report;
        struct dyti_switch *self = NULL;

        use_work(rank);
        rank_ok(me, dyti_world_prepare(rank->world, way[i], way[1 - i], NULL,
                                       &self, NULL));
        rank_ok(me, dyti_world_switch(rank->world, way[i], way[1 - i], self,
                                      &order, &report, &memory));
        rank_true(me, memory.before.bytes >= (1u << 20)); /* work */
        /* before the first switch back nothing was there */
        rank_true(me, memory.after.bytes > 0 || n == 0);
        *most = memory.peak_bytes > *most ? memory.peak_bytes : *most;
        rank_true(me, physical(rank, scene) <=
                          memory.peak_bytes - memory.after.bytes);
        rank_true(me, sw_check(rank, way[1 - i], DYTI_PARAM, n + 1));
    }
}

static void cycles(struct sw_rank *rank, const struct scene *scene)
{
    struct dyt_rank *me = rank->me;
    uint64_t rounds = dyt_test_rounds(100, 1000), flat = 0, most = 0;
    struct dyti_arena_cost cost;

    dyti_arena_cost((const struct dyti_layout *const *)rank->c.layout, me->rank,
                    &scene->memory->options, &cost);
    for (uint64_t n = 0; n < rounds && me->wrong[0] == '\0'; n++) {
        cycle(rank, scene, n, &most);
        flat = n == 1 ? physical(rank, scene) : flat;
        rank_true(me, n < 2 || physical(rank, scene) == flat);
    }
    /* Neither the KV cache nor activations lie beside both layouts. */
    rank_true(me, most <= cost.total - (1u << 20) + 24u * 4096u);
}

static void a_switch_gives_back_first_and_stays_flat(void **state)
{
    (void)state;
    play(DYTI_MODE_TRANSACTIONAL, 200, cycles);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_sleeps_gives_its_memory_back),
    cmocka_unit_test(one_sleeper_refuses_for_all),
    cmocka_unit_test(the_last_copy_is_not_released_unless_a_receive_follows),
    cmocka_unit_test(a_switch_gives_back_first_and_stays_flat),
};
DYT_TEST_MAIN(tests)
