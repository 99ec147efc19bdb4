/* What goes wrong with a message of a switch: lost, doubled, late, its sender
 * dead in the middle.  The outcome is named and the same on all survivors, the
 * old is whole, and the next switch is as if nothing had been. */
#include "switch_scene.h"

#include "mover/message/message.h"

#define TIMEOUT_NS 5000000000

enum wrong { LOST, DOUBLED, LATE, DIES };

static struct {
    enum wrong wrong;
    uint32_t nth;           /* send of rank 0 in the first switch */
    void *self;             /* the world group of rank 0 */
    struct dyt_rank *me;    /* rank 0 */
    _Atomic uint32_t sends; /* counts up from the start of the switch */
    _Atomic bool on;
    uint32_t held; /* polls that the late one still waits */
    struct dyti_p2p late;
    uint64_t late_ticket;
} fault;

#define FAKE_TICKET UINT64_MAX

static enum dyt_status faulty_open(const struct dyti_group_params *params,
                                   void **out_self)
{
    enum dyt_status st = dyti_group_shm.open(params, out_self);

    if (st == DYT_OK && params->rank == 0 &&
        strcmp(params->name, "world") == 0) {
        fault.self = *out_self;
    }
    return st;
}

static bool late_is_held(void *self)
{
    return self == fault.self && fault.held > 0;
}

static enum dyt_status faulty_post(void *self, const struct dyti_p2p *message,
                                   uint64_t *out_ticket)
{
    if (self != fault.self || !message->is_send || !atomic_load(&fault.on)) {
        return dyti_group_shm.post(self, message, out_ticket);
    }
    if (late_is_held(self) && message->peer == fault.late.peer) {
        return DYT_PENDING; /* no message overtakes it */
    }
    if (atomic_fetch_add(&fault.sends, 1) != fault.nth) {
        return dyti_group_shm.post(self, message, out_ticket);
    }
    switch (fault.wrong) {
    case LOST:
        *out_ticket = FAKE_TICKET;
        return DYT_OK;
    case DOUBLED:
        (void)dyti_group_shm.post(self, message, out_ticket);
        return dyti_group_shm.post(self, message, out_ticket);
    case LATE:
        fault.late = *message;
        fault.held = 50;
        *out_ticket = FAKE_TICKET - 1;
        return DYT_OK;
    default:
        fault.me->expect_death = true;
        (void)raise(SIGKILL);
        return DYT_ERR_DEVICE;
    }
}

static enum dyt_status faulty_poll(void *self, uint64_t ticket)
{
    if (late_is_held(self) && --fault.held == 0) {
        (void)dyti_group_shm.post(self, &fault.late, &fault.late_ticket);
    }
    if (ticket == FAKE_TICKET) {
        return DYT_OK;
    }
    if (ticket == FAKE_TICKET - 1) {
        return fault.held > 0 ? DYT_PENDING
                              : dyti_group_shm.poll(self, fault.late_ticket);
    }
    return dyti_group_shm.poll(self, ticket);
}

static enum dyt_status faulty_wait(void *self)
{
    return late_is_held(self) ? DYT_OK : dyti_group_shm.wait(self);
}

/* ---- ranks --------------------------------------------------------------- */

struct trip {
    uint64_t seed;
    uint32_t world_size;
    const struct sw_memory *memory;
    struct dyti_world_switch_options options;
    _Atomic uint32_t *aborted; /* ranks that have seen it so */
};

static void body(struct sw_rank *rank, const struct trip *trip)
{
    struct dyt_rank *me = rank->me;
    struct dyti_switch_report report;
    struct dyti_switch_order order = sw_order(1, 1, DYTI_VERIFY_FULL);
    enum dyt_status st;

    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    st = sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, &trip->options,
                   &order, &report);
    if (me->rank == 0) {
        atomic_store(&fault.on, false);
    }
    if (st == DYT_OK) { /* nobody may see it otherwise */
        rank_true(me, report.decision == DYTI_DECISION_COMMIT);
        rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 1));
    } else {
        rank_true(me, report.decision == DYTI_DECISION_ABORT);
        rank_true(me, dyti_error_text()[0] != '\0');
        atomic_fetch_add(trip->aborted, 1);
    }
    if (fault.wrong == DIES && st == DYT_OK) {
        return; /* it had not that much to send */
    }
    if (fault.wrong == DIES) {
        rank_status(me, DYT_ERR_PEER, st);
        rank_true(me, strstr(dyti_error_text(), "rank 0") != NULL);
        return; /* the world is without a rank */
    }
    /* The old is whole: the next switch takes it. */
    order.epoch = 2;
    rank_ok(me, sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT,
                          &trip->options, &order, &report));
    rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 1));
}

