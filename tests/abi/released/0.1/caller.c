/* A program of somebody who built it with release 0.1: model, layout, plan,
 * schedule, a layout from views, rules, and what a truncated struct gets. */
#include <dynatrain/rules.h>
#include <dynatrain/schedule.h>
#include <dynatrain/version.h>

#include <stdio.h>
#include <string.h>

#define CHECK(cond)                                                            \
    do {                                                                       \
        if (!(cond)) {                                                         \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #cond,              \
                    dyt_error_text());                                         \
            return 1;                                                          \
        }                                                                      \
    } while (0)

static const struct dyt_config_pair config[] = {
    {"model_type", "llama"},         {"vocab_size", "128"},
    {"hidden_size", "32"},           {"num_hidden_layers", "2"},
    {"num_attention_heads", "4"},    {"num_key_value_heads", "2"},
    {"intermediate_size", "64"},     {"max_position_embeddings", "64"},
    {"tie_word_embeddings", "false"}};

static int plan_of(const dyt_layout *from, const dyt_layout *to)
{
    struct dyt_plan_figures totals = {sizeof(totals), 0, 0, 0, 0, 0, 0, 0};
    struct dyt_schedule_figures done = {sizeof(done), 0, 0, 0};
    struct dyt_plan_params cut = {4, 0, NULL};
    uint64_t bytes[16];
    dyt_schedule *schedule = NULL;
    dyt_plan *plan = NULL;

    CHECK(dyt_plan_build(from, to, &cut, &plan) == DYT_ERR_INVALID);
    CHECK(strstr(dyt_error_text(), "struct_size 4") != NULL);
    CHECK(strstr(dyt_error_text(), "16") != NULL);
    CHECK(dyt_plan_build(from, to, NULL, &plan) == DYT_OK);
    CHECK(dyt_plan_totals(plan, &totals) == DYT_OK);
    CHECK(dyt_plan_traffic(plan, bytes, 16) == DYT_OK);
    CHECK(totals.kept_bytes + totals.host_bytes > 0);
    CHECK(totals.network_bytes == 0);
    CHECK(dyt_schedule_build(plan, NULL, &schedule) == DYT_OK);
    CHECK(dyt_schedule_totals(schedule, &done) == DYT_OK);
    CHECK(done.rounds > 0);
    dyt_schedule_destroy(schedule);
    dyt_plan_destroy(plan);
    return 0;
}

int main(void)
{
    const struct dyt_rules *rules = NULL;
    struct dyt_tensor tensor;
    struct dyt_shard shard;
    dyt_layout *from = NULL, *to = NULL;
    dyt_model *model = NULL;
    uint64_t count = 0;
    int bad;

    CHECK(dyt_version() >= DYT_VERSION);
    CHECK(dyt_model_from_config(config, sizeof(config) / sizeof(config[0]),
                                &model) == DYT_OK);
    memset(&tensor, 0, sizeof(tensor));
    CHECK(dyt_model_tensor(model, 0, &tensor) == DYT_ERR_INVALID);
    tensor.struct_size = sizeof(tensor);
    CHECK(dyt_model_tensor(model, 0, &tensor) == DYT_OK);
    CHECK(tensor.shape[0] == 128 && tensor.shape[1] == 32);
    CHECK(dyt_layout_build(model, "fsdp2:dp=4", 0, &from) == DYT_OK);
    CHECK(dyt_layout_build(model, "vllm:tp=4", 0, &to) == DYT_OK);
    CHECK(dyt_layout_shard_count(to, 3, &count) == DYT_OK && count > 0);
    memset(&shard, 0, sizeof(shard));
    shard.struct_size = sizeof(shard);
    CHECK(dyt_layout_shard(to, 3, 0, &shard) == DYT_OK);
    CHECK(shard.box.ndim == 2 && shard.dtype <= DYT_F16);
    bad = plan_of(from, to);
    CHECK(dyt_rules_builtin("vllm/llama", &rules) == DYT_OK);
    CHECK(rules->rule_count > 0 && rules->rule[0].name != NULL);
    dyt_layout_destroy(from);
    dyt_layout_destroy(to);
    dyt_model_destroy(model);
    return bad;
}
