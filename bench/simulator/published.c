/* Published times, beside what the simulator says.
 *
 * Where the assumed cluster comes from.  NeMo-RL's second description of its
 * reshard names the machines: DGX H100.  The first one, of the same authors and
 * the same mappings, names none, and is taken to be of them too.  What such a
 * host has is NVIDIA's data sheet: eight GPUs, NVLink of 900 GB/s (450 each
 * way), a NIC of 400 Gb/s (50 GB/s each way) for each GPU.  8 us to post a
 * message to a NIC and 12 us until it is there are our assumption, the same for
 * all rows and for `dynatrain plan` (configs/clusters/dgx-h100.toml); no row
 * was fitted.  Trainer and rollout are on GPUs of their own, bf16.
 *
 * Two columns of theirs: the first description (of May 2026) sends all
 * parameters shard to shard; the second, which was merged (of June 2026), only
 * the projections of MLPs and experts, by a fallback in Python, and gathers and
 * broadcasts the rest.  What is simulated is the first way (entries.c); the
 * second is shown beside it, and where it is missed it is shown as missed.
 * Their 30B takes half a second whatever the mapping: a cost of an entry that
 * nothing here has, and with TP 2 DP 8 less than its own copy for every replica
 * allows, so that something is shared inside a host. */
#include "published.h"

#include "base/error.h"
#include "entries.h"
#include "explain/simulate.h"
#include "format/hf_config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WITHIN 0.30

struct row {
    const char *name, *model, *cluster, *from, *to;
    uint32_t kinds;               /* that move */
    double low_s, high_s;         /* published; 0: gates nothing */
    double later_low, later_high; /* the second description; 0: not there */
};

#define PARAM (1u << DYTI_PARAM)
#define STATE (1u << DYTI_MASTER | 1u << DYTI_EXP_AVG | 1u << DYTI_EXP_AVG_SQ)

#define QWEN3_30B(trainer, rollout)                                            \
    "qwen3-30b-a3b", "dgx-h100",                                               \
        "megatron:" trainer ",etp=1,world=32,ranks=0-15",                      \
        "vllm:" rollout ",world=32,ranks=16-31", PARAM

static const struct row rows[] = {
    {"NeMo-RL 30B", QWEN3_30B("tp=2,pp=2,dp=4,ep=4", "tp=4,dp=4,etp=4"), 0.48,
     0.52, 0.74, 1.17},
    {"NeMo-RL 30B, EP4 TP2 DP2 to TP4 DP4",
     QWEN3_30B("tp=2,dp=8,ep=4", "tp=4,dp=4,etp=4"), 0.54, 0.67, 1.13, 1.53},
    {"NeMo-RL 30B, EP8 PP2 to TP2 DP8",
     QWEN3_30B("pp=2,dp=8,ep=8", "tp=2,dp=8,etp=2"), 0.51, 0.55, 1.21, 1.52},
    {"NeMo-RL 30B, EP8 PP2 to TP8 DP2",
     QWEN3_30B("pp=2,dp=8,ep=8", "tp=8,dp=2,etp=8"), 0.50, 0.51, 0.74, 1.00},
    {"NeMo-RL 235B", "qwen3-235b-a22b", "dgx-h100",
     "megatron:tp=4,pp=8,dp=4,ep=16,etp=1,world=256,ranks=0-127",
     "vllm:tp=8,dp=16,etp=8,world=256,ranks=128-255", PARAM, 4.56, 4.85, 0, 0},
    {"NeMo-RL DeepSeek-V3", "deepseek-v3", "dgx-h100",
     "megatron:tp=1,pp=16,dp=16,ep=16,etp=1,world=512,ranks=0-255",
     "vllm:tp=32,dp=8,etp=32,world=512,ranks=256-511", PARAM, 7.65, 9.94, 0, 0},
    {"paper 70B, 64 GPUs", "llama2-70b", "a800",
     "megatron:tp=8,pp=4,dp=2,zero=1", "megatron:tp=4,pp=4,dp=4,zero=1", STATE,
     0, 2.0, 0, 0},
    {"paper 70B, 128 GPUs", "llama2-70b", "a800",
     "megatron:tp=8,pp=4,dp=4,zero=1", "megatron:tp=4,pp=4,dp=8,zero=1", STATE,
     0, 2.0, 0, 0},
    {"paper 235B, 64 GPUs", "qwen3-235b-a22b", "a800",
     "megatron:tp=4,pp=4,dp=4,ep=8,etp=1,zero=1",
     "megatron:tp=4,pp=2,dp=8,ep=16,etp=1,zero=1", STATE, 0, 4.36, 0, 0},
    {"paper 235B, 128 GPUs", "qwen3-235b-a22b", "a800",
     "megatron:tp=4,pp=8,dp=4,ep=16,etp=1,zero=1",
     "megatron:tp=4,pp=4,dp=8,ep=32,etp=1,zero=1", STATE, 0, 4.36, 0, 0},
};

static void priced_fini(struct priced *m)
{
    dyti_traffic_destroy(m->traffic);
    dyti_spec_pair_fini(&m->pair);
    free(m->flow);
}

