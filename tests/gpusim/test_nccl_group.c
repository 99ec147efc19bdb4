/* Groups over NCCL where something goes wrong, and what only they have: every
 * wait ends within its deadline and names a rank, whoever dies, and when. */
#include "gpusim/nccl_side.h"

/* ---- heads, sizes, registered buffers ------------------------------------ */

static void check_heads(struct dyt_rank *me,
                        const struct group_fixture *fixture)
{
    const struct dyti_group_ops *ops = fixture->ops;
    uint32_t peer = 1 - me->rank;
    char head[2][DYTI_P2P_HEAD_BYTES] = {{0}};
    struct dyti_p2p out = {
        .peer = peer, .is_send = true, .size_bytes = 100, .head = head[0]};
    struct dyti_p2p in = {.peer = peer, .size_bytes = 100, .head = head[1]};
    uint64_t sent = 0, got = 0;
    struct side side;

    rank_ok(me, side_open(me, fixture, GROUP_PATIENCE_NS, &side));
    rank_ok(me, ops->attach(side.group, side.at, BYTES));
    out.buf = side.at;
    in.buf = side.at + 2000;
    snprintf(head[0], sizeof(head[0]), "from rank %u", me->rank);
    rank_ok(me, ops->post(side.group, &in, &got));
    rank_ok(me, ops->post(side.group, &out, &sent));
    memset(head[0], 'x', sizeof(head[0])); /* it was read by the call */
    rank_ok(me, poll_until(ops, side.group, got));
    rank_ok(me, poll_until(ops, side.group, sent));
    rank_true(me, strncmp(head[1], "from rank ", 10) == 0 &&
                      head[1][10] == '0' + (char)peer);
    rank_true(me, byte_at(&side, 2000) == peer && byte_at(&side, 2099) == peer);
    /* Of other sizes than the other end's: both hear of it, and go on. */
    out.size_bytes = 10 + me->rank;
    in.size_bytes = 50;
    rank_ok(me, ops->post(side.group, &in, &got));
    rank_ok(me, ops->post(side.group, &out, &sent));
    rank_status(me, DYT_ERR_INVALID, poll_until(ops, side.group, got));
    rank_true(me, strstr(dyti_error_text(), "rank") != NULL);
    rank_status(me, DYT_ERR_INVALID, poll_until(ops, side.group, sent));
    rank_ok(me, ops->barrier(side.group));
    ops->detach(side.group, side.at);
    side_close(&side);
}

static void heads_go_beside_the_bytes(void **state)
{
    (void)state;
    gpusim_reset();
    run(DYT_RANKS_THREADS, 2, check_heads);
    assert_int_equal(0, gpusim_leaks());
    assert_int_equal(0, gpusim_unexpected());
}

/* ---- groups made of a group ---------------------------------------------- */

#define WORLD 5u

struct parts {
    struct group_fixture fixture[4]; /* {0, 1}, {2, 4}, {3} alone; {1, 0} */
};
static struct parts *parts;

static enum dyt_status open_part(struct dyt_rank *me, const struct side *world,
                                 void **out_self)
{
    static const uint32_t part_of[WORLD] = {0, 0, 1, 2, 1};
    static const uint32_t number[WORLD] = {0, 1, 1, 0, 0};
    static const uint32_t size[3] = {2, 2, 1};
    uint32_t part = part_of[me->rank];
    struct dyti_group_params params = {.struct_size = sizeof(params),
                                       .name = "part",
                                       .rank = number[me->rank],
                                       .size = size[part],
                                       .shared = parts->fixture[part].region,
                                       .shared_bytes =
                                           parts->fixture[part].region_bytes,
                                       .abort = parts->fixture[part].abort,
                                       .timeout_ns = GROUP_PATIENCE_NS,
                                       .stream = world->stream,
                                       .parent = world->group,
                                       .color = part};

    return dyti_group_nccl.open(&params, out_self);
}

