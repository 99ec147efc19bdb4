/* How near the load of the busiest rank or link do schedules end?  The four
 * strategies over published transitions, random traffic and 1000 ranks, in the
 * fluid model of the certificate, and with a price for each message. */
#include "bench.h"

#include "base/error.h"
#include "pairing.h"
#include "sched/certificate.h"
#include "sched/replay.h"
#include "traffic_cases.h"

#include <string.h>

#define GOAL    1.05
#define LIMIT_S 10.0
#define NAMES   4

struct figures {
    double ratio[NAMES], cost_s[NAMES], makespan_s[NAMES], load_s, seconds;
    bool priced;
};

/* Random traffic: 200 cases, in tenths when quick. */
static const uint32_t ranks_of[] = {3, 5, 6, 7, 12, 24, 48, 96, 120, 128};

static const struct dyti_replay_options costs = {.costs = true};

/* Order for a cluster with or without prices of messages, and play.  `order_s`:
 * what ordering took, without what is played here to judge it. */
static enum dyt_status play(const struct dyti_strategy_ops *strategy,
                            const struct dyti_order *in, bool priced,
                            double *out_seconds, double *out_load,
                            double *out_order_s)
{
    struct dyti_cluster c = *in->cluster;
    struct dyti_order order = *in;
    struct dyti_pieces p = {0};
    double start;
    enum dyt_status st;

    for (int k = DYTI_LINK_HOST; priced && k < DYTI_LINK_CLASS_COUNT; k++) {
        c.link[k].message_s = 10e-6;
        c.link[k].latency_s = 5e-6;
    }
    order.cluster = &c;
    start = bench_core_seconds();
    st = strategy->order(&order, &p);
    *out_order_s = bench_core_seconds() - start;
    st = st != DYT_OK ? st
                      : dyti_replay(&c, p.piece, p.count, &costs, out_seconds);
    *out_load = p.load_s;
    dyti_pieces_fini(&p);
    return st;
}

/* One strategy on one traffic; false: it failed, and said so. */
static bool measure(const struct dyt_traffic *t, size_t which,
                    struct figures *out)
{
    struct dyti_order in = {.cluster = &t->cluster,
                            .flow = t->flow,
                            .flow_count = t->flow_count,
                            .detour = t->funnel_count > 0 ? t->funnel : NULL,
                            .detour_count = t->funnel_count};
    const struct dyti_strategy_ops *strategy = dyti_strategy_at(which);
    double order_s = 0.0, load = 0.0;
    enum dyt_status st;

    st = play(strategy, &in, false, &out->makespan_s[which], &load, &order_s);
    if (which == 0) {
        out->seconds = order_s;
        out->load_s = load;
    }
    if (st == DYT_OK && out->priced) {
        st = play(strategy, &in, true, &out->cost_s[which], &load, &order_s);
    }
    if (st != DYT_OK) {
        fprintf(stderr, "schedule: %s\n", dyti_error_message());
        return false;
    }
    out->ratio[which] =
        out->load_s > 0.0 ? out->makespan_s[which] / out->load_s : 1.0;
    return true;
}

static bool measure_all(const struct dyt_traffic *t, struct figures *out)
{
    out->priced = true;
    for (size_t k = 0; k < NAMES; k++) {
        if (!measure(t, k, out)) {
            return false;
        }
    }
    return true;
}

static void print_row(const char *name, const struct figures *f)
{
    printf("%-22s %7.4f s", name, f->load_s);
    for (size_t k = 0; k < NAMES; k++) {
        printf(" %7.3f", f->ratio[k]);
    }
    for (size_t k = 0; k < NAMES; k++) {
        printf(" %8.3f", f->load_s > 0.0 ? f->cost_s[k] / f->load_s : 1.0);
    }
    printf("\n");
}

static void print_head(void)
{
    printf("\nmakespan over the load of the busiest rank or link; then with 10 "
           "us a message and 5 us of latency\n%-22s %9s %7s %7s %7s %7s %8s "
           "%8s %8s %8s\n",
           "", "load", "optimal", "xor", "funnel", "tensor", "optimal", "xor",
           "funnel", "tensor");
}

static bool is_power_of_two(const struct dyt_degrees *degrees)
{
    uint32_t ranks = degrees->tp * degrees->pp * degrees->dp;

    return (ranks & (ranks - 1)) == 0;
}

/* How much quicker `optimal` must be: everywhere than the detour of `funnel`;
 * than `xor` where its pairs leave somebody idle, which they do not between
 * powers of two: both end at the load there. */
static double goal_over(size_t strategy, size_t transition)
{
    bool idles = !is_power_of_two(&dyt_transitions[transition].src) ||
                 !is_power_of_two(&dyt_transitions[transition].dst);

    return strategy == 2 || (strategy == 1 && idles) ? 1.001 : 0.999;
}

