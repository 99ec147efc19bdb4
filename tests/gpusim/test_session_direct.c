/* Sessions whose rows all lie on devices that reach each other: bytes go once,
 * from device to device, and take no memory of the host.  Where one member
 * cannot, all go by mirrors, and it is said why.  Several replicas:
 * test_session_direct_replicas.c. */
#include "session_scene.h"

/* ---- bytes go once ------------------------------------------------------- */

static void versions_go_once(void **state)
{
    static const enum gpusim_order order[] = {GPUSIM_LATE, GPUSIM_SHUFFLED,
                                              GPUSIM_EARLY};

    (void)state;
    for (uint64_t n = 0; n < 3 * DYT_TEST_COUNT(modes); n++) {
        const struct mode *mode = &modes[n % DYT_TEST_COUNT(modes)];
        struct scene s;

        print_message("%s, verify %u\n", mode->name, (unsigned)(n % 3));
        gpusim_set_order(order[n % 3], n + 1);
        if (gpusim_simulates()) {
            gpusim_have_devices(3);
        }
        s = spread(1 + n / 3 % 2, 1 + n / 4 % 2, gpusim_simulates() ? 3 : 1);
        set_mode(&s, mode, (uint32_t)(n % 3));
        all_enter(&s);
        for (uint64_t version = 1; version <= LATEST; version++) {
            pass_version(&s, version);
            if (s.trainers == 1 && s.receivers == 1) {
                check_hashes(&s);
            }
        }
        check_way(&s, "direct\"");
        assert_int_equal(0, mirror_bytes(&s));
        if (mode->commit != DYT_COMMIT_STAGED) { /* whose scratch is there */
            assert_int_equal(0, s.receiver[0].m->report.scratch_bytes);
        }
        all_end(&s);
    }
}

/* What is of no tensor is zero, as by a mirror. */
static void padding_is_zero(void **state)
{
    (void)state;
    for (size_t n = 0; n < DYT_TEST_COUNT(modes); n++) {
        struct scene s = {.folder = session_folder(), .trainers = 1};
        struct member *m;

        s.receivers = 1;
        s.trainer[0].m = member_new(s.folder, DYT_ROLE_TRAINER, 0, 0, 1);
        WHOLE(s.trainer[0].m, "model.embed_tokens.weight", DYT_F32, 50, 4);
        put_on_device(&s.trainer[0], 0);
        s.receiver[0].m = m = member_new(s.folder, DYT_ROLE_RECEIVER, 0, 0, 1);
        assert_ok(dyt_rules_builtin("vllm/llama", &m->rules));
        m->by_rules = m->padded[0] = true;
        ROW(m, "model.embed_tokens.weight", DYT_F32, 64, 4);
        member_piece(m, "model.embed_tokens.weight", 2, SHAPE(50, 4), 0, 0, 50,
                     0);
        put_on_device(&s.receiver[0], 0);
        set_mode(&s, &modes[n], DYT_VERIFY_FULL);
        all_enter(&s);
        pass_version(&s, 1);
        pass_version(&s, 2);
        check_way(&s, "direct\"");
        all_end(&s);
    }
}

/* ---- who may write, and when --------------------------------------------- */

static void an_offer_pins_the_rows(void **state)
{
    struct dyt_offer_params next = {.struct_size = sizeof(next), .version = 2};
    struct dyt_offer_params snapshot = {
        .struct_size = sizeof(snapshot), .version = 2, .snapshot = 1};
    dyt_ticket *ticket = NULL;
    struct scene s = spread(1, 1, 1);
    struct member *t = s.trainer[0].m, *r = s.receiver[0].m;

    (void)state;
    all_enter(&s);
    write_all(&s, 1);
    t->version = r->version = 1;
    assert_ok(offer_as_is(t));
    assert_status(DYT_ERR_STATE, dyt_session_will_write(t->session));
    assert_status(DYT_ERR_STATE, dyt_session_offer(t->session, &next, &ticket));
    assert_ok(receive(r));
    end_ticket(t, DYT_OK);
    assert_ok(dyt_session_will_write(t->session));
    /* who cannot wait asks for a copy, which is the mirror's */
    write_all(&s, 2);
    assert_ok(dyt_session_offer(t->session, &snapshot, &ticket));
    assert_ok(dyt_session_will_write(t->session));
    write_all(&s, 99);
    r->version = 2;
    assert_ok(receive(r));
    assert_true(holds_there(&s.receiver[0], 2));
    assert_ok(dyt_ticket_wait(ticket, -1));
    dyt_ticket_destroy(ticket);
    check_way(&s, "by mirrors: member 0: it offers a snapshot");
    assert_true(mirror_bytes(&s) > 0);
    pass_version(&s, 3); /* and the next one goes once again */
    check_way(&s, "direct\"");
    all_end(&s);
}

