/* Joint messages of teams: broadcasts and all-gathers that are posted, in an
 * order of each member's own and among messages; described otherwise; never
 * joined; taken back. */
#include "gpusim/nccl_side.h"

#define SIZE  4u
#define PART  32u
#define JOINT 12u /* at most, of each rank */

static uint64_t seed_now;

/* Two teams that overlap, and all: {0, 1, 2}, {1, 2, 3}. */
static enum dyt_status make_teams(struct side *side, uint32_t rank,
                                  void *team[2])
{
    static const uint32_t member[2][3] = {{0, 1, 2}, {1, 2, 3}};
    enum dyt_status st = DYT_OK;

    for (uint32_t t = 0; t < 2 && st == DYT_OK; t++) {
        bool is_in = rank >= t && rank < t + 3;

        st = dyti_group_nccl.make_team(side->group, t, is_in ? member[t] : NULL,
                                       is_in ? 3 : 0, &team[t]);
    }
    return st;
}

/* Joint message i: which team (2: all), which kind. */
struct what {
    uint32_t team, root, first, size; /* first: its first member */
    bool gathers;
};

static struct what what_is(uint64_t i)
{
    uint64_t bits = dyti_rng_u64(seed_now, 7, i, 0);
    struct what w = {.team = (uint32_t)(bits % 3), .gathers = bits >> 8 & 1u};

    w.first = w.team == 2 ? 0 : w.team;
    w.size = w.team == 2 ? SIZE : 3;
    w.root = (uint32_t)(bits >> 16) % w.size;
    return w;
}

/* Value of member m's part of joint message i. */
static int value_of(uint64_t i, uint32_t m)
{
    return (int)(1 + i * 5 + m);
}

static enum dyt_status post_one(struct dyt_rank *me, struct side *side,
                                void *const team[2], uint64_t i,
                                uint64_t *out_ticket)
{
    struct what w = what_is(i);
    uint32_t place = me->rank - w.first;
    unsigned char *buf = side->at + i * SIZE * PART;
    struct dyti_joint joint = {.kind = w.gathers ? DYTI_JOINT_ALL_GATHER
                                                 : DYTI_JOINT_BROADCAST,
                               .team = w.team == 2 ? NULL : team[w.team],
                               .root = w.root,
                               .epoch = 3,
                               .number = i,
                               .buf = buf,
                               .size_bytes = PART};

    if (w.gathers) {
        (void)cudaMemsetAsync(buf + place * PART, value_of(i, place), PART,
                              side->stream);
    } else if (place == w.root) {
        (void)cudaMemsetAsync(buf, value_of(i, place), PART, side->stream);
    }
    return dyti_group_nccl.post_joint(side->group, &joint, out_ticket);
}

static void check_bytes(struct dyt_rank *me, struct side *side, uint64_t i)
{
    struct what w = what_is(i);

    for (uint32_t m = 0; m < (w.gathers ? w.size : 1); m++) {
        uint32_t from = w.gathers ? m : w.root;

        rank_true(me, byte_at(side, i * SIZE * PART + m * PART) ==
                          value_of(i, from));
        rank_true(me, byte_at(side, i * SIZE * PART + m * PART + PART - 1) ==
                          value_of(i, from));
    }
}

