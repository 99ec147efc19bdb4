/* What relabelling the target's ranks saves: the resizes of the table in
 * docs/bounds.md, whose last columns are published figures of a like model
 * (element-exact ownership, 48 layers, ZeRO-1, rank order TP-DP-PP, 8 ranks a
 * host).  As described, placed, and placed with sticky ZeRO cuts where TP and
 * PP stay. State: master and both moments, 12 bytes a parameter. */
#include "bench.h"

#include "base/error.h"
#include "layout/sticky.h"
#include "plan/place.h"

#include <stdlib.h>
#include <string.h>

#define WORLD    128u
#define PER_HOST 8u

static const struct dyti_arch arch = {.family = DYTI_LLAMA,
                                      .vocab = 32000,
                                      .hidden = 6144,
                                      .layers = 48,
                                      .q_heads = 48,
                                      .kv_heads = 48,
                                      .head_dim = 128,
                                      .ffn = 16384,
                                      .max_positions = 4096,
                                      .rms_eps = 1e-5,
                                      .init_std = 0.02,
                                      .rope = {.theta = 10000},
                                      .dtype = DYTI_BF16};

struct degrees {
    uint32_t tp, pp, dp;
};

/* Shares in percent; < 0: not published. */
struct published {
    double stays_before, stays_after, crosses_before, crosses_after;
    double nic_before, nic_after, sticky;
};

static const struct row {
    const char *name;
    struct degrees from, to;
    struct published published;
} rows[] = {
    {"8,2,8->8,2,4", {8, 2, 8}, {8, 2, 4}, {6, 49, 94, 50, 2.00, 1.00, 50}},
    {"8,2,8->4,2,12", {8, 2, 8}, {4, 2, 12}, {2, 34, 87, 34, 1.33, 1.00, -1}},
    {"4,4,6->4,4,8", {4, 4, 6}, {4, 4, 8}, {6, 54, 87, 33, 1.38, 1.03, 25}},
    {"8,1,12->8,1,16",
     {8, 1, 12},
     {8, 1, 16},
     {12, 66, 88, 33, 1.33, 1.00, 25}},
    {"8,2,6->4,4,8", {8, 2, 6}, {4, 4, 8}, {2, 35, 86, 33, 1.33, 1.03, -1}},
    {"8,2,8->4,4,8", {8, 2, 8}, {4, 4, 8}, {13, 49, 7, 7, -1, -1, -1}},
};

struct figures {
    double stays, crosses;
    double nic;  /* of the busiest host, by each of its NICs */
    double rank; /* of the busiest rank's own NIC */
};

static enum dyt_status lay_out(const struct dyti_model *model,
                               const struct degrees *d, const char *phase,
                               const uint32_t *host, const uint32_t *ranks,
                               const struct dyti_sticky_cut *cut,
                               struct dyti_layout **out_layout)
{
    struct dyti_layout_desc desc = {.phase = phase,
                                    .world_size = WORLD,
                                    .tp = d->tp,
                                    .pp = d->pp,
                                    .dp = d->dp,
                                    .zero = 1,
                                    .dtype = {DYTI_BF16},
                                    .host = host,
                                    .ranks = ranks,
                                    .lazy = true};

    if (cut != NULL) {
        desc.zero_range = cut->range;
        desc.zero_range_count = cut->range_count;
    }
    return dyti_layout_build(model, &desc, out_layout);
}

/* In or out, whichever is more. */
static double larger_term(const struct dyti_traffic *t, enum dyti_term in)
{
    uint64_t a = t->bounds.term[in].moved_bytes;
    uint64_t b = t->bounds.term[in + 1].moved_bytes;

    return (double)(a > b ? a : b);
}

/* Shares of the state, and the busiest NIC in units of state / ranks. */
static enum dyt_status look(const struct dyti_plan_inputs *inputs,
                            struct figures *out)
{
    const struct dyti_traffic_options options = {.fan_out = true};
    struct dyti_traffic *t = NULL;
    uint64_t all = 0;
    enum dyt_status st = dyti_traffic_build(inputs, &options, &t);

    if (st != DYT_OK) {
        return st;
    }
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        for (int link = 0; link < DYTI_LINK_CLASS_COUNT; link++) {
            all += t->sum[kind][link].write_bytes;
        }
    }
    out->stays = dyti_traffic_kept_share(t) * 100;
    out->crosses = dyti_traffic_nic_share(t) * 100;
    out->nic =
        larger_term(t, DYTI_TERM_HOST_IN) / PER_HOST / ((double)all / WORLD);
    out->rank = larger_term(t, DYTI_TERM_NIC_IN) / ((double)all / WORLD);
    dyti_traffic_destroy(t);
    return DYT_OK;
}

/* As described and, with its own ranks, placed. */
static enum dyt_status try_both(const struct dyti_model *model,
                                const struct dyti_layout *from,
                                const struct row *row, const uint32_t *host,
                                const struct dyti_sticky_cut *cut,
                                struct figures *out_before,
                                struct figures *out_after, double *out_ms)
{
    const uint32_t state =
        1u << DYTI_MASTER | 1u << DYTI_EXP_AVG | 1u << DYTI_EXP_AVG_SQ;
    struct dyti_layout *to = NULL, *placed = NULL;
    struct dyti_plan_inputs inputs;
    struct dyti_placement p = {0};
    double start;
    enum dyt_status st = lay_out(model, &row->to, "to", host, NULL, cut, &to);

