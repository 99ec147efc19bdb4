/* Each allocation of the pure stages made to fail in turn: DYT_ERR_NOMEM, no
 * output, and (under the address sanitizer) nothing lost. */
#include "failing_alloc.h"
#include "plan_cases.h"

#include "sched/cache.h"

/* All artifacts of one switch, from nothing.  What was not built is NULL. */
struct stages {
    struct dyti_model *model;
    struct dyti_layout *src, *dst;
    struct dyti_shared_part *part;
    struct dyti_plan *plan;
    struct dyti_switch_cache *cache;
    const struct dyti_switch_plan *both;
};

static enum dyt_status build(struct stages *s)
{
    const struct dyti_arch arch = DYT_ARCH_TINY_9_3;
    const struct dyti_layout_desc train = {.phase = "train",
                                           .world_size = 4,
                                           .tp = 1,
                                           .pp = 2,
                                           .dp = 2,
                                           .zero = 1};
    const struct dyti_layout_desc rollout = {
        .phase = "rollout", .world_size = 4, .tp = 4, .pp = 1, .dp = 1};
    const struct dyti_schedule_options options = {.side = DYTI_SIDE_PULL};
    struct dyti_plan_inputs in;
    size_t count;
    enum dyt_status st = dyti_model_build(&arch, &s->model);

    st = st != DYT_OK ? st : dyti_layout_build(s->model, &train, &s->src);
    st = st != DYT_OK ? st : dyti_layout_build(s->model, &rollout, &s->dst);
    st = st != DYT_OK ? st : dyti_layout_shared(s->dst, 1, &s->part, &count);
    if (st == DYT_OK) {
        st = dyti_plan_inputs_init(s->src, DYTI_ARENA_TRAIN, s->dst,
                                   DYTI_ARENA_ROLLOUT, DYTI_PLAN_KINDS_STATE,
                                   &in);
    }
    st = st != DYT_OK ? st : dyti_plan_build(&in, &s->plan);
    st = st != DYT_OK ? st : dyti_switch_cache_create(&s->cache);
    return st != DYT_OK
               ? st
               : dyti_switch_cache_get(s->cache, &in, 2, &options, &s->both);
}

static void drop(struct stages *s)
{
    dyti_switch_cache_destroy(s->cache);
    dyti_plan_destroy(s->plan);
    free(s->part);
    dyti_layout_destroy(s->src);
    dyti_layout_destroy(s->dst);
    dyti_model_destroy(s->model);
}

static void every_allocation_may_fail(void **state)
{
    long tried = 0;

    (void)state;
    for (;; tried++) {
        struct stages s = {0};
        enum dyt_status st;
        bool reached;

        dyt_alloc_countdown = tried;
        st = build(&s);
        reached = dyt_alloc_countdown < 0;
        dyt_alloc_countdown = -1;
        if (!reached) {
            assert_ok(st);
            assert_non_null(s.both);
            drop(&s);
            break;
        }
        assert_status(DYT_ERR_NOMEM, st);
        assert_null(s.both); /* the last output is never reached */
        drop(&s);
    }
    assert_true(tried > 40); /* it did try them */
}

/* A cache that failed once works the next time. */
static void a_cache_survives_a_failure(void **state)
{
    struct stages s = {0};

    (void)state;
    assert_ok(build(&s));
    for (long n = 0; n < 12; n++) {
        struct dyti_schedule_options options = {.side = DYTI_SIDE_PUSH};
        const struct dyti_switch_plan *again = NULL;
        const struct dyti_plan_inputs in = s.plan->inputs;

        options.chunk_bytes = (uint64_t)(1000 + n); /* not in the cache */
        dyt_alloc_countdown = n;
        assert_status(DYT_ERR_NOMEM,
                      dyti_switch_cache_get(s.cache, &in, 2, &options, &again));
        dyt_alloc_countdown = -1;
        assert_null(again);
        assert_ok(dyti_switch_cache_get(s.cache, &in, 2, &options, &again));
        assert_non_null(again);
    }
    drop(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_allocation_may_fail),
    cmocka_unit_test(a_cache_survives_a_failure),
};
DYT_TEST_MAIN(tests)
