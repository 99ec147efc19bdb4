/* All links by messages, ranks of one host: `optimal` against `xor`, `funnel`
 * and `per-tensor`, in turn, each round in another order.  Seconds of a round
 * trip train -> rollout -> train with verify = "sample".  In the same rounds a
 * memcpy of the bytes that must be written, each once and in whole regions:
 * what no order of messages can go below, and so the most that it can be worth.
 */
#include "bench.h"
#include "device/host/memory.h"
#include "shapes.h"
#include "team.h"

#include <stdio.h>
#include <string.h>

#define ROUNDS     11u
#define STRATEGIES 4u /* optimal first */
#define PER_TENSOR 3u
#define MEMCPY     STRATEGIES /* takes its turn as well */
#define PLAYERS    (STRATEGIES + 1u)

static const struct dyti_arch small_tensors = {.family = DYTI_LLAMA,
                                               .vocab = 128,
                                               .hidden = 64,
                                               .layers = 2000,
                                               .q_heads = 8,
                                               .kv_heads = 4,
                                               .head_dim = 8,
                                               .ffn = 128,
                                               .max_positions = 64,
                                               .rms_eps = 1e-5,
                                               .init_std = 0.02,
                                               .rope = {.theta = 10000},
                                               .tied = true};

/* Parts of 32 to 512 bytes: what a message costs, and little else. */
static const struct dyti_arch tiny_tensors = {.family = DYTI_LLAMA,
                                              .vocab = 128,
                                              .hidden = 16,
                                              .layers = 2000,
                                              .q_heads = 8,
                                              .kv_heads = 4,
                                              .head_dim = 2,
                                              .ffn = 32,
                                              .max_positions = 64,
                                              .rms_eps = 1e-5,
                                              .init_std = 0.02,
                                              .rope = {.theta = 10000},
                                              .tied = true};

static double both(const struct team_trip *trip)
{
    return trip->seconds[0] + trip->seconds[1];
}

/* bytes: what a switch writes, there and back; of count_bytes(). */
static enum dyt_status copy_trip(struct team *team, const uint64_t bytes[2],
                                 double *out_seconds)
{
    struct team_trip trip = {0};
    enum dyt_status st = team_copy_trip(team, bytes, &trip);

    *out_seconds = both(&trip);
    return st;
}

/* By mapped memory, where each byte is written once: how many there are. */
static enum dyt_status count_bytes(struct team *team, uint64_t out_bytes[2])
{
    const struct team_command how = {.verify = DYTI_VERIFY_OFF,
                                     .mover = DYTI_WORLD_DIRECT};
    struct team_trip trip = {0};
    enum dyt_status st = team_switch_trip(team, &how, &trip);

    out_bytes[0] = trip.bytes[0];
    out_bytes[1] = trip.bytes[1];
    return st;
}

static enum dyt_status trip(struct team *team, uint32_t strategy,
                            double *out_seconds)
{
    const struct team_command how = {.verify = DYTI_VERIFY_SAMPLE,
                                     .mover = DYTI_WORLD_MESSAGE,
                                     .strategy = strategy};
    struct team_trip trip = {0};
    enum dyt_status st = team_switch_trip(team, &how, &trip);

    *out_seconds = both(&trip);
    return st;
}

/* Median of theirs / ours, round by round. */
static double ratio_of(const double seconds[PLAYERS][ROUNDS], uint32_t us,
                       uint32_t them, uint32_t rounds)
{
    double ratio[ROUNDS];

    for (uint32_t i = 0; i < rounds; i++) {
        ratio[i] = seconds[them][i] / seconds[us][i];
    }
    return bench_median(ratio, rounds);
}

static double median_of(const double seconds[PLAYERS][ROUNDS], uint32_t who,
                        uint32_t rounds)
{
    double own[ROUNDS];

    memcpy(own, seconds[who], sizeof(own));
    return bench_median(own, rounds);
}

