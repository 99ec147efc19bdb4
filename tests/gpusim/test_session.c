/* Sessions whose rows lie on a device: values, memory and the order of work. */
#include "session_scene.h"

#include <cuda.h>
#include <sys/wait.h>

static void versions_arrive_whole(void **state)
{
    static const enum gpusim_order order[] = {GPUSIM_LATE, GPUSIM_SHUFFLED,
                                              GPUSIM_EARLY};

    (void)state;
    for (size_t w = 0; w < DYT_TEST_COUNT(ways); w++) {
        struct scene s;

        print_message("%s\n", ways[w].name);
        gpusim_set_order(order[w % 3], w + 1);
        s = of_way(&ways[w], 1 + w % 2, 2 - w % 2);
        for (uint64_t version = 1; version <= LATEST; version++) {
            pass_version(&s, version);
        }
        all_end(&s);
    }
}

static void rows_have_one_hash(void **state)
{
    struct scene s;
    uint64_t there = 0, here = 0;

    (void)state;
    s = of_way(&ways[0], 1, 1); /* a device's trainer, a host's receiver */
    pass_version(&s, 1);
    check_hashes(&s);
    write_there(&s.trainer[0], 2); /* what it holds, not what was offered */
    assert_ok(dyt_session_row_hash(s.trainer[0].m->session, 0, &there));
    assert_ok(dyt_session_row_hash(s.receiver[0].m->session, 0, &here));
    assert_true(here != there);
    all_end(&s);
}

static void rows_of_both_kinds_are_one_version(void **state)
{
    struct scene s = with_members(2, 1);

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        s.trainer[i].mixed = i == 0;
        put_on_device(&s.trainer[i], 0);
    }
    s.receiver[0].mixed = true;
    put_on_device(&s.receiver[0], 0);
    all_enter(&s);
    for (uint64_t version = 1; version <= LATEST; version++) {
        pass_version(&s, version);
    }
    all_end(&s);
}

/* A server's row by its table of rules, whose padding is zero afterwards. */
static void padding_is_zero_there_too(void **state)
{
    struct scene s = {.folder = session_folder(), .trainers = 1};

    (void)state;
    s.receivers = 2;
    s.trainer[0].m = member_new(s.folder, DYT_ROLE_TRAINER, 0, 0, 1);
    WHOLE(s.trainer[0].m, "model.embed_tokens.weight", DYT_F32, 50, 4);
    put_on_device(&s.trainer[0], 0);
    for (uint32_t i = 0; i < 2; i++) {
        struct member *m = member_new(s.folder, DYT_ROLE_RECEIVER, 0, i, 2);

        s.receiver[i].m = m;
        assert_ok(dyt_rules_builtin("vllm/llama", &m->rules));
        m->by_rules = m->padded[0] = true;
        ROW(m, "model.embed_tokens.weight", DYT_F32, 32, 4);
        member_piece(m, "model.embed_tokens.weight", 2, SHAPE(50, 4), 0,
                     i == 0 ? 0 : 32, i == 0 ? 32 : 50, 0);
        put_on_device(&s.receiver[i], 0);
    }
    all_enter(&s);
    pass_version(&s, 1);
    pass_version(&s, 2);
    all_end(&s);
}

/* A trainer's process, which has a device of its own. */
static int be_a_trainer(struct member *m)
{
    struct party t = {.m = m};
    enum dyt_status st;

    put_on_device(&t, 0);
    st = enter(m);
    for (uint64_t version = 1; version <= LATEST && st == DYT_OK; version++) {
        write_there(&t, version);
        m->version = version;
        st = offer_as_is(m);
        st = st != DYT_OK ? st : end_offer(m);
    }
    if (st != DYT_OK) {
        print_error("the trainer: %s\n", m->text);
    }
    end_party(&t);
    return st == DYT_OK && gpusim_leaks() == 0 ? 0 : 1;
}

