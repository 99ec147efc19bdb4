/* Adds up stretches by link, and finds the busiest. */
#include "plan/loads.h"

#include <stdlib.h>

enum dyt_status dyti_loads_init(struct dyti_loads *loads,
                                const struct dyti_common *atoms,
                                const struct dyti_cluster *cluster)
{
    *loads = (struct dyti_loads){.atoms = atoms, .cluster = cluster};
    loads->rank = calloc((size_t)atoms->world_size + 1, sizeof(*loads->rank));
    loads->host_in = calloc((size_t)atoms->host_count + 1, sizeof(uint64_t));
    loads->host_out = calloc((size_t)atoms->host_count + 1, sizeof(uint64_t));
    if (loads->rank == NULL || loads->host_in == NULL ||
        loads->host_out == NULL) {
        dyti_loads_fini(loads);
        return DYTI_FAIL(DYT_ERR_NOMEM, "loads of %u ranks", atoms->world_size);
    }
    return DYT_OK;
}

void dyti_loads_fini(struct dyti_loads *loads)
{
    free(loads->rank);
    free(loads->host_in);
    free(loads->host_out);
    *loads = (struct dyti_loads){0};
}

void dyti_loads_add(struct dyti_loads *loads, const struct dyti_stretch *s)
{
    const struct dyti_common *atoms = loads->atoms;
    const struct dyti_want_group *g =
        &atoms->group[atoms->class[s->class].group];
    uint64_t elements = s->hi - s->lo, bytes = elements * g->write_all;

    loads->rank[s->dst].memory += bytes;
    loads->rank[s->src].memory += s->wave == 0 ? elements * g->read_all : bytes;
    loads->rank[s->dst].in[s->link] += bytes;
    loads->rank[s->src].out[s->link] += bytes;
    if (s->link == DYTI_LINK_NIC) {
        uint32_t from = atoms->host[s->src], to = atoms->host[s->dst];
        uint32_t half = atoms->host_count / 2;

        loads->host_out[from] += bytes;
        loads->host_in[to] += bytes;
        if ((from < half) != (to < half)) {
            loads->cut[from < half ? 0 : 1] += bytes;
        }
    }
}

static void take(struct dyti_bounds *b, enum dyti_term term, uint64_t bytes,
                 uint32_t at)
{
    if (bytes > b->term[term].moved_bytes) {
        b->term[term].moved_bytes = bytes;
        b->term[term].moved_at = at;
    }
}

void dyti_loads_into(const struct dyti_loads *loads, struct dyti_bounds *bounds)
{
    for (uint32_t r = 0; r < loads->atoms->world_size; r++) {
        const struct dyti_rank_load *l = &loads->rank[r];

        take(bounds, DYTI_TERM_RANK_IN,
             l->in[DYTI_LINK_HOST] + l->in[DYTI_LINK_NIC], r);
        take(bounds, DYTI_TERM_RANK_OUT,
             l->out[DYTI_LINK_HOST] + l->out[DYTI_LINK_NIC], r);
        take(bounds, DYTI_TERM_NIC_IN, l->in[DYTI_LINK_NIC], r);
        take(bounds, DYTI_TERM_NIC_OUT, l->out[DYTI_LINK_NIC], r);
        take(bounds, DYTI_TERM_MEMORY, l->memory, r);
    }
    for (uint32_t h = 0; h < loads->atoms->host_count; h++) {
        take(bounds, DYTI_TERM_HOST_IN, loads->host_in[h], h);
        take(bounds, DYTI_TERM_HOST_OUT, loads->host_out[h], h);
    }
    take(bounds, DYTI_TERM_CUT, loads->cut[0], 0);
    take(bounds, DYTI_TERM_CUT, loads->cut[1], 1);
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

double dyti_loads_seconds(const struct dyti_loads *loads)
{
    const struct dyti_cluster *c = loads->cluster;
    double most = 0;

    for (uint32_t r = 0; r < loads->atoms->world_size; r++) {
        for (int k = DYTI_LINK_HOST; k < DYTI_LINK_CLASS_COUNT; k++) {
            const struct dyti_rank_load *l = &loads->rank[r];

            if (c->link[k].bytes_per_s > 0) {
                most = larger(most, (double)l->in[k] / c->link[k].bytes_per_s);
                most = larger(most, (double)l->out[k] / c->link[k].bytes_per_s);
            }
        }
    }
    for (uint32_t h = 0;
         c->host_nic_bytes_per_s > 0 && h < loads->atoms->host_count; h++) {
        most =
            larger(most, (double)loads->host_in[h] / c->host_nic_bytes_per_s);
        most =
            larger(most, (double)loads->host_out[h] / c->host_nic_bytes_per_s);
    }
    for (int k = 0; c->core_bytes_per_s > 0 && k < 2; k++) {
        most = larger(most, (double)loads->cut[k] / c->core_bytes_per_s);
    }
    return most;
}
