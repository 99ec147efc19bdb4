/* What a world does with NCCL besides messages: teams that are split once and
 * used again, buffers that it is told of while they have memory, members that
 * die while teams are made, in a call of a team, or after. */
#include "switch_world.h"

#ifdef DYT_TEST_GLOO
#include "comm/gloo/gloo.h"
#endif
#include "comm/nccl/nccl.h"
#include "edm/residency.h"
#include "gpusim/gpusim_nccl.h"
#include "mover/message/message.h"

#include <cuda_runtime_api.h>

#define RANKS  5u
#define VICTIM 1u

/* There a broadcast to all, back an all-gather along each dimension. */
static const struct sw_shape shape = {.arch = {.family = DYTI_LLAMA,
                                               .vocab = 48,
                                               .hidden = 16,
                                               .layers = 2,
                                               .q_heads = 8,
                                               .kv_heads = 4,
                                               .head_dim = 4,
                                               .ffn = 24,
                                               .max_positions = 64,
                                               .rms_eps = 1e-5,
                                               .init_std = 0.1,
                                               .rope = {.theta = 10000},
                                               .dtype = DYTI_F32},
                                      .rollout = {4, 1, 1},
                                      .train = {1, 1, 4},
                                      .rollout_ranks = {0, 1, 2, 3},
                                      .train_ranks = {0, 1, 2, 3}};

struct scene {
    const struct sw_memory *memory;
    void (*body)(struct sw_rank *rank, const struct scene *scene);
    _Atomic uint32_t
        *ended; /* ranks that have come to the end as they should */
    bool opens; /* the body opens the world */
};

static const struct dyti_world_switch_options by_messages = {
    .mover = DYTI_WORLD_MESSAGE,
    .no_fan_out = true,
    .message_bytes = 512,
    .staging_bytes = 4 * 576};

static void scene_rank(struct dyt_rank *me)
{
    const struct scene *scene = me->arg;
    struct sw_rank rank = {.me = me};

    if (scene->opens) {
        scene->body(&rank, scene);
    } else if (sw_rank_open(&rank, me, 1, RANKS, scene->memory) != DYT_OK) {
        rank_wrong(me, "%s", dyti_error_text());
    } else {
        scene->body(&rank, scene);
    }
    if (me->wrong[0] == '\0') {
        (void)atomic_fetch_add(scene->ended, 1);
    }
    sw_rank_close(&rank);
}

static void on_death(uint32_t rank, void *arg)
{
    const struct scene *scene = arg;

    dyti_control_abort(scene->memory->control_mem.base, &dyti_wait_futex, rank,
                       DYT_ERR_PEER);
}

/* How many ranks have come to their end. */
static uint32_t play(enum dyt_ranks_kind kind, struct scene *scene)
{
    struct dyti_arena_options options = {.work_bytes = 3u << 20};
    struct sw_memory memory;
    struct sw_case c;
    uint32_t ended;

    gpusim_reset();
    sw_message = &dyti_mover_message;
    sw_message_group = &dyti_group_nccl;
    sw_shape = &shape;
    scene->ended = dyt_ranks_shared(4096);
    assert_ok(sw_case_init_mode(&c, 1, RANKS, &options));
    sw_memory_open(&memory, &c, kind);
    scene->memory = &memory;
    dyt_ranks_on_death = on_death;
    dyt_ranks_run(kind, RANKS, scene_rank, scene);
    dyt_ranks_on_death = NULL;
    sw_memory_close(&memory, RANKS);
    sw_case_fini(&c);
    ended = atomic_load(scene->ended);
    munmap((void *)scene->ended, 4096);
    return ended;
}

static enum dyt_status go(struct sw_rank *rank, uint64_t n,
                          struct dyti_switch_report *report)
{
    struct dyti_switch_order order = sw_order(n + 1, n + 1, sw_verify(n));
    bool out = n % 2 == 0;

    return sw_switch(rank, out ? DYTI_ARENA_TRAIN : DYTI_ARENA_ROLLOUT,
                     out ? DYTI_ARENA_ROLLOUT : DYTI_ARENA_TRAIN, &by_messages,
                     &order, report);
}

/* Goes on, to where the others are. */
static void meet(const struct sw_rank *rank)
{
    struct dyti_group all = dyti_world_all(rank->world);

    if (all.ops->barrier(all.self) != DYT_OK) {
        rank_wrong(rank->me, "%s", dyti_error_text());
    }
}

/* ---- teams are made once ------------------------------------------------- */

