/* Several replicas, of which some lie on devices that reach the trainer's:
 * bytes come to each as it can have them, to some later, from a sibling. */
#include "session_scene.h"

/* A replica on a device and one on the host, each as it can. */
static void a_mixed_job_goes_both_ways(void **state)
{
    struct member *r[2];
    struct scene s;

    (void)state;
    for (size_t n = 0; n < 2; n++) {
        s = with_members(1, 1);
        s.receivers = 2;
        s.receiver[1].m = replica_of(&s);
        put_on_device(&s.trainer[0], 0);
        put_on_device(&s.receiver[0], 0);
        set_mode(&s, &modes[n], DYT_VERIFY_FULL);
        all_enter(&s);
        r[0] = s.receiver[0].m;
        r[1] = s.receiver[1].m;
        for (uint64_t version = 1; version <= LATEST; version++) {
            pass_version(&s, version);
        }
        check_way(&s, "direct\"");
        check_way(&s, "by mirrors: member 1: its rows lie on the host");
        assert_int_equal(0, dyti_session_mirror_bytes(r[0]->session));
        all_end(&s);
    }
}

static void a_late_replica_takes_it_from_a_sibling(void **state)
{
    (void)state;
    for (size_t n = 0; n < DYT_TEST_COUNT(modes); n++) {
        struct scene s = spread(1, 1, 1);
        struct party late = {0};

        set_mode(&s, &modes[n], DYT_VERIFY_FULL);
        all_enter(&s);
        pass_version(&s, 1);
        pass_version(&s, 2); /* whose offer is over */
        late.m = replica_of(&s);
        late.m->join.commit = modes[n].commit;
        late.m->join.memory = modes[n].memory;
        put_on_device(&late, 0);
        assert_ok(enter(late.m));
        late.m->version = 2;
        assert_ok(receive(late.m));
        assert_int_equal(1, late.m->report.source);
        assert_true(holds_there(&late, 2));
        assert_int_equal(0, dyti_session_mirror_bytes(late.m->session));
        assert_int_equal(0,
                         dyti_session_mirror_bytes(s.receiver[0].m->session));
        end_party(&late);
        pass_version(&s, 3);
        all_end(&s);
    }
}

/* One on the host reads what its sibling's device holds, by a mirror that is
 * made for it. */
static void a_late_replica_of_the_host_does_too(void **state)
{
    (void)state;
    for (size_t n = 0; n < DYT_TEST_COUNT(modes); n++) {
        struct scene s = spread(1, 1, 1);

        set_mode(&s, &modes[n], DYT_VERIFY_FULL);
        all_enter(&s);
        for (uint64_t version = 1; version <= LATEST; version++) {
            struct party late = {0};

            pass_version(&s, version); /* the sibling's mirror is old by now */
            late.m = replica_of(&s);
            assert_ok(enter(late.m));
            late.m->version = version;
            assert_ok(receive(late.m));
            assert_int_equal(1, late.m->report.source);
            assert_true(holds_there(&late, version));
            end_party(&late);
        }
        assert_true(dyti_session_mirror_bytes(s.receiver[0].m->session) > 0);
        all_end(&s);
    }
}

/* Each on a device of its own, at once. */
static void replicas_read_at_once(void **state)
{
    (void)state;
    if (!gpusim_simulates()) {
        skip();
    }
    for (size_t n = 0; n < DYT_TEST_COUNT(modes); n++) {
        struct scene s;

        gpusim_reset();
        gpusim_have_devices(3);
        gpusim_set_order(GPUSIM_SHUFFLED, n + 9);
        s = with_members(2, 1);
        s.receivers = 2;
        s.receiver[1].m = replica_of(&s);
        for (uint32_t i = 0; i < 2; i++) {
            put_on_device(&s.trainer[i], 0);
            put_on_device(&s.receiver[i], 1 + (int)i);
        }
        set_mode(&s, &modes[n], DYT_VERIFY_FULL);
        all_enter(&s);
        for (uint64_t version = 1; version <= LATEST; version++) {
            pass_version(&s, version);
        }
        assert_int_equal(0, mirror_bytes(&s));
        all_end(&s);
    }
}

static const struct CMUnitTest tests[] = {
    sim_test(a_mixed_job_goes_both_ways),
    sim_test(a_late_replica_takes_it_from_a_sibling),
    sim_test(a_late_replica_of_the_host_does_too),
    sim_test(replicas_read_at_once),
};
DYT_TEST_MAIN(tests)
