/* What planning costs: two built layouts → patterns, traffic matrix, bound,
 * fingerprint, one rank's lists.  Time and memory, from 8 to 10,000 ranks, of a
 * dense 70B and of a 235B mixture of experts, every state kind; and a plan of
 * 18,000 names with nothing to look up.  Then whole prices (price.c).  One
 * core. */
#include "bench.h"
#include "price.h"

#include "base/error.h"
#include "plan/traffic.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 7u

static const struct dyti_arch dense_70b = {.family = DYTI_LLAMA,
                                           .vocab = 32000,
                                           .hidden = 8192,
                                           .layers = 80,
                                           .q_heads = 64,
                                           .kv_heads = 8,
                                           .head_dim = 128,
                                           .ffn = 28672,
                                           .max_positions = 4096,
                                           .rms_eps = 1e-5,
                                           .init_std = 0.02,
                                           .rope = {.theta = 10000},
                                           .dtype = DYTI_BF16};

static const struct dyti_arch moe_235b = {
    .family = DYTI_QWEN3_MOE,
    .vocab = 151936,
    .hidden = 4096,
    .layers = 94,
    .q_heads = 64,
    .kv_heads = 4,
    .head_dim = 128,
    .ffn = 12288,
    .max_positions = 40960,
    .rms_eps = 1e-6,
    .init_std = 0.02,
    .rope = {.theta = 1000000},
    .qk_norm = true,
    .dtype = DYTI_BF16,
    .moe = {.count = 128, .per_token = 8, .ffn = 1536, .layer_step = 1}};

/* 47 layers of 128 experts with three matrices each: 18,048 names and the
 * attention. */
static const struct dyti_arch names_18k = {
    .family = DYTI_QWEN3_MOE,
    .vocab = 4096,
    .hidden = 256,
    .layers = 47,
    .q_heads = 8,
    .kv_heads = 4,
    .head_dim = 32,
    .ffn = 512,
    .max_positions = 4096,
    .rms_eps = 1e-6,
    .init_std = 0.02,
    .rope = {.theta = 1000000},
    .qk_norm = true,
    .dtype = DYTI_BF16,
    .moe = {.count = 128, .per_token = 8, .ffn = 64, .layer_step = 1}};

struct degrees {
    uint32_t tp, pp, dp, ep, zero, etp;
};

struct plan_case {
    const char *name;
    const struct dyti_arch *arch;
    uint32_t world;
    struct degrees from, to;
    bool params_only;
    double goal_ms; /* 0: shown only */
    bool quick;
};

static const struct plan_case cases[] = {
    {"70b/8",
     &dense_70b,
     8,
     {4, 1, 2, 1, 1, 1},
     {2, 2, 2, 1, 1, 1},
     false,
     0,
     true},
    {"70b/128",
     &dense_70b,
     128,
     {8, 4, 4, 1, 1, 1},
     {4, 4, 8, 1, 1, 1},
     false,
     50,
     true},
    {"70b/1000",
     &dense_70b,
     1000,
     {8, 5, 25, 1, 1, 1},
     {4, 10, 25, 1, 1, 1},
     false,
     1000,
     false},
    {"70b/10000",
     &dense_70b,
     10000,
     {8, 10, 125, 1, 1, 1},
     {4, 20, 125, 1, 1, 1},
     false,
     1000,
     false},
    {"235b/8",
     &moe_235b,
     8,
     {2, 2, 2, 4, 1, 1},
     {4, 1, 2, 8, 1, 1},
     false,
     0,
     true},
    {"235b/32",
     &moe_235b,
     32,
     {4, 2, 4, 8, 1, 1},
     {2, 4, 4, 8, 1, 1},
     false,
     0,
     false},
    {"235b/128",
     &moe_235b,
     128,
     {4, 8, 4, 16, 1, 1},
     {8, 4, 4, 8, 1, 1},
     false,
     50,
     true},
    {"235b/128/rollout",
     &moe_235b,
     128,
     {4, 8, 4, 16, 1, 1},
     {8, 1, 16, 1, 0, 8},
     true,
     50,
     false},
    {"235b/1000",
     &moe_235b,
     1000,
     {4, 10, 25, 20, 1, 1},
     {8, 5, 25, 8, 1, 1},
     false,
     1000,
     false},
    {"235b/10000",
     &moe_235b,
     10000,
     {4, 10, 250, 20, 1, 1},
     {8, 10, 125, 40, 1, 1},
     false,
     1000,
     false},
    {"18k-names/16",
     &names_18k,
     16,
     {2, 2, 4, 8, 1, 1},
     {4, 1, 4, 4, 1, 1},
     false,
     50,
     true},
};