static void teams_stay(struct sw_rank *rank, const struct scene *scene)
{
    struct dyti_switch_report report;
    struct gpusim_nccl_counts first, later;
    struct dyt_rank *me = rank->me;

    (void)scene;
    meet(rank);
    gpusim_nccl_get_counts(&first);
    meet(rank);
    /* an id for all; the lane of messages; one split for the two disjoint sets
     * of both layouts, {0 … 3}, which are one set */
    rank_true(me, first.inits == RANKS);
    rank_true(me, first.splits == RANKS * 2);
    rank_true(me, first.live == 2 * RANKS + 4);
    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    for (uint64_t n = 0; n < 2; n++) {
        rank_ok(me, go(rank, n, &report));
    }
    meet(rank);
    gpusim_nccl_get_counts(&first);
    meet(rank);
    rank_true(me, first.all_gathers > 0);
    for (uint64_t n = 2; n < 6; n++) {
        rank_ok(me, go(rank, n, &report));
    }
    meet(rank);
    gpusim_nccl_get_counts(&later);
    meet(rank);
    rank_true(me, later.all_gathers == 3 * first.all_gathers);
    rank_true(me, later.inits == first.inits && later.splits == first.splits);
    rank_true(me, later.registers == first.registers);
    rank_true(me, later.live == first.live);
    rank_true(me, sw_check_all(rank, DYTI_ARENA_TRAIN, 1));
}

static void a_later_switch_makes_no_group(void **state)
{
    struct scene scene = {.body = teams_stay};
    struct gpusim_nccl_counts counts;

    (void)state;
    assert_int_equal(RANKS, play(DYT_RANKS_THREADS, &scene));
    gpusim_nccl_get_counts(&counts);
    assert_int_equal(0, counts.live);
    assert_int_equal(0, gpusim_leaks());
    assert_int_equal(0, gpusim_unexpected());
}

/* ---- buffers ------------------------------------------------------------- */

/* The simulator says when memory goes that is still registered. */
static void sleepers(struct sw_rank *rank, const struct scene *scene)
{
    const uint32_t tags =
        DYTI_TAG_BIT(DYTI_TAG_WEIGHTS) | DYTI_TAG_BIT(DYTI_TAG_KV_CACHE);
    struct dyti_residency_report memory;
    struct gpusim_nccl_counts awake, asleep, again;
    struct dyti_switch_report report;
    struct dyt_rank *me = rank->me;

    (void)scene;
    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    rank_ok(me, go(rank, 0, &report));
    gpusim_nccl_get_counts(&awake);
    meet(rank); /* the switch has ended on all */
    rank_ok(me, dyti_world_release(rank->world, tags, 0, &memory));
    rank_true(me, memory.bytes > 0);
    gpusim_nccl_get_counts(&asleep);
    meet(rank);
    rank_ok(me, dyti_world_refresh(rank->world));
    meet(rank);
    rank_ok(me, dyti_world_restore(rank->world, tags, &memory));
    gpusim_nccl_get_counts(&again);
    meet(rank);
    rank_ok(me, dyti_world_refresh(rank->world));
    rank_true(me, asleep.registered < awake.registered);
    rank_true(me, again.registered == awake.registered);
    meet(rank);
    sw_update(rank, DYTI_ARENA_TRAIN, 2);
    rank_ok(me, go(rank, 2, &report));
    rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 2));
}

static void what_sleeps_is_not_registered(void **state)
{
    struct scene scene = {.body = sleepers};

    (void)state;
    assert_int_equal(RANKS, play(DYT_RANKS_PROCESSES, &scene));
}

static void without(struct sw_rank *rank, const struct scene *scene)
{
    const struct gpusim_nccl_faults faults = {.fail_register = true};
    struct gpusim_nccl_counts counts;
    struct dyti_switch_report report;
    struct dyt_rank *me = rank->me;

    gpusim_nccl_set_faults(&faults);
    rank_ok(me, sw_rank_open(rank, me, 1, RANKS, scene->memory));
    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    for (uint64_t n = 0; n < 2; n++) {
        rank_ok(me, go(rank, n, &report));
    }
    gpusim_nccl_get_counts(&counts);
    rank_true(me, counts.registers == 0 &&
                      (me->rank == RANKS - 1 || counts.all_gathers > 0));
    rank_true(me, sw_check_all(rank, DYTI_ARENA_TRAIN, 1));
}

static void a_refusal_is_no_error(void **state)
{
    struct scene scene = {.body = without, .opens = true};

    (void)state;
    assert_int_equal(RANKS, play(DYT_RANKS_PROCESSES, &scene));
}

/* ---- deaths -------------------------------------------------------------- */

