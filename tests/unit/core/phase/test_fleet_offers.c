/* A job's fleet: the ends of the scale.  The first and the last version, ranks
 * and replicas that are apart, offers that nobody is left to take, and what is
 * given up. */
#include "fleet_world.h"

/* The last ones may go on, however far the trainer has gone on meanwhile: it
 * took an offer back, or counts in tens. */
static void skew_never_holds_everybody(void **state)
{
    struct world *w = with_policy(2, DYT_POLICY_ALL, 0);
    uint32_t late;

    (void)state;
    w->fleet.max_version_skew = 1;
    offer_both(w, 1);
    takes(w, 2, 0);
    takes(w, 3, 0);
    late = join(w, 7, 0, 1);
    assert_ok(publish(w, late));
    pay_all(w);
    offer_both(w, 10);
    assert_ok(receive(w, late, 10)); /* it would be ahead of all others */
    pay_all(w);
    assert_true(w->asked[late][ASK_RECEIVE]);
    takes(w, 2, 10);
    assert_int_equal(10, w->held[2]);
    assert_true(w->asked[late][ASK_RECEIVE]);
    takes(w, 3, 10);
    assert_int_equal(10, w->held[3]);
    assert_int_equal(10, w->held[late]);
    assert_int_equal(DYT_OK, w->done[0]);
    assert_false(w->pinned[0] || w->pinned[1]);
    end_world(w);
}

/* 0 is a version: weights that were not updated yet. */
static void ranks_that_differ_hear_so_in_either_order(void **state)
{
    (void)state;
    for (uint32_t first = 0; first < 2; first++) {
        struct world *w = published(1);

        assert_ok(offer(w, first, 0, false));
        assert_status(DYT_ERR_INVALID, offer(w, 1 - first, 5, false));
        assert_error_has("versions 0 and 5");
        assert_int_equal(DYT_ERR_INVALID, w->said[first][ASK_OFFER]);
        offer_both(w, 5);
        takes(w, 2, 5);
        assert_int_equal(5, w->held[2]);
        end_world(w);
    }
}

/* Rank 1 never offers: rank 0 hears what it has waited for. */
static void half_an_offer_ends_in_time(void **state)
{
    struct world *w = published(1);

    (void)state;
    assert_ok(offer(w, 0, 3, false));
    take(w, (struct dyti_fleet_event){.kind = DYTI_FLEET_CANCEL,
                                      .member = 0,
                                      .version = 3,
                                      .status = DYT_ERR_TIMEOUT});
    assert_int_equal(DYT_ERR_TIMEOUT, w->said[0][ASK_OFFER]);
    assert_non_null(strstr(w->text[0], "1 of 2 ranks of the trainer offer "
                                       "version 3"));
    offer_both(w, 3);
    end_world(w);
}

/* Nothing is newer than the highest number: not what comes after its wrap. */
static void nothing_is_above_the_highest_version(void **state)
{
    struct world *w = with_policy(2, DYT_POLICY_QUORUM, 1);

    (void)state;
    offer_both(w, 3);
    takes(w, 2, 0);
    offer_both(w, UINT64_MAX);
    takes(w, 3, 0);
    assert_true(w->held[3] == UINT64_MAX);
    assert_ok(receive(w, 3, 0)); /* its sibling has version 3 */
    assert_false(w->asked[3][ASK_RECEIVE]);
    assert_int_equal(DYT_OK, w->said[3][ASK_RECEIVE]);
    pay_all(w);
    assert_true(w->held[3] == UINT64_MAX);
    takes(w, 2, 0);
    assert_true(w->held[2] == UINT64_MAX);
    assert_status(DYT_ERR_STATE, offer(w, 0, 4, false));
    end_world(w);
}

/* The only replica dies, or leaves: the offer is there for the next one. */
static void an_offer_that_is_left_alone_is_kept_a_while(void **state)
{
    (void)state;
    for (uint32_t turn = 0; turn < 4; turn++) {
        struct world *w = published(turn < 3 ? 1 : 0);
        uint32_t next = 2;

        if (turn == 3) { /* nobody has come yet: that is no end */
            offer_both(w, 4);
            assert_true(dyti_fleet_next_ns(&w->fleet) <=
                        w->now + 10 * SECOND); /* silence */
            next = join(w, 0, 0, 1);
            assert_ok(publish(w, next));
            pay_all(w);
        } else {
            offer_both(w, 4);
        }
        gone(w, next, turn == 0 ? DYT_OK : DYT_ERR_PEER);
        assert_true(w->pinned[0] && w->pinned[1]);
        w->now += 19 * SECOND;
        for (uint32_t r = 0; r < 2; r++) {
            take(w, (struct dyti_fleet_event){.kind = DYTI_FLEET_ALIVE,
                                              .member = r});
        }
        assert_true(w->pinned[0] && w->pinned[1]);
        if (turn == 2) { /* in time */
            next = join(w, 0, 0, 1);
            w->now += 5 * SECOND;
            assert_ok(publish(w, next));
            pay_all(w);
            takes(w, next, 0);
            assert_int_equal(4, w->held[next]);
            assert_int_equal(DYT_OK, w->done[0]);
        } else {
            assert_true(dyti_fleet_next_ns(&w->fleet) <= w->now + SECOND);
            w->now += SECOND;
            take(w, (struct dyti_fleet_event){.kind = DYTI_FLEET_TICK});
            assert_int_equal(DYT_ERR_PEER, w->done[0]);
            assert_int_equal(DYT_ERR_PEER, w->done[1]);
        }
        assert_false(w->pinned[0] || w->pinned[1]);
        offer_both(w, 5);
        end_world(w);
    }
}

/* Its replica is read by a late one: it gives the release up, and nothing is
 * released behind its back. */
static void a_release_may_be_given_up(void **state)
{
    struct world *w = published(1);
    uint32_t late;

    (void)state;
    offer_both(w, 1);
    takes(w, 2, 0);
    late = join(w, 1, 0, 1);
    assert_ok(publish(w, late));
    pay_all(w);
    assert_ok(receive(w, late, 0));
    assert_ok(ask(w, 2, ASK_RELEASE,
                  (struct dyti_fleet_event){.kind = DYTI_FLEET_RELEASE}));
    assert_true(w->asked[2][ASK_RELEASE]);
    take(w, (struct dyti_fleet_event){.kind = DYTI_FLEET_WITHDRAW,
                                      .member = 2,
                                      .status = DYT_ERR_CANCELLED});
    assert_false(w->asked[2][ASK_RELEASE]);
    assert_int_equal(DYT_ERR_CANCELLED, w->said[2][ASK_RELEASE]);
    pay_all(w);
    assert_int_equal(1, w->held[late]);
    assert_int_equal(DYTI_GROUP_SERVING,
                     w->fleet.group[w->fleet.member[2].group].state);
    offer_both(w, 2);
    takes(w, 2, 0);
    assert_int_equal(2, w->held[2]);
    end_world(w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(skew_never_holds_everybody),
    cmocka_unit_test(ranks_that_differ_hear_so_in_either_order),
    cmocka_unit_test(half_an_offer_ends_in_time),
    cmocka_unit_test(nothing_is_above_the_highest_version),
    cmocka_unit_test(an_offer_that_is_left_alone_is_kept_a_while),
    cmocka_unit_test(a_release_may_be_given_up),
};
DYT_TEST_MAIN(tests)
