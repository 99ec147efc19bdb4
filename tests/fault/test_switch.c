/* Faults drawn from seeds, in every mode: one rank's copies fail, get lost,
 * come twice or late, bits flip, the rank dies at any point.  All ranks end
 * with the same decision; what they end with is what the mode's row promises.
 *
 * The promise after an abort, of version 2 over version 1:
 *   transactional  the source holds version 2
 *   double, staged the source holds version 2, the rollout layout version 1
 *   in_place       nothing, until it is healed: from the source where that does
 *                  not lie under the destination; else from a checkpoint */
#include "switch_broken.h"

#define RANKS 3u

/* ---- scenes ---------------------------------------------------------------
 */

struct scene {
    uint64_t seed;
    enum dyti_switch_mode mode;
    enum fault fault;
    uint32_t victim, nth;
    enum dyti_switch_point point;
    const struct sw_memory *memory;
    _Atomic uint32_t decision[RANKS];
    _Atomic uint32_t hits; /* how often it struck */
};

struct killer {
    struct sw_rank *rank;
    struct scene *scene;
    uint32_t seen;
};

static void kill_at(void *arg, enum dyti_switch_point point)
{
    struct killer *k = arg;

    if (k->scene->fault == DIES && k->rank->me->rank == k->scene->victim &&
        point == k->scene->point && k->seen++ == k->scene->nth) {
        atomic_fetch_add(&k->scene->hits, 1);
        dyti_control_abort(dyti_world_control(k->rank->world), &dyti_wait_futex,
                           k->rank->me->rank, DYT_ERR_DEVICE);
    }
}

static struct dyti_switch_order order_of(const struct scene *scene,
                                         const struct sw_rank *rank)
{
    struct dyti_switch_order order = sw_order(10, 2, DYTI_VERIFY_FULL);

    if (rank->me->rank != scene->victim) {
        return order;
    }
    order.fault = scene->fault == BIT_FLIPS      ? DYTI_FAULT_FLIP
                  : scene->fault == TENSOR_STALE ? DYTI_FAULT_STALE
                  : scene->fault == COMMIT_FAILS ? DYTI_FAULT_COMMIT
                                                 : DYTI_FAULT_NONE;
    if (order.fault == DYTI_FAULT_STALE) {
        const struct dyti_view *view = dyti_layout_view(
            rank->c.layout[DYTI_ARENA_ROLLOUT], rank->me->rank);

        order.fault_tensor =
            view->shard_count > 0 ? view->shard[0].tensor : UINT32_MAX;
    }
    return order;
}

static void first_version(struct sw_rank *rank)
{
    struct dyti_switch_order order = sw_order(1, 1, DYTI_VERIFY_OFF);
    struct dyti_switch_report report;

    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    rank_ok(rank->me, sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT,
                                NULL, &order, &report));
    order.epoch = 2;
    rank_ok(rank->me, sw_switch(rank, DYTI_ARENA_ROLLOUT, DYTI_ARENA_TRAIN,
                                NULL, &order, &report));
}

#define ROLLOUT_PARAM dyti_region_bit(DYTI_ARENA_ROLLOUT, DYTI_PARAM)

/* In place: refused until it is healed; then all is well again. */
static void check_in_place(struct sw_rank *rank, struct scene *scene)
{
    struct dyt_rank *me = rank->me;
    struct dyti_control_page *page = dyti_world_control(rank->world);
    struct dyti_switch_order order = sw_order(20, 3, DYTI_VERIFY_OFF);
    struct dyti_switch_report report;
    struct dyti_group all = dyti_world_all(rank->world);
    bool lost;

    if (scene->fault == MESSAGE_LOST && all.ops->barrier(all.self) != DYT_OK) {
        return; /* one waited for the others to verify, and as long: for it this
                   world is over, and so for all */
    }
    rank_ok(me, all.ops->barrier(all.self)); /* before anybody heals */
    lost = dyti_control_check_whole(page, ~UINT64_C(0)) != DYT_OK;
    rank_ok(me, all.ops->barrier(all.self));
    if (!lost) {
        return;
    }
    if (rank->c.moves_optimizer) { /* the source is gone as well */
        rank_true(me, sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT,
                                NULL, &order, &report) == DYT_ERR_STATE);
        rank_true(me, report.decision == DYTI_DECISION_NONE);
        rank_ok(me, all.ops->barrier(all.self));
        dyti_control_heal(page, me->rank, ~UINT64_C(0)); /* a checkpoint */
        rank_ok(me, all.ops->barrier(all.self));
    }
    sw_update(rank, DYTI_ARENA_TRAIN, 3);
    rank_ok(me, sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, NULL,
                          &order, &report));
    rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 3));
    rank_ok(me, dyti_control_check_rank(page, me->rank, ROLLOUT_PARAM));
}