static void processes_share_memory(void **state)
{
    struct scene s = with_members(1, 1);
    struct party *r = &s.receiver[0];
    int status = -1;
    pid_t child;

    (void)state;
    (void)fflush(NULL);
    child = fork(); /* before anybody has started a device */
    if (child == 0) {
        _exit(be_a_trainer(s.trainer[0].m));
    }
    assert_true(child > 0);
    put_on_device(r, 0);
    assert_ok(enter(r->m));
    for (uint64_t version = 1; version <= LATEST; version++) {
        r->m->version = version;
        assert_ok(receive(r->m));
        assert_true(holds_there(r, version));
    }
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_int_equal(0, status);
    all_end(&s);
}

/* ---- order of work ------------------------------------------------------- */

static void what_is_queued_comes_first(void **state)
{
    struct scene s;
    struct party *t, *r;
    struct dyt_offer_params offered = {.struct_size = sizeof(offered)};
    struct dyt_receive_params taken = {.struct_size = sizeof(taken),
                                       .deadline_ns = -1};
    dyt_ticket *ticket = NULL;
    struct reader old;

    (void)state;
    gpusim_set_order(GPUSIM_LATE, 5);
    s = of_way(&ways[5], 1, 1);
    t = &s.trainer[0];
    r = &s.receiver[0];
    pass_version(&s, 1); /* by streams */
    old = reader_of(r);
    for (uint64_t version = 2; version < 6; version++) {
        bool by_event = version % 2 == 0;

        write_there(t, version);
        offered.version = version;
        offered.event = by_event ? t->event : NULL;
        offered.snapshot = 1; /* which is their mirror */
        assert_ok(dyt_session_offer(t->m->session, &offered, &ticket));
        /* offered is what was; this is free */
        assert_ok(dyt_session_will_write(t->m->session));
        write_there(t, version + 100);
        reader_reads(&old, r->there[0], r->stream);
        taken.version = version;
        taken.event = by_event ? old.event : NULL;
        assert_ok(dyt_session_receive_with(r->m->session, &taken, NULL));
        assert_ok(dyt_ticket_wait(ticket, -1));
        dyt_ticket_destroy(ticket);
        assert_true(holds_there(r, version));
    }
    reader_end(&old);
    all_end(&s);
}

/* The test above would see it. */
static void what_nobody_waits_for_is_found(void **state)
{
    struct scene s;

    (void)state;
    if (!gpusim_simulates()) {
        skip();
    }
    gpusim_set_order(GPUSIM_LATE, 5);
    s = with_members(1, 1);
    put_on_device(&s.trainer[0], 0);
    forget_streams(&s.trainer[0]);
    all_enter(&s);
    gpusim_expect(GPUSIM_MISSING_WAIT);
    write_there(&s.trainer[0], 1);
    s.trainer[0].m->version = 1;
    assert_ok(offer_as_is(s.trainer[0].m));
    assert_int_equal(DYT_OK, dyt_ticket_cancel(s.trainer[0].m->ticket));
    dyt_ticket_destroy(s.trainer[0].m->ticket);
    end_with_missing_wait(&s);
}

static void an_event_is_a_devices(void **state)
{
    struct dyt_offer_params offered = {.struct_size = sizeof(offered),
                                       .version = 1};
    struct dyt_receive_params taken = {.struct_size = sizeof(taken)};
    struct scene s = with_members(1, 1);

    (void)state;
    modules_opened = 0;
    all_enter(&s);
    taken.event = offered.event = &s;
    assert_status(DYT_ERR_UNSUPPORTED,
                  dyt_session_offer(s.trainer[0].m->session, &offered,
                                    &s.trainer[0].m->ticket));
    assert_status(
        DYT_ERR_UNSUPPORTED,
        dyt_session_receive_with(s.receiver[0].m->session, &taken, NULL));
    pass_version(&s, 1);
    assert_int_equal(0, modules_opened); /* who has no such rows opens nothing
                                          */
    all_end(&s);
}

/* ---- memory -------------------------------------------------------------- */