static void record(struct bench *bench, const char *label,
                   const double seconds[PLAYERS][ROUNDS], uint32_t rounds,
                   bool gates)
{
    static const double goal[STRATEGIES] = {0, 0.97, 0.97, 2.2};
    double ours = median_of(seconds, 0, rounds);
    char most[160];

    for (uint32_t k = 1; k < STRATEGIES; k++) {
        bench_record(bench, label, ours, dyti_strategy_at(k)->name,
                     ours * ratio_of(seconds, 0, k, rounds),
                     gates || k != PER_TENSOR ? goal[k] : 0, "s");
    }
    bench_record(bench, label, ours, "memcpy",
                 ours * ratio_of(seconds, 0, MEMCPY, rounds), 0, "s");
    (void)snprintf(most, sizeof(most), "%s, memcpy instead", label);
    ours = median_of(seconds, MEMCPY, rounds);
    bench_record(bench, most, ours, dyti_strategy_at(PER_TENSOR)->name,
                 ours * ratio_of(seconds, MEMCPY, PER_TENSOR, rounds), 0, "s");
}

static enum dyt_status contest(struct bench *bench, const char *what,
                               const struct dyti_arch *arch,
                               const struct team_shape *shape, bool gates)
{
    char label[128];
    uint32_t rounds = bench_steps(bench, bench->quick ? 1 : ROUNDS, ROUNDS);
    double seconds[PLAYERS][ROUNDS] = {{0}};
    uint64_t bytes[2] = {0};
    struct team team;
    enum dyt_status st;

    (void)snprintf(label, sizeof(label), "%s %u ranks by messages", what,
                   shape->ranks);
    if (!bench_wants(bench, label)) {
        return DYT_OK;
    }
    st = team_open(&team, arch, shape);
    st = st != DYT_OK ? st : count_bytes(&team, bytes);
    for (uint32_t i = 0; i < 2 * STRATEGIES && st == DYT_OK; i++) {
        double warm; /* planned, touched */

        st = trip(&team, i % STRATEGIES, &warm);
    }
    for (uint32_t i = 0; i < rounds && st == DYT_OK; i++) {
        for (uint32_t k = 0; k < PLAYERS && st == DYT_OK; k++) {
            uint32_t who = (i + k) % PLAYERS;

            st = who == MEMCPY ? copy_trip(&team, bytes, &seconds[who][i])
                               : trip(&team, who, &seconds[who][i]);
        }
    }
    if (st == DYT_OK) {
        record(bench, label, (const double(*)[ROUNDS])seconds, rounds, gates);
    }
    if (team.worker_count > 0) {
        team_close(&team);
    }
    return st;
}

static enum dyt_status run_messages(struct bench *bench,
                                    enum dyti_page_kind pages)
{
    static const uint32_t ranks[] = {2, 3, 4, 8};
    struct dyti_arch few = small_tensors;
    struct team_shape shape = {.ranks = 2, .pages = pages};
    enum dyt_status st = DYT_OK;

    if (bench->quick) {
        few.layers = 100;
        return contest(bench, "900 small tensors", &few, &shape, false);
    }
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        shape.ranks = ranks[i];
        if (st == DYT_OK) {
            st = contest(bench, "18,000 small tensors", &small_tensors, &shape,
                         true);
        }
        if (st == DYT_OK) {
            st = contest(bench, "18,000 tiny tensors", &tiny_tensors, &shape,
                         false);
        }
        if (st == DYT_OK) {
            st = contest(bench, "smollm2-135m", &bench_smollm2, &shape, false);
        }
    }
    return st;
}

int main(int argc, char **argv)
{
    struct bench bench;
    enum dyt_status st;

    if (!bench_open(&bench, "switch_messages", argc, argv)) {
        return bench.exit_code;
    }
    st = run_messages(&bench, dyti_memory_host.probe(0));
    if (st != DYT_OK) {
        (void)fprintf(stderr, "switch_messages: %s\n", dyti_error_text());
        (void)bench_close(&bench);
        return 1;
    }
    return bench_close(&bench);
}
