/* The cluster is assumed, not told by those who published: DGX H100 hosts as in
 * configs/clusters, a NIC of 50 GB/s for each GPU, NVLink of 450 GB/s, 8 us to
 * post a message and 12 us until it is there; trainer and rollout on GPUs of
 * their own; each rollout GPU gets its own part over its NIC, tensor by tensor,
 * as the transfer library of those rows does. */
#include "published.h"

#include "base/error.h"
#include "explain/simulate.h"
#include "format/cluster_file.h"
#include "format/hf_config.h"
#include "format/layout_spec.h"
#include "plan/traffic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WITHIN 0.30

struct row {
    const char *name, *model, *cluster, *from, *to;
    uint32_t per_host;
    uint32_t kinds;       /* that move */
    double low_s, high_s; /* published; 0: gates nothing */
};

#define PARAM (1u << DYTI_PARAM)
#define STATE (1u << DYTI_MASTER | 1u << DYTI_EXP_AVG | 1u << DYTI_EXP_AVG_SQ)

static const struct row rows[] = {
    {"NeMo-RL 30B", "qwen3-30b-a3b", "dgx-h100",
     "megatron:tp=2,pp=2,dp=4,ep=4,etp=1,world=32,hosts=8,ranks=0-15",
     "vllm:tp=4,dp=4,etp=4,world=32,hosts=8,ranks=16-31", 8, PARAM, 0.48, 0.52},
    {"NeMo-RL 235B", "qwen3-235b-a22b", "dgx-h100",
     "megatron:tp=4,pp=8,dp=4,ep=16,etp=1,world=256,hosts=8,ranks=0-127",
     "vllm:tp=8,dp=16,etp=8,world=256,hosts=8,ranks=128-255", 8, PARAM, 4.56,
     4.85},
    {"NeMo-RL DeepSeek-V3", "deepseek-v3", "dgx-h100",
     "megatron:tp=1,pp=16,dp=16,ep=16,etp=1,world=512,hosts=8,ranks=0-255",
     "vllm:tp=32,dp=8,etp=32,world=512,hosts=8,ranks=256-511", 8, PARAM, 7.65,
     9.94},
    {"paper 70B, 64 GPUs", "llama2-70b", "a800",
     "megatron:tp=8,pp=4,dp=2,zero=1,hosts=8",
     "megatron:tp=4,pp=4,dp=4,zero=1,hosts=8", 8, STATE, 0, 2.0},
    {"paper 70B, 128 GPUs", "llama2-70b", "a800",
     "megatron:tp=8,pp=4,dp=4,zero=1,hosts=8",
     "megatron:tp=4,pp=4,dp=8,zero=1,hosts=8", 8, STATE, 0, 2.0},
    {"paper 235B, 64 GPUs", "qwen3-235b-a22b", "a800",
     "megatron:tp=4,pp=4,dp=4,ep=8,etp=1,zero=1,hosts=8",
     "megatron:tp=4,pp=2,dp=8,ep=16,etp=1,zero=1,hosts=8", 8, STATE, 0, 4.36},
    {"paper 235B, 128 GPUs", "qwen3-235b-a22b", "a800",
     "megatron:tp=4,pp=8,dp=4,ep=16,etp=1,zero=1,hosts=8",
     "megatron:tp=4,pp=4,dp=8,ep=32,etp=1,zero=1,hosts=8", 8, STATE, 0, 4.36},
};

/* Everything that one row needs; zeroed: nothing yet. */
struct made {
    struct dyti_arch arch;
    struct dyti_cluster_file file;
    struct dyti_model *model;
    struct dyti_layout_spec spec[2];
    struct dyti_layout *layout[2];
    struct dyti_traffic *traffic;
    struct dyti_flow *flow;
    size_t flow_count;
    struct dyti_cluster cluster;
    uint32_t *host;
};

static void made_fini(struct made *m)
{
    dyti_traffic_destroy(m->traffic);
    for (int i = 0; i < 2; i++) {
        dyti_layout_destroy(m->layout[i]);
        dyti_layout_spec_fini(&m->spec[i]);
    }
    dyti_model_destroy(m->model);
    dyti_cluster_file_fini(&m->file);
    free(m->flow);
    free(m->host);
}

static enum dyt_status make_cluster(struct made *m, const struct row *row,
                                    uint32_t world)
{
    char path[128];
    enum dyt_status st;

    snprintf(path, sizeof(path), "configs/clusters/%s.toml", row->cluster);
    st = dyti_cluster_file_load(path, &m->file);
    if (st != DYT_OK) {
        return st;
    }
    m->host = calloc(world, sizeof(*m->host));
    if (m->host == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u ranks", world);
    }
    for (uint32_t i = 0; i < world; i++) {
        m->host[i] = i / row->per_host;
    }
    m->cluster = m->file.cluster;
    m->cluster.rank_count = world;
    m->cluster.host_count = (world + row->per_host - 1) / row->per_host;
    m->cluster.host = m->host;
    return DYT_OK;
}