struct writer {
    struct scene *s;
    uint32_t calls;
};

static enum dyt_status write_undeclared(void *arg)
{
    struct writer *w = arg;

    w->calls++;
    write_all(w->s, 9);
    assert_cuda(cudaDeviceSynchronize());
    return DYT_OK;
}

static void an_undeclared_write_is_found(void **state)
{
    (void)state;
    for (size_t n = 0; n < DYT_TEST_COUNT(modes); n++) {
        struct scene s = spread(1, 1, 1);
        struct writer w = {.s = &s};
        struct dyt_session_hooks none = {.struct_size = sizeof(none)};
        struct dyt_session_hooks hooks = {
            .struct_size = sizeof(hooks), .arg = &w, .pause = write_undeclared};
        struct member *t = s.trainer[0].m, *r = s.receiver[0].m;
        uint64_t valid = 0;

        set_mode(&s, &modes[n],
                 n % 2 == 0 ? DYT_VERIFY_FULL : DYT_VERIFY_SAMPLE);
        all_enter(&s);
        pass_version(&s, 1);
        write_all(&s, 2);
        t->version = r->version = 2;
        assert_ok(offer_as_is(t));
        assert_ok(dyt_session_set_hooks(r->session, &hooks));
        assert_int_equal(DYT_ERR_VERIFY, receive(r));
        assert_non_null(strstr(r->text, " was written"));
        assert_int_equal(1, w.calls);
        end_ticket(t, DYT_ERR_VERIFY);
        if (modes[n].commit == DYT_COMMIT_IN_PLACE) {
            assert_status(DYT_ERR_STATE, dyt_session_valid(r->session, &valid));
        } else {
            assert_ok(dyt_session_valid(r->session, &valid));
            assert_int_equal(1, valid);
            assert_true(holds_there(&s.receiver[0], 1));
        }
        assert_ok(dyt_session_set_hooks(r->session, &none));
        pass_version(&s, 3);
        all_end(&s);
    }
}

/* ---- order of work ------------------------------------------------------- */

static void what_is_queued_comes_first(void **state)
{
    struct dyt_offer_params offered = {.struct_size = sizeof(offered)};
    struct dyt_receive_params taken = {.struct_size = sizeof(taken),
                                       .deadline_ns = -1};

    (void)state;
    for (size_t n = 0; n < DYT_TEST_COUNT(modes); n++) {
        struct scene s;
        struct party *t, *r;
        struct reader old;
        void *weights = NULL;

        gpusim_set_order(GPUSIM_LATE, 5 + n);
        s = spread(1, 1, 1);
        set_mode(&s, &modes[n], (uint32_t)(n % 3));
        all_enter(&s);
        t = &s.trainer[0];
        r = &s.receiver[0];
        pass_version(&s, 1);
        old = reader_of(r);
        for (uint64_t version = 2; version < 6; version++) {
            bool by_event = version % 2 == 0;

            write_there(t, version); /* still under way when it is offered */
            offered.version = version;
            offered.event = by_event ? t->event : NULL;
            assert_ok(
                dyt_session_offer(t->m->session, &offered, &t->m->ticket));
            assert_ok(dyt_session_row_data(r->m->session, 0, &weights));
            reader_reads(&old, weights, r->stream);
            taken.version = version;
            taken.event = by_event ? old.event : NULL;
            assert_ok(dyt_session_receive_with(r->m->session, &taken, NULL));
            end_ticket(t->m, DYT_OK);
            assert_true(holds_there(r, version));
        }
        check_way(&s, "direct\"");
        reader_end(&old);
        all_end(&s);
    }
}

/* A stream that nobody names is not followed, and the simulator sees it. */
static void what_nobody_waits_for_is_found(void **state)
{
    struct scene s;

    (void)state;
    if (!gpusim_simulates()) {
        skip();
    }
    gpusim_set_order(GPUSIM_LATE, 5);
    s = spread(1, 1, 1);
    forget_streams(&s.trainer[0]);
    set_mode(&s, &modes[1], DYT_VERIFY_OFF);
    all_enter(&s);
    gpusim_expect(GPUSIM_MISSING_WAIT);
    write_there(&s.trainer[0], 1);
    s.trainer[0].m->version = s.receiver[0].m->version = 1;
    assert_ok(offer_as_is(s.trainer[0].m));
    assert_ok(receive(s.receiver[0].m));
    end_ticket(s.trainer[0].m, DYT_OK);
    end_with_missing_wait(&s);
}

