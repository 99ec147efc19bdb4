/* dynatrain generate MODEL PROMPT… */
#include "base/json_out.h"
#include "cli/backends.h"
#include "cli/commands.h"
#include "cli/exit.h"
#include "cli/load_job.h"
#include "cli/prompts.h"
#include "cli/solo.h"
#include "format/hf_config.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STOPS_MAX     16u
#define SEQUENCES_MAX 64u
#define TOKENS        128

struct arguments {
    char **word; /* [words], the model first */
    int words;
    bool json;
    struct dyti_prompt_source source;
    struct dyti_sampling sampling;
    char *stop[STOPS_MAX];
    uint32_t samples, threads;
    uint64_t seed;
    enum dyti_dtype dtype;
};

enum { KEY_TOP_K = 256, KEY_TOP_P, KEY_MIN_P, KEY_IGNORE_EOS, KEY_TEMPLATE };

static const struct argp_option options[] = {
    {"chat", 'c', NULL, 0,
     "The prompt is a user's message: use the model's "
     "chat template",
     0},
    {"system", 'S', "TEXT", 0, "With --chat: a system message before it", 0},
    {"chat-template", KEY_TEMPLATE, "NAME", 0,
     "With --chat: this template in place of the model's own", 0},
    {"jsonl", 'l', "FILE", 0,
     "Prompts from rows with `prompt` or `messages` (- : standard input)", 0},
    {"tokens", 'n', "N", 0,
     "At most N tokens (default 128, or what the model has room for)", 0},
    {"temperature", 't', "T", 0, "0: the most likely token (default 0)", 0},
    {"top-k", KEY_TOP_K, "K", 0, "Only the K most likely tokens", 0},
    {"top-p", KEY_TOP_P, "P", 0, "Only the most likely tokens that make up P",
     0},
    {"min-p", KEY_MIN_P, "P", 0,
     "Only tokens at least P times as likely as the best", 0},
    {"ignore-eos", KEY_IGNORE_EOS, NULL, 0, "Do not end at an EOS token", 0},
    {"stop", 'x', "TEXT", 0, "End when this text appears; may be given often",
     0},
    {"samples", 'k', "N", 0, "N answers to each prompt (default 1)", 0},
    {"seed", 's', "N", 0, "Of the random numbers (default 1)", 0},
    {"dtype", 'd', "f32|bf16", 0, "Of weights and KV cache (default f32)", 0},
    {"threads", 'j', "N", 0, "Default: all cores", 0},
    {"json", 'J', NULL, 0, "One JSON object an answer", 0},
    {0},
};

static double real(struct argp_state *state, const char *name, const char *arg,
                   double low, double high)
{
    char *end;
    double x;

    errno = 0;
    x = strtod(arg, &end);
    if (errno != 0 || end == arg || *end != '\0' || !(x >= low && x <= high)) {
        argp_error(state, "%s is a number from %g to %g, not \"%s\"", name, low,
                   high, arg);
    }
    return x;
}

static uint32_t count(struct argp_state *state, const char *name,
                      const char *arg, uint32_t low)
{
    char *end;
    unsigned long x;

    errno = 0;
    x = strtoul(arg, &end, 10);
    if (errno != 0 || *arg == '-' || end == arg || *end != '\0' || x < low ||
        x > 1000000) {
        argp_error(state, "%s is a whole number from %u to 1000000, not \"%s\"",
                   name, low, arg);
    }
    return (uint32_t)x;
}

