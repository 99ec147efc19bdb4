/* dynatrain model init | info */
#include "cli/commands.h"
#include "cli/exit.h"
#include "cli/load_job.h"
#include "explain/explain.h"
#include "format/checkpoint.h"
#include "format/file.h"
#include "format/hf_config.h"
#include "format/model_init.h"
#include "format/weights.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct arguments {
    const char *word[2];
    int words;
    const char *preset, *out;
    uint64_t seed;
    bool force, json;
};

static const struct argp_option options[] = {
    {"preset", 'p', "NAME", 0, "init: which size (default tiny)", 0},
    {"out", 'o', "DIR", 0, "init: where to", 0},
    {"seed", 's', "N", 0, "init: of the random weights (default 1)", 0},
    {"force", 'f', NULL, 0, "init: overwrite a model that is there", 0},
    {"json", 'j', NULL, 0, "info: as JSON", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;
    char *end;

    switch (key) {
    case 'p':
        a->preset = arg;
        return 0;
    case 'o':
        a->out = arg;
        return 0;
    case 's':
        errno = 0;
        a->seed = strtoull(arg, &end, 10);
        if (errno != 0 || *arg == '-' || end == arg || *end != '\0') {
            argp_error(state, "--seed is a whole number, not \"%s\"", arg);
        }
        return 0;
    case 'f':
        a->force = true;
        return 0;
    case 'j':
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->words == 2) {
            argp_error(state, "too many words at \"%s\"", arg);
        }
        a->word[a->words++] = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    options,
    parse,
    "init --out DIR\ninfo MODEL",
    "Makes a model with random weights, or says what a model is; a "
    "checkpoint's "
    "files are compared with what was written.\v"
    "Examples:\n"
    "  dynatrain model init --preset tiny --out build/models/tiny\n"
    "  dynatrain model info smollm2-135m-instruct\n",
    NULL,
    NULL,
    NULL};

static void list_presets(void)
{
    const struct dyti_model_preset *p;

    fprintf(stderr, "presets:\n");
    for (size_t i = 0; (p = dyti_model_preset_at(i)) != NULL; i++) {
        fprintf(stderr, "  %-12s %s\n", p->name, p->summary);
    }
}

static int init(const struct arguments *a)
{
    const struct dyti_model_preset *preset;
    enum dyt_status st;

    if (a->out == NULL) {
        fprintf(stderr, "dynatrain model init: where to? --out DIR\n");
        list_presets();
        return DYTI_EXIT_CALLER;
    }
    st = dyti_model_preset_find(a->preset, &preset);
    st = st != DYT_OK ? st : dyti_dirs_make(a->out);
    st = st != DYT_OK ? st : dyti_model_init(a->out, preset, a->seed, a->force);
    if (st != DYT_OK) {
        return dyti_exit_fail("model init", st);
    }
    printf("%s: preset %s, seed %llu\n", a->out, preset->name,
           (unsigned long long)a->seed);
    return DYTI_EXIT_OK;
}

static enum dyt_status show(const struct dyti_model *model, bool as_json)
{
    struct dyti_json json;
    const char *text;
    size_t bytes;
    enum dyt_status st;

    if (!as_json) {
        return dyti_explain_model(model, stdout);
    }
    dyti_json_init(&json, 2);
    dyti_explain_model_json(model, &json, NULL);
    st = dyti_json_finish(&json, &text, &bytes);
    if (st == DYT_OK) {
        fwrite(text, 1, bytes, stdout);
    }
    dyti_json_release(&json);
    return st;
}

static int info(const struct arguments *a)
{
    struct dyti_arch arch;
    struct dyti_model *model = NULL;
    struct dyti_safetensors *set = NULL;
    char *dir = NULL;
    enum dyt_status st = dyti_find_model(a->word[1], &dir);

    st = st != DYT_OK ? st : dyti_hf_config_read(dir, &arch);
    st = st != DYT_OK ? st : dyti_model_build(&arch, &model);
    st = st != DYT_OK ? st : dyti_safetensors_open(dir, &set);
    st = st != DYT_OK ? st : dyti_weights_check(set, model);
    st = st != DYT_OK ? st : dyti_checkpoint_verify_model(dir);
    st = dyti_exit_given(st);
    st = st != DYT_OK ? st : show(model, a->json);
    dyti_safetensors_close(set);
    dyti_model_destroy(model);
    free(dir);
    return st == DYT_OK ? DYTI_EXIT_OK : dyti_exit_fail("model info", st);
}

int dyti_cmd_model(int argc, char **argv)
{
    struct arguments a = {.preset = "tiny", .seed = 1};

    argp_err_exit_status = DYTI_EXIT_CALLER;
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (a.words == 1 && strcmp(a.word[0], "init") == 0) {
        return init(&a);
    }
    if (a.words == 2 && strcmp(a.word[0], "info") == 0) {
        return info(&a);
    }
    fprintf(stderr, "dynatrain model: `model init --out DIR` or `model info "
                    "MODEL`; --help says more\n");
    return DYTI_EXIT_CALLER;
}
