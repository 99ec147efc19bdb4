/* What a layout spec does not say: degrees that the dialect gives, the size of
 * the world, hosts; and whether what it says fits together. */
#include "layout/spec_internal.h"

#include "base/banned.h"

#include <stdlib.h>

/* Each host's ranks, in order: one size for all, or one size each. */
static enum dyt_status spread_hosts(struct dyti_spec_reader *r)
{
    struct dyti_layout_desc *d = &r->spec->desc;
    uint32_t *host, at = 0, which = 0;

    for (uint32_t i = 0; i < r->host_count; i++) {
        if (r->host_size[i] == 0) {
            return DYTI_FAIL(DYT_ERR_CONFIG, "%shosts: a host without ranks",
                             r->where);
        }
    }
    host = malloc(d->world_size * sizeof(*host));
    if (host == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "hosts of %u ranks", d->world_size);
    }
    while (at < d->world_size) {
        uint32_t size = r->host_count == 1      ? r->host_size[0]
                        : which < r->host_count ? r->host_size[which]
                                                : 0;

        if (size == 0) {
            free(host);
            return DYTI_FAIL(DYT_ERR_CONFIG,
                             "%shosts have %u ranks, the world has %u",
                             r->where, at, d->world_size);
        }
        for (uint32_t i = 0; i < size && at < d->world_size; i++) {
            host[at++] = which;
        }
        which++;
    }
    r->spec->host = host;
    d->host = host;
    return DYT_OK;
}

static enum dyt_status check_counts(const struct dyti_spec_reader *r,
                                    uint64_t members)
{
    const struct dyti_layout_desc *d = &r->spec->desc;

    if (r->rank_count > 0 && r->rank_count != members) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%sranks has %u entries, tp %u x cp %u x dp %u x pp "
                         "%u are %llu",
                         r->where, r->rank_count, d->tp, d->cp, d->dp, d->pp,
                         (unsigned long long)members);
    }
    if (r->layer_count > 0 && r->layer_count != (uint64_t)d->pp * d->vpp) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%spp_layers has %u entries, pp %u x vpp %u stages "
                         "need one each",
                         r->where, r->layer_count, d->pp, d->vpp);
    }
    if (r->slot_rows > 0 && r->slot_rows != d->ep) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%sexperts has %u rows, ep %u ranks need one each",
                         r->where, r->slot_rows, d->ep);
    }
    return DYT_OK;
}

static void fill_degrees(struct dyti_spec_reader *r)
{
    struct dyti_layout_desc *d = &r->spec->desc;
    uint32_t *const one[] = {&d->tp, &d->pp,  &d->dp, &d->cp,
                             &d->ep, &d->etp, &d->vpp};

    r->spec->etp_given = d->etp > 0;
    for (size_t i = 0; i < sizeof(one) / sizeof(one[0]); i++) {
        *one[i] = *one[i] == 0 ? 1 : *one[i];
    }
    if (!r->zero_given) {
        d->zero = d->dialect == DYTI_DIALECT_ZERO12 ? 1
                  : d->dialect == DYTI_DIALECT_ZERO3 ||
                          d->dialect == DYTI_DIALECT_FSDP2
                      ? 3
                      : 0;
    }
}

/* The dialects that always cut cannot be told not to: the description's 0 means
 * "as the dialect does". */
static enum dyt_status check_zero(const struct dyti_spec_reader *r)
{
    enum dyti_dialect dialect = r->spec->desc.dialect;
    bool cuts = dialect == DYTI_DIALECT_ZERO12 ||
                dialect == DYTI_DIALECT_ZERO3 || dialect == DYTI_DIALECT_FSDP2;

    if (cuts && r->spec->desc.zero == 0) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%szero is 0: this dialect cuts; the nearest is zero "
                         "%d",
                         r->where, dialect == DYTI_DIALECT_ZERO12 ? 1 : 3);
    }
    return DYT_OK;
}

enum dyt_status dyti_spec_finish(struct dyti_spec_reader *r)
{
    struct dyti_layout_spec *spec = r->spec;
    struct dyti_layout_desc *d = &spec->desc;
    uint64_t members, world = 0;
    enum dyt_status st;

    fill_degrees(r);
    members = (uint64_t)d->tp * d->cp;
    members = members > DYTI_SPEC_MOST_RANKS ? DYTI_SPEC_MOST_RANKS + 1ull
                                             : members * d->dp;
    members = members > DYTI_SPEC_MOST_RANKS ? DYTI_SPEC_MOST_RANKS + 1ull
                                             : members * d->pp;
    if (members > DYTI_SPEC_MOST_RANKS) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "%smore than %u ranks", r->where,
                         DYTI_SPEC_MOST_RANKS);
    }
    st = check_zero(r);
    st = st != DYT_OK ? st : check_counts(r, members);
    if (st != DYT_OK) {
        return st;
    }
    d->ranks = spec->ranks;
    d->pp_layers = spec->pp_layers;
    d->expert_slot = spec->expert_slot;
    for (uint32_t i = 0; i < r->rank_count; i++) {
        world = spec->ranks[i] + 1ull > world ? spec->ranks[i] + 1ull : world;
    }
    world = world > members ? world : members;
    if (d->world_size == 0 && r->host_count > 1) {
        uint64_t all = 0;

        for (uint32_t i = 0; i < r->host_count; i++) {
            all += r->host_size[i];
        }
        world = all > world ? all : world;
    }
    if (world > DYTI_SPEC_MOST_RANKS) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "%sa world of %llu ranks: at most %u",
                         r->where, (unsigned long long)world,
                         DYTI_SPEC_MOST_RANKS);
    }
    if (d->world_size == 0) {
        d->world_size = (uint32_t)world;
    }
    return r->host_count > 0 ? spread_hosts(r) : DYT_OK;
}
