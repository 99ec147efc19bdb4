/* Waits over gloo that nothing would end but the shim (comm/gloo/mesh.hpp):
 * peers that go in the middle of a message, and interruptions when one of the
 * connections has gone already. */
#include "group_posts.h"

#include "comm/gloo/gloo_group.h"

#define HALF_WAY_BYTES (64u << 20) /* more than sockets hold */
#define ROUNDS         20u

struct waits_call {
    struct group_fixture fixture;
    unsigned char *buf; /* of member 1, seen by all */
    _Atomic uint32_t *half_way;
    void (*check)(struct dyt_rank *me, const struct waits_call *call);
};

static void waits_body(struct dyt_rank *me)
{
    const struct waits_call *call = me->arg;

    call->check(me, call);
}

/* At most `rounds`, until waits have ended half way; how many did.  On a busy
 * machine a whole message may come before its sender goes. */
static uint32_t run(enum dyt_ranks_kind kind, uint32_t size, uint32_t rounds,
                    void (*check)(struct dyt_rank *, const struct waits_call *))
{
    uint64_t bytes = dyti_group_gloo.region_bytes(size);
    char *page = dyt_ranks_shared(4096);
    struct waits_call call = {.fixture = {.ops = &dyti_group_gloo,
                                          .region_bytes = bytes,
                                          .abort = (void *)page,
                                          .arrived = (void *)(page + 64)},
                              .buf = dyt_ranks_shared(HALF_WAY_BYTES),
                              .half_way = (void *)(page + 128),
                              .check = check};
    uint32_t half_way;

    for (uint32_t i = 0; i < rounds && atomic_load(call.half_way) == 0; i++) {
        call.fixture.region = dyt_ranks_shared(bytes);
        memset(page, 0, 128);
        call.buf[0] = 0;
        dyt_ranks_run(kind, size, waits_body, &call);
        munmap(call.fixture.region, bytes);
    }
    half_way = atomic_load(call.half_way);
    munmap(call.buf, HALF_WAY_BYTES);
    munmap(page, 4096);
    return half_way;
}

static bool has_begun(const struct waits_call *call)
{
    return atomic_load((_Atomic unsigned char *)(void *)call->buf) != 0;
}

/* ---- a member closes in the middle of its message ------------------------ */

static void send_some(struct dyt_rank *me, const struct waits_call *call,
                      void *group)
{
    unsigned char *from = malloc(HALF_WAY_BYTES);
    struct dyti_p2p message = {1, true, from, HALF_WAY_BYTES, NULL, NULL};
    uint64_t ticket = 0;

    if (from == NULL) {
        rank_wrong(me, "no memory");
        return;
    }
    memset(from, 7, HALF_WAY_BYTES);
    if (dyti_group_gloo.post(group, &message, &ticket) != DYT_OK) {
        rank_wrong(me, "%s", dyti_error_text());
    }
    while (me->wrong[0] == '\0' && !has_begun(call)) {
        (void)sched_yield();
    }
    dyti_group_gloo.close(group); /* nobody has polled it */
    free(from);
}

static void check_half_way(struct dyt_rank *me, const struct waits_call *call)
{
    struct dyti_p2p message = {0, false, call->buf, HALF_WAY_BYTES, NULL, NULL};
    void *group = NULL;
    uint64_t ticket = 0;
    enum dyt_status st;

    rank_ok(me, group_open(me, &call->fixture, GROUP_PATIENCE_NS, &group));
    if (me->rank == 0) {
        send_some(me, call, group);
        return;
    }
    rank_ok(me, dyti_group_gloo.post(group, &message, &ticket));
    st = poll_until(&dyti_group_gloo, group, ticket);
    if (st == DYT_ERR_PEER) { /* not the deadline: the connection */
        (void)atomic_fetch_add(call->half_way, 1);
        rank_status(me, DYT_ERR_PEER, dyti_group_gloo.barrier(group));
    } else if (st != DYT_OK) {
        rank_wrong(me, "%s", dyti_error_text());
    }
    dyti_group_gloo.close(group);
}

static void a_message_half_way_ends_with_its_connection(void **state)
{
    (void)state;
    assert_true(run(DYT_RANKS_THREADS, 2, ROUNDS, check_half_way) > 0);
}

/* ---- a process dies in the middle of a broadcast ------------------------- */

