/* Optimizer state that sleeps in host memory: it wakes as it was, within what
 * the world was given.  The device is the host's memory, told to be one, or
 * with SW_CUDA one that is simulated. */
#include "switch_scene.h"

#include "edm/residency.h"

#define RANKS     2u
#define OPTIMIZER DYTI_TAG_BIT(DYTI_TAG_OPTIMIZER)

/* ---- a device of host memory ------------------------------------------------
 */

#ifndef SW_CUDA
static uint32_t alive; /* allocations of host_alloc */

static struct dyti_segment_mem plain(const struct dyti_segment_mem *mem)
{
    struct dyti_segment_mem its = *mem;

    its.pages = DYTI_PAGES_4K;
    return its;
}

static enum dyt_status fake_create(const char *name, enum dyti_page_kind pages,
                                   int *out_handle)
{
    (void)pages;
    return dyti_memory_host.create(name, DYTI_PAGES_4K, out_handle);
}

static enum dyt_status fake_resize(int handle, enum dyti_page_kind pages,
                                   uint64_t bytes, const uint64_t *part,
                                   uint32_t count)
{
    (void)pages;
    return dyti_memory_host.resize(handle, DYTI_PAGES_4K, bytes, part, count);
}

static enum dyt_status fake_map(int handle, enum dyti_page_kind pages,
                                uint64_t bytes,
                                struct dyti_segment_mem *out_mem)
{
    enum dyt_status st =
        dyti_memory_host.map(handle, DYTI_PAGES_4K, bytes, out_mem);

    out_mem->pages = pages;
    return st;
}

static enum dyt_status fake_touched(const struct dyti_segment_mem *mem,
                                    uint64_t offset, uint64_t bytes,
                                    uint64_t *out_bytes)
{
    const struct dyti_segment_mem its = plain(mem);

    return dyti_memory_host.touched(&its, offset, bytes, out_bytes);
}

static enum dyt_status fake_drop(struct dyti_segment_mem *mem, uint64_t offset,
                                 uint64_t bytes)
{
    struct dyti_segment_mem its = plain(mem);

    return dyti_memory_host.drop(&its, offset, bytes);
}

static enum dyt_status fake_host_alloc(uint64_t bytes, void **out_ptr)
{
    enum dyt_status st = dyti_memory_host.host_alloc(bytes, out_ptr);

    alive += st == DYT_OK;
    return st;
}

static void fake_host_free(void *ptr)
{
    alive -= ptr != NULL;
    dyti_memory_host.host_free(ptr);
}

static const struct dyti_memory_ops *fake_memory(void)
{
    static struct dyti_memory_ops ops;

    ops = dyti_memory_host;
    ops.create = fake_create;
    ops.resize = fake_resize;
    ops.map = fake_map;
    ops.touched = fake_touched;
    ops.drop = fake_drop;
    ops.host_alloc = fake_host_alloc;
    ops.host_free = fake_host_free;
    return &ops;
}
#endif

static void begin(uint64_t backup_bytes)
{
#ifndef SW_CUDA
    static struct dyti_kernel_ops kernels;
    static struct sw_device fake = {.kernels = &kernels,
                                    .mover = &dyti_mover_direct,
                                    .pages = DYTI_PAGES_VMM,
                                    .ranks = ~0u};

    kernels = dyti_kernels_host;
    kernels.caps &= ~DYTI_KERNELS_ANY_MEMORY;
    fake.memory = fake_memory();
    sw_device = &fake;
#endif
    sw_backup_bytes = backup_bytes;
}

static uint32_t left_behind(void)
{
#ifndef SW_CUDA
    return alive;
#else
    return 0; /* sw_device_ended() says so */
#endif
}

/* ---- worlds -----------------------------------------------------------------
 */

struct scene {
    uint64_t seed;
    const struct sw_memory *memory;
    void (*body)(struct sw_rank *rank);
};

static void scene_rank(struct dyt_rank *me)
{
    const struct scene *scene = me->arg;
    struct sw_rank rank;

    if (sw_enter(&rank, me, scene->seed, RANKS, scene->memory)) {
        scene->body(&rank);
    }
    sw_rank_close(&rank);
    rank_true(me, left_behind() == 0);
}

static void play(uint64_t seed, uint64_t backup_bytes,
                 void (*body)(struct sw_rank *))
{
    struct scene scene = {.seed = sw_good_seed(seed, RANKS), .body = body};
    struct sw_stage stage = {
        .kind = DYT_RANKS_PROCESSES, .seed = scene.seed, .world_size = RANKS};

    begin(backup_bytes);
    sw_play(&stage, scene_rank, &scene, &scene.memory);
}

/* ---- sleep and wake ---------------------------------------------------------
 */

