/* Versions: two updates at once, out of order, repeated, with a lost reply,
 * with a part that failed.  A version is seen when all have committed it, and
 * never falls. */
#include "dyt_test.h"

#include "exec/control.h"

#include <pthread.h>

static void no_wait(_Atomic uint32_t *word, uint32_t seen, int64_t max_ns)
{
    (void)word;
    (void)seen;
    (void)max_ns;
}

static void no_wake(_Atomic uint32_t *word)
{
    (void)word;
}

static const struct dyti_wait_ops fake = {.struct_size = sizeof(fake),
                                          .name = "fake",
                                          .wait = no_wait,
                                          .wake = no_wake};

#define RANKS 4u

static struct dyti_control_page *fresh(void)
{
    struct dyti_control_page *page = NULL;
    void *memory = aligned_alloc(4096, dyti_control_bytes());

    assert_non_null(memory);
    memset(memory, 0, dyti_control_bytes());
    assert_ok(dyti_control_open(memory, RANKS, &page));
    return page;
}

static void vote(struct dyti_control_page *page, uint64_t epoch, uint32_t bad)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        dyti_switch_vote(page, &fake, i, epoch,
                         i == bad ? DYTI_VOTE_FAILED : DYTI_VOTE_READY,
                         i == bad ? DYT_ERR_DEVICE : DYT_OK);
    }
}

static void leave(struct dyti_control_page *page, uint64_t epoch)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        dyti_switch_leave(page, i, epoch);
    }
}

/* ---- two controllers --------------------------------------------------------
 */

struct controller {
    struct dyti_control_page *page;
    pthread_barrier_t *start;
    uint64_t epoch;
    enum dyt_status st;
    char text[256];
};

static void *begin(void *arg)
{
    struct controller *c = arg;

    (void)pthread_barrier_wait(c->start);
    c->st = dyti_switch_begin(c->page, c->epoch, 1);
    if (c->st != DYT_OK) {
        snprintf(c->text, sizeof(c->text), "%s", dyti_error_text());
    }
    return NULL;
}

static void of_two_controllers_one_wins_and_the_other_hears_whom(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 50; round++) {
        struct dyti_control_page *page = fresh();
        struct controller c[2];
        pthread_barrier_t start;
        pthread_t thread[2];
        char want[64];
        int winner;

        assert_int_equal(0, pthread_barrier_init(&start, NULL, 2));
        for (int i = 0; i < 2; i++) {
            c[i] = (struct controller){
                .page = page, .start = &start, .epoch = 10 + (uint64_t)i};
            assert_int_equal(0, pthread_create(&thread[i], NULL, begin, &c[i]));
        }
        for (int i = 0; i < 2; i++) {
            assert_int_equal(0, pthread_join(thread[i], NULL));
        }
        winner = c[0].st == DYT_OK ? 0 : 1;
        assert_int_equal(DYT_OK, c[winner].st);
        assert_int_equal(DYT_ERR_BUSY, c[1 - winner].st);
        snprintf(want, sizeof(want), "switch %d still runs", 10 + winner);
        assert_non_null(strstr(c[1 - winner].text, want));
        (void)pthread_barrier_destroy(&start);
        free(page);
    }
}

/* ---- order ------------------------------------------------------------------
 */

static void a_version_never_falls(void **state)
{
    struct dyti_control_page *page = fresh();

    (void)state;
    assert_ok(dyti_switch_begin(page, 1, 7));
    vote(page, 1, RANKS);
    assert_ok(dyti_switch_commit(page, &fake, 1));
    leave(page, 1);
    assert_status(DYT_ERR_STATE, dyti_switch_begin(page, 2, 6));
    assert_error_has("version 6 after 7");
    assert_int_equal(7, page->version);
    /* the refusal holds no lock, and the same version may come again */
    assert_ok(dyti_switch_begin(page, 2, 7));
    free(page);
}

static void a_repeated_order_is_refused_and_changes_nothing(void **state)
{
    struct dyti_control_page *page = fresh();

    (void)state;
    assert_ok(dyti_switch_begin(page, 4, 1));
    assert_status(DYT_ERR_BUSY, dyti_switch_begin(page, 4, 1));
    vote(page, 4, RANKS);
    assert_ok(dyti_switch_commit(page, &fake, 4));
    leave(page, 4);
    assert_status(DYT_ERR_STATE, dyti_switch_begin(page, 4, 1));
    assert_error_has("switch 4 after switch 4");
    assert_int_equal(DYTI_DECISION_COMMIT, dyti_switch_outcome(page, 4, NULL));
    assert_int_equal(1, page->version);
    free(page);
}

