/* What goes wrong in a switch: mistakes that verify must see, orders that do
 * not agree, ranks and managers that die at any point.  All ranks end with the
 * old or all with the new, and what they end with is whole. */
#include "switch_scene.h"

#include <time.h>

#define RANKS  4u
#define VICTIM 2u

/* Shared by all ranks and the test: one per run. */
struct board {
    _Atomic uint32_t decision[RANKS + 1];
    _Atomic uint32_t go;
};

struct scene {
    uint64_t seed;
    const struct sw_memory *memory;
    struct board *board;
    enum dyti_switch_fault fault;
    enum dyti_switch_point point;
    enum dyti_switch_mode mode;
    enum dyti_verify verify;
    bool managed; /* rank RANKS is the manager */
    bool manager_dies;
    int64_t timeout_ns; /* 0: long */
    void (*body)(struct sw_rank *rank, const struct scene *scene);
};

static void scene_rank(struct dyt_rank *me)
{
    const struct scene *scene = me->arg;
    struct sw_rank rank = {.me = me};

    if (me->rank == RANKS) { /* the manager has no world */
        scene->body(&rank, scene);
        return;
    }
    if (sw_enter(&rank, me, scene->seed, RANKS, scene->memory)) {
        scene->body(&rank, scene);
    }
    sw_rank_close(&rank);
}

static void play(enum dyt_ranks_kind kind, struct scene *scene)
{
    struct sw_stage stage = {.kind = kind,
                             .seed = sw_good_seed(scene->seed, RANKS),
                             .world_size = RANKS,
                             .others = scene->managed,
                             .timeout_ns = scene->timeout_ns};

    scene->seed = stage.seed;
    scene->board = dyt_ranks_shared(sizeof(*scene->board));
    sw_play(&stage, scene_rank, scene, &scene->memory);
    munmap(scene->board, sizeof(*scene->board));
}

/* ---- mistakes ---------------------------------------------------------------
 */

static void there_and_back(struct sw_rank *rank, uint64_t version)
{
    struct dyti_switch_order order =
        sw_order(2 * version, version, DYTI_VERIFY_OFF);
    struct dyti_switch_report report;

    sw_update(rank, DYTI_ARENA_TRAIN, version);
    rank_ok(rank->me, sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT,
                                NULL, &order, &report));
    rank_true(rank->me,
              sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, version));
    order.epoch++;
    rank_ok(rank->me, sw_switch(rank, DYTI_ARENA_ROLLOUT, DYTI_ARENA_TRAIN,
                                NULL, &order, &report));
}

static uint32_t some_tensor(const struct sw_rank *rank)
{
    const struct dyti_view *view =
        dyti_layout_view(rank->c.layout[DYTI_ARENA_ROLLOUT], rank->me->rank);

    return view->shard[view->kind_first[DYTI_PARAM + 1] / 2].tensor;
}

/* Version 1 everywhere, then a faulty switch to version 2. */
static void faulty_switch(struct sw_rank *rank, const struct scene *scene)
{
    struct dyt_rank *me = rank->me;
    struct dyti_switch_order order = sw_order(10, 2, scene->verify);
    struct dyti_switch_report report;
    bool seen = scene->verify == DYTI_VERIFY_FULL;
    enum dyt_status st;

    there_and_back(rank, 1);
    sw_update(rank, DYTI_ARENA_TRAIN, 2);
    if (me->rank == VICTIM) {
        order.fault = scene->fault;
        order.fault_tensor = some_tensor(rank);
    }
    st = sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, NULL, &order,
                   &report);
    if (!seen && scene->fault != DYTI_FAULT_FAIL) { /* the fault is one */
        struct dyt_rank quiet = *me;
        struct sw_rank copy = *rank;

        rank_true(me, st == DYT_OK && report.version == 2);
        copy.me = &quiet;
        rank_true(me, me->rank != VICTIM || scene->fault == DYTI_FAULT_LATE ||
                          !sw_check(&copy, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 2));
        return;
    }
    rank_true(me, st != DYT_OK && st != DYT_ERR_TIMEOUT);
    rank_true(me, report.decision == DYTI_DECISION_ABORT);
    rank_true(me, report.version == 1);
    /* The old is whole, and the next switch works. */
    rank_true(me, sw_check(rank, DYTI_ARENA_TRAIN, DYTI_MASTER, 2));
    there_and_back(rank, 20);
}

