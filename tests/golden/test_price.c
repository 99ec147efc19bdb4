/* The price of one small switch on one cluster, as people and programs read
 * it: Megatron TP 2 x PP 2 x DP 8 with ZeRO-1 to vLLM TP 4 x DP 8, on four
 * hosts of configs/clusters/a800.toml. */
#include "arch_cases.h"
#include "golden.h"

#include "explain/explain.h"
#include "explain/price.h"
#include "format/cluster_file.h"

#define RANKS 32u

struct priced {
    struct dyti_model *model;
    struct dyti_layout *train, *rollout;
    struct dyti_cluster_file file;
    struct dyti_cluster cluster;
    struct dyti_price *price;
};

static int open_price(void **state)
{
    static struct priced p;
    const struct dyti_arch arch = DYT_ARCH_TINY_8_2;
    struct dyti_layout_desc desc = {.phase = "train",
                                    .world_size = RANKS,
                                    .tp = 2,
                                    .pp = 2,
                                    .dp = 8,
                                    .zero = 1,
                                    .dialect = DYTI_DIALECT_MEGATRON,
                                    .dtype = {DYTI_BF16},
                                    .lazy = true};
    struct dyti_price_params params = {.src_slot = DYTI_ARENA_TRAIN,
                                       .dst_slot = DYTI_ARENA_ROLLOUT,
                                       .cluster = &p.cluster,
                                       .kinds = 1u << DYTI_PARAM};

    memset(&p, 0, sizeof(p));
    assert_ok(dyti_cluster_file_load("configs/clusters/a800.toml", &p.file));
    assert_ok(dyti_cluster_file_take(&p.file, RANKS, &p.cluster));
    assert_ok(dyti_model_build(&arch, &p.model));
    desc.host = p.cluster.host;
    assert_ok(dyti_layout_build(p.model, &desc, &p.train));
    desc.phase = "rollout";
    desc.dialect = DYTI_DIALECT_VLLM;
    desc.zero = 0;
    desc.pp = 1;
    desc.tp = 4;
    desc.dp = 8;
    for (int kind = DYTI_GRAD; kind < DYTI_EXTRA; kind++) {
        desc.residency[kind] = DYTI_DROPPED;
    }
    assert_ok(dyti_layout_build(p.model, &desc, &p.rollout));
    params.src = p.train;
    params.dst = p.rollout;
    assert_ok(dyti_price_build(&params, &p.price));
    *state = &p;
    return 0;
}

static int close_price(void **state)
{
    struct priced *p = *state;

    dyti_price_destroy(p->price);
    dyti_layout_destroy(p->train);
    dyti_layout_destroy(p->rollout);
    dyti_model_destroy(p->model);
    dyti_cluster_file_fini(&p->file);
    return 0;
}

static void the_texts(void **state)
{
    const struct priced *p = *state;
    struct dyt_golden_stream g;

    assert_ok(dyti_price_text(p->price, dyt_golden_begin(&g)));
    dyt_golden_end(&g, "price.txt");
    assert_ok(dyti_explain_traffic(p->price->traffic, dyt_golden_begin(&g)));
    dyt_golden_end(&g, "price_traffic.txt");
}

/* Its strategies are what the simulator says of each. */
static void the_json(void **state)
{
    const struct priced *p = *state;
    struct dyti_json json;
    const char *text = NULL;
    size_t bytes = 0;

    dyti_json_init(&json, 1);
    dyti_json_begin_object(&json, NULL);
    dyti_price_json(p->price, false, &json, "price");
    dyti_explain_traffic_json(p->price->traffic, &json, "traffic");
    dyti_json_end(&json);
    assert_ok(dyti_json_finish(&json, &text, &bytes));
    dyt_golden_check("price.json", text);
    dyti_json_release(&json);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_texts),
    cmocka_unit_test(the_json),
};

int main(void)
{
    return dyt_test_verdict(
        cmocka_run_group_tests_name(__FILE__, tests, open_price, close_price));
}
