/* The switches of a job, priced: layouts as the job says, a cluster from a
 * file. */
#include "cli/plan_price.h"

#include <errno.h>
#include <string.h>

const struct dyti_direction dyti_directions[DYTI_DIRECTIONS] = {
    {"train -> rollout", "to_rollout", DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT},
    {"rollout -> train", "to_train", DYTI_ARENA_ROLLOUT, DYTI_ARENA_TRAIN},
};

static enum dyt_status price(const struct dyti_assembly *a,
                             const struct dyti_direction *d, bool exact,
                             struct dyti_tell *tell,
                             struct dyti_job_prices *prices,
                             struct dyti_price **out)
{
    const struct dyti_price_params params = {.src = a->layout[d->from],
                                             .dst = a->layout[d->to],
                                             .src_slot = d->from,
                                             .dst_slot = d->to,
                                             .cluster = &prices->cluster,
                                             .pinned = true,
                                             .exact = exact,
                                             .stage = dyti_tell_stage,
                                             .stage_self = tell};
    enum dyt_status st = dyti_price_build(&params, out);

    if (st != DYT_OK) {
        DYTI_NOTE("the switch %s", d->name);
    }
    return st;
}

enum dyt_status dyti_job_prices_build(const struct dyti_loaded_job *loaded,
                                      const char *cluster, bool exact,
                                      struct dyti_tell *tell,
                                      struct dyti_job_prices *out)
{
    const struct dyti_assembly *a = &loaded->assembly;
    enum dyt_status st;

    memset(out, 0, sizeof(*out));
    st = dyti_cluster_file_open(cluster, a->world_size, &out->file);
    st = st != DYT_OK
             ? st
             : dyti_cluster_file_take(&out->file, a->world_size, &out->cluster);
    for (size_t i = 0; i < DYTI_DIRECTIONS && st == DYT_OK; i++) {
        st = price(a, &dyti_directions[i], exact, tell, out, &out->price[i]);
    }
    if (st != DYT_OK) {
        dyti_job_prices_fini(out);
    }
    return st;
}

void dyti_job_prices_fini(struct dyti_job_prices *prices)
{
    for (size_t i = 0; i < DYTI_DIRECTIONS; i++) {
        dyti_price_destroy(prices->price[i]);
    }
    dyti_cluster_file_fini(&prices->file);
    memset(prices, 0, sizeof(*prices));
}

/* ---- pages --------------------------------------------------------------- */

enum dyt_status dyti_price_page(const char *title,
                                const struct dyti_price *const *price,
                                const char *const *name, size_t count,
                                const char *path)
{
    FILE *page = fopen(path, "w");
    enum dyt_status st;

    if (page == NULL) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    st = dyti_price_html(title, price, name, count, page);
    if (fclose(page) != 0 && st == DYT_OK) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    if (st != DYT_OK) {
        DYTI_NOTE("writing %s", path);
    }
    return st;
}

enum dyt_status dyti_job_prices_page(const struct dyti_job_prices *prices,
                                     const char *title, const char *path)
{
    const struct dyti_price *price[DYTI_DIRECTIONS];
    const char *name[DYTI_DIRECTIONS];
    char text[DYTI_DIRECTIONS][512];

    for (size_t i = 0; i < DYTI_DIRECTIONS; i++) {
        (void)snprintf(text[i], sizeof(text[i]), "%s: %s", title,
                       dyti_directions[i].name);
        price[i] = prices->price[i];
        name[i] = text[i];
    }
    return dyti_price_page(title, price, name, DYTI_DIRECTIONS, path);
}