/* The flows of a row, every replica getting its own copy. */
static enum dyt_status make(const struct row *row, struct priced *out)
{
    struct dyti_plan_inputs inputs;
    char model[128], cluster[128];
    const struct dyti_spec_pair_params pair = {.arch = &out->arch,
                                               .from = row->from,
                                               .to = row->to,
                                               .cluster = cluster,
                                               .as_large = true};
    const struct dyti_traffic_options options = {.cluster = &out->pair.cluster};
    enum dyt_status st;

    (void)snprintf(model, sizeof(model), "configs/models/%s", row->model);
    (void)snprintf(cluster, sizeof(cluster), "configs/clusters/%s.toml",
                   row->cluster);
    st = dyti_hf_config_read(model, &out->arch);
    st = st != DYT_OK ? st : dyti_spec_pair_open(&pair, &out->pair);
    st = st != DYT_OK ? st
                      : dyti_plan_inputs_init(out->pair.src, DYTI_ARENA_TRAIN,
                                              out->pair.dst, DYTI_ARENA_ROLLOUT,
                                              row->kinds, &inputs);
    st = st != DYT_OK ? st
                      : dyti_traffic_build(&inputs, &options, &out->traffic);
    return st != DYT_OK
               ? st
               : dyti_traffic_flows(out->traffic, &out->flow, &out->flow_count);
}

static enum dyt_status simulate(const struct priced *m,
                                const struct dyti_strategy_ops *strategy,
                                double *out_seconds, double *out_load)
{
    const struct dyti_order in = {.cluster = &m->pair.cluster,
                                  .flow = m->flow,
                                  .flow_count = m->flow_count};
    struct dyti_simulate_inputs sim = {.cluster = &m->pair.cluster};
    struct dyti_simulation result = {0};
    struct dyti_pieces pieces = {0};
    enum dyt_status st = strategy->order(&in, &pieces);

    sim.pieces = &pieces;
    st = st != DYT_OK ? st : dyti_simulate(&sim, &result);
    if (st == DYT_OK) {
        *out_seconds = result.seconds;
        *out_load = pieces.load_s;
    }
    dyti_simulation_fini(&result);
    dyti_pieces_fini(&pieces);
    return st;
}

/* How far seconds are from [low, high], as a share of the nearer end. */
static double off(double seconds, double low, double high)
{
    double near = seconds < low ? low : seconds > high ? high : seconds;

    return fabs(seconds - near) / near;
}

/* One published range beside what was simulated. */
static void judge(struct bench *bench, const char *name, double seconds,
                  double low, double high)
{
    double by = off(seconds, low, high);

    printf("    published %.2f to %.2f s: %s\n", low, high,
           by <= WITHIN ? "within 30 %" : "MISSED, not within 30 %");
    bench_record(bench, name, fmax(0.0, 1.0 - by), "needed", 1.0 - WITHIN, 1.0,
                 "share");
}

static enum dyt_status one_row(struct bench *bench, const struct row *row)
{
    double theirs = 0.0, optimal = 0.0, load = 0.0;
    struct priced m = {.flow = NULL};
    char later[96];
    enum dyt_status st = make(row, &m);

    st = st != DYT_OK ? st
                      : simulate(&m, &dyti_strategy_optimal, &optimal, &load);
    if (st == DYT_OK) {
        st = row->low_s > 0.0
                 ? entries_simulate(&m, &theirs)
                 : simulate(&m, &dyti_strategy_per_tensor, &theirs, &load);
    }
    priced_fini(&m);
    if (st != DYT_OK) {
        return st;
    }
    printf("%-36s %7.3f s %8.3f s %8.3f s", row->name, load, theirs, optimal);
    if (row->low_s == 0.0) {
        printf("   %.2f s: gates nothing, no transition is published with "
               "it\n",
               row->high_s);
        bench_record(bench, row->name, optimal, "bound", load, 0, "s");
        bench_record(bench, row->name, optimal, "per-tensor", theirs, 0, "s");
        return DYT_OK;
    }
    printf("\n");
    judge(bench, row->name, theirs, row->low_s, row->high_s);
    if (row->later_low > 0.0) {
        (void)snprintf(later, sizeof(later), "%s, as merged", row->name);
        judge(bench, later, theirs, row->later_low, row->later_high);
    }
    return DYT_OK;
}

bool published_rows(struct bench *bench)
{
    printf(
        "\npublished times, not fitted to.  Assumed for all rows: clusters of "
        "configs/clusters (DGX H100, which the second description of NeMo-RL "
        "names: NIC 50 GB/s a GPU by the data sheet, 8 us a message and 12 us "
        "of latency by us; A800: NIC 25 GB/s).\nNeMo-RL: bf16, GPUs of their "
        "own, every replica its own copy; an entry for each parameter, the "
        "experts of a layer being one for each projection, one after the "
        "other, two pipeline stages at a time, as its guide describes.\n"
        "paper: a message for each tensor.\n%-36s %9s %10s %10s   %s\n",
        "", "bound", "their way", "optimal", "published");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (bench->quick && i > 0) {
            break;
        }
        if (one_row(bench, &rows[i]) != DYT_OK) {
            fprintf(stderr, "simulator: %s: %s\n", rows[i].name,
                    dyti_error_text());
            return false;
        }
    }
    return true;
}
