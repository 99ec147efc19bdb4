/* Prices of worlds in which ranks send many others: where ZeRO cuts through
 * tensors, each receiver hears from nearly all, and messages, not tensors, are
 * what takes time. */
#include "price.h"

#include "base/error.h"
#include "explain/price.h"

#include <stdlib.h>

#define PER_HOST 8u

static const struct dyti_arch dense_7b = {.family = DYTI_LLAMA,
                                          .vocab = 32000,
                                          .hidden = 4096,
                                          .layers = 32,
                                          .q_heads = 32,
                                          .kv_heads = 32,
                                          .head_dim = 128,
                                          .ffn = 11008,
                                          .max_positions = 4096,
                                          .rms_eps = 1e-5,
                                          .init_std = 0.02,
                                          .rope = {.theta = 10000},
                                          .dtype = DYTI_BF16};

struct price_case {
    const char *name;
    enum dyti_dialect dialect;
    uint32_t world, tp, pp, zero; /* of the source; dp is the rest */
    double goal_ms;
    bool quick;
};

/* All to a server of TP 8, with as many replicas as there is room for. */
static const struct price_case cases[] = {
    {"price/7b/1024", DYTI_DIALECT_MEGATRON, 1024, 8, 4, 0, 2000, false},
    {"price/7b/256/zero1", DYTI_DIALECT_MEGATRON, 256, 1, 1, 1, 5000, true},
    {"price/7b/1024/zero1", DYTI_DIALECT_MEGATRON, 1024, 1, 1, 1, 10000, false},
    {"price/7b/512/zero3", DYTI_DIALECT_ZERO3, 512, 1, 1, 3, 15000, false},
};

static bool build(const struct dyti_model *model, const struct price_case *c,
                  const uint32_t *host, struct dyti_layout **out_from,
                  struct dyti_layout **out_to)
{
    struct dyti_layout_desc from = {.phase = "from",
                                    .dialect = c->dialect,
                                    .world_size = c->world,
                                    .tp = c->tp,
                                    .pp = c->pp,
                                    .dp = c->world / c->tp / c->pp,
                                    .ep = 1,
                                    .etp = 1,
                                    .zero = c->zero,
                                    .dtype = {DYTI_BF16},
                                    .host = host,
                                    .lazy = true};
    struct dyti_layout_desc to = {.phase = "to",
                                  .dialect = DYTI_DIALECT_VLLM,
                                  .world_size = c->world,
                                  .tp = 8,
                                  .pp = 1,
                                  .dp = c->world / 8,
                                  .ep = 1,
                                  .etp = 1,
                                  .dtype = {DYTI_BF16},
                                  .host = host,
                                  .lazy = true};

    for (int kind = DYTI_GRAD; kind < DYTI_KIND_COUNT; kind++) {
        to.residency[kind] = DYTI_DROPPED;
    }
    return dyti_layout_build(model, &from, out_from) == DYT_OK &&
           dyti_layout_build(model, &to, out_to) == DYT_OK;
}

/* Hosts of eight: 200 GB/s inside, 25 GB/s for each NIC. */
static struct dyti_cluster cluster_of(uint32_t world, const uint32_t *host)
{
    struct dyti_cluster c = {.name = "bench",
                             .rank_count = world,
                             .host_count = (world + PER_HOST - 1) / PER_HOST,
                             .host = host};

    c.link[DYTI_LINK_SELF].bytes_per_s = 1e12;
    c.link[DYTI_LINK_HOST] =
        (struct dyti_link_speed){200e9, 8e-6, 6e-6, false, 0, 0};
    c.link[DYTI_LINK_NIC] =
        (struct dyti_link_speed){25e9, 12e-6, 8e-6, false, 0, 0};
    return c;
}

static bool measure(struct bench *bench, const struct price_case *c,
                    const struct dyti_model *model)
{
    uint32_t *host = calloc(c->world, sizeof(*host));
    struct dyti_cluster cluster = cluster_of(c->world, host);
    struct dyti_layout *from = NULL, *to = NULL;
    struct dyti_price *price = NULL;
    double start;
    bool ok = host != NULL;

    for (uint32_t r = 0; ok && r < c->world; r++) {
        host[r] = r / PER_HOST;
    }
    ok = ok && build(model, c, host, &from, &to);
    start = bench_core_seconds();
    if (ok) {
        const struct dyti_price_params params = {.src = from,
                                                 .dst = to,
                                                 .src_slot = DYTI_ARENA_TRAIN,
                                                 .dst_slot = DYTI_ARENA_ROLLOUT,
                                                 .cluster = &cluster};

        ok = dyti_price_build(&params, &price) == DYT_OK;
    }
    if (ok) {
        printf("    %zu pairs; messages of optimal %llu, of per-tensor %llu\n",
               price->traffic->pair_count,
               (unsigned long long)price->row[0].messages,
               (unsigned long long)price->row[3].messages);
        /* The opponent is the time that it may take. */
        bench_record(bench, c->name, (bench_core_seconds() - start) * 1e3,
                     "goal", c->goal_ms, 1.0, "ms");
    } else {
        fprintf(stderr, "plan: %s: %s\n", c->name, dyti_error_text());
    }
    dyti_price_destroy(price);
    dyti_layout_destroy(from);
    dyti_layout_destroy(to);
    free(host);
    return ok;
}

bool price_measure(struct bench *bench)
{
    struct dyti_model *model = NULL;
    bool ok = dyti_model_build(&dense_7b, &model) == DYT_OK;

    for (size_t i = 0; ok && i < sizeof(cases) / sizeof(cases[0]); i++) {
        if ((cases[i].quick || !bench->quick) &&
            bench_wants(bench, cases[i].name)) {
            ok = measure(bench, &cases[i], model);
        }
    }
    dyti_model_destroy(model);
    return ok;
}
