/* dynatrain layout SPEC --model MODEL: which rank holds which elements of which
 * tensor, at which bytes. */
#include "cli/commands.h"
#include "cli/exit.h"
#include "cli/find_arch.h"
#include "cli/tell.h"
#include "explain/views.h"
#include "format/layout_spec.h"
#include "layout/dialect.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOLD_FROM  256u  /* ranks: fewer take no time */
#define MOST_DRAWN 4096u /* ranks in one drawing */

struct arguments {
    const char *spec, *model, *tensor, *svg;
    struct dyti_views_show show;
    bool json;
};

static const struct argp_option options[] = {
    {"model", 'm', "MODEL", 0,
     "Folder, config.json, model of the cache or preset", 0},
    {"rank", 'r', "R", 0, "One rank: its buffers, and what lies in them", 0},
    {"tensor", 't', "NAME", 0, "One tensor of the model, over the ranks", 0},
    {"kind", 'k', "KIND", 0,
     "param, grad, master, exp_avg, exp_avg_sq or extra", 0},
    {"json", 'j', NULL, 0, "One JSON document (docs/layout-schema.md)", 0},
    {"svg", 's', "FILE", 0, "Draw --tensor (of param, or of --kind)", 0},
    {0},
};

static void read_kind(struct argp_state *state, const char *name,
                      struct arguments *a)
{
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        if (strcmp(dyti_kind_name((enum dyti_kind)k), name) == 0) {
            a->show.kind = k;
            return;
        }
    }
    argp_error(state,
               "there is no kind \"%s\": one of param, grad, master, exp_avg, "
               "exp_avg_sq, extra",
               name);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;
    char *end;

    switch (key) {
    case 'm':
        a->model = arg;
        return 0;
    case 'r':
        errno = 0;
        a->show.rank = strtoll(arg, &end, 10);
        if (errno != 0 || end == arg || *end != '\0' || a->show.rank < 0) {
            argp_error(state, "--rank is a whole number, not \"%s\"", arg);
        }
        return 0;
    case 't':
        a->tensor = arg;
        return 0;
    case 'k':
        read_kind(state, arg, a);
        return 0;
    case 'j':
        a->json = true;
        return 0;
    case 's':
        a->svg = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (a->spec != NULL) {
            argp_error(state, "one layout, not also \"%s\"", arg);
        }
        a->spec = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    options,
    parse,
    "SPEC --model MODEL",
    "Says which rank holds which elements of which tensor, in which buffer of "
    "its framework, at which byte, with which strides.\v"
    "SPEC is DIALECT or DIALECT:KEY=VALUE,… or a TOML file with [layout].\n"
    "Dialects: native, hf, megatron, zero12, zero3, fsdp2, vllm.\n"
    "Keys: tp pp dp cp ep etp vpp zero order experts hosts world ranks "
    "pp_layers vocab_multiple bucket_multiple "
    "glu_interleave zero_order dtype.KIND residency.KIND; lists with +.\n\n"
    "Examples:\n"
    "  dynatrain layout vllm:tp=8 --model configs/models/llama2-70b\n"
    "  dynatrain layout megatron:tp=2,pp=2,dp=2,zero=1 -m tiny --rank 3\n"
    "  dynatrain layout fsdp2:dp=4 -m tiny -t model.embed_tokens.weight\n"
    "  dynatrain layout vllm:tp=4 -m tiny -t model.norm.weight --svg norm.svg\n"
    "  dynatrain layout zero3:dp=4 -m tiny --rank 0 --kind master --json\n",
    NULL,
    NULL,
    NULL};

static enum dyt_status check(struct arguments *a,
                             const struct dyti_model *model,
                             const struct dyti_layout *layout)
{
    if (a->show.rank >= (int64_t)layout->desc.world_size) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "--rank %lld: the world has ranks 0 to %u",
                         (long long)a->show.rank, layout->desc.world_size - 1);
    }
    if (a->show.kind >= 0 &&
        !dyti_layout_holds(layout, (enum dyti_kind)a->show.kind)) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "--kind %s: no rank of a %s layout holds it; without "
                         "--kind all that there is gets listed",
                         dyti_kind_name((enum dyti_kind)a->show.kind),
                         dyti_dialect_name(layout->desc.dialect));
    }
    if (a->svg != NULL && a->tensor == NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "--svg draws one tensor: give "
                                         "--tensor NAME");
    }
    if (a->svg != NULL && layout->desc.world_size > MOST_DRAWN) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "--svg: %u ranks are too many for a drawing, %u are "
                         "not; without it they are listed",
                         layout->desc.world_size, MOST_DRAWN);
    }
    if (a->tensor != NULL) {
        a->show.tensor = dyti_model_find_name(model, a->tensor);
        if (a->show.tensor == UINT32_MAX) {
            return DYTI_FAIL(DYT_ERR_CONFIG,
                             "the model has no tensor %s; `dynatrain layout "
                             "hf --model %s --rank 0` lists them",
                             a->tensor, a->model);
        }
    }
    return DYT_OK;
}