static void check_split(struct dyt_rank *me,
                        const struct group_fixture *fixture)
{
    static const unsigned char first[WORLD] = {0, 0, 4, 3, 4};
    const struct dyti_group_ops *ops = fixture->ops;
    struct side side;
    void *part = NULL, *two = NULL;

    rank_ok(me, side_open(me, fixture, GROUP_PATIENCE_NS, &side));
    rank_ok(me, open_part(me, &side, &part));
    rank_ok(me, ops->broadcast(part, side.at, 100, 0));
    rank_true(me, byte_at(&side, 99) == first[me->rank]);
    /* Then one of two, in which the others have no part. */
    if (me->rank >= 2) {
        rank_ok(me, ops->stand_by(side.group));
    } else {
        struct dyti_group_params params = {.struct_size = sizeof(params),
                                           .name = "two",
                                           .rank = 1 - me->rank,
                                           .size = 2,
                                           .shared = parts->fixture[3].region,
                                           .shared_bytes =
                                               parts->fixture[3].region_bytes,
                                           .abort = fixture->abort,
                                           .stream = side.stream,
                                           .parent = side.group,
                                           .color = 7};

        rank_ok(me, ops->open(&params, &two));
        rank_ok(me, ops->broadcast(two, side.at + 200, 100, 0));
        rank_true(me, byte_at(&side, 299) == 1);
    }
    rank_ok(me, ops->barrier(side.group));
    ops->close(two);
    ops->close(part);
    side_close(&side);
}

static void groups_are_split_from_one(void **state)
{
    struct parts all;
    uint64_t bytes = dyti_group_nccl.region_bytes(2);
    struct gpusim_nccl_counts counts;
    struct dyti_abort_word word = {0};

    (void)state;
    gpusim_reset();
    parts = &all;
    for (uint32_t i = 0; i < 4; i++) {
        all.fixture[i].region_bytes = bytes;
        all.fixture[i].region = dyt_ranks_shared(bytes);
        all.fixture[i].abort = &word;
    }
    run(DYT_RANKS_THREADS, WORLD, check_split);
    gpusim_nccl_get_counts(&counts);
    /* one id; two lanes; two splits of two lanes each */
    assert_int_equal(WORLD, counts.inits);
    assert_int_equal(WORLD + 2 * 2 * WORLD, counts.splits);
    assert_int_equal(0, counts.live);
    for (uint32_t i = 0; i < 4; i++) {
        munmap(all.fixture[i].region, bytes);
    }
    assert_int_equal(0, gpusim_leaks());
    assert_int_equal(0, gpusim_unexpected());
}

/* ---- a member dies ------------------------------------------------------- */

enum { IN_BARRIER, IN_REDUCE, IN_POST, IN_MET, DEATHS };
static int death;

/* Rank 1 of three is killed, before or after the others count on it. */
static void check_death(struct dyt_rank *me,
                        const struct group_fixture *fixture)
{
    const struct dyti_group_ops *ops = fixture->ops;
    struct dyti_p2p message = {.peer = 1, .size_bytes = 64};
    struct side side;
    uint64_t ticket = 0;
    enum dyt_status st;

    rank_ok(me, side_open(me, fixture, GROUP_PATIENCE_NS, &side));
    message.buf = side.at;
    rank_ok(me, ops->barrier(side.group));
    if (me->rank == 1) {
        me->expect_death = true;
        if (death == IN_MET) { /* the other end has met, and never comes */
            message = (struct dyti_p2p){
                .peer = 0, .is_send = true, .buf = side.at, .size_bytes = 64};
            (void)ops->post(side.group, &message, &ticket);
        }
        group_await(me, fixture, 2);
        raise(SIGKILL);
    }
    if (death >= IN_POST) {
        rank_ok(me, ops->post(side.group, &message, &ticket));
        /* it may be on the device already, and wait there */
        rank_status(me, DYT_PENDING, ops->poll(side.group, ticket));
    }
    atomic_fetch_add(fixture->arrived, 1);
    st = death == IN_BARRIER ? ops->barrier(side.group)
         : death == IN_REDUCE
             ? ops->all_reduce(side.group, side.at, 16, DYTI_SUM_F32)
             : poll_until(ops, side.group, ticket);
    rank_status(me, DYT_ERR_PEER, st);
    rank_true(me, strstr(dyti_error_text(), "rank 1 failed") != NULL);
    rank_status(me, DYT_ERR_PEER, ops->barrier(side.group));
    side_close(&side);
}

