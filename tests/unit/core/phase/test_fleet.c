/* A job's fleet: named cases.  Random ones: test_fleet_random.c. */
#include "fleet_world.h"

/* ---- beginnings ---------------------------------------------------------- */

/* One replica, of members 2 and 3. */
static struct world *one_of_two(void)
{
    struct world *w = published(0);

    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(2 + rank, join(w, 0, rank, 2));
        assert_ok(publish(w, 2 + rank));
    }
    pay_all(w);
    return w;
}

/* ---- cases --------------------------------------------------------------- */

static void a_version_goes_out_and_the_rows_are_free(void **state)
{
    struct world *w = published(2);

    (void)state;
    offer_both(w, 1);
    takes(w, 2, 0);
    assert_int_equal(1, w->held[2]);
    assert_true(w->pinned[0]); /* policy all: the other one is missing */
    assert_status(DYT_ERR_STATE, offer(w, 0, 2, false));
    assert_error_has("version 1 is still offered");
    takes(w, 3, 0);
    assert_int_equal(1, w->held[3]);
    assert_false(w->pinned[0] || w->pinned[1]);
    assert_int_equal(DYT_OK, w->done[0]);
    assert_status(DYT_ERR_STATE, offer(w, 0, 1, false));
    assert_error_has("versions rise");
    assert_ok(offer(w, 0, 5, false));
    assert_status(DYT_ERR_INVALID, offer(w, 1, 6, false));
    assert_int_equal(DYT_ERR_INVALID, w->said[0][ASK_OFFER]);
    end_world(w);
}

static void a_place_is_taken_once(void **state)
{
    struct world *w = published(1);
    struct dyti_fleet_place p = place(NONE, 0, 2);
    uint32_t id;

    (void)state;
    assert_status(DYT_ERR_BUSY, join_place(w, &p, &id));
    assert_error_has("a job has one trainer");
    p = place(NONE, 0, 1);
    assert_status(DYT_ERR_BUSY, join_place(w, &p, &id));
    p = place(0, 0, 1);
    assert_status(DYT_ERR_BUSY, join_place(w, &p, &id));
    assert_error_has("rank 0 of replica rollout/0");
    p = place(0, 1, 2);
    assert_status(DYT_ERR_CONFIG, join_place(w, &p, &id));
    p = place(9, 2, 2);
    assert_status(DYT_ERR_CONFIG, join_place(w, &p, &id));
    assert_error_has("rank 2 of 2");
    end_world(w);
}

/* Rows come before the wish to publish them: who is not waiting yet would not
 * hear that they do not fit, and they would be looked at for ever. */
static void rows_are_looked_at_when_all_who_brought_them_wait(void **state)
{
    struct world *w = new_world();

    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(r, join(w, NONE, r, 2));
    }
    assert_ok(publish(w, 0));
    take(w, (struct dyti_fleet_event){.kind = DYTI_FLEET_LISTED, .member = 1});
    assert_int_equal(0, w->due_count);
    assert_ok(ask(w, 1, ASK_PUBLISH,
                  (struct dyti_fleet_event){.kind = DYTI_FLEET_PUBLISH}));
    assert_int_equal(1, w->due_count);
    w->due_count = 0;
    take(w, (struct dyti_fleet_event){.kind = DYTI_FLEET_BUILT,
                                      .status = DYT_ERR_LAYOUT,
                                      .text = "they contradict each other"});
    for (uint32_t r = 0; r < 2; r++) {
        assert_false(w->asked[r][ASK_PUBLISH]);
        assert_int_equal(DYT_ERR_LAYOUT, w->said[r][ASK_PUBLISH]);
    }
    assert_int_equal(0, w->due_count);
    for (uint32_t r = 0; r < 2; r++) {
        assert_ok(publish(w, r));
    }
    /* what they hold does not fit what they said: other rows may come */
    pay(w, 0);
    assert_true(w->fleet.catalogue);
    w->due_count = 0;
    take(w, (struct dyti_fleet_event){.kind = DYTI_FLEET_FITTED,
                                      .member = 1,
                                      .status = DYT_ERR_LAYOUT,
                                      .text = "it is larger"});
    assert_int_equal(DYT_ERR_LAYOUT, w->said[0][ASK_PUBLISH]);
    assert_false(w->fleet.catalogue);
    for (uint32_t r = 0; r < 2; r++) {
        assert_ok(publish(w, r));
    }
    pay_all(w);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(DYT_OK, w->said[r][ASK_PUBLISH]);
    }
    end_world(w);
}