static bool transitions(struct bench *bench)
{
    print_head();
    for (size_t i = 0; i < sizeof(dyt_transitions) / sizeof(dyt_transitions[0]);
         i++) {
        struct figures f = {0};
        struct dyt_traffic t;
        char name[64];
        bool ok;

        if (!bench_wants(bench, dyt_transitions[i].name)) {
            continue;
        }
        ok = dyt_traffic_layouts(&t, dyt_transitions[i].src,
                                 dyt_transitions[i].dst, 8) &&
             measure_all(&t, &f);
        if (ok) {
            print_row(dyt_transitions[i].name, &f);
            snprintf(name, sizeof(name), "%s", dyt_transitions[i].name);
            bench_record(bench, name, f.makespan_s[0], "bound", f.load_s,
                         1.0 / GOAL, "s");
            for (size_t k = 1; k < NAMES; k++) {
                bench_record(bench, name, f.makespan_s[0],
                             dyti_strategy_at(k)->name, f.makespan_s[k],
                             goal_over(k, i), "s");
            }
        }
        dyt_traffic_close(&t);
        if (!ok) {
            return false;
        }
    }
    return true;
}

/* The pairing built the usual way, beside what has been published of it. */
static bool pairings(const struct bench *bench)
{
    printf("\nXOR pairing, both directions of a pair tied, host links and NICs "
           "in turn, over the load of NICs\n%-22s %8s %8s %8s   published: "
           "%8s %8s %8s\n",
           "", "NICs", "free", "barrier", "NICs", "free", "barrier");
    for (size_t i = 0; i < sizeof(dyt_transitions) / sizeof(dyt_transitions[0]);
         i++) {
        struct dyt_traffic t;
        double loose = 0.0, barrier = 0.0;

        if (!bench_wants(bench, dyt_transitions[i].name)) {
            continue;
        }
        if (!dyt_traffic_layouts(&t, dyt_transitions[i].src,
                                 dyt_transitions[i].dst, 8) ||
            !pairing_times(&t.cluster, t.flow, t.flow_count, &loose,
                           &barrier)) {
            return false;
        }
        printf("%-22s %6.0f %% %8.1f %8.1f              %6.0f %% %8.1f %8.1f\n",
               dyt_transitions[i].name,
               100.0 * (t.total - t.kept - t.inside) / t.total, loose, barrier,
               100.0 * dyt_transitions[i].inter, dyt_transitions[i].xor_free,
               dyt_transitions[i].xor_barrier);
        dyt_traffic_close(&t);
    }
    return true;
}

static bool random_cases(struct bench *bench)
{
    size_t kinds = sizeof(ranks_of) / sizeof(ranks_of[0]);
    uint64_t each = bench->quick ? 2 : 20;
    uint32_t missed = 0;

    printf("\n%llu random transitions; the worst of each size\n",
           (unsigned long long)(each * kinds));
    print_head();
    for (size_t i = 0; i < kinds; i++) {
        struct figures worst = {0};
        char name[64];

        snprintf(name, sizeof(name), "random, %u ranks", ranks_of[i]);
        if (!bench_wants(bench, name)) {
            continue;
        }
        for (uint64_t seed = 0; seed < each; seed++) {
            struct figures f = {0};
            struct dyt_traffic t;
            uint32_t per_host = 3 + (uint32_t)(dyti_mix64(seed + 1) % 6);
            bool ok = dyt_traffic_random(&t, seed * 31 + i, ranks_of[i],
                                         per_host, (uint32_t)(seed % 6));

            ok = ok && measure_all(&t, &f);
            dyt_traffic_close(&t);
            if (!ok) {
                return false;
            }
            missed += f.ratio[0] > GOAL;
            if (f.ratio[0] >= worst.ratio[0] && f.load_s > 0.0) {
                worst = f;
            }
        }
        print_row(name, &worst);
        bench_record(bench, name, worst.makespan_s[0], "bound", worst.load_s,
                     1.0 / GOAL, "s");
    }
    printf("above %.2f of the load: %u\n", GOAL, missed);
    return true;
}

/* Sparse, uneven over a few, dense: how long it takes to order them. */
static bool thousand(struct bench *bench)
{
    static const uint32_t shapes[] = {2, 3, 1};

    printf("\n1000 ranks, hosts of 8: `optimal` alone\n");
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct figures f = {0};
        struct dyt_traffic t;
        char ends[64], order[64];
        bool ok = dyt_traffic_random(&t, 1 + i, 1000, 8, shapes[i]);
        bool wanted;

        snprintf(ends, sizeof(ends), "1000 ranks, %zu flows", t.flow_count);
        snprintf(order, sizeof(order), "ordering %zu flows", t.flow_count);
        wanted = bench_wants(bench, ends) || bench_wants(bench, order);
        ok = ok && (!wanted || measure(&t, 0, &f));
        if (ok && wanted) {
            printf("%zu flows: %.3f of the load, ordered in %.2f s\n",
                   t.flow_count, f.ratio[0], f.seconds);
            bench_record(bench, ends, f.makespan_s[0], "bound", f.load_s,
                         1.0 / GOAL, "s");
            bench_record(bench, order, f.seconds, "limit", LIMIT_S, 1.0, "s");
        }
        dyt_traffic_close(&t);
        if (!ok) {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    struct bench bench;

    if (!bench_open(&bench, "schedule", argc, argv)) {
        return bench.exit_code;
    }
    if (!transitions(&bench) || !pairings(&bench) || !random_cases(&bench) ||
        (!bench.quick && !thousand(&bench))) {
        bench_close(&bench);
        return 1;
    }
    return bench_close(&bench);
}
