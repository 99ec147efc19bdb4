/* Opening a world: what it gives, and what happens where a rank cannot. */
#include "switch_world.h"

struct scene {
    const struct sw_memory *memory;
    uint64_t seed;
    uint32_t world_size;
};

static void look_up(struct dyt_rank *me)
{
    const struct scene *scene = me->arg;
    struct dyti_world_owner owner[2];
    struct sw_rank rank;
    struct dyti_group all;
    float sum = 1;
    uint64_t bytes = 0;
    size_t count = 0;

    if (sw_rank_open(&rank, me, scene->seed, scene->world_size,
                     scene->memory) != DYT_OK) {
        rank_wrong(me, "%s", dyti_error_text());
        return;
    }
    all = dyti_world_all(rank.world);
    rank_true(me, all.rank == me->rank && all.size == scene->world_size);
    rank_ok(me, all.ops->all_reduce(all.self, &sum, 1, DYTI_SUM_F32));
    rank_true(me, sum == (float)scene->world_size);
    rank_true(me, dyti_world_work(rank.world, &bytes) != NULL);
    rank_true(me, bytes == 100000);
    for (uint32_t r = 0; r < scene->world_size; r++) {
        const struct dyti_arena_map *map = &rank.c.map[r];
        void *at =
            dyti_world_region(rank.world, r, DYTI_ARENA_TRAIN, DYTI_PARAM);

        rank_true(me, (at == NULL) ==
                          (map->bytes[DYTI_ARENA_TRAIN][DYTI_PARAM] == 0));
    }
    rank_true(me, dyti_world_region(rank.world, scene->world_size,
                                    DYTI_ARENA_TRAIN, DYTI_PARAM) == NULL);
    rank_true(
        me,
        dyti_world_group(rank.world, DYTI_ARENA_REFERENCE, DYTI_DIM_ALL).size ==
            0);
    rank_ok(me, dyti_world_memory(rank.world, owner, 2, &count));
    rank_true(me, count > 2); /* more than were asked for */
    sw_rank_close(&rank);
}

static void play(enum dyt_ranks_kind kind, uint64_t seed, dyt_rank_fn fn)
{
    struct scene scene = {.seed = seed, .world_size = 3};
    struct sw_case c;
    struct sw_memory memory;

    assert_ok(sw_case_init(&c, seed, scene.world_size));
    sw_memory_open(&memory, &c, kind);
    scene.memory = &memory;
    dyt_ranks_run(kind, scene.world_size, fn, &scene);
    sw_memory_close(&memory, scene.world_size);
    sw_case_fini(&c);
}

static void gives_groups_and_addresses(void **state)
{
    (void)state;
    play(DYT_RANKS_PROCESSES, 3, look_up);
    play(DYT_RANKS_THREADS, 3, look_up);
}

static void prepare_again(struct dyt_rank *me)
{
    const struct scene *scene = me->arg;
    struct dyti_world_switch_options capped = {.cap_bytes = 4096};
    struct dyti_switch *first = NULL, *second = NULL, *none = NULL;
    struct sw_rank rank;

    if (sw_rank_open(&rank, me, scene->seed, scene->world_size,
                     scene->memory) != DYT_OK) {
        rank_wrong(me, "%s", dyti_error_text());
        return;
    }
    rank_ok(me, dyti_world_prepare(rank.world, DYTI_ARENA_TRAIN,
                                   DYTI_ARENA_ROLLOUT, NULL, &first, NULL));
    rank_ok(me, dyti_world_prepare(rank.world, DYTI_ARENA_TRAIN,
                                   DYTI_ARENA_ROLLOUT, NULL, &second, NULL));
    rank_true(me, first == second && first != NULL);
    rank_status(me, DYT_ERR_INVALID,
                dyti_world_prepare(rank.world, DYTI_ARENA_TRAIN,
                                   DYTI_ARENA_REFERENCE, NULL, &none, NULL));
    rank_true(me, strstr(dyti_error_text(), "reference") != NULL);
    rank_status(me, DYT_ERR_UNSUPPORTED,
                dyti_world_prepare(rank.world, DYTI_ARENA_TRAIN,
                                   DYTI_ARENA_ROLLOUT, &capped, &none, NULL));
    rank_true(me, none == NULL);
    sw_rank_close(&rank);
}

static void a_switch_is_prepared_once(void **state)
{
    (void)state;
    play(DYT_RANKS_THREADS, 3, prepare_again);
}

/* Rank 1's segment is closed: it cannot open, and the others do not wait. */
static void one_cannot(struct dyt_rank *me)
{
    const struct scene *scene = me->arg;
    struct sw_memory memory = *scene->memory;
    struct sw_rank rank;
    enum dyt_status st;

    if (me->rank == 1) {
        memory.segment[1] = -1;
    }
    st = sw_rank_open(&rank, me, scene->seed, scene->world_size, &memory);
    rank_true(me, st == (me->rank == 1 ? DYT_ERR_IO : DYT_ERR_PEER));
    rank_true(me, strstr(dyti_error_text(), "rank 1") != NULL);
    sw_rank_close(&rank);
}

static void a_rank_that_cannot_tells_the_others(void **state)
{
    (void)state;
    play(DYT_RANKS_PROCESSES, 3, one_cannot);
}

/* A machine that has less than all ranks ask for. */
static uint64_t one_mib(enum dyti_page_kind pages)
{
    (void)pages;
    return 1u << 20;
}

static void short_memory_is_refused_before_it_is_used(void **state)
{
    struct dyti_memory_ops small = dyti_memory_host;
    struct dyt_rank me = {.size = 1, .kind = DYT_RANKS_PROCESSES};
    struct sw_memory memory;
    struct sw_rank rank;
    struct sw_case c;

    (void)state;
    small.available = one_mib;
    assert_ok(sw_case_init(&c, 3, 1));
    sw_memory_open(&memory, &c, DYT_RANKS_PROCESSES);
    memory.ops = &small;
    assert_status(DYT_ERR_NOMEM, sw_rank_open(&rank, &me, 3, 1, &memory));
    assert_error_has("1 MiB are available");
    sw_rank_close(&rank);
    sw_memory_close(&memory, 1);
    sw_case_fini(&c);
}

static void bad_params_are_refused(void **state)
{
    struct dyti_world_params params = {
        .struct_size = sizeof(params), .rank = 1, .world_size = 1};
    struct dyti_world *world = NULL;

    (void)state;
    assert_status(DYT_ERR_INVALID, dyti_world_open(&params, &world));
    params.rank = 0;
    assert_status(DYT_ERR_INVALID, dyti_world_open(&params, &world));
    assert_null(world);
    dyti_world_close(NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(gives_groups_and_addresses),
    cmocka_unit_test(a_switch_is_prepared_once),
    cmocka_unit_test(a_rank_that_cannot_tells_the_others),
    cmocka_unit_test(short_memory_is_refused_before_it_is_used),
    cmocka_unit_test(bad_params_are_refused),
};
DYT_TEST_MAIN(tests)
