/* Switches whose streams are a broadcast, an all-gather, a scatter or a gather:
 * they run as one, every element arrives, with one slot of staging too few they
 * run in pieces, and a member that dies in one is named by all others. */
#include "switch_scene.h"

#include "mover/message/message.h"
#include "sched/chains.h"
#include "sched/collectives.h"
#ifdef DYT_TEST_GLOO
#include "comm/gloo/gloo.h"
#endif
#ifdef DYT_TEST_NCCL
#include "comm/nccl/nccl.h"
#include "gpusim/gpusim_nccl.h"
#endif

#define RANKS 5u
#define TRIPS 2u

#define ARCH_OF(layer_count, heads, groups)                                    \
    {                                                                          \
        .family = DYTI_LLAMA, .vocab = 48, .hidden = 16,                       \
        .layers = (layer_count), .q_heads = (heads), .kv_heads = (groups),     \
        .head_dim = 4, .ffn = 24, .max_positions = 64, .rms_eps = 1e-5,        \
        .init_std = 0.1, .rope = {.theta = 10000}, .dtype = DYTI_F32           \
    }
#define ARCH   ARCH_OF(3, 8, 4)
#define THREES ARCH_OF(4, 6, 3) /* nine norms: each cut sends three */

/* What is expected on the way there (train -> rollout) and back. */
static const struct {
    const char *name;
    struct sw_shape shape;
    uint32_t there, back; /* kinds, as bits */
} cases[] = {
    {"one trainer, four replicas",
     {ARCH, {1, 1, 4}, {1, 1, 1}, {1, 2, 3, 4}, {0}, 0},
     1u << DYTI_COLLECTIVE_BROADCAST,
     0},
    {"one trainer, four cuts",
     {ARCH, {4, 1, 1}, {1, 1, 1}, {1, 2, 3, 4}, {0}, 0},
     1u << DYTI_COLLECTIVE_SCATTER,
     0},
    {"four cuts, four replicas",
     {ARCH, {4, 1, 1}, {1, 1, 4}, {0, 1, 2, 3}, {0, 1, 2, 3}, 0},
     0,
     1u << DYTI_COLLECTIVE_ALL_GATHER},
    {"three cuts, one replica",
     {THREES, {1, 1, 1}, {3, 1, 1}, {0}, {1, 2, 3}, 0},
     1u << DYTI_COLLECTIVE_GATHER,
     1u << DYTI_COLLECTIVE_SCATTER},
};

static struct {
    _Atomic uint32_t *posts; /* collectives of all ranks */
    uint32_t dies_at;        /* that post of the victim's; 0: nobody dies */
    struct dyt_rank *me;
} watch;

#define VICTIM 1u

static enum dyt_status watched_post(void *self, const struct dyti_move *move,
                                    dyti_ticket *out_ticket)
{
    enum dyt_status st = dyti_mover_message.post(self, move, out_ticket);

    if (st == DYT_OK && move->kind == DYTI_MOVE_COLLECTIVE) {
        atomic_fetch_add(watch.posts, 1);
        if (watch.me != NULL && watch.dies_at > 0 && --watch.dies_at == 0) {
            watch.me->expect_death = true;
            (void)raise(SIGKILL);
        }
    }
    return st;
}

struct trip {
    uint32_t index; /* in cases */
    const struct sw_memory *memory;
    struct dyti_world_switch_options options;
    _Atomic uint32_t *aborted;
    bool dies;
};

/* ---- what is found ------------------------------------------------------- */

static uint32_t kinds_of(struct sw_case *c, enum dyti_arena_slot from,
                         enum dyti_arena_slot to, uint64_t staging)
{
    const uint32_t domain[RANKS] = {0, 1, 2, 3, 4};
    struct dyti_schedule_links links = {.domain = domain,
                                        .strategy = &dyti_strategy_optimal,
                                        .message_bytes = 512,
                                        .staging_bytes = staging};
    struct dyti_collectives found = {0};
    struct dyti_plan_inputs inputs;
    struct dyti_plan *plan = NULL;
    struct dyti_flow *flow = NULL;
    uint64_t **end = NULL;
    size_t count = 0;
    uint32_t waves = 0, kinds = 0;

    assert_ok(dyti_plan_inputs_init(c->layout[from], from, c->layout[to], to,
                                    DYTI_PLAN_KINDS_STATE, &inputs));
    assert_ok(dyti_plan_build(&inputs, &plan));
    assert_ok(dyti_schedule_flows(plan, domain, &flow, &end, &count, &waves));
    assert_ok(dyti_collectives_find(plan, &links, flow, count, NULL, &found));
    for (size_t i = 0; i < found.found.count; i++) {
        kinds |= 1u << found.found.collective[i].kind;
    }
    dyti_collectives_fini(&found);
    links.strategy = &dyti_strategy_xor; /* an opponent has none */
    assert_ok(dyti_collectives_find(plan, &links, flow, count, NULL, &found));
    assert_int_equal(0, found.found.count);
    free(flow);
    free(end);
    dyti_plan_destroy(plan);
    return kinds;
}