#define CASES (sizeof(cases) / sizeof(cases[0]))

/* What was measured of each case, for the table of growth. */
struct result {
    double ms, mb; /* 0: left out */
};

struct layouts {
    struct dyti_model *model;
    struct dyti_layout *from, *to;
    struct dyti_plan_inputs inputs;
    uint32_t *host;
};

static bool build_one(const struct plan_case *c, const struct degrees *d,
                      const char *phase, struct layouts *l,
                      struct dyti_layout **out)
{
    struct dyti_layout_desc desc = {.phase = phase,
                                    .world_size = c->world,
                                    .tp = d->tp,
                                    .pp = d->pp,
                                    .dp = d->dp,
                                    .ep = d->ep,
                                    .etp = d->etp,
                                    .zero = d->zero,
                                    .dtype = {DYTI_BF16},
                                    .host = l->host,
                                    .lazy = true};

    if (c->params_only && out == &l->to) {
        for (int kind = DYTI_GRAD; kind < DYTI_KIND_COUNT; kind++) {
            desc.residency[kind] = DYTI_DROPPED;
        }
    }
    return dyti_layout_build(l->model, &desc, out) == DYT_OK;
}

static bool build_layouts(const struct plan_case *c, struct layouts *l)
{
    memset(l, 0, sizeof(*l));
    l->host = calloc(c->world, sizeof(*l->host));
    for (uint32_t r = 0; l->host != NULL && r < c->world; r++) {
        l->host[r] = r / 8;
    }
    return l->host != NULL && dyti_model_build(c->arch, &l->model) == DYT_OK &&
           build_one(c, &c->from, "from", l, &l->from) &&
           build_one(c, &c->to, "to", l, &l->to) &&
           dyti_plan_inputs_init(l->from, DYTI_ARENA_TRAIN, l->to,
                                 DYTI_ARENA_ROLLOUT, DYTI_PLAN_KINDS_STATE,
                                 &l->inputs) == DYT_OK;
}

static void free_layouts(struct layouts *l)
{
    dyti_layout_destroy(l->from);
    dyti_layout_destroy(l->to);
    dyti_model_destroy(l->model);
    free(l->host);
}

struct cost {
    double patterns[ROUNDS], traffic[ROUNDS], lists[ROUNDS], all[ROUNDS];
    double held_mb;
};

static bool measure_once(const struct layouts *l, uint32_t round,
                         struct cost *cost, bool show)
{
    struct dyti_traffic_options options = {
        .fan_out = true,
        .one_rank = l->inputs.dst->desc.world_size > 1024,
        .rank = l->inputs.dst->desc.world_size / 2};
    struct dyti_patterns *patterns[2] = {NULL, NULL};
    struct dyti_traffic *traffic = NULL;
    struct dyti_routes routes = {0};
    double start = bench_core_seconds(), built = start, added, listed;
    struct mallinfo2 before = mallinfo2(), after;
    bool ok = dyti_patterns_build(l->from, &patterns[0]) == DYT_OK &&
              dyti_patterns_build(l->to, &patterns[1]) == DYT_OK;
    const struct dyti_patterns *list[2] = {patterns[0], patterns[1]};