static void check_old(struct sw_rank *rank, struct scene *scene)
{
    struct dyt_rank *me = rank->me;

    if (scene->mode != DYTI_MODE_IN_PLACE) {
        rank_true(me, sw_check(rank, DYTI_ARENA_TRAIN, DYTI_MASTER, 2));
        /* its own: a slow rank may still be leaving the switch before */
        rank_ok(me, dyti_control_check_rank(dyti_world_control(rank->world),
                                            me->rank, ~UINT64_C(0)));
    }
    if (scene->mode == DYTI_MODE_DOUBLE || scene->mode == DYTI_MODE_STAGED) {
        rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 1));
    }
    if (scene->mode == DYTI_MODE_IN_PLACE && scene->fault != DIES) {
        check_in_place(rank, scene); /* a dead rank's world is not healed */
    }
}

static void check_new(struct sw_rank *rank, struct scene *scene,
                      enum dyt_status st)
{
    struct dyt_rank *me = rank->me;
    struct dyti_control_page *page = dyti_world_control(rank->world);
    const struct dyti_arena_map *map = &rank->c.map[me->rank];

    if (scene->fault == COMMIT_FAILS && scene->mode == DYTI_MODE_STAGED &&
        me->rank == scene->victim &&
        map->bytes[DYTI_ARENA_ROLLOUT][DYTI_PARAM] > 0) {
        rank_true(me, st == DYT_ERR_DEVICE);
        rank_true(me, dyti_control_check_rank(page, me->rank, ROLLOUT_PARAM) ==
                          DYT_ERR_STATE);
        rank_ok(me, dyti_switch_heal_staged(
                        page, me->rank, map,
                        (unsigned char *)dyti_world_region_in(
                            rank->world, me->rank, DYTI_ARENA_ROLLOUT,
                            DYTI_PARAM, 0) -
                            map->offset[DYTI_ARENA_ROLLOUT][DYTI_PARAM],
                        &rank->kernels));
        rank_true(me, dyti_switch_heal_staged(page, me->rank, map, NULL,
                                              &rank->kernels) == DYT_ERR_STATE);
    } else {
        rank_true(me, st == DYT_OK);
    }
    rank_ok(me, dyti_control_check_rank(page, me->rank, ROLLOUT_PARAM));
    rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 2));
}

static void play_body(struct sw_rank *rank, struct scene *scene)
{
    struct dyt_rank *me = rank->me;
    struct killer killer = {.rank = rank, .scene = scene};
    struct dyti_switch_order order;
    struct dyti_switch_report report;
    enum dyt_status st;

    broken.left = -1;
    post.left = -1;
    first_version(rank);
    if (me->wrong[0] != '\0') {
        return;
    }
    sw_update(rank, DYTI_ARENA_TRAIN, 2);
    order = order_of(scene, rank);
    order.at = kill_at;
    order.at_arg = &killer;
    if (me->rank == scene->victim && scene->fault <= COPY_LATE) {
        broken.fault = scene->fault;
        broken.left = scene->nth;
    }
    if (me->rank == scene->victim && scene->fault >= FAULTS) {
        post.fault = scene->fault;
        post.left = scene->nth;
    }
    st = sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, NULL, &order,
                   &report);
    if (me->rank == scene->victim && scene->fault >= FAULTS) {
        atomic_fetch_add(&scene->hits, post.left < 0 ? 1u : 0u);
    }
    post.left = -1;
    if (me->rank == scene->victim && scene->fault <= COPY_LATE) {
        atomic_fetch_add(&scene->hits, broken.left < 0 ? 1u : 0u);
    }
    broken.left = -1;
    atomic_store(&scene->decision[me->rank],
                 report.decision == DYTI_DECISION_COMMIT ? 2 : 1);
    rank_true(me, report.version ==
                      (report.decision == DYTI_DECISION_COMMIT ? 2u : 1u));
    if (report.decision == DYTI_DECISION_COMMIT) {
        check_new(rank, scene, st);
    } else {
        rank_true(me, st != DYT_OK && dyti_error_text()[0] != '\0');
        check_old(rank, scene);
    }
}

static void play_rank(struct dyt_rank *me)
{
    struct scene *scene = me->arg;
    struct sw_rank rank;

    if (sw_enter(&rank, me, scene->seed, RANKS, scene->memory)) {
        play_body(&rank, scene);
    }
    rank_where(me, " [%s, seed %" PRIu64 ", %s at rank %u, n %u, point %s]",
               dyti_switch_mode_name(scene->mode), scene->seed,
               fault_name[scene->fault], scene->victim, scene->nth,
               dyti_switch_point_name(scene->point));
    sw_rank_close(&rank);
}

static void draw_scene(uint64_t n, struct scene *out)
{
    *out = (struct scene){
        .seed = 1 + sw_draw(n, 50, 40),
        .mode = (enum dyti_switch_mode)(n % DYTI_MODE_COUNT),
        .fault = (enum fault)(n / DYTI_MODE_COUNT % FAULTS),
        .victim = sw_draw(n, 51, RANKS),
        .point = (enum dyti_switch_point)sw_draw(n, 52, DYTI_AT_COUNT)};
    out->nth = sw_draw(n, 53, out->mode == DYTI_MODE_IN_PLACE ? 6 : 3);
    if (out->fault == DIES && out->point != DYTI_AT_WAVE) {
        out->nth = 0;
    }
}

