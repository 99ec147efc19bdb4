/* One version after the other by other ways: with and without a snapshot, from
 * the trainer and from a sibling, to and from replicas with two sets.  What was
 * right for the way before must not be taken for this one: each time the rows
 * hold the version that they are said to hold. */
#include "session_world.h"

/* A replica of a job whose trainer is content with one that has it. */
static void join_replica(struct member *m, const char *folder, uint32_t number,
                         const struct session_mode *mode)
{
    describe(m, folder, DYT_ROLE_RECEIVER, number, 0, 1);
    m->join.commit = mode->commit;
    m->join.memory = mode->memory;
    assert_ok(enter(m));
}

static void join_trainer(struct member *t, const char *folder)
{
    describe(t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    t->join.policy = DYT_POLICY_QUORUM;
    t->join.quorum = 1;
    assert_ok(enter(t));
}

static void take_from(struct member *m, uint64_t version, uint32_t source)
{
    uint64_t valid = 0;

    assert_ok(receive_version(m, version));
    assert_int_equal(version, m->report.version);
    assert_int_equal(source, m->report.source);
    assert_ok(dyt_session_valid(m->session, &valid));
    assert_int_equal(version, valid);
    assert_int_equal(version, version_of(m));
}

/* The rows are written again as soon as they may be. */
static void send_to(struct member *t, struct member *m, uint64_t version,
                    bool snapshot)
{
    dyt_ticket *ticket;

    write_version(t, version);
    assert_ok(offer_version(t, version, snapshot, &ticket));
    if (snapshot) {
        write_version(t, version + 100);
    }
    take_from(m, version, 0);
    assert_ok(dyt_ticket_wait(ticket, -1));
    dyt_ticket_destroy(ticket);
}

static void with_a_snapshot_and_without(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        const char *folder = session_folder();
        struct member t, r;

        join_trainer(&t, folder);
        join_replica(&r, folder, 0, &session_modes[i]);
        for (uint64_t version = 1; version <= 8; version++) {
            /* twice each: a link is opened, and used again */
            send_to(&t, &r, version, (version + i) / 2 % 2 == 0);
        }
        leave(&r);
        leave(&t);
    }
}

/* Of two sets one is served: whoever is late reads that one, each time. */
static void late_ones_read_what_a_sibling_serves(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        for (size_t k = 0; k < DYT_TEST_COUNT(session_modes); k++) {
            const char *folder = session_folder();
            struct member t, r, late;

            join_trainer(&t, folder);
            join_replica(&r, folder, 0, &session_modes[i]);
            for (uint64_t version = 1; version <= 3; version++) {
                send_to(&t, &r, version, false);
                for (uint32_t turn = 0; turn < 2; turn++) {
                    join_replica(&late, folder, 1, &session_modes[k]);
                    take_from(&late, version, 1);
                    leave(&late);
                }
                assert_int_equal(version, version_of(&r));
            }
            leave(&r);
            leave(&t);
        }
    }
}

/* From the trainer, from a sibling, and from the trainer again, which writes
 * what it offers: that update fails, and the one before is whole. */
static void the_set_that_is_served_is_written_by_nobody(void **state)
{
    static const struct session_mode twice = {"double", DYT_COMMIT_DOUBLE,
                                              DYT_MEMORY_MAPPED};
    const char *folder = session_folder();
    struct member t, r, other;
    dyt_ticket *ticket;

    (void)state;
    join_trainer(&t, folder);
    join_replica(&r, folder, 0, &twice);
    join_replica(&other, folder, 1, &session_modes[0]);
    for (uint64_t version = 1; version < 10; version += 3) {
        send_to(&t, &r, version, false);
        send_to(&t, &other, version + 1, false);
        take_from(&r, version + 1, 1);
        write_version(&t, version + 2);
        assert_ok(offer_version(&t, version + 2, false, &ticket));
        write_version(&t, version + 100);
        assert_status(DYT_ERR_VERIFY, receive_version(&r, version + 2));
        assert_int_equal(version + 1, version_of(&r));
        (void)dyt_ticket_cancel(ticket);
        dyt_ticket_destroy(ticket);
    }
    leave(&other);
    leave(&r);
    leave(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(with_a_snapshot_and_without),
    cmocka_unit_test(late_ones_read_what_a_sibling_serves),
    cmocka_unit_test(the_set_that_is_served_is_written_by_nobody),
};
DYT_TEST_MAIN(tests)
