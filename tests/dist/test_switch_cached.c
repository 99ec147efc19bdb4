/* The second switch between two layouts plans nothing, sets no group up and
 * allocates nothing, and each rank says the same few things to the others
 * however much there is to move: counted, not assumed.  A thousand switches
 * leave memory, files and addresses as they were. */
#include "count_alloc.h"
#include "switch_scene.h"

#include "mover/message/message.h"

#include <malloc.h>

#define SWITCHES 1000u

/* ---- counting ------------------------------------------------------------ */

/* Collectives and messages of all groups, opens apart. */
static struct dyti_group_ops counted;
static _Atomic uint64_t opens, collectives, posts;

static enum dyt_status counted_open(const struct dyti_group_params *params,
                                    void **out_self)
{
    atomic_fetch_add(&opens, 1);
    return dyti_group_shm.open(params, out_self);
}

static enum dyt_status counted_barrier(void *self)
{
    atomic_fetch_add(&collectives, 1);
    return dyti_group_shm.barrier(self);
}

static enum dyt_status counted_all_gather(void *self, const void *in, void *out,
                                          const uint64_t *counts)
{
    atomic_fetch_add(&collectives, 1);
    return dyti_group_shm.all_gather(self, in, out, counts);
}

static enum dyt_status counted_all_reduce(void *self, void *buf, uint64_t count,
                                          enum dyti_reduce op)
{
    atomic_fetch_add(&collectives, 1);
    return dyti_group_shm.all_reduce(self, buf, count, op);
}

static enum dyt_status counted_post(void *self, const struct dyti_p2p *message,
                                    uint64_t *out_ticket)
{
    atomic_fetch_add(&posts, 1);
    return dyti_group_shm.post(self, message, out_ticket);
}

static void count_groups(void)
{
    counted = dyti_group_shm;
    counted.open = counted_open;
    counted.barrier = counted_barrier;
    counted.all_gather = counted_all_gather;
    counted.all_reduce = counted_all_reduce;
    counted.post = counted_post;
    sw_group = &counted;
}

/* ---- ranks --------------------------------------------------------------- */

struct plan {
    const struct sw_memory *memory;
    struct dyti_world_switch_options options;
    uint64_t switches;
    uint64_t seed;
    uint32_t world_size;
    _Atomic uint32_t *met; /* ranks are threads: all look at the counts */
    uint64_t collectives;  /* of a rank and a switch, out */
    uint64_t messages;     /* of all, out */
};

static void meet(const struct plan *plan, uint32_t n)
{
    (void)atomic_fetch_add(plan->met, 1);
    while (atomic_load(plan->met) < n * plan->world_size) {
    }
}

static void one(struct sw_rank *rank, const struct plan *plan, uint64_t epoch)
{
    struct dyti_switch_report report;
    struct dyti_switch_order order = sw_order(epoch, epoch, DYTI_VERIFY_SAMPLE);
    bool there = epoch % 2 == 1;

    rank_ok(rank->me,
            sw_switch(rank, there ? DYTI_ARENA_TRAIN : DYTI_ARENA_ROLLOUT,
                      there ? DYTI_ARENA_ROLLOUT : DYTI_ARENA_TRAIN,
                      &plan->options, &order, &report));
}

static uint64_t arena_bytes(const struct sw_rank *rank)
{
    struct dyti_world_owner owner[32];
    uint64_t sum = 0;
    size_t count = 0;

    if (dyti_world_memory(rank->world, owner, DYT_TEST_COUNT(owner), &count) ==
        DYT_OK) {
        for (size_t i = 0; i < count; i++) {
            /* the rings of the groups are touched as they are used */
            sum += strcmp(owner[i].name, "control") == 0
                       ? 0
                       : owner[i].touched_bytes;
        }
    }
    return sum;
}

/* Bytes of the heap in use, of glibc's.  A sanitizer brings its own heap, where
 * glibc's would be set up by this very question, by all threads at once, which
 * it does not survive. */
static uint64_t heap_bytes(void)
{
    return dyt_test_instrumented() ? 0 : mallinfo2().uordblks;
}