static void check_kinds(struct sw_rank *rank, uint64_t version)
{
    rank_true(rank->me, sw_check(rank, DYTI_ARENA_TRAIN, DYTI_MASTER, version));
    rank_true(rank->me,
              sw_check(rank, DYTI_ARENA_TRAIN, DYTI_EXP_AVG, version));
    rank_true(rank->me,
              sw_check(rank, DYTI_ARENA_TRAIN, DYTI_EXP_AVG_SQ, version));
}

/* Its values are there again, nothing is INVALID, and the next switch reads
 * them. */
static void sleeps_and_wakes(struct sw_rank *rank)
{
    struct dyt_rank *me = rank->me;
    struct dyti_switch_order order = {
        .epoch = 1, .version = 5, .unmanaged = true};
    struct dyti_residency_report report = {0};
    struct dyti_switch_report done;

    for (uint64_t version = 1; version < 6; version++) {
        sw_update(rank, DYTI_ARENA_TRAIN, version);
        sw_meet(rank);
        rank_ok(me, dyti_world_release(rank->world, OPTIMIZER, 0, &report));
        rank_true(me, report.bytes > 0);
        rank_true(me, dyti_world_asleep(rank->world) == OPTIMIZER);
        sw_meet(rank);
        rank_ok(me, dyti_world_release(rank->world, OPTIMIZER, 0, &report));
        rank_true(me, report.bytes == 0); /* it sleeps */
        rank_ok(me, dyti_world_restore(rank->world, OPTIMIZER, &report));
        check_kinds(rank, version);
        sw_meet(rank);
        rank_ok(me, dyti_world_refresh(rank->world));
    }
    rank_ok(me, sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, NULL,
                          &order, &done));
    rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 5));
}

/* What a receive brings is not kept. */
static void receives(struct sw_rank *rank)
{
    struct dyt_rank *me = rank->me;
    struct dyti_residency_report report = {0};
    const struct dyti_control_page *page = dyti_world_control(rank->world);

    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    sw_meet(rank);
    rank_ok(me, dyti_world_release(rank->world, OPTIMIZER, OPTIMIZER, &report));
    rank_ok(me, dyti_world_restore(rank->world, OPTIMIZER, &report));
    rank_true(me, (atomic_load(&page->rank[me->rank].lost) &
                   dyti_region_bit(DYTI_ARENA_TRAIN, DYTI_MASTER)) != 0);
    sw_meet(rank);
}

static void is_too_much(struct sw_rank *rank)
{
    struct dyt_rank *me = rank->me;
    struct dyti_residency_report report = {0};

    sw_update(rank, DYTI_ARENA_TRAIN, 3);
    sw_meet(rank);
    rank_status(me, DYT_ERR_NOMEM,
                dyti_world_release(rank->world, OPTIMIZER, 0, &report));
    rank_true(me, strstr(dyti_error_text(), "may hold 0 MiB") != NULL);
    rank_true(me, dyti_world_asleep(rank->world) == 0);
    check_kinds(rank, 3);
    sw_meet(rank);
}

static void state_comes_back_as_it_was(void **state)
{
    (void)state;
    for (uint64_t seed = 10; seed < 10 + sw_rounds(4, 1); seed++) {
        play(seed, UINT64_C(1) << 30, sleeps_and_wakes);
    }
}

static void what_is_received_is_not_kept(void **state)
{
    (void)state;
    play(20, UINT64_C(1) << 30, receives);
}

static void the_budget_holds(void **state)
{
    (void)state;
    play(30, 4096, is_too_much);
}

/* On the host it stays where it is. */
static void a_host_refuses_by_name(void **state)
{
    struct dyt_rank me = {.size = 1, .kind = DYT_RANKS_PROCESSES};
    const struct sw_device *device = sw_device;
    struct sw_memory memory;
    struct sw_rank rank;
    struct sw_case c;

    (void)state;
    sw_device = NULL;
    sw_backup_bytes = 1u << 20;
    assert_ok(sw_case_init(&c, 3, 1));
    sw_memory_open(&memory, &c, DYT_RANKS_PROCESSES);
    assert_status(DYT_ERR_UNSUPPORTED, sw_rank_open(&rank, &me, 3, 1, &memory));
    assert_error_has("[residency] optimizer = \"host\"");
    sw_rank_close(&rank);
    sw_memory_close(&memory, 1);
    sw_case_fini(&c);
    sw_device = device;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(state_comes_back_as_it_was),
    cmocka_unit_test(what_is_received_is_not_kept),
    cmocka_unit_test(the_budget_holds),
    cmocka_unit_test(a_host_refuses_by_name),
};
DYT_TEST_MAIN(tests)
