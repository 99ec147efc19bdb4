/* What a switch takes is what was said before: source and destination regions,
 * by pages that were touched and by what is abandoned afterwards; and all ranks
 * refuse a cap alike, before anything moves: in place as the check has said. */
#include "switch_scene.h"

#include "cli/switch_memory.h"
#include "mover/message/message.h"

#define PAGE 4096u

struct trip {
    uint64_t seed;
    uint32_t world_size;
    const struct sw_memory *memory;
};

static struct dyti_assembly assembly_of(struct sw_rank *rank,
                                        const struct dyti_job *job)
{
    struct dyti_assembly a = {.job = job,
                              .model = rank->c.model,
                              .map = rank->c.map,
                              .world_size = rank->c.world_size};

    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
        a.layout[s] = rank->c.layout[s];
    }
    return a;
}

/* Touched pages of a slot's regions. */
static uint64_t touched(const struct sw_rank *rank, enum dyti_arena_slot slot)
{
    const char *name = slot == DYTI_ARENA_ROLLOUT ? "rollout " : "train ";
    struct dyti_world_owner owner[32];
    uint64_t sum = 0;
    size_t count = 0;

    if (dyti_world_memory(rank->world, owner, DYT_TEST_COUNT(owner), &count) !=
        DYT_OK) {
        rank_wrong(rank->me, "%s", dyti_error_text());
    }
    for (size_t i = 0; i < count; i++) {
        sum += strncmp(owner[i].name, name, strlen(name)) == 0
                   ? owner[i].touched_bytes
                   : 0;
    }
    return sum;
}

static bool abandoned(const struct sw_rank *rank, enum dyti_arena_slot slot,
                      enum dyti_kind kind)
{
    const uint16_t *at =
        dyti_world_region(rank->world, rank->me->rank, slot, kind);

    return at != NULL && *at == 0xffff; /* filled with NaN, in test builds */
}

/* Sum of the abandoned regions of the slot that a switch has left. */
static uint64_t left_behind(const struct sw_rank *rank,
                            enum dyti_arena_slot slot)
{
    uint64_t sum = 0;

    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        sum += k != DYTI_GRAD && abandoned(rank, slot, (enum dyti_kind)k)
                   ? rank->c.map[rank->me->rank].bytes[slot][k]
                   : 0;
    }
    return sum;
}

static void caps_are_refused(struct sw_rank *rank,
                             const struct dyti_assembly *a)
{
    uint64_t least = dyti_switch_memory_least(a);
    char text[32];

    snprintf(text, sizeof(text), "meets is %" PRIu64, least);
    rank_ok(rank->me, dyti_switch_memory_check(a, 0));
    rank_ok(rank->me, dyti_switch_memory_check(a, least));
    if (least == 0) {
        return; /* no rank has a part in both layouts */
    }
    rank_true(rank->me,
              dyti_switch_memory_check(a, least - 1) == DYT_ERR_CONFIG);
    rank_true(rank->me, strstr(dyti_error_text(), text) != NULL);
}

static void trip_body(struct sw_rank *rank)
{
    struct dyti_job job = {.path = (char *)(uintptr_t) "job.toml"};
    struct dyti_assembly a = assembly_of(rank, &job);
    struct dyt_rank *me = rank->me;
    struct dyti_switch_memory m = dyti_switch_memory_of(
        &a, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, me->rank);
    struct dyti_switch_order order = {
        .epoch = 1, .version = 1, .unmanaged = true};
    struct dyti_switch_report report;
    uint64_t pages;

    caps_are_refused(rank, &a);
    rank_true(me, touched(rank, DYTI_ARENA_ROLLOUT) == 0);
    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    rank_ok(me, sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, NULL,
                          &order, &report));
    pages = touched(rank, DYTI_ARENA_ROLLOUT);
    rank_true(me, pages >= m.destination_bytes &&
                      pages < m.destination_bytes + DYTI_KIND_COUNT * PAGE);
    rank_true(me, left_behind(rank, DYTI_ARENA_TRAIN) == m.source_bytes);
    rank_true(me, m.resident_bytes + m.source_bytes + m.destination_bytes ==
                      rank->c.map[me->rank].total_bytes);
    /* And back. */
    m = dyti_switch_memory_of(&a, DYTI_ARENA_ROLLOUT, DYTI_ARENA_TRAIN,
                              me->rank);
    order.epoch = 2;
    rank_ok(me, sw_switch(rank, DYTI_ARENA_ROLLOUT, DYTI_ARENA_TRAIN, NULL,
                          &order, &report));
    rank_true(me, left_behind(rank, DYTI_ARENA_ROLLOUT) == m.source_bytes);
    rank_true(me, left_behind(rank, DYTI_ARENA_TRAIN) == 0);
}