/* Rows on two devices, by UUID, of which neither is the caller's: that is what
 * it was, on every call. */
static void a_callers_device_stays(void **state)
{
    struct scene s;
    int device = -1;

    (void)state;
    if (!gpusim_simulates()) {
        skip();
    }
    gpusim_have_devices(3);
    s = with_members(1, 1);
    put_on_device(&s.trainer[0], 1);
    put_on_device(&s.receiver[0], 2);
    all_enter(&s);
    pass_version(&s, 1);
    pass_version(&s, 2);
    check_way(&s, "direct\"");
    assert_cuda(cudaGetDevice(&device));
    assert_int_equal(0, device);
    all_end(&s);
}

/* ---- by mirrors, and why ------------------------------------------------- */

static void devices_that_do_not_reach_go_by_mirrors(void **state)
{
    struct gpusim_machine machine;
    struct scene s;

    (void)state;
    if (!gpusim_simulates()) {
        skip();
    }
    gpusim_get_machine(&machine);
    machine.device_count = 2;
    machine.refuses[1] = 1u << 0;
    gpusim_set_machine(&machine);
    s = spread(1, 1, 2);
    all_enter(&s);
    for (uint64_t version = 1; version <= LATEST; version++) {
        pass_version(&s, version);
    }
    check_way(&s, "by mirrors: member 1: ");
    assert_true(mirror_bytes(&s) > 0);
    all_end(&s);
}

static void rows_of_both_kinds_go_by_mirrors(void **state)
{
    struct scene s;

    (void)state;
    for (int who = 0; who < 2; who++) {
        s = with_members(1, 1);
        s.trainer[0].mixed = who == 0;
        s.receiver[0].mixed = who == 1;
        put_on_device(&s.trainer[0], 0);
        put_on_device(&s.receiver[0], 0);
        all_enter(&s);
        pass_version(&s, 1);
        pass_version(&s, 2);
        check_way(&s, who == 0
                          ? "by mirrors: member 0: row narrow lies on the host"
                          : "by mirrors: member 1: row narrow lies on the "
                            "host");
        all_end(&s);
    }
}

/* ---- memory that sleeps -------------------------------------------------- */

static void mapped_memory_sleeps(void **state)
{
    (void)state;
    for (size_t n = 2; n < DYT_TEST_COUNT(modes); n++) {
        struct scene s = spread(1, 1, 1);
        struct member *r = s.receiver[0].m;
        uint64_t held;

        set_mode(&s, &modes[n], DYT_VERIFY_FULL);
        all_enter(&s);
        pass_version(&s, 1);
        held = gpusim_held_bytes();
        assert_ok(dyt_session_release(r->session, DYT_TAG_WEIGHTS));
        assert_true(!gpusim_simulates() || gpusim_held_bytes() < held);
        assert_ok(dyt_session_restore(r->session, DYT_TAG_WEIGHTS));
        assert_int_equal(held, gpusim_held_bytes());
        r->padded[5] = true; /* what is of no tensor is zero after that */
        pass_version(&s, 2);
        check_way(&s, "direct\"");
        all_end(&s);
    }
}

/* A trainer whose weights were away: its memory may be another, so that links
 * are opened anew. */
static void a_trainer_sleeps(void **state)
{
    struct scene s = spread(1, 1, 1);
    struct dyt_session *t = s.trainer[0].m->session;

    (void)state;
    all_enter(&s);
    t = s.trainer[0].m->session;
    pass_version(&s, 1);
    assert_ok(dyt_session_release(t, DYT_TAG_WEIGHTS));
    assert_ok(dyt_session_restore(t, DYT_TAG_WEIGHTS));
    pass_version(&s, 2);
    pass_version(&s, 3);
    check_way(&s, "direct\"");
    all_end(&s);
}

static const struct CMUnitTest tests[] = {
    sim_test(versions_go_once),
    sim_test(padding_is_zero),
    sim_test(an_offer_pins_the_rows),
    sim_test(an_undeclared_write_is_found),
    sim_test(what_is_queued_comes_first),
    sim_test(what_nobody_waits_for_is_found),
    sim_test(a_callers_device_stays),
    sim_test(devices_that_do_not_reach_go_by_mirrors),
    sim_test(rows_of_both_kinds_go_by_mirrors),
    sim_test(mapped_memory_sleeps),
    sim_test(a_trainer_sleeps),
};
DYT_TEST_MAIN(tests)
