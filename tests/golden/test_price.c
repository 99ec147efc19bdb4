/* The price of one small switch on one cluster, as people and programs read
 * it: Megatron TP 2 x PP 2 x DP 8 with ZeRO-1 to vLLM TP 4 x DP 8, on four
 * hosts of configs/clusters/a800.toml; and what becomes collectives of a
 * larger one. */
#include "arch_cases.h"
#include "golden.h"

#include "explain/explain.h"
#include "explain/outcome.h"
#include "explain/price.h"
#include "format/cluster_file.h"
#include "format/hf_config.h"
#include "format/spec_pair.h"

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

/* What the simulator says of a schedule: of `optimal`. */
static void the_text_of_a_simulation(void **state)
{
    const struct priced *p = *state;
    struct dyt_golden_stream g;

    assert_ok(dyti_explain_simulation(&p->price->row[0].simulation,
                                      dyt_golden_begin(&g)));
    dyt_golden_end(&g, "simulation.txt");
}

/* Llama-2 7B from TP 4 to two replicas of TP 4 on each of two hosts: what both
 * hosts read of a rank is one broadcast. */
static void the_text_of_what_is_promoted(void **state)
{
    struct dyti_arch arch;
    const struct dyti_spec_pair_params params = {
        .arch = &arch,
        .from = "megatron:tp=4,world=24",
        .to = "vllm:tp=4,dp=4,ranks=8-23",
        .cluster = "configs/clusters/a800.toml"};
    struct dyti_spec_pair pair;
    struct dyti_price_params price = {.src_slot = DYTI_ARENA_TRAIN,
                                      .dst_slot = DYTI_ARENA_ROLLOUT,
                                      .cluster = &pair.cluster,
                                      .pinned = true};
    struct dyti_price *p = NULL;
    struct dyt_golden_stream g;
    struct dyti_json json;
    const char *text = NULL;
    size_t bytes = 0;

    (void)state;
    assert_ok(dyti_hf_config_read("configs/models/llama2-7b", &arch));
    assert_ok(dyti_spec_pair_open(&params, &pair));
    price.src = pair.src;
    price.dst = pair.dst;
    assert_ok(dyti_price_build(&price, &p));
    assert_true(p->promotion.count > 0);
    assert_ok(dyti_explain_promotion(&p->promotion, 8, dyt_golden_begin(&g)));
    dyt_golden_end(&g, "promotion.txt");
    assert_ok(dyti_price_text(p, dyt_golden_begin(&g)));
    dyt_golden_end(&g, "price_promoted.txt");
    dyti_json_init(&json, 1);
    dyti_json_begin_object(&json, NULL);
    dyti_explain_simulation_json(&p->promoted, &json, "simulation");
    dyti_explain_promotion_json(&p->promotion, &json, "collectives");
    dyti_json_end(&json);
    assert_ok(dyti_json_finish(&json, &text, &bytes));
    dyt_golden_check("promotion.json", text);
    dyti_json_release(&json);
    dyti_price_destroy(p);
    dyti_spec_pair_fini(&pair);
}

/* A full disk is reported, not ignored. */
static void a_failed_write_is_an_error(void **state)
{
    const struct priced *p = *state;
    FILE *full = fopen("/dev/full", "w");

    assert_non_null(full);
    assert_status(DYT_ERR_IO,
                  dyti_explain_simulation(&p->price->row[0].simulation, full));
    assert_error_has("writing the simulation");
    assert_status(DYT_ERR_IO,
                  dyti_explain_promotion(&p->price->promotion, 4, full));
    assert_status(DYT_ERR_IO, dyti_price_text(p->price, full));
    fclose(full);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_texts),
    cmocka_unit_test(the_json),
    cmocka_unit_test(the_text_of_a_simulation),
    cmocka_unit_test(the_text_of_what_is_promoted),
    cmocka_unit_test(a_failed_write_is_an_error),
};

int main(void)
{
    return dyt_test_verdict(
        cmocka_run_group_tests_name(__FILE__, tests, open_price, close_price));
}