static void each_kind_is_found_and_only_where_slots_are(void **state)
{
    uint32_t kinds = 0;

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(cases); i++) {
        struct sw_case c;
        uint32_t there, back;

        sw_shape = &cases[i].shape;
        assert_ok(sw_case_init(&c, i, RANKS));
        there = kinds_of(&c, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, 0);
        back = kinds_of(&c, DYTI_ARENA_ROLLOUT, DYTI_ARENA_TRAIN, 0);
        print_message("%s: %x there, %x back\n", cases[i].name, there, back);
        assert_int_equal(cases[i].there, there);
        assert_int_equal(cases[i].back, back);
        kinds |= there | back;
        /* A broadcast needs one slot, the others one for each peer. */
        assert_int_equal(
            there & 1u << DYTI_COLLECTIVE_BROADCAST,
            kinds_of(&c, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, 576));
        sw_case_fini(&c);
    }
    sw_shape = NULL;
    assert_int_equal((1u << DYTI_COLLECTIVE_KIND_COUNT) - 1u, kinds);
}

/* ---- they arrive --------------------------------------------------------- */

static void there_and_back(struct sw_rank *rank, const struct trip *trip)
{
    for (uint64_t n = 0; n < TRIPS && rank->me->wrong[0] == '\0'; n++) {
        sw_there_and_back(rank, n, &trip->options, DYTI_VERIFY_FULL);
    }
}

static void one_dies(struct sw_rank *rank, const struct trip *trip)
{
    struct dyt_rank *me = rank->me;
    struct dyti_switch_report report;
    struct dyti_switch_order order = sw_order(1, 1, DYTI_VERIFY_OFF);
    enum dyt_status st;
    char name[32];

    watch.me = me->rank == VICTIM ? me : NULL;
    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    st = sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, &trip->options,
                   &order, &report);
    rank_status(me, DYT_ERR_PEER, st);
    rank_true(me, report.decision == DYTI_DECISION_ABORT);
    (void)snprintf(name, sizeof(name), "rank %u", VICTIM);
    rank_true(me, strstr(dyti_error_text(), name) != NULL);
    atomic_fetch_add(trip->aborted, 1);
}

static void trip_rank(struct dyt_rank *me)
{
    const struct trip *trip = me->arg;
    struct sw_rank rank;

    if (sw_enter(&rank, me, trip->index, RANKS, trip->memory)) {
        (trip->dies ? one_dies : there_and_back)(&rank, trip);
    }
    sw_rank_close(&rank);
}

static void on_death(uint32_t rank, void *arg)
{
    const struct trip *trip = arg;

    dyti_control_abort(trip->memory->control_mem.base, &dyti_wait_futex, rank,
                       DYT_ERR_PEER);
}

/* Ranks that aborted. */
static uint32_t run(enum dyt_ranks_kind kind, uint32_t index, uint64_t staging,
                    uint32_t dies_at)
{
    static struct dyti_mover_ops watched;
    struct trip trip = {.index = index,
                        .aborted = dyt_ranks_shared(4096),
                        .dies = dies_at > 0,
                        .options = {.mover = DYTI_WORLD_MESSAGE,
                                    .message_bytes = 512,
                                    .staging_bytes = staging}};
    struct sw_stage stage = {.kind = kind, .seed = index, .world_size = RANKS};
    uint32_t seen;

    watched = dyti_mover_message;
    watched.post = watched_post;
    watch.dies_at = dies_at;
    watch.me = NULL;
    sw_message = &watched;
    sw_shape = &cases[index].shape;
    dyt_ranks_on_death = dies_at > 0 ? on_death : NULL;
    sw_play(&stage, trip_rank, &trip, &trip.memory);
    dyt_ranks_on_death = NULL;
    sw_shape = NULL;
    seen = atomic_load(trip.aborted);
    munmap(trip.aborted, 4096);
    return seen;
}

static void arrive(enum dyt_ranks_kind kind)
{
    /* As many slots as there are peers, all, one: then only broadcasts. */
    static const uint64_t staging[] = {4 * 576, 0, 576};

    watch.posts = dyt_ranks_shared(4096);
    for (uint32_t i = 0; i < DYT_TEST_COUNT(cases); i++) {
        for (size_t k = 0; k < sw_rounds(3, 1); k++) {
            uint32_t posts;
            bool some = k < 2 || ((cases[i].there | cases[i].back) &
                                  1u << DYTI_COLLECTIVE_BROADCAST) != 0;

            atomic_store(watch.posts, 0);
            assert_int_equal(0, run(kind, i, staging[k], 0));
            posts = atomic_load(watch.posts);
            print_message("%s, staging %" PRIu64 ": %u collectives\n",
                          cases[i].name, staging[k], posts);
            assert_true(some ? posts > 0 : posts == 0);
        }
    }
    munmap(watch.posts, 4096);
}