static void seeded_faults_end_as_the_row_says(void **state)
{
    uint64_t rounds = dyt_test_rounds(100, 1000);
    uint32_t ends[DYTI_MODE_COUNT][3] = {{0}}, struck = 0;

    (void)state;
    for (uint64_t n = 0; n < rounds; n++) {
        struct dyti_arena_options options = {.work_bytes = SW_WORK_BYTES,
                                             .staging_bytes = 8192};
        struct scene scene;
        struct sw_case c;
        struct sw_memory memory;

        draw_scene(n, &scene);
        options.mode = scene.mode;
        assert_ok(sw_case_init_mode(&c, scene.seed, RANKS, &options));
        sw_memory_open(&memory, &c, DYT_RANKS_THREADS);
        memory.mover = &broken_mover;
        scene.memory = &memory;
        dyt_ranks_run(DYT_RANKS_THREADS, RANKS, play_rank, &scene);
        for (uint32_t r = 1; r < RANKS; r++) {
            assert_int_equal(scene.decision[0], scene.decision[r]);
        }
        if (scene.fault == COPY_TWICE || scene.fault == COPY_LATE ||
            scene.fault == COMMIT_FAILS) {
            assert_int_equal(2, scene.decision[0]); /* harmless */
        }
        if (scene.fault <= COPY_HAS_NO_MEMORY && scene.hits > 0) {
            assert_int_equal(1, scene.decision[0]);
        }
        ends[scene.mode][scene.decision[0]]++;
        struck += scene.hits > 0;
        sw_memory_close(&memory, RANKS);
        sw_case_fini(&c);
    }
    for (int m = 0; m < DYTI_MODE_COUNT; m++) {
        print_message("%s: %u old, %u new\n",
                      dyti_switch_mode_name((enum dyti_switch_mode)m),
                      ends[m][1], ends[m][2]);
        assert_true(rounds < 100 || (ends[m][1] > 0 && ends[m][2] > 0));
    }
    assert_true(struck > 0);
}

static void messages_that_go_wrong_end_as_the_row_says(void **state)
{
    static const uint32_t hosts[SW_RANKS_MAX] = {0, 1, 1, 0};
    uint64_t rounds = dyt_test_rounds(36, 240);
    uint32_t struck[ALL_FAULTS] = {0};

    (void)state;
    broken_group = dyti_group_shm;
    broken_group.post = group_post;
    broken_group.poll = group_poll;
    broken_group.landed = NULL; /* so it is asked by poll */
    sw_group = &broken_group;
    sw_message = &dyti_mover_message;
    sw_host = hosts;
    for (uint64_t n = 0; n < rounds; n++) {
        struct dyti_arena_options options = {
            .mode = (enum dyti_switch_mode)(n % DYTI_MODE_COUNT),
            .work_bytes = SW_WORK_BYTES,
            .staging_bytes = 8192};
        struct scene scene = {
            .seed = 1 + sw_draw(n, 60, 40),
            .mode = options.mode,
            .fault = (enum fault)(FAULTS + n / DYTI_MODE_COUNT % 3),
            .victim = sw_draw(n, 61, RANKS),
            .nth = sw_draw(n, 62, 2),
            .point = DYTI_AT_COUNT};
        struct sw_case c;
        struct sw_memory memory;

        assert_ok(sw_case_init_mode(&c, scene.seed, RANKS, &options));
        sw_memory_open(&memory, &c, DYT_RANKS_THREADS);
        if (scene.fault == MESSAGE_LOST) {
            memory.timeout_ns = 5000000000; /* of those who wait for it */
        }
        scene.memory = &memory;
        dyt_ranks_run(DYT_RANKS_THREADS, RANKS, play_rank, &scene);
        for (uint32_t r = 1; r < RANKS; r++) {
            assert_int_equal(scene.decision[0], scene.decision[r]);
        }
        if (scene.hits > 0 && scene.fault != MESSAGE_TWICE) {
            assert_int_equal(scene.fault == MESSAGE_LATE ? 2 : 1,
                             scene.decision[0]);
        }
        struck[scene.fault] += scene.hits > 0;
        sw_memory_close(&memory, RANKS);
        sw_case_fini(&c);
    }
    sw_group = &dyti_group_shm;
    sw_message = NULL;
    sw_host = NULL;
    for (int f = FAULTS; f < ALL_FAULTS; f++) {
        print_message("%s: %u times\n", fault_name[f], struck[f]);
        assert_true(rounds < 36 || struck[f] > 0);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(seeded_faults_end_as_the_row_says),
    cmocka_unit_test(messages_that_go_wrong_end_as_the_row_says),
};
DYT_TEST_MAIN(tests)