static uint32_t dies_at; /* that call of the victim's */
static struct dyt_rank *victim;
static struct dyti_group_ops deadly;

static void maybe_die(void)
{
    if (victim != NULL && dies_at > 0 && --dies_at == 0) {
        victim->expect_death = true;
        (void)raise(SIGKILL);
    }
}

static enum dyt_status deadly_make_team(void *self, uint32_t color,
                                        const uint32_t *member, uint32_t size,
                                        void **out_team)
{
    maybe_die();
    return dyti_group_nccl.make_team(self, color, member, size, out_team);
}

static enum dyt_status deadly_attach(void *self, void *base, uint64_t bytes)
{
    maybe_die();
    return dyti_group_nccl.attach(self, base, bytes);
}

static enum dyt_status deadly_post_joint(void *self,
                                         const struct dyti_joint *joint,
                                         uint64_t *out_ticket)
{
    enum dyt_status st = dyti_group_nccl.post_joint(self, joint, out_ticket);

    maybe_die(); /* it is joined, and never begun by this one */
    return st;
}

static void die_or_hear(struct sw_rank *rank, const struct scene *scene)
{
    struct dyti_switch_report report = {0};
    struct dyt_rank *me = rank->me;
    enum dyt_status st;

    sw_message_group = &deadly;
    victim = me->rank == VICTIM ? me : NULL;
    st = sw_rank_open(rank, me, 1, RANKS, scene->memory);
    for (uint64_t n = 0; n < 2 && st == DYT_OK; n++) {
        if (n == 0) {
            sw_update(rank, DYTI_ARENA_TRAIN, 1);
        }
        st = go(rank, n, &report);
        rank_true(me,
                  (st == DYT_OK) == (report.decision == DYTI_DECISION_COMMIT));
    }
    rank_status(me, DYT_ERR_PEER, st);
    rank_true(me, strstr(dyti_error_text(), "rank 1") != NULL);
}

static void deadly_in(uint32_t call)
{
    struct scene scene = {.body = die_or_hear, .opens = true};

    dies_at = call;
    assert_int_equal(RANKS - 1, play(DYT_RANKS_PROCESSES, &scene));
}

static void a_death_is_named_wherever_it_is(void **state)
{
    (void)state;
    deadly = dyti_group_nccl;
    deadly.make_team = deadly_make_team;
    deadly_in(1);
    deadly = dyti_group_nccl;
    deadly.attach = deadly_attach;
    deadly_in(1); /* the arena, when the world opens */
    deadly = dyti_group_nccl;
    deadly.post_joint = deadly_post_joint;
    for (uint32_t at = 1; at <= 3; at++) {
        deadly_in(at);
    }
}

/* ---- two hosts ----------------------------------------------------------- */

static const uint32_t two_hosts[RANKS] = {0, 0, 1, 1, 1};

static void between_hosts(struct sw_rank *rank, const struct scene *scene)
{
    struct gpusim_nccl_counts counts;
    struct dyti_switch_report report;
    struct dyt_rank *me = rank->me;

    (void)scene;
    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    for (uint64_t n = 0; n < 4; n++) {
        rank_ok(me, go(rank, n, &report));
    }
    gpusim_nccl_get_counts(&counts);
    rank_true(me, me->rank == RANKS - 1 || counts.all_gathers > 0);
    rank_true(me, sw_check_all(rank, DYTI_ARENA_TRAIN, 1));
}

/* What members would share is carried by a group of hosts. */
static void over(const struct dyti_group_ops *hosts)
{
    struct scene scene = {.body = between_hosts};

    sw_group = hosts;
    sw_host = two_hosts;
    assert_int_equal(RANKS, play(DYT_RANKS_PROCESSES, &scene));
    deadly = dyti_group_nccl;
    deadly.post_joint = deadly_post_joint;
    deadly_in(2);
    sw_host = NULL;
    sw_group = &dyti_group_shm;
}

static void teams_span_hosts(void **state)
{
    (void)state;
    over(&dyti_group_shm);
}

#ifdef DYT_TEST_GLOO
static void teams_span_hosts_over_tcp(void **state)
{
    (void)state;
    over(&dyti_group_gloo);
}
#endif

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_later_switch_makes_no_group),
    cmocka_unit_test(what_sleeps_is_not_registered),
    cmocka_unit_test(a_refusal_is_no_error),
    cmocka_unit_test(a_death_is_named_wherever_it_is),
    cmocka_unit_test(teams_span_hosts),
#ifdef DYT_TEST_GLOO
    cmocka_unit_test(teams_span_hosts_over_tcp),
#endif
};
DYT_TEST_MAIN(tests)