static void they_arrive_in_threads(void **state)
{
    (void)state;
    arrive(DYT_RANKS_THREADS);
}

#ifndef SW_CUDA /* enough of them below, by NCCL */
static void they_arrive_in_processes(void **state)
{
    (void)state;
    arrive(DYT_RANKS_PROCESSES);
}
#endif

#ifdef DYT_TEST_GLOO
static void they_arrive_over_tcp(void **state)
{
    (void)state;
    sw_group = &dyti_group_gloo;
    arrive(DYT_RANKS_PROCESSES);
    sw_group = &dyti_group_shm;
}
#endif

/* In the first, a middle and a later one that it takes part in. */
static inline void die_in_one(const uint32_t *of_case, size_t count)
{
    watch.posts = dyt_ranks_shared(4096);
    for (size_t i = 0; i < count; i++) {
        uint32_t first = sw_device == NULL ? 1 : 2;

        for (uint32_t at = first; at < first + sw_rounds(3, 1); at++) {
            assert_int_equal(RANKS - 1,
                             run(DYT_RANKS_PROCESSES, of_case[i], 0, at));
        }
    }
    munmap(watch.posts, 4096);
}

#ifndef SW_CUDA
static void a_death_in_one_is_named_by_all_others(void **state)
{
    static const uint32_t of_case[] = {0, 1, 3}; /* those on the way there */

    (void)state;
    die_in_one(of_case, DYT_TEST_COUNT(of_case));
}
#endif

#ifdef DYT_TEST_NCCL
/* ---- by a group of devices ------------------------------------------------
 */

/* Those among all ranks, or among the ranks along one dimension of a layout,
 * are calls of NCCL; others are messages. */
static void nccl_makes_those_of_its_teams(void **state)
{
    static const uint64_t staging[] = {4 * 576, 0, 576};
    uint64_t rounds = sw_rounds(3, 1);

    (void)state;
    sw_message_group = &dyti_group_nccl;
    watch.posts = dyt_ranks_shared(4096);
    for (uint32_t i = 0; i < DYT_TEST_COUNT(cases); i++) {
        for (size_t k = 0; k < rounds; k++) {
            uint32_t kinds = cases[i].there | cases[i].back;
            bool spreads = (kinds & 1u << DYTI_COLLECTIVE_BROADCAST) != 0;
            bool gathers = (kinds & 1u << DYTI_COLLECTIVE_ALL_GATHER) != 0;
            struct gpusim_nccl_counts counts;

            gpusim_reset();
            atomic_store(watch.posts, 0);
            assert_int_equal(0, run(DYT_RANKS_THREADS, i, staging[k], 0));
            gpusim_nccl_get_counts(&counts);
            print_message(
                "%s: %u posts, %" PRIu64 " broadcasts, %" PRIu64
                " all-gathers, %" PRIu64 " sends, %" PRIu64 " registers\n",
                cases[i].name, atomic_load(watch.posts), counts.broadcasts,
                counts.all_gathers, counts.sends, counts.registers);
            assert_int_equal(spreads, counts.broadcasts > 0);
            assert_int_equal(gathers, counts.all_gathers > 0);
            if (spreads || gathers) { /* all of them */
                assert_int_equal(atomic_load(watch.posts),
                                 counts.broadcasts + counts.all_gathers);
            }
            assert_true(counts.registers > 0);
            assert_int_equal(0, counts.live);
        }
    }
    munmap(watch.posts, 4096);
    sw_message_group = NULL;
}

static void over_nccl_they_arrive_in_processes(void **state)
{
    (void)state;
    sw_message_group = &dyti_group_nccl;
    arrive(DYT_RANKS_PROCESSES);
    sw_message_group = NULL;
}

static void a_death_in_a_call_of_nccl_is_named(void **state)
{
    static const uint32_t of_case[] = {0};

    (void)state;
    sw_message_group = &dyti_group_nccl;
    die_in_one(of_case, DYT_TEST_COUNT(of_case));
    sw_message_group = NULL;
}
#endif

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_kind_is_found_and_only_where_slots_are),
    cmocka_unit_test(they_arrive_in_threads),
#ifndef SW_CUDA
    cmocka_unit_test(they_arrive_in_processes),
#endif
#ifdef DYT_TEST_GLOO
    cmocka_unit_test(they_arrive_over_tcp),
#endif
#ifndef SW_CUDA
    cmocka_unit_test(a_death_in_one_is_named_by_all_others),
#endif
#ifdef DYT_TEST_NCCL
    cmocka_unit_test(nccl_makes_those_of_its_teams),
    cmocka_unit_test(over_nccl_they_arrive_in_processes),
    cmocka_unit_test(a_death_in_a_call_of_nccl_is_named),
#endif
};
DYT_TEST_MAIN(tests)
