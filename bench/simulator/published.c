/* What is assumed, for all rows alike.  The cluster is not told by those who
 * published: DGX H100 hosts as in configs/clusters, a NIC of 50 GB/s for each
 * GPU, NVLink of 450 GB/s, 8 us to post a message and 12 us until it is there;
 * trainer and rollout on GPUs of their own, bf16.
 *
 * What their program does is told by its own description (the guide to
 * nccl_reshard of NeMo-RL): the weights of a layer's experts are one entry for
 * each projection, everything else an entry for each parameter; entries go one
 * after the other, each rank sending what it has of one to each rank that wants
 * part of it; there is a communicator for each pipeline stage of the trainer,
 * and two streams, so two stages go at a time.  Every replica gets its own
 * copy. Stacking experts before and copying them into place after is not
 * counted. */
#include "published.h"

#include "base/error.h"
#include "explain/simulate.h"
#include "format/cluster_file.h"
#include "format/hf_config.h"
#include "format/layout_spec.h"
#include "layout/dialect.h"
#include "plan/traffic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WITHIN  0.30
#define STREAMS 2u /* stages that go at a time */

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

/* ---- entry by entry, stage by stage ---------------------------------------
 */

/* Which entry a tensor is of: experts of a layer are one for each slot. */
static uint32_t entry_of(const struct dyti_model *model, uint32_t tensor)
{
    const struct dyti_tensor *t = &model->tensor[tensor];
    uint32_t slots = DYTI_SLOT_COUNT;

    return t->expert < 0 || t->layer < 0
               ? tensor
               : model->tensor_count + (uint32_t)t->layer * slots +
                     (uint32_t)t->slot;
}

/* What one rank sends another of one entry.  Stages that go at a time are a
 * turn. */
struct part {
    uint32_t stage, entry, src, dst;
    uint64_t bytes;
};

struct parts {
    struct part *part;
    size_t count, cap;
    /* of one pair, while its routes are read */
    uint64_t *bytes;          /* [entries] */
    uint32_t *touched, touch; /* entries that have some */
    uint32_t *stage;          /* [world] of a source */
};

static enum dyt_status flush_pair(struct parts *p, uint32_t src, uint32_t dst)
{
    if (p->count + p->touch > p->cap) {
        size_t cap = (p->count + p->touch) * 2;
        struct part *more = realloc(p->part, cap * sizeof(*more));

        if (more == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "%zu parts of entries", cap);
        }
        p->part = more;
        p->cap = cap;
    }
    for (uint32_t i = 0; i < p->touch; i++) {
        uint32_t entry = p->touched[i];

        p->part[p->count++] =
            (struct part){p->stage[src], entry, src, dst, p->bytes[entry]};
        p->bytes[entry] = 0;
    }
    p->touch = 0;
    return DYT_OK;
}

/* Everything that `rank` receives. */
static enum dyt_status read_rank(const struct made *m, uint32_t rank,
                                 struct parts *p)
{
    struct dyti_routes routes = {0};
    enum dyt_status st = dyti_traffic_routes(m->traffic, rank, &routes);

    for (size_t i = 0; i < routes.count && st == DYT_OK; i++) {
        const struct dyti_route *route = &routes.route[i];
        struct dyti_route_cursor cursor = {0};
        struct dyti_transfer t;

        if (route->dst_rank != rank || route->src_rank == rank) {
            continue;
        }
        while (dyti_route_next(m->traffic, route, &cursor, &t)) {
            uint32_t entry = entry_of(m->model, t.tensor);
            uint64_t elements = 0;

            st = dyt_box_count(&t.box, &elements);
            if (p->bytes[entry] == 0) {
                p->touched[p->touch++] = entry;
            }
            p->bytes[entry] +=
                elements * dyti_dtype_bytes((enum dyti_dtype)t.dst_dtype);
        }
        if (i + 1 == routes.count ||
            routes.route[i + 1].src_rank != route->src_rank ||
            routes.route[i + 1].dst_rank != rank) {
            st = st != DYT_OK ? st : flush_pair(p, route->src_rank, rank);
        }
    }
    dyti_routes_fini(&routes);
    return st;
}

static int compare(const uint32_t *a, const uint32_t *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (a[i] != b[i]) {
            return a[i] < b[i] ? -1 : 1;
        }
    }
    return 0;
}

static int by_stage(const void *a, const void *b)
{
    const struct part *x = a, *y = b;

    return compare((const uint32_t[]){x->stage, x->entry},
                   (const uint32_t[]){y->stage, y->entry}, 2);
}

static int by_turn(const void *a, const void *b)
{
    const struct part *x = a, *y = b;

    return compare(
        (const uint32_t[]){x->stage / STREAMS, x->entry, x->src, x->dst},
        (const uint32_t[]){y->stage / STREAMS, y->entry, y->src, y->dst}, 4);
}