    built = bench_core_seconds();
    ok = ok && dyti_traffic_build_from(&l->inputs, &options, list, 2,
                                       &traffic) == DYT_OK;
    added = bench_core_seconds();
    ok = ok && dyti_traffic_routes(traffic, options.rank, &routes) == DYT_OK;
    listed = bench_core_seconds();
    after = mallinfo2();
    cost->patterns[round] = (built - start) * 1e3;
    cost->traffic[round] = (added - built) * 1e3;
    cost->lists[round] = (listed - added) * 1e3;
    cost->all[round] = (listed - start) * 1e3;
    cost->held_mb = (double)(after.uordblks + after.hblkhd) / 1e6 -
                    (double)(before.uordblks + before.hblkhd) / 1e6;
    if (ok && show) {
        const struct dyti_bounds *b = &traffic->bounds;

        printf("    %zu pairs, %zu routes = %llu transfers of rank %u; gain "
               "%.2f over the first replica; busiest by bound: %s, by plan: %s"
               "%s\n",
               traffic->pair_count, routes.count,
               (unsigned long long)routes.transfers, options.rank,
               dyti_traffic_gain(traffic), dyti_term_name(b->bound_by),
               dyti_term_name(b->moved_by),
               traffic->spread_in_turn ? "; spread in turn" : "");
        for (int t = 0; t < DYTI_TERM_COUNT && !options.one_rank; t++) {
            printf("      %-8s moved %10.3f GB  bound %10.3f GB  %.2f\n",
                   dyti_term_name((enum dyti_term)t),
                   (double)b->term[t].moved_bytes / 1e9,
                   (double)b->term[t].bound_bytes / 1e9,
                   dyti_bound_ratio(&b->term[t]));
        }
    }
    dyti_routes_fini(&routes);
    dyti_traffic_destroy(traffic);
    dyti_patterns_destroy(patterns[0]);
    dyti_patterns_destroy(patterns[1]);
    return ok;
}

static bool measure(struct bench *bench, const struct plan_case *c,
                    struct result *out)
{
    struct layouts l;
    struct cost cost;
    uint32_t rounds = c->world > 1024 || bench->quick ? 3 : ROUNDS;
    char name[64];
    double all;
    bool ok = build_layouts(c, &l);

    memset(&cost, 0, sizeof(cost));
    for (uint32_t i = 0; ok && i < rounds; i++) {
        ok = measure_once(&l, i, &cost, i == 0);
    }
    if (!ok) {
        fprintf(stderr, "plan: %s: %s\n", c->name, dyti_error_text());
    } else {
        printf("    patterns %.1f ms, traffic and bound %.1f ms, lists %.1f "
               "ms\n",
               bench_median(cost.patterns, rounds),
               bench_median(cost.traffic, rounds),
               bench_median(cost.lists, rounds));
        all = bench_median(cost.all, rounds);
        *out = (struct result){all, cost.held_mb};
        /* The opponent is the time that it may take. */
        bench_record(bench, c->name, all, c->goal_ms > 0 ? "goal" : NULL,
                     c->goal_ms, c->goal_ms > 0 ? 1.0 : 0, "ms");
        (void)snprintf(name, sizeof(name), "%s/memory", c->name);
        bench_record(bench, name, cost.held_mb, NULL, 0, 0, "MB");
    }
    free_layouts(&l);
    return ok;
}

/* Each model's cases beside its first one. */
static void print_growth(const struct result *result)
{
    size_t first = 0;

    printf("\n  %-20s %8s %10s %10s %16s\n", "growth", "ranks", "ms", "MB",
           "times the first");
    for (size_t i = 0; i < CASES; i++) {
        if (cases[i].arch != cases[first].arch) {
            first = i;
        }
        if (result[i].ms > 0 && result[first].ms > 0) {
            printf("  %-20s %8u %10.2f %10.2f %7.0f -> %5.1f\n", cases[i].name,
                   cases[i].world, result[i].ms, result[i].mb,
                   (double)cases[i].world / cases[first].world,
                   result[i].ms / result[first].ms);
        }
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    struct bench bench;
    struct result result[CASES] = {{0, 0}};
    bool ok = true;

    if (!bench_open(&bench, "plan", argc, argv)) {
        return bench.exit_code;
    }
    for (size_t i = 0; i < CASES; i++) {
        if ((cases[i].quick || !bench.quick) &&
            bench_wants(&bench, cases[i].name)) {
            ok = measure(&bench, &cases[i], &result[i]) && ok;
        }
    }
    print_growth(result);
    ok = price_measure(&bench) && ok;
    return bench_close(&bench) != 0 || !ok;
}