static void run_cached(struct sw_rank *rank, struct plan *plan)
{
    struct dyt_rank *me = rank->me;
    uint64_t allocated, opened, said, sent = 0, arena, heap;
    void *param =
        dyti_world_region(rank->world, me->rank, DYTI_ARENA_TRAIN, DYTI_PARAM);

    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    for (uint64_t epoch = 1; epoch <= 4 && me->wrong[0] == '\0'; epoch++) {
        one(rank, plan, epoch); /* planned and touched twice */
    }
    arena = arena_bytes(rank);
    meet(plan, 1);
    allocated = atomic_load(&allocations);
    opened = atomic_load(&opens);
    said = atomic_load(&collectives);
    sent = atomic_load(&posts);
    heap = heap_bytes();
    meet(plan, 2);
    for (uint64_t epoch = 5; epoch < 5 + plan->switches && me->wrong[0] == '\0';
         epoch++) {
        one(rank, plan, epoch);
    }
    meet(plan, 3);
    if (atomic_load(&allocations) != allocated ||
        atomic_load(&opens) != opened || heap_bytes() != heap) {
        rank_wrong(me,
                   "%" PRIu64 " allocations, %" PRIu64 " groups in %" PRIu64
                   " switches",
                   atomic_load(&allocations) - allocated,
                   atomic_load(&opens) - opened, plan->switches);
    }
    if (me->rank == 0) {
        plan->collectives = (atomic_load(&collectives) - said) /
                            plan->switches / plan->world_size;
    }
    if (me->rank == 0) {
        plan->messages = atomic_load(&posts) - sent;
    }
    meet(plan, 4);
    rank_true(me, arena_bytes(rank) == arena);
    rank_true(me, param == dyti_world_region(rank->world, me->rank,
                                             DYTI_ARENA_TRAIN, DYTI_PARAM));
    rank_true(me, plan->switches % 2 == 1 ||
                      sw_check_all(rank, DYTI_ARENA_TRAIN, 1));
}

static void cached_rank(struct dyt_rank *me)
{
    struct plan *plan = me->arg;
    struct sw_rank rank;

    if (sw_enter(&rank, me, plan->seed, plan->world_size, plan->memory)) {
        run_cached(&rank, plan);
    } else {
        atomic_fetch_add(plan->met, 1u << 20); /* nobody waits for this one */
    }
    sw_rank_close(&rank);
}

static uint64_t run_plan(uint64_t seed, uint32_t world_size,
                         enum dyti_world_mover mover, uint64_t switches,
                         uint64_t *out_messages)
{
    _Atomic uint32_t met = 0;
    struct plan plan = {
        .options = {.mover = mover, .message_bytes = sw_host == NULL ? 0 : 512},
        .switches = switches,
        .seed = seed,
        .world_size = world_size,
        .met = &met};
    struct sw_stage stage = {
        .kind = DYT_RANKS_THREADS, .seed = seed, .world_size = world_size};

    count_groups();
    sw_message = &dyti_mover_message;
    sw_play(&stage, cached_rank, &plan, &plan.memory);
    *out_messages = plan.messages;
    return plan.collectives;
}

/* As many for a switch of a few boxes as of thousands, of two ranks or four. */
static void later_switches_allocate_nothing_and_say_little(void **state)
{
    static const enum dyti_world_mover movers[] = {DYTI_WORLD_DIRECT,
                                                   DYTI_WORLD_MESSAGE};

    (void)state;
    for (size_t m = 0; m < DYT_TEST_COUNT(movers); m++) {
        uint64_t sent, all;
        uint64_t first = run_plan(3, 2, movers[m], 10, &all);

        print_message("%" PRIu64 " collectives of a rank in a switch\n", first);
        assert_in_range(first, 1, 6);
        for (uint64_t seed = 4; seed < 12; seed++) {
            assert_int_equal(first, run_plan(seed, 4, movers[m], 10, &sent));
            all += sent;
        }
        assert_true((all > 0) == (movers[m] == DYTI_WORLD_MESSAGE));
    }
}

/* One copy into a host, then from rank to rank: no more is said for it. */
static void so_do_those_between_hosts(void **state)
{
    static const uint32_t two[SW_RANKS_MAX] = {0, 0, 1, 1};
    static const uint32_t three[SW_RANKS_MAX] = {0, 1, 2, 2};
    uint64_t sent, all = 0;
    uint64_t first = run_plan(3, 2, DYTI_WORLD_DIRECT, 2, &sent);

    (void)state;
    for (uint64_t seed = 4; seed < 16; seed++) {
        sw_host = seed % 2 == 0 ? two : three;
        assert_int_equal(first, run_plan(seed, 4, DYTI_WORLD_AUTO, 10, &sent));
        all += sent;
    }
    sw_host = NULL;
    assert_true(all > 0);
}

static void a_thousand_switches_leave_no_trace(void **state)
{
    uint64_t sent;

    (void)state;
    (void)run_plan(5, 3, DYTI_WORLD_DIRECT, SWITCHES, &sent);
    (void)run_plan(6, 3, DYTI_WORLD_MESSAGE, SWITCHES, &sent);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(later_switches_allocate_nothing_and_say_little),
    cmocka_unit_test(so_do_those_between_hosts),
    cmocka_unit_test(a_thousand_switches_leave_no_trace),
};
DYT_TEST_MAIN(tests)