static void the_mirror_is_under_the_cap(void **state)
{
    struct scene s = with_members(1, 1);
    struct member *m[2] = {s.trainer[0].m, s.receiver[0].m};
    struct dyt_offer_params offered = {.struct_size = sizeof(offered),
                                       .version = 1};
    dyt_ticket *ticket = NULL;

    (void)state;
    put_on_device(&s.receiver[0], 0);
    m[1]->join.cap_bytes = 1000;
    m[1]->join.timeout_ns = m[0]->join.timeout_ns = 10 * SECOND;
    all_call(m, 2, enter);
    all_are(m, 2, DYT_OK); /* it is not used, and not counted, yet */
    write_there(&s.trainer[0], 1);
    assert_ok(dyt_session_offer(m[0]->session, &offered, &ticket));
    assert_int_equal(DYT_ERR_NOMEM, receive(m[1]));
    /* whoever tells the manager first */
    assert_non_null(strstr(m[1]->text, "the cap is 1000"));
    assert_ok(dyt_ticket_cancel(ticket));
    dyt_ticket_destroy(ticket);
    all_end(&s);

    s = of_way(&ways[4], 1, 1); /* in place: a mirror */
    pass_version(&s, 1);
    assert_in_range(s.receiver[0].m->report.scratch_bytes, 96 * 20 * 4, 40960);
    all_end(&s);
    s = of_way(&ways[3], 1, 1); /* staged: scratch besides */
    pass_version(&s, 1);
    assert_true(s.receiver[0].m->report.scratch_bytes > 40960);
    all_end(&s);
}

/* Mapped memory is the device's again while its weights are released. */
static void mapped_memory_sleeps(void **state)
{
    struct scene s;
    uint64_t held;

    (void)state;
    for (size_t w = 7; w < 9; w++) {
        struct member *r;

        s = of_way(&ways[w], 1, 1);
        r = s.receiver[0].m;
        pass_version(&s, 1);
        held = gpusim_held_bytes();
        assert_ok(dyt_session_release(r->session, DYT_TAG_WEIGHTS));
        assert_true(!gpusim_simulates() || gpusim_held_bytes() < held);
        assert_ok(dyt_session_restore(r->session, DYT_TAG_WEIGHTS));
        assert_int_equal(held, gpusim_held_bytes());
        r->padded[5] = true; /* what is of no tensor is zero after that */
        pass_version(&s, 2);
        all_end(&s);
    }
}

/* Where pages cannot be pinned any more bytes go through a buffer. */
static void unpinned_mirrors_hold_the_same(void **state)
{
    struct scene s;

    (void)state;
    if (!gpusim_simulates()) {
        skip();
    }
    gpusim_fail_call("cuMemHostRegister", 1, (int)CUDA_ERROR_OUT_OF_MEMORY);
    s = of_way(&ways[2], 1, 1);
    pass_version(&s, 1);
    assert_true(gpusim_has_failed());
    pass_version(&s, 2);
    all_end(&s);
    gpusim_fail_call("cuMemHostRegister", 1, (int)CUDA_ERROR_OUT_OF_MEMORY);
    s = of_way(&ways[3], 1, 1);
    pass_version(&s, 1);
    assert_true(gpusim_has_failed());
    pass_version(&s, 2);
    all_end(&s);
}

static const struct CMUnitTest tests[] = {
    sim_test(processes_share_memory), /* first: its child starts a device */
    sim_test(versions_arrive_whole),
    sim_test(rows_have_one_hash),
    sim_test(padding_is_zero_there_too),
    sim_test(rows_of_both_kinds_are_one_version),
    sim_test(what_is_queued_comes_first),
    sim_test(what_nobody_waits_for_is_found),
    sim_test(an_event_is_a_devices),
    sim_test(the_mirror_is_under_the_cap),
    sim_test(mapped_memory_sleeps),
    sim_test(unpinned_mirrors_hold_the_same),
};
DYT_TEST_MAIN(tests)