static void *die_half_way(void *arg)
{
    const struct waits_call *call = arg;

    while (!has_begun(call)) {
        (void)sched_yield();
    }
    (void)kill(getpid(), SIGKILL);
    return NULL;
}

/* Without a deadline, and nobody to say who has died. */
static void check_broadcast(struct dyt_rank *me, const struct waits_call *call)
{
    unsigned char *own = me->rank == 1 ? call->buf : malloc(HALF_WAY_BYTES);
    void *group = NULL;
    pthread_t killer;
    enum dyt_status st;

    rank_ok(me, group_open(me, &call->fixture, 0, &group));
    if (own == NULL) {
        rank_wrong(me, "no memory");
        return;
    }
    if (me->rank == 0) {
        memset(own, 7, HALF_WAY_BYTES);
        me->expect_death = true;
        rank_true(me, pthread_create(&killer, NULL, die_half_way,
                                     (void *)(uintptr_t)call) == 0);
    }
    st = dyti_group_gloo.broadcast(group, own, HALF_WAY_BYTES, 0);
    if (me->rank == 0) { /* all is sent already: it dies now */
        (void)pthread_join(killer, NULL);
    }
    if (st == DYT_ERR_PEER) {
        (void)atomic_fetch_add(call->half_way, 1);
    } else if (st != DYT_OK) {
        rank_wrong(me, "%s", dyti_error_text());
    }
    rank_status(me, DYT_ERR_PEER, dyti_group_gloo.barrier(group));
    dyti_group_gloo.close(group);
}

static void a_death_half_way_ends_a_broadcast(void **state)
{
    (void)state;
    assert_true(run(DYT_RANKS_PROCESSES, 2, ROUNDS, check_broadcast) > 0);
    assert_true(run(DYT_RANKS_PROCESSES, 3, ROUNDS, check_broadcast) > 0);
}

/* ---- an abort when member 0 has gone ------------------------------------- */

static bool is_in_call(const struct waits_call *call, uint32_t member)
{
    const struct dyti_gloo_group group = {.shared = call->fixture.region,
                                          .size = 4};

    return atomic_load(&dyti_gloo_member_at(&group, member)->round) > 1;
}

/* Members 1 and 3 never come to the barrier in which 2 waits for them. */
static void check_gone(struct dyt_rank *me, const struct waits_call *call)
{
    void *group = NULL;

    rank_ok(me, group_open(me, &call->fixture, 0, &group));
    rank_ok(me, dyti_group_gloo.barrier(group));
    switch (me->rank) {
    case 0:
        dyti_group_gloo.close(group);
        group = NULL;
        break;
    case 1:
        group_await(me, &call->fixture, 1);
        while (!is_in_call(call, 2)) {
            (void)sched_yield();
        }
        atomic_store(&call->fixture.abort->value,
                     dyti_abort_pack(0, DYT_ERR_DEVICE));
        break;
    case 2:
        group_await(me, &call->fixture, 1);
        rank_status(me, DYT_ERR_PEER, dyti_group_gloo.barrier(group));
        rank_true(me, strstr(dyti_error_text(), "device error") != NULL);
        break;
    default:
        break;
    }
    (void)atomic_fetch_add(call->fixture.arrived, 1);
    group_await(me, &call->fixture, 4);
    dyti_group_gloo.close(group);
}

static void an_abort_needs_no_other_connection(void **state)
{
    (void)state;
    (void)run(DYT_RANKS_THREADS, 4, 3, check_gone);
}

/* ---- a member that never opens ------------------------------------------- */

static void check_absent(struct dyt_rank *me, const struct waits_call *call)
{
    void *group = NULL;

    if (me->rank == 1) { /* its address is never there */
        atomic_store(&call->fixture.abort->value,
                     dyti_abort_pack(1, DYT_ERR_DEVICE));
        return;
    }
    rank_status(me, DYT_ERR_PEER, group_open(me, &call->fixture, 0, &group));
    rank_true(me, group == NULL);
}

static void an_abort_ends_an_open(void **state)
{
    (void)state;
    (void)run(DYT_RANKS_THREADS, 3, 1, check_absent);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_message_half_way_ends_with_its_connection),
    cmocka_unit_test(a_death_half_way_ends_a_broadcast),
    cmocka_unit_test(an_abort_needs_no_other_connection),
    cmocka_unit_test(an_abort_ends_an_open),
};
DYT_TEST_MAIN(tests)
