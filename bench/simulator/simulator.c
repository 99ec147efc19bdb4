/* Does the simulator tell the truth?  Switches of worlds of 2, 3, 4 and 8 ranks
 * on this machine, by messages, simulated with costs that other switches of
 * the same run gave, beside what they really took; and published times.
 *
 * All switches of a size, those that calibrate and those that are compared,
 * take turns; a figure is the median over the turns. */
#include "bench.h"
#include "calibrate.h"
#include "device/host/memory.h"
#include "published.h"
#include "switches.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GOAL       0.15
#define STRATEGIES 4u
#define CASES      128u

struct subject {
    const char *name;
    bool calibrates;
    enum dyti_dtype dtype;
    struct dyti_arch arch;
};

#define ARCH(v, h, l, q, k, d, f)                                              \
    {                                                                          \
        .family = DYTI_LLAMA, .vocab = (v), .hidden = (h), .layers = (l),      \
        .q_heads = (q), .kv_heads = (k), .head_dim = (d), .ffn = (f),          \
        .max_positions = 64, .rms_eps = 1e-5, .init_std = 0.02,                \
        .rope = {.theta = 10000}, .tied = false                                \
    }

/* Those that calibrate are unlike the others: bytes and little else, messages
 * and boxes and little else, conversion. */
static const struct subject subjects[] = {
    {"few large", true, DYTI_F32, ARCH(2048, 1024, 2, 16, 16, 64, 2816)},
    {"many tiny", true, DYTI_F32, ARCH(128, 32, 300, 8, 4, 4, 64)},
    {"many rows", true, DYTI_F32, ARCH(4096, 128, 40, 8, 8, 16, 384)},
    {"few large bf16", true, DYTI_BF16, ARCH(2048, 1024, 2, 16, 16, 64, 2816)},
    {"smollm2, 6 layers", false, DYTI_F32, ARCH(8192, 576, 6, 9, 3, 64, 1536)},
    {"small tensors", false, DYTI_F32, ARCH(128, 64, 400, 8, 4, 8, 128)},
    {"grouped queries, bf16", false, DYTI_BF16,
     ARCH(4096, 256, 16, 8, 2, 32, 704)}};

#define SUBJECTS (sizeof(subjects) / sizeof(subjects[0]))

struct world {
    uint32_t ranks, host[TEAM_RANKS_MAX];
    struct team team[SUBJECTS];
    struct real_switch s[SUBJECTS * STRATEGIES * 2];
    uint32_t count, calibrating; /* those that calibrate come first */
    struct dyti_cluster cluster;
};

static bool open_subject(struct world *w, uint32_t at,
                         enum dyti_page_kind pages)
{
    const struct team_shape shape = {
        .ranks = w->ranks, .dtype = subjects[at].dtype, .pages = pages};
    enum dyt_status st = team_open(&w->team[at], &subjects[at].arch, &shape);

    if (st != DYT_OK) {
        fprintf(stderr, "simulator: %s\n", dyti_error_text());
        return false;
    }
    for (uint32_t k = 0; k < STRATEGIES * 2; k++) {
        struct real_switch *s = &w->s[w->count];

        *s = (struct real_switch){
            .model = subjects[at].name,
            .team = at,
            .strategy = k / 2,
            .from = k % 2 == 0 ? DYTI_ARENA_TRAIN : DYTI_ARENA_ROLLOUT,
            .to = k % 2 == 0 ? DYTI_ARENA_ROLLOUT : DYTI_ARENA_TRAIN};
        if (!real_switch_plan(&w->team[at], s)) {
            return false;
        }
        w->count++;
    }
    w->calibrating = subjects[at].calibrates ? w->count : w->calibrating;
    return true;
}

static void close_world(struct world *w)
{
    for (uint32_t i = 0; i < w->count; i++) {
        real_switch_fini(&w->s[i]);
    }
    for (size_t i = 0; i < SUBJECTS; i++) {
        if (w->team[i].worker_count > 0) {
            team_close(&w->team[i]);
        }
    }
}

/* All in turn: first once to touch and plan, then `rounds` that count. */
static bool run_all(struct world *w, uint32_t rounds)
{
    for (uint32_t turn = 0; turn <= rounds; turn++) {
        for (uint32_t i = 0; i < w->count; i++) {
            struct real_switch *s = &w->s[i];

            if (!real_switch_run(&w->team[s->team], s, turn > 0)) {
                return false;
            }
        }
    }
    return true;
}

