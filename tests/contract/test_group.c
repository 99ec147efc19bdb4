/* What every group backend must do (ops/group.h), ranks as threads. */
#include "group_posts.h"

static void collectives_agree_with_loops(void **state)
{
    (void)state;
    group_each(DYT_RANKS_THREADS, check_collectives);
}

static void messages_arrive_in_order(void **state)
{
    (void)state;
    group_each(DYT_RANKS_THREADS, check_exchange);
}

static void reductions_keep_their_bits_in_place(void **state)
{
    (void)state;
    group_each(DYT_RANKS_THREADS, check_in_place);
}

static void nobody_does_the_work_of_all(void **state)
{
    (void)state;
    group_each(DYT_RANKS_THREADS, check_traffic);
}

static void an_abort_ends_every_wait(void **state)
{
    (void)state;
    group_each(DYT_RANKS_THREADS, check_abort);
}

static void a_deadline_names_the_late(void **state)
{
    (void)state;
    group_each(DYT_RANKS_THREADS, check_deadline);
}

static void different_calls_are_an_error(void **state)
{
    (void)state;
    group_each(DYT_RANKS_THREADS, check_mismatch);
}

static void opened_again_goes_on(void **state)
{
    (void)state;
    group_each(DYT_RANKS_THREADS, check_reopen);
}

static void posted_messages_travel_meanwhile(void **state)
{
    (void)state;
    group_each(DYT_RANKS_THREADS, check_posts);
}

static void posted_messages_end_by_abort_or_deadline(void **state)
{
    (void)state;
    group_each(DYT_RANKS_THREADS, check_posts_end);
}

static void bad_params_are_refused(void **state)
{
    (void)state;
    for (size_t b = 0; b < DYT_TEST_COUNT(group_backends); b++) {
        const struct dyti_group_ops *ops = group_backends[b];
        struct dyti_abort_word word = {0};
        uint64_t bytes = ops->region_bytes(2);
        void *memory = dyt_ranks_shared(bytes), *self = NULL;
        struct dyti_group_params good = {.struct_size = sizeof(good),
                                         .name = "test",
                                         .size = 2,
                                         .shared = memory,
                                         .shared_bytes = bytes,
                                         .abort = &word};
        struct dyti_group_params bad = good;

        bad.rank = 2;
        assert_status(DYT_ERR_INVALID, ops->open(&bad, &self));
        bad = good;
        bad.size = 0;
        assert_status(DYT_ERR_INVALID, ops->open(&bad, &self));
        bad = good;
        bad.shared_bytes--;
        assert_status(DYT_ERR_INVALID, ops->open(&bad, &self));
        bad = good;
        bad.abort = NULL;
        assert_status(DYT_ERR_INVALID, ops->open(&bad, &self));
        assert_null(self);
        if (ops == &dyti_group_shm) { /* others wait for all members */
            assert_ok(ops->open(&good, &self));
            assert_status(DYT_ERR_INVALID, ops->broadcast(self, memory, 1, 2));
            ops->close(self);
        }
        ops->close(NULL);
        munmap(memory, bytes);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(collectives_agree_with_loops),
    cmocka_unit_test(messages_arrive_in_order),
    cmocka_unit_test(reductions_keep_their_bits_in_place),
    cmocka_unit_test(nobody_does_the_work_of_all),
    cmocka_unit_test(an_abort_ends_every_wait),
    cmocka_unit_test(a_deadline_names_the_late),
    cmocka_unit_test(different_calls_are_an_error),
    cmocka_unit_test(opened_again_goes_on),
    cmocka_unit_test(posted_messages_travel_meanwhile),
    cmocka_unit_test(posted_messages_end_by_abort_or_deadline),
    cmocka_unit_test(bad_params_are_refused),
};
DYT_TEST_MAIN(tests)
