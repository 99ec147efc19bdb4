/* Does the simulator tell the truth?  Exchanges between 2, 3, 4 and 8 ranks on
 * this machine, simulated with links that are measured in the same run, beside
 * what they really took; and published times. */
#include "bench.h"
#include "exchange.h"
#include "published.h"

#include "base/error.h"
#include "explain/simulate.h"
#include "traffic_cases.h"

#include <math.h>
#include <string.h>

#define ROUNDS  5u
#define SMALL   ((uint64_t)4096)
#define MESSAGE 512u
#define GOAL    0.15
#define CASES   64u

struct machine {
    struct dyti_cluster cluster;
    uint32_t host[EXCHANGE_RANKS];
};

static double median_run(struct exchange *x, uint32_t ranks,
                         const struct dyti_piece *piece, size_t count)
{
    double t[ROUNDS];

    for (uint32_t i = 0; i < ROUNDS; i++) {
        t[i] = exchange_run(x, ranks, piece, count);
    }
    return bench_median(t, ROUNDS);
}

static struct dyti_piece piece_of(uint32_t from, uint32_t to, uint64_t lo,
                                  uint64_t hi)
{
    return (struct dyti_piece){
        .src = from, .dst = to, .from = from, .to = to, .lo = lo, .hi = hi};
}

/* What one pair moves, what all together move, what a message costs. */
static void calibrate(struct exchange *x, uint32_t ranks, uint64_t bytes,
                      struct machine *out)
{
    struct dyti_piece piece[MESSAGE];
    struct dyti_link_speed *link = &out->cluster.link[DYTI_LINK_HOST];
    double one, all, small;

    memset(out, 0, sizeof(*out));
    out->cluster = (struct dyti_cluster){.name = "this machine",
                                         .rank_count = ranks,
                                         .host_count = 1,
                                         .host = out->host};
    piece[0] = piece_of(0, 1, 0, bytes);
    one = median_run(x, ranks, piece, 1);
    for (uint32_t i = 0; i < ranks; i++) {
        piece[i] = piece_of(i, (i + 1) % ranks, 0, bytes / 2);
    }
    all = median_run(x, ranks, piece, ranks);
    for (uint32_t i = 0; i < MESSAGE; i++) {
        piece[i] = piece_of(0, 1, i * SMALL, (i + 1) * SMALL);
    }
    small = median_run(x, ranks, piece, MESSAGE);
    link->bytes_per_s = (double)bytes / one;
    link->message_s = small / MESSAGE;
    out->cluster.host_bytes_per_s = (double)bytes / 2.0 * (double)ranks / all;
    printf("%u ranks: a pair %.2f GB/s, all together %.2f GB/s, a message "
           "%.1f us\n",
           ranks, link->bytes_per_s / 1e9, out->cluster.host_bytes_per_s / 1e9,
           link->message_s * 1e6);
}

/* Traffic scaled to `total` bytes. */
static bool make_traffic(uint32_t ranks, uint32_t shape, uint64_t total,
                         struct dyt_traffic *t)
{
    double all = 0.0;

    if (!dyt_traffic_random(t, 17 + shape, ranks, ranks, shape)) {
        return false;
    }
    for (size_t i = 0; i < t->flow_count; i++) {
        all += (double)t->flow[i].bytes;
    }
    for (size_t i = 0; i < t->flow_count; i++) {
        t->flow[i].bytes =
            (uint64_t)((double)t->flow[i].bytes / all * (double)total) + 64;
    }
    return t->flow_count > 0;
}

static bool compare(struct exchange *x, const struct machine *machine,
                    uint32_t shape, uint64_t bytes, size_t which,
                    double *out_error)
{
    struct dyt_traffic t;
    struct dyti_order in;
    struct dyti_pieces pieces = {0};
    struct dyti_simulate_inputs sim = {.cluster = &machine->cluster,
                                       .pieces = &pieces};
    struct dyti_simulation result = {0};
    double real;
    enum dyt_status st;

    if (!make_traffic(machine->cluster.rank_count, shape, bytes, &t)) {
        dyt_traffic_close(&t);
        return false;
    }
    in = (struct dyti_order){.cluster = &machine->cluster,
                             .flow = t.flow,
                             .flow_count = t.flow_count};
    st = dyti_strategy_at(which)->order(&in, &pieces);
    st = st != DYT_OK ? st : dyti_simulate(&sim, &result);
    if (st != DYT_OK) {
        fprintf(stderr, "simulator: %s\n", dyti_error_message());
        exit(1);
    }
    real =
        median_run(x, machine->cluster.rank_count, pieces.piece, pieces.count);
    *out_error = fabs(result.seconds - real) / real;
    printf("%u ranks, traffic %u, %4llu MiB, %-10s %6zu pieces: simulated "
           "%8.2f ms | measured %8.2f ms | off %5.1f %%\n",
           machine->cluster.rank_count, shape,
           (unsigned long long)(bytes >> 20), dyti_strategy_at(which)->name,
           pieces.count, result.seconds * 1e3, real * 1e3, *out_error * 100.0);
    dyti_simulation_fini(&result);
    dyti_pieces_fini(&pieces);
    dyt_traffic_close(&t);
    return true;
}

static void compare_all(struct bench *bench, struct exchange *x)
{
    static const uint32_t ranks_of[] = {2, 3, 4, 8};
    static const uint64_t mib_of[] = {32, 128, 512};
    double error[CASES];
    uint32_t count = 0;

    for (size_t i = 0; i < sizeof(ranks_of) / sizeof(ranks_of[0]); i++) {
        uint32_t sizes = bench->quick ? 1 : 3;
        struct machine machine;

        calibrate(x, ranks_of[i], (uint64_t)256 << 20, &machine);
        for (uint32_t k = 0; k < sizes; k++) {
            for (uint32_t which = 0; which < 2; which++) {
                for (uint32_t shape = 0; shape < 2; shape++) {
                    count += count < CASES &&
                             compare(x, &machine, shape, mib_of[k] << 20, which,
                                     &error[count]);
                }
            }
        }
    }
    printf("median error %.1f %%, allowed %.0f %%\n",
           100.0 * bench_median(error, count), 100.0 * GOAL);
    bench_record(bench, "1 - median error, real exchanges",
                 1.0 - bench_median(error, count), "needed", 1.0 - GOAL, 1.0,
                 "share");
}

int main(int argc, char **argv)
{
    struct bench bench;
    struct exchange *x;
    bool ok;

    if (!bench_open(&bench, "simulator", argc, argv)) {
        return bench.exit_code;
    }
    x = exchange_open();
    if (x == NULL) {
        fprintf(stderr, "simulator: no memory\n");
        return 1;
    }
    compare_all(&bench, x);
    exchange_close(x);
    ok = published_rows(&bench);
    return bench_close(&bench) != 0 || !ok;
}