static void fault_rank(struct dyt_rank *me)
{
    const struct trip *trip = me->arg;
    struct sw_rank rank;

    if (me->rank == 0) {
        fault.me = me;
    }
    if (sw_enter(&rank, me, trip->seed, trip->world_size, trip->memory)) {
        body(&rank, trip);
    }
    sw_rank_close(&rank);
}

static uint32_t deaths;

static void on_death(uint32_t rank, void *arg)
{
    const struct trip *trip = arg;

    deaths++;

    dyti_control_abort(trip->memory->control_mem.base, &dyti_wait_futex, rank,
                       DYT_ERR_PEER);
}

/* How many ranks of how many saw an abort. */
static uint32_t run_fault(enum dyt_ranks_kind kind, enum wrong wrong,
                          uint64_t seed, uint32_t nth, uint32_t *out_sends)
{
    static struct dyti_group_ops faulty;
    _Atomic uint32_t *aborted = dyt_ranks_shared(4096);
    struct trip trip = {.seed = seed,
                        .world_size = 3,
                        .aborted = aborted,
                        .options = {.mover = DYTI_WORLD_MESSAGE,
                                    .strategy = dyti_strategy_at(seed % 4),
                                    .message_bytes = 512,
                                    .staging_bytes = 4096}};
    struct sw_stage stage = {.kind = kind,
                             .seed = seed,
                             .world_size = trip.world_size,
                             .timeout_ns = TIMEOUT_NS};
    uint32_t seen;

    faulty = dyti_group_shm;
    faulty.open = faulty_open;
    faulty.post = faulty_post;
    faulty.poll = faulty_poll;
    faulty.landed = NULL; /* so it is asked by poll */
    faulty.wait = faulty_wait;
    memset(&fault, 0, sizeof(fault));
    fault.wrong = wrong;
    fault.nth = nth;
    atomic_store(&fault.on, true);
    sw_group = &faulty;
    sw_message = &dyti_mover_message;
    dyt_ranks_on_death = on_death;
    sw_play(&stage, fault_rank, &trip, &trip.memory);
    dyt_ranks_on_death = NULL;
    seen = atomic_load(aborted);
    *out_sends = atomic_load(&fault.sends);
    munmap(aborted, 4096);
    return seen;
}

static void run_faults(enum wrong wrong, bool may_commit)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        uint32_t sends = 0, nth = (uint32_t)(seed * 5 % 7);
        uint32_t aborted =
            run_fault(DYT_RANKS_THREADS, wrong, seed, nth, &sends);

        if (sends > nth) { /* it has happened */
            assert_true(aborted == 3 || (may_commit && aborted == 0));
        } else {
            assert_int_equal(0, aborted);
        }
    }
}

static void a_lost_message_aborts_on_all(void **state)
{
    (void)state;
    run_faults(LOST, false);
}

/* The last one of a pair is one too many, and harmless. */
static void a_doubled_message_aborts_on_all_or_is_harmless(void **state)
{
    (void)state;
    run_faults(DOUBLED, true);
}

static void a_late_message_is_waited_for(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        uint32_t sends;

        assert_int_equal(0, run_fault(DYT_RANKS_THREADS, LATE, seed,
                                      (uint32_t)(seed % 4), &sends));
    }
}

static void a_death_in_the_middle_is_named_by_all_survivors(void **state)
{
    (void)state;
    deaths = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        uint32_t before = deaths, sends;
        uint32_t aborted =
            run_fault(DYT_RANKS_PROCESSES, DIES, seed, 1, &sends);

        assert_int_equal(deaths > before ? 2 : 0, aborted);
    }
    assert_true(deaths > 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_lost_message_aborts_on_all),
    cmocka_unit_test(a_doubled_message_aborts_on_all_or_is_harmless),
    cmocka_unit_test(a_late_message_is_waited_for),
    cmocka_unit_test(a_death_in_the_middle_is_named_by_all_survivors),
};
DYT_TEST_MAIN(tests)