/* Posted in an order of the rank's own, among messages in a ring. */
static void check_orders(struct dyt_rank *me,
                         const struct group_fixture *fixture)
{
    const struct dyti_group_ops *ops = fixture->ops;
    uint64_t ticket[JOINT] = {0}, number[JOINT], ring[2] = {0};
    uint32_t count = 0;
    void *team[2] = {NULL, NULL};
    struct side side;

    rank_ok(me, side_open(me, fixture, GROUP_PATIENCE_NS, &side));
    rank_ok(me, make_teams(&side, me->rank, team));
    for (uint64_t i = 0; i < JOINT; i++) {
        struct what w = what_is(i);

        if (me->rank >= w.first && me->rank < w.first + w.size) {
            uint32_t at = (uint32_t)(dyti_rng_u64(seed_now, me->rank, i, 0) %
                                     (count + 1));

            number[count] = number[at];
            number[at] = i;
            count++;
        }
    }
    for (uint32_t k = 0; k < count; k++) {
        rank_ok(me, post_one(me, &side, team, number[k], &ticket[k]));
        if (k == count / 2) {
            struct dyti_p2p in = {.peer = (me->rank + SIZE - 1) % SIZE,
                                  .buf = side.at + BYTES - 64,
                                  .size_bytes = 64};
            struct dyti_p2p out = {.peer = (me->rank + 1) % SIZE,
                                   .is_send = true,
                                   .buf = side.at + BYTES - 128,
                                   .size_bytes = 64};

            rank_ok(me, ops->post(side.group, &in, &ring[0]));
            rank_ok(me, ops->post(side.group, &out, &ring[1]));
        }
    }
    for (uint32_t k = count; k-- > 0;) {
        rank_ok(me, poll_until(ops, side.group, ticket[k]));
        check_bytes(me, &side, number[k]);
    }
    rank_ok(me, poll_until(ops, side.group, ring[0]));
    rank_ok(me, poll_until(ops, side.group, ring[1]));
    rank_true(me, byte_at(&side, BYTES - 1) == (me->rank + SIZE - 1) % SIZE);
    rank_ok(me, ops->barrier(side.group));
    side_close(&side);
}

static void they_are_posted_in_any_order(void **state)
{
    struct gpusim_nccl_counts counts;

    (void)state;
    for (seed_now = 0; seed_now < 6; seed_now++) {
        gpusim_reset();
        gpusim_set_order((enum gpusim_order)(seed_now % 3), seed_now);
        run(DYT_RANKS_THREADS, SIZE, check_orders);
        gpusim_nccl_get_counts(&counts);
        assert_true(counts.broadcasts > 0 && counts.all_gathers > 0);
        assert_int_equal(0, counts.live);
        assert_int_equal(0, gpusim_leaks());
        assert_int_equal(0, gpusim_unexpected());
    }
}

static void in_processes_too(void **state)
{
    (void)state;
    seed_now = 11;
    gpusim_reset();
    run(DYT_RANKS_PROCESSES, SIZE, check_orders);
}

/* ---- what is wrong with one ---------------------------------------------- */

/* Rank 2 has another size, or root: all of them hear of it, and go on. */
static void check_wrong(struct dyt_rank *me,
                        const struct group_fixture *fixture)
{
    const struct dyti_group_ops *ops = fixture->ops;
    struct dyti_joint joint = {.kind = DYTI_JOINT_BROADCAST, .size_bytes = 64};
    uint64_t ticket = 0, again = 0;
    struct side side;

    rank_ok(me, side_open(me, fixture, GROUP_PATIENCE_NS, &side));
    joint.buf = side.at;
    for (joint.number = 0; joint.number < 3; joint.number++) {
        joint.size_bytes = joint.number == 0 && me->rank == 2 ? 65 : 64;
        joint.root = joint.number == 1 && me->rank == 2 ? 1 : 0;
        rank_ok(me, ops->post_joint(side.group, &joint, &ticket));
        if (joint.number < 2) {
            rank_status(me, DYT_ERR_INVALID,
                        poll_until(ops, side.group, ticket));
            rank_true(me, strstr(dyti_error_text(), "joint message") != NULL);
        } else {
            rank_ok(me, poll_until(ops, side.group, ticket));
        }
        rank_ok(me, ops->barrier(side.group));
    }
    rank_true(me, byte_at(&side, 0) == 0);
    /* Twice, or of nobody. */
    joint.number = 7;
    joint.size_bytes = 64;
    if (me->rank == 0) {
        rank_ok(me, ops->post_joint(side.group, &joint, &ticket));
        rank_status(me, DYT_ERR_INVALID,
                    ops->post_joint(side.group, &joint, &again));
        joint.root = SIZE;
        rank_status(me, DYT_ERR_INVALID,
                    ops->post_joint(side.group, &joint, &again));
    }
    ops->cancel(side.group); /* the others never come */
    rank_ok(me, ops->barrier(side.group));
    joint.root = 0;
    rank_ok(me, ops->post_joint(side.group, &joint, &ticket)); /* once more */
    rank_ok(me, poll_until(ops, side.group, ticket));
    rank_ok(me, ops->barrier(side.group));
    side_close(&side);
}

static void one_that_differs_is_named_by_all(void **state)
{
    (void)state;
    gpusim_reset();
    run(DYT_RANKS_THREADS, SIZE, check_wrong);
    assert_int_equal(0, gpusim_leaks());
    assert_int_equal(0, gpusim_unexpected());
}

