/* The control page: one lock, one decision. */
#include "dyt_test.h"

#include "exec/control.h"

#include <pthread.h>

static uint32_t wakes;

static void no_wait(_Atomic uint32_t *word, uint32_t seen, int64_t max_ns)
{
    (void)word;
    (void)seen;
    (void)max_ns;
}

static void count_wake(_Atomic uint32_t *word)
{
    (void)word;
    wakes++;
}

static const struct dyti_wait_ops fake = {.struct_size = sizeof(fake),
                                          .name = "fake",
                                          .wait = no_wait,
                                          .wake = count_wake};

static struct dyti_control_page *fresh(uint32_t world_size)
{
    struct dyti_control_page *page = NULL;
    void *memory = aligned_alloc(4096, dyti_control_bytes());

    assert_non_null(memory);
    memset(memory, 0, dyti_control_bytes());
    assert_ok(dyti_control_open(memory, world_size, &page));
    return page;
}

static void all_vote(struct dyti_control_page *page, uint64_t epoch,
                     uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        dyti_switch_vote(page, &fake, i, epoch, DYTI_VOTE_READY, DYT_OK);
    }
}

static void commit_needs_all_votes(void **state)
{
    struct dyti_control_page *page = fresh(3);

    (void)state;
    assert_ok(dyti_switch_begin(page, 5, 7));
    all_vote(page, 5, 2);
    assert_status(DYT_PENDING, dyti_switch_commit(page, &fake, 5));
    dyti_switch_vote(page, &fake, 2, 4, DYTI_VOTE_READY, DYT_OK); /* late */
    assert_status(DYT_PENDING, dyti_switch_commit(page, &fake, 5));
    assert_int_equal(0, page->version);
    dyti_switch_vote(page, &fake, 2, 5, DYTI_VOTE_READY, DYT_OK);
    wakes = 0;
    assert_ok(dyti_switch_commit(page, &fake, 5));
    assert_true(wakes > 0);
    assert_int_equal(7, page->version);
    assert_ok(dyti_switch_commit(page, &fake, 5)); /* doubled: harmless */
    assert_int_equal(DYTI_DECISION_COMMIT,
                     dyti_switch_await(page, &fake, 5, 0));
    assert_status(DYT_ERR_STATE, dyti_switch_abort(page, &fake, 5));
    free(page);
}

static void one_no_is_an_abort_that_names_the_rank(void **state)
{
    struct dyti_control_page *page = fresh(3);

    (void)state;
    assert_ok(dyti_switch_begin(page, 1, 1));
    dyti_switch_vote(page, &fake, 1, 1, DYTI_VOTE_FAILED, DYT_ERR_VERIFY);
    assert_status(DYT_PENDING, dyti_switch_commit(page, &fake, 1));
    dyti_switch_vote(page, &fake, 0, 1, DYTI_VOTE_READY, DYT_OK);
    dyti_switch_vote(page, &fake, 2, 1, DYTI_VOTE_READY, DYT_OK);
    assert_status(DYT_ERR_PEER, dyti_switch_commit(page, &fake, 1));
    assert_error_has("rank 1");
    assert_error_has("content does not match");
    all_vote(page, 1, 3); /* too late */
    assert_status(DYT_ERR_PEER, dyti_switch_commit(page, &fake, 1));
    assert_int_equal(DYTI_DECISION_ABORT, dyti_switch_await(page, &fake, 1, 0));
    assert_int_equal(0, page->version);
    free(page);
}

static void one_switch_at_a_time_and_never_backwards(void **state)
{
    struct dyti_control_page *page = fresh(2);

    (void)state;
    assert_ok(dyti_switch_begin(page, 3, 2));
    assert_status(DYT_ERR_BUSY, dyti_switch_begin(page, 4, 2));
    assert_error_has("switch 3 still runs");
    all_vote(page, 3, 2);
    assert_ok(dyti_switch_commit(page, &fake, 3));
    dyti_switch_leave(page, 0, 3);
    assert_status(DYT_ERR_BUSY, dyti_switch_begin(page, 4, 2));
    dyti_switch_leave(page, 1, 3);
    assert_status(DYT_ERR_STATE, dyti_switch_begin(page, 3, 9));
    assert_status(DYT_ERR_STATE, dyti_switch_begin(page, 4, 1));
    assert_error_has("version 1 after 2");
    assert_status(DYT_ERR_INVALID, dyti_switch_begin(page, 0, 9));
    assert_ok(dyti_switch_begin(page, 4, 2)); /* the refusals left no lock */
    assert_ok(dyti_switch_abort(page, &fake, 4));
    dyti_switch_end(page, 4);
    assert_ok(dyti_switch_begin(page, 5, 3));
    free(page);
}

static void ranks_without_a_manager_join(void **state)
{
    struct dyti_control_page *page = fresh(2);

    (void)state;
    assert_ok(dyti_switch_join(page, 3, 2));
    assert_ok(dyti_switch_join(page, 3, 2)); /* the other rank */
    assert_status(DYT_ERR_BUSY, dyti_switch_join(page, 4, 2));
    all_vote(page, 3, 2);
    assert_ok(dyti_switch_commit(page, &fake, 3));
    dyti_switch_end(page, 3);
    assert_status(DYT_ERR_STATE, dyti_switch_join(page, 3, 9));
    assert_status(DYT_ERR_STATE, dyti_switch_join(page, 4, 1));
    assert_status(DYT_ERR_INVALID, dyti_switch_join(page, 0, 9));
    assert_int_equal(0, page->epoch);
    free(page);
}

