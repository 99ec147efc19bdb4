/* Two layouts by their specs, a model by its description, a cluster by its
 * file: one world, whose hosts the cluster says. */
#include "format/spec_pair.h"

#include <stdlib.h>
#include <string.h>

static enum dyt_status read_spec(const char *text, const char *name,
                                 const struct dyti_arch *arch,
                                 struct dyti_layout_spec *out)
{
    enum dyt_status st = dyti_layout_spec_read(text, out);

    if (st != DYT_OK) {
        DYTI_NOTE("reading %s", name);
        return st;
    }
    if (out->host != NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s says hosts: a plan takes hosts from --cluster "
                         "FILE; leave the key out",
                         name);
    }
    dyti_layout_spec_use_model(out, arch);
    out->desc.lazy = true; /* neither price nor schedule asks for views */
    return DYT_OK;
}

/* Both phases are of one world: the larger. */
static enum dyt_status join_worlds(struct dyti_spec_pair *pair)
{
    struct dyti_layout_desc *a = &pair->from.desc, *b = &pair->to.desc;
    uint32_t world =
        a->world_size > b->world_size ? a->world_size : b->world_size;

    a->world_size = b->world_size = world;
    a->phase = "from";
    b->phase = "to";
    if (world > DYTI_SPEC_PAIR_RANKS) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%u ranks: a plan prices at most %u; `dynatrain "
                         "layout` shows layouts of more",
                         world, DYTI_SPEC_PAIR_RANKS);
    }
    return DYT_OK;
}

/* Hosts of `each` ranks for the whole world. */
static enum dyt_status make_hosts(struct dyti_spec_pair *pair, uint32_t world,
                                  uint32_t each)
{
    pair->host = malloc(world * sizeof(*pair->host));
    if (pair->host == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u ranks", world);
    }
    for (uint32_t r = 0; r < world; r++) {
        pair->host[r] = r / each;
    }
    pair->cluster.rank_count = world;
    pair->cluster.host_count = (world + each - 1) / each;
    pair->cluster.host = pair->host;
    return DYT_OK;
}

static enum dyt_status make_cluster(struct dyti_spec_pair *pair,
                                    const struct dyti_spec_pair_params *params,
                                    uint32_t world)
{
    uint32_t each = 0;
    enum dyt_status st =
        dyti_cluster_file_open(params->cluster, world, &pair->file);

    if (st != DYT_OK || !params->as_large) {
        return st != DYT_OK
                   ? st
                   : dyti_cluster_file_take(&pair->file, world, &pair->cluster);
    }
    pair->cluster = pair->file.cluster;
    while (each < pair->cluster.rank_count && pair->cluster.host[each] == 0) {
        each++;
    }
    return make_hosts(pair, world, each);
}

static enum dyt_status build(struct dyti_spec_pair *pair,
                             const struct dyti_spec_pair_params *params)
{
    const char *from_name =
        params->from_name != NULL ? params->from_name : "the first layout";
    const char *to_name =
        params->to_name != NULL ? params->to_name : "the second layout";
    enum dyt_status st =
        read_spec(params->from, from_name, params->arch, &pair->from);

    st = st != DYT_OK ? st
                      : read_spec(params->to, to_name, params->arch, &pair->to);
    st = st != DYT_OK ? st : join_worlds(pair);
    st = st != DYT_OK ? st : dyti_model_build(params->arch, &pair->model);
    st = st != DYT_OK ? st
                      : make_cluster(pair, params, pair->from.desc.world_size);
    /* the cluster says which ranks share a host */
    pair->from.desc.host = pair->to.desc.host = pair->cluster.host;
    st = st != DYT_OK
             ? st
             : dyti_layout_build(pair->model, &pair->from.desc, &pair->src);
    return st != DYT_OK
               ? st
               : dyti_layout_build(pair->model, &pair->to.desc, &pair->dst);
}

enum dyt_status dyti_spec_pair_open(const struct dyti_spec_pair_params *params,
                                    struct dyti_spec_pair *out_pair)
{
    struct dyti_spec_pair pair = {.file = {.host = NULL}};
    enum dyt_status st = build(&pair, params);

    if (st == DYT_OK) {
        *out_pair = pair;
    } else {
        dyti_spec_pair_fini(&pair);
    }
    return st;
}

void dyti_spec_pair_fini(struct dyti_spec_pair *pair)
{
    dyti_layout_destroy(pair->src);
    dyti_layout_destroy(pair->dst);
    dyti_model_destroy(pair->model);
    dyti_layout_spec_fini(&pair->from);
    dyti_layout_spec_fini(&pair->to);
    dyti_cluster_file_fini(&pair->file);
    free(pair->host);
    memset(pair, 0, sizeof(*pair));
}