static uint64_t seed(struct argp_state *state, const char *arg)
{
    char *end;
    unsigned long long x;

    errno = 0;
    x = strtoull(arg, &end, 10);
    if (errno != 0 || *arg == '-' || end == arg || *end != '\0') {
        argp_error(state, "--seed is a whole number of 64 bits, not \"%s\"",
                   arg);
    }
    return x;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;
    struct dyti_sampling *s = &a->sampling;

    switch (key) {
    case 'c':
        a->source.chat = true;
        return 0;
    case 'S':
        a->source.system = arg;
        a->source.chat = true;
        return 0;
    case KEY_TEMPLATE:
        a->source.template_name = arg;
        a->source.chat = true;
        return 0;
    case 'l':
        a->source.jsonl = arg;
        return 0;
    case 'n':
        s->max_response_tokens = count(state, "--tokens", arg, 1);
        return 0;
    case 't':
        s->temperature = real(state, "--temperature", arg, 0.0, 100.0);
        return 0;
    case KEY_TOP_K:
        s->top_k = count(state, "--top-k", arg, 0);
        return 0;
    case KEY_TOP_P:
        s->top_p = real(state, "--top-p", arg, 1e-9, 1.0);
        return 0;
    case KEY_MIN_P:
        s->min_p = real(state, "--min-p", arg, 0.0, 0.999999);
        return 0;
    case KEY_IGNORE_EOS:
        s->ignore_eos = true;
        return 0;
    case 'x':
        if (s->stop_count == STOPS_MAX || *arg == '\0') {
            argp_error(state, "at most %u --stop, none of them empty",
                       STOPS_MAX);
        }
        a->stop[s->stop_count++] = arg;
        return 0;
    case 'k':
        a->samples = count(state, "--samples", arg, 1);
        return 0;
    case 's':
        a->seed = seed(state, arg);
        return 0;
    case 'd':
        if (strcmp(arg, "f32") != 0 && strcmp(arg, "bf16") != 0) {
            argp_error(state, "--dtype is f32 or bf16, not \"%s\"", arg);
        }
        a->dtype = strcmp(arg, "bf16") == 0 ? DYTI_BF16 : DYTI_F32;
        return 0;
    case 'j':
        a->threads = count(state, "--threads", arg, 1);
        return 0;
    case 'J':
        a->json = true;
        return 0;
    case ARGP_KEY_ARGS:
        a->word = state->argv + state->next;
        a->words = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which model?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    options,
    parse,
    "MODEL [PROMPT...]",
    "Generates text.  Prompts come from the command line, from --jsonl, or, "
    "without either, from standard input as one text.\v"
    "Examples:\n"
    "  dynatrain generate --chat smollm2-135m-instruct \"What is rain?\"\n"
    "  echo -n \"Once\" | dynatrain generate -t 0.8 smollm2-135m-instruct\n"
    "  dynatrain generate build/models/tiny \"dbca>\" -n 4\n",
    NULL,
    NULL,
    NULL};

/* ---- answers ------------------------------------------------------------- */

static enum dyt_status print_json(const struct dyti_prompts *p,
                                  const struct dyti_sample *s, const char *text)
{
    struct dyti_json j;
    const char *line;
    size_t bytes;
    enum dyt_status st;

    dyti_json_init(&j, 0);
    dyti_json_begin_object(&j, NULL);
    dyti_json_text(&j, "prompt", p->text[s->prompt]);
    dyti_json_u64(&j, "sample", s->index);
    dyti_json_text(&j, "text", text);
    dyti_json_text(&j, "finish_reason", dyti_finish_name(s->finish));
    dyti_json_begin_array(&j, "ids");
    for (uint32_t i = 0; i < s->count; i++) {
        dyti_json_i64(&j, NULL, s->ids[i]);
    }
    dyti_json_end(&j);
    dyti_json_begin_array(&j, "logprobs");
    for (uint32_t i = 0; i < s->count; i++) {
        dyti_json_f64(&j, NULL, (double)s->raw[i]);
    }
    dyti_json_end(&j);
    dyti_json_end(&j);
    st = dyti_json_finish(&j, &line, &bytes);
    if (st == DYT_OK) {
        fwrite(line, 1, bytes, stdout);
    }
    dyti_json_release(&j);
    return st;
}

static enum dyt_status print_samples(const struct dyti_prompts *p,
                                     const struct arguments *a,
                                     const struct dyti_sample *sample,
                                     uint32_t n)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; st == DYT_OK && i < n; i++) {
        char *text = NULL;
        size_t bytes;

        st = p->tokenizer.ops->decode(p->tokenizer.self, sample[i].ids,
                                      sample[i].count, true, &text, &bytes);
        if (st == DYT_OK && a->json) {
            st = print_json(p, &sample[i], text);
        } else if (st == DYT_OK) {
            if (n > 1) {
                printf("%s> %s\n", i > 0 ? "\n" : "",
                       p->text[sample[i].prompt]);
            }
            printf("%s\n", text);
        }
        free(text);
    }
    return st;
}