/* Rank 2 never joins: the deadline says so, and whose it is. */
static void check_missing(struct dyt_rank *me,
                          const struct group_fixture *fixture)
{
    const struct dyti_group_ops *ops = fixture->ops;
    struct dyti_joint joint = {.kind = DYTI_JOINT_BROADCAST, .size_bytes = 64};
    uint64_t ticket = 0;
    struct side side;

    rank_ok(me, side_open(me, fixture, 2000000000, &side));
    joint.buf = side.at;
    if (me->rank != 2) {
        rank_ok(me, ops->post_joint(side.group, &joint, &ticket));
    }
    group_meet(me, fixture, SIZE);
    if (me->rank != 2) {
        rank_status(me, DYT_ERR_TIMEOUT, poll_until(ops, side.group, ticket));
        rank_true(me, strstr(dyti_error_text(), "joined by rank 2") != NULL);
    }
    group_meet(me, fixture, 2 * SIZE); /* who leaves takes its part back */
    side_close(&side);
}

static void who_never_joins_is_named(void **state)
{
    (void)state;
    gpusim_reset();
    run(DYT_RANKS_THREADS, SIZE, check_missing);
    assert_int_equal(0, gpusim_leaks());
}

/* Rank 1 joins, dies before it begins, and nobody tells. */
static void check_silent(struct dyt_rank *me,
                         const struct group_fixture *fixture)
{
    const struct dyti_group_ops *ops = fixture->ops;
    struct dyti_joint joint = {.kind = DYTI_JOINT_ALL_GATHER, .size_bytes = 64};
    void *team[2] = {NULL, NULL};
    uint64_t ticket = 0;
    struct side side;

    rank_ok(me, side_open(me, fixture, 1500000000, &side));
    rank_ok(me, make_teams(&side, me->rank, team));
    group_meet(me, fixture, SIZE);
    joint.team = team[0];
    joint.buf = side.at;
    if (me->rank == 1) {
        rank_ok(me, ops->post_joint(side.group, &joint, &ticket));
        me->expect_death = true;
        (void)atomic_fetch_add(fixture->arrived, 1);
        raise(SIGKILL);
    }
    group_await(me, fixture, SIZE + 1);
    if (me->rank != 3) {
        rank_ok(me, ops->post_joint(side.group, &joint, &ticket));
        rank_status(me, DYT_ERR_TIMEOUT, poll_until(ops, side.group, ticket));
    }
    rank_status(me, DYT_ERR_TIMEOUT, ops->barrier(side.group));
    group_meet(me, fixture, 2 * SIZE); /* nobody has left before */
    side_close(&side);
}

static void a_silent_death_in_one_ends_by_the_deadline(void **state)
{
    (void)state;
    gpusim_reset();
    run(DYT_RANKS_PROCESSES, SIZE, check_silent);
}

/* A team without its maker, or with nobody. */
static void check_teams(struct dyt_rank *me,
                        const struct group_fixture *fixture)
{
    static const uint32_t others[] = {1, 2, 3}, nobody[] = {0, 1, SIZE};
    void *team = NULL;
    struct side side;

    rank_ok(me, side_open(me, fixture, GROUP_PATIENCE_NS, &side));
    if (me->rank == 0) { /* refused before others are asked */
        rank_status(me, DYT_ERR_INVALID,
                    fixture->ops->make_team(side.group, 0, others, 3, &team));
        rank_status(me, DYT_ERR_INVALID,
                    fixture->ops->make_team(side.group, 0, nobody, 3, &team));
    }
    rank_ok(me, fixture->ops->barrier(side.group));
    side_close(&side);
}

static void teams_are_of_members(void **state)
{
    (void)state;
    gpusim_reset();
    run(DYT_RANKS_THREADS, SIZE, check_teams);
    assert_int_equal(0, gpusim_leaks());
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(they_are_posted_in_any_order),
    cmocka_unit_test(in_processes_too),
    cmocka_unit_test(one_that_differs_is_named_by_all),
    cmocka_unit_test(who_never_joins_is_named),
    cmocka_unit_test(a_silent_death_in_one_ends_by_the_deadline),
    cmocka_unit_test(teams_are_of_members),
};
DYT_TEST_MAIN(tests)