static void verify_sees_every_mistake(void **state)
{
    (void)state;
    for (int fault = DYTI_FAULT_SKIP; fault <= DYTI_FAULT_FAIL; fault++) {
        for (uint64_t seed = 100; seed < sw_rounds(300, 200); seed += 100) {
            struct scene scene = {.seed = seed,
                                  .fault = (enum dyti_switch_fault)fault,
                                  .verify = DYTI_VERIFY_FULL,
                                  .body = faulty_switch};

            play(DYT_RANKS_PROCESSES, &scene);
            if (fault != DYTI_FAULT_LATE && /* which is a data race */
                (uint64_t)fault % 2 < sw_rounds(2, 1)) {
                play(DYT_RANKS_THREADS, &scene);
            }
        }
    }
}

static void without_verify_the_mistakes_are_there(void **state)
{
    (void)state;
    for (int fault = DYTI_FAULT_SKIP; fault <= DYTI_FAULT_FAIL; fault++) {
        struct scene scene = {.seed = 100,
                              .fault = (enum dyti_switch_fault)fault,
                              .verify = DYTI_VERIFY_OFF,
                              .body = faulty_switch};

        play(DYT_RANKS_PROCESSES, &scene);
    }
}

/* ---- orders that differ ------------------------------------------------- */

static void differing_orders(struct sw_rank *rank, const struct scene *scene)
{
    static const struct dyti_world_switch_options push = {.side =
                                                              DYTI_SIDE_PUSH};
    struct dyt_rank *me = rank->me;
    bool odd = me->rank == VICTIM;
    struct dyti_switch_report report;
    struct dyti_switch_order order = {.epoch = 10, .unmanaged = true};

    (void)scene;
    there_and_back(rank, 1);
    for (int what = 0; what < 4; what++) {
        static const char *const part[] = {"version of", "verify", "epoch of",
                                           "fingerprint of plan"};

        order.epoch = what == 2 && odd ? 11 : 10;
        order.version = what == 0 && odd ? 3 : 2;
        order.verify = what == 1 && odd ? DYTI_VERIFY_FULL : DYTI_VERIFY_OFF;
        rank_status(me, DYT_ERR_STATE,
                    sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT,
                              what == 3 && odd ? &push : NULL, &order,
                              &report));
        rank_true(me, strstr(dyti_error_text(), part[what]) != NULL);
        rank_true(me, strstr(dyti_error_text(), "rank 2") != NULL);
        rank_true(me, report.decision == DYTI_DECISION_NONE);
        rank_true(me, report.version == 1);
    }
    order.epoch = 3; /* an old order again */
    rank_status(me, DYT_ERR_STATE,
                sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, NULL,
                          &order, &report));
    there_and_back(rank, 20);
}

static void differing_orders_are_refused_by_all(void **state)
{
    struct scene scene = {.seed = 500, .body = differing_orders};

    (void)state;
    play(DYT_RANKS_THREADS, &scene);
}

/* ---- deaths ------------------------------------------------------------- */

struct killer {
    struct sw_rank *rank;
    const struct scene *scene;
};

static void kill_at(void *arg, enum dyti_switch_point point)
{
    const struct killer *killer = arg;
    struct dyt_rank *me = killer->rank->me;

    if (point != killer->scene->point || me->rank != VICTIM) {
        return;
    }
    if (me->kind == DYT_RANKS_PROCESSES) {
        me->expect_death = true;
        (void)raise(SIGKILL);
    }
    dyti_control_abort(dyti_world_control(killer->rank->world),
                       &dyti_wait_futex, VICTIM, DYT_ERR_DEVICE);
}

/* The test's process sees the death, as a manager would. */
static void on_death(uint32_t rank, void *arg)
{
    const struct scene *scene = arg;
    struct dyti_control_page *page = scene->memory->control_mem.base;

    if (rank == RANKS) {
        (void)dyti_switch_abort(page, &dyti_wait_futex, 10);
    } else {
        dyti_control_abort(page, &dyti_wait_futex, rank, DYT_ERR_PEER);
    }
}

