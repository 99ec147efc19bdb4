/* No strategy is simulated to be faster than what no plan can be, and `optimal`
 * not faster than the busiest link of its own plan: between layouts of every
 * dialect, on machines of each kind. */
#include "dyt_test.h"

#include "explain/price.h"
#include "format/hf_config.h"
#include "format/spec_pair.h"

static const char *const from[] = {
    "native:tp=2,pp=2,dp=2,zero=1",
    "megatron:tp=2,pp=2,dp=2,zero=1",
    "zero12:dp=4,zero=2",
    "zero3:dp=8",
    "fsdp2:dp=4,tp=2",
    "megatron:tp=4,pp=2,dp=3,zero=1",
};
static const char *const to[] = {
    "native:tp=8", "hf:dp=8",         "megatron:tp=4,dp=2", "zero12:dp=8",
    "zero3:dp=4",  "vllm:tp=2,dp=12", "fsdp2:dp=8",
};
static const char *const cluster[] = {"configs/clusters/a800.toml",
                                      "configs/clusters/dgx-h100.toml", NULL};

static void check(const struct dyti_price *p, const char *a, const char *b)
{
    const struct dyti_bounds *bounds = &p->traffic->bounds;
    const double least = bounds->bound_s * (1 - 1e-9);

    for (uint32_t k = 0; k < DYTI_PRICE_STRATEGIES; k++) {
        if (p->row[k].simulation.seconds < least) {
            fail_msg("%s to %s by %s: %g s, no plan takes less than %g (%s)", a,
                     b, p->row[k].name, p->row[k].simulation.seconds,
                     bounds->bound_s, dyti_term_name(bounds->bound_by));
        }
        if (p->row[k].simulation.message_s >
            p->row[k].simulation.seconds * (1 + 1e-9)) {
            fail_msg("%s to %s by %s: %g s, in which a rank posts for %g", a, b,
                     p->row[k].name, p->row[k].simulation.seconds,
                     p->row[k].simulation.message_s);
        }
    }
    if (p->row[0].simulation.seconds < bounds->moved_s * (1 - 1e-9)) {
        fail_msg("%s to %s: %g s, its own busiest link takes %g (%s)", a, b,
                 p->row[0].simulation.seconds, bounds->moved_s,
                 dyti_term_name(bounds->moved_by));
    }
    if (p->promotion.count > 0) {
        assert_true(p->promoted.seconds >= least);
    }
}

static void nothing_is_faster_than_the_bound(void **state)
{
    struct dyti_arch arch;

    (void)state;
    assert_ok(dyti_hf_config_read("configs/models/llama2-7b", &arch));
    for (size_t i = 0; i < DYT_TEST_COUNT(from) * DYT_TEST_COUNT(to) *
                               DYT_TEST_COUNT(cluster);
         i++) {
        const char *a = from[i % DYT_TEST_COUNT(from)];
        const char *b = to[i / DYT_TEST_COUNT(from) % DYT_TEST_COUNT(to)];
        size_t machine = i / DYT_TEST_COUNT(from) / DYT_TEST_COUNT(to);
        const struct dyti_spec_pair_params params = {
            .arch = &arch, .from = a, .to = b, .cluster = cluster[machine]};
        struct dyti_spec_pair pair;
        struct dyti_price *price = NULL;

        /* a third of them, other ones on each machine, unless all are wanted */
        if (dyt_test_rounds(1, 3) == 1 && i % 3 != machine) {
            continue;
        }
        assert_ok(dyti_spec_pair_open(&params, &pair));
        assert_ok(dyti_price_build(
            &(struct dyti_price_params){.src = pair.src,
                                        .dst = pair.dst,
                                        .src_slot = DYTI_ARENA_TRAIN,
                                        .dst_slot = DYTI_ARENA_ROLLOUT,
                                        .cluster = &pair.cluster},
            &price));
        check(price, a, b);
        dyti_price_destroy(price);
        dyti_spec_pair_fini(&pair);
    }
}

static void too_many_messages_are_not_ordered_one_by_one(void **state)
{
    struct dyti_arch arch;
    struct dyti_spec_pair_params params = {
        .arch = &arch, .from = "native:tp=2", .to = "native:dp=2"};
    struct dyti_price_params p = {.src_slot = DYTI_ARENA_TRAIN,
                                  .dst_slot = DYTI_ARENA_ROLLOUT,
                                  .exact_most = 100};
    struct dyti_spec_pair pair;
    struct dyti_price *price = NULL;

    (void)state;
    assert_ok(dyti_hf_config_read("configs/models/llama2-7b", &arch));
    assert_ok(dyti_spec_pair_open(&params, &pair));
    p.src = pair.src;
    p.dst = pair.dst;
    p.cluster = &pair.cluster;
    assert_ok(dyti_price_build(&p, &price)); /* few pieces stand for them */
    dyti_price_destroy(price);
    price = NULL;
    p.exact = true;
    assert_status(DYT_ERR_CONFIG, dyti_price_build(&p, &price));
    assert_error_has("leave out --exact");
    assert_null(price);
    dyti_spec_pair_fini(&pair);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(too_many_messages_are_not_ordered_one_by_one),
    cmocka_unit_test(nothing_is_faster_than_the_bound),
};
DYT_TEST_MAIN(tests)
