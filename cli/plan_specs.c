/* Two layouts by their specs, a model by its config.json, a cluster by its
 * file: priced, printed, drawn. */
#include "cli/plan_specs.h"

#include "cli/exit.h"
#include "cli/find_arch.h"
#include "cli/plan_price.h"
#include "cli/tell.h"
#include "format/spec_pair.h"

/* Everything that has to be given back. */
struct work {
    struct dyti_spec_pair pair;
    struct dyti_price *price;
};

static enum dyt_status prepare(struct work *w, const struct dyti_plan_specs *p)
{
    struct dyti_arch arch;
    const struct dyti_spec_pair_params params = {.arch = &arch,
                                                 .from = p->from,
                                                 .to = p->to,
                                                 .from_name = "--from",
                                                 .to_name = "--to",
                                                 .cluster = p->cluster};
    enum dyt_status st = dyti_find_arch(p->model, &arch);

    return st != DYT_OK ? st : dyti_spec_pair_open(&params, &w->pair);
}

static enum dyt_status price(struct work *w, const struct dyti_plan_specs *p,
                             struct dyti_tell *tell)
{
    const struct dyti_price_params params = {.src = w->pair.src,
                                             .dst = w->pair.dst,
                                             .src_slot = DYTI_ARENA_TRAIN,
                                             .dst_slot = DYTI_ARENA_ROLLOUT,
                                             .cluster = &w->pair.cluster,
                                             .pinned = p->pinned ||
                                                       w->pair.to.ranks != NULL,
                                             .exact = p->exact,
                                             .stage = dyti_tell_stage,
                                             .stage_self = tell};

    return dyti_price_build(&params, &w->price);
}

/* ---- what comes out ------------------------------------------------------ */

static enum dyt_status write_page(const struct work *w,
                                  const struct dyti_plan_specs *p)
{
    const struct dyti_price *price = w->price;
    char title[512];
    const char *name = title;

    (void)snprintf(title, sizeof(title), "%s: %s to %s", p->model, p->from,
                   p->to);
    return dyti_price_page(title, &price, &name, 1, p->html);
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
    struct work w = {.price = NULL};
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
    dyti_price_destroy(w.price);
    dyti_spec_pair_fini(&w.pair);
    return st;
}