    st = st != DYT_OK
             ? st
             : dyti_plan_inputs_init(from, DYTI_ARENA_TRAIN, to,
                                     DYTI_ARENA_ROLLOUT, state, &inputs);
    st = st != DYT_OK ? st : look(&inputs, out_before);
    start = bench_seconds();
    st = st != DYT_OK ? st : dyti_place(&inputs, NULL, &p);
    *out_ms = (bench_seconds() - start) * 1e3;
    st = st != DYT_OK
             ? st
             : lay_out(model, &row->to, "to", host, p.ranks, cut, &placed);
    st = st != DYT_OK
             ? st
             : dyti_plan_inputs_init(from, DYTI_ARENA_TRAIN, placed,
                                     DYTI_ARENA_ROLLOUT, state, &inputs);
    st = st != DYT_OK ? st : look(&inputs, out_after);
    dyti_placement_fini(&p);
    dyti_layout_destroy(to);
    dyti_layout_destroy(placed);
    return st;
}

static void say(const char *what, const struct figures *f, double stays,
                double crosses, double nic)
{
    printf("  %-24s %5.1f %%  (%s%3.0f %%)   %5.1f %%  (%s%3.0f %%)   %5.2f  "
           "(%s%.2f)  %5.2f\n",
           what, f->stays, stays < 0 ? "-" : "", stays < 0 ? 0 : stays,
           f->crosses, crosses < 0 ? "-" : "", crosses < 0 ? 0 : crosses,
           f->nic, nic < 0 ? "-" : "", nic < 0 ? 0 : nic, f->rank);
}

static enum dyt_status measure(struct bench *bench,
                               const struct dyti_model *model,
                               const struct row *row, const uint32_t *host)
{
    const struct published *pub = &row->published;
    struct figures before, after;
    struct dyti_layout *from = NULL;
    struct dyti_sticky_cut cut = {0};
    char name[64];
    double ms = 0;
    enum dyt_status st =
        lay_out(model, &row->from, "from", host, NULL, NULL, &from);

    st = st != DYT_OK
             ? st
             : try_both(model, from, row, host, NULL, &before, &after, &ms);
    if (st != DYT_OK) {
        goto out;
    }
    printf("%s: placed in %.1f ms\n", row->name, ms);
    say("as described", &before, pub->stays_before, pub->crosses_before,
        pub->nic_before);
    say("placed", &after, pub->stays_after, pub->crosses_after, pub->nic_after);
    (void)snprintf(name, sizeof(name), "%s/stays", row->name);
    bench_record(bench, name, after.stays, "published", pub->stays_after, 0.97,
                 "%");
    (void)snprintf(name, sizeof(name), "%s/on-host", row->name);
    bench_record(bench, name, 100 - after.crosses, "published",
                 100 - pub->crosses_after, 0.97, "%");
    if (row->from.tp == row->to.tp && row->from.pp == row->to.pp) {
        st = dyti_sticky_resize(NULL, 0, row->from.dp, 0, NULL, row->to.dp,
                                &cut);
        st = st != DYT_OK
                 ? st
                 : try_both(model, from, row, host, &cut, &before, &after, &ms);
        if (st == DYT_OK) {
            say("placed, sticky cut", &after,
                pub->sticky < 0 ? -1 : 100 - pub->sticky, -1, -1);
            (void)snprintf(name, sizeof(name), "%s/sticky/stays", row->name);
            bench_record(bench, name, after.stays, "least possible",
                         100 - pub->sticky, 0.99, "%");
        }
    }
out:
    dyti_sticky_fini(&cut);
    dyti_layout_destroy(from);
    return st;
}

int main(int argc, char **argv)
{
    struct bench bench;
    struct dyti_model *model = NULL;
    uint32_t host[WORLD];
    enum dyt_status st;

    if (!bench_open(&bench, "placement", argc, argv)) {
        return bench.exit_code;
    }
    for (uint32_t r = 0; r < WORLD; r++) {
        host[r] = r / PER_HOST;
    }
    st = dyti_model_build(&arch, &model);
    printf("native dialect, (TP,PP,DP); in brackets: published\n"
           "  %-24s %-19s %-19s %s %s\n",
           "", "stays on its rank", "crosses hosts",
           "NICs of a host  of a rank", "");
    for (size_t i = 0; st == DYT_OK && i < sizeof(rows) / sizeof(rows[0]);
         i++) {
        if (bench_wants(&bench, rows[i].name)) {
            st = measure(&bench, model, &rows[i], host);
        }
    }
    if (st != DYT_OK) {
        fprintf(stderr, "placement: %s\n", dyti_error_text());
    }
    dyti_model_destroy(model);
    return bench_close(&bench) != 0 || st != DYT_OK;
}