static void progress(void *arg, uint32_t finished, uint32_t total)
{
    int64_t *last = arg, now = dyti_now_ns();

    if (now - *last > 2000000000) {
        *last = now;
        fprintf(stderr, "%u of %u answers\n", finished, total);
    }
}

/* Without --tokens: TOKENS, or as many as the model has positions for. */
static enum dyt_status limit_tokens(struct arguments *a, uint32_t longest,
                                    const char *dir)
{
    struct dyti_arch arch;
    enum dyt_status st;

    if (a->sampling.max_response_tokens != 0) {
        return DYT_OK;
    }
    st = dyti_hf_config_read(dir, &arch);
    if (st == DYT_OK) {
        int64_t room = arch.max_positions - (int64_t)longest;

        a->sampling.max_response_tokens = room < 1        ? 1
                                          : room < TOKENS ? (uint32_t)room
                                                          : TOKENS;
    }
    return st;
}

static enum dyt_status answer(const struct dyti_prompts *p, struct arguments *a,
                              const char *dir)
{
    struct dyti_solo_params params = {.model_dir = dir,
                                      .dtype = a->dtype,
                                      .threads = a->threads,
                                      .tokenizer = &p->tokenizer};
    uint64_t total = (uint64_t)p->count * a->samples;
    int64_t start = dyti_now_ns(), last = start;
    struct dyti_solo solo;
    struct dyti_sample *sample = NULL;
    uint32_t longest = 0, n = 0;
    struct dyti_rollout_stats stats;
    enum dyt_status st;

    for (uint32_t i = 0; i < p->count; i++) {
        longest =
            p->prompt[i].id_count > longest ? p->prompt[i].id_count : longest;
    }
    st = limit_tokens(a, longest, dir);
    params.positions = longest + a->sampling.max_response_tokens;
    params.sequences = total < SEQUENCES_MAX ? (uint32_t)total : SEQUENCES_MAX;
    st = st != DYT_OK ? st : dyti_solo_open(&params, &solo);
    if (st != DYT_OK) {
        return st;
    }
    {
        struct dyti_rollout_request q = {.prompt = p->prompt,
                                         .prompt_count = p->count,
                                         .samples_per_prompt = a->samples,
                                         .sampling = &a->sampling,
                                         .eos = solo.generation.eos,
                                         .eos_count = solo.generation.eos_count,
                                         .seed = a->seed,
                                         .progress = progress,
                                         .arg = &last};

        st = dyti_rollout_generate(solo.rollout, &q, &sample, &n, &stats);
    }
    st = st != DYT_OK ? st : print_samples(p, a, sample, n);
    for (uint32_t i = 0; i < n; i++) {
        dyti_sample_fini(&sample[i]);
    }
    free(sample);
    dyti_solo_close(&solo);
    return st;
}

int dyti_cmd_generate(int argc, char **argv)
{
    struct arguments a = {
        .samples = 1, .seed = 1, .dtype = DYTI_F32, .sampling = {.top_p = 1.0}};
    struct dyti_prompts p = {0};
    char *dir = NULL;
    enum dyt_status st;

    argp_err_exit_status = DYTI_EXIT_CALLER;
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    a.sampling.stop = a.stop;
    st = dyti_find_model(a.word[0], &dir);
    a.source.word = a.word + 1;
    a.source.words = a.words - 1;
    st = st != DYT_OK ? st : dyti_prompts_gather(&p, &a.source, dir);
    st = dyti_exit_given(st != DYT_OK ? st : answer(&p, &a, dir));
    dyti_prompts_fini(&p);
    free(dir);
    return st == DYT_OK ? DYTI_EXIT_OK : dyti_exit_fail("generate", st);
}