static void a_late_replica_asks_its_sibling(void **state)
{
    struct world *w = published(1);
    uint32_t late;

    (void)state;
    offer_both(w, 3);
    takes(w, 2, 0);
    assert_int_equal(0, w->source);
    late = join(w, 7, 0, 1);
    assert_ok(publish(w, late));
    pay_all(w);
    takes(w, late, 0);
    assert_int_equal(3, w->held[late]);
    assert_int_not_equal(0, w->source);
    end_world(w);
}

static void rolling_is_one_after_the_other(void **state)
{
    struct world *w = with_policy(3, DYT_POLICY_ROLLING, 0);

    (void)state;
    offer_both(w, 1);
    for (uint32_t i = 2; i < 5; i++) {
        assert_ok(receive(w, i, 1));
    }
    while (w->due_count > 0) {
        uint32_t receiving = 0;

        for (size_t g = 1; g < w->fleet.group_count; g++) {
            receiving += w->fleet.group[g].state == DYTI_GROUP_RECEIVING;
        }
        assert_int_equal(1, receiving);
        pay(w, 0);
    }
    assert_int_equal(3, w->runs);
    assert_false(w->pinned[0]);
    end_world(w);
}

static uint32_t receiving(const struct world *w)
{
    uint32_t n = 0;

    for (size_t g = 1; g < w->fleet.group_count; g++) {
        n += w->fleet.group[g].state == DYTI_GROUP_RECEIVING;
    }
    return n;
}

static void all_replicas_take_it_at_once(void **state)
{
    struct world *w = published(3);

    (void)state;
    offer_both(w, 1);
    for (uint32_t i = 2; i < 5; i++) {
        assert_ok(receive(w, i, 1));
        assert_int_equal(i - 1, receiving(w));
        assert_int_equal(i - 1, w->fleet.group[0].readers);
    }
    for (uint32_t i = 0; i < w->due_count;) { /* the openings alone */
        if (w->due[i].kind == DYTI_FLEET_READY) {
            pay(w, i);
            i = 0;
        } else {
            i++;
        }
    }
    assert_int_equal(3, w->runs); /* and none has ended */
    assert_int_equal(3, w->fleet.group[0].readers);
    assert_true(w->pinned[0] && w->pinned[1]);
    pay_all(w);
    assert_int_equal(0, w->fleet.group[0].readers);
    assert_false(w->pinned[0] || w->pinned[1]);
    end_world(w);
}

/* The policy is met by one of two that read: nobody else may begin, and the
 * rows are free when the other has ended too. */
static void a_met_quorum_waits_for_its_readers_alone(void **state)
{
    struct world *w = with_policy(3, DYT_POLICY_QUORUM, 1);

    (void)state;
    offer_both(w, 1);
    assert_ok(receive(w, 2, 1));
    assert_ok(receive(w, 3, 1));
    while (w->fleet.group[0].readers == 2) {
        pay(w, 0);
    }
    assert_true(w->pinned[0]);
    assert_ok(receive(w, 4, 1));
    assert_int_equal(1, w->fleet.group[0].readers);
    pay_all(w);
    assert_false(w->pinned[0]);
    assert_int_equal(DYT_OK, w->done[0]);
    end_world(w);
}

