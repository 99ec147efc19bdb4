/* Two layouts by their specs, a model by its config.json, a cluster by its
 * file: priced, printed, drawn. */
#include "cli/plan_specs.h"

#include "cli/exit.h"
#include "cli/find_arch.h"
#include "cli/tell.h"
#include "explain/price.h"
#include "format/cluster_file.h"
#include "format/layout_spec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_PER_HOST 8u
#define MOST_RANKS     16384u /* every pair of them may have something to say */

/* Everything that has to be given back. */
struct work {
    struct dyti_layout_spec from, to;
    struct dyti_model *model;
    struct dyti_layout *src, *dst;
    struct dyti_cluster_file file;
    struct dyti_cluster cluster;
    uint32_t *host; /* of the built-in cluster */
    struct dyti_price *price;
};

static void release(struct work *w)
{
    dyti_price_destroy(w->price);
    dyti_layout_destroy(w->src);
    dyti_layout_destroy(w->dst);
    dyti_model_destroy(w->model);
    dyti_layout_spec_fini(&w->from);
    dyti_layout_spec_fini(&w->to);
    dyti_cluster_file_fini(&w->file);
    free(w->host);
}

/* Both phases are of one world: the larger. */
static uint32_t join_worlds(struct work *w)
{
    struct dyti_layout_desc *a = &w->from.desc, *b = &w->to.desc;
    uint32_t world =
        a->world_size > b->world_size ? a->world_size : b->world_size;

    a->world_size = b->world_size = world;
    a->phase = "from";
    b->phase = "to";
    a->lazy = b->lazy = true; /* a price asks for no views */
    return world;
}

static enum dyt_status read_specs(struct work *w,
                                  const struct dyti_plan_specs *p)
{
    struct dyti_arch arch;
    enum dyt_status st = dyti_layout_spec_read(p->from, &w->from);

    if (st != DYT_OK) {
        DYTI_NOTE("reading --from");
        return st;
    }
    st = dyti_layout_spec_read(p->to, &w->to);
    if (st != DYT_OK) {
        DYTI_NOTE("reading --to");
        return st;
    }
    st = dyti_find_arch(p->model, &arch);
    st = st != DYT_OK ? st : dyti_model_build(&arch, &w->model);
    if (st == DYT_OK) {
        dyti_layout_spec_use_model(&w->from, &arch);
        dyti_layout_spec_use_model(&w->to, &arch);
    }
    return st;
}

/* Hosts of eight, NVLink of 200 GB/s and a NIC of 25 GB/s each way: the machine
 * that is assumed where none is named. */
static enum dyt_status assume_cluster(struct work *w, uint32_t world)
{
    const struct dyti_cluster c = {
        .name = "assumed (hosts of 8, NVLink 200 GB/s, NIC 25 GB/s each way)",
        .rank_count = world,
        .host_count = (world + RANKS_PER_HOST - 1) / RANKS_PER_HOST,
        .link = {{.bytes_per_s = 900e9},
                 {.bytes_per_s = 200e9, .latency_s = 8e-6, .message_s = 6e-6},
                 {.bytes_per_s = 25e9, .latency_s = 12e-6, .message_s = 8e-6}}};

    w->host = malloc(world * sizeof(*w->host));
    if (w->host == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u ranks", world);
    }
    for (uint32_t r = 0; r < world; r++) {
        w->host[r] = r / RANKS_PER_HOST;
    }
    w->cluster = c;
    w->cluster.host = w->host;
    return DYT_OK;
}

static enum dyt_status prepare(struct work *w, const struct dyti_plan_specs *p)
{
    enum dyt_status st = read_specs(w, p);
    uint32_t world;

    if (st != DYT_OK) {
        return st;
    }
    if (w->from.host != NULL || w->to.host != NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s says hosts: a plan takes hosts from --cluster "
                         "FILE; leave the key out",
                         w->from.host != NULL ? "--from" : "--to");
    }
    world = join_worlds(w);
    if (world > MOST_RANKS) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%u ranks: a plan prices at most %u; `dynatrain "
                         "layout` shows layouts of more",
                         world, MOST_RANKS);
    }
    if (p->cluster == NULL) {
        st = assume_cluster(w, world);
    } else {
        st = dyti_cluster_file_load(p->cluster, &w->file);
        st = st != DYT_OK
                 ? st
                 : dyti_cluster_file_take(&w->file, world, &w->cluster);
    }
    if (st == DYT_OK) {
        /* the cluster says which ranks share a host */
        w->from.desc.host = w->to.desc.host = w->cluster.host;
        st = dyti_layout_build(w->model, &w->from.desc, &w->src);
    }
    return st != DYT_OK ? st
                        : dyti_layout_build(w->model, &w->to.desc, &w->dst);
}

static enum dyt_status price(struct work *w, const struct dyti_plan_specs *p,
                             struct dyti_tell *tell)
{
    const struct dyti_price_params params = {.src = w->src,
                                             .dst = w->dst,
                                             .src_slot = DYTI_ARENA_TRAIN,
                                             .dst_slot = DYTI_ARENA_ROLLOUT,
                                             .cluster = &w->cluster,
                                             .pinned = p->pinned ||
                                                       w->to.ranks != NULL,
                                             .exact = p->exact,
                                             .stage = dyti_tell_stage,
                                             .stage_self = tell};

    return dyti_price_build(&params, &w->price);
}

/* ---- what comes out ------------------------------------------------------ */

static enum dyt_status write_page(const struct work *w,
                                  const struct dyti_plan_specs *p)
{
    char title[512];
    FILE *page = fopen(p->html, "w");
    enum dyt_status st;

    if (page == NULL) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", p->html, strerror(errno));
    }
    (void)snprintf(title, sizeof(title), "%s: %s to %s", p->model, p->from,
                   p->to);
    st = dyti_price_html(w->price, title, page);
    if (fclose(page) != 0 && st == DYT_OK) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: %s", p->html, strerror(errno));
    }
    return st;
}

static enum dyt_status print_json(const struct work *w,
                                  const struct dyti_plan_specs *p, FILE *out)
{
    struct dyti_json json;
    const char *text;
    size_t bytes;
    enum dyt_status st;

    dyti_json_init(&json, 2);
    dyti_price_json(w->price, p->pairs, &json, NULL);
    st = dyti_json_finish(&json, &text, &bytes);
    if (st == DYT_OK && fwrite(text, 1, bytes, out) != bytes) {
        st = DYTI_FAIL(DYT_ERR_IO, "cannot write the plan");
    }
    dyti_json_release(&json);
    return st;
}

enum dyt_status dyti_plan_specs(const struct dyti_plan_specs *params, FILE *out)
{
    struct work w = {0};
    struct dyti_tell tell;
    enum dyt_status st;

    dyti_tell_start(&tell, "plan");
    st = dyti_exit_given(prepare(&w, params));
    st = st != DYT_OK ? st : dyti_exit_given(price(&w, params, &tell));
    dyti_tell_stop(&tell);
    if (st == DYT_OK) {
        st = params->json ? print_json(&w, params, out)
                          : dyti_price_text(w.price, out);
    }
    if (st == DYT_OK && params->html != NULL) {
        st = write_page(&w, params);
    }
    release(&w);
    return st;
}
