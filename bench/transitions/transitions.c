/* Kinds of switches that a training cluster makes, priced by every strategy on
 * hosts of eight A800: dense and mixture-of-experts models, changes of TP, PP,
 * DP and EP, growing and shrinking, Megatron to vLLM.  All seconds are
 * simulated; nothing here is measured.
 *
 * A record compares `optimal` (ours) with another strategy, and with the bound
 * that no plan can be faster than. */
#include "bench.h"

#include "explain/price.h"
#include "format/hf_config.h"
#include "format/spec_pair.h"

#define CLUSTER "configs/clusters/a800.toml"

struct row {
    const char *name, *model, *from, *to;
};

static const struct row rows[] = {
    {"7b/tp/8", "llama2-7b", "megatron:tp=8,zero=1",
     "megatron:tp=4,dp=2,zero=1"},
    {"13b/pp/16", "llama2-13b", "megatron:tp=4,pp=4,zero=1",
     "megatron:tp=4,pp=2,dp=2,zero=1"},
    {"70b/tp/128", "llama2-70b", "megatron:tp=8,pp=2,dp=8,zero=1",
     "megatron:tp=4,pp=2,dp=16,zero=1"},
    {"70b/pp/128", "llama2-70b", "megatron:tp=8,pp=2,dp=8,zero=1",
     "megatron:tp=8,pp=4,dp=4,zero=1"},
    {"70b/tp+pp/128", "llama2-70b", "megatron:tp=8,pp=2,dp=8,zero=1",
     "megatron:tp=4,pp=4,dp=8,zero=1"},
    {"70b/dp-shrink/128-64", "llama2-70b", "megatron:tp=8,pp=2,dp=8,zero=1",
     "megatron:tp=8,pp=2,dp=4,zero=1"},
    {"70b/dp-grow/64-128", "llama2-70b", "megatron:tp=8,pp=2,dp=4,zero=1",
     "megatron:tp=8,pp=2,dp=8,zero=1"},
    {"70b/shrink/128-96", "llama2-70b", "megatron:tp=8,pp=2,dp=8,zero=1",
     "megatron:tp=4,pp=2,dp=12,zero=1"},
    {"70b/grow/96-128", "llama2-70b", "megatron:tp=4,pp=4,dp=6,zero=1",
     "megatron:tp=4,pp=4,dp=8,zero=1"},
    {"70b/rollout/64", "llama2-70b", "megatron:tp=8,pp=4,dp=2,zero=1",
     "vllm:tp=8,dp=8"},
    {"30b-a3b/rollout/16", "qwen3-30b-a3b",
     "megatron:tp=2,pp=2,dp=4,ep=4,etp=1,zero=1", "vllm:tp=4,dp=4"},
    {"235b/ep/128", "qwen3-235b-a22b",
     "megatron:tp=4,pp=4,dp=8,ep=8,etp=1,zero=1",
     "megatron:tp=4,pp=4,dp=8,ep=32,etp=1,zero=1"},
    {"235b/tp+ep/128", "qwen3-235b-a22b",
     "megatron:tp=4,pp=8,dp=4,ep=16,etp=1,zero=1",
     "megatron:tp=8,pp=4,dp=4,ep=8,etp=1,zero=1"},
    {"235b/dp-grow/64-128", "qwen3-235b-a22b",
     "megatron:tp=4,pp=8,dp=2,ep=8,etp=1,zero=1",
     "megatron:tp=4,pp=8,dp=4,ep=8,etp=1,zero=1"},
    {"235b/rollout/128", "qwen3-235b-a22b",
     "megatron:tp=4,pp=8,dp=4,ep=16,etp=1,zero=1", "vllm:tp=8,dp=16"},
};

struct job {
    struct dyti_spec_pair pair;
    struct dyti_price *price;
};

static void release(struct job *j)
{
    dyti_price_destroy(j->price);
    dyti_spec_pair_fini(&j->pair);
}

static enum dyt_status price(const struct row *row, struct job *j)
{
    struct dyti_arch arch;
    const struct dyti_spec_pair_params pair = {
        .arch = &arch, .from = row->from, .to = row->to, .cluster = CLUSTER};
    struct dyti_price_params params = {.src_slot = DYTI_ARENA_TRAIN,
                                       .dst_slot = DYTI_ARENA_ROLLOUT,
                                       .cluster = &j->pair.cluster,
                                       .exact = true};
    char dir[256];
    enum dyt_status st;

    (void)snprintf(dir, sizeof(dir), "configs/models/%s", row->model);
    st = dyti_hf_config_read(dir, &arch);
    st = st != DYT_OK ? st : dyti_spec_pair_open(&pair, &j->pair);
    params.src = j->pair.src;
    params.dst = j->pair.dst;
    return st != DYT_OK ? st : dyti_price_build(&params, &j->price);
}

static void report(struct bench *bench, const char *name,
                   const struct dyti_price *p)
{
    double ours = p->row[0].simulation.seconds;

    bench_record(bench, name, ours, "bound", p->traffic->bounds.bound_s, 0,
                 "s");
    for (uint32_t i = 1; i < DYTI_PRICE_STRATEGIES; i++) {
        bench_record(bench, name, ours, p->row[i].name,
                     p->row[i].simulation.seconds, 1, "s");
    }
}

int main(int argc, char **argv)
{
    struct bench bench;

    if (!bench_open(&bench, "transitions", argc, argv)) {
        return bench.exit_code;
    }
    printf("simulated seconds on the cluster of " CLUSTER
           "; nothing here is measured\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct job j = {.price = NULL};

        if (bench.exit_code != 0 || !bench_wants(&bench, rows[i].name) ||
            (bench.quick && i > 0)) {
            continue;
        }
        if (price(&rows[i], &j) == DYT_OK) {
            report(&bench, rows[i].name, j.price);
        } else {
            fprintf(stderr, "transitions: %s: %s\n", rows[i].name,
                    dyt_error_text());
            bench.exit_code = 1;
        }
        release(&j);
    }
    return bench_close(&bench);
}