/* Hosts 2 and 2, trainer on 1. */
static void one_copy_enters_a_host(void **state)
{
    struct world *w = new_world();
    struct dyti_fleet_place p = place(NONE, 0, 1);
    uint32_t trainer, replica[3];

    (void)state;
    assert_ok(join_place(w, &p, &trainer));
    for (uint32_t i = 0; i < 3; i++) {
        p = place(i, 0, 1);
        p.host = i < 2 ? 2 : 1;
        assert_ok(join_place(w, &p, &replica[i]));
        assert_ok(publish(w, replica[i]));
    }
    assert_ok(publish(w, trainer));
    pay_all(w);
    assert_ok(offer(w, trainer, 1, false));
    for (uint32_t i = 0; i < 3; i++) {
        assert_ok(receive(w, replica[i], 1));
    }
    /* one of host 2, and that of the trainer's host */
    assert_int_equal(2, w->fleet.group[0].readers);
    assert_int_equal(2, receiving(w));
    assert_true(w->fleet.link[0].apart && !w->fleet.link[1].apart);
    while (w->runs < 3) {
        pay(w, 0);
    }
    assert_int_equal(1, w->source); /* of the second of host 2: the first */
    pay_all(w);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(1, w->held[replica[i]]);
    }
    assert_false(w->pinned[trainer]);
    end_world(w);
}

static void a_quorum_frees_the_rows(void **state)
{
    struct world *w = with_policy(3, DYT_POLICY_QUORUM, 2);

    (void)state;
    offer_both(w, 1);
    takes(w, 2, 0);
    assert_true(w->pinned[0]);
    takes(w, 4, 0);
    assert_false(w->pinned[0]);
    end_world(w);
}

/* What the manager was given counts, each for itself. */
static void the_manager_overrules_the_trainer(void **state)
{
    (void)state;
    for (uint32_t given = 0; given < 4; given++) {
        struct world *w = new_world();
        struct dyti_fleet_place p = place(NONE, 0, 1);
        uint32_t id;

        w->fleet.policy_given = (given & 1) != 0;
        w->fleet.skew_given = (given & 2) != 0;
        w->fleet.policy = DYT_POLICY_ROLLING;
        w->fleet.max_version_skew = 7;
        p.policy = DYT_POLICY_QUORUM;
        p.quorum = 2;
        p.max_version_skew = 3;
        assert_ok(join_place(w, &p, &id));
        assert_int_equal((given & 1) != 0 ? DYT_POLICY_ROLLING
                                          : DYT_POLICY_QUORUM,
                         w->fleet.policy);
        assert_int_equal((given & 2) != 0 ? 7 : 3, w->fleet.max_version_skew);
        end_world(w);
    }
}

static void skew_holds_the_fast_back(void **state)
{
    struct world *w = with_policy(2, DYT_POLICY_QUORUM, 1);

    (void)state;
    w->fleet.max_version_skew = 1;
    offer_both(w, 1);
    assert_ok(receive(w, 2, 0));
    takes(w, 3, 0);
    offer_both(w, 2);
    takes(w, 2, 2);
    offer_both(w, 3);
    assert_ok(receive(w, 2, 3)); /* 3 over 1 is too much */
    pay_all(w);
    assert_true(w->asked[2][ASK_RECEIVE]);
    take(w, (struct dyti_fleet_event){.kind = DYTI_FLEET_WITHDRAW,
                                      .member = 2,
                                      .status = DYT_ERR_TIMEOUT});
    assert_int_equal(DYT_ERR_TIMEOUT, w->said[2][ASK_RECEIVE]);
    assert_non_null(strstr(w->text[2], "max_version_skew 1"));
    assert_ok(receive(w, 3, 3)); /* the slow one may */
    pay_all(w);
    assert_int_equal(3, w->held[3]);
    end_world(w);
}

