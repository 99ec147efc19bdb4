/* dynatrain convert SRC DST: a model from one form to another, through memory
 * that has a bound. */
#include "cli/commands.h"
#include "cli/exit.h"
#include "cli/load_job.h"
#include "explain/words.h"
#include "format/model_convert.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct arguments {
    const char *path[2];
    int paths;
    const char *to;
    uint64_t memory_cap;
};

static const struct argp_option options[] = {
    {"to", 't', "SPEC", 0,
     "Form of the result: hf (default), checkpoint, or a layout", 0},
    {"memory-cap", 'm', "BYTES", 0,
     "Of buffers and mapped pages at once (default 1GiB)", 0},
    {0},
};

static void read_size(struct argp_state *state, const char *text,
                      uint64_t *out_bytes)
{
    static const char *const unit[] = {"", "KiB", "MiB", "GiB", "TiB"};
    unsigned long long value;
    char *end;

    errno = 0;
    value = strtoull(text, &end, 10);
    for (unsigned i = 0; errno == 0 && end != text && *text != '-' && i < 5;
         i++) {
        if (strcmp(end, unit[i]) == 0 && value <= UINT64_MAX >> (10 * i)) {
            *out_bytes = (uint64_t)value << (10 * i);
            return;
        }
    }
    argp_error(state, "--memory-cap is a size like 512MiB, not \"%s\"", text);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;

    switch (key) {
    case 't':
        a->to = arg;
        return 0;
    case 'm':
        read_size(state, arg, &a->memory_cap);
        return 0;
    case ARGP_KEY_ARG:
        if (a->paths == 2) {
            argp_error(state, "SRC and DST, not also \"%s\"", arg);
        }
        a->path[a->paths++] = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    options,
    parse,
    "SRC DST",
    "Converts a model, with its optimizer state where it has one, between "
    "Hugging Face directories, checkpoints of runs, and sharded directories "
    "of each dialect: one safetensors file per rank, and a manifest.\v"
    "Everything is read back and its hashes compared before DST is there; a "
    "conversion that was killed is gone on with by the same command.\n"
    "`dynatrain layout --help` says how a layout is written.\n\n"
    "Examples:\n"
    "  dynatrain convert build/models/tiny /tmp/tiny-vllm --to vllm:tp=2\n"
    "  dynatrain convert runs/a/checkpoints/step-00000020 /tmp/m \\\n"
    "      --to megatron:tp=2,pp=2,dp=2,zero=1\n"
    "  dynatrain convert /tmp/m /tmp/z --to zero3:dp=4 --memory-cap 256MiB\n"
    "  dynatrain convert /tmp/z /tmp/again\n",
    NULL,
    NULL,
    NULL};

/* ---- progress ------------------------------------------------------------ */

struct teller {
    bool terminal;
    const char *what;
    uint64_t last; /* percent that was told */
};

/* On a terminal one line that is written over, else one line every tenth. */
static void tell(void *self, const char *what, uint64_t done, uint64_t total)
{
    struct teller *t = self;
    uint64_t percent = total == 0 ? 100 : done * 100 / total;
    bool news = t->what == NULL || strcmp(t->what, what) != 0;

    if (!news &&
        percent / (t->terminal ? 1 : 10) == t->last / (t->terminal ? 1 : 10)) {
        return;
    }
    if (t->terminal) {
        fprintf(stderr, "%s%s %3llu %% of %s",
                news && t->what != NULL ? "\n" : "\r", what,
                (unsigned long long)percent, dyti_words_bytes(total).text);
    } else {
        fprintf(stderr, "%s %llu %% of %s\n", what, (unsigned long long)percent,
                dyti_words_bytes(total).text);
    }
    t->what = what;
    t->last = percent;
}

/* ---- the command --------------------------------------------------------- */

static enum dyt_status read_form(const char *to, struct dyti_layout_spec *spec,
                                 enum dyti_convert_form *out_form)
{
    enum dyt_status st;

    if (strcmp(to, "checkpoint") == 0) {
        *out_form = DYTI_CONVERT_CHECKPOINT;
        return DYT_OK;
    }
    st = dyti_layout_spec_read(to, spec);
    if (st == DYT_OK) {
        *out_form =
            spec->desc.dialect == DYTI_DIALECT_HF && spec->desc.world_size == 1
                ? DYTI_CONVERT_HF
                : DYTI_CONVERT_SHARDS;
    }
    return st;
}

static void say(const struct arguments *a, const struct dyti_convert_report *r)
{
    const char *comma = "";

    printf("%s: ", a->path[1]);
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        if ((r->kinds >> kind & 1u) != 0) {
            printf("%s%s", comma, dyti_kind_name((enum dyti_kind)kind));
            comma = ", ";
        }
    }
    printf("; %u file%s, %s written", r->files, r->files == 1 ? "" : "s",
           dyti_words_bytes(r->bytes).text);
    if (r->taken > 0) {
        printf(", %u taken over from a conversion that was stopped", r->taken);
    }
    printf("; hashes are %s\n", r->checked ? "those of the source's manifest"
                                           : "those of the source");
}

int dyti_cmd_convert(int argc, char **argv)
{
    struct arguments a = {.to = "hf", .memory_cap = 1u << 30};
    struct dyti_layout_spec spec = {0};
    struct teller teller = {.terminal = isatty(STDERR_FILENO) == 1};
    struct dyti_convert_desc d = {.progress = tell, .progress_self = &teller};
    struct dyti_convert_report report;
    char *from = NULL;
    enum dyt_status st;

    argp_err_exit_status = DYTI_EXIT_CALLER;
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (a.paths != 2) {
        fprintf(stderr, "dynatrain convert: SRC DST; --help says more\n");
        return DYTI_EXIT_CALLER;
    }
    st = read_form(a.to, &spec, &d.form);
    st = st != DYT_OK ? st : dyti_find_model(a.path[0], &from);
    if (st == DYT_OK) {
        d.from = from;
        d.to = a.path[1];
        d.spec = spec.shown == NULL ? NULL : &spec;
        d.memory_cap = a.memory_cap;
        st = dyti_model_convert(&d, &report);
    }
    if (teller.terminal && teller.what != NULL) {
        fputc('\n', stderr);
    }
    dyti_layout_spec_fini(&spec);
    free(from);
    if (st != DYT_OK) {
        return dyti_exit_fail("convert", st);
    }
    say(&a, &report);
    return DYTI_EXIT_OK;
}
