/* All links by messages, ranks of one host: `optimal` against `xor`, `funnel`
 * and `per-tensor`, in turn, each round in another order.  Seconds of a round
 * trip train -> rollout -> train with verify = "sample". */
#include "bench.h"
#include "device/host/memory.h"
#include "team.h"

#include <stdio.h>

#define ROUNDS     11u
#define STRATEGIES 4u /* optimal first */

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

static const struct dyti_arch smollm2 = {.family = DYTI_LLAMA,
                                         .vocab = 49152,
                                         .hidden = 576,
                                         .layers = 30,
                                         .q_heads = 9,
                                         .kv_heads = 3,
                                         .head_dim = 64,
                                         .ffn = 1536,
                                         .max_positions = 8192,
                                         .rms_eps = 1e-5,
                                         .init_std = 0.02,
                                         .rope = {.theta = 100000},
                                         .tied = true};

static enum dyt_status trip(struct team *team, uint32_t strategy,
                            double *out_seconds)
{
    struct team_command there = {.order = TEAM_SWITCH,
                                 .from = DYTI_ARENA_TRAIN,
                                 .to = DYTI_ARENA_ROLLOUT,
                                 .verify = DYTI_VERIFY_SAMPLE,
                                 .mover = DYTI_WORLD_MESSAGE,
                                 .strategy = strategy};
    struct team_command back = there;
    double first = 0, second = 0;
    enum dyt_status st;

    back.from = DYTI_ARENA_ROLLOUT;
    back.to = DYTI_ARENA_TRAIN;
    st = team_run(team, &there, &first, NULL);
    st = st != DYT_OK ? st : team_run(team, &back, &second, NULL);
    *out_seconds = first + second;
    return st;
}

/* Median of theirs / ours, round by round. */
static double ratio_of(const double seconds[STRATEGIES][ROUNDS], uint32_t them,
                       uint32_t rounds)
{
    double ratio[ROUNDS];

    for (uint32_t i = 0; i < rounds; i++) {
        ratio[i] = seconds[them][i] / seconds[0][i];
    }
    return bench_median(ratio, rounds);
}

static enum dyt_status contest(struct bench *bench, const char *what,
                               const struct dyti_arch *arch,
                               const struct team_shape *shape, bool gates)
{
    static const double goal[STRATEGIES] = {0, 0.97, 0.97, 2.2};
    char label[128];
    uint32_t rounds = bench_steps(bench, bench->quick ? 1 : ROUNDS, ROUNDS);
    double seconds[STRATEGIES][ROUNDS] = {{0}}, ours[ROUNDS];
    struct team team;
    enum dyt_status st = DYT_OK;

    (void)snprintf(label, sizeof(label), "%s %u ranks by messages", what,
                   shape->ranks);
    if (!bench_wants(bench, label)) {
        return DYT_OK;
    }
    st = team_open(&team, arch, shape);

    for (uint32_t i = 0; i < 2 * STRATEGIES && st == DYT_OK; i++) {
        double warm; /* planned, touched */

        st = trip(&team, i % STRATEGIES, &warm);
    }
    for (uint32_t i = 0; i < rounds && st == DYT_OK; i++) {
        for (uint32_t k = 0; k < STRATEGIES && st == DYT_OK; k++) {
            uint32_t who = (i + k) % STRATEGIES;

            st = trip(&team, who, &seconds[who][i]);
        }
    }
    for (uint32_t k = 1; k < STRATEGIES && st == DYT_OK; k++) {
        const char *name = dyti_strategy_at(k)->name;
        double ratio = ratio_of(seconds, k, rounds), mine;

        for (uint32_t i = 0; i < rounds; i++) {
            ours[i] = seconds[0][i];
        }
        mine = bench_median(ours, rounds);
        bench_record(bench, label, mine, name, mine * ratio,
                     gates || k != 3 ? goal[k] : 0, "s");
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
            st = contest(bench, "smollm2-135m", &smollm2, &shape, false);
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