static enum dyt_status draw(const struct arguments *a,
                            const struct dyti_layout *layout)
{
    struct dyti_views_show show = a->show;
    FILE *out = fopen(a->svg, "we");
    enum dyt_status st;

    if (out == NULL) {
        return DYTI_FAIL(DYT_ERR_IO, "cannot write %s: %s", a->svg,
                         strerror(errno));
    }
    show.kind = show.kind < 0 ? DYTI_PARAM : show.kind;
    st = dyti_explain_tensor_svg(layout, &show, out);
    if (fclose(out) != 0 && st == DYT_OK) {
        st = DYTI_FAIL(DYT_ERR_IO, "cannot write %s: %s", a->svg,
                       strerror(errno));
    }
    return st;
}

static enum dyt_status print(const struct arguments *a,
                             const struct dyti_layout *layout)
{
    struct dyti_views_show show = a->show;
    struct dyti_json json;
    const char *text;
    size_t bytes;
    enum dyt_status st;

    if (a->svg != NULL) {
        return draw(a, layout);
    }
    if (!a->json) {
        return dyti_explain_views(layout, &a->show, stdout);
    }
    dyti_json_init(&json, 2);
    show.drain = stdout;
    st = dyti_explain_views_json(layout, &show, &json);
    st = st != DYT_OK ? st : dyti_json_finish(&json, &text, &bytes);
    if (st == DYT_OK && fwrite(text, 1, bytes, stdout) != bytes) {
        st = DYTI_FAIL(DYT_ERR_IO, "writing JSON: %s", strerror(errno));
    }
    dyti_json_release(&json);
    return st;
}

static enum dyt_status show_layout(struct arguments *a)
{
    struct dyti_layout_spec spec = {0};
    struct dyti_model *model = NULL;
    struct dyti_layout *layout = NULL;
    struct dyti_arch arch;
    char *line = NULL;
    struct dyti_tell tell = {0}; /* a terminal sees the ranks themselves */
    enum dyt_status st = dyti_layout_spec_read(a->spec, &spec);

    st = st != DYT_OK ? st : dyti_find_arch(a->model, &arch);
    st = dyti_exit_given(st);
    st = st != DYT_OK ? st : dyti_model_build(&arch, &model);
    if (st == DYT_OK) {
        dyti_layout_spec_use_model(&spec, &arch);
        spec.desc.phase = "shown";
        spec.desc.lazy = true;
        st = dyti_layout_build(model, &spec.desc, &layout);
    }
    st = st != DYT_OK ? st : check(a, model, layout);
    st = st != DYT_OK ? st : dyti_layout_spec_text(&spec.desc, &line);
    if (st == DYT_OK) {
        a->show.spec = line;
        if (layout->desc.world_size >= TOLD_FROM &&
            isatty(STDOUT_FILENO) != 1) {
            dyti_tell_start(&tell, "layout");
            dyti_tell_stage(&tell, "laying out");
        }
        st = print(a, layout);
        dyti_tell_stop(&tell);
    }
    free(line);
    dyti_layout_destroy(layout);
    dyti_model_destroy(model);
    dyti_layout_spec_fini(&spec);
    return st;
}

int dyti_cmd_layout(int argc, char **argv)
{
    struct arguments a = {
        .show = {.rank = -1, .tensor = UINT32_MAX, .kind = -1}};
    enum dyt_status st;

    argp_err_exit_status = DYTI_EXIT_CALLER;
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (a.spec == NULL || a.model == NULL) {
        fprintf(stderr, "dynatrain layout: SPEC --model MODEL; --help says "
                        "more\n");
        return DYTI_EXIT_CALLER;
    }
    st = show_layout(&a);
    return st == DYT_OK ? DYTI_EXIT_OK : dyti_exit_fail("layout", st);
}
