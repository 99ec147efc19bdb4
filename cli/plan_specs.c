/* Two layouts by their specs, a model by its config.json, a cluster by its
 * file: priced, printed, drawn. */
#include "cli/plan_specs.h"

#include "cli/exit.h"
#include "cli/find_arch.h"
#include "cli/plan_price.h"
#include "cli/tell.h"
#include "format/spec_pair.h"

#include <string.h>

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

/* "param,master" as bits; `out` stays 0 where none is asked for. */
static enum dyt_status read_kinds(const char *text, uint32_t *out)
{
    uint32_t kinds = 0;

    for (const char *at = text; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, ",");
        int k = 0;

        while (k < DYTI_KIND_COUNT &&
               (strlen(dyti_kind_name((enum dyti_kind)k)) != length ||
                strncmp(dyti_kind_name((enum dyti_kind)k), at, length) != 0)) {
            k++;
        }
        if (k == DYTI_KIND_COUNT) {
            return DYTI_FAIL(DYT_ERR_CONFIG,
                             "--kinds %s: there is no kind \"%.*s\": some of "
                             "param, grad, master, exp_avg, exp_avg_sq, extra, "
                             "with commas",
                             text, (int)length, at);
        }
        kinds |= 1u << k;
        at += length + (at[length] == ',');
    }
    if (text != NULL && kinds == 0) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "--kinds: name at least one");
    }
    *out = kinds;
    return DYT_OK;
}

/* A server has no optimizer: what a training layout wants of it must be said.
 */
static enum dyt_status check_kinds(const struct work *w, uint32_t kinds)
{
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        enum dyti_kind kind = (enum dyti_kind)k;
        bool wanted = kinds == 0 ? kind != DYTI_PARAM && kind != DYTI_GRAD
                                 : (kinds >> k & 1u) != 0;

        if (wanted && kinds != 0 && !dyti_layout_holds(w->pair.dst, kind)) {
            return DYTI_FAIL(DYT_ERR_CONFIG,
                             "--kinds: the layout of --to holds no %s",
                             dyti_kind_name(kind));
        }
        if (wanted && dyti_layout_holds(w->pair.dst, kind) &&
            w->pair.src->desc.residency[kind] == DYTI_DROPPED) {
            return DYTI_FAIL(DYT_ERR_CONFIG,
                             "--to holds %s, and --from has none: price the "
                             "weights alone with --kinds param, or say in "
                             "--from that it stays where it lies "
                             "(residency.%s=parked)",
                             dyti_kind_name(kind), dyti_kind_name(kind));
        }
    }
    return DYT_OK;
}

static enum dyt_status price(struct work *w, const struct dyti_plan_specs *p,
                             struct dyti_tell *tell)
{
    uint32_t kinds = 0;
    enum dyt_status st = read_kinds(p->kinds, &kinds);
    const struct dyti_price_params params = {.src = w->pair.src,
                                             .dst = w->pair.dst,
                                             .kinds = kinds,
                                             .src_slot = DYTI_ARENA_TRAIN,
                                             .dst_slot = DYTI_ARENA_ROLLOUT,
                                             .cluster = &w->pair.cluster,
                                             .pinned = p->pinned ||
                                                       w->pair.to.ranks != NULL,
                                             .exact = p->exact,
                                             .stage = dyti_tell_stage,
                                             .stage_self = tell};

    st = st != DYT_OK ? st : check_kinds(w, kinds);
    return st != DYT_OK ? st : dyti_price_build(&params, &w->price);
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