/* The first entries of all stages of a turn, then the second ones, … */
static void sort_parts(struct parts *p)
{
    uint32_t nth = 0, last = 0;

    qsort(p->part, p->count, sizeof(*p->part), by_stage);
    for (size_t i = 0; i < p->count; i++) {
        struct part *x = &p->part[i];
        uint32_t entry = x->entry;

        if (i > 0 && x->stage != x[-1].stage) {
            nth = 0;
        } else if (i > 0 && entry != last) {
            nth++;
        }
        x->entry = nth * STREAMS + x->stage % STREAMS;
        last = entry;
    }
    qsort(p->part, p->count, sizeof(*p->part), by_turn);
}

static int by_round(const void *a, const void *b)
{
    const struct dyti_piece *x = a, *y = b;

    return x->round != y->round ? (x->round < y->round ? -1 : 1)
           : x->from != y->from ? (x->from < y->from ? -1 : 1)
                                : (x->to > y->to) - (x->to < y->to);
}

/* Pieces in order: of an entry every rank sends to one after the other of those
 * that want it, each beginning with another one, all at the same time.  Entries
 * of the stages of a turn take turns.  fence: where a turn begins. */
static enum dyt_status order_parts(const struct made *m, struct parts *p,
                                   struct dyti_pieces *out, size_t *fence,
                                   size_t *out_fences)
{
    uint32_t world = m->cluster.rank_count, base = 0;
    uint64_t *at = calloc((size_t)world * world, sizeof(*at));

    out->piece = calloc(p->count + 1, sizeof(*out->piece));
    if (at == NULL || out->piece == NULL) {
        free(at);
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu pieces", p->count);
    }
    sort_parts(p);
    for (size_t i = 0; i < p->count; i++) {
        const struct part *x = &p->part[i];
        uint64_t *lo = &at[(size_t)x->src * world + x->dst];
        bool turn = i > 0 && x->stage / STREAMS != x[-1].stage / STREAMS;

        if (i > 0 && (turn || x->entry != x[-1].entry)) {
            base += world;
        }
        if (turn) {
            fence[(*out_fences)++] = out->count;
        }
        out->piece[out->count++] = (struct dyti_piece){
            .src = x->src,
            .dst = x->dst,
            .from = x->src,
            .to = x->dst,
            .round = base + (x->dst + world - x->src) % world,
            .lo = *lo,
            .hi = *lo + x->bytes};
        *lo += x->bytes;
    }
    qsort(out->piece, out->count, sizeof(*out->piece), by_round);
    out->round_count = base + world;
    free(at);
    return DYT_OK;
}

static void name_stages(const struct made *m, uint32_t *stage)
{
    const struct dyti_layout *l = m->layout[0];

    for (uint32_t i = 0; i < l->member_count; i++) {
        struct dyti_part part;

        dyti_layout_part(l, i, &part);
        stage[l->desc.ranks[i]] = part.pp_rank;
    }
}

static enum dyt_status simulate_entries(const struct made *m,
                                        double *out_seconds)
{
    uint32_t world = m->cluster.rank_count, pp = m->layout[0]->desc.pp;
    size_t entries =
        m->model->tensor_count + (size_t)m->arch.layers * DYTI_SLOT_COUNT;
    struct parts p = {.bytes = calloc(entries, sizeof(*p.bytes)),
                      .touched = calloc(entries, sizeof(*p.touched)),
                      .stage = calloc(world, sizeof(*p.stage))};
    size_t *fence = calloc(pp + 1, sizeof(*fence));
    struct dyti_pieces pieces = {0};
    struct dyti_simulate_inputs sim = {
        .cluster = &m->cluster, .pieces = &pieces, .fence = fence};
    struct dyti_simulation result = {0};
    enum dyt_status st = DYT_OK;

    if (p.bytes == NULL || p.touched == NULL || p.stage == NULL ||
        fence == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu entries", entries);
    } else {
        name_stages(m, p.stage);
    }
    for (uint32_t r = 0; r < world && st == DYT_OK; r++) {
        st = read_rank(m, r, &p);
    }
    st = st != DYT_OK ? st
                      : order_parts(m, &p, &pieces, fence, &sim.fence_count);
    st = st != DYT_OK ? st : dyti_simulate(&sim, &result);
    if (st == DYT_OK) {
        *out_seconds = result.seconds;
    }
    dyti_simulation_fini(&result);
    dyti_pieces_fini(&pieces);
    free(p.part);
    free(p.bytes);
    free(p.touched);
    free(p.stage);
    free(fence);
    return st;
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
    printf(
        "\npublished times, not fitted to.  Assumed for all rows: clusters of "
        "configs/clusters (DGX H100: NIC 50 GB/s a GPU, 8 us a message, 12 "
        "us of latency; A800: NIC 25 GB/s).\nNeMo-RL: bf16, GPUs of their "
        "own, every replica its own copy; an entry for each parameter, the "
        "experts of a layer being one for each projection, one after the "
        "other, two pipeline stages at a time, as its guide describes.\n"
        "paper: a message for each tensor.\n%-22s %9s %10s %10s   %s\n",
        "", "bound", "their way", "optimal", "published");
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
                 : simulate(&m, &dyti_strategy_optimal, &optimal, &load);
        if (st == DYT_OK) {
            st = row->low_s > 0.0
                     ? simulate_entries(&m, &tensor)
                     : simulate(&m, &dyti_strategy_per_tensor, &tensor, &load);
        }
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