static void manage(struct dyt_rank *me, const struct scene *scene)
{
    struct dyti_control_page *page = scene->memory->control_mem.base;
    uint32_t voted = 0;

    while (atomic_load(&scene->board->go) < RANKS) { /* all worlds are open */
    }
    rank_ok(me, dyti_switch_begin(page, 10, 2));
    atomic_store(&scene->board->go, RANKS + 1);
    if (scene->manager_dies) {
        while (voted < RANKS) { /* between ready and commit */
            voted = 0;
            for (uint32_t r = 0; r < RANKS; r++) {
                voted += atomic_load(&page->rank[r].vote) >> 8 == 10;
            }
        }
        me->expect_death = true;
        (void)raise(SIGKILL);
    }
    (void)dyti_switch_decide(page, &dyti_wait_futex, 10, 0);
}

/* What else the mode promises of a switch that was decided against. */
static void check_row(struct sw_rank *rank, const struct scene *scene)
{
    uint64_t param = dyti_region_bit(DYTI_ARENA_ROLLOUT, DYTI_PARAM);
    struct dyti_control_page *page = dyti_world_control(rank->world);
    bool overwritten = scene->mode == DYTI_MODE_IN_PLACE &&
                       scene->point >= DYTI_AT_TRANSFERRED;

    if (scene->mode == DYTI_MODE_DOUBLE || scene->mode == DYTI_MODE_STAGED) {
        rank_true(rank->me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 1));
    }
    if (scene->mode != DYTI_MODE_IN_PLACE || overwritten) {
        rank_true(rank->me,
                  dyti_control_check_rank(page, rank->me->rank, param) ==
                      (overwritten ? DYT_ERR_STATE : DYT_OK));
    }
}

static void deadly_switch(struct sw_rank *rank, const struct scene *scene)
{
    struct dyt_rank *me = rank->me;
    struct killer killer = {.rank = rank, .scene = scene};
    struct dyti_switch_order order = sw_order(10, 2, DYTI_VERIFY_FULL);
    struct dyti_switch_report report;
    enum dyt_status st;

    order.unmanaged = !scene->managed;
    order.at = kill_at;
    order.at_arg = &killer;
    if (me->rank == RANKS) {
        manage(me, scene);
        return;
    }
    there_and_back(rank, 1);
    sw_update(rank, DYTI_ARENA_TRAIN, 2);
    if (scene->managed) {
        atomic_fetch_add(&scene->board->go, 1);
        while (atomic_load(&scene->board->go) <= RANKS) {
        }
    }
    st = sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, NULL, &order,
                   &report);
    if (me->rank == VICTIM && scene->point != DYTI_AT_COUNT) {
        return; /* as a thread it went on */
    }
    /* NONE: it never began here, and so it will not be committed. */
    atomic_store(&scene->board->decision[me->rank],
                 report.decision == DYTI_DECISION_COMMIT ? 2 : 1);
    rank_true(me, (st == DYT_OK) == (report.decision == DYTI_DECISION_COMMIT));
    if (st == DYT_OK) {
        rank_true(me, report.version == 2);
        rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 2));
        return;
    }
    rank_true(me, report.version == 1);
    rank_true(me, st == DYT_ERR_PEER);
    rank_true(me, scene->point == DYTI_AT_COUNT ||
                      strstr(dyti_error_text(), "rank 2") != NULL);
    rank_true(me, sw_check(rank, DYTI_ARENA_TRAIN, DYTI_MASTER, 2));
    check_row(rank, scene);
}

/* Runs a scene and looks at what the survivors say. */
static void survive(enum dyt_ranks_kind kind, struct scene *scene)
{
    struct board *board = dyt_ranks_shared(sizeof(*board));
    struct dyti_arena_options options = {.mode = scene->mode,
                                         .work_bytes = SW_WORK_BYTES,
                                         .staging_bytes = 8192};
    struct sw_stage stage = {.kind = kind,
                             .seed = sw_good_seed(700, RANKS),
                             .world_size = RANKS,
                             .others = scene->managed,
                             .options = &options};
    uint32_t first;

    scene->seed = stage.seed;
    scene->board = board;
    dyt_ranks_on_death = on_death;
    sw_play(&stage, scene_rank, scene, &scene->memory);
    dyt_ranks_on_death = NULL;
    first = atomic_load(&board->decision[0]);
    assert_int_not_equal(0, first);
    for (uint32_t r = 0; r < RANKS; r++) {
        if (r != VICTIM) {
            assert_int_equal(first, atomic_load(&board->decision[r]));
        }
    }
    if (scene->point < DYTI_AT_VOTED || scene->manager_dies) {
        assert_int_equal(1, first); /* the old */
    }
    if (scene->point == DYTI_AT_DECIDED || scene->point == DYTI_AT_COMMITTING) {
        assert_int_equal(2, first); /* the new */
    }
    munmap(board, sizeof(*board));
}