static void trip_rank(struct dyt_rank *me)
{
    const struct trip *trip = me->arg;
    struct sw_rank rank;

    if (sw_enter(&rank, me, trip->seed, trip->world_size, trip->memory)) {
        trip_body(&rank);
    }
    sw_rank_close(&rank);
}

static void run_trips(enum dyt_ranks_kind kind, uint64_t first)
{
    for (uint64_t seed = first; seed < first + 15; seed++) {
        struct trip trip = {.seed = seed,
                            .world_size = 1 + sw_draw(seed, 8, 4)};
        struct sw_stage stage = {
            .kind = kind, .seed = seed, .world_size = trip.world_size};

        sw_play(&stage, trip_rank, &trip, &trip.memory);
    }
}

static void threads_take_what_was_said(void **state)
{
    (void)state;
    run_trips(DYT_RANKS_THREADS, 100);
}

static void processes_take_what_was_said(void **state)
{
    (void)state;
    run_trips(DYT_RANKS_PROCESSES, 200);
}

/* ---- in place ---------------------------------------------------------------
 */

struct in_place {
    const struct sw_memory *memory;
    uint64_t seed;
    uint32_t world_size;
    bool messages, refused;
};

/* What the check says beforehand is what each rank says when it prepares. */
static void prepare_in_place(struct dyt_rank *me)
{
    const struct in_place *p = me->arg;
    struct dyti_world_switch_options options = {
        .mover = p->messages ? DYTI_WORLD_MESSAGE : DYTI_WORLD_AUTO};
    struct dyti_switch *to = NULL, *back = NULL;
    struct sw_rank rank;
    enum dyt_status st;

    if (sw_enter(&rank, me, p->seed, p->world_size, p->memory)) {
        st = dyti_world_prepare(rank.world, DYTI_ARENA_TRAIN,
                                DYTI_ARENA_ROLLOUT, &options, &to, NULL);
        st = st != DYT_OK
                 ? st
                 : dyti_world_prepare(rank.world, DYTI_ARENA_ROLLOUT,
                                      DYTI_ARENA_TRAIN, &options, &back, NULL);
        if (st != (p->refused ? DYT_ERR_UNSUPPORTED : DYT_OK)) {
            rank_wrong(me, "prepared: %s, seed %" PRIu64, dyt_status_name(st),
                       p->seed);
        }
    }
    sw_rank_close(&rank);
}

/* The answer beforehand, and the smallest cap that it names. */
static uint64_t check_in_place(uint64_t seed, uint32_t world_size,
                               uint64_t staging_bytes, bool messages)
{
    static const char words[] = "every rank meets is ";
    struct dyti_arena_options options = {.mode = DYTI_MODE_IN_PLACE,
                                         .work_bytes = SW_WORK_BYTES,
                                         .staging_bytes = staging_bytes};
    struct dyti_job job = {.path = (char *)(uintptr_t) "job.toml"};
    struct in_place p = {
        .seed = seed, .world_size = world_size, .messages = messages};
    struct dyti_assembly a = {.job = &job,
                              .world_size = world_size,
                              .mode = DYTI_MODE_IN_PLACE,
                              .staging_bytes = staging_bytes};
    struct sw_memory memory;
    struct sw_case c;
    uint64_t least = 0;

    assert_ok(sw_case_init_mode(&c, seed, world_size, &options));
    a.model = c.model;
    a.map = c.map;
    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
        a.layout[s] = c.layout[s];
    }
    job.sw.mover = messages ? DYTI_JOB_MESSAGE : DYTI_JOB_AUTO;
    if (dyti_switch_memory_check(&a, staging_bytes) != DYT_OK) {
        const char *at = strstr(dyti_error_text(), words);

        assert_non_null(at);
        least = strtoull(at + strlen(words), NULL, 10);
        assert_true(least > staging_bytes);
    }
    p.refused = least > 0;
    sw_message = messages ? &dyti_mover_message : NULL;
    sw_memory_open(&memory, &c, DYT_RANKS_THREADS);
    p.memory = &memory;
    dyt_ranks_run(DYT_RANKS_THREADS, world_size, prepare_in_place, &p);
    sw_memory_close(&memory, world_size);
    sw_message = NULL;
    sw_case_fini(&c);
    return least;
}

static void in_place_is_refused_before_anything_starts(void **state)
{
    uint32_t refused = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        static const uint64_t caps[] = {0, 256, 1024};
        uint32_t ranks = 1 + sw_draw(seed, 8, 4);
        uint64_t least =
            check_in_place(seed, ranks, caps[seed % 3], seed % 2 == 0);

        if (least > 0) {
            refused++;
            assert_int_equal(0,
                             check_in_place(seed, ranks, least, seed % 2 == 0));
        }
    }
    assert_in_range(refused, 2, 39);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(in_place_is_refused_before_anything_starts),
    cmocka_unit_test(processes_take_what_was_said),
    cmocka_unit_test(threads_take_what_was_said),
};
DYT_TEST_MAIN(tests)