/* ---- parts that fail, answers that are lost ---------------------------------
 */

static void a_failed_part_publishes_no_version(void **state)
{
    struct dyti_control_page *page = fresh();
    uint64_t version = 99;

    (void)state;
    assert_ok(dyti_switch_begin(page, 1, 3));
    assert_int_equal(DYTI_DECISION_NONE, dyti_switch_outcome(page, 1, NULL));
    vote(page, 1, 2);
    assert_status(DYT_ERR_PEER, dyti_switch_commit(page, &fake, 1));
    assert_error_has("rank 2");
    /* that the part arrives after all changes nothing */
    dyti_switch_vote(page, &fake, 2, 1, DYTI_VOTE_READY, DYT_OK);
    assert_status(DYT_ERR_PEER, dyti_switch_commit(page, &fake, 1));
    assert_int_equal(DYTI_DECISION_ABORT,
                     dyti_switch_outcome(page, 1, &version));
    assert_int_equal(0, version);
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(0, page->rank[i].serves);
    }
    free(page);
}

static void a_lost_answer_can_be_asked_for_again(void **state)
{
    struct dyti_control_page *page = fresh();
    uint64_t version = 0;

    (void)state;
    assert_ok(dyti_switch_begin(page, 1, 3));
    vote(page, 1, RANKS);
    assert_ok(dyti_switch_commit(page, &fake, 1)); /* … and it is lost */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(DYTI_DECISION_COMMIT,
                         dyti_switch_outcome(page, 1, &version));
        assert_int_equal(3, version);
        assert_ok(dyti_switch_commit(page, &fake, 1));
    }
    assert_status(DYT_ERR_STATE, dyti_switch_abort(page, &fake, 1));
    assert_int_equal(DYTI_DECISION_NONE, dyti_switch_outcome(page, 2, NULL));
    free(page);
}

/* ---- what is whole ----------------------------------------------------------
 */

static void what_is_invalid_is_refused_until_it_is_healed(void **state)
{
    struct dyti_control_page *page = fresh();
    uint64_t param = dyti_region_bit(0, 0), master = dyti_region_bit(1, 2);

    (void)state;
    assert_ok(dyti_control_check_whole(page, ~UINT64_C(0)));
    dyti_control_lose(page, 2, 12, param);
    assert_status(DYT_ERR_STATE, dyti_control_check_whole(page, param));
    assert_error_has("rollout param on rank 2 is INVALID");
    assert_error_has("switch 12");
    assert_ok(dyti_control_check_whole(page, master));
    assert_ok(dyti_control_check_rank(page, 1, param));
    dyti_control_heal(page, 2, param);
    assert_ok(dyti_control_check_whole(page, param | master));
    free(page);
}

static void the_live_address_set_changes_with_the_version(void **state)
{
    struct dyti_control_page *page = fresh();

    (void)state;
    assert_ok(dyti_switch_begin(page, 1, 1));
    page->next_sets = 1;
    vote(page, 1, 0);
    assert_status(DYT_ERR_PEER, dyti_switch_commit(page, &fake, 1));
    assert_int_equal(0, page->sets); /* aborted */
    leave(page, 1);
    assert_ok(dyti_switch_begin(page, 2, 1));
    assert_int_equal(0, page->next_sets); /* of the aborted one nothing stays */
    page->next_sets = 1;
    vote(page, 2, RANKS);
    assert_ok(dyti_switch_commit(page, &fake, 2));
    assert_int_equal(1, page->sets);
    free(page);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(of_two_controllers_one_wins_and_the_other_hears_whom),
    cmocka_unit_test(a_version_never_falls),
    cmocka_unit_test(a_repeated_order_is_refused_and_changes_nothing),
    cmocka_unit_test(a_failed_part_publishes_no_version),
    cmocka_unit_test(a_lost_answer_can_be_asked_for_again),
    cmocka_unit_test(what_is_invalid_is_refused_until_it_is_healed),
    cmocka_unit_test(the_live_address_set_changes_with_the_version),
};
DYT_TEST_MAIN(tests)
