/* A switch between two hosts that are network namespaces with shaped cables:
 * `optimal` against `xor`, `funnel` and `per-tensor`, in turn, each round in
 * another order.  Between the hosts by messages over gloo, inside by mapped
 * memory.  Seconds of a round trip, or of the way that is named. */
#include "bench.h"
#include "host_crew.h"

#include "base/error.h"
#include "sched/strategy.h"

#include <stdio.h>

#define ROUNDS     11u
#define STRATEGIES 4u /* optimal first */

struct contest_case {
    const char *name;
    uint32_t ranks_of_host;
    struct host_layout train, rollout;
    bool one_way;            /* train -> rollout alone */
    bool shared;             /* a cable for each host, not for each rank */
    uint32_t mbit_per_s;     /* of each cable */
    double goal[STRATEGIES]; /* 0: shown, not judged */
};

/* Where a rank has a NIC of its own, an order matters that leaves none idle; on
 * two by two ranks, or one cable for all, every order does that keeps its
 * senders busy. */
static const struct contest_case cases[] = {
    {.name = "2 hosts x 3 ranks, PP 6 <-> TP 6",
     .ranks_of_host = 3,
     .train = {.tp = 1, .pp = 6, .dp = 1},
     .rollout = {.tp = 6, .pp = 1, .dp = 1},
     .mbit_per_s = 400,
     .goal = {0, 1.001, 1.001, 0}},
    {.name = "2 hosts x 3 ranks, ZeRO-1 DP 6 -> TP 6",
     .ranks_of_host = 3,
     .train = {.tp = 1, .pp = 1, .dp = 6, .zero = 1},
     .rollout = {.tp = 6, .pp = 1, .dp = 1},
     .one_way = true,
     .mbit_per_s = 400,
     .goal = {0, 1.001, 1.001, 0}},
    {.name = "2 hosts x 2 ranks, PP 4 <-> TP 4",
     .ranks_of_host = 2,
     .train = {.tp = 1, .pp = 4, .dp = 1},
     .rollout = {.tp = 4, .pp = 1, .dp = 1},
     .mbit_per_s = 600,
     .goal = {0, 0.97, 1.001, 0}},
    {.name = "2 hosts x 2 ranks, one cable, PP 4 <-> TP 4",
     .ranks_of_host = 2,
     .train = {.tp = 1, .pp = 4, .dp = 1},
     .rollout = {.tp = 4, .pp = 1, .dp = 1},
     .shared = true,
     .mbit_per_s = 1200,
     .goal = {0, 0.97, 1.001, 0}},
};

/* Twelve layers that six and four divide; 330 MB of parameters. */
static const struct dyti_arch arch = {.family = DYTI_LLAMA,
                                      .vocab = 1536,
                                      .hidden = 768,
                                      .layers = 12,
                                      .q_heads = 12,
                                      .kv_heads = 12,
                                      .head_dim = 64,
                                      .ffn = 1920,
                                      .max_positions = 2048,
                                      .rms_eps = 1e-5,
                                      .init_std = 0.02,
                                      .rope = {.theta = 10000}};

static enum dyt_status trip(struct host_crew *crew,
                            const struct contest_case *c, uint32_t strategy,
                            bool verify_all, double *out_seconds)
{
    double back = 0;
    enum dyt_status st =
        host_crew_switch(crew, strategy, false, verify_all, out_seconds);

    if (st == DYT_OK && !c->one_way) {
        st = host_crew_switch(crew, strategy, true, verify_all, &back);
    }
    *out_seconds += back;
    return st;
}

static enum dyt_status bound_of(const struct host_crew *crew,
                                const struct contest_case *c,
                                double *out_seconds)
{
    double back = 0;
    enum dyt_status st = host_crew_bound(crew, false, out_seconds);

    if (st == DYT_OK && !c->one_way) {
        st = host_crew_bound(crew, true, &back);
    }
    *out_seconds += back;
    return st;
}

/* Medians; of the ratios round by round. */
static void record(struct bench *bench, const struct contest_case *c,
                   double seconds[STRATEGIES][ROUNDS], uint32_t rounds,
                   double bound)
{
    double ratio[STRATEGIES][ROUNDS], mine;

    for (uint32_t k = 1; k < STRATEGIES; k++) {
        for (uint32_t i = 0; i < rounds; i++) {
            ratio[k][i] = seconds[k][i] / seconds[0][i];
        }
    }
    mine = bench_median(seconds[0], rounds);
    for (uint32_t k = 1; k < STRATEGIES; k++) {
        bench_record(bench, c->name, mine, dyti_strategy_at(k)->name,
                     mine * bench_median(ratio[k], rounds), c->goal[k], "s");
    }
    bench_record(bench, c->name, mine, "the busiest cable at its rate", bound,
                 0, "s");
}

static enum dyt_status contest_of(struct bench *bench,
                                  const struct contest_case *c)
{
    uint32_t rounds = bench_rounds(bench, bench->quick ? 1 : ROUNDS);
    double seconds[STRATEGIES][ROUNDS] = {{0}}, bound = 0;
    struct dyti_arch small = arch;
    struct host_crew crew;
    enum dyt_status st;

    rounds = rounds < ROUNDS ? rounds : ROUNDS;
    if (bench->quick) {
        small.hidden = 96;
        small.head_dim = 8;
        small.ffn = 240;
    }
    st = host_crew_open(&crew, bench->quick ? &small : &arch, c->ranks_of_host,
                        c->shared, c->mbit_per_s, &c->train, &c->rollout);
    if (st != DYT_OK) {
        return st;
    }
    st = bound_of(&crew, c, &bound);
    for (uint32_t k = 0; k < STRATEGIES && st == DYT_OK; k++) {
        double warm; /* planned, touched, and right in every byte */

        st = trip(&crew, c, k, true, &warm);
    }
    for (uint32_t i = 0; i < rounds && st == DYT_OK; i++) {
        for (uint32_t k = 0; k < STRATEGIES && st == DYT_OK; k++) {
            uint32_t who = (i + k) % STRATEGIES;

            st = trip(&crew, c, who, false, &seconds[who][i]);
        }
    }
    if (st == DYT_OK) {
        record(bench, c, seconds, rounds, bound);
    }
    host_crew_close(&crew);
    return st;
}

int main(int argc, char **argv)
{
    struct bench bench;
    enum dyt_status st = DYT_OK;

    if (!bench_open(&bench, "switch_hosts", argc, argv)) {
        return bench.exit_code;
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (st == DYT_OK && bench_wants(&bench, cases[i].name)) {
            st = contest_of(&bench, &cases[i]);
        }
    }
    if (st == DYT_ERR_UNSUPPORTED) {
        printf("skipped: needs root and ip netns\n");
        (void)bench_close(&bench);
        return 0;
    }
    if (st != DYT_OK) {
        (void)fprintf(stderr, "switch_hosts: %s\n", dyti_error_text());
        (void)bench_close(&bench);
        return 1;
    }
    return bench_close(&bench);
}