static void a_death_decides_against(void **state)
{
    struct dyti_control_page *page = fresh(2);

    (void)state;
    assert_ok(dyti_switch_begin(page, 1, 1));
    all_vote(page, 1, 1);
    dyti_control_abort(page, &fake, 1, DYT_ERR_DEVICE);
    dyti_control_abort(page, &fake, 0, DYT_ERR_NOMEM); /* the first stays */
    assert_int_equal(DYTI_DECISION_ABORT, dyti_switch_await(page, &fake, 1, 0));
    assert_status(DYT_ERR_PEER, dyti_control_check(page));
    assert_error_has("rank 1 failed: device error");
    assert_status(DYT_ERR_PEER, dyti_switch_decide(page, &fake, 1, 0));
    free(page);
}

static void a_death_after_the_commit_changes_nothing(void **state)
{
    struct dyti_control_page *page = fresh(2);

    (void)state;
    assert_ok(dyti_switch_begin(page, 1, 1));
    all_vote(page, 1, 2);
    assert_ok(dyti_switch_decide(page, &fake, 1, 0));
    dyti_control_abort(page, &fake, 1, DYT_ERR_DEVICE);
    assert_int_equal(DYTI_DECISION_COMMIT,
                     dyti_switch_await(page, &fake, 1, 0));
    assert_int_equal(1, page->version);
    free(page);
}

static void a_missing_vote_ends_at_the_deadline(void **state)
{
    struct dyti_control_page *page = fresh(3);

    (void)state;
    assert_ok(dyti_switch_begin(page, 1, 1));
    all_vote(page, 1, 2);
    assert_status(DYT_ERR_TIMEOUT, dyti_switch_decide(page, &fake, 1, 1000));
    assert_error_has("rank 2 has not voted");
    assert_int_equal(DYTI_DECISION_ABORT, dyti_switch_await(page, &fake, 1, 0));
    dyti_switch_end(page, 1);
    assert_ok(dyti_switch_begin(page, 2, 1));
    assert_int_equal(DYTI_DECISION_ABORT,
                     dyti_switch_await(page, &fake, 2, 1000));
    free(page);
}

static void opened_by_another_world_is_refused(void **state)
{
    struct dyti_control_page *page = fresh(3), *again = NULL;

    (void)state;
    assert_ok(dyti_control_open(page, 3, &again));
    assert_ptr_equal(page, again);
    assert_status(DYT_ERR_INVALID, dyti_control_open(page, 2, &again));
    assert_status(DYT_ERR_INVALID, dyti_control_open(page, 0, &again));
    page->magic = 1;
    assert_status(DYT_ERR_ABI, dyti_control_open(page, 3, &again));
    free(page);
}

/* ---- commit against abort, many times ------------------------------------ */

struct race {
    struct dyti_control_page *page;
    _Atomic uint64_t go;
    uint64_t rounds;
    enum dyti_decision seen[2];
};

static void *aborts(void *arg)
{
    struct race *race = arg;

    for (uint64_t epoch = 1; epoch <= race->rounds; epoch++) {
        while (atomic_load(&race->go) < epoch) {
        }
        (void)dyti_switch_abort(race->page, &fake, epoch);
        race->seen[1] = dyti_switch_await(race->page, &fake, epoch, 0);
        dyti_switch_leave(race->page, 1, epoch);
    }
    return NULL;
}

static void both_sides_see_the_same_decision(void **state)
{
    struct race race = {.page = fresh(2),
                        .rounds = dyt_test_rounds(2000, 50000)};
    pthread_t thread;

    (void)state;
    assert_int_equal(0, pthread_create(&thread, NULL, aborts, &race));
    for (uint64_t epoch = 1; epoch <= race.rounds; epoch++) {
        enum dyti_decision mine;

        assert_ok(dyti_switch_begin(race.page, epoch, epoch));
        all_vote(race.page, epoch, 2);
        atomic_store(&race.go, epoch);
        (void)dyti_switch_commit(race.page, &fake, epoch);
        mine = dyti_switch_await(race.page, &fake, epoch, 0);
        dyti_switch_leave(race.page, 0, epoch);
        while (atomic_load(&race.page->epoch) != 0) {
        }
        assert_int_equal(mine, race.seen[1]);
        assert_true((race.page->version == epoch) ==
                    (mine == DYTI_DECISION_COMMIT));
    }
    pthread_join(thread, NULL);
    free(race.page);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(commit_needs_all_votes),
    cmocka_unit_test(one_no_is_an_abort_that_names_the_rank),
    cmocka_unit_test(one_switch_at_a_time_and_never_backwards),
    cmocka_unit_test(ranks_without_a_manager_join),
    cmocka_unit_test(a_death_decides_against),
    cmocka_unit_test(a_death_after_the_commit_changes_nothing),
    cmocka_unit_test(a_missing_vote_ends_at_the_deadline),
    cmocka_unit_test(opened_by_another_world_is_refused),
    cmocka_unit_test(both_sides_see_the_same_decision),
};
DYT_TEST_MAIN(tests)