static void a_killed_member_is_named(void **state)
{
    (void)state;
    dyt_ranks_on_death = tell_death;
    for (death = 0; death < DEATHS; death++) {
        gpusim_reset();
        run(DYT_RANKS_PROCESSES, 3, check_death);
    }
    dyt_ranks_on_death = NULL;
}

/* Nobody tells: the deadline does, and names who is missing. */
static void check_silent(struct dyt_rank *me,
                         const struct group_fixture *fixture)
{
    const struct dyti_group_ops *ops = fixture->ops;
    struct dyti_p2p message = {
        .peer = 1 - me->rank, .is_send = me->rank == 1, .size_bytes = 64};
    uint64_t ticket = 0;
    struct side side;

    rank_ok(me, side_open(me, fixture, 1500000000, &side));
    message.buf = side.at;
    group_meet(me, fixture, 2);
    rank_ok(me, ops->post(side.group, &message, &ticket));
    if (me->rank == 1) { /* met, but never launched by this one */
        me->expect_death = true;
        group_await(me, fixture, 3);
        raise(SIGKILL);
    }
    (void)ops->poll(side.group, ticket);
    (void)atomic_fetch_add(fixture->arrived, 1);
    rank_status(me, DYT_ERR_TIMEOUT, poll_until(ops, side.group, ticket));
    rank_true(me, strstr(dyti_error_text(), "rank 1") != NULL);
    rank_status(me, DYT_ERR_TIMEOUT, ops->barrier(side.group));
    side_close(&side);
}

static void a_silent_death_ends_by_the_deadline(void **state)
{
    (void)state;
    gpusim_reset();
    run(DYT_RANKS_PROCESSES, 2, check_silent);
}

/* ---- opening ------------------------------------------------------------- */

/* Rank 2 never comes to open, and the job is aborted meanwhile. */
static void check_open_aborted(struct dyt_rank *me,
                               const struct group_fixture *fixture)
{
    struct side side;

    if (me->rank == 2) {
        group_await(me, fixture, 2);
        atomic_store(&fixture->abort->value, dyti_abort_pack(2, DYT_ERR_NOMEM));
        return;
    }
    atomic_fetch_add(fixture->arrived, 1);
    rank_status(me, DYT_ERR_PEER,
                side_open(me, fixture, GROUP_PATIENCE_NS, &side));
    rank_true(me, strstr(dyti_error_text(), "rank 2 failed") != NULL);
    side_close(&side);
}

static void an_open_that_is_aborted(void **state)
{
    (void)state;
    gpusim_reset();
    run(DYT_RANKS_THREADS, 3, check_open_aborted);
    assert_int_equal(0, gpusim_leaks());
}

static void check_never_comes(struct dyt_rank *me,
                              const struct group_fixture *fixture)
{
    struct side side;

    if (me->rank != 1) {
        rank_status(me, DYT_ERR_TIMEOUT, side_open(me, fixture, 1, &side));
        rank_true(me, strstr(dyti_error_text(), "for rank 1 to open") != NULL);
        side_close(&side);
    }
}

static void a_peer_that_never_comes(void **state)
{
    (void)state;
    gpusim_reset();
    run(DYT_RANKS_THREADS, 2, check_never_comes);
    assert_int_equal(0, gpusim_leaks());
}

static void check_open_fails(struct dyt_rank *me,
                             const struct group_fixture *fixture)
{
    struct side side;

    rank_status(me, DYT_ERR_PEER,
                side_open(me, fixture, GROUP_PATIENCE_NS, &side));
    rank_true(me, strstr(dyti_error_text(), "opening a communicator") != NULL);
    side_close(&side);
}

static void check_no_id(struct dyt_rank *me,
                        const struct group_fixture *fixture)
{
    struct side side;
    enum dyt_status st = side_open(me, fixture, GROUP_PATIENCE_NS, &side);

    if (me->rank == 0) { /* as a world does */
        rank_status(me, DYT_ERR_DEVICE, st);
        rank_true(me, strstr(dyti_error_text(), "an id of NCCL") != NULL);
        atomic_store(&fixture->abort->value, dyti_abort_pack(0, st));
    } else {
        rank_status(me, DYT_ERR_PEER, st);
    }
    side_close(&side);
}

