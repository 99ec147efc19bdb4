/* The second switch between two layouts plans nothing. */
#include "gather_case.h"

#include "sched/cache.h"

static void the_second_time_is_found(void **state)
{
    struct dyti_schedule_options options = {.side = DYTI_SIDE_PULL};
    const struct dyti_switch_plan *a = NULL, *b = NULL, *c = NULL;
    struct dyti_switch_cache *cache = NULL;
    struct dyt_gather_case g, again;
    uint64_t hits = 9, builds = 9;

    (void)state;
    dyt_gather_open((struct dyti_arch)DYT_ARCH_TINY_8_2, 3, &g);
    assert_ok(dyti_switch_cache_create(&cache));
    assert_ok(dyti_switch_cache_get(cache, &g.inputs, 1, &options, &a));
    assert_ok(dyti_switch_cache_get(cache, &g.inputs, 1, &options, &b));
    assert_ptr_equal(a, b);
    assert_int_equal(1, a->plan->rank);
    assert_int_equal(1, a->schedule->rank);
    assert_true(a->fingerprint == a->schedule->fingerprint);

    options.chunk_bytes = 128; /* another schedule */
    assert_ok(dyti_switch_cache_get(cache, &g.inputs, 1, &options, &b));
    assert_ptr_not_equal(a, b);
    assert_true(a->fingerprint != b->fingerprint);
    options.chunk_bytes = 0;

    /* layouts built anew find what the old ones left */
    dyt_gather_open((struct dyti_arch)DYT_ARCH_TINY_8_2, 3, &again);
    dyt_gather_close(&g);
    assert_ok(dyti_switch_cache_get(cache, &again.inputs, 1, &options, &c));
    assert_ptr_equal(a, c);
    assert_ptr_equal(again.layout, c->plan->inputs.dst);
    dyti_switch_cache_counts(cache, &hits, &builds);
    assert_int_equal(2, hits);
    assert_int_equal(2, builds);

    options.segment_bytes = 2; /* a refusal leaves nothing behind */
    options.cap_bytes = 1;
    assert_status(DYT_ERR_UNSUPPORTED,
                  dyti_switch_cache_get(cache, &again.inputs, 1, &options, &c));
    assert_ptr_equal(a, c);
    dyti_switch_cache_counts(cache, &hits, &builds);
    assert_int_equal(2, builds);
    dyti_switch_cache_destroy(cache);
    dyti_switch_cache_destroy(NULL);
    dyt_gather_close(&again);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_second_time_is_found),
};
DYT_TEST_MAIN(tests)