static bool compare(struct world *w, const struct real_switch *s,
                    double *out_error)
{
    const struct dyti_simulate_inputs in = {.cluster = &w->cluster,
                                            .pieces = &s->pieces,
                                            .keep_bytes = s->keep,
                                            .boxes = s->boxes};
    struct dyti_simulation result = {0};
    double real = real_switch_median(s);
    enum dyt_status st = dyti_simulate(&in, &result);

    if (st != DYT_OK) {
        fprintf(stderr, "simulator: %s\n", dyti_error_text());
        return false;
    }
    *out_error = fabs(result.seconds - real) / real;
    printf("%u ranks, %-21s to %-7s %-10s %6zu pieces: simulated %8.2f ms | "
           "measured %8.2f ms | off %5.1f %%\n",
           w->ranks, s->model, s->to == DYTI_ARENA_TRAIN ? "train" : "rollout",
           dyti_strategy_at(s->strategy)->name, s->pieces.count,
           result.seconds * 1e3, real * 1e3, *out_error * 100.0);
    dyti_simulation_fini(&result);
    return true;
}

static void say_costs(const struct world *w)
{
    const struct dyti_link_speed *host = &w->cluster.link[DYTI_LINK_HOST];

    printf("%u ranks on %u cores, from %u switches: start %.0f us; a core gets "
           "sources at %.2f GB/s, moves %.2f, converts %.2f, a message takes "
           "it %.1f us, a box %.1f ns\n",
           w->ranks, w->cluster.host_cores, w->calibrating,
           w->cluster.start_s * 1e6, w->cluster.source_bytes_per_s / 1e9,
           host->bytes_per_s / 1e9, host->convert_bytes_per_s / 1e9,
           host->message_s * 1e6, host->box_s * 1e9);
}

static bool compare_size(const struct bench *bench, uint32_t ranks,
                         enum dyti_page_kind pages, double *error,
                         uint32_t *count)
{
    static struct world w; /* large */
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    bool ok = true;

    memset(&w, 0, sizeof(w));
    w.ranks = ranks;
    w.cluster =
        (struct dyti_cluster){.name = "this machine",
                              .rank_count = ranks,
                              .host_count = 1,
                              .host = w.host,
                              .host_cores = cores > 0 ? (uint32_t)cores : 1};
    for (uint32_t i = 0; i < SUBJECTS && ok; i++) {
        ok = open_subject(&w, i, pages);
    }
    ok = ok && run_all(&w, bench->quick ? 3 : SWITCH_ROUNDS);
    if (ok) {
        calibrate(w.s, w.calibrating, &w.cluster);
        say_costs(&w);
    }
    for (uint32_t i = w.calibrating; i < w.count && ok; i++) {
        ok = *count < CASES && compare(&w, &w.s[i], &error[*count]);
        *count += ok;
    }
    close_world(&w);
    return ok;
}

static bool compare_all(struct bench *bench)
{
    static const uint32_t ranks_of[] = {2, 3, 4, 8};
    enum dyti_page_kind pages = dyti_memory_host.probe(0);
    double error[CASES];
    uint32_t count = 0, sizes = bench->quick ? 1 : 4;

    for (uint32_t i = 0; i < sizes; i++) {
        if (!compare_size(bench, ranks_of[i], pages, error, &count)) {
            return false;
        }
    }
    printf("median error of %u switches %.1f %%, allowed %.0f %%\n", count,
           100.0 * bench_median(error, count), 100.0 * GOAL);
    bench_record(bench, "1 - median error, real switches",
                 1.0 - bench_median(error, count), "needed", 1.0 - GOAL, 1.0,
                 "share");
    return true;
}

int main(int argc, char **argv)
{
    struct bench bench;
    bool ok;

    if (!bench_open(&bench, "simulator", argc, argv)) {
        return bench.exit_code;
    }
    ok = !bench_wants(&bench, "real") || compare_all(&bench);
    ok = ok && (!bench_wants(&bench, "published") || published_rows(&bench));
    return bench_close(&bench) != 0 || !ok;
}
