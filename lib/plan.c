/* plan.h: what goes from whom to whom, counted. */
#include "explain/explain.h"
#include "lib/handles.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PARAMS_BYTES_0_1 16u
#define TOTALS_BYTES_0_1 56u

_Static_assert(sizeof(struct dyt_plan_params) >= PARAMS_BYTES_0_1 &&
                   sizeof(struct dyt_plan_figures) >= TOTALS_BYTES_0_1,
               "structs only grow");

/* ---- hosts --------------------------------------------------------------- */

/* The machine that `dynatrain plan` assumes where none is named. */
static const struct dyti_cluster assumed = {
    .name = "assumed (200 GB/s inside a host, NIC 25 GB/s each way)",
    .link = {{.bytes_per_s = 900e9},
             {.bytes_per_s = 200e9, .latency_s = 8e-6, .message_s = 6e-6},
             {.bytes_per_s = 25e9, .latency_s = 12e-6, .message_s = 8e-6}}};

/* "8" or "8+8+4": the host of each rank. */
static enum dyt_status read_hosts(const char *text, uint32_t *host,
                                  uint32_t world)
{
    const char *at = text;
    uint32_t rank = 0, which = 0;
    bool all_alike = strchr(text, '+') == NULL;

    while (rank < world) {
        char *end;
        unsigned long size;

        errno = 0;
        size = strtoul(at, &end, 10);
        if (errno != 0 || end == at || *at == '-' || size == 0 ||
            (*end != '+' && *end != '\0')) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "hosts \"%.60s\": ranks of each host, like \"8\" "
                             "or \"8+8+4\", %u in all",
                             text, world);
        }
        for (unsigned long i = 0; i < size && rank < world; i++) {
            host[rank++] = which;
        }
        which++;
        if (!all_alike && *end == '\0' && rank < world) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "hosts \"%.60s\" have %u ranks, the layouts have "
                             "%u",
                             text, rank, world);
        }
        at = all_alike ? at : end + (*end == '+');
    }
    return DYT_OK;
}

static enum dyt_status make_cluster(struct dyt_plan *plan, const char *hosts)
{
    const struct dyti_layout *dst = plan->to->layout;
    uint32_t world = dst->desc.world_size, count = 0;
    enum dyt_status st = DYT_OK;

    plan->host = calloc(world, sizeof(*plan->host));
    if (plan->host == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "hosts of %u ranks", world);
    }
    if (hosts != NULL) {
        st = read_hosts(hosts, plan->host, world);
    } else if (dst->desc.host != NULL) {
        memcpy(plan->host, dst->desc.host, world * sizeof(*plan->host));
    }
    for (uint32_t r = 0; r < world; r++) {
        count = plan->host[r] + 1 > count ? plan->host[r] + 1 : count;
    }
    plan->cluster = assumed;
    plan->cluster.rank_count = world;
    plan->cluster.host_count = count;
    plan->cluster.host = plan->host;
    return st;
}

/* ---- the whole ----------------------------------------------------------- */

static enum dyt_status fill(struct dyt_plan *plan, uint32_t kinds,
                            const char *hosts)
{
    const struct dyti_traffic_options options = {.cluster = &plan->cluster,
                                                 .fan_out = true};
    struct dyti_plan_inputs inputs;
    enum dyt_status st = dyti_plan_inputs_init(
        plan->from->layout, DYTI_ARENA_TRAIN, plan->to->layout,
        DYTI_ARENA_ROLLOUT, kinds == 0 ? DYTI_PLAN_KINDS_STATE : kinds,
        &inputs);

    st = st != DYT_OK ? st : make_cluster(plan, hosts);
    if (st == DYT_OK) {
        inputs.host = plan->host;
        inputs.fan_out = true;
        st = dyti_traffic_build(&inputs, &options, &plan->traffic);
    }
    return st;
}