static enum dyt_status make_layouts(struct made *m, const struct row *row)
{
    const char *text[] = {row->from, row->to};
    char path[128];
    enum dyt_status st;

    snprintf(path, sizeof(path), "configs/models/%s", row->model);
    st = dyti_hf_config_read(path, &m->arch);
    st = st != DYT_OK ? st : dyti_model_build(&m->arch, &m->model);
    for (int i = 0; i < 2 && st == DYT_OK; i++) {
        st = dyti_layout_spec_read(text[i], &m->spec[i]);
        if (st == DYT_OK) {
            m->spec[i].desc.phase = i == 0 ? "train" : "rollout";
            m->spec[i].desc.lazy = true;
            dyti_layout_spec_use_model(&m->spec[i], &m->arch);
            st = dyti_layout_build(m->model, &m->spec[i].desc, &m->layout[i]);
        }
    }
    return st;
}

/* Flows of the row.  fan_out: one copy enters a host. */
static enum dyt_status make(const struct row *row, bool fan_out,
                            struct made *out)
{
    struct dyti_plan_inputs inputs;
    struct dyti_traffic_options options = {.cluster = &out->cluster,
                                           .fan_out = fan_out};
    enum dyt_status st = make_layouts(out, row);

    st = st != DYT_OK ? st
                      : make_cluster(out, row, out->layout[0]->desc.world_size);
    st = st != DYT_OK
             ? st
             : dyti_plan_inputs_init(out->layout[0], DYTI_ARENA_TRAIN,
                                     out->layout[1], DYTI_ARENA_ROLLOUT,
                                     row->kinds, &inputs);
    st = st != DYT_OK ? st
                      : dyti_traffic_build(&inputs, &options, &out->traffic);
    return st != DYT_OK
               ? st
               : dyti_traffic_flows(out->traffic, &out->flow, &out->flow_count);
}

static enum dyt_status simulate(const struct made *m,
                                const struct dyti_strategy_ops *strategy,
                                double *out_seconds, double *out_load)
{
    const struct dyti_order in = {
        .cluster = &m->cluster, .flow = m->flow, .flow_count = m->flow_count};
    struct dyti_simulate_inputs sim = {.cluster = &m->cluster};
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

static void judge(struct bench *bench, const struct row *row, double seconds)
{
    double near = seconds < row->low_s    ? row->low_s
                  : seconds > row->high_s ? row->high_s
                                          : seconds;
    double off = fabs(seconds - near) / near;

    if (row->low_s > 0.0) {
        printf("  %s\n", off <= WITHIN ? "within 30 %"
                                       : "MISSED: not within "
                                         "30 %");
        bench_record(bench, row->name, fmax(0.0, 1.0 - off), "needed",
                     1.0 - WITHIN, 1.0, "share");
    } else {
        printf("  gates nothing: no transition is published with it\n");
    }
}

bool published_rows(struct bench *bench)
{
    printf("\npublished times, not fitted to; assumed: clusters of "
           "configs/clusters (DGX H100: NIC 50 GB/s a GPU, 8 us a message, 12 "
           "us of latency; A800: NIC 25 GB/s)\n%-22s %9s %10s %10s   %s\n",
           "", "bound", "tensor", "optimal", "published");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        double tensor = 0.0, optimal = 0.0, load = 0.0;
        struct made m = {0};
        enum dyt_status st = make(row, false, &m);

        if (bench->quick && row->low_s > 1.0) {
            made_fini(&m);
            continue;
        }
        st = st != DYT_OK
                 ? st
                 : simulate(&m, &dyti_strategy_per_tensor, &tensor, &load);
        st = st != DYT_OK
                 ? st
                 : simulate(&m, &dyti_strategy_optimal, &optimal, &load);
        made_fini(&m);
        if (st != DYT_OK) {
            fprintf(stderr, "simulator: %s: %s\n", row->name,
                    dyti_error_message());
            return false;
        }
        if (row->low_s > 0.0) {
            printf("%-22s %7.3f s %8.3f s %8.3f s   %.2f to %.2f s", row->name,
                   load, tensor, optimal, row->low_s, row->high_s);
        } else {
            printf("%-22s %7.3f s %8.3f s %8.3f s   %.2f s", row->name, load,
                   tensor, optimal, row->high_s);
        }
        judge(bench, row, tensor);
    }
    return true;
}