static void a_death_at_any_point_leaves_all_with_one(void **state)
{
    (void)state;
    for (int i = 0; i < DYTI_MODE_COUNT * DYTI_AT_COUNT; i++) {
        for (int managed = 0; managed < 2; managed++) {
            struct scene scene = {
                .point = (enum dyti_switch_point)(i % DYTI_AT_COUNT),
                .mode = (enum dyti_switch_mode)(i / DYTI_AT_COUNT),
                .managed = managed == 1,
                .body = deadly_switch};

            if ((scene.point == DYTI_AT_WAVE &&
                 scene.mode != DYTI_MODE_IN_PLACE) ||
                (scene.point == DYTI_AT_COMMITTING &&
                 scene.mode != DYTI_MODE_STAGED)) {
                continue; /* is not on its way */
            }
            if ((uint64_t)(2 * i + managed) % 6 < sw_rounds(6, 1)) {
                survive(DYT_RANKS_PROCESSES, &scene);
            }
            if ((uint64_t)(2 * i + managed) % 12 < sw_rounds(12, 1)) {
                survive(DYT_RANKS_THREADS, &scene);
            }
        }
    }
}

static void a_dead_manager_means_the_old(void **state)
{
    struct scene scene = {.point = DYTI_AT_COUNT,
                          .managed = true,
                          .manager_dies = true,
                          .body = deadly_switch};

    (void)state;
    survive(DYT_RANKS_PROCESSES, &scene);
}

static void a_manager_commits(void **state)
{
    struct scene scene = {
        .point = DYTI_AT_COUNT, .managed = true, .body = deadly_switch};

    (void)state;
    survive(DYT_RANKS_PROCESSES, &scene);
    survive(DYT_RANKS_THREADS, &scene);
}

/* ---- a rank that hangs ----------------------------------------------------
 */

static void hang_at(void *arg, enum dyti_switch_point point)
{
    const struct killer *killer = arg;

    if (killer->rank->me->rank == VICTIM && point == killer->scene->point) {
        while (atomic_load(&killer->scene->board->go) < RANKS - 1) {
            struct timespec tick = {.tv_nsec = 1000000};

            (void)nanosleep(&tick, NULL); /* busy with something else */
        }
    }
}

static void hung_switch(struct sw_rank *rank, const struct scene *scene)
{
    struct dyt_rank *me = rank->me;
    struct killer killer = {.rank = rank, .scene = scene};
    struct dyti_switch_order order = sw_order(10, 2, scene->verify);
    struct dyti_switch_report report;
    enum dyt_status st;

    order.at = hang_at;
    order.at_arg = &killer;
    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    st = sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, NULL, &order,
                   &report);
    atomic_fetch_add(&scene->board->go, 1);
    rank_true(me, st != DYT_OK && report.decision == DYTI_DECISION_ABORT);
    rank_true(me, me->rank == VICTIM || st == DYT_ERR_TIMEOUT ||
                      st == DYT_ERR_PEER);
    rank_true(me, report.version == 0);
    rank_true(me, sw_check(rank, DYTI_ARENA_TRAIN, DYTI_MASTER, 1));
}

static void a_hung_rank_meets_the_deadline(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct scene scene = {
            .seed = 800,
            .point = DYTI_AT_TRANSFERRED,
            .verify = kind == 0 ? DYTI_VERIFY_OFF : DYTI_VERIFY_FULL,
            .timeout_ns = sw_device == NULL ? 3000000000 : 8000000000,
            .body = hung_switch};

        play(kind == 0 ? DYT_RANKS_PROCESSES : DYT_RANKS_THREADS, &scene);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(verify_sees_every_mistake),
    cmocka_unit_test(without_verify_the_mistakes_are_there),
    cmocka_unit_test(differing_orders_are_refused_by_all),
    cmocka_unit_test(a_death_at_any_point_leaves_all_with_one),
    cmocka_unit_test(a_dead_manager_means_the_old),
    cmocka_unit_test(a_manager_commits),
    cmocka_unit_test(a_hung_rank_meets_the_deadline),
};
DYT_TEST_MAIN(tests)
