/* What a replica has lost comes back from its siblings: bit for bit, into the
 * same memory, in every mode and by every mover; nobody else notices.  Where no
 * rank holds it any more, all ranks say so alike. */
#include "switch_scene.h"

#include "edm/heal.h"
#include "mover/message/message.h"

#define PARAM dyti_region_bit(DYTI_ARENA_ROLLOUT, DYTI_PARAM)

struct scene {
    uint64_t seed;
    uint32_t world_size;
    uint32_t victims;  /* bits of ranks */
    bool all_replicas; /* of what rank 0 of them holds: nobody has it then */
    bool fails;        /* once, half way */
    struct dyti_world_switch_options options;
    const struct sw_memory *memory;
};

static bool is_victim(const struct scene *scene, uint32_t rank)
{
    return (scene->victims >> rank & 1u) != 0;
}

static uint64_t param_bytes(const struct sw_rank *rank)
{
    return rank->c.map[rank->me->rank].bytes[DYTI_ARENA_ROLLOUT][DYTI_PARAM];
}

/* Junk, and INVALID: refused from now on. */
static void lose(struct sw_rank *rank)
{
    struct dyti_control_page *page = dyti_world_control(rank->world);
    void *param = dyti_world_region(rank->world, rank->me->rank,
                                    DYTI_ARENA_ROLLOUT, DYTI_PARAM);

    if (param != NULL) {
        memset(param, 0xee, param_bytes(rank));
        dyti_control_lose(page, rank->me->rank, 1, PARAM);
        rank_status(rank->me, DYT_ERR_STATE,
                    dyti_control_check_rank(page, rank->me->rank, PARAM));
        rank_true(rank->me, strstr(dyti_error_text(), "replica") != NULL);
    }
}

static void to_rollout(struct sw_rank *rank, const struct scene *scene)
{
    struct dyti_switch_report report;
    struct dyti_switch_order order = sw_order(1, 1, DYTI_VERIFY_OFF);

    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    rank_ok(rank->me, sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT,
                                &scene->options, &order, &report));
}

/* What fails leaves INVALID what was, and nothing else. */
static void fail_once(struct sw_rank *rank, const struct scene *scene)
{
    struct dyti_control_page *page = dyti_world_control(rank->world);
    struct dyt_rank *me = rank->me;
    struct dyti_heal_report report;
    struct dyti_switch_order order = {.epoch = 2, .unmanaged = true};
    bool lost = is_victim(scene, me->rank) && param_bytes(rank) > 0;

    order.fault =
        is_victim(scene, me->rank) ? DYTI_FAULT_FAIL : DYTI_FAULT_NONE;
    rank_true(me, dyti_world_heal(rank->world, DYTI_ARENA_ROLLOUT,
                                  &scene->options, &order, &report) != DYT_OK);
    rank_true(me, dyti_control_check_rank(page, me->rank, PARAM) ==
                      (lost ? DYT_ERR_STATE : DYT_OK));
}

static void check_healed(struct sw_rank *rank, const struct scene *scene,
                         uint32_t lost_ranks)
{
    struct dyti_control_page *page = dyti_world_control(rank->world);
    struct dyt_rank *me = rank->me;
    struct dyti_heal_report report = {0};
    struct dyti_switch_order order = {
        .epoch = 3, .unmanaged = true, .verify = DYTI_VERIFY_FULL};
    void *was = dyti_world_region(rank->world, me->rank, DYTI_ARENA_ROLLOUT,
                                  DYTI_PARAM);

    rank_ok(me, dyti_world_heal(rank->world, DYTI_ARENA_ROLLOUT,
                                &scene->options, &order, &report));
    rank_true(me, report.rank_count == lost_ranks);
    rank_true(me, report.kinds == 1u << DYTI_PARAM);
    rank_true(me, report.transfer.version == 1);
    rank_true(me, atomic_load(&page->version) == 1);
    rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 1));
    rank_ok(me, dyti_control_check_rank(page, me->rank, PARAM));
    rank_true(me, was == dyti_world_region(rank->world, me->rank,
                                           DYTI_ARENA_ROLLOUT, DYTI_PARAM));
    /* only those that had lost it were written */
    rank_true(me, scene->options.side == DYTI_SIDE_PUSH ||
                      report.transfer.kept_bytes == 0);
    /* now there is nothing to do */
    order.epoch = 4;
    rank_ok(me, dyti_world_heal(rank->world, DYTI_ARENA_ROLLOUT,
                                &scene->options, &order, &report));
    rank_true(me, report.rank_count == 0);
}

/* The world goes on: the way back, and out again. */
static void go_on(struct sw_rank *rank, const struct scene *scene)
{
    struct dyti_switch_report report;
    struct dyti_switch_order order = {.epoch = 5,
                                      .version = 1,
                                      .unmanaged = true,
                                      .verify = DYTI_VERIFY_FULL};

    rank_ok(rank->me, sw_switch(rank, DYTI_ARENA_ROLLOUT, DYTI_ARENA_TRAIN,
                                &scene->options, &order, &report));
    sw_update(rank, DYTI_ARENA_TRAIN, 2);
    order.epoch = 6;
    order.version = 2;
    rank_ok(rank->me, sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT,
                                &scene->options, &order, &report));
    rank_true(rank->me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 2));
}