enum dyt_status dyt_plan_build(const dyt_layout *from, const dyt_layout *to,
                               const struct dyt_plan_params *params,
                               dyt_plan **out_plan)
{
    dyt_plan *plan = NULL;
    enum dyt_status st = params == NULL ? DYT_OK
                                        : dyti_struct_check("dyt_plan_params",
                                                            params->struct_size,
                                                            PARAMS_BYTES_0_1);

    if (st == DYT_OK && (from == NULL || to == NULL || out_plan == NULL)) {
        st = dyti_null_argument("dyt_plan_build");
    }
    if (st != DYT_OK) {
        return st;
    }
    plan = calloc(1, sizeof(*plan));
    if (plan == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a plan");
    }
    plan->from = from;
    plan->to = to;
    st = fill(plan, params == NULL ? 0 : params->kinds,
              params == NULL ? NULL : params->hosts);
    if (st != DYT_OK) {
        dyt_plan_destroy(plan);
        return st;
    }
    *out_plan = plan;
    return DYT_OK;
}

void dyt_plan_destroy(dyt_plan *plan)
{
    if (plan != NULL) {
        dyti_traffic_destroy(plan->traffic);
        free(plan->host);
        free(plan);
    }
}

/* ---- figures ------------------------------------------------------------- */

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

enum dyt_status dyt_plan_totals(const dyt_plan *plan,
                                struct dyt_plan_figures *out)
{
    struct dyt_plan_figures whole = {0};
    const struct dyti_bound *in, *away;
    const struct dyti_traffic *t;
    enum dyt_status st;
    uint32_t size;

    if (plan == NULL || out == NULL) {
        return dyti_null_argument("dyt_plan_totals");
    }
    t = plan->traffic;
    in = &t->bounds.term[DYTI_TERM_RANK_IN];
    away = &t->bounds.term[DYTI_TERM_RANK_OUT];
    size = whole.struct_size = out->struct_size;
    whole.fingerprint = t->fingerprint;
    st = dyti_struct_check("dyt_plan_figures", size, TOTALS_BYTES_0_1);
    if (st != DYT_OK) {
        return st;
    }
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        whole.kept_bytes += t->sum[kind][DYTI_LINK_SELF].write_bytes;
        whole.host_bytes += t->sum[kind][DYTI_LINK_HOST].write_bytes;
        whole.network_bytes += t->sum[kind][DYTI_LINK_NIC].write_bytes;
    }
    whole.bound_bytes = most(in->bound_bytes, away->bound_bytes);
    whole.busiest_bytes = most(in->moved_bytes, away->moved_bytes);
    memcpy(out, &whole, size < sizeof(whole) ? size : sizeof(whole));
    return DYT_OK;
}

enum dyt_status dyt_plan_traffic(const dyt_plan *plan, uint64_t *out_bytes,
                                 size_t capacity)
{
    const struct dyti_traffic *t;
    size_t world;

    if (plan == NULL || out_bytes == NULL) {
        return dyti_null_argument("dyt_plan_traffic");
    }
    t = plan->traffic;
    world = t->world_size;
    if (capacity < world * world) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "room for %zu numbers; %zu ranks need %zu", capacity,
                         world, world * world);
    }
    memset(out_bytes, 0, world * world * sizeof(*out_bytes));
    for (size_t i = 0; i < t->pair_count; i++) {
        const struct dyti_traffic_pair *p = &t->pair[i];

        out_bytes[p->src_rank * world + p->dst_rank] += p->write_bytes;
    }
    return DYT_OK;
}

enum dyt_status dyt_plan_text(const dyt_plan *plan, char **out_text)
{
    struct dyti_text text;
    enum dyt_status st;

    if (plan == NULL || out_text == NULL) {
        return dyti_null_argument("dyt_plan_text");
    }
    st = dyti_text_open(&text);
    st = st != DYT_OK ? st : dyti_explain_traffic(plan->traffic, text.file);
    return dyti_text_finish(&text, st, out_text);
}
