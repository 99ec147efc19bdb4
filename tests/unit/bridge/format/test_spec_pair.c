/* Two layouts on a cluster: one world for both, hosts by the cluster, and what
 * cannot be is refused by name. */
#include "dyt_test.h"

#include "format/hf_config.h"
#include "format/spec_pair.h"

static struct dyti_arch arch;

static enum dyt_status open_pair(const char *from, const char *to,
                                 const char *cluster, bool as_large,
                                 struct dyti_spec_pair *out)
{
    const struct dyti_spec_pair_params params = {.arch = &arch,
                                                 .from = from,
                                                 .to = to,
                                                 .from_name = "--from",
                                                 .cluster = cluster,
                                                 .as_large = as_large};

    assert_ok(dyti_hf_config_read("configs/models/llama2-7b", &arch));
    return dyti_spec_pair_open(&params, out);
}

static void both_layouts_are_of_the_larger_world(void **state)
{
    struct dyti_spec_pair p;

    (void)state;
    assert_ok(
        open_pair("megatron:tp=4,zero=1", "vllm:tp=4,dp=3", NULL, false, &p));
    assert_int_equal(12, p.src->desc.world_size);
    assert_int_equal(12, p.dst->desc.world_size);
    assert_int_equal(4, p.src->member_count);
    assert_int_equal(12, p.cluster.rank_count);
    assert_int_equal(2, p.cluster.host_count);
    assert_int_equal(1, p.dst->desc.host[8]);
    assert_null(p.src->view); /* lazy: nobody asks for views */
    dyti_spec_pair_fini(&p);
    dyti_spec_pair_fini(&p); /* what it leaves is fine */
}

static void a_cluster_repeats_its_hosts_only_when_told_to(void **state)
{
    const char *small = "configs/clusters/laptop.toml";
    struct dyti_spec_pair p;

    (void)state;
    assert_status(DYT_ERR_CONFIG,
                  open_pair("vllm:dp=20", "vllm:tp=4", small, false, &p));
    assert_error_has("need 20 ranks");
    assert_ok(open_pair("vllm:dp=20", "vllm:tp=4", small, true, &p));
    assert_int_equal(20, p.cluster.rank_count);
    assert_int_equal(3, p.cluster.host_count);
    assert_int_equal(2, p.cluster.host[19]);
    assert_true(p.cluster.host_cores == 2);
    dyti_spec_pair_fini(&p);
}

static void what_cannot_be_is_refused_by_name(void **state)
{
    struct dyti_spec_pair p;

    (void)state;
    assert_status(DYT_ERR_CONFIG,
                  open_pair("vllm:tp=8,hosts=8", "vllm:tp=4", NULL, false, &p));
    assert_error_has("--from says hosts");
    assert_status(DYT_ERR_CONFIG,
                  open_pair("vllm:tp=8", "vllm:pt=4", NULL, false, &p));
    assert_error_has("the second layout");
    assert_status(DYT_ERR_CONFIG,
                  open_pair("vllm:dp=16385", "vllm:tp=4", NULL, false, &p));
    assert_error_has("at most 16384");
    assert_status(DYT_ERR_LAYOUT,
                  open_pair("vllm:tp=7", "vllm:tp=4", NULL, false, &p));
    assert_error_has("tp 7");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(both_layouts_are_of_the_larger_world),
    cmocka_unit_test(a_cluster_repeats_its_hosts_only_when_told_to),
    cmocka_unit_test(what_cannot_be_is_refused_by_name),
};

DYT_TEST_MAIN(tests)