static void the_dead_are_dropped_and_fail_nobody(void **state)
{
    struct world *w = published(2);

    (void)state;
    offer_both(w, 1);
    assert_ok(receive(w, 2, 0));
    gone(w, 2, DYT_ERR_PEER); /* in the opening */
    takes(w, 3, 0);
    assert_int_equal(1, w->held[3]);
    assert_int_equal(DYT_OK, w->done[0]);
    offer_both(w, 2);
    assert_ok(receive(w, 3, 0));
    w->now += 100 * SECOND; /* and nobody answers */
    assert_true(dyti_fleet_next_ns(&w->fleet) <= w->now);
    take(w, (struct dyti_fleet_event){.kind = DYTI_FLEET_TICK});
    assert_true(w->dropped > 0);
    end_world(w);
}

/* Who asks after a death is not answered by the link that it broke. */
static void a_broken_link_answers_no_later_receive(void **state)
{
    struct world *w = one_of_two();
    uint32_t again;

    (void)state;
    offer_both(w, 1);
    assert_ok(receive(w, 2, 0));
    assert_ok(receive(w, 3, 0));
    gone(w, 3, DYT_ERR_PEER); /* while the link opens */
    assert_int_equal(DYT_ERR_PEER, w->said[2][ASK_RECEIVE]);
    again = join(w, 0, 1, 2);
    assert_ok(publish(w, again));
    for (uint32_t i = 0; i < w->due_count;) { /* but for the link's ends */
        if (w->due[i].kind == DYTI_FLEET_READY) {
            i++;
        } else {
            pay(w, i);
            i = 0;
        }
    }
    assert_int_equal(DYT_OK, w->said[again][ASK_PUBLISH]);
    assert_ok(receive(w, 2, 0));
    takes(w, again, 0);
    assert_int_equal(DYT_OK, w->said[2][ASK_RECEIVE]);
    assert_int_equal(1, w->held[2]);
    assert_int_equal(1, w->held[again]);
    assert_int_equal(DYT_OK, w->done[0]);
    end_world(w);
}

static enum dyt_status sleeps(struct world *w, uint32_t member, bool wakes)
{
    return ask(w, member, ASK_RELEASE,
               (struct dyti_fleet_event){.kind = wakes ? DYTI_FLEET_RESTORE
                                                       : DYTI_FLEET_RELEASE});
}

/* Rank 1 sleeps, rank 0 does not and receives, before or after. */
static void a_sleeping_rank_ends_the_others_receives(void **state)
{
    static const char why[] = "rank 1 of replica rollout/0 (pid 0 on here) has "
                              "released its weights";
    struct world *w = one_of_two();

    (void)state;
    offer_both(w, 1);
    assert_ok(receive(w, 2, 1)); /* it waits for the other */
    assert_ok(sleeps(w, 3, false));
    assert_false(w->asked[2][ASK_RECEIVE]);
    assert_int_equal(DYT_ERR_STATE, w->said[2][ASK_RECEIVE]);
    assert_non_null(strstr(w->text[2], why));
    assert_status(DYT_ERR_STATE, receive(w, 2, 1)); /* and again */
    assert_error_has(why);
    /* both sleep, one is slower to wake: it is waited for */
    assert_ok(sleeps(w, 2, false));
    assert_ok(sleeps(w, 2, true));
    assert_ok(receive(w, 2, 1));
    assert_true(w->asked[2][ASK_RECEIVE]);
    assert_ok(sleeps(w, 3, true));
    takes(w, 3, 1);
    assert_int_equal(DYT_OK, w->said[2][ASK_RECEIVE]);
    assert_int_equal(1, w->held[2]);
    /* one is slower to fall asleep: the other, awake again, waits */
    offer_both(w, 2);
    assert_ok(sleeps(w, 3, false));
    assert_ok(sleeps(w, 3, true));
    assert_ok(receive(w, 3, 2));
    assert_ok(sleeps(w, 2, false));
    assert_true(w->asked[3][ASK_RECEIVE]);
    assert_ok(sleeps(w, 2, true));
    takes(w, 2, 2);
    assert_int_equal(DYT_OK, w->said[3][ASK_RECEIVE]);
    assert_int_equal(2, w->held[3]);
    end_world(w);
}

