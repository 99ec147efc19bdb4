/* The group contract with ranks as processes. */
#include "group_posts.h"

static void collectives_agree_with_loops(void **state)
{
    (void)state;
    group_each(DYT_RANKS_PROCESSES, check_collectives);
}

static void messages_arrive_in_order(void **state)
{
    (void)state;
    group_each(DYT_RANKS_PROCESSES, check_exchange);
}

static void reductions_keep_their_bits_in_place(void **state)
{
    (void)state;
    group_each(DYT_RANKS_PROCESSES, check_in_place);
}

static void nobody_does_the_work_of_all(void **state)
{
    (void)state;
    group_each(DYT_RANKS_PROCESSES, check_traffic);
}

static void an_abort_ends_every_wait(void **state)
{
    (void)state;
    group_each(DYT_RANKS_PROCESSES, check_abort);
}

static void posted_messages_travel_meanwhile(void **state)
{
    (void)state;
    group_each(DYT_RANKS_PROCESSES, check_posts);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(collectives_agree_with_loops),
    cmocka_unit_test(messages_arrive_in_order),
    cmocka_unit_test(reductions_keep_their_bits_in_place),
    cmocka_unit_test(nobody_does_the_work_of_all),
    cmocka_unit_test(posted_messages_travel_meanwhile),
    cmocka_unit_test(an_abort_ends_every_wait),
};
DYT_TEST_MAIN(tests)