static void heal_world(struct sw_rank *rank, const struct scene *scene)
{
    struct dyt_rank *me = rank->me;
    struct dyti_group all = dyti_world_all(rank->world);
    uint32_t lost_ranks = 0;

    to_rollout(rank, scene);
    rank_ok(me, all.ops->barrier(all.self)); /* nobody reads it any more */
    for (uint32_t r = 0; r < scene->world_size; r++) {
        lost_ranks += is_victim(scene, r) &&
                      rank->c.map[r].bytes[DYTI_ARENA_ROLLOUT][DYTI_PARAM] > 0;
    }
    if (is_victim(scene, me->rank)) {
        lose(rank);
    }
    if (scene->all_replicas) {
        struct dyti_heal_report report;
        struct dyti_switch_order order = {.epoch = 3, .unmanaged = true};

        rank_status(me, DYT_ERR_LAYOUT,
                    dyti_world_heal(rank->world, DYTI_ARENA_ROLLOUT,
                                    &scene->options, &order, &report));
        rank_true(me, strstr(dyti_error_text(), "no rank holds") != NULL);
        rank_true(me, strstr(dyti_error_text(), "checkpoint") != NULL);
        return;
    }
    if (scene->fails) {
        fail_once(rank, scene);
    }
    if (me->wrong[0] == '\0') {
        check_healed(rank, scene, lost_ranks);
    }
    if (me->wrong[0] == '\0' && !rank->c.moves_optimizer) {
        go_on(rank, scene);
    }
}

static void heal_rank(struct dyt_rank *me)
{
    const struct scene *scene = me->arg;
    struct sw_rank rank;

    if (sw_enter(&rank, me, scene->seed, scene->world_size, scene->memory)) {
        heal_world(&rank, scene);
    }
    rank_where(me, " [%s, seed %" PRIu64 "]",
               dyti_switch_mode_name(scene->memory->options.mode), scene->seed);
    sw_rank_close(&rank);
}

/* One replica of the rollout, or every copy of what its first rank holds. */
static bool draw_victims(struct scene *scene, const struct sw_case *c)
{
    const struct dyti_layout *layout = c->layout[DYTI_ARENA_ROLLOUT];
    uint32_t dp = layout->desc.dp, replica = sw_draw(scene->seed, 90, dp);

    scene->victims = 0;
    if (dp < 2) {
        return false;
    }
    for (uint32_t d = 0; d < dp; d++) {
        for (uint32_t p = 0; p < layout->desc.pp; p++) {
            for (uint32_t t = 0; t < layout->desc.tp; t++) {
                if (scene->all_replicas ? p == 0 && t == 0 : d == replica) {
                    scene->victims |= 1u << dyti_layout_rank(layout, t, p, d);
                }
            }
        }
    }
    return true;
}

static bool play(enum dyt_ranks_kind kind, enum dyti_switch_mode mode,
                 struct scene *scene)
{
    struct dyti_arena_options options = {
        .mode = mode, .work_bytes = SW_WORK_BYTES, .staging_bytes = 1u << 16};
    struct sw_memory memory;
    struct sw_case c;
    bool has;

    scene->world_size = 2 + sw_draw(scene->seed, 8, 4);
    assert_ok(sw_case_init_mode(&c, scene->seed, scene->world_size, &options));
    has = draw_victims(scene, &c);
    if (has) {
        sw_memory_open(&memory, &c, kind);
        scene->memory = &memory;
        dyt_ranks_run(kind, scene->world_size, heal_rank, scene);
        sw_memory_close(&memory, scene->world_size);
    }
    sw_case_fini(&c);
    return has;
}

static void a_replica_comes_back_from_its_sibling(void **state)
{
    static const uint32_t hosts[SW_RANKS_MAX] = {0, 1, 0, 1, 1, 0};
    uint64_t rounds = dyt_test_rounds(48, 480), played = 0;

    (void)state;
    for (uint64_t seed = 1; played < rounds; seed++) {
        uint64_t how = played / DYTI_MODE_COUNT % 4;
        struct scene scene = {.seed = seed, .fails = seed % 3 == 0};

        scene.options.side = how == 1 ? DYTI_SIDE_PUSH : DYTI_SIDE_PULL;
        scene.options.mover = how == 2 ? DYTI_WORLD_MESSAGE : DYTI_WORLD_AUTO;
        sw_message = how >= 2 ? &dyti_mover_message : NULL;
        sw_host = how == 3 ? hosts : NULL;
        played +=
            play(seed % 5 == 0 ? DYT_RANKS_PROCESSES : DYT_RANKS_THREADS,
                 (enum dyti_switch_mode)(played % DYTI_MODE_COUNT), &scene);
    }
    sw_message = NULL;
    sw_host = NULL;
}

static void what_nobody_holds_is_refused_by_all(void **state)
{
    uint32_t played = 0;

    (void)state;
    for (uint64_t seed = 1; played < 8; seed++) {
        struct scene scene = {.seed = seed, .all_replicas = true};

        played +=
            play(DYT_RANKS_THREADS,
                 (enum dyti_switch_mode)(played % DYTI_MODE_COUNT), &scene);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_replica_comes_back_from_its_sibling),
    cmocka_unit_test(what_nobody_holds_is_refused_by_all),
};
DYT_TEST_MAIN(tests)