static void a_cancelled_offer_waits_for_its_readers(void **state)
{
    struct world *w = published(1);

    (void)state;
    offer_both(w, 1);
    assert_ok(receive(w, 2, 0));
    take(w, (struct dyti_fleet_event){
                .kind = DYTI_FLEET_CANCEL, .member = 1, .version = 1});
    assert_true(w->pinned[0] && w->pinned[1]); /* it opens */
    w->run[1] = (struct run){0};
    pay_all(w);
    assert_false(w->pinned[0] || w->pinned[1]);
    assert_int_equal(DYT_ERR_CANCELLED, w->done[0]);
    end_world(w);
}

static void a_snapshot_frees_the_rows_at_once(void **state)
{
    struct world *w = published(1);

    (void)state;
    assert_ok(offer(w, 0, 1, true));
    assert_ok(offer(w, 1, 1, true));
    for (uint32_t r = 0; r < 2; r++) {
        take(w, (struct dyti_fleet_event){
                    .kind = DYTI_FLEET_TAKEN, .member = r, .version = 1});
    }
    assert_false(w->fleet.member[0].pinned || w->fleet.member[1].pinned);
    takes(w, 2, 0);
    assert_int_equal(1, w->held[2]);
    end_world(w);
}

static uint32_t links_of_trainer(const struct world *w)
{
    uint32_t n = 0;

    for (uint32_t l = 0; l < w->fleet.link_count; l++) {
        n += w->fleet.link[l].state == DYTI_LINK_READY &&
             w->fleet.link[l].source == 0;
    }
    return n;
}

/* A rank whose rows are another memory by now: nobody reads them through what
 * was opened before. */
static void renewed_memory_is_opened_anew(void **state)
{
    struct world *w = published(1);

    (void)state;
    offer_both(w, 1);
    takes(w, 2, 0);
    assert_int_equal(1, links_of_trainer(w));
    for (uint64_t version = 2; version < 4; version++) {
        for (uint32_t r = 0; r < 2; r++) {
            assert_ok(ask(w, r, ASK_OFFER,
                          (struct dyti_fleet_event){.kind = DYTI_FLEET_OFFER,
                                                    .version = version,
                                                    .takes = true}));
        }
        for (uint32_t r = 0; r < 2; r++) {
            take(w,
                 (struct dyti_fleet_event){.kind = DYTI_FLEET_TAKEN,
                                           .member = r,
                                           .version = version,
                                           .renewed = version == 2 && r == 0});
        }
        assert_int_equal(version == 3, links_of_trainer(w));
        takes(w, 2, version);
        assert_int_equal(version, w->held[2]);
        assert_int_equal(1, links_of_trainer(w));
    }
    end_world(w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(renewed_memory_is_opened_anew),
    cmocka_unit_test(a_version_goes_out_and_the_rows_are_free),
    cmocka_unit_test(a_place_is_taken_once),
    cmocka_unit_test(rows_are_looked_at_when_all_who_brought_them_wait),
    cmocka_unit_test(a_late_replica_asks_its_sibling),
    cmocka_unit_test(rolling_is_one_after_the_other),
    cmocka_unit_test(all_replicas_take_it_at_once),
    cmocka_unit_test(a_met_quorum_waits_for_its_readers_alone),
    cmocka_unit_test(one_copy_enters_a_host),
    cmocka_unit_test(a_quorum_frees_the_rows),
    cmocka_unit_test(the_manager_overrules_the_trainer),
    cmocka_unit_test(skew_holds_the_fast_back),
    cmocka_unit_test(the_dead_are_dropped_and_fail_nobody),
    cmocka_unit_test(a_broken_link_answers_no_later_receive),
    cmocka_unit_test(a_sleeping_rank_ends_the_others_receives),
    cmocka_unit_test(a_cancelled_offer_waits_for_its_readers),
    cmocka_unit_test(a_snapshot_frees_the_rows_at_once),
};
DYT_TEST_MAIN(tests)
