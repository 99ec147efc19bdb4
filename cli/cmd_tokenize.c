/* dynatrain tokenize MODEL [TEXT…] */
#include "base/json_out.h"
#include "cli/commands.h"
#include "cli/exit.h"
#include "cli/load_job.h"
#include "cli/read_all.h"
#include "format/tokenizer.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct arguments {
    char **word;
    int words;
    bool decode, special, json;
};

static const struct argp_option options[] = {
    {"decode", 'd', NULL, 0, "The words are ids: print their text", 0},
    {"special", 's', NULL, 0,
     "Add what the file's post-processor adds (BOS, ...)", 0},
    {"json", 'j', NULL, 0, "One JSON object a text: ids and pieces", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;

    (void)arg;
    switch (key) {
    case 'd':
        a->decode = true;
        return 0;
    case 's':
        a->special = true;
        return 0;
    case 'j':
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
    "MODEL [TEXT...]",
    "Prints the token ids of texts (of standard input without any), or with "
    "--decode the text of ids.\v"
    "Examples:\n"
    "  dynatrain tokenize smollm2-135m-instruct \"Hello, world!\"\n"
    "  dynatrain tokenize -d smollm2-135m-instruct 19556 28\n",
    NULL,
    NULL,
    NULL};

static enum dyt_status print_ids(const struct dyti_tokenizer *t,
                                 const struct arguments *a, const char *text,
                                 size_t bytes)
{
    int32_t *ids = NULL;
    size_t count;
    struct dyti_json json;
    const char *line;
    size_t line_bytes;
    enum dyt_status st =
        t->ops->encode(t->self, text, bytes, a->special, &ids, &count);

    if (st != DYT_OK) {
        return st;
    }
    if (!a->json) {
        for (size_t i = 0; i < count; i++) {
            printf("%s%d", i > 0 ? " " : "", ids[i]);
        }
        printf("\n");
        free(ids);
        return DYT_OK;
    }
    dyti_json_init(&json, 0);
    dyti_json_begin_object(&json, NULL);
    dyti_json_begin_array(&json, "ids");
    for (size_t i = 0; i < count; i++) {
        dyti_json_i64(&json, NULL, ids[i]);
    }
    dyti_json_end(&json);
    dyti_json_begin_array(&json, "pieces");
    for (size_t i = 0; st == DYT_OK && i < count; i++) {
        const char *piece = "";
        size_t piece_bytes = 0;

        st = t->ops->token_bytes(t->self, ids[i], &piece, &piece_bytes);
        dyti_json_bytes(&json, NULL, piece, piece_bytes);
    }
    dyti_json_end(&json);
    dyti_json_end(&json);
    st = st != DYT_OK ? st : dyti_json_finish(&json, &line, &line_bytes);
    if (st == DYT_OK) {
        fwrite(line, 1, line_bytes, stdout);
    }
    dyti_json_release(&json);
    free(ids);
    return st;
}

static enum dyt_status print_text(const struct dyti_tokenizer *t, char **word,
                                  int words)
{
    int32_t *ids = calloc((size_t)words + 1, sizeof(*ids));
    char *text = NULL;
    size_t bytes;
    enum dyt_status st = DYT_OK;

    if (ids == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%d ids", words);
    }
    for (int i = 0; st == DYT_OK && i < words; i++) {
        char *end;
        long id;

        errno = 0;
        id = strtol(word[i], &end, 10);
        if (errno != 0 || end == word[i] || *end != '\0' || id < 0 ||
            id >= t->ops->vocab_size(t->self)) {
            st = DYTI_FAIL(DYT_ERR_INVALID,
                           "\"%s\" is not an id of this model (0 to %d)",
                           word[i], t->ops->vocab_size(t->self) - 1);
        }
        ids[i] = (int32_t)id;
    }
    st = st != DYT_OK ? st
                      : t->ops->decode(t->self, ids, (size_t)words, false,
                                       &text, &bytes);
    if (st == DYT_OK) {
        fwrite(text, 1, bytes, stdout);
        printf("\n");
    }
    free(text);
    free(ids);
    return st;
}

static enum dyt_status tokenize_stdin(const struct dyti_tokenizer *t,
                                      const struct arguments *a)
{
    char *text = NULL;
    size_t bytes;
    enum dyt_status st = dyti_read_all(stdin, "standard input", &text, &bytes);

    st = st != DYT_OK ? st : print_ids(t, a, text, bytes);
    free(text);
    return st;
}

int dyti_cmd_tokenize(int argc, char **argv)
{
    struct arguments a = {0};
    struct dyti_tokenizer t = {0};
    char *dir = NULL;
    enum dyt_status st;

    argp_err_exit_status = DYTI_EXIT_CALLER;
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (a.decode && (a.json || a.words == 1)) {
        fprintf(stderr, "dynatrain tokenize: --decode wants ids on the command "
                        "line, and prints text, not JSON\n");
        return DYTI_EXIT_CALLER;
    }
    st = dyti_find_model(a.word[0], &dir);
    st = st != DYT_OK ? st : dyti_tokenizer_open(dir, &t);
    if (st == DYT_OK && a.decode) {
        st = print_text(&t, a.word + 1, a.words - 1);
    } else if (st == DYT_OK && a.words == 1) {
        st = tokenize_stdin(&t, &a);
    } else {
        for (int i = 1; st == DYT_OK && i < a.words; i++) {
            st = print_ids(&t, &a, a.word[i], strlen(a.word[i]));
        }
    }
    st = dyti_exit_given(st);
    dyti_tokenizer_close(&t);
    free(dir);
    return st == DYT_OK ? DYTI_EXIT_OK : dyti_exit_fail("tokenize", st);
}