static void nccl_that_fails_to_open(void **state)
{
    struct gpusim_nccl_faults faults = {.fail_init = true};

    (void)state;
    gpusim_reset();
    gpusim_nccl_set_faults(&faults);
    run(DYT_RANKS_THREADS, 2, check_open_fails);
    faults = (struct gpusim_nccl_faults){.fail_id = true};
    gpusim_nccl_set_faults(&faults);
    run(DYT_RANKS_THREADS, 2, check_no_id);
    assert_int_equal(0, gpusim_leaks());
}

/* ---- errors that come later ---------------------------------------------- */

static void check_async(struct dyt_rank *me,
                        const struct group_fixture *fixture)
{
    const struct dyti_group_ops *ops = fixture->ops;
    struct side side;
    enum dyt_status st;

    rank_ok(me, side_open(me, fixture, 5000000000, &side));
    rank_ok(me, ops->barrier(side.group));
    if (me->rank == 0) {
        struct gpusim_nccl_faults faults = {.fail_launch = 1};

        gpusim_nccl_set_faults(&faults);
    }
    rank_ok(me, ops->barrier(side.group));
    st = ops->all_reduce(side.group, side.at, 16, DYTI_SUM_F32);
    rank_true(me, st == DYT_ERR_PEER || st == DYT_ERR_TIMEOUT);
    rank_status(me, st, ops->barrier(side.group));
    side_close(&side);
}

static void an_error_on_the_way_ends_both(void **state)
{
    (void)state;
    gpusim_reset();
    run(DYT_RANKS_THREADS, 2, check_async);
    assert_int_equal(0, gpusim_leaks());
}

/* ---- many in every order ------------------------------------------------- */

#define MANY 60u

/* Every rank has messages with every other, posted in an order of its own: in
 * the order of their posting alone they would wait in circles. */
static void check_circles(struct dyt_rank *me,
                          const struct group_fixture *fixture)
{
    const struct dyti_group_ops *ops = fixture->ops;
    uint64_t ticket[MANY] = {0};
    struct side side;

    rank_ok(me, side_open(me, fixture, GROUP_PATIENCE_NS, &side));
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t turn = i / 2 + 1; /* receive from one, send to another */
        bool is_send = i % 2 == 1;
        uint32_t peer =
            (me->rank + (is_send ? turn : me->size - turn % me->size)) %
            me->size;
        struct dyti_p2p message = {.peer = peer,
                                   .is_send = is_send,
                                   .buf =
                                       side.at + (is_send ? 0 : 16 * (i + 1)),
                                   .size_bytes = 16};

        peer = peer % me->size;
        rank_ok(me, ops->post(side.group, &message, &ticket[i]));
        if (dyti_rng_u64(fixture->region_bytes, me->rank, i, 0) % 3 == 0) {
            uint64_t landed[4];
            uint32_t count = 0;

            rank_ok(me, ops->landed(side.group, landed, 0, &count));
        }
    }
    for (uint32_t i = MANY; i-- > 0;) {
        rank_ok(me, poll_until(ops, side.group, ticket[i]));
    }
    for (uint32_t i = 0; i < MANY; i += 2) {
        uint32_t turn = i / 2 + 1;
        uint32_t from = (me->rank + me->size - turn % me->size) % me->size;

        rank_true(me, byte_at(&side, 16 * (i + 1) + 15) == from);
    }
    rank_ok(me, ops->barrier(side.group));
    side_close(&side);
}

static void messages_do_not_wait_in_circles(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++) {
        gpusim_reset();
        gpusim_set_order((enum gpusim_order)(seed % 3), seed);
        run(DYT_RANKS_THREADS, 3, check_circles);
        assert_int_equal(0, gpusim_leaks());
        assert_int_equal(0, gpusim_unexpected());
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(heads_go_beside_the_bytes),
    cmocka_unit_test(groups_are_split_from_one),
    cmocka_unit_test(a_killed_member_is_named),
    cmocka_unit_test(a_silent_death_ends_by_the_deadline),
    cmocka_unit_test(an_open_that_is_aborted),
    cmocka_unit_test(a_peer_that_never_comes),
    cmocka_unit_test(nccl_that_fails_to_open),
    cmocka_unit_test(an_error_on_the_way_ends_both),
    cmocka_unit_test(messages_do_not_wait_in_circles),
};
DYT_TEST_MAIN(tests)
