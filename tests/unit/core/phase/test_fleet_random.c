/* A job's fleet: random events in any order, late, twice and from the dead,
 * with what must hold looked at after each of them. */
#include "fleet_world.h"

/* ---- random events ------------------------------------------------------- */

static void anybody_joins(struct world *w)
{
    uint32_t who = (uint32_t)draw(w, 4);
    uint32_t size = who == 0 ? 2 : 1 + who % 2;
    struct dyti_fleet_place p =
        place(who == 0 ? NONE : who, (uint32_t)draw(w, size), size);
    uint32_t id;

    p.commit = who % 3;
    p.host = draw(w, 4) == 0 && who != 0 ? 2 : 1;
    if (p.role == DYTI_FLEET_RECEIVER && size > 1) {
        p.host = 1;
    }
    p.policy = (uint32_t)(w->seed % 3);
    p.quorum = 1 + (uint32_t)(w->seed % 2);
    p.max_version_skew = (uint32_t)(w->seed % 4);
    if (join_place(w, &p, &id) == DYT_OK && draw(w, 8) != 0) {
        (void)publish(w, id);
    }
}

static void anything(struct world *w, uint32_t m)
{
    static const enum dyti_fleet_event_kind odd[] = {
        DYTI_FLEET_TAKEN, DYTI_FLEET_CANCEL, DYTI_FLEET_ALIVE,
        DYTI_FLEET_READY, DYTI_FLEET_RAN,    DYTI_FLEET_CHECKED};
    uint64_t version = w->fleet.last_version + 1;
    bool snapshot;

    switch (draw(w, 12)) {
    case 0:
        (void)publish(w, m);
        break;
    case 1:
    case 2:
        snapshot = w->seed % 2 != 0 && w->step / 64 % 2 != 0;
        if (m < 2 && w->alive[1 - m] && draw(w, 4) != 0) {
            (void)offer(w, 1 - m, version, snapshot);
        }
        (void)offer(w, m, draw(w, 12) == 0 ? version - 1 : version, snapshot);
        break;
    case 3:
    case 4:
    case 5:
        if (w->fleet.member[m].place.role == DYTI_FLEET_RECEIVER) {
            (void)receive(w, m, draw(w, 2) * draw(w, version + 1));
        }
        break;
    case 6:
        if (draw(w, 4) == 0) {
            take(w, (struct dyti_fleet_event){
                        .kind = DYTI_FLEET_WITHDRAW,
                        .member = m,
                        .status = draw(w, 2) ? DYT_ERR_TIMEOUT : DYT_OK});
        }
        break;
    case 7:
        if (w->fleet.member[m].released || draw(w, 4) == 0) {
            (void)ask(
                w, m, ASK_RELEASE,
                (struct dyti_fleet_event){.kind = w->fleet.member[m].released
                                                      ? DYTI_FLEET_RESTORE
                                                      : DYTI_FLEET_RELEASE});
        }
        break;
    case 8:
        if (draw(w, 12) == 0) {
            gone(w, m, draw(w, 2) ? DYT_OK : DYT_ERR_PEER);
        }
        break;
    case 9:
        w->now += (int64_t)draw(w, (uint64_t)SECOND * (draw(w, 200) ? 1 : 30));
        take(w, (struct dyti_fleet_event){.kind = DYTI_FLEET_TICK});
        break;
    default: /* late, twice, or about nothing */
        if (draw(w, 4) != 0) {
            break;
        }
        take(w, (struct dyti_fleet_event){.kind =
                                              odd[draw(w, w->step % 3 ? 3 : 2)],
                                          .member = m,
                                          .version = w->fleet.offer.version});
        take(w, (struct dyti_fleet_event){.kind = odd[3 + draw(w, 3)],
                                          .member = m,
                                          .group = 99,
                                          .link = 99});
        break;
    }
}

/* Everything is answered in the end. */
static void wind_up(struct world *w)
{
    w->faults = false;
    for (int round = 0; round < 4; round++) {
        pay_all(w);
        for (uint32_t m = 0; m < w->fleet.member_count; m++) {
            if (!w->alive[m]) {
                continue;
            }
            take(w,
                 (struct dyti_fleet_event){.kind = DYTI_FLEET_TAKEN,
                                           .member = m,
                                           .version = w->fleet.offer.version});
            take(w, (struct dyti_fleet_event){
                        .kind = DYTI_FLEET_CANCEL,
                        .member = m,
                        .version = w->asked[m][ASK_OFFER]
                                       ? w->fleet.member[m].want
                                       : w->fleet.offer.version});
            take(w, (struct dyti_fleet_event){.kind = DYTI_FLEET_WITHDRAW,
                                              .member = m});
        }
    }
    pay_all(w);
    for (uint32_t m = 0; m < w->fleet.member_count; m++) {
        if (w->asked[m][ASK_OFFER] || w->asked[m][ASK_RECEIVE] ||
            w->asked[m][ASK_RELEASE] || w->fleet.member[m].pinned) {
            fail_msg("seed %" PRIu64 ": member %u is never answered (offer %d, "
                     "receive %d, release %d, pinned %d)",
                     w->seed, m, w->asked[m][ASK_OFFER],
                     w->asked[m][ASK_RECEIVE], w->asked[m][ASK_RELEASE],
                     w->fleet.member[m].pinned);
        }
    }
}

static void no_order_of_events_breaks_it(void **state)
{
    uint64_t runs = 0;

    (void)state;
    for (uint64_t seed = 0; seed < dyt_test_rounds(400, 4000); seed++) {
        struct world *w = seed % 8 == 0 ? new_world() : published(2);

        w->seed = seed;
        w->faults = seed % 4 != 0;
        for (int i = 0; i < 3000; i++) {
            uint64_t what = draw(w, 10);

            if (w->due_count > 0 && what < 5) {
                pay(w, (uint32_t)draw(w, w->due_count));
            } else if ((what == 9 && draw(w, 8) == 0) ||
                       w->fleet.member_count == 0) {
                anybody_joins(w);
            } else {
                uint32_t m = (uint32_t)draw(w, w->fleet.member_count);

                if (w->alive[m]) {
                    anything(w, m);
                }
            }
        }
        runs += w->runs;
        wind_up(w);
        end_world(w);
    }
    assert_true(runs > 5 * dyt_test_rounds(400, 4000)); /* it came that far */
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_order_of_events_breaks_it),
};
DYT_TEST_MAIN(tests)
