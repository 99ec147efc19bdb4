/* Groups over NCCL whose members share no memory: the first one keeps what they
 * would share.  Whoever dies, also that one, and whether or not somebody tells:
 * all waits end within their deadline. */
#include "gpusim/nccl_side.h"

#define SIZE 3u

struct hosts {
    struct dyti_group carrier;
    void *own;
    struct side side;
};

static enum dyt_status hosts_open(struct dyt_rank *me,
                                  const struct group_fixture *fixture,
                                  int64_t timeout_ns, struct hosts *h)
{
    struct dyti_group_params params;
    enum dyt_status st;

    *h = (struct hosts){
        .carrier = {.ops = &dyti_group_shm, .rank = me->rank, .size = me->size},
        .own = calloc(1, fixture->region_bytes)};
    st = h->own == NULL ? DYT_ERR_NOMEM : side_make(me, BYTES, &h->side);
    params = side_params(me, fixture, timeout_ns, &h->side);
    st = st == DYT_OK ? dyti_group_shm.open(&params, &h->carrier.self) : st;
    params.apart = true;
    params.carrier = &h->carrier;
    params.shared = h->own;
    return st == DYT_OK ? dyti_group_nccl.open(&params, &h->side.group) : st;
}

static void hosts_close(struct hosts *h)
{
    side_close(&h->side);
    dyti_group_shm.close(h->carrier.self);
    free(h->own);
}

/* ---- all is well --------------------------------------------------------- */

static void check_joints(struct dyt_rank *me,
                         const struct group_fixture *fixture)
{
    const struct dyti_group_ops *ops = fixture->ops;
    static const uint32_t pair[] = {1, 2};
    struct dyti_joint joint = {.kind = DYTI_JOINT_ALL_GATHER, .size_bytes = 64};
    uint64_t ticket[2] = {0};
    void *team = NULL;
    struct hosts h;

    rank_ok(me, hosts_open(me, fixture, GROUP_PATIENCE_NS, &h));
    rank_ok(me, ops->make_team(h.side.group, 1, me->rank > 0 ? pair : NULL,
                               me->rank > 0 ? 2 : 0, &team));
    joint.buf = h.side.at;
    rank_ok(me, ops->post_joint(h.side.group, &joint, &ticket[0]));
    if (me->rank > 0) {
        joint.team = team;
        joint.number = 1;
        joint.buf = h.side.at + 1024;
        rank_ok(me, ops->post_joint(h.side.group, &joint, &ticket[1]));
        rank_ok(me, poll_until(ops, h.side.group, ticket[1]));
        rank_true(me, byte_at(&h.side, 1024) == 1);
        rank_true(me, byte_at(&h.side, 1024 + 127) == 2);
    }
    rank_ok(me, poll_until(ops, h.side.group, ticket[0]));
    for (uint32_t m = 0; m < SIZE; m++) {
        rank_true(me, byte_at(&h.side, 64 * m + 63) == m);
    }
    rank_ok(me, ops->barrier(h.side.group));
    hosts_close(&h);
}

static void joint_messages_go_too(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        gpusim_reset();
        run((enum dyt_ranks_kind)kind, SIZE, check_joints);
    }
    assert_int_equal(0, gpusim_leaks());
    assert_int_equal(0, gpusim_unexpected());
}

/* ---- deaths -------------------------------------------------------------- */

static uint32_t victim;
static bool is_told;

static void check_death(struct dyt_rank *me,
                        const struct group_fixture *fixture)
{
    const struct dyti_group_ops *ops = fixture->ops;
    struct dyti_p2p message = {.peer = victim, .size_bytes = 64};
    enum dyt_status st = DYT_OK;
    uint64_t ticket = 0;
    struct hosts h;

    rank_ok(me, hosts_open(me, fixture,
                           is_told ? GROUP_PATIENCE_NS : 2000000000, &h));
    message.buf = h.side.at;
    group_meet(me, fixture, SIZE);
    if (me->rank == victim) {
        me->expect_death = true;
        group_await(me, fixture, 2 * SIZE - 1);
        raise(SIGKILL);
    }
    if (me->rank == (victim + 1) % SIZE) {
        rank_ok(me, ops->post(h.side.group, &message, &ticket));
    }
    atomic_fetch_add(fixture->arrived, 1);
    st = ticket != 0 ? poll_until(ops, h.side.group, ticket)
                     : ops->barrier(h.side.group);
    rank_status(me, is_told ? DYT_ERR_PEER : DYT_ERR_TIMEOUT, st);
    rank_true(me, strstr(dyti_error_text(), "rank ") != NULL);
    group_meet(me, fixture, 3 * SIZE - 2); /* nobody has left before */
    hosts_close(&h);
}

static void whoever_dies_all_hear(void **state)
{
    (void)state;
    for (victim = 0; victim < 2; victim++) {
        for (int told = 0; told < 2; told++) {
            is_told = told != 0;
            dyt_ranks_on_death = is_told ? tell_death : NULL;
            gpusim_reset();
            run(DYT_RANKS_PROCESSES, SIZE, check_death);
        }
    }
    dyt_ranks_on_death = NULL;
}

/* ---- who comes late ------------------------------------------------------ */

/* The first member gives up on them, and closes; they hear it at once. */
static void check_late(struct dyt_rank *me, const struct group_fixture *fixture)
{
    const struct dyti_group_ops *ops = fixture->ops;
    struct hosts h;

    rank_ok(me,
            hosts_open(me, fixture,
                       me->rank == 0 ? 200000000 : 4 * GROUP_PATIENCE_NS, &h));
    group_meet(me, fixture, SIZE);
    if (me->rank == 0) {
        rank_status(me, DYT_ERR_TIMEOUT, ops->barrier(h.side.group));
        ops->close(h.side.group);
        h.side.group = NULL;
    } else {
        group_await(me, fixture, SIZE + 1);
        rank_status(me, DYT_ERR_PEER, ops->barrier(h.side.group));
        rank_true(me, strstr(dyti_error_text(), "has left the group") != NULL);
    }
    group_meet(me, fixture, 2 * SIZE);
    hosts_close(&h);
}

static void who_comes_late_hears_that_it_is_over(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        gpusim_reset();
        run((enum dyt_ranks_kind)kind, SIZE, check_late);
    }
}

/* ---- without ------------------------------------------------------------- */

static void check_without(struct dyt_rank *me,
                          const struct group_fixture *fixture)
{
    struct dyti_group_params params = {.struct_size = sizeof(params),
                                       .name = "test",
                                       .rank = me->rank,
                                       .size = me->size,
                                       .shared = fixture->region,
                                       .shared_bytes = fixture->region_bytes,
                                       .abort = fixture->abort,
                                       .apart = true};
    void *group = NULL;

    rank_status(me, DYT_ERR_UNSUPPORTED, fixture->ops->open(&params, &group));
    rank_true(me, strstr(dyti_error_text(), "gloo") != NULL);
}

static void without_a_carrier_it_is_refused(void **state)
{
    (void)state;
    gpusim_reset();
    run(DYT_RANKS_THREADS, 2, check_without);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(joint_messages_go_too),
    cmocka_unit_test(whoever_dies_all_hear),
    cmocka_unit_test(who_comes_late_hears_that_it_is_over),
    cmocka_unit_test(without_a_carrier_it_is_refused),
};
DYT_TEST_MAIN(tests)
